"""Logistic regression with normal coefficients: one model, nothing selected."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor
from torch.distributions import Normal
from torch.nn.functional import logsigmoid

from trjmcmc.errors import TargetError
from trjmcmc.problems.regression import (
    COEFFICIENTS,
    LATTICE_SOURCE,
    Constants,
    LazyTarget,
    check_scales,
    lattice_evidence,
    regression_data,
)
from trjmcmc.target.model import Model, Truth

from .columns import exchangeable_columns, mostly_zero


def logistic_regression(
    x: Any = None,
    y: Any = None,
    *,
    prior_sd: float = 1.0,
    n: int = 80,
    p: int = 2,
    rho: float = 0.0,
    seed: int = 0,
) -> LogisticTarget:
    """y_i ~ Bernoulli(1 / (1 + exp(-x_i b))), b ~ N(0, prior_sd^2 I), no intercept.

    Simulated rows are N(0, (1 - rho) I + rho 11'), coefficients U(.5, 2), four fifths of them
    zero where there are 20 or more.

    Arguments:
        x: Columns of your own, shape (n, p); a column of ones is an intercept.
        y: Response of your own, zeros and ones or booleans, shape (n,).
        prior_sd: Of every coefficient.
        n: Rows, where data are simulated.
        p: Columns, where data are simulated.
        rho: Correlation of any two columns, from -1 / (p - 1) to 1, where data are simulated.
        seed: Of the simulated data.

    Returns:
        A target of the model ``"regression"`` with parameter ``beta`` (p,). Up to 4 columns its
        truth is found by quadrature on first use; beyond it is None.

    Raises:
        ShapeError: x and y do not fit together, or there is no column.
        TargetError: Only one of x and y is given, a number in x is not finite or one in y
            neither 0 nor 1, or prior_sd, n, p or rho is out of range.

    Source:
        Premchandar (2024), Normalizing flows aided variational inference, thesis, Michigan
        State University, section 2.6.4

    Example:
        >>> target = logistic_regression(p=3)
        >>> target.dim, target.y.unique().tolist()
        (3, [0.0, 1.0])
    """
    check_scales(prior_sd=prior_sd)
    beta = None
    if x is None and y is None:
        rng = np.random.default_rng(seed)
        x = exchangeable_columns(rng, n, p, rho)
        beta = torch.tensor(mostly_zero(rng, p))
        y = rng.random(n) < scipy.special.expit(x @ beta.numpy())
    columns, response = regression_data(x, y)
    yes_and_no(response)
    return LogisticTarget(columns, response, prior_sd, beta)


class LogisticTarget(LazyTarget):
    """A logistic regression that holds its data.

    Arguments:
        x: Columns, shape (n, p), float64.
        y: Zeros and ones, shape (n,), float64.
        prior_sd: Of every coefficient.
        beta_true: Coefficients that the data were simulated with, shape (p,), if they were.

    Attributes:
        x, y, prior_sd, beta_true: As given.
    """

    def __init__(
        self, x: Tensor, y: Tensor, prior_sd: float, beta_true: Tensor | None = None
    ) -> None:
        self.x, self.y, self.prior_sd, self.beta_true = x, y, prior_sd, beta_true
        prior = Normal(torch.zeros(x.shape[1]), prior_sd)
        self.log_likelihood = LogisticRegression(x, y)
        super().__init__([Model("regression", {"beta": prior}, self.log_likelihood)])

    def _exact(self) -> Truth | None:
        p = self.x.shape[1]
        if p > COEFFICIENTS:
            return None
        columns = torch.eye(p, dtype=torch.float64)
        value = lattice_evidence(self.log_likelihood, self.prior_sd, columns)
        if value is None:
            return None
        return Truth({"regression": 1.0}, {"regression": value}, LATTICE_SOURCE)


def yes_and_no(y: Tensor) -> None:
    """Refuse a response that is not zeros and ones."""
    other = y[(y != 0) & (y != 1)]
    if len(other):
        raise TargetError(f"y: expected zeros and ones, got {float(other[0])} among them")


class LogisticRegression:
    """Log-likelihood of a logistic regression, sum_i log sigmoid(+-x_i b), + where y_i is 1.

    Neither overflows nor cancels, however far out b is.

    Arguments:
        x: Design, shape (n, p).
        y: Response of zeros and ones, shape (n,).
    """

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.data = Constants((x * (2 * y - 1)[:, None]).T.contiguous())

    def __call__(self, params: dict[str, Tensor], active: Tensor | None = None) -> Tensor:
        beta = params["beta"]
        (signed,) = self.data.like(beta)
        return logsigmoid(beta @ signed).sum(-1)
