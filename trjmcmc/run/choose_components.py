"""The kernel of a run over components: births and deaths, and jumps by what they have shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from .. import clock
from ..draws import Pool
from ..estimate.convergence import FEW_STARTS
from ..kernel.base import Kernel, State
from ..kernel.between.jump import Jump
from ..kernel.components.split import ComponentSplitMerge
from ..kernel.compose import Cycle
from ..kernel.proposal.fixed import Fixed
from ..kernel.tempering import ParallelTempering
from ..target.exchangeable import components_of
from ..target.tempered import Tempered
from ..transport.base import Identity
from ..transport.normals import gaussian_mixture
from ..transport.ordered import OrderedComponents
from .bench import moves_of
from .choice import Choice
from .choose import Chooser
from .count import Tally
from .loop import renewed
from .moves import component_births, component_exchanges, component_walks
from .segment import Segment
from .tempering import Passage, temper_chains


class ComponentChooser(Chooser):
    """Chooses the kernel of a run whose target counts exchangeable components.

    Chains start from the prior and go on by births, deaths and walks of components until
    neither their log joint nor their number drifts. What they have passed is put into canonical
    order, a mixture of normals is fitted to each number of components, and jumps through it
    join in if that helps: they cross where one component would have to become two.
    """

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
        """Nothing is: no map learns components in no order."""
        return False

    def _walks(self) -> list[Kernel]:
        return component_walks(self.target, components_of(self.target))

    def _choose(self) -> Choice:
        counted, bench = self.policy.counted, self.bench
        room = counted.warm_up_share * self.request.left()
        self._end = clock.now() + (counted.most_seconds if math.isinf(room) else room)
        self.target = tempered = Tempered(self.target)  # its power is 1 once chains are carried
        parts = components_of(tempered)
        kinds = [part for part in parts if part.kind.max > max(1, part.kind.min)]
        exchanges = component_exchanges(self.target, kinds)
        known = {id(move.components) for move in exchanges}
        splits = [ComponentSplitMerge(self.target, p) for p in kinds if id(p) not in known]
        every: dict[str, Kernel] = {
            "components": component_births(self.target, parts, self.policy.kernels)
        }
        every |= {"splits": Cycle(splits)} if splits else {}
        every |= {"exchange": Cycle(exchanges)} if exchanges else {}
        kernel, state, origin, passage = temper_chains(
            tempered,
            bench.state,
            bench.kernel_of(list(every.values())),
            self.generator,
            Tally(tempered),
            self._by(0.5),
            self.policy.tempering,
        )
        passage = replace(passage, ancestors=[bench.ancestor[a] for a in passage.ancestors])
        bench.move_to(state, bench.ancestor[origin])
        every = dict(zip(every, moves_of(kernel), strict=False))
        if len(bench.ancestor.unique()) < FEW_STARTS:
            self._climb(every, passage)
            return self._chosen(self._leader())
        if splits:
            self._look(every, self.policy.segments.steps, self._end)
            bench.clear()
        taken = not splits or self._accepted(splits) > counted.accepted_splits
        moves = {name: move for name, move in every.items() if taken or name != "splits"}
        if self.ready:
            moves |= {"jump": self._jump()}
        self._end, end = self._by(1 - counted.ladder_share), self._end
        fits = counted.fits if self._affordable else 0
        self._settle(moves, self._by(1 / (fits + 1)))
        before = 0.0
        for left in range(fits, 0, -1):
            pool = bench.seen()
            assert pool is not None
            moves |= {"normals": self._jump_between(pool)}
            now = self._settle(moves, self._by(1 / left)).efficiency
            if now < counted.gain_a_fit * before or clock.now() > self._end:
                break
            before = now
        self._end = end
        self._try_a_ladder(moves, passage)
        return self._chosen(self._leader())

    def _try_a_ladder(self, moves: dict[str, Kernel], passage: Passage) -> None:
        """Let replicas at lower powers renew the chains, where they forget too slowly alone."""
        bench, counted = self.bench, self.policy.counted
        assert bench.combined is not None
        found = bench.found[bench.combined]
        long = self.request.times * found.memory * found.step  # until chains have forgotten
        if long < min(self.request.left(), counted.patience):
            return
        rate = bench.acceptance("normals")
        if rate is not None and rate < counted.accepted_normals:
            del moves["normals"]
        self._climb(moves, passage)

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

    def _accepted(self, moves: Sequence[Kernel]) -> float:
        """Share of the proposals of the best of some moves that was accepted so far."""
        rates = [self.bench.acceptance(move.name) for move in moves]
        return max(rate for rate in rates if rate is not None)

    @property
    def _affordable(self) -> bool:
        """Whether normals of all components at once are small enough to be fitted."""
        space, counted = self.target.space, self.policy.counted
        if not space.enumerable or len(space.kinds) != 1:
            return False
        numbers = int(space.size or 0) * counted.components * self.target.dim**2
        return numbers < counted.numbers_in_covariances

    def _jump_between(self, pool: Pool) -> Kernel:
        """Jumps of all components at once, through normals fitted to draws in canonical order."""
        space, counted = self.target.space, self.policy.counted
        order = OrderedComponents(Identity(space))
        _, u = order.arrange(pool.code, pool.theta)
        draws = Pool(pool.code, u, pool.log_joint)
        normals = gaussian_mixture(space, draws, self.generator, components=counted.components)
        flow = OrderedComponents(normals, by=int(order.key))
        flow.arrange(pool.code, pool.theta)  # the same units
        seen = torch.bincount(space.index(pool.code), minlength=int(space.size or 0)).double()
        prior = space.log_prior(space.enumerate()).double().exp()
        share = seen.sqrt()  # the rare ones too often, for they are the slowest to be left
        unvisited = counted.unvisited_share
        share = (1 - unvisited) * share / share.sum() + unvisited * prior
        to = Fixed(space, share.log())
        jump = Jump(
            self.target, flow, to, rho=counted.rho, fresh=counted.fresh_share, name="normals"
        )
        return Cycle([(jump, counted.jumps)])
