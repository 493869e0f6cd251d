"""Mixtures of independent units: sets of models that have little in common."""

from __future__ import annotations

import torch
from torch import Tensor

from ..space.base import Space
from .base import ModelWeights

ROUNDS = 30  # of expectation-maximisation

LEAST = 0.01  # chance of a unit to be on, or off, in any component


class BernoulliMixture(ModelWeights):
    """A few kinds of models; within a kind units are on independently of each other.

    Arguments:
        space: A bound space of units, such as :class:`~trjmcmc.Subsets`.
        weight: Of each kind, shape (k,), summing to one.
        chance: That a unit is on, shape (k, L), none of them 0 or 1.

    Source:
        As proposals of models: Schaefer & Chopin (2013), https://doi.org/10.1007/s11222-011-9299-z,
        section 4

    Example:
        >>> from trjmcmc import problems
        >>> space = problems.variable_selection(2).space
        >>> chance = torch.tensor([[0.9, 0.9], [0.1, 0.1]])
        >>> both = BernoulliMixture(space, torch.ones(2) / 2, chance)
        >>> both.log_prob(torch.tensor([[1, 1], [0, 1]])).exp()
        tensor([0.4100, 0.0900], dtype=torch.float64)
    """

    weight: Tensor
    chance: Tensor

    def __init__(self, space: Space, weight: Tensor, chance: Tensor) -> None:
        super().__init__(space)
        self.register_buffer("weight", weight.double())
        self.register_buffer("chance", chance.double())

    @classmethod
    def fitted(
        cls, space: Space, code: Tensor, components: int, generator: torch.Generator
    ) -> BernoulliMixture:
        """Fitted to codes (n, L) by expectation-maximisation."""
        on = code.double()
        n, k = len(on), components
        share = torch.rand(n, k, generator=generator, device=code.device, dtype=on.dtype)
        share = (share / 0.1).softmax(1)
        for _ in range(ROUNDS):
            count = share.sum(0)
            weight = (count + 1) / (n + k)
            chance = ((share.T @ on + 1) / (count[:, None] + 2)).clamp(LEAST, 1 - LEAST)
            share = _terms(on, weight, chance).softmax(1)
        return cls(space, weight, chance)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        kind = torch.multinomial(self.weight, n, True, generator=generator)
        chance = self.chance[kind]
        u = torch.rand(chance.shape, generator=generator, device=chance.device, dtype=chance.dtype)
        return (u < chance).long()

    def log_prob(self, code: Tensor) -> Tensor:
        return _terms(code.double(), self.weight, self.chance).logsumexp(1)

    def learn(self, code: Tensor, loss: Tensor) -> None:
        """Nothing."""


def _terms(on: Tensor, weight: Tensor, chance: Tensor) -> Tensor:
    """Log of weight and probability by kind, (n, L) -> (n, k)."""
    off = torch.log1p(-chance)
    return weight.log() + off.sum(1) + on @ (chance.log() - off).T
