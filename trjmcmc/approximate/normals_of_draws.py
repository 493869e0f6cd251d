"""Locations and covariances of the draws of each model."""

from __future__ import annotations

import torch
from torch import Tensor

from ..draws import Pool
from ..fit.standardise import moments

LARGEST = 1e12  # condition number of a correlation matrix of draws


def normals_of_draws(pool: Pool, codes: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
    """Means, and triangular factors of covariances where draws are enough to tell them.

    Arguments:
        pool: Draws.
        codes: Models, shape (M, L).
        active: Coordinates that each uses, shape (M, D), bool.

    Returns:
        Shapes (M, D) and (M, D, D); diagonal factors where there are few draws, or collinear ones.
    """
    loc, scale = moments(pool, codes, active)
    factor = torch.diag_embed(scale)
    for m, code in enumerate(codes):
        slots = active[m].nonzero()[:, 0]
        mine = pool.theta[(pool.code == code).all(-1)][:, slots].double()
        if not len(slots) or len(mine) <= 10 * len(slots):
            continue
        covariance = torch.atleast_2d(torch.cov(mine.T))
        units = covariance.diagonal().sqrt().clamp(min=1e-300)
        correlation = covariance / units[:, None] / units
        if float(torch.linalg.cond(correlation)) < LARGEST:
            found = units[:, None] * torch.linalg.cholesky(correlation)
            factor[m, slots[:, None], slots] = found.to(factor.dtype)
    return loc, factor
