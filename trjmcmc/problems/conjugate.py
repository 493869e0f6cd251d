"""Two conjugate toys: a chance, and a mean beside an unknown variance."""

from __future__ import annotations

import math
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Beta, InverseGamma, Normal

from ..errors import TargetError
from ..target.model import Model, Truth
from ..target.target import Target
from .linear_posterior import LinearPosterior, check_scales
from .linear_regression import NormalRegression
from .regression import regression_data

Posterior = TypeVar("Posterior")


class SolvedTarget(Target, Generic[Posterior]):
    """A target of one model that holds its posterior.

    Arguments:
        model: The model.
        log_evidence: Its log evidence, nats.
        posterior: What is known of its parameters.

    Attributes:
        log_evidence, posterior: As given.
    """

    def __init__(self, model: Model, log_evidence: float, posterior: Posterior) -> None:
        self.log_evidence, self.posterior = log_evidence, posterior
        truth = Truth({model.name: 1.0}, {model.name: log_evidence}, "conjugate, exact")
        super().__init__([model], truth=truth)


def beta_bernoulli(
    successes: int = 19, failures: int = 21, a: float = 1.0, b: float = 1.0
) -> SolvedTarget[Beta]:
    """Yes or no, with the same chance w ~ Beta(a, b) every time.

    Arguments:
        successes, failures: How many of each there were.
        a, b: Of the prior.

    Returns:
        A target of the model ``"bernoulli"`` with parameter ``w``; its ``posterior`` is
        Beta(a + successes, b + failures), float64.

    Raises:
        TargetError: A count is below 0, or a or b not above 0.

    Source:
        Premchandar (2024), Normalizing flows aided variational inference, thesis, Michigan
        State University, section 2.6.1

    Example:
        >>> target = beta_bernoulli()
        >>> round(target.log_evidence, 4), round(target.posterior.mean.item(), 4)
        (-29.3142, 0.4762)
    """
    check_scales(a=a, b=b)
    if successes < 0 or failures < 0:
        raise TargetError(
            f"successes, failures: expected 0 or more, got {successes} and {failures}"
        )

    def log_likelihood(params: dict[str, Tensor]) -> Tensor:
        w = params["w"]
        return torch.xlogy(w.new_tensor(successes), w) + torch.special.xlog1py(
            w.new_tensor(failures), -w
        )

    log_z = _log_beta(a + successes, b + failures) - _log_beta(a, b)
    counts = torch.tensor([a + successes, b + failures], dtype=torch.float64)
    return SolvedTarget(
        Model("bernoulli", {"w": Beta(a, b)}, log_likelihood), log_z, Beta(counts[0], counts[1])
    )


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


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
    model = Model(
        "normal",
        {"mu": Normal(0.0, math.sqrt(tau2)), "sigma2": InverseGamma(a, b)},
        lambda p: log_likelihood(p["mu"][:, None], p["sigma2"]),
    )
    return SolvedTarget(model, posterior.log_evidence, posterior)
