"""Two non-nested regressions of the strength of pine boards."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.distributions import Gamma, Normal

import trjmcmc as trj
from trjmcmc.target.prior import PriorSpec

STRENGTH = (
    *(3040, 2470, 3610, 3480, 3810, 2330, 1800, 3110, 3160, 2310, 4360, 1880, 3670, 1740),
    *(2250, 2650, 4970, 2620, 2900, 1670, 2540, 3840, 3800, 4600, 1900, 2530, 2920, 4990),
    *(1670, 3310, 3450, 3600, 2850, 1590, 3770, 3850, 2480, 3570, 2620, 1890, 3030, 3030),
)

DENSITY = (
    *(29.2, 24.7, 32.3, 31.3, 31.5, 24.5, 19.9, 27.3, 27.1, 24.0, 33.8, 21.5, 32.2, 22.5),
    *(27.5, 25.6, 34.5, 26.2, 26.7, 21.1, 24.1, 30.7, 32.7, 32.6, 22.1, 25.3, 30.8, 38.9),
    *(22.1, 29.2, 30.1, 31.4, 26.7, 22.1, 30.3, 32.0, 23.2, 30.3, 29.9, 20.8, 33.2, 28.2),
)

ADJUSTED_DENSITY = (
    *(25.4, 22.2, 32.2, 31.0, 30.9, 23.9, 19.2, 27.2, 26.3, 23.9, 33.2, 21.0, 29.0, 22.0),
    *(23.8, 25.3, 34.2, 25.7, 26.4, 20.0, 23.9, 30.7, 32.6, 32.5, 20.8, 23.1, 29.8, 38.1),
    *(21.3, 28.5, 29.2, 31.4, 25.9, 21.4, 29.8, 30.6, 22.6, 30.3, 23.8, 18.4, 29.4, 28.2),
)

CENTRE = torch.tensor([3000.0, 185.0], dtype=torch.float64)  # of intercept and slope

PRECISION = torch.tensor([0.06, 6.0], dtype=torch.float64)  # of them, in units of the noise's

SHAPE, RATE = 3.0, 2 * 300.0**2  # of the prior of the noise's precision


def radiata_pine() -> trj.Target:
    """Does density or density adjusted for resin predict the strength of 42 boards?

    Strength is N(alpha + beta (x - mean x), 1 / tau), with (alpha, beta) normal about
    (3000, 185) with precisions (0.06 tau, 6 tau), and tau ~ Gamma(3, 2 * 300^2).

    Source:
        Data: Williams (1959), Regression Analysis, as circulated with BUGS; model: Friel &
        Pettitt (2008), https://doi.org/10.1111/j.1467-9868.2007.00650.x. The evidences are
        conjugate, hence exact for these data; those in print (-310.128, -301.705) differ from
        them by more than rounding and must rest on another transcription.

    Example:
        >>> truth = radiata_pine().truth.log_evidence
        >>> {name: round(z, 5) for name, z in truth.items()}
        {'density': -310.50727, 'adjusted density': -301.65016}
    """
    columns = {"density": DENSITY, "adjusted density": ADJUSTED_DENSITY}
    y = torch.tensor(STRENGTH, dtype=torch.float64)
    priors: dict[str, PriorSpec] = {
        "tau": Gamma(SHAPE, RATE),
        "alpha": lambda p: Normal(float(CENTRE[0]), (float(PRECISION[0]) * p["tau"]).rsqrt()),
        "beta": lambda p: Normal(float(CENTRE[1]), (float(PRECISION[1]) * p["tau"]).rsqrt()),
    }
    models, log_z = [], {}
    for name, column in columns.items():
        x = torch.tensor(column, dtype=torch.float64)
        models.append(trj.Model(name, priors, _Line(x - x.mean(), y)))
        log_z[name] = _log_evidence(x - x.mean(), y)
    gap = log_z["density"] - log_z["adjusted density"]
    p = 1 / (1 + math.exp(-gap))
    truth = trj.problems.Truth(
        dict(zip(columns, (p, 1 - p), strict=True)), log_z, "conjugate, exact"
    )
    return trj.Target(models, truth=truth)


class _Line:
    """Log-likelihood of a line with normal noise."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __call__(self, p: dict[str, Tensor]) -> Tensor:
        x, y = self.x.to(p["tau"]), self.y.to(p["tau"])
        mean = p["alpha"][:, None] + p["beta"][:, None] * x
        return Normal(mean, p["tau"].rsqrt()[:, None]).log_prob(y).sum(-1)


def _log_evidence(x: Tensor, y: Tensor) -> float:
    n, columns = len(y), torch.stack([torch.ones_like(x), x], 1)
    covariance = torch.eye(n, dtype=x.dtype) + (columns / PRECISION) @ columns.T
    gap = y - columns @ CENTRE
    squares = float(gap @ torch.linalg.solve(covariance, gap))
    shape = SHAPE + n / 2
    return (
        math.lgamma(shape)
        - math.lgamma(SHAPE)
        + SHAPE * math.log(RATE)
        - shape * math.log(RATE + squares / 2)
        - 0.5 * float(torch.logdet(covariance))
        - n / 2 * math.log(2 * math.pi)
    )
