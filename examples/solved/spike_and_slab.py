"""Spike-and-slab regression, and the Gibbs sampler that is its reference."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from trjmcmc.errors import ConfigurationError, TargetError
from trjmcmc.problems.conjugate_selection import ConjugateSelection, check_spike_and_slab
from trjmcmc.problems.regression import regression_data


def spike_and_slab(
    x: Any = None,
    y: Any = None,
    *,
    slab_sd: float = 1.0,
    weight: float = 0.5,
    p: int = 3,
    n: int = 100,
    rho: float = 0.0,
    effects: int | Sequence[int] = 1,
    seed: int = 0,
) -> ConjugateSelection:
    """A linear regression whose coefficients are zero or from a Gaussian slab.

    y = X b + e with e ~ N(0, I) and b_j ~ weight N(0, slab_sd^2) + (1 - weight) delta_0: the
    columns in use are the model, and every evidence is exact.

    Simulated rows are N(0, (1 - rho) I + rho 11'), coefficients are log n in the columns of
    ``effects`` and zero in the others; nothing is centred or scaled.

    Arguments:
        x: Columns of your own, shape (n, p), used as they are.
        y: Response of your own, shape (n,).
        slab_sd: Standard deviation of the slab.
        weight: Prior probability of the slab.
        p: Columns, where data are simulated.
        n: Rows, where data are simulated.
        rho: Correlation of any two columns, from 0 to 1, where data are simulated.
        effects: Which coefficients are not zero, where data are simulated: the first so many, or
            the indices of their columns, from 0, in any order.
        seed: Of the simulated data.

    Returns:
        A target with models ``"(none)"``, ``"x1"``, ``"x2"``, ``"x1+x2"``, ... and parameter
        ``beta``; see :class:`ConjugateSelection` for its exact answers.

    Raises:
        ShapeError: x and y do not fit together, or there is no column.
        TargetError: slab_sd, weight, p, n, rho or effects is out of range, only one of x and y
            is given, or a number in them is not finite.

    Source:
        Premchandar (2024), Normalizing flows aided variational inference, thesis, Michigan
        State University, equations 4.1, 4.2 and 4.5, section 4.3

    Example:
        >>> target = spike_and_slab(rho=0.6, effects=2)
        >>> target.beta_true.tolist() == [math.log(100), math.log(100), 0.0]
        True
        >>> target.inclusion[:2].round(decimals=4).tolist()
        [1.0, 1.0]
        >>> spike_and_slab(p=5, effects=[4, 1]).gamma_true.nonzero()[:, 0].tolist()
        [1, 4]
    """
    beta = None
    if x is None and y is None:
        if p < 1 or n < 1 or not 0 <= rho <= 1:
            raise TargetError(
                f"p, n, rho: expected p >= 1, n >= 1 and 0 <= rho <= 1, got {p}, {n}, {rho}"
            )
        places = _places(effects, p)
        rng = np.random.default_rng(seed)
        common = rng.standard_normal((n, 1))
        x = math.sqrt(1 - rho) * rng.standard_normal((n, p)) + math.sqrt(rho) * common
        beta = np.zeros(p)
        beta[places] = math.log(n)
        y = x @ beta + rng.standard_normal(n)
    return ConjugateSelection(*regression_data(x, y), slab_sd, weight, beta)


def _places(effects: Any, p: int) -> list[int]:
    """Indices of the columns that have an effect."""
    try:
        one = np.ndim(effects) == 0
        places = [operator.index(j) for j in (range(min(effects, p + 1)) if one else effects)]
    except TypeError:
        places = [-1]
    if (
        any(not 0 <= j < p for j in places)
        or len(set(places)) < len(places)
        or (one and effects < 0)
    ):
        raise TargetError(
            f"effects: expected a number from 0 to p = {p}, or different indices of columns from "
            f"0 to {p - 1}, got {effects!r}"
        )
    return places


def gibbs_spike_and_slab(
    x: Any,
    y: Any,
    *,
    slab_sd: float = 1.0,
    weight: float = 0.5,
    draws: int = 10_000,
    burn_in: int = 1_000,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Draws from the posterior of :func:`spike_and_slab` by one coefficient at a time.

    Given the others, column j is in with odds weight / (1 - weight) sqrt(v) / slab_sd
    exp(v a^2 / 2), where a = x_j' r, r are the residuals without column j and
    v = 1 / (x_j' x_j + slab_sd^-2); its coefficient, integrated out of the odds, is then
    N(v a, v).

    Arguments:
        x: Columns, shape (n, p).
        y: Response, shape (n,).
        slab_sd: Standard deviation of the slab.
        weight: Prior probability of the slab.
        draws: Sweeps over all coefficients that are kept.
        burn_in: Sweeps before them, from all coefficients zero.
        seed: Of the chain.

    Returns:
        Coefficients, shape (draws, p), exact zeros where a column is out.

    Error:
        Monte Carlo, of one autocorrelated chain; columns that are nearly collinear trade
        places seldom.

    Raises:
        ShapeError: x and y do not fit together.
        TargetError: slab_sd or weight is out of range, or a number in the data is not finite.
        ConfigurationError: draws is below 1 or burn_in below 0.

    Source:
        Geweke (1996), Variable selection and model comparison in regression, Bayesian
        Statistics 5:609

    Example:
        >>> target = spike_and_slab()
        >>> beta = gibbs_spike_and_slab(target.x, target.y, draws=500, burn_in=50)
        >>> beta.shape, (beta[:, 0] != 0).mean().item()
        ((500, 3), 1.0)
    """
    check_spike_and_slab(slab_sd, weight)
    if draws < 1 or burn_in < 0:
        raise ConfigurationError(
            f"draws, burn_in: expected at least 1 and 0, got {draws} and {burn_in}"
        )
    columns, response = (v.numpy() for v in regression_data(x, y))
    gram, moment = columns.T @ columns, columns.T @ response
    rng = np.random.default_rng(seed)
    variance = 1 / (gram.diagonal() + slab_sd**-2)
    log_odds = math.log(weight) - math.log1p(-weight) + 0.5 * np.log(variance / slab_sd**2)
    beta = np.zeros(len(moment))
    result = np.empty((draws, len(moment)))
    for t in range(-burn_in, draws):
        uniform, normal = rng.random(len(beta)), rng.standard_normal(len(beta))
        for j in range(len(beta)):
            beta[j] = 0.0
            mean = variance[j] * (moment[j] - gram[j] @ beta)
            slab = uniform[j] < scipy.special.expit(log_odds[j] + 0.5 * mean**2 / variance[j])
            beta[j] = mean + math.sqrt(variance[j]) * normal[j] if slab else 0.0
        if t >= 0:
            result[t] = beta
    return result
