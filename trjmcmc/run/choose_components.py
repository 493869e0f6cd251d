"""The kernel of a run over components: births and deaths, and jumps by what they have shown."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .. import clock
from ..draws import Pool
from ..estimate.convergence import FEW_STARTS
from ..kernel.base import Kernel
from ..kernel.between.jump import Jump
from ..kernel.components.split import ComponentSplitMerge
from ..kernel.compose import Cycle
from ..kernel.proposal.fixed import Fixed
from ..target.exchangeable import components_of
from ..transport.base import Identity
from ..transport.normals import gaussian_mixture
from ..transport.ordered import OrderedComponents
from .choice import Choice
from .choose_tempered import TemperedChooser
from .moves import component_births, component_exchanges, component_walks


class ComponentChooser(TemperedChooser):
    """Chooses the kernel of a run whose target counts exchangeable components.

    Chains start from the prior and go on by births, deaths and walks of components until
    neither their log joint nor their number drifts. What they have passed is put into canonical
    order, a mixture of normals is fitted to each number of components, and jumps through it
    join in if that helps: they cross where one component would have to become two.
    """

    def _walks(self) -> list[Kernel]:
        return component_walks(self.target, components_of(self.target))

    def _choose(self) -> Choice:
        counted, bench = self.policy.counted, self.bench
        tempered = self._begin()
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
        passage = self._carry(tempered, every)
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
        assert bench.combined is not None
        if not self._forgets_soon(bench.found[bench.combined]):
            rate = bench.acceptance("normals")
            if rate is not None and rate < counted.accepted_normals:
                del moves["normals"]
            self._climb(moves, passage)
        return self._chosen(self._leader())

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
