"""Evidences by bridging between draws of a posterior and draws of a map."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import scipy
from numpy.typing import NDArray

from .estimate import Estimate
from .mean import BATCHES, batch_sums, mean_error_where

WIDE = 50.0  # nats about the weights in which the evidence is looked for

DOUBTFUL = 0.1  # nats of standard error beyond which draws and map hardly meet

STEPS = 60  # of the search for a root at most: each halves the bracket at least

FEW = 100.0  # effective draws of either kind below which the error itself is doubtful


def bridge(posterior: NDArray[np.floating], proposal: NDArray[np.floating]) -> Estimate:
    r"""Log of p(model) times the evidence, by the optimal bridge of Meng and Wong.

    Weights are those of the log joint over the map's density, at draws of both. The estimate r
    balances the two sets of draws,

    .. math:: \mathrm{mean}_{map}\,\frac{w/r}{s_1 w/r + s_2}
              = \mathrm{mean}_{posterior}\,\frac{1}{s_1 w/r + s_2},

    with s_1 and s_2 the shares of effective draws. A map that lacks a part of the posterior
    makes the error large and not the answer wrong, as long as the chains have been there.

    Arguments:
        posterior: Log weights of the chains' draws in the model, shape (chain, draw); NaN
            where a chain is elsewhere.
        proposal: Log weights of draws from the map, shape (n,); -inf outside the support.

    Returns:
        The estimate in nats. The error counts the autocorrelation of the chains; ``ess`` is the
        number of effective draws of the kind that has fewer.

    Source:
        Meng & Wong (1996), Statistica Sinica 6, 831-860, eq. 4.1; error: Fruehwirth-Schnatter
        (2004), https://doi.org/10.1111/j.1368-423X.2004.00125.x, eq. 11

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x, z = rng.normal(size=(40, 50)), 1.5 * rng.normal(size=4000)
        >>> def log_w(x):  # exp(-x^2 / 2) over the density of N(0, 1.5^2)
        ...     return -0.5 * x**2 * (1 - 1 / 1.5**2) + np.log(1.5 * np.sqrt(2 * np.pi))
        >>> e = bridge(log_w(x), log_w(z))
        >>> bool(abs(e.value - 0.5 * np.log(2 * np.pi)) < 4 * e.std_error < 0.1)
        True
    """
    inside = ~np.isnan(posterior)
    here, there = posterior[inside].astype(float), proposal.astype(float)
    if not here.size:
        return Estimate(math.nan, math.inf, 0.0, "never visited")
    if not np.isfinite(there).any():
        return Estimate(math.nan, math.inf, 0.0, "no draw in the support")
    if not np.isfinite(here).any():
        return Estimate(math.nan, math.inf, 0.0, "draws and map hardly overlap")
    effective = float(here.size)
    for _ in range(2):  # the second time with the effective number of draws
        value = _solve(here, there, effective)
        f = _share(here - value, effective, len(there), of_map=True)
        error_here, ess_here = mean_error_where(f / f.mean(), inside)
        effective = min(max(ess_here, 1.0), float(here.size))
    g = _share(there - value, effective, len(there), of_map=False)
    error_there = float(g.std()) / (g.mean() * math.sqrt(len(g)))
    ess_there = float(g.sum() ** 2 / (g**2).sum())
    error, ess = math.hypot(error_here, error_there), min(effective, ess_there)
    warning = ""
    if not error < DOUBTFUL:
        warning = "draws and map hardly overlap"
    elif ess < FEW:
        warning = f"only {ess:.0f} effective draws"
    batches: tuple[float, ...] = ()
    if len(inside) >= BATCHES:
        lean = np.zeros(inside.shape)
        lean[inside] = 1 - f / f.mean()
        batches = batch_sums(lean.sum(1) / here.size)
    return Estimate(value, error, ess, warning, batches)


def _solve(here: NDArray[np.float64], there: NDArray[np.float64], effective: float) -> float:
    """The log of r that balances both sets of draws."""
    shift = math.log(effective / len(there))  # log s_1 / s_2

    def imbalance(log_r: float) -> float:
        up = (
            scipy.special.logsumexp(_log_expit(there - log_r + shift))
            - math.log(len(there))
            - shift
        )
        down = scipy.special.logsumexp(_log_expit(log_r - here - shift)) - math.log(len(here))
        return float(up - down)

    fine = np.concatenate([here[np.isfinite(here)], there[np.isfinite(there)]])
    low, high = fine.min() - WIDE, fine.max() + WIDE
    return falling_root(imbalance, low, high, 1e-10)


def _log_expit(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return -np.logaddexp(0.0, -x)


def _share(
    log_u: NDArray[np.float64], effective: float, n_map: int, *, of_map: bool
) -> NDArray[np.float64]:
    """1 / (s_1 u + s_2) or u / (s_1 u + s_2), up to a factor."""
    shift = math.log(effective / n_map)
    log_share = _log_expit(-log_u - shift if of_map else log_u + shift)
    found: NDArray[np.float64] = np.exp(log_share - log_share.max())
    return found


def falling_root(
    function: Callable[[float], float], low: float, high: float, tolerance: float
) -> float:
    """Where a falling function is zero, between points at which it is not below and not above it.

    SciPy's module of such searches takes half a second to import.

    Arguments:
        function: Finite between them.
        low, high: A bracket.
        tolerance: Of the root, until which steps go on.

    Source:
        Ridders (1979), https://doi.org/10.1109/TCS.1979.1084580

    Example:
        >>> round(falling_root(lambda x: 2.0 - x**3, 0.0, 50.0, 1e-9), 6)
        1.259921
    """
    above, below = float(function(low)), float(function(high))
    root = math.inf
    for _ in range(STEPS):
        middle = (low + high) / 2
        here = float(function(middle))
        scale = math.sqrt(here * here - above * below)
        before, root = root, middle + ((middle - low) * here / scale if scale else 0.0)
        if abs(root - before) < tolerance or high - low < tolerance:
            break
        for point in ((middle, here), (root, float(function(root)))):
            if point[1] >= 0:
                low, above = max((low, above), point)
            else:
                high, below = min((high, below), point)
    return root
