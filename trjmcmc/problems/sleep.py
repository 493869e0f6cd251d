"""Paired differences of hours of sleep: a Bayesian t test."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.distributions import Cauchy, Gamma, Normal

from ..target.model import Model, Truth
from ..target.target import Target
from .quadrature import log_evidence

# extra hours under the second drug less those under the first, ten patients
DIFFERENCES = (1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4)

VAGUE = 1e-4  # shape and rate of the prior of the precision


def sleep() -> Target:
    """Do two drugs differ? H0: y ~ N(0, s^2). H1: y ~ N(s delta, s^2), delta ~ Cauchy(0, 1/sqrt 2).

    The precision 1 / s^2 has a vague prior, Gamma(1e-4, 1e-4), in both.

    Source:
        Data: Cushny & Peebles (1905), Student (1908); the test: Rouder et al. (2009),
        https://doi.org/10.3758/PBR.16.2.225; evidences as published by Gronau, Singmann &
        Wagenmakers (2020), https://doi.org/10.18637/jss.v092.i10: -30.0206 and -27.1723

    Example:
        >>> truth = sleep().truth
        >>> round(math.exp(truth.log_evidence["H1"] - truth.log_evidence["H0"]), 4)
        17.2598
    """
    y = torch.tensor(DIFFERENCES)

    def log_likelihood(p: dict[str, Tensor]) -> Tensor:
        scale = p["precision"].rsqrt()[:, None]
        effect = p.get("delta", torch.zeros_like(p["precision"]))[:, None]
        return Normal(scale * effect, scale).log_prob(y.to(scale)).sum(-1)

    precision = Gamma(VAGUE, VAGUE)
    h0 = Model("H0", {"precision": precision}, log_likelihood)
    delta = Cauchy(0.0, 1 / math.sqrt(2))
    h1 = Model("H1", {"precision": precision, "delta": delta}, log_likelihood)
    log_z = {"H0": _null(), "H1": _alternative()}
    odds = 1 / (1 + math.exp(log_z["H0"] - log_z["H1"]))
    truth = Truth({"H0": 1 - odds, "H1": odds}, log_z, "closed form and quadrature")
    return Target([h0, h1], truth=truth)


def _null() -> float:
    """The integral over the precision in closed form."""
    n, squares = len(DIFFERENCES), sum(d * d for d in DIFFERENCES)
    shape, rate = VAGUE + n / 2, VAGUE + squares / 2
    prior = VAGUE * math.log(VAGUE) - math.lgamma(VAGUE)
    return prior + math.lgamma(shape) - shape * math.log(rate) - n / 2 * math.log(2 * math.pi)


def _alternative() -> float:
    y = torch.tensor(DIFFERENCES, dtype=torch.float64)

    def log_density(x: Tensor) -> Tensor:  # of the log precision and of delta
        scale = torch.exp(-0.5 * x[:, :1])
        log_p = Normal(scale * x[:, 1:], scale).log_prob(y).sum(-1)
        log_p = log_p + VAGUE * (math.log(VAGUE) + x[:, 0] - x[:, 0].exp()) - math.lgamma(VAGUE)
        cauchy = Cauchy(torch.tensor(0.0, dtype=torch.float64), 1 / math.sqrt(2))
        return log_p + cauchy.log_prob(x[:, 1])

    return log_evidence(log_density, torch.tensor([[-0.4, 1.0]]), step=0.3)
