"""Targets whose likelihood counts to a power."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .target import Target


class Tempered(Target):
    r"""A target with its likelihood to a power: all densities and gradients agree on it.

    .. math:: \log \pi_\beta(m, \theta) = \log p(m, \theta) + \beta \log p(y \mid m, \theta)

    Where the likelihood is zero the density is zero at any power above 0; at 0 it is the prior.
    Evaluations are counted as the target's own.

    Arguments:
        target: The target at power 1; a tempered one is tempered further from its own target.
        power: Of the likelihood, in [0, 1].

    Attributes:
        target: The target at power 1.
        power: Of the likelihood, as above; kernels built on this object follow :meth:`temper`.

    Example:
        >>> from trjmcmc import problems
        >>> target = problems.sinh_arcsinh()
        >>> half = Tempered(target, 0.5)
        >>> code, theta = torch.tensor([[1]]), torch.ones(1, 2)
        >>> log_prior, log_likelihood = target.log_prior_and_likelihood(code, theta)
        >>> bool(half.log_joint(code, theta) == log_prior + 0.5 * log_likelihood)
        True
    """

    target: Target

    def __init__(self, target: Target, power: float = 1.0) -> None:
        target = target.target if isinstance(target, Tempered) else target
        vars(self).update(vars(target))
        self.target, self.power, self._known = target, power, {}
        self.truth = None  # what is known belongs to power 1

    def to(
        self, *, dtype: torch.dtype | None = None, device: Any = None, probe: bool = True
    ) -> Tempered:
        """A copy in another precision or on another device, its own target with it."""
        moved = self.target.to(dtype=dtype, device=device, probe=probe)
        if moved is self.target:
            return self
        return Tempered(moved, self.power)

    def temper(self, power: float) -> None:
        """Change the power, in [0, 1]."""
        self.power = power

    def log_prior_and_likelihood(
        self, code: Tensor, theta: Tensor, *, surrogate: bool = False, total: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """As of any target, with the tempered likelihood, (C,) each, nats."""
        log_prior, log_likelihood = super().log_prior_and_likelihood(
            code, theta, surrogate=surrogate, total=total
        )
        return log_prior, self.powered(log_likelihood)

    def with_presence(self, bits: Tensor, items: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        """As of any target, with the tempered likelihood, (C,) each, nats."""
        log_prior, log_likelihood = super().with_presence(bits, items, theta)
        return log_prior, self.powered(log_likelihood)

    def powered(self, log_likelihood: Tensor) -> Tensor:
        """Log likelihoods of a batch to the power, shape (C,), nats."""
        if self.power == 1:
            return log_likelihood
        if self.power == 0:  # where 0 times -inf would be NaN
            return torch.zeros_like(log_likelihood)
        return self.power * log_likelihood


def power_of(target: Target) -> float:
    """Power of the likelihood: 1 of a target that is not tempered."""
    return target.power if isinstance(target, Tempered) else 1.0
