"""What chains visited and crossed, counted while they run."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..estimate.mean import BATCHES
from ..grouping import surely
from ..kernel.base import Info
from ..target.target import Target

Pair = tuple[Tensor, Tensor, Tensor]  # of a jump: places in two tables, and its chance


class Rows(NamedTuple):
    """What one accept/reject step of all chains adds to a tally.

    Attributes:
        kernel: Name of the kernel.
        chains: Number of chains.
        sums: Proposals between models, acceptances, acceptances between models, shape (3,).
        bad: Where densities were not defined, (C,), and code and coordinates of the first such
            proposal; None where there is none.
    """

    kernel: str
    chains: int
    sums: Tensor
    bad: tuple[Tensor, Tensor, Tensor] | None


class Tally:
    """Running acceptance counts, kept on the device.

    For each kernel: proposals and acceptances within a model, then between models.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._steps: dict[str, int] = {}  # of all chains, by kernel
        self._sums: dict[str, Tensor] = {}
        self._undefined = torch.zeros((), dtype=torch.long, device=target.device)
        self._bad: tuple[Tensor, Tensor] | None = None

    def add(self, infos: list[Info]) -> None:
        """Count one step of all chains; no copy to the host."""
        self.add_rows(self.rows(infos))

    @staticmethod
    def rows(infos: list[Info]) -> list[Rows]:
        """What a step adds, a function of its argument."""
        return [_rows(info) for info in infos]

    def add_rows(self, rows: list[Rows]) -> None:
        """Add what a step adds."""
        for kernel, chains, sums, bad in rows:
            if kernel not in self._sums:
                self._steps[kernel], self._sums[kernel] = 0, torch.zeros_like(sums)
            self._steps[kernel] += chains
            self._sums[kernel] += sums
            if bad is None:
                continue
            undefined, *here = bad
            if self._bad is None:
                self._bad = here[0], here[1]
            else:
                before = self._undefined > 0
                self._bad = (
                    torch.where(before, self._bad[0], here[0]),
                    torch.where(before, self._bad[1], here[1]),
                )
            self._undefined = self._undefined + undefined.sum()

    def check(self) -> None:
        """Raise if any proposal so far had a NaN or infinite density."""
        if self._bad is not None and int(self._undefined):
            code, theta = self._bad
            raise self.target.non_finite(code[0], theta[0], int(self._undefined))

    def rates(self) -> dict[str, dict[str, float]]:
        """Acceptance rates by kernel; NaN where nothing was proposed."""
        table = {}
        for name, sums in self._sums.items():
            across, taken, crossed = sums.tolist()
            inside = self._steps[name] - across
            table[name] = {
                "within": (taken - crossed) / inside if inside else math.nan,
                "between": crossed / across if across else math.nan,
                "proposals": inside + across,
            }
        return table

    def counted(self) -> list[Rows]:
        """All that was counted, none of it undefined, for another tally to take."""
        return [Rows(name, self._steps[name], sums, None) for name, sums in self._sums.items()]


def _rows(info: Info) -> Rows:
    before, proposed, accepted = info.before, info.proposed, info.accepted
    if proposed.code is before.code:
        taken = accepted.sum()
        sums = torch.stack([torch.zeros_like(taken), taken, torch.zeros_like(taken)])
    else:
        between = (proposed.code != before.code).any(-1)
        sums = torch.stack([between, accepted, between & accepted]).sum(-1)
    fine = proposed.log_joint < math.inf  # false for NaN too
    bad = None
    if not surely(fine):
        first = (~fine).int().argmax(0, keepdim=True)  # a 0-dim index would be copied to the host
        bad = ~fine, proposed.code[first], proposed.theta[first]
    return Rows(info.kernel, len(accepted), sums, bad)


class Crossings:
    """Acceptance probabilities of the jumps between the models of a small space, summed up.

    Batches are groups of chains; where chains are few, each is cut into stretches of time too,
    which are merged in pairs as the run grows.

    Arguments:
        target: A target with few models.
        chains: Number of chains.
        names: Names of the kernels that move between models.
    """

    def __init__(self, target: Target, chains: int, names: set[str]) -> None:
        self.space, self.names = target.space, names
        self._models = m = len(target.space.enumerate())
        self._groups = min(chains, BATCHES)
        self._most = 2 * -(-BATCHES // self._groups) if self._groups < BATCHES else 1
        device = target.device
        self._group = torch.arange(chains, device=device) % self._groups
        self._one = torch.ones(chains, dtype=torch.float64, device=device)
        self._span, self._steps = 1, 0
        zeros = torch.zeros(self._most, self._groups, m, m, dtype=torch.float64, device=device)
        self._crossed, self._stays = zeros, zeros.sum(-1)

    def pairs(self, infos: list[Info]) -> list[Pair]:
        """By jump, place in the table of its model, of its model and the next, and its chance."""
        found, m = [], self._models
        for info in infos:
            if info.kernel in self.names:
                here = self._group * m + self.space.index(info.before.code)
                to = here * m + self.space.index(info.proposed.code)
                found.append((here, to, info.chance))
        return found

    def add_pairs(self, pairs: list[Pair]) -> None:
        """Add what :meth:`pairs` says of a step."""
        part = self._steps // self._span
        if part == self._most > 1:
            self._merge()
            part = self._steps // self._span
        part = min(part, self._most - 1)
        for here, to, chance in pairs:
            self._crossed[part].view(-1).index_add_(0, to, chance)
            self._stays[part].view(-1).index_add_(0, here, self._one)
        self._steps += 1

    def _merge(self) -> None:
        half = self._most // 2
        for table in (self._crossed, self._stays):
            table[:half] = table[0::2] + table[1::2]
            table[half:] = 0.0
        self._span *= 2

    def result(self) -> tuple[Tensor, Tensor]:
        """Sums of acceptance probabilities (B, M, M) and numbers of draws (B, M), on the CPU."""
        used = self._stays.sum((1, 2)) > 0
        return self._crossed[used].flatten(0, 1).cpu(), self._stays[used].flatten(0, 1).cpu()
