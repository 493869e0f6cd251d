"""Chains, and what they have drawn since their kernels were frozen."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from ..draws import Draws, Pool
from ..kernel.base import Kernel, State
from ..kernel.compose import Cycle, MixtureKernel
from .count import Tally
from .look import judged
from .recipes.base import Moves, Recipe

BURN_IN = 4  # a quarter of the record is left out

EVERY = 3  # steps of a measurement that draws are kept of to learn from

SOME_DRAWS = 16  # draws of each chain of a round that are learned from

MOST_NUMBERS = 2**27  # of a record, coordinates of all chains; a longer one is thinned


@dataclass
class Recorded:
    """The chains of a run, and all that they have drawn since kernels were frozen.

    Attributes:
        recipe: What moves them.
        state: Where they are.
        worth: Of each move between models: effective draws for each likelihood evaluation.
        shares: Of the steps, by move.
        record: States, every ``thin``-th step alone once memory is short.
        steps: Steps since the record began.
        overflows: Points at which a likelihood was no number, until then.
    """

    recipe: Recipe
    state: State
    worth: dict[str, float] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    record: list[State] = field(default_factory=list)
    thin: int = 1
    steps: int = 0
    overflows: int = 0

    def begin(self) -> None:
        """A record of what is drawn from now on."""
        self.record, self.thin, self.steps = [], 1, 0
        self.overflows = int(self.recipe.target.overflows)

    def advance(self, kernel: Kernel, n: int) -> None:
        """Steps of a frozen kernel, which are recorded; where chains are if it is too late.

        Raises:
            NonFiniteError: A density was NaN or +inf.
        """
        self._make(kernel, n, learns=False)
        self.record = self.record or [self.state]

    def warmed(self, kernel: Kernel, n: int) -> Kernel:
        """A kernel that has learned from n steps, frozen; they are recorded.

        Raises:
            NonFiniteError: A density was NaN or +inf.
        """
        return self._make(kernel, n, learns=True).frozen()

    @torch.no_grad()
    def _make(self, kernel: Kernel, n: int, *, learns: bool) -> Kernel:
        """Make n steps, or as many as there is time for; the kernel as it then is."""
        tally, generator = Tally(self.recipe.target), self.recipe.generator
        for _ in range(n):
            if self.recipe.late:
                break
            if learns:
                kernel, self.state, infos = kernel.adapt(self.state, generator)
            else:
                self.state, infos = kernel.step(self.state, generator)
            tally.add(infos)
            self._keep()
        tally.check()
        return kernel

    def _keep(self) -> None:
        """Record where chains are, every other step alone once memory is short."""
        self.steps += 1
        if self.steps % self.thin:
            return
        self.record.append(self.state)
        if len(self.record) * self.state.theta.numel() > MOST_NUMBERS:
            self.record, self.thin = self.record[1::2], 2 * self.thin

    def measure(self, moves: Moves) -> list[Pool]:
        """Each new move between models alone, once; what these steps have drawn.

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
            tau = judged(self.recipe, self.kept()).tau
            self.worth[name] = 1 / (tau * max(1, account.evaluations - before))
            soon = 2 * plan.times * tau <= plan.first * (1 - 1 / BURN_IN)
            seen.append(pool_of(self.kept(), EVERY, self.recipe.target.device))
        return seen

    def mixture(self, moves: Moves) -> Kernel:
        """Moves between models by their worth, each followed by those inside."""
        plan, between = self.recipe.plan, moves.between
        if len(between) < 2:
            self.shares = dict.fromkeys(between, 1.0)
            return Cycle([*between.values(), *moves.inside])
        worth = {name: self.worth.get(name, 0.0) for name in between}  # 0 if it was too late
        best = max(worth.values()) or 1.0
        shares = [w if w > plan.useful * best else plan.least * best for w in worth.values()]
        self.shares = {m: s / sum(shares) for m, s in zip(worth, shares, strict=True)}
        kernels = [Cycle([move, *moves.inside]) for move in between.values()]
        return MixtureKernel(kernels, [*self.shares.values()])

    def some(self) -> Pool:
        """A few of these draws of each chain, where the target is."""
        draws = self.kept()
        return pool_of(draws, max(1, draws.n_draws // SOME_DRAWS), self.recipe.target.device)

    def kept(self) -> Draws:
        """The record without its burn-in."""
        kept = self.record[len(self.record) // BURN_IN :]
        return Draws(
            torch.stack([s.code for s in kept], 1).cpu(),
            torch.stack([s.theta for s in kept], 1).cpu(),
            torch.stack([s.log_joint for s in kept], 1).cpu(),
            thin=self.thin,
        )


def pool_of(draws: Draws, every: int, device: torch.device) -> Pool:
    """Every so many-th draw of all chains, on a device."""
    parts = (draws.code, draws.theta, draws.log_joint.double())
    return Pool(*(x[:, ::every].flatten(0, 1).to(device) for x in parts))


def joined(pools: list[Pool]) -> Pool:
    """All draws of some pools."""
    first, *rest = pools
    for pool in rest:
        first = first.joined(pool)
    return first
