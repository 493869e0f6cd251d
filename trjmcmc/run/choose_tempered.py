"""Choices of moves for chains that are carried from the prior, through all models at once."""

from __future__ import annotations

import math
from dataclasses import replace

from .. import clock
from ..kernel.base import Kernel, State
from ..kernel.compose import Cycle
from ..kernel.tempering import ParallelTempering
from ..target.tempered import Tempered
from .bench import moves_of
from .choose import Chooser
from .count import Tally
from .renewals import renewed
from .segment import Segment
from .start import given_starts
from .tempering import Passage, temper_chains


class TemperedChooser(Chooser):
    """Chooses the kernel of a run whose chains start from the prior and rise by tempering.

    Where chains forget slowly, replicas at lower powers of the likelihood renew them.
    """

    tempers = True
    resamples = True  # chains by weight, on their way from the prior

    @property
    def _states_kept(self) -> int:
        return self.policy.counted.states_kept

    @property
    def _burn_in_times(self) -> float:
        return self.policy.counted.burn_in_autocorrelation_times

    @property
    def _fewest_chains(self) -> int:
        return self.request.fewest_chains  # few would descend from next to no draws of the prior

    @property
    def trainable(self) -> bool:
        """Nothing is."""
        return False

    def _begin(self) -> Tempered:
        """Set the end of the warm-up, and go by the target tempered, whose power is 1."""
        room = self.policy.counted.warm_up_share * self.request.left()
        self._end = clock.now() + (self.policy.counted.most_seconds if math.isinf(room) else room)
        self.target = tempered = Tempered(self.target)
        return tempered

    def _carry(self, tempered: Tempered, moves: dict[str, Kernel]) -> Passage:
        """Carry the chains to power 1; in place what the moves have learned."""
        bench = self.bench
        kernel, state, origin, passage = temper_chains(
            tempered,
            bench.state,
            bench.kernel_of(list(moves.values())),
            self.generator,
            Tally(tempered),
            self._by(0.5),
            self.policy.tempering,
            resample=self.resamples,
        )
        passage = replace(passage, ancestors=[bench.ancestor[a] for a in passage.ancestors])
        bench.move_to(state, bench.ancestor[origin])
        moves.update(zip(moves, moves_of(kernel), strict=False))
        if self.request.start is not None:
            bench.move_to(*given_starts(self.target, self.request.start, len(state.code)))
        return passage

    def _forgets_soon(self, found: Segment) -> bool:
        """Whether chains forget where they started well within the time that there is."""
        long = self.request.times * found.memory * found.step
        return long < min(self.request.left(), self.policy.counted.patience)

    def _climb(self, moves: dict[str, Kernel], passage: Passage) -> None:
        """Go on with replicas of the chains at lower powers, which renew them."""
        bench, counted, request = self.bench, self.policy.counted, self.request
        every = Cycle([*moves.values(), *bench.inside])
        powers = passage.ladder(counted).to(self.target.device)
        ladder = ParallelTempering(self.target, lambda _: every, powers, name="ladder")
        n = min(len(bench.state.code), request.chains)
        if request.fewest_chains != request.most_chains:
            n = min(n, max(n // ladder.rungs, counted.least_ladders))
        code, theta, ancestor = passage.at(powers, n)
        code[0], theta[0] = bench.state.code[:n], bench.state.theta[:n]
        ancestor[0] = bench.ancestor[:n]
        code, theta, ancestor = (x.transpose(0, 1).flatten(0, 1) for x in (code, theta, ancestor))
        state = State(code, theta, theta.new_zeros(len(theta)))  # replicas are evaluated there
        bench.move_to(ladder.with_replicas(state, ancestor), bench.ancestor[:n])
        bench.clear()
        bench.go_inside([])
        self._settle({"ladder": ladder}, self._end)
        bench.move_to(bench.state, renewed(ladder, bench.state, bench.ancestor))

    def _by(self, share: float) -> float:
        """When this share of the time left of the warm-up has passed."""
        return clock.part_of_the_time_left(share, self._end)

    def _settle(self, moves: dict[str, Kernel], end: float) -> Segment:
        """Go on with some moves until their chains drift no more, or time is up."""
        counted, segments = self.policy.counted, self.policy.segments
        begun, steps = clock.now(), segments.steps
        self.bench.forget_seen()
        while True:
            found = self._look(moves, steps, end)
            now = clock.now()
            long = steps > segments.trusted_autocorrelation_times * found.time
            still = found.drift < counted.settled_errors and long
            least = begun + counted.least_segment_share * (end - begun)
            early = self.request.limited and now < least
            if now + 2 * steps * found.step > end or (still and not early):
                return found
            steps = min(2 * steps, segments.most_steps)

    def _look(self, moves: dict[str, Kernel], steps: int, end: float) -> Segment:
        """Go on with some moves, all together; in place what they have learned."""
        counted = self.policy.counted
        least = counted.segment_share * min(self.request.left(), counted.assumed_seconds)
        found = self.bench.take_up(moves, steps, max(end - clock.now(), least))
        moves.update({name: self.bench.moves[name] for name in moves})
        return found
