"""Have many chains mixed? Autocorrelation times by the spread of their means, and tests."""

from __future__ import annotations

from typing import Any, NamedTuple

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


class ChainSums(NamedTuple):
    """Sums of quantities and of their squares over the draws of each chain.

    Attributes:
        draws: Of each chain.
        sums, squares: Shape (chain, Q) each; the quantities are of the size of one.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(500, 20, 1))
        >>> bool(abs(ChainSums.of(x).times[0] - 1) < 0.3)
        True
        >>> bool(abs(ChainSums.of(x.repeat(5, 1)).times[0] - 5) < 1.5)  # each draw five times
        True
    """

    draws: int
    sums: Array
    squares: Array

    @classmethod
    def of(cls, x: Array) -> ChainSums:
        """Of quantities, shape (chain, draw, Q)."""
        return cls(x.shape[1], x.sum(1), np.einsum("cdq,cdq->cq", x, x))

    def some(self, quantities: Any, chains: slice = slice(None)) -> ChainSums:
        """Of some quantities, by number or mask, and of some chains."""
        sums, squares = self.sums[chains], self.squares[chains]
        return ChainSums(self.draws, sums[:, quantities], squares[:, quantities])

    @property
    def means(self) -> Array:
        """Of each chain, shape (chain, Q)."""
        return self.sums / self.draws

    @property
    def variances(self) -> Array:
        """Of a draw, over all chains, shape (Q,)."""
        found: Array = self.squares.mean(0) / self.draws - self.means.mean(0) ** 2
        return found

    @property
    def times(self) -> Array:
        """Integrated autocorrelation times, from the spread of chain means, draws, shape (Q,).

        Of n draws a chain the variance of a mean is that of a draw times tau over n. No
        autocorrelations are needed, and a few draws of many chains tell.
        """
        found: Array = self.draws * self.means.var(0, ddof=1) / self.variances.clip(1e-12)
        return found.clip(LEAST_TIME)


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
        >>> round(float(ChainSums.of(x).times[0])), time_by_memory(x) > 1000
        (20, True)
        >>> time_by_memory(rng.normal(size=(500, 20, 1)))
        0.0
    """
    x = x[..., ChainSums.of(x).variances > least_variance]
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
    whole, third = ChainSums.of(x), max(1, draws // THIRD)
    judged = whole.variances > least_variance
    whole, last = whole.some(judged), ChainSums.of(x[:, -max(2, draws // LAST) :]).some(judged)
    quantities, indicators = int(judged.sum()), int(judged[:indicators].sum())
    if not quantities:
        return Mixing(1.0, 1.0, 1.0, 1.0, 1.0)
    drift = (x[:, -third:].mean(1) - x[:, :third].mean(1))[:, judged]
    z = np.abs(drift.mean(0)) / (drift.std(0, ddof=1) / chains**0.5 + 1e-12)
    kinds: list[NDArray[np.integer]] = [np.arange(chains) % groups]
    kinds += [starts] if starts is not None and len(np.unique(starts)) > 1 else []
    alike = min(float(equal_means(whole.means, kind).min()) for kind in kinds) * len(kinds)
    return Mixing(
        float(whole.times.max()),
        float(np.max((whole.times / last.times)[:indicators], initial=1.0)),
        _slowing(whole, last),
        min(1.0, float(2 * scipy.special.stdtr(max(1, chains - 1), -z).min() * quantities)),
        min(1.0, alike * quantities),
    )


def _slowing(whole: ChainSums, last: ChainSums) -> float:
    """Ratio of the slowest quantities' tau to that of their last quarter of the draws.

    They are chosen by one half of the chains and measured by the other, both ways: the largest of
    many noisy ones would look as if it grew.
    """
    if len(whole.sums) < 4:
        return 1.0
    halves, found, every = (slice(0, None, 2), slice(1, None, 2)), [], slice(None)
    for chosen, measured in (halves, halves[::-1]):
        slowest = whole.some(every, chosen).times.argsort()[-SLOWEST:]
        own, own_last = (sums.some(slowest, measured).times.sum() for sums in (whole, last))
        found.append(own / own_last)
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
