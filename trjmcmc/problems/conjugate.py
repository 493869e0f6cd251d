"""A conjugate toy: a chance."""

from __future__ import annotations

import math
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch.distributions import Beta

from ..errors import TargetError
from ..target.model import Model, Truth
from ..target.target import Target
from .regression import check_scales

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
