"""The standard error of a mean over chains."""

from __future__ import annotations

import math

import emcee
import numpy as np
from numpy.typing import NDArray

from ..export import effective_sample_size

MANY_CHAINS = 32  # from here on the spread of the chains' own means is the better error


def mean_error(x: NDArray[np.floating]) -> tuple[float, float]:
    """Standard error of the mean of ``x``, and the effective number of draws behind it.

    Chains are independent, so with many of them the spread of their means is an honest error
    whatever the autocorrelation, chains that are stuck included (autocorrelation estimates miss
    a few stuck chains among hundreds). With few chains the error rests on the autocorrelation.

    Arguments:
        x: Shape (chain, draw).

    Returns:
        Error in the unit of x and effective sample size; NaN and NaN where x is constant.

    Source:
        Few chains: Vehtari et al. (2021), https://doi.org/10.1214/20-BA1221
    """
    variance = float(x.var())
    if variance == 0:
        return math.nan, math.nan
    if len(x) >= MANY_CHAINS:
        error = float(x.mean(1).std(ddof=1)) / math.sqrt(len(x))
        return error, variance / error**2 if error else float(x.size)
    ess = effective_sample_size(x)
    return math.sqrt(variance / ess) if ess > 0 else math.nan, ess


def autocorrelation_time(x: NDArray[np.floating]) -> float:
    """Integrated autocorrelation time of ``x``, shape (chain, draw), in draws.

    With many chains from the spread of the chains' means, which counts slow modes that a sum
    of autocorrelations over one chain's length misses; else by emcee's estimator. Infinite
    where x, or with few chains any one chain, never changes.

    Source:
        Goodman & Weare (2010), https://doi.org/10.2140/camcos.2010.5.65
    """
    constant = np.ptp(x, axis=1) == 0
    if len(x) >= MANY_CHAINS:
        return math.inf if constant.all() else x.size / mean_error(x)[1]
    if constant.any():
        return math.inf
    return float(emcee.autocorr.integrated_time(x.T[:, :, None], tol=0, quiet=True).item())
