"""A prior of values in ascending order."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from ..errors import TargetError
from .support import OrderedConstraint, bijector_of, support_of


class Ordered(Distribution):
    """Order statistics of n independent draws from a scalar distribution.

    The way to say that parameters are increasing (component means, change points, cut points):
    the density is n! times the product of the base densities on increasing vectors.

    Arguments:
        base: A scalar distribution with an increasing bijection onto its support (any interval,
            half-line or the line).
        n: Length of the vector.

    Example:
        >>> from torch.distributions import Uniform
        >>> prior = Ordered(Uniform(0.0, 2.0), 3)
        >>> prior.event_shape, round(float(prior.log_prob(torch.tensor([0.1, 0.5, 1.9]))), 4)
        (torch.Size([3]), -0.2877)
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012 - torch's own convention

    def __init__(self, base: Distribution, n: int) -> None:
        if base.event_shape or n < 1:
            raise TargetError(
                f"Ordered: expected a scalar distribution and n >= 1, got event shape "
                f"{tuple(base.event_shape)} and n={n}"
            )
        onto = bijector_of(base, "base of Ordered")(
            torch.tensor([0.0, 1.0]).reshape(2, *[1] * len(base.batch_shape))
        )
        if not bool((onto[1] > onto[0]).all()):
            raise TargetError(
                "Ordered: the base's support is mapped downwards (bounded above only); negate it"
            )
        self.base_dist, self.n = base, n
        super().__init__(base.batch_shape, torch.Size([n]), validate_args=False)

    @property
    def support(self) -> Any:
        return OrderedConstraint(support_of(self.base_dist))

    def expand(self, batch_shape: Any, _instance: Any = None) -> Ordered:
        return Ordered(self.base_dist.expand(batch_shape), self.n)

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        draws: Tensor = self.base_dist.sample((*sample_shape, self.n))
        return draws.movedim(len(sample_shape), -1).sort(-1).values

    def log_prob(self, value: Tensor) -> Tensor:
        each = self.base_dist.log_prob(value.movedim(-1, 0)).sum(0)
        return torch.where(self.support.check(value), each, -math.inf) + math.lgamma(self.n + 1)
