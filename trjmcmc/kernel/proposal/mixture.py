"""Several proposals of the next model, one picked each step."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ...errors import ConfigurationError
from .base import IndexProposal, check_weights


class MixtureProposal(IndexProposal):
    """One of several proposals at random; the ratio is that of the mixture.

    Arguments:
        proposals: Proposals over one space.
        weights: Probability of each, equal if omitted.

    Raises:
        ConfigurationError: No proposal, weights that are negative or do not sum to 1.

    Example:
        >>> from trjmcmc import Subsets
        >>> from trjmcmc.kernel import Fixed, Neighbours
        >>> space = Subsets(["a", "b", "c"], of="beta")
        >>> both = MixtureProposal([Neighbours(space), Fixed(space)], [0.9, 0.1])
        >>> new, ratio = both.propose(torch.zeros(4, 3).long(), torch.Generator())
        >>> new.shape
        torch.Size([4, 3])
    """

    def __init__(
        self, proposals: Sequence[IndexProposal], weights: Sequence[float] | None = None
    ) -> None:
        if not proposals:
            raise ConfigurationError("proposals: expected at least one, got none")
        self.proposals, self.space = list(proposals), proposals[0].space
        self.weights = check_weights(weights, len(proposals))

    def sample(self, code: Tensor, generator: torch.Generator) -> Tensor:
        u = torch.rand(len(code), 1, generator=generator, device=code.device)
        new, edge = code, 0.0
        for proposal, weight in zip(self.proposals, self.weights, strict=True):
            chosen = (u >= edge) & (u < edge + weight)
            new = torch.where(chosen, proposal.sample(code, generator), new)
            edge += weight
        return new

    def log_prob(self, new: Tensor, code: Tensor) -> Tensor:
        terms = [
            math.log(w) + p.log_prob(new, code)
            for p, w in zip(self.proposals, self.weights, strict=True)
            if w
        ]
        return torch.stack(terms).logsumexp(0)
