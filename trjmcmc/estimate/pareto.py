"""Pareto smoothing of importance weights, without an import that takes longer than short runs."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

PRIOR_SHAPE, PRIOR_VALUES = 0.5, 10  # the shape is drawn towards one half as by so many values

PRIOR_QUARTILE = 3  # of Zhang and Stephens: quartiles that the largest value may lie away

LEAST_TAIL = 5  # values of a tail that has a shape


def pareto_smooth(log_w: NDArray[np.floating]) -> tuple[Array, float]:
    r"""Log weights whose tail is replaced by quantiles of the Pareto distribution fitted to it.

    The tail are the largest :math:`\min(n / 5, 3 \sqrt n)` weights; none becomes larger than the
    largest one was. As ``arviz.psislw``.

    Arguments:
        log_w: Log weights, shape (n,), nats.

    Returns:
        Shape (n,), normalised to a sum of one, and the shape of the tail; infinite where too few
        weights differ, and none is changed.

    Source:
        Vehtari, Simpson, Gelman, Yao & Gabry (2024), https://jmlr.org/papers/v25/19-556.html

    Example:
        >>> log_w = np.random.default_rng(0).exponential(0.3, 4000)  # Pareto of shape .3
        >>> abs(pareto_smooth(log_w)[1] - 0.3) < 0.15
        True
    """
    x = np.array(log_w, dtype=float)
    x -= x.max()
    n = len(x)
    least = max(np.sort(x)[-tail_length(n) - 1], math.log(np.finfo(float).tiny))
    tail = np.flatnonzero(x > least)
    shape = math.inf
    if len(tail) >= LEAST_TAIL:
        tail = tail[np.argsort(x[tail])]
        start = math.exp(least)
        shape, scale = pareto_fit(np.exp(x[tail]) - start)
        if math.isfinite(shape):
            place = np.arange(0.5, len(tail)) / len(tail)
            x[tail] = np.log(pareto_quantiles(place, shape, scale) + start)
            x = np.minimum(x, 0.0)
    return x - np.logaddexp.reduce(x), shape


def tail_length(n: int) -> int:
    """How many of n weights are their tail."""
    return math.ceil(min(n / 5, 3 * n**0.5))


def pareto_fit(values: Array) -> tuple[float, float]:
    """Shape and scale of a generalised Pareto distribution: posterior means, empirical Bayes.

    Arguments:
        values: In ascending order, shape (n,), above 0.

    Source:
        Zhang & Stephens (2009), https://doi.org/10.1198/tech.2009.08017
    """
    n = len(values)
    points = 30 + int(n**0.5)
    ratio = 1 - np.sqrt(points / (np.arange(1, points + 1) - 0.5))
    ratio = ratio / (PRIOR_QUARTILE * values[int(n / 4 + 0.5) - 1]) + 1 / values[-1]
    shape = np.log1p(-ratio[:, None] * values).mean(1)
    log_profile = n * (np.log(-ratio / shape) - shape - 1)
    weight = 1 / np.exp(log_profile - log_profile[:, None]).sum(1)
    kept = weight >= 10 * np.finfo(float).eps
    mean = float(np.average(ratio[kept], weights=weight[kept]))
    found = float(np.log1p(-mean * values).mean())
    shrunk = (n * found + PRIOR_VALUES * PRIOR_SHAPE) / (n + PRIOR_VALUES)
    return shrunk, -found / mean


def pareto_quantiles(place: Array, shape: float, scale: float) -> Array:
    """Quantiles of a generalised Pareto distribution, NaN where the scale is not positive."""
    if not scale > 0:
        return np.full_like(place, math.nan)
    if abs(shape) < np.finfo(float).eps:
        return -scale * np.log1p(-place)
    return scale * np.expm1(-shape * np.log1p(-place)) / shape
