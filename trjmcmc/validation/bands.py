r"""Simultaneous bands for the distribution function of ranks that should be uniform.

The chance that an empirical distribution function stays between two lines at all points of a grid
is found exactly: its increments are those of a Poisson process of which the total is known.

Source:
    Säilynoja, Bürkner & Vehtari (2022), https://doi.org/10.1007/s11222-022-10090-6
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_POINTS = 100  # of the grid

Array = NDArray[np.float64]


def grid_of(n: int) -> Array:
    """Points between 0 and 1 at which n ranks are looked at."""
    k = max(2, min(n, MOST_POINTS))
    return np.arange(1, k) / k


def p_value(u: Any) -> float:
    """Chance that ranks of a right model stray as far at some point of the grid, exact.

    Arguments:
        u: Ranks in (0, 1), independent, shape (n,).

    Example:
        >>> p_value((np.arange(50) + 0.5) / 50) > 0.9, p_value(np.linspace(0.01, 0.6, 50)) < 1e-4
        (True, True)
    """
    u = np.asarray(u, dtype=float)
    z = grid_of(len(u))
    counts = (u[:, None] <= z).sum(0)
    level = _levels(len(u))[np.arange(len(z)), counts].min()
    return float(min(1.0, max(0.0, 1 - _inside(len(u), level * (1 + 1e-9)))))


def band(n: int, chance: float = 0.05) -> tuple[Array, Array, Array]:
    """Grid, and the lines between which the distribution function of n ranks stays.

    Arguments:
        n: Number of ranks.
        chance: That it does not, under a right model, at any point of the grid.
    """
    low, high = -30.0, 0.0  # of the logarithm of the level at each point
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if 1 - _inside(n, float(np.exp(middle))) < chance else (low, middle)
        )
    allowed = _levels(n) >= np.exp(low)
    lower = allowed.argmax(1) / n
    upper = 1 - allowed[:, ::-1].argmax(1) / n
    return grid_of(n), lower, upper


@cache
def _levels(n: int) -> Array:
    """Two-sided p-value of each count at each point of the grid alone, (K, n + 1)."""
    from scipy.stats import binom  # seconds to import

    z, c = grid_of(n)[:, None], np.arange(n + 1)[None]
    both = np.minimum(binom.cdf(c, n, z), binom.sf(c - 1, n, z))
    return np.minimum(1.0, 2 * both)


def _inside(n: int, level: float) -> float:
    """Chance that at every point the p-value is at least that level."""
    from scipy.special import gammaln

    z, allowed = grid_of(n), _levels(n) >= level
    ends = np.append(z, 1.0)
    steps = np.diff(ends, prepend=0.0)
    c = np.arange(n + 1)
    weight = np.zeros(n + 1)
    weight[0] = 1.0
    for k, step in enumerate(steps):
        rate = n * step
        increments = np.exp(c * np.log(rate) - rate - gammaln(c + 1))
        weight = np.convolve(weight, increments)[: n + 1]
        if k < len(z):
            weight = np.where(allowed[k], weight, 0.0)
    return float(weight[n] / np.exp(n * np.log(n) - n - gammaln(n + 1)))
