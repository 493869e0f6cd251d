"""Chains, what they have drawn since their kernels were frozen, and how often moves were taken."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from ..draws import Draws, Pool
from ..estimate.mean import BATCHES
from ..estimate.mixing import time_by_memory
from ..grouping import surely
from ..kernel.base import Info, Kernel, State
from ..kernel.compose import Cycle, MixtureKernel
from ..target.target import Target
from .position import Lesson, Position, check_pairs, memo_of, place_of
from .recipes.base import Known, Moves, Recipe
from .summary import mixing_of

Counted = tuple[str, int, Tensor]  # a kernel, its chain-steps, and what :func:`_sums` adds up

BURN_IN = 4  # a quarter of the record is left out

EVERY = 3  # steps of a measurement that draws are kept of to learn from

SOME_DRAWS = 16  # draws of each chain of a round that are learned from

MOST_NUMBERS = 2**27  # of a record, coordinates of all chains; a longer one is thinned


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


@dataclass
class Recorded:
    """The chains of a run, and all that they have drawn since kernels were frozen.

    Attributes:
        recipe: What moves them.
        state: Where they are.
        worth: Of each move between models: effective draws for each likelihood evaluation.
        shares: Of the steps, by move.
        record: States, every ``thin``-th step alone once memory is short.
        gone: States before these, which are not at hand.
        steps: Steps since the record began.
        overflows: Points at which a likelihood was no number, until then.
        tally: Of acceptances since the record began, or since it was put back.
        crossings: Of few models, acceptance probabilities of jumps between these, likewise.
    """

    recipe: Recipe
    state: State
    worth: dict[str, float] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    record: list[State] = field(default_factory=list)
    gone: int = 0
    thin: int = 1
    steps: int = 0
    overflows: int = 0
    tally: Tally = field(init=False)
    crossings: Crossings | None = None

    def begin(self, thin: int = 1) -> None:
        """A record of what is drawn from now on, of every ``thin``-th step."""
        self.record, self.gone, self.thin, self.steps = [], 0, thin, 0
        self.tally, self.crossings = Tally(self.recipe.target), None
        self.overflows = int(self.recipe.target.overflows)

    @torch.no_grad()
    def advance(self, kernel: Kernel, n: int) -> Iterator[int]:
        """Steps of a frozen kernel, recorded, until it is late; after each, how many are ahead.

        Raises:
            NonFiniteError: A density was NaN or +inf.
        """
        if self.crossings is None and self.recipe.host.few and self.recipe.host.several:
            names = {k.name for k in kernel.parts() if k.between}
            self.crossings = Crossings(self.recipe.target, len(self.state.code), names)
        self._kernel = kernel
        with self.recipe.limit.until_spent():
            for ahead in reversed(range(n)):
                if self.recipe.late:
                    break
                self.state, infos = kernel.step(self.state, self.recipe.generator)
                self.tally.add(infos)
                if self.crossings is not None:
                    self.crossings.add(infos)
                self._keep()
                yield ahead
        self.tally.check()

    @torch.no_grad()
    def warmed(self, kernel: Kernel, n: int) -> Kernel:
        """A kernel that has learned from n steps, frozen; they are recorded.

        Raises:
            NonFiniteError: A density was NaN or +inf.
        """
        tally = Tally(self.recipe.target)
        with self.recipe.limit.until_spent():
            for _ in range(n):
                if self.recipe.late:
                    break
                kernel, self.state, infos = kernel.adapt(self.state, self.recipe.generator)
                tally.add(infos)
                self._keep()
        tally.check()
        return kernel.frozen()

    def position(self, lesson: Lesson, known: Known, ahead: int, counted: int) -> Position:
        """Where the run is, all that the next step depends on.

        Arguments:
            lesson: Its moves' own.
            known: What is known.
            ahead: Steps of the round that are left.
            counted: Evaluations before the round.

        Raises:
            NonFiniteError: A density was NaN or +inf.
        """
        self.tally.check()
        code, theta, log_joint, memo = self.state
        owner = place_of(memo, self._kernel, self.recipe.target)
        return Position(
            lesson,
            climbs=known.climbs,
            searched=known.searched,
            needed=known.needed,
            code=code.cpu(),
            theta=theta.cpu(),
            log_joint=log_joint.cpu(),
            moves=tuple(k.name for k in self._kernel.parts()),
            memo=() if memo is None or owner < 0 else memo.values,
            owner=owner,
            generator=self.random,
            recorded=self.gone + len(self.record),
            thin=self.thin,
            steps=self.steps,
            overflows=int(self.recipe.target.overflows) - self.overflows,
            ahead=ahead,
            evaluations=self.recipe.evaluations,
            counted=counted,
            why=self.recipe.why,
        )

    @property
    def random(self) -> Tensor:
        """All that random numbers depend on."""
        return self.recipe.generator.get_state()

    def put(self, at: Position, record: list[State], kernel: Kernel) -> None:
        """Put chains of this kernel where they were, with the last draws of their record.

        Raises:
            CheckpointError: They were moved by another kernel.
        """
        check_pairs("start", {"kernel": (at.moves, tuple(k.name for k in kernel.parts()))})
        self._kernel, self.tally = kernel, Tally(self.recipe.target)
        device = self.recipe.target.device
        if at.generator.dim() == 1:
            self.recipe.generator.set_state(at.generator)
        values = tuple(x.to(device) for x in at.memo)
        memo = memo_of(at.owner, values, kernel, self.recipe.target)
        self.state = State(at.code.to(device), at.theta.to(device), at.log_joint.to(device), memo)
        self.record = record[-at.recorded :] if at.recorded else []
        self.gone = at.recorded - len(self.record)
        self.thin, self.steps = at.thin, at.steps
        self.overflows = int(self.recipe.target.overflows) - at.overflows

    def _keep(self) -> None:
        """Record where chains are, every other step alone once memory is short."""
        self.steps += 1
        if self.steps % self.thin:
            return
        self.record.append(self.state._replace(memo=None))
        self._thin()

    def _thin(self) -> None:
        """Keep every other draw alone where memory is short."""
        each = self.state.theta.numel() + self.state.code.numel()
        if (self.gone + len(self.record)) * each > MOST_NUMBERS:
            self.record = self.record[1 - self.gone % 2 :: 2]
            self.gone, self.thin = self.gone // 2, 2 * self.thin

    def measure(self, moves: Moves) -> Pool | None:
        """Each new move between models alone, once; what these steps have drawn, if any.

        Once a move forgets so soon that the first round suffices, those after it are not measured
        and count as worth nothing.
        """
        plan = self.recipe.plan
        seen, account, soon = [], self.recipe.target.account, False
        for name, move in moves.between.items():
            if name in self.worth or len(moves.between) == 1:
                continue
            if soon:
                self.worth[name] = 0.0
                continue
            self.begin()
            before = account.evaluations
            self.warmed(Cycle([move, *moves.inside]), plan.measured)
            if self.recipe.late:
                break
            asked = self.recipe.asked(torch.stack([s.code for s in self.record], 1).cpu())
            lasts = time_by_memory(asked.numpy(), plan.variance) * self.thin
            tau = max(mixing_of(self.recipe, self.kept()).tau, lasts)
            self.worth[name] = 1 / (tau * max(1, account.evaluations - before))
            soon = 2 * plan.times * tau <= plan.first * (1 - 1 / BURN_IN)
            seen.append(pool_of(self.kept(), EVERY, self.recipe.target.device))
        return reduce(Pool.joined, seen) if seen else None

    def mixture(self, moves: Moves) -> Kernel:
        """Moves between models by their worth, each followed by those inside."""
        plan, between = self.recipe.plan, moves.between
        if len(between) < 2:
            self.shares = dict.fromkeys(between, 1.0)
            alone, *others = [*between.values(), *moves.inside]
            return Cycle([alone, *others]) if others else alone
        worth = {name: self.worth.get(name, 0.0) for name in between}  # 0 if it was too late
        best = max(worth.values()) or 1.0
        shares = [w if w > plan.useful * best else plan.least * best for w in worth.values()]
        self.shares = {m: s / sum(shares) for m, s in zip(worth, shares, strict=True)}
        kernels = [Cycle([move, *moves.inside]) for move in between.values()]
        return MixtureKernel(kernels, [*self.shares.values()])

    def told(self) -> dict[str, Any]:
        """How moves went in the record, as fields of :class:`~trjmcmc.run.summary.Run`."""
        return {
            "shares": self.shares,
            "steps": self.steps,
            "overflows": int(self.recipe.target.overflows) - self.overflows,
            "acceptance": self.tally.rates(),
            "crossings": None if self.crossings is None else self.crossings.result(),
            "settings": {k.name: k.adapted() for k in self._kernel.parts() if k.adapted()},
        }

    def some(self) -> Pool:
        """A few of these draws of each chain, where the target is."""
        draws = self.kept()
        return pool_of(draws, max(1, draws.n_draws // SOME_DRAWS), self.recipe.target.device)

    @property
    def left_out(self) -> int:
        """First states of the record that are burn-in."""
        return max(0, (self.gone + len(self.record)) // BURN_IN - self.gone)

    def kept(self) -> Draws:
        """The record without its burn-in; where chains are if there is none."""
        kept = self.record[self.left_out :] or [self.state]
        code, theta, log_joint, _ = zip(*kept, strict=True)
        return Draws(
            torch.stack(code, 1).cpu(),
            torch.stack(theta, 1).cpu(),
            torch.stack(log_joint, 1).cpu(),
            thin=self.thin,
        )


def pool_of(draws: Draws, every: int, device: torch.device) -> Pool:
    """Every so many-th draw of all chains, on a device."""
    parts = (draws.code, draws.theta, draws.log_joint.double())
    return Pool(*(x[:, ::every].flatten(0, 1).to(device) for x in parts))
