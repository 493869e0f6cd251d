"""Have many chains mixed? Autocorrelation times by the spread of their means, and tests."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from .convergence import normal_scores

Array = NDArray[np.float64]

LAST = 4  # the last quarter of the draws is what tau is held against

LEAST_TIME = 0.01  # draws: chains that take turns may have one near 0

SLOWEST = 3  # quantities

NEVER = 0.9999  # correlation of last with first draws from which chains have not moved

THIRD = 3  # first and last third are what a trend is told from


class Mixing(NamedTuple):
    """What many chains say of how they mix.

    Attributes:
        tau: Integrated autocorrelation time of the slowest quantity, draws.
        grown: The largest ratio of an indicator's tau to that of its last quarter of the draws:
            chains that never mix make tau grow with the record.
        slowing: The same of the slowest quantities together, whatever they are: of chains that are
            five tau long and forget at one rate it is some 1.4; at several it is more, and the
            slowest is not seen yet.
        trend: p value, all quantities together, of no drift between first and last third.
        alike: The same that chains have equal means, by group and by kind of start.
    """

    tau: float
    grown: float
    slowing: float
    trend: float
    alike: float


def times_by_spread(x: Array) -> Array:
    """Integrated autocorrelation times, from the spread of chain means, draws, shape (Q,).

    Of n draws a chain the variance of a mean is that of a draw times tau over n. No
    autocorrelations are needed, and a few draws of many chains tell.

    Arguments:
        x: Quantities, shape (chain, draw, Q).

    Example:
        >>> x = np.random.default_rng(0).normal(size=(500, 20, 1))
        >>> bool(abs(times_by_spread(x)[0] - 1) < 0.3)
        True
        >>> bool(abs(times_by_spread(x.repeat(5, 1))[0] - 5) < 1.5)  # each draw five times
        True
    """
    found: Array = x.shape[1] * x.mean(1).var(0, ddof=1) / variances(x).clip(1e-12)
    return found.clip(LEAST_TIME)


def variances(x: Array) -> Array:
    """Variances of indicators and scores over all draws, in one pass, shape (Q,).

    Arguments:
        x: Quantities of the size of one, shape (chain, draw, Q).
    """
    found: Array = np.einsum("cdq,cdq->q", x, x) / (len(x) * x.shape[1]) - x.mean((0, 1)) ** 2
    return found


def time_by_memory(x: Array, least_variance: float = 0.02) -> float:
    """Integrated autocorrelation time by how the last draws remember the first, all quantities.

    Chains that hardly move have one by their spread that is as long as the record; what they
    remember of its beginning tells how much longer it is. 0 draws where that is within two errors
    of nothing.

    Arguments:
        x: Quantities, shape (chain, draw, Q).
        least_variance: Quantities of a smaller one are not looked at.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = np.repeat(rng.normal(size=(500, 1, 1)), 20, 1)  # nobody moves
        >>> round(float(times_by_spread(x)[0])), time_by_memory(x) > 1000
        (20, True)
        >>> time_by_memory(rng.normal(size=(500, 20, 1)))
        0.0
    """
    x = x[..., variances(x) > least_variance]
    first, last = (x[:, k] - x[:, k].mean(0) for k in (0, -1))
    scale = np.sqrt((first**2).sum(0) * (last**2).sum(0)).sum()
    left = float((first * last).sum() / max(scale, 1e-12))
    if left < 2 / len(x) ** 0.5:
        return 0.0
    return float(-2 * (x.shape[1] - 1) / np.log(min(left, NEVER)))


def mixing(
    x: Array,
    groups: int,
    *,
    starts: NDArray[np.integer] | None = None,
    indicators: int = 0,
    least_variance: float = 0.02,
) -> Mixing:
    """Judge chains by quantities that they pass.

    Arguments:
        x: Quantities, shape (chain, draw, Q), indicators first; ranks of others
            (:func:`in_ranks`), so that no moment has to exist.
        groups: Number of groups that share nothing; chain c belongs to group c % groups.
        starts: Kind of start of each chain, shape (chain,): where some began in search of modes,
            what all chains still remember of that is a bias that no group shows.
        indicators: How many of the quantities are what the run was asked for.
        least_variance: Quantities of a smaller one are not judged: too few draws tell.

    Source:
        The F statistic of group means is nested R-hat, Margossian et al. (2024),
        https://doi.org/10.1214/24-BA1453, as a test

    Example:
        >>> x = np.random.default_rng(0).normal(size=(64, 40, 3))
        >>> fair = mixing(x, 8)
        >>> x[::8] += 1
        >>> bool(fair.alike > 0.005 > mixing(x, 8).alike)
        True
    """
    chains, draws, _ = x.shape
    judged = variances(x) > least_variance
    x, indicators = x[..., judged], int(judged[:indicators].sum())
    quantities = x.shape[2]
    if not quantities:
        return Mixing(1.0, 1.0, 1.0, 1.0, 1.0)
    times = times_by_spread(x)
    of_last = times_by_spread(x[:, -max(2, draws // LAST) :])
    third = max(1, draws // THIRD)
    drift = x[:, -third:].mean(1) - x[:, :third].mean(1)
    z = np.abs(drift.mean(0)) / (drift.std(0, ddof=1) / chains**0.5 + 1e-12)
    means = x.mean(1)
    kinds: list[NDArray[np.integer]] = [np.arange(chains) % groups]
    kinds += [starts] if starts is not None and len(np.unique(starts)) > 1 else []
    alike = min(float(equal_means(means, kind).min()) for kind in kinds) * len(kinds)
    return Mixing(
        float(times.max()),
        float(np.max((times / of_last)[:indicators], initial=1.0)),
        slowing(x),
        min(1.0, float(2 * scipy.special.stdtr(max(1, chains - 1), -z).min() * quantities)),
        min(1.0, alike * quantities),
    )


def slowing(x: Array) -> float:
    """Ratio of the slowest quantities' tau to that of their last quarter of the draws.

    They are chosen by one half of the chains and measured by the other, both ways: the largest of
    many noisy ones would look as if it grew.

    Arguments:
        x: Quantities, shape (chain, draw, Q).
    """
    halves, last = (x[::2], x[1::2]), max(2, x.shape[1] // LAST)
    if min(map(len, halves)) < 2:
        return 1.0
    times = [times_by_spread(half) for half in halves]
    found = []
    for chosen, half, own in zip(times, reversed(halves), reversed(times), strict=True):
        slowest = chosen.argsort()[-SLOWEST:]
        found.append(own[slowest].sum() / times_by_spread(half[:, -last:, slowest]).sum())
    return float(np.mean(found))


def equal_means(x: Array, kind: NDArray[np.integer]) -> Array:
    """p values that kinds of chains have equal means, of quantities (chain, Q), shape (Q,).

    Arguments:
        x: Means of chains.
        kind: Which of some each is of, shape (chain,).

    Source:
        One-way analysis of variance, Fisher (1925)
    """
    parts = [x[kind == k] for k in np.unique(kind)]
    few, rest = len(parts) - 1, len(x) - len(parts)
    if not few or not rest:
        return np.ones(x.shape[1])
    within = sum(((part - part.mean(0)) ** 2).sum(0) for part in parts)
    between = sum(len(part) * (part.mean(0) - x.mean(0)) ** 2 for part in parts)
    ratio = (between / few) / (within / rest + 1e-30)
    found: Array = scipy.special.fdtrc(few, rest, ratio)
    return found


def in_ranks(x: Array, inside: NDArray[np.bool_]) -> Array:
    """Normal scores of quantities and of their distance from the median, (chain, draw, 2 Q).

    Arguments:
        x: Quantities, shape (chain, draw, Q).
        inside: Draws at which they exist, shape (chain, draw); scores are 0 elsewhere.
    """
    apart = np.abs(x - np.median(x[inside], axis=0))
    return np.concatenate([normal_scores(x, inside), normal_scores(apart, inside)], -1)
