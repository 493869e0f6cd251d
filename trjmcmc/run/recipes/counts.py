"""Components of an unknown number."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...draws import Pool
from ...kernel.base import Kernel
from ...kernel.between.jump import Jump
from ...kernel.components.split import ComponentSplitMerge
from ...kernel.compose import Cycle
from ...kernel.proposal.fixed import Fixed
from ...rng import host_number
from ...target import exchangeable
from ...target.exchangeable import components_of
from ...target.target import Target
from ...transport.base import Identity
from ...transport.normals import gaussian_mixture
from ...transport.ordered import OrderedComponents
from ..moves import component_births, component_exchanges, component_walks
from .base import Known, Moves
from .cooled import CLIMBERS, Cooled

LEAST_TAUGHT = 4000  # draws from which normals are fitted to ordered components

FRESH = 0.1  # share of their jumps that draw from the normals themselves


SOUGHT = 128  # prior draws of a component that climb for each chain that takes the best

ONE_CLIMB = 50  # steps of each

AT_ONCE = 4  # times as many climb at once as there are chains

LOWER = 10.0  # nats by which what such a chain takes may be under what it has


class Components(Cooled):
    """Births, exchanges, splits; normals of the components in order once there are draws."""

    def warm_kernel(self, target: Target) -> Kernel:
        walks = component_walks(target, components_of(target))
        return Cycle([*walks, *self._steps(target).values()])

    @property
    def starts(self) -> Tensor:
        """As of all that cool, and 2 of chains with a component that climbs lead to."""
        return super().starts + 2 * super().starts.roll(CLIMBERS // 2 * self.plan.groups)

    def _climbed(self, code: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Some chains of each group get a component that climbs lead to: see :meth:`_with_best`."""
        code, theta = super()._climbed(code, theta)
        rows = (self.starts.to(code.device) == 2).nonzero()[:, 0]
        for parts in components_of(self.target):
            new = self._with_best(parts, code[rows], theta[rows])
            code, theta = code.index_copy(0, rows, new[0]), theta.index_copy(0, rows, new[1])
        return code, theta

    @torch.no_grad()
    def _with_best(
        self, parts: exchangeable.Components, code: Tensor, theta: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Models and points with one component more, or another for one, the highest of many climbs.

        Climbs begin at prior draws of the component, whatever the others are: those of all at once
        hardly ever meet what is narrow in each.
        """
        target, g = self.target, self.generator
        best_code, best = code, theta
        height = target.log_joint(code, theta) - LOWER
        times = max(1, AT_ONCE * self.chains // max(1, len(code)))
        for _ in range(math.ceil(self.share * SOUGHT / times)):
            if self.late:
                break
            rows = torch.arange(len(code), device=code.device).repeat(times)
            old, point = code[rows], parts.shuffled(code[rows], theta[rows], g)
            k = parts.count(old)
            more = torch.rand(k.shape, generator=g, device=k.device) < 0.5
            more = ((k == 0) | more) & (k < parts.kind.max)
            new, index = parts.counted(old, k + more.long()), torch.where(more, k, k - 1)
            rest = parts.counted(old, index)
            point = torch.where(target.space.active(rest), point, 0.0)
            known = parts.total(rest, point)
            total = None if known is None else parts.sum_in(known)

            def joint(x: Tensor) -> Tensor:
                with_x = None if total is None else total + parts.contribution(point, x)
                return target.log_joint(new, parts.put(point, index, x), with_x)

            x = parts.sample_prior(point, host_number(g))
            x, top = self._uphill(joint, x, x.std(0), ONE_CLIMB)
            found = top.view(times, -1).max(0)
            row = found.indices * len(code) + torch.arange(len(code), device=code.device)
            up = found.values > height
            height = torch.where(up, found.values, height)
            best_code = torch.where(up[:, None], new[row], best_code)
            there = parts.put(point[row], index[row], x[row])
            best = torch.where(up[:, None], there, best)
        return best_code, best

    def _steps(self, target: Target) -> dict[str, Kernel]:
        """Moves between numbers of components that need nothing learned."""
        parts = components_of(target)
        several = [p for p in parts if p.kind.max > max(1, p.kind.min)]
        exchanges = component_exchanges(target, several)
        exchanged = {id(x.components) for x in exchanges}
        splits = [ComponentSplitMerge(target, p) for p in several if id(p) not in exchanged]
        found: dict[str, Kernel] = {"births": component_births(target, parts)}
        found |= {"exchange": Cycle([*exchanges])} if exchanges else {}
        return found | ({"splits": Cycle([*splits])} if splits else {})

    def moves(self, known: Known) -> Moves:
        target, space = self.target, self.target.space
        between, through = self._steps(target), None
        one_kind = space.enumerable and len(space.kinds) == 1
        if one_kind and len(known.draws.code) >= LEAST_TAUGHT:
            through = self._in_order(known.draws)
            prior = space.log_prior(space.enumerate()).double().exp()
            seen = torch.bincount(space.index(known.draws.code), minlength=len(prior)).sqrt()
            weights = (1 - self.plan.uniform / 2) * seen.double() / seen.sum()
            weights = weights + self.plan.uniform / 2 * prior
            between["normals"] = Jump(
                target, through, Fixed(space, weights.log()), fresh=FRESH, name="normals"
            )
        return Moves(between, component_walks(target, components_of(target)), through)

    def _in_order(self, draws: Pool) -> OrderedComponents:
        """Normals of the components in the order of one of their parameters."""
        space = self.target.space
        order = OrderedComponents(Identity(space))
        _, u = order.arrange(draws.code, draws.theta)
        ordered = Pool(draws.code, u, draws.log_joint)
        normals = gaussian_mixture(space, ordered, self.generator, components=self.plan.normals)
        found = OrderedComponents(normals, by=int(order.key))
        found.arrange(draws.code, draws.theta)
        return found

    def asked(self, code: Tensor) -> Tensor:
        """Each number of components of each kind."""
        kinds = enumerate(self.host.kinds)
        each = [torch.nn.functional.one_hot(code[..., i].long(), kind.max + 1) for i, kind in kinds]
        return torch.cat(each, -1).double()
