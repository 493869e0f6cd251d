"""Columns and coefficients of simulated regressions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trjmcmc.errors import TargetError


def exchangeable_columns(
    rng: np.random.Generator, n: int, p: int, rho: float
) -> NDArray[np.float64]:
    """Rows of N(0, (1 - rho) I + rho 11'), neither centred nor scaled.

    Arguments:
        rng: Where the numbers come from.
        n: Rows, at least 1.
        p: Columns, at least 1.
        rho: Correlation of any two columns, from -1 / (p - 1) to 1.

    Returns:
        Shape (n, p).

    Raises:
        TargetError: n, p or rho is out of range.

    Example:
        >>> x = exchangeable_columns(np.random.default_rng(0), 100_000, 3, -0.4)
        >>> np.round(np.cov(x.T)[0], 1).tolist()
        [1.0, -0.4, -0.4]
    """
    if p < 1 or n < 1 or (p - 1) * rho < -1 or not -1 <= rho <= 1:
        raise TargetError(
            f"p, n, rho: expected p >= 1, n >= 1 and -1 / (p - 1) <= rho <= 1, got {p}, {n}, {rho}"
        )
    z = rng.standard_normal((n, p))
    along = np.sqrt(1 + (p - 1) * rho) - np.sqrt(1 - rho)
    result: NDArray[np.float64] = np.sqrt(1 - rho) * z + along * z.mean(1, keepdims=True)
    return result


def mostly_zero(rng: np.random.Generator, p: int) -> NDArray[np.float64]:
    """Coefficients from U(.5, 2), of which four fifths are zero where there are 20 or more, (p,).

    Source:
        Premchandar (2024), Normalizing flows aided variational inference, thesis, Michigan
        State University, section 2.6.3
    """
    beta = rng.uniform(0.5, 2.0, p)
    if p >= 20:
        beta[rng.permutation(p)[: round(0.8 * p)]] = 0.0
    return beta
