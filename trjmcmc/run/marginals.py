"""Moves over sets of units by what chains have seen of each coordinate."""

from __future__ import annotations

import torch

from ..draws import Pool
from ..kernel.base import Kernel
from ..kernel.between.marginals import MarginalJump, MarginalRefresh, Marginals
from ..kernel.compose import MixtureKernel
from ..kernel.proposal.fixed import Learnt
from ..kernel.proposal.neighbours import Neighbours
from ..target.target import Target
from ..weights.bernoulli import BernoulliMixture
from .moves import swaps

NAME = "marginals"

NORMALS = 4  # by which each coordinate's marginal is fitted

KINDS = 4  # of sets of units, that jumps far away come from

SHARES = [0.4, 0.2, 0.4]  # of births and deaths by marginals, of such jumps, of new values


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
