"""Local scores of data: Gaussian, linear with known noise, discrete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import TargetError
from ..target.scores import LocalScores
from .laws import Bdeu, Bge, Linear, LinearGaussian, Origin

MOST_CANDIDATES = 16  # parents among which a node may choose; all others up to 17 nodes

FEWER_CANDIDATES = 12  # where there are more nodes


def bge(
    data: Any,
    *,
    names: Sequence[str] | None = None,
    alpha_mu: float = 1.0,
    alpha_w: float | None = None,
    standardise: bool = False,
    interventions: Any = None,
    candidates: int | None = None,
    max_parents: int | None = None,
) -> LocalScores:
    r"""Gaussian networks with unknown means, weights and noise: the BGe score.

    The precision has a Wishart prior with :math:`\alpha_w` degrees of freedom and scale T = t I,
    the mean a normal one of :math:`\alpha_\mu` of its observations;
    :math:`t = \alpha_\mu (\alpha_w - d - 1) / (\alpha_\mu + 1)`. Graphs that say the same
    independences have the same score.

    Arguments:
        data: Rows of d columns, finite; a DataFrame has names.
        names: Of the columns.
        alpha_mu, alpha_w: As above; d + alpha_mu + 1 degrees of freedom if omitted.
        standardise: Give all columns mean 0 and standard deviation 1 first. The score depends on
            units.
        interventions: Where a node was set from outside, shape of the data, bool: these rows say
            nothing of its parents.
        candidates: Parents among which a node may choose, those that explain it best, taken one
            after the other. All up to 17 nodes, else 12 if omitted.
        max_parents: Most parents of a node.

    Raises:
        TargetError: Data that are not a table of finite numbers; numbers that make no prior.

    Source:
        Geiger & Heckerman (2002), https://doi.org/10.1214/aos/1035844981; Kuipers, Moffa &
        Heckerman (2014), https://arxiv.org/abs/1402.6863

    Example:
        >>> x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)).double()
        >>> scores = bge(x, names=["a", "b", "c"])
        >>> forth, back = scores.of(torch.tensor([[0, 1, 0], [2, 0, 0]])).tolist()
        >>> abs(forth - back) < 1e-9  # a -> b and b -> a
        True
    """
    x, names = checked(data, names)
    d = x.shape[1]
    alpha_w = d + alpha_mu + 1 if alpha_w is None else alpha_w
    if not alpha_mu > 0 or not alpha_w > d + 1:
        raise TargetError(
            f"bge: expected alpha_mu > 0 and alpha_w > d + 1 = {d + 1}, got {alpha_mu}, {alpha_w}"
        )
    units = _units(x) if standardise else None
    law = Bge(d, alpha_mu, alpha_w)
    return _gaussian(law, x, names, units, interventions, candidates, max_parents)


def linear(
    data: Any,
    *,
    noise: float = 0.1,
    weight_sd: float = 1.0,
    names: Sequence[str] | None = None,
    interventions: Any = None,
    candidates: int | None = None,
    max_parents: int | None = None,
) -> LocalScores:
    r"""Linear structural equations with normal weights and noise of known variance.

    :math:`x_j = \sum_i w_{ij} x_i + e_j`, with weights :math:`N(0, s^2)` and noise
    :math:`N(0, \sigma^2)`, the same for all nodes, which identifies directions. There is no
    intercept: centre the data if they need one.

    Arguments:
        data: Rows of d columns, finite; a DataFrame has names.
        noise: Variance of the noise.
        weight_sd: Prior standard deviation of the weights.
        names, interventions, candidates, max_parents: As for :func:`bge`.

    Raises:
        TargetError: Data that are not a table of finite numbers; noise or weights without spread.

    Source:
        DiBS: Lorch et al. (2021), https://arxiv.org/abs/2105.11839, appendix E

    Example:
        >>> x = torch.randn(200, generator=torch.Generator().manual_seed(0)).double()
        >>> scores = linear(torch.stack([x, 2 * x], 1), names=["a", "b"])
        >>> forth, back = scores.of(torch.tensor([[0, 1], [2, 0]])).tolist()
        >>> forth > back + 100
        True
    """
    x, names = checked(data, names)
    if not noise > 0 or not weight_sd > 0:
        raise TargetError(f"linear: expected noise, weight_sd > 0, got {noise}, {weight_sd}")
    law = Linear(noise, weight_sd)
    return _gaussian(law, x, names, None, interventions, candidates, max_parents)


def bdeu(
    data: Any,
    *,
    names: Sequence[str] | None = None,
    sample_size: float = 10.0,
    levels: Sequence[int] | None = None,
    interventions: Any = None,
    max_parents: int = 4,
) -> LocalScores:
    """Discrete networks with Dirichlet priors on each row of the tables: the BDeu score.

    Arguments:
        data: Rows of d columns of integers from 0 on.
        names: Of the columns.
        sample_size: Prior observations that a node's table is worth.
        levels: Values that each column may take; one more than the largest seen if omitted.
        interventions: As for :func:`bge`.
        max_parents: Most parents of a node: tables grow as the product of their levels.

    Raises:
        TargetError: Data that are not integers from 0 on, or above the levels; more than 17 nodes.

    Source:
        Heckerman, Geiger & Chickering (1995), https://doi.org/10.1007/BF00994016

    Example:
        >>> x = torch.tensor([[0, 0], [1, 1]]).repeat(20, 1)
        >>> scores = bdeu(x, names=["a", "b"])
        >>> bool(scores.of(torch.tensor([[0, 1]])) > scores.of(torch.tensor([[0, 0]])) + 10)
        True
    """
    x, names = checked(data, names)
    d = x.shape[1]
    if bool((x != x.round()).any()) or bool((x < 0).any()):
        raise TargetError("bdeu: expected integers from 0 on")
    if d > MOST_CANDIDATES + 1:
        raise TargetError(f"bdeu: at most {MOST_CANDIDATES + 1} nodes, got {d}")
    if not sample_size > 0:
        raise TargetError(f"bdeu: expected sample_size > 0, got {sample_size}")
    seen = (x.amax(0) + 1 if len(x) else torch.ones(d)).long().tolist()
    levels = [max(2, k) for k in seen] if levels is None else [int(k) for k in levels]
    if len(levels) != d or any(k < s for k, s in zip(levels, seen, strict=True)):
        raise TargetError(f"bdeu: levels: expected {d} numbers, at least {seen}, got {levels}")
    free = free_rows(x, interventions)
    law, (centre, scale) = Bdeu(sample_size, tuple(levels)), _as_they_are(d)
    return Origin(law, x, free, centre, scale, max_parents).scored(names, _all_others(d))


def _gaussian(
    law: LinearGaussian,
    x: Tensor,
    names: list[str],
    units: tuple[Tensor, Tensor] | None,
    interventions: Any,
    candidates: int | None,
    max_parents: int | None,
) -> LocalScores:
    d = x.shape[1]
    if candidates is None:
        candidates = d - 1 if d <= MOST_CANDIDATES + 1 else FEWER_CANDIDATES
    k = min(int(candidates), d - 1)
    if not 0 <= k <= MOST_CANDIDATES:
        raise TargetError(
            f"candidates: expected 0 to {MOST_CANDIDATES} of {d - 1} nodes, got {candidates}"
        )
    free = free_rows(x, interventions)
    centre, scale = _as_they_are(d) if units is None else units
    x = (x - centre) / scale
    whole = law.scatter(x)
    chosen = [list(_best_parents(whole, j, k)) for j in range(d)]
    places = torch.tensor(chosen, dtype=torch.long).reshape(d, k)
    return Origin(law, x, free, centre, scale, max_parents).scored(names, places)


def _best_parents(matrix: Tensor, j: int, k: int) -> list[int]:
    """Nodes that explain another best, taken one after the other, in order."""
    d = len(matrix)
    if k == d - 1:
        return [i for i in range(d) if i != j]
    rest, found = matrix.clone(), list[int]()
    for _ in range(k):
        gain = rest[:, j].square() / rest.diagonal().clamp(min=1e-300)
        gain[[j, *found]] = -1.0
        i = int(gain.argmax())
        found.append(i)
        rest = rest - rest[:, i, None] * rest[i] / rest[i, i]
    return sorted(found)


def checked(data: Any, names: Sequence[str] | None) -> tuple[Tensor, list[str]]:
    if names is None and hasattr(data, "columns"):
        names = [str(name) for name in data.columns]
    try:
        x = torch.from_numpy(np.asarray(data, dtype=np.float64).copy())
    except (TypeError, ValueError) as error:
        raise TargetError(f"data: expected a table of numbers: {error}") from error
    if x.dim() != 2 or not x.shape[1]:
        raise TargetError(f"data: expected rows of columns, got shape {tuple(x.shape)}")
    found = [f"x{j}" for j in range(x.shape[1])] if names is None else [str(n) for n in names]
    if len(found) != x.shape[1]:
        raise TargetError(f"names: expected {x.shape[1]}, one for each column, got {len(found)}")
    if not bool(x.isfinite().all()):
        bad = [found[j] for j in (~x.isfinite()).any(0).nonzero()[:, 0].tolist()]
        raise TargetError(
            f"data: not finite in column(s) {', '.join(bad)}; leave these rows out or fill them"
        )
    return x, found


def _units(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of columns, 1 where that is 0."""
    if not len(x):
        return _as_they_are(x.shape[1])
    spread = x.std(0, correction=0)
    return x.mean(0), torch.where(spread > 0, spread, 1.0)


def _as_they_are(d: int) -> tuple[Tensor, Tensor]:
    return torch.zeros(d, dtype=torch.float64), torch.ones(d, dtype=torch.float64)


def _all_others(d: int) -> Tensor:
    others = [[i for i in range(d) if i != j] for j in range(d)]
    return torch.tensor(others, dtype=torch.long).reshape(d, d - 1)


def free_rows(x: Tensor, interventions: Any) -> Tensor:
    """Where nodes were not set from outside, (n, d) bool."""
    if interventions is None:
        return torch.ones(x.shape, dtype=torch.bool)
    found = torch.from_numpy(np.asarray(interventions).astype(bool))
    if found.shape != x.shape:
        raise TargetError(
            f"interventions: expected the shape of the data, {tuple(x.shape)}, got "
            f"{tuple(found.shape)}"
        )
    return ~found
