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
from ...promises import MODELS_ONE_BY_ONE
from ...target.exchangeable import components_of
from ...target.target import Target
from ...transport.base import Identity, Transport
from ...transport.normals import gaussian_mixture
from ...transport.sorted_components import SortedComponents
from ..moves import component_births, component_exchanges, component_walks
from .base import FRESH, Known, Moves
from .climbs import DRAWS, with_another
from .cooled import CLIMBERS, CooledRecipe

LEAST_TAUGHT = 4000  # draws from which normals are fitted to ordered components


class CountsRecipe(CooledRecipe):
    """Births, exchanges, splits; normals of the components in order once there are draws."""

    def warm_kernel(self, target: Target) -> Kernel:
        walks = component_walks(target, components_of(target))
        return Cycle([*walks, *self._steps(target).values()])

    @property
    def kinds(self) -> Tensor:
        """As of all that cool, and 2 of chains with a component that climbs lead to."""
        place = torch.arange(self.chains) // self.plan.groups % CLIMBERS
        return super().kinds + 2 * (place == CLIMBERS // 2).long()

    def _climbed(self, code: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        """And some of each group with a component that climbs from many prior draws lead to."""
        code, theta = super()._climbed(code, theta)
        draws = math.ceil(self.share * DRAWS)
        rows = (self.kinds.to(code.device) == 2).nonzero()[:, 0]
        if not len(rows):
            return code, theta
        for parts in components_of(self.target):
            model, point = with_another(
                parts, code[rows], theta[rows], draws, self.generator, lambda: self.late
            )
            code, theta = code.index_copy(0, rows, model), theta.index_copy(0, rows, point)
        return code, theta

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

    def moves(self, known: Known, generator: torch.Generator) -> Moves:
        target, space = self.target, self.target.space
        between, through = self._steps(target), None
        listed = len(space.kinds) == 1 or (space.size or math.inf) <= MODELS_ONE_BY_ONE
        if space.enumerable and listed and len(known.draws.code) >= LEAST_TAUGHT:
            through = self._in_order(known.draws, generator)
            prior = space.log_prior(space.enumerate()).double().exp()
            seen = torch.bincount(space.index(known.draws.code), minlength=len(prior)).sqrt()
            weights = (1 - self.plan.uniform / 2) * seen.double() / seen.sum()
            weights = weights + self.plan.uniform / 2 * prior
            between["normals"] = Jump(
                target, through, Fixed(space, weights.log()), fresh=FRESH, name="normals"
            )
        return Moves(between, component_walks(target, components_of(target)), through)

    def _in_order(self, draws: Pool, generator: torch.Generator) -> Transport:
        """Normals of the components of each kind in the order of one of their parameters."""
        space = self.target.space
        layers: list[SortedComponents] = []
        for part in components_of(self.target):
            inner = layers[-1] if layers else Identity(space)
            layers.append(SortedComponents(inner, kind=part.place))
        _, u = layers[-1].arrange(draws.code, draws.theta)
        ordered = Pool(draws.code, u, draws.log_joint)
        normals = gaussian_mixture(space, ordered, generator, components=self.plan.normals)
        found: list[SortedComponents] = []
        for layer in layers:
            around = found[-1] if found else normals
            found.append(SortedComponents(around, by=int(layer.key), kind=layer.place))
        found[-1].arrange(draws.code, draws.theta)
        return found[-1]
