"""Causal effects in linear Gaussian networks: weights given a graph, and sums over paths."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..errors import ConfigurationError
from ..space.codes import distinct
from ..space.paths import adjacency
from ..target.scores import LocalScores
from .laws import LinearGaussian, Origin


def weights(scores: LocalScores, masks: Tensor, rng: np.random.Generator) -> Tensor:
    r"""Posterior draws of the weights of edges, one for each graph.

    Given its parents a node has a normal regression: with M the matrix of products of columns and
    prior, the weights are :math:`N(M_{PP}^{-1} M_{Pj}, \sigma^2 M_{PP}^{-1})`, and the noise
    variance is known, or inverse gamma.

    Arguments:
        scores: Made by :func:`~trjmcmc.graphs.bge` or :func:`~trjmcmc.graphs.linear`.
        masks: Parent masks, shape (C, d).
        rng: Random numbers.

    Returns:
        Weight of the edge from i to j in units of the data, shape (C, d, d), float64.

    Raises:
        ConfigurationError: Scores of another kind.

    Source:
        Geiger & Heckerman (2002), https://doi.org/10.1214/aos/1035844981; inverse Wishart blocks:
        Viinikka et al. (2020), https://arxiv.org/abs/2010.00684
    """
    origin = scores.origin
    if not isinstance(origin, Origin) or not isinstance(origin.law, LinearGaussian):
        raise ConfigurationError(
            "effects: expected scores made by graphs.bge or graphs.linear from data, got "
            f"{scores!r}"
        )
    c, d = masks.shape
    found = torch.zeros(c, d, d, dtype=torch.float64)
    whole = origin.law.scatter(origin.rows)
    for j in range(d):
        free = origin.free[:, j]
        matrix = whole if bool(free.all()) else origin.law.scatter(origin.rows[free])
        sets, which, _ = distinct(masks[:, j : j + 1])
        parents = adjacency(sets.expand(-1, d))[:, :, 0]  # (U, d)
        number = parents.sum(1)
        for p in number.unique().tolist():
            rows = (number == p).nonzero()[:, 0]
            place = torch.full((len(sets),), -1)
            place[rows] = torch.arange(len(rows))
            mine = (place[which] >= 0).nonzero()[:, 0]
            chosen = parents[rows].nonzero()[:, 1].view(len(rows), p)
            drawn = _regressions(
                origin.law, matrix, j, chosen, int(free.sum()), place[which[mine]], rng
            )
            found[mine[:, None], chosen[place[which[mine]]], j] = drawn
    return found * (origin.scale / origin.scale[:, None])


def _regressions(
    law: LinearGaussian,
    matrix: Tensor,
    j: int,
    parents: Tensor,
    n: int,
    which: Tensor,
    rng: np.random.Generator,
) -> Tensor:
    """Draws of weights, parent sets (U, p) and which of them each draw has (m,) -> (m, p)."""
    p = parents.shape[1]
    of_parents = matrix[parents[:, :, None], parents[:, None]]
    factor = torch.linalg.cholesky(of_parents)
    along = matrix[parents, j][..., None]
    centre = torch.cholesky_solve(along, factor)
    rest = matrix[j, j] - (along * centre).sum((1, 2))
    variance = law.variance(n, p, rest.clamp(min=torch.finfo(torch.float64).tiny)[which], rng)
    noise = torch.from_numpy(rng.standard_normal((len(which), p, 1)))
    step = torch.linalg.solve_triangular(factor.mT[which], noise, upper=True)
    return (centre[which] + variance.sqrt()[:, None, None] * step)[..., 0]


def total_effects(weight: Tensor) -> Tensor:
    """What a unit of i set from outside adds to j: sums over paths, (C, d, d) -> (C, d, d)."""
    one = torch.eye(weight.shape[1], dtype=weight.dtype)
    return torch.linalg.inv(one - weight) - one
