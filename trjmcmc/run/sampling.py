"""Sampling as pure steps: from a plan and the state of a shard to its draws and its next state.

A shard is a batch of chains with random numbers of its own. Whatever the loop holds between two
draws is part of its state, as plain data, so that a block of draws can begin from it anywhere, with
the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..draws import Recorder
from ..grouping import on_host
from ..kernel.base import Info, Kernel, State
from ..rng import stream
from ..target.target import Target
from .count import Crossings, Pair, Rows, StepsInModels, Tally
from .memories import Held, Memories
from .policy_of_capture import CapturePolicy
from .renewals import Renewals
from .stepper import Ahead, Stepper


@dataclass(frozen=True)
class SamplingPlan:
    """What does not change while a run samples.

    Attributes:
        target: The target.
        kernel: Frozen; it leaves the target invariant.
        crosses: Whether jumps between the models of a small space are summed up.
        visits: Whether steps in models are counted, those between kept draws included.
    """

    target: Target
    kernel: Kernel
    crosses: bool = False
    visits: bool = False


class Shard(NamedTuple):
    """Chains between two draws: plain data and tensors, all that the next draw depends on.

    Attributes:
        code, theta, log_joint: Where the chains are, as of :class:`~trjmcmc.kernel.State`.
        memo: What the last kernel knew of that place.
        owner: Place of the memo's owner, as of :class:`~trjmcmc.run.memories.Memories`.
        generator: State of the generator.
        tally, crossings, visits, renewals: What was counted so far, or None.
        remembered: What the kernel's maps remember; None for what they hold when the block begins.
        parts: Where these are the chains of several shards side by side, each shard as plain data.
    """

    code: Tensor
    theta: Tensor
    log_joint: Tensor
    memo: tuple[Tensor, ...]
    owner: int
    generator: Tensor
    tally: Held
    crossings: Held | None
    visits: Held | None
    renewals: Held | None
    remembered: tuple[Held, ...] | None
    parts: tuple[Held, ...] | None = None


class Walk:
    """Chains that are advanced in place.

    Arguments:
        plan: What they are advanced by.
        state: Where they are.
        generator: The only source of randomness.
        ancestor: The independent draw that each chain descends from, shape (C,), if known.

    Attributes:
        state: Where the chains are.
        whole: Whether they are between two draws; not where a draw was broken off.
        tally, crossings, visits, renewals: What was counted so far, or None.
    """

    def __init__(
        self,
        plan: SamplingPlan,
        state: State,
        generator: torch.Generator,
        ancestor: Tensor | None = None,
    ) -> None:
        self.plan, self.state, self.generator = plan, state, generator
        target, kernel, chains = plan.target, plan.kernel, len(state.code)
        self.ancestor, self.whole = ancestor, True
        self.tally = Tally(target)
        between = {k.name for k in kernel.parts() if k.between}
        self.crossings = Crossings(target, chains, between) if plan.crosses else None
        self.visits = StepsInModels(target, chains) if plan.visits else None
        self.renewals = None if ancestor is None else Renewals(kernel, state, ancestor)
        self._memories = Memories(kernel, target)
        self._stepper = Stepper(kernel, self._counts, generator)

    def capture(self, mode: bool | str, ahead: Ahead, policy: CapturePolicy) -> None:
        """Capture steps from now on, as of :class:`~trjmcmc.run.stepper.Stepper`."""
        kernel, counts = self.plan.kernel, self._counts
        self._stepper = Stepper(kernel, counts, self.generator, mode, ahead, policy)

    @property
    def captured(self) -> tuple[str, ...]:
        """What came of capturing steps, in words."""
        return tuple(self._stepper.said)

    @property
    def capturing(self) -> float:
        """Seconds that captures have taken."""
        return self._stepper.seconds

    @property
    def has_captured(self) -> bool:
        """Whether any step was captured."""
        return self._stepper.captured

    def _counts(self, infos: list[Info]) -> tuple[list[Rows], list[Pair]]:
        """What is counted of a step, a function of its argument."""
        pairs = [] if self.crossings is None else self.crossings.pairs(infos)
        return self.tally.rows(infos), pairs

    @classmethod
    def of(cls, plan: SamplingPlan, shard: Shard, generator: torch.Generator) -> Walk:
        """Chains as they were between two draws.

        Arguments:
            plan: The plan.
            shard: What was held.
            generator: It is set to the state that was held.
        """
        memories, renewals = Memories(plan.kernel, plan.target), shard.renewals
        memo = memories.memo(shard.owner, shard.memo)
        state = State(shard.code, shard.theta, shard.log_joint, memo)
        generator.set_state(shard.generator)
        found = cls(plan, state, generator, None if renewals is None else renewals["first"])
        counted = (found.tally, found.crossings, found.visits, found.renewals)
        for counter, held in zip(counted, shard[6:10], strict=True):
            if counter is not None:
                assert held is not None
                counter.take_up(held)
        if shard.remembered is not None:
            memories.take_up(shard.remembered)
        return found

    def draw(self, thin: int, recorder: Recorder) -> None:
        """Advance all chains by some steps, and record where they are.

        Raises:
            NonFiniteError: A density was NaN or +inf; on a device, in a draw of this block.
        """
        self.whole = False
        for _ in range(thin):
            self.state, (rows, pairs) = self._stepper(self.state)
            self.tally.take(rows)
            if self.crossings is not None:
                self.crossings.take(pairs)
            if self.visits is not None:
                self.visits.add(self.state.code)
        on_device = not on_host(self.state.code)
        if not on_device:
            self.tally.check()
        recorder.keep(self.state.code, self.state.theta, self.state.log_joint)
        if on_device and not recorder.pending:  # a block of draws has left: a good time to wait
            self.tally.check()
        if self.renewals is not None:
            recorder.descend_from(self.renewals.starts(self.state))
        self.whole = True

    def shard(self) -> Shard:
        """All that the next draw depends on; it stays as it is while chains go on."""
        code, theta, log_joint, memo = self.state
        owner = self._memories.place_of(memo)
        return Shard(
            code,
            theta,
            log_joint,
            () if memo is None or owner < 0 else memo.values,
            owner,
            self.generator.get_state(),
            self.tally.held(),
            None if self.crossings is None else self.crossings.held(),
            None if self.visits is None else self.visits.held(),
            None if self.renewals is None else self.renewals.held(),
            self._memories.held(),
        )


class Block(NamedTuple):
    """Draws of one block of a shard.

    Attributes:
        code, theta, log_joint: Shapes (draw, chain, L), (draw, chain, D) and (draw, chain).
        ancestor: The independent draw that each chain descends from by now, shape (chain,).
    """

    code: Tensor
    theta: Tensor
    log_joint: Tensor
    ancestor: Tensor | None


@torch.no_grad()
def begin(
    plan: SamplingPlan, state: State, seed: int, shard: int, ancestor: Tensor | None = None
) -> Shard:
    """A shard before its first draw, with a stream of random numbers that no other has.

    Arguments:
        plan: The plan.
        state: Where its chains are.
        seed: Of the run.
        shard: Number of the shard.
        ancestor: The independent draw that each chain descends from, shape (C,), if known.
    """
    generator = stream(seed, shard, plan.target.device)
    return Walk(plan, state, generator, ancestor).shard()._replace(remembered=None)


@torch.no_grad()
def advance(plan: SamplingPlan, shard: Shard, draws: int, thin: int = 1) -> tuple[Block, Shard]:
    """Some draws of a shard, a function of its arguments.

    Where ``shard.remembered`` is None the maps of the kernel begin with what they know, and forget
    what they find meanwhile: blocks of a shard then need nothing of each other but their states.

    Arguments:
        plan: The plan.
        shard: Chains between two draws.
        draws: How many are kept.
        thin: Steps a kept draw.

    Raises:
        NonFiniteError: A density was NaN or +inf.

    Example:
        >>> import trjmcmc as trj
        >>> from trjmcmc.kernel import BirthDeath, Cycle, Fixed, RandomWalk, start
        >>> target = trj.problems.variable_selection(3)
        >>> moves = Cycle([BirthDeath(target, Fixed(target.space)), RandomWalk(target)])
        >>> plan = SamplingPlan(target, moves)
        >>> code = torch.zeros(8, 3, dtype=torch.long)
        >>> first = begin(plan, start(target, code, torch.zeros(8, target.dim)), seed=1, shard=0)
        >>> block, then = advance(plan, first, 5)
        >>> again, _ = advance(plan, first, 5)
        >>> tuple(block.theta.shape), torch.equal(block.theta, again.theta)
        ((5, 8, 3), True)
    """
    memories = Memories(plan.kernel, plan.target)
    before = memories.held()
    walk = Walk.of(plan, shard, torch.Generator(plan.target.device))
    recorder = Recorder(draws, shard.code, shard.theta, thin, walk.ancestor)
    for _ in range(draws):
        walk.draw(thin, recorder)
    if recorder.pending:
        walk.tally.check()
    after = walk.shard()
    if shard.remembered is None:
        after = after._replace(remembered=None)
    memories.take_up(before)
    found = recorder.so_far()
    theta = found.theta.transpose(0, 1)
    return Block(recorder.code, theta, recorder.log_joint, recorder.ancestor), after
