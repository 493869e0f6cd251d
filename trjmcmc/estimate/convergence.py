"""Have chains forgotten where they began? R-hat and effective draws of anything they pass."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from ..promises import RHAT_NO_ERROR
from .mean import mean_error

LEAST_DRAWS = 4  # a chain, for R-hat

AT_ONCE = 2**18  # numbers whose variances are taken at once: they fit into a processor's cache

FEW_STARTS = 20  # independent starts below which nothing tells the error of what descends from them

TAILS = (0.05, 0.95)

TAIL_SHARES = (0.01, 0.02, 0.05)  # of the draws, at either end, whose renewal is looked at

TAIL_RHAT = 1.03  # R-hat of being in a tail up to which it counts as renewed

TAIL_DRAWS = 20  # draws in a tail, under which it tells nothing of its renewal

Array = NDArray[np.float64]


def split_rhats(x: NDArray[Any]) -> Array:
    """Split R-hat of many quantities at once, (chain, draw, Q) -> (Q,).

    NaN where a quantity is constant or draws are fewer than four, infinite where chains differ
    and none moves. One chain is compared with itself, by its halves.

    Source:
        Gelman et al. (2013), Bayesian Data Analysis, eqs. 11.1 to 11.4
    """
    chains, draws, quantities = x.shape
    half = draws // 2
    if draws < LEAST_DRAWS:
        return np.full(quantities, math.nan)
    means, within = np.empty((2, 2, chains, quantities))
    step = max(1, AT_ONCE // max(1, half * quantities))
    for side, part in enumerate((x[:, :half], x[:, -half:])):
        for some in (slice(i, i + step) for i in range(0, chains, step)):
            y = part[some].astype(float)
            still = (y == y[:, :1]).all(1)  # else rounding would make a variance of it
            means[side, some] = y.mean(1)
            within[side, some] = np.where(still, 0.0, y.var(1, ddof=1))
    between = means.reshape(2 * chains, quantities).var(0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Array = np.sqrt((half - 1) / half + between / within.mean((0, 1)))
    return found


def start_error(rhat: float) -> float:
    """How far the starts of chains may still bias a mean, in standard deviations of a draw.

    A start that was off by one standard deviation biases the mean of n draws by half an
    autocorrelation time over n at most; R-hat squared less one is about two of them over n, so
    that it bounds this bias. NaN beyond an R-hat of 1.2.

    Example:
        >>> round(start_error(1.1), 2), start_error(1.5)
        (0.21, nan)
    """
    return rhat**2 - 1 if rhat <= RHAT_NO_ERROR else math.nan


def normal_scores(x: Array, inside: NDArray[np.bool_]) -> Array:
    """Ranks as quantiles of a standard normal, zero where a quantity does not exist.

    Arguments:
        x: Quantities, shape (chain, draw, Q).
        inside: Draws at which they exist, shape (chain, draw).

    Source:
        Vehtari et al. (2021), https://doi.org/10.1214/20-BA1221, eq. 14
    """
    scores = np.zeros(x.shape)
    here = x[inside]
    if len(here):
        scores[inside] = np.stack([_scores(column) for column in here.T.copy()], 1)
    return scores


def _scores(x: Array) -> Array:
    """Of one quantity, shape (n,); equal draws share the mean of their ranks.

    :func:`scipy.stats.rankdata` gives the ranks as well, but its module takes a second to import.
    """
    order = x.argsort()
    ordered = x[order]
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])  # of those that are equal
    number = np.diff(np.r_[first, len(x)])
    rank = first + (number + 1) / 2
    scores = np.empty(len(x))
    scores[order] = np.repeat(scipy.special.ndtri((rank - 0.375) / (len(x) + 0.25)), number)
    return scores


def rank_rhats(x: Array, inside: NDArray[np.bool_]) -> Array:
    """Rank-normalised split R-hat, of location and of spread the larger, shape (Q,).

    A quantity that exists in some draws alone, as a parameter of one of several models does, counts
    as zero elsewhere: what is judged is the mean of its score over all draws, which chains
    that enter and leave the model renew.

    Arguments:
        x: Quantities, shape (chain, draw, Q).
        inside: Draws at which they exist, shape (chain, draw).

    Source:
        Vehtari et al. (2021), https://doi.org/10.1214/20-BA1221, section 4

    Example:
        >>> x = np.random.default_rng(0).normal(size=(8, 200, 2))
        >>> x[::2, :, 1] += 3
        >>> [round(r, 1) for r in rank_rhats(x, np.ones((8, 200), bool)).tolist()]
        [1.0, 1.6]
    """
    if not inside.any():
        return np.full(x.shape[2], math.nan)
    folded = np.abs(x - np.median(x[inside], axis=0))
    bulk = split_rhats(normal_scores(x, inside))
    spread = split_rhats(normal_scores(folded, inside))
    found: Array = np.fmax(bulk, spread)
    found[np.ptp(x[inside], axis=0) == 0] = math.nan
    return found


def nested_rhats(x: Array, inside: NDArray[np.bool_], kind: NDArray[np.integer]) -> Array:
    """Nested R-hat of ranks: do groups of chains that began apart agree? Shape (Q,).

    Many short chains of one start share what they remember of it, which split R-hat of single
    chains drowns in their noise; means of whole groups show it. NaN of fewer than two groups,
    or draws.

    Arguments:
        x: Quantities, shape (chain, draw, Q).
        inside: Draws at which they exist, shape (chain, draw); they count as zero elsewhere.
        kind: Group of each chain, shape (chain,).

    Source:
        Margossian et al. (2024), https://doi.org/10.1214/24-BA1453, section 2

    Example:
        >>> x = np.random.default_rng(0).normal(size=(64, 50, 2))
        >>> group = np.arange(64) % 8
        >>> x[group == 0, :, 1] += 3
        >>> [round(r, 1) for r in nested_rhats(x, np.ones((64, 50), bool), group).tolist()]
        [1.0, 1.3]
    """
    groups = [kind == k for k in np.unique(kind)]
    if len(groups) < 2 or x.shape[1] < 2 or not inside.any():
        return np.full(x.shape[2], math.nan)
    scores = normal_scores(x, inside)
    means, spread = scores.mean(1), scores.var(1, ddof=1)
    of_group = np.array([means[mine].mean(0) for mine in groups])
    within = np.mean([spread[mine].mean(0) for mine in groups], 0)
    among = [means[mine].var(0, ddof=1) for mine in groups if mine.sum() > 1]  # 0 of one chain
    with np.errstate(divide="ignore", invalid="ignore"):
        within = within + np.sum(among, 0) / len(groups)
        found: Array = np.sqrt(1 + of_group.var(0, ddof=1) / within)
    found[np.ptp(x[inside], axis=0) == 0] = math.nan
    return found


class SlowTails(NamedTuple):
    """Of each of some quantities, the tail that chains renew least, shape (Q,) each.

    Attributes:
        share: Of the draws at which the quantity exists; negative of a lower tail.
        cut: Where it begins.
        rhat: Of being in it.
        off: By what share of itself its mass may be off; 0 of tails that count as renewed.
    """

    share: Array
    cut: Array
    rhat: Array
    off: Array


def slow_tails(x: Array, inside: NDArray[np.bool_], renewed: float = TAIL_RHAT) -> SlowTails:
    """How far the mass in the tails of quantities may be off.

    Chains that rarely enter a tail, and stay in it for long, have means and spreads that look
    forgotten, and errors that are far too small. R-hat of being in the tail tells: its square less
    one is about two autocorrelation times over the draws of a chain, see :func:`start_error`. The
    share of a tail that may be off is taken to be twice that, one at most, since chains have met
    only the nearer part of a tail that they hardly enter.

    Arguments:
        x: Quantities, shape (chain, draw, Q).
        inside: Draws at which they exist, shape (chain, draw).
        renewed: R-hat of being in a tail up to which it counts as renewed.

    Source:
        Vehtari et al. (2021), https://doi.org/10.1214/20-BA1221, section 4.3, on looking at tails

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(64, 200, 2))
        >>> x[:2, 100:, 1] = 9.0  # two of 64 chains went far out, and did not return
        >>> found = slow_tails(x, np.ones((64, 200), bool))
        >>> found.off.round(2).tolist(), found.rhat.round(1).tolist()
        ([0.0, 0.87], [1.0, 1.2])
    """
    here, zero = x[inside], np.zeros(x.shape[2])
    found = SlowTails(zero, zero, zero + 1, zero)
    told = [a for a in TAIL_SHARES if a * len(here) >= TAIL_DRAWS]
    shares = [-a for a in told] + told  # those below, those above
    levels = told + [1 - a for a in told]
    cuts: Array = np.quantile(here, levels, axis=0) if told else np.empty((0, x.shape[2]))
    for share, cut in zip(shares, cuts, strict=True):
        beyond = inside[..., None] & (x <= cut if share < 0 else x >= cut)
        rhat = np.fmax(split_rhats(beyond.astype(float)), 1.0)
        off = np.where(rhat > renewed, np.minimum(2 * (rhat**2 - 1), 1.0), 0.0)
        worse = abs(share) * off > np.abs(found.share) * found.off
        now = (zero + share, cut, rhat, off)
        found = SlowTails(*(np.where(worse, n, o) for n, o in zip(now, found, strict=True)))
    return found


def effective_draws(x: Array, inside: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Effective draws of the bulk and of the tails of quantities, two arrays of shape (Q,).

    Of a quantity that exists in some draws alone, effective draws in which it does.

    Arguments:
        x: Quantities, shape (chain, draw, Q).
        inside: Draws at which they exist, shape (chain, draw).

    Source:
        Vehtari et al. (2021), https://doi.org/10.1214/20-BA1221, section 4.3
    """
    here = x[inside]
    scores = normal_scores(x, inside)
    ends = np.quantile(here, TAILS, axis=0)
    bulk, tail = np.empty(x.shape[2]), np.empty(x.shape[2])
    for q in range(x.shape[2]):
        beyond = (
            (inside & (x[..., q] <= ends[0, q])).astype(float),
            (inside & (x[..., q] >= ends[1, q])).astype(float),
        )
        bulk[q] = mean_error(scores[..., q])[1]
        low, high = (mean_error(b)[1] for b in beyond)
        tail[q] = np.fmin(low, high)
    share = inside.mean()  # elsewhere the series is known without any draw
    return share * bulk, share * tail
