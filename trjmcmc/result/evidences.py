"""Evidences and Bayes factors by several routes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..estimate.estimate import Estimate

NOTHING = Estimate(math.nan, math.inf, 0.0)


def _total(log_mass: list[Estimate], covariance: NDArray[np.float64]) -> Estimate:
    """Log of the sum of the masses that are known."""
    value = np.array([e.value if math.isfinite(e.value) else -math.inf for e in log_mass])
    total = float(np.logaddexp.reduce(value))
    if not math.isfinite(total):
        return NOTHING
    p = np.exp(value - total)
    return Estimate(total, math.sqrt(max(float(p @ covariance @ p), 0.0)))


def log_share(e: Estimate, level: Estimate) -> Estimate:
    """The logarithm of a share on some level; of one that was never seen the upper bound."""
    if e.value <= 0:
        bound = math.log(e.std_error) if 0 < e.std_error < math.inf else math.nan
        return Estimate(bound + level.value, math.inf, e.ess, e.warning)
    error = math.hypot(e.std_error / e.value, level.std_error)
    return Estimate(math.log(e.value) + level.value, error, e.ess, e.warning)
