"""Whether means and standard deviations under q are those by importance weights."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..estimate.importance import EVEN, pareto_smoothed
from ..promises import PARETO_K_RELIABLE
from .variational_draws import VariationalDraws

APART = 0.1  # of a standard deviation, by which a mean or a standard deviation is off

SIGMAS = 5.0  # standard errors of the weighted moment

FEWEST = 1000  # draws of a model that are compared


def wrong_moments(sample: VariationalDraws) -> list[str]:
    """The worst mean or standard deviation of each model, in words, where one is wrong.

    A bound can be within hundredths of a nat while a few stray draws of q make a standard
    deviation a third too large. Weights of the same draws tell, where they can be averaged.

    Arguments:
        sample: Draws of q with their weights.
    """
    found = []
    for label in sample.models:
        rows, numbers = sample.columns(label)
        if len(rows) < FEWEST or not numbers:
            continue
        log_w = sample.log_weight[rows]
        if not bool((log_w > -math.inf).any()):
            continue
        smooth, k = pareto_smoothed(log_w)
        w = smooth.softmax(0).numpy()
        if k > PARETO_K_RELIABLE and 1 / np.square(w).sum() <= EVEN * len(w):
            continue
        x = np.stack(list(numbers.values()), 1)
        gaps, errors = _gaps(x, w)
        told = np.where(np.abs(gaps) > np.maximum(APART, SIGMAS * errors), np.abs(gaps), 0.0)
        if not told.any():
            continue
        moment, column = np.unravel_index(told.argmax(), told.shape)
        gap, name = float(gaps[moment, column]), list(numbers)[column]
        of = f" of {label}" if len(sample.models) > 1 else ""
        what = f"mean of {name}{of} is {gap:+.2f} standard deviations off"
        if moment == 1:
            size = "larger" if gap > 0 else "smaller"
            what = f"standard deviation of {name}{of} is {abs(gap):.0%} {size}"
        found.append(f"the {what} under q than by importance weights; corrected=True mends that")
    return found


def _gaps(
    x: NDArray[np.float64], w: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How far means and standard deviations of columns are off, and errors of the weighted ones.

    Not errors of the differences: a few stray draws that make a standard deviation too large are
    few, but they are in what is reported.

    Arguments:
        x: Values, shape (n, p).
        w: Weights of sum one, shape (n,).

    Returns:
        Two arrays of shape (2, p), of a weighted standard deviation; zero where there is none.
    """
    centred = x - w @ x
    variance = w @ np.square(centred)
    used = np.isfinite(variance) & (variance > 0)
    unit = np.where(used, variance, 1.0) ** 0.5
    z = np.where(used, centred / unit, 0.0)
    spread = np.sqrt(np.maximum(np.square(z).mean(0) - z.mean(0) ** 2, 0.0))
    gaps = np.stack([z.mean(0), np.where(used, spread - 1, 0.0)])
    squares = np.square(z) - np.where(used, 1.0, 0.0)
    columns = (w[:, None] * y for y in (z, squares / 2))
    return gaps, np.stack([np.sqrt(np.square(y).sum(0)) for y in columns])
