"""A mean beside an unknown variance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch.distributions import InverseGamma, Normal

import trjmcmc as trj
from trjmcmc.problems.conjugate import SolvedTarget
from trjmcmc.problems.regression import regression_data

from .linear_posterior import LinearPosterior
from .linear_regression import NormalRegression


def normal_unknown_variance(
    y: Any, tau2: float = 1.0, a: float = 1.25, b: float = 1.25
) -> SolvedTarget[LinearPosterior]:
    """y_i ~ N(mu, sigma2), mu ~ N(0, tau2), sigma2 ~ InverseGamma(a, b), independent a priori.

    Arguments:
        y: Data, shape (n,), n at least 1.
        tau2: Prior variance of mu.
        a, b: Shape and rate of the prior of sigma2.

    Returns:
        A target of the model ``"normal"`` with parameters ``mu`` and ``sigma2``; its
        ``posterior`` is that of a regression on one column of ones, whose ``mean`` and ``sd``,
        shape (1,), are those of mu, and ``mean_sigma2`` and ``sd_sigma2`` those of sigma2.

    Raises:
        ShapeError: y is not a vector of one number or more.
        TargetError: A number in y is not finite, or tau2, a or b not above 0.

    Source:
        Premchandar (2024), Normalizing flows aided variational inference, thesis, Michigan
        State University, section 2.6.1

    Example:
        >>> target = normal_unknown_variance([0.3, 1.1, 0.4, 0.9])
        >>> round(target.log_evidence, 3), target.posterior.mean.round(decimals=3).tolist()
        (-4.864, [0.571])
    """
    values = np.asarray(y)
    ones, data = regression_data(np.ones((values.size, 1)), values)
    posterior = LinearPosterior(ones, data, tau2=tau2, shape=a, rate=b)
    log_likelihood = NormalRegression(ones, data)
    model = trj.Model(
        "normal",
        {"mu": Normal(0.0, math.sqrt(tau2)), "sigma2": InverseGamma(a, b)},
        lambda p: log_likelihood(p["mu"][:, None], p["sigma2"]),
    )
    return SolvedTarget(model, posterior.log_evidence, posterior)
