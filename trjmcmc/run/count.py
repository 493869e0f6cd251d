"""What chains visited and crossed, counted while they run."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..estimate.mean import BATCHES
from ..grouping import surely
from ..kernel.base import Info
from ..target.target import Target

Counted = tuple[str, int, Tensor]  # a kernel, its chain-steps, and what :func:`_sums` adds up


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
        for info in infos:
            self.add_counted([(info.kernel, len(info.accepted), _sums(info))])
            proposed = info.proposed
            fine = proposed.log_joint < math.inf  # false for NaN too
            if surely(fine):
                continue
            first = (~fine).int().argmax(0, keepdim=True)  # a 0-dim index would be copied
            code, theta = proposed.code[first], proposed.theta[first]
            if self._bad is not None:
                before = self._undefined > 0
                code = torch.where(before, self._bad[0], code)
                theta = torch.where(before, self._bad[1], theta)
            self._bad = code, theta
            self._undefined = self._undefined + (~fine).sum()

    def add_counted(self, counted: list[Counted]) -> None:
        """Add what another tally has counted."""
        for kernel, chains, sums in counted:
            if kernel not in self._sums:
                self._steps[kernel], self._sums[kernel] = 0, torch.zeros_like(sums)
            self._steps[kernel] += chains
            self._sums[kernel] += sums

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

    def counted(self) -> list[Counted]:
        """All that was counted, none of it undefined, for another tally to take."""
        return [(name, self._steps[name], sums) for name, sums in self._sums.items()]


def _sums(info: Info) -> Tensor:
    """Proposals between models, acceptances, acceptances between models, shape (3,)."""
    before, proposed, accepted = info.before, info.proposed, info.accepted
    if proposed.code is before.code:
        taken = accepted.sum()
        return torch.stack([torch.zeros_like(taken), taken, torch.zeros_like(taken)])
    between = (proposed.code != before.code).any(-1)
    return torch.stack([between, accepted, between & accepted]).sum(-1)


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

    def add(self, infos: list[Info]) -> None:
        """Count one step of all chains."""
        part, m = self._steps // self._span, self._models
        if part == self._most > 1:
            self._merge()
            part = self._steps // self._span
        part = min(part, self._most - 1)
        for info in infos:
            if info.kernel in self.names:
                here = self._group * m + self.space.index(info.before.code)
                to = here * m + self.space.index(info.proposed.code)
                self._crossed[part].view(-1).index_add_(0, to, info.chance)
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
