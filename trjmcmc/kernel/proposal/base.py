"""Proposals of the next model, q(k' | k), with exact log-probability ratios."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...space.base import Space, check_enumerable


class IndexProposal(ABC):
    """A proposal distribution over models."""

    space: Space

    @abstractmethod
    def sample(self, code: Tensor, generator: torch.Generator) -> Tensor:
        """Next models drawn from q(. | code), (C, L) -> (C, L)."""

    @abstractmethod
    def log_prob(self, new: Tensor, code: Tensor) -> Tensor:
        """log q(new | code), -inf where it can't be proposed, shape (C,), nats."""

    def propose(self, code: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw the next models.

        Arguments:
            code: Current models, shape (C, L).
            generator: Source of randomness.

        Returns:
            Proposed models, shape (C, L), and log q(code | code') - log q(code' | code),
            shape (C,), nats.
        """
        new = self.sample(code, generator)
        return new, self.log_prob(code, new) - self.log_prob(new, code)


class Stay(IndexProposal):
    """The same model."""

    def __init__(self, space: Space) -> None:
        self.space = space

    def sample(self, code: Tensor, generator: torch.Generator) -> Tensor:
        return code

    def log_prob(self, new: Tensor, code: Tensor) -> Tensor:
        return torch.where((new == code).all(-1), 0.0, -math.inf)


def check_weights(weights: Sequence[float] | None, number: int) -> list[float]:
    """Probabilities of ``number`` choices, equal if None; refused if they are not any."""
    if weights is None:
        return [1 / number] * number
    w = [float(x) for x in weights]
    if len(w) != number or not all(x >= 0 for x in w) or not abs(sum(w) - 1) < 1e-6:
        raise ConfigurationError(
            f"weights: expected {number} probabilities, none negative, that sum to 1, got {w}"
        )
    return w


def check_neighbours(space: Space, what: str) -> None:
    """Refuse lists of models, in which any other model is a neighbour."""
    if not space.has_items:
        raise ConfigurationError(
            f"{what}: expected a space with neighbours, such as Subsets or Counts, got "
            f"{type(space).__name__}; use Fixed"
        )


def checked_table(table: Tensor, space: Space) -> Tensor:
    """A table of one log-probability a model, refused if it is not."""
    check_enumerable(space)
    codes = space.enumerate()
    w = torch.as_tensor(table)
    if w.shape != (len(codes),) or bool((w.isnan() | (w == math.inf)).any()):
        raise ConfigurationError(f"log_weights: expected {len(codes)} numbers, got {w.tolist()}")
    return w.double().to(codes.device)
