"""How much of a posterior an interval of something else holds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Marginal:
    """What is known of one number's posterior: draws, or its distribution function.

    Attributes:
        draws: Shape (n,).
        effective: Independent draws behind them.
        cdf: Instead of draws.
    """

    draws: NDArray[np.float64] | None = None
    effective: float = math.nan
    cdf: Callable[[float], float] | None = None


def interval_content(
    low: float, high: float, posterior: Marginal, level: float, n: float = math.inf
) -> tuple[float, float]:
    """Posterior probability of an interval: its actual coverage.

    Arguments:
        low, high: The interval.
        posterior: What is known of the exact posterior.
        level: What the interval claims to hold.
        n: Draws that its ends were found by.

    Returns:
        The probability, and its standard error: of the posterior's draws, and of the ends as if
        both distributions were alike.

    Example:
        >>> from scipy.stats import norm
        >>> narrow = 0.8 * norm.ppf(0.95)  # mean field where two parameters have correlation .6
        >>> round(interval_content(-narrow, narrow, Marginal(cdf=norm.cdf), 0.9)[0], 4)
        0.8118
    """
    variance = level * (1 - level) / n
    if posterior.cdf is not None:
        return float(posterior.cdf(high) - posterior.cdf(low)), math.sqrt(variance)
    assert posterior.draws is not None
    share = float(np.mean((posterior.draws >= low) & (posterior.draws <= high)))
    variance += share * (1 - share) / posterior.effective
    return share, math.sqrt(variance)
