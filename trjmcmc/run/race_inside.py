"""Which moves inside models a run makes: tried beside each other where chains forget slowly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from .. import clock
from ..kernel.base import Kernel
from ..kernel.inside.crank_nicolson import CrankNicolson
from ..kernel.inside.hmc import HMC
from ..kernel.inside.stretch import Stretch
from ..target.exchangeable import components_of
from ..target.target import Target
from ..transport.base import Transport
from .bench import Bench
from .decide import Names
from .loop import first_of
from .policy import Policy
from .request import Request
from .segment import Segment

OF_NORMALS = "normals inside"  # how names of moves through fitted normals end


def is_of_normals(move: Kernel) -> bool:
    """Whether a move goes through fitted normals, so that finer ones take its place."""
    return move.name.endswith(OF_NORMALS)


class InsideRace:
    """Adds moves inside models to those of a bench while they shorten the run.

    What decides is the slowest of indicators, log joint and coordinates, by segments of one length,
    and the seconds of a step.

    Arguments:
        bench: Chains, and the moves so far.
        request: What the user asks of the run.
        target: The target.
        normals: A map that was fitted to draws, if there is one.
        refit: Gives one of so many components, fitted to so many draws of each model; first of
            all it may take so many seconds for these draws. None where there are none.
        policy: The policy.

    Attributes:
        left_out: Whether moves that might have paid were left out for want of time.
    """

    def __init__(
        self,
        bench: Bench,
        request: Request,
        target: Target,
        normals: Transport | None,
        refit: Callable[..., Transport] | None,
        policy: Policy,
    ) -> None:
        self.bench, self.request, self.target = bench, request, target
        self.normals, self.refit, self.policy = normals, refit, policy
        self._begun, self._share, self._finest = clock.now(), 0.0, 0
        self._least = 0.0
        self.left_out = False

    def run(self, names: Names, steps: int, most_seconds: float, least_share: float = 0.0) -> None:
        """Try every further move while what it may save is worth it.

        Arguments:
            names: The moves between models that they follow.
            steps: Of a first segment.
            most_seconds: That a segment may take.
            least_share: Of the time ahead, that all of it may take; more where that is too short
                for what is wanted.
        """
        bench, request, policy = self.bench, self.request, self.policy.choice
        first, self.left_out = bench.found[names], False
        forgotten = request.times * first.memory * first.step  # seconds
        late = forgotten > (request.left() if request.until else request.ahead_of(first))
        share = policy.inside_late_share if late else policy.inside_share
        self._begun, self._share = clock.now(), max(share, least_share)
        self._least = min(self._begun - request.begun, request.left()) if late else 0.0
        soon = request.until_done(first) < policy.forgotten_share * request.ahead_of(first)
        if not request.until and soon:
            return
        found = self._with_few_chains(names, steps, most_seconds)
        found = self._resolved(names, found)
        bench.found[names] = found = replace(found, step=self._pace(names))
        for candidate in self._candidates(names):
            before = bench.inside
            if any(k.name == candidate.name for k in before):
                continue
            if found.steps * found.step > self._left(found):  # none is cheaper than none at all
                self.left_out = True
                break
            coarser = [k for k in before if is_of_normals(k) and is_of_normals(candidate)]
            bench.go_inside([*(k for k in before if k not in coarser), candidate])
            pace = self._pace(names)
            learning = policy.inside_segments if isinstance(candidate, HMC) else 0
            cost = (learning + 1) * found.steps * pace
            hopeless = policy.inside_gain * request.times * pace > request.until_done(found)
            if hopeless or cost > self._left(found):
                bench.go_inside(before)
                self.left_out |= not hopeless
                continue
            for _ in range(learning):
                bench.measure_named(names, found.steps, most_seconds)
            now = replace(bench.measure_named(names, found.steps, most_seconds), step=pace)
            gains = policy.inside_gain * request.until_done(now) <= request.until_done(found)
            if now.cut_short or not gains:
                bench.go_inside(before)
            else:
                found = now
            bench.found[names] = found

    def _left(self, found: Segment) -> float:
        """Seconds that the race may still take.

        A share of the sampling ahead; of a run that would end before chains forget where they
        began, of the time that it has taken so far, if that is longer.
        """
        most = self._share * max(self._least, self.request.ahead_of(found))
        return most - (clock.now() - self._begun)

    def _pace(self, names: Names) -> float:
        """Seconds of a step."""
        bench = self.bench
        return bench.pace(bench.kernel_of(bench.named(names)), bench.state, self.request.left())

    def _with_few_chains(self, names: Names, steps: int, most_seconds: float) -> Segment:
        """Drop chains where a run has to be long rather than wide, and measure those that stay."""
        bench, fewest, found = self.bench, self.request.fewest_chains, self.bench.found[names]
        long = self.request.until_done(found) > self.policy.choice.long_runs * self.request.precise(
            found
        )
        if not long or fewest >= len(bench.state.code):
            return found
        bench.move_to(first_of(bench.state, fewest), bench.ancestor[:fewest])
        return bench.measure_named(names, steps, most_seconds)

    def _resolved(self, names: Names, found: Segment) -> Segment:
        """What segments say that are no shorter than what they measure, where these are cheap."""
        most = self.policy.choice.inside_steps
        while found.memory > found.steps and found.steps < most:
            if 2 * found.steps * found.step > self._left(found):
                break
            found = self.bench.measure_named(names, 2 * found.steps)
        return found

    def _candidates(self, names: Names) -> Iterator[Kernel]:
        """Moves inside models that may pay, after those between them of these names."""
        target, normals = self.target, self.normals
        if components_of(target):
            return
        many = target.dim >= self.policy.choice.hmc_first_coordinates
        if target.differentiable and many:
            yield self._hmc()
        if normals is not None:
            fine = self.policy.normals
            if not self._finest:
                yield self._through(normals, OF_NORMALS)
            for k in fine.inside_components if self.refit is not None else ():
                if k <= self._finest:
                    continue
                draws = fine.draws_a_component * k
                left = self._left(self.bench.found[names])
                if fine.seconds_a_number * k * draws * target.dim > left:
                    self.left_out = True
                    break
                assert self.refit is not None
                refit = self.refit(fine.crowd_share * left, components=k, draws=draws)
                yield self._through(refit, f"{k} {OF_NORMALS}")
                self._finest = k
        if target.differentiable:
            if not many:
                yield self._hmc()
            if normals is not None:
                yield HMC(target, normals, name="hmc in normals")
        if len(self.bench.state.code) > 2 * target.dim:
            yield Stretch(target)

    def _hmc(self) -> HMC:
        target = self.target
        dense = not target.space.several and 1 < target.dim < len(self.bench.state.code)
        return HMC(target, metric="dense" if dense else "diagonal")

    def _through(self, normals: Transport, name: str) -> Kernel:
        fresh = self.policy.kernels.fresh_share
        return CrankNicolson(self.target, normals, fresh=fresh, name=name)
