"""Independent draws of a prior of another language, in ascending order."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution

from ..target.support import OrderedConstraint, support_of


class OrderedSite(Distribution):
    """Order statistics of the last entries of a prior: :class:`trjmcmc.Ordered` of its draws.

    The density is n! times that of the independent draws, whose languages leave the n! out.

    Arguments:
        base: A prior with batch shape (..., n) and no events, entries alike along the last axis.

    Example:
        >>> from torch.distributions import Uniform
        >>> prior = OrderedSite(Uniform(torch.zeros(3), torch.full((3,), 2.0)))
        >>> round(float(prior.log_prob(torch.tensor([0.1, 0.5, 1.9]))), 4)
        -0.2877
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(self, base: Distribution) -> None:
        self.base_dist = base
        shape = base.batch_shape
        super().__init__(shape[:-1], shape[-1:], validate_args=False)

    @property
    def support(self) -> Any:
        """Ascending vectors inside the base's support."""
        return OrderedConstraint(support_of(self.base_dist))

    def expand(self, batch_shape: Any, _instance: Any = None) -> OrderedSite:
        """The same where the shape is; else of the expanded base."""
        return OrderedSite(self.base_dist.expand((*batch_shape, *self.event_shape)))

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        """Sorted draws of the base."""
        draws: Tensor = self.base_dist.sample(sample_shape)
        return draws.sort(-1).values

    def log_prob(self, value: Tensor) -> Tensor:
        """n! times the base's density, in nats."""
        each = self.base_dist.log_prob(value).sum(-1) + math.lgamma(self.event_shape[0] + 1)
        return torch.where(self.support.check(value), each, -math.inf)


class Ordering:
    """A function that makes a prior, of which the ordered one is asked for."""

    def __init__(self, base: Any) -> None:
        self.base = base

    def __call__(self, given: Any) -> OrderedSite:
        return OrderedSite(self.base(given))
