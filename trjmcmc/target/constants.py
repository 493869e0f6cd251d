"""Log densities of distributions that stay: what depends on no value is computed once."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Dirichlet, Distribution, Exponential, Gamma, Normal


class _OfNormal:
    def __init__(self, dist: Normal) -> None:
        self.loc, self.twice = dist.loc, 2 * dist.scale**2
        self.log_scale = dist.scale.log()

    def __call__(self, value: Tensor) -> Tensor:
        gap = value - self.loc
        return -(gap**2) / self.twice - self.log_scale - math.log(math.sqrt(2 * math.pi))


class _OfGamma:
    def __init__(self, dist: Gamma) -> None:
        self.rate, self.power = dist.rate, dist.concentration - 1
        self.first = torch.xlogy(dist.concentration, dist.rate)
        self.last = torch.lgamma(dist.concentration)

    def __call__(self, value: Tensor) -> Tensor:
        return self.first + torch.xlogy(self.power, value) - self.rate * value - self.last


class _OfExponential:
    def __init__(self, dist: Exponential) -> None:
        self.rate, self.log_rate = dist.rate, dist.rate.log()

    def __call__(self, value: Tensor) -> Tensor:
        return self.log_rate - self.rate * value


class _OfDirichlet:
    def __init__(self, dist: Dirichlet) -> None:
        self.power = dist.concentration - 1.0
        self.total = torch.lgamma(dist.concentration.sum(-1))
        self.each = torch.lgamma(dist.concentration).sum(-1)

    def __call__(self, value: Tensor) -> Tensor:
        return torch.xlogy(self.power, value).sum(-1) + self.total - self.each


QUICK: dict[type[Distribution], Callable[..., Callable[[Tensor], Tensor]]] = {
    Normal: _OfNormal,
    Gamma: _OfGamma,
    Exponential: _OfExponential,
    Dirichlet: _OfDirichlet,
}


def log_prob_of(dist: Distribution) -> Callable[[Tensor], Tensor]:
    """The ``log_prob`` of a distribution whose parameters stay, equal to the last bit.

    Of the classes in ``QUICK``, argument checks off, normalising constants are computed here and
    not at every call; of others it is the method itself.

    Example:
        >>> normal = Normal(torch.zeros(2), torch.tensor([1.0, 2.0]), validate_args=False)
        >>> value = torch.tensor([0.3, -1.0])
        >>> torch.equal(log_prob_of(normal)(value), normal.log_prob(value))
        True
    """
    make = QUICK.get(type(dist))
    learnt = any(isinstance(x, Tensor) and x.requires_grad for x in vars(dist).values())
    if make is None or dist._validate_args or learnt:
        return dist.log_prob
    return make(dist)
