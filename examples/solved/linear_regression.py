"""Linear regression with normal coefficients, its variance known or not: one model, all exact."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import InverseGamma, Normal

from trjmcmc.errors import TargetError
from trjmcmc.problems.regression import (
    ResidualSquares,
    check_scales,
    regression_data,
)
from trjmcmc.target.model import Model, Truth
from trjmcmc.target.target import Target

from .columns import exchangeable_columns, mostly_zero
from .linear_posterior import LinearPosterior


def linear_regression(
    x: Any = None,
    y: Any = None,
    *,
    tau2: float = 1.0,
    shape: float = 1.25,
    rate: float = 1.25,
    sigma: float | None = None,
    n: int = 80,
    p: int = 2,
    rho: float = 0.0,
    beta: Any = None,
    seed: int = 0,
) -> LinearRegression:
    """y = X b + e, e ~ N(0, sigma2 I), b ~ N(0, tau2 I), sigma2 ~ InverseGamma(shape, rate).

    Simulated rows are N(0, (1 - rho) I + rho 11'), coefficients U(.5, 2), four fifths of them
    zero where there are 20 or more; errors have standard deviation ``sigma``, or 1 where it is
    not given. Nothing is centred or scaled, and there is no intercept.

    Arguments:
        x: Columns of your own, shape (n, p), of any rank.
        y: Response of your own, shape (n,).
        tau2: Prior variance of the coefficients.
        shape, rate: Of the prior of sigma2.
        sigma: Standard deviation of the errors where it is known: then ``beta`` is the only
            parameter and the posterior is normal.
        n: Rows, where data are simulated.
        p: Columns, where data are simulated.
        rho: Correlation of any two columns, from -1 / (p - 1) to 1, where data are simulated.
        beta: Coefficients to simulate with, shape (p,), if not those above.
        seed: Of the simulated data.

    Returns:
        A target of the model ``"regression"`` with parameters ``beta`` (p,) and ``sigma2``.

    Raises:
        ShapeError: x and y do not fit together, or there is no column.
        TargetError: Only one of x and y is given, a number in them is not finite, or tau2,
            shape, rate, sigma, n, p, rho or beta is out of range.

    Source:
        Premchandar (2024), Normalizing flows aided variational inference, thesis, Michigan
        State University, sections 2.6.3 and 3.2

    Example:
        >>> target = linear_regression(n=40, p=20)
        >>> target.dim, int((target.beta_true != 0).sum())
        (21, 4)
        >>> linear_regression(sigma=1.0, rho=0.9).posterior.covariance.shape
        torch.Size([2, 2])
    """
    true = None
    if x is None and y is None:
        if sigma is not None:
            check_scales(sigma=sigma)
        rng = np.random.default_rng(seed)
        x = exchangeable_columns(rng, n, p, rho)
        true = mostly_zero(rng, p) if beta is None else np.asarray(beta, dtype=float)
        if true.shape != (p,):
            raise TargetError(f"beta: expected p = {p} coefficients, got shape {true.shape}")
        y = x @ true + (1.0 if sigma is None else sigma) * rng.standard_normal(n)
    columns, response = regression_data(x, y)
    posterior = LinearPosterior(columns, response, tau2=tau2, shape=shape, rate=rate, sigma=sigma)
    return LinearRegression(
        columns, response, posterior, None if true is None else torch.tensor(true)
    )


class LinearRegression(Target):
    """A linear regression that holds its data and its exact posterior.

    Arguments:
        x: Columns, shape (n, p), float64.
        y: Response, shape (n,), float64.
        posterior: Prior and exact answers, of the same data.
        beta_true: Coefficients that the data were simulated with, shape (p,), if they were.

    Attributes:
        x, y, beta_true: As given.
        posterior: See :class:`LinearPosterior`: log evidence, moments, quantiles, independent
            draws, Gibbs draws, the mean-field optimum.

    Example:
        >>> target = linear_regression()
        >>> target.truth.log_evidence["regression"] == target.posterior.log_evidence
        True
    """

    def __init__(
        self, x: Tensor, y: Tensor, posterior: LinearPosterior, beta_true: Tensor | None = None
    ) -> None:
        self.x, self.y, self.posterior, self.beta_true = x, y, posterior, beta_true
        normal, sigma = NormalRegression(x, y), posterior.sigma

        # a double of no dimension: it leaves the precision of the parameters alone
        known = torch.tensor(1.0 if sigma is None else sigma**2, dtype=torch.float64)

        def log_likelihood(params: dict[str, Tensor]) -> Tensor:
            return normal(params["beta"], params.get("sigma2", known))

        priors: dict[str, Any] = {
            "beta": Normal(torch.zeros(x.shape[1]), math.sqrt(posterior.tau2))
        }
        if sigma is None:
            priors["sigma2"] = InverseGamma(posterior.shape, posterior.rate)
        truth = Truth(
            {"regression": 1.0},
            {"regression": posterior.log_evidence},
            "closed form given sigma2, trapezoid rule over its logarithm",
        )
        super().__init__([Model("regression", priors, log_likelihood)], truth=truth)


class NormalRegression:
    """Log-likelihood of y ~ N(X b, sigma2 I).

    Arguments:
        x: Columns, shape (n, p).
        y: Response, shape (n,).
    """

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.n, self.squares = len(y), ResidualSquares(x, y)

    def __call__(self, beta: Tensor, sigma2: Tensor) -> Tensor:
        """At coefficients (C, p) and variances (C,) or (), shape (C,), nats."""
        total = self.squares.rest + self.squares(beta)
        return -0.5 * (self.n * (2 * math.pi * sigma2).log() + total / sigma2)
