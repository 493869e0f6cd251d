"""The standard error of a mean over chains."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..arviz_bridge import effective_sample_size

Covariance = NDArray[np.float64]

ENOUGH_CHAINS = 8  # that must share the draws of a model for the spread of their means to tell

ROUNDING = 1e-12  # relative spread of what is constant

BATCHES = 32  # of chains, at least, where there are enough

MANY_CHAINS = 32  # from here on the spread of the chains' own means is the better error


def mean_error(x: NDArray[np.floating]) -> tuple[float, float]:
    """Standard error of the mean of ``x``, and the effective number of draws behind it.

    Chains are independent, so with many of them the spread of their means is a valid error
    whatever the autocorrelation, chains that are stuck included (autocorrelation estimates miss
    a few stuck chains among hundreds). With few chains the error rests on the autocorrelation.

    Arguments:
        x: Shape (chain, draw).

    Returns:
        Error in the unit of x and effective sample size; NaN and NaN where x is constant, or
        infinite somewhere.

    Source:
        Few chains: Vehtari et al. (2021), https://doi.org/10.1214/20-BA1221
    """
    variance = float(x.var()) if np.isfinite(x).all() else 0.0
    if variance == 0:
        return math.nan, math.nan
    if len(x) >= MANY_CHAINS:
        return spread_error(x.mean(1), variance, x.size)
    ess = effective_sample_size(x)
    return math.sqrt(variance / ess) if ess > 0 else math.nan, ess


def spread_error(means: NDArray[np.floating], variance: float, size: float) -> tuple[float, float]:
    """Standard error of a mean by the spread of the chains' own, and effective draws.

    Arguments:
        means: By chain, shape (C,).
        variance: Of a draw.
        size: Draws of all chains, for means that do not differ at all.
    """
    error = float(spread_errors(means[:, None])[0])
    return error, variance / error**2 if error**2 > 0 else float(size)


def spread_errors(means: NDArray[np.floating]) -> NDArray[np.float64]:
    """Standard errors of many means, as :func:`spread_error`, (C, Q) -> (Q,)."""
    error: NDArray[np.float64] = means.std(0, ddof=1) / math.sqrt(len(means))
    return error


def mean_error_where(x: NDArray[np.floating], inside: NDArray[np.bool_]) -> tuple[float, float]:
    """Standard error of the mean of ``x`` over the draws of chains that come and go.

    Arguments:
        x: Values of the draws that count, in the order chain by chain, shape (n,).
        inside: Which draws those are, shape (chain, draw).

    Returns:
        Error in the unit of x and effective sample size. Where few chains hold most of the draws
        their means tell nothing: the error is then that of the autocorrelation in each, if that is
        larger.
    """
    mean, spread = float(x.mean()), float(x.std())
    if spread <= ROUNDING * max(abs(mean), float(np.abs(x).max())):
        return 0.0, float(x.size)
    influence = np.zeros(inside.shape)
    influence[inside] = (x - mean) / inside.mean()
    error, _ = mean_error(influence)
    share = inside.sum(1) / inside.sum()
    if not 1 / float((share**2).sum()) >= ENOUGH_CHAINS or not math.isfinite(error):
        ends = np.cumsum(inside.sum(1))
        parts = [p for p in np.split(x, ends[:-1]) if len(p)]
        found = [effective_sample_size(p[None]) for p in parts]
        ess = sum(min(e, len(p)) if e > 0 else 1.0 for e, p in zip(found, parts, strict=True))
        own = spread / math.sqrt(max(ess, 1.0))
        error = max(own, error) if math.isfinite(error) else own
    return error, (spread / error) ** 2 if error > 0 else float(x.size)


def share_covariance(shares: NDArray[np.floating], error: NDArray[np.floating]) -> Covariance:
    """Covariance of mean shares, from shares in independent batches.

    Arguments:
        shares: By batch (a chain, or a stretch of one) and model, shape (B, M).
        error: Standard errors of the means, shape (M,); the batches tell how they are correlated.

    Returns:
        Shape (M, M). Where the batches are not many more than the models the correlation is drawn
        towards that of a multinomial.
    """
    b, m = shares.shape
    p = shares.mean(0).clip(1e-12, 1 - 1e-12)
    tie = np.sqrt(p / (1 - p))
    correlation = -np.outer(tie, tie)
    with np.errstate(invalid="ignore", divide="ignore"):
        seen = np.corrcoef(shares.T).reshape(m, m) if b > 1 else correlation
    seen = np.where(np.isfinite(seen), seen, correlation)
    trust = max(0.0, 1 - m / b)
    mixed = trust * seen + (1 - trust) * correlation
    np.fill_diagonal(mixed, 1.0)
    found: Covariance = mixed * np.outer(error, error)
    return found


def batch_shares(indicators: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Shares in independent batches, (M, chain, draw) -> (B, M): chains, or stretches of few."""
    m, chains, draws = indicators.shape
    cuts = max(1, min(draws, -(-MANY_CHAINS // chains)))
    each = draws // cuts
    x = indicators[:, :, : cuts * each].reshape(m, chains * cuts, each)
    found: NDArray[np.float64] = x.mean(2).T
    return found


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
    import emcee  # with scipy.stats, which takes a second

    return float(emcee.autocorr.integrated_time(x.T[:, :, None], tol=0, quiet=True).item())


def batch_sums(x: NDArray[np.floating]) -> tuple[float, ...]:
    """Sums over the batches that chains are dealt to in turn, (chain,) -> BATCHES numbers."""
    return tuple(np.bincount(np.arange(len(x)) % BATCHES, weights=x).tolist())
