"""Do independent runs agree? What none of them can see of itself."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from .convergence import normal_scores

Array = NDArray[np.float64]

ALPHA = 1e-5  # probability of a false alarm, all quantities of a table together

LEAST_GROUPS = 16  # independent parts of a run from which the error of its mean is told


class RunGaps(NamedTuple):
    """How far runs are apart in each of Q quantities.

    Attributes:
        p: Probability of gaps as large where all runs sample the same, shape (Q,); NaN where
            nothing changes.
        apart: Distance of the run that is furthest off from the mean of all, in standard
            deviations of a draw, shape (Q,).
    """

    p: Array
    apart: Array


def run_gaps(x: Array, inside: NDArray[np.bool_], run: NDArray[np.integer]) -> RunGaps:
    """Compare the means of runs, by ranks, of location and of spread.

    Chains of a run may differ among themselves: its error is taken from their spread, so that what
    is told is what has befallen a run as a whole, as a lost mode has. A run in which nothing
    changed has the error that one independent draw a chain would have.

    Arguments:
        x: Quantities, shape (chain, draw, Q).
        inside: Draws at which they exist, shape (chain, draw).
        run: Number of the run of each chain, shape (chain,).

    Source:
        Welch (1951), https://doi.org/10.1093/biomet/38.3-4.330, on rank-normalised draws (Vehtari
        et al. 2021, https://doi.org/10.1214/20-BA1221)

    Example:
        >>> x = np.random.default_rng(0).normal(size=(64, 50, 2))
        >>> run = np.repeat([0, 1], 32)
        >>> x[run == 1, :, 1] += 0.3
        >>> (run_gaps(x, np.ones((64, 50), bool), run).p < 1e-5).tolist()
        [False, True]
    """
    if not inside.any():
        blank = np.full(x.shape[2], math.nan)
        return RunGaps(blank, blank)
    folded = np.abs(x - np.median(x[inside], axis=0))
    both = [_gaps(normal_scores(y, inside), run) for y in (x, folded)]
    p = np.fmin(1.0, 2 * np.fmin(both[0].p, both[1].p))
    p[np.ptp(x[inside], axis=0) == 0] = math.nan
    return RunGaps(p, np.fmax(both[0].apart, both[1].apart))


def _gaps(scores: Array, run: NDArray[np.integer]) -> RunGaps:
    """Welch's test of the means of scores, (chain, draw, Q)."""
    means, errors, numbers = [], [], []
    sd, chains = scores.std((0, 1)), scores.mean(1)
    order = np.argsort(run, kind="stable")  # one look for the chains of all runs
    for mine in np.split(order, np.flatnonzero(np.diff(run[order])) + 1):
        groups = _groups(scores[mine], chains[mine])
        n = len(groups)
        spread = groups.std(0, ddof=1) / math.sqrt(n) if n > 1 else sd
        still = np.ptp(groups, axis=0) == 0
        means.append(groups.mean(0))
        errors.append(np.where(still, sd / math.sqrt(n), spread))
        numbers.append(n)
    mean, variance = np.array(means), np.square(errors)
    k, number = len(mean), np.array(numbers)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = 1 / variance
        total = weight.sum(0)
        centre = (weight * mean).sum(0) / total
        doubt = ((1 - weight / total) ** 2 / np.maximum(number - 1, 1)).sum(0)
        ratio = (weight * (mean - centre) ** 2).sum(0) / (k - 1)
        ratio /= 1 + 2 * (k - 2) / (k**2 - 1) * doubt
        p = scipy.stats.f.sf(ratio, k - 1, (k**2 - 1) / (3 * doubt))
        apart = np.abs(mean - mean.mean(0)).max(0) / sd
    return RunGaps(p, apart)


def _groups(scores: Array, chains: Array) -> Array:
    """Means of independent parts of a run, (n, Q): chains, stretches of few.

    Arguments:
        scores: Of its chains, (C, draw, Q).
        chains: Their means, (C, Q).
    """
    if len(chains) >= LEAST_GROUPS or scores.shape[1] < 2 * LEAST_GROUPS:
        return chains
    parts = np.array_split(scores, -(-LEAST_GROUPS // len(chains)), axis=1)
    return np.concatenate([part.mean(1) for part in parts])
