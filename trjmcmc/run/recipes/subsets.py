"""Subsets of items."""

from __future__ import annotations

from contextlib import suppress

import torch

from ...draws import Pool
from ...errors import ConfigurationError
from ...kernel.base import Kernel
from ...kernel.between.marginals import MarginalJump, MarginalRefresh, Marginals
from ...kernel.between.unit_gibbs import UnitGibbs
from ...kernel.compose import Cycle, MixtureKernel
from ...kernel.inside.random_walk import RandomWalk
from ...kernel.proposal.fixed import Learnt
from ...kernel.proposal.neighbours import Neighbours
from ...target.target import Target
from ...target.tempered import Tempered
from ...transport.base import Transport
from ...transport.normals import gaussian_mixture
from ...weights.bernoulli import BernoulliMixture
from ..moves import birth_death, swaps
from .base import Known, Moves
from .cooled import CooledRecipe

NAME = "marginals"

NORMALS = 4  # by which each coordinate's marginal is fitted

KINDS = 4  # of sets of units, that jumps far away come from

SHARES = [0.4, 0.2, 0.4]  # of births and deaths by marginals, of such jumps, of new values


class SubsetsRecipe(CooledRecipe):
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


def marginals_fit(target: Target) -> bool:
    """Whether models are sets of units between which steps of one lead anywhere."""
    return bool(target.space.units) and not target.space.gaps


def marginal_moves(target: Target, pool: Pool, generator: torch.Generator) -> Kernel:
    """Births and deaths, jumps to models far away, and new values, from what chains have seen.

    Arguments:
        target: The target, over a space of units.
        pool: Points that chains have passed.
        generator: Source of randomness.
    """
    space = target.space
    marginals = Marginals.fitted(space, pool.code, pool.theta, NORMALS, generator)
    kinds = BernoulliMixture.fitted(space, pool.code, KINDS, generator)
    near = Neighbours(space, swap=swaps(space))
    moves: list[Kernel] = [
        MarginalJump(target, marginals, near, name=NAME),
        MarginalJump(target, marginals, Learnt(kinds), name="far marginals"),
        MarginalRefresh(target, marginals),
    ]
    return MixtureKernel(moves, SHARES)
