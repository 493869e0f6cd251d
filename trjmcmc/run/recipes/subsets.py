"""Subsets of items."""

from __future__ import annotations

from contextlib import suppress

import torch

from ...errors import ConfigurationError
from ...kernel.base import Kernel
from ...kernel.between.unit_gibbs import UnitGibbs
from ...kernel.compose import Cycle
from ...kernel.inside.random_walk import RandomWalk
from ...target.target import Target
from ...target.tempered import Tempered
from ...transport.base import Transport
from ...transport.normals import gaussian_mixture
from ..marginals import NAME, marginal_moves, marginals_fit
from ..moves import birth_death
from .base import Known, Moves
from .cooled import Cooled


class Items(Cooled):
    """Births and deaths of items, and conditional draws of one item where a model allows them."""

    def warm_kernel(self, target: Target) -> Kernel:
        return Cycle([*self._walks(target), *self._steps(target).values()])

    def _walks(self, target: Target) -> list[Kernel]:
        return [RandomWalk(target)] if target.dim else []

    def _steps(self, target: Target) -> dict[str, Kernel]:
        found: dict[str, Kernel] = {"births": birth_death(target, None)}
        if target.dim and not isinstance(target, Tempered):
            with suppress(ConfigurationError):  # it is not this kind of model
                found["gibbs"] = UnitGibbs(target)
        return found

    def moves(self, known: Known, generator: torch.Generator) -> Moves:
        between = self._steps(self.target)
        if marginals_fit(self.target):
            between[NAME] = marginal_moves(self.target, known.draws, generator)
        return Moves(between, self._walks(self.target))

    def normals(self, known: Known, moves: Moves, generator: torch.Generator) -> Transport | None:
        space = self.target.space
        return gaussian_mixture(space, known.draws, generator) if space.few else None
