"""Walks in the space of models by a cheap score: many steps in one proposal."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import ConfigurationError
from ..space import Space, Subsets
from .index import IndexProposal, Neighbours, Score

SWAP = 0.2  # share of the swaps among the steps in a space of subsets
HOPELESS = 1e4  # nats; a score of -inf counts as so far below the others


class ScoreWalk(IndexProposal):
    r"""A Metropolis walk among neighbours under a score of the models, as one proposal.

    The walk is reversible for exp(s), so that whatever its length

    .. math:: \log q(m | m') - \log q(m' | m) = s(m) - s(m')

    and a jump is accepted by how well s matches the log posterior probabilities: with s exact
    and exact maps, always. Only the score is evaluated on the way, the likelihood once at the
    end. Any score is exact; a poor one is rejected more often.

    Arguments:
        space: :class:`~trjmcmc.Subsets` or :class:`~trjmcmc.Counts`.
        score: Function of codes (C, L) that gives log-probabilities (C,) up to a constant,
            such as :meth:`~trjmcmc.Laplace.log_evidence`.
        steps: Length of the walk; the number of units (at least 2) if omitted.

    Raises:
        ConfigurationError: The space has no neighbours; ``steps`` below 1.

    Source:
        Surrogate transitions: Liu, "Monte Carlo Strategies in Scientific Computing" (2001),
        section 9.4.3

    Example:
        >>> from trjmcmc import Subsets
        >>> space = Subsets(["a", "b"], of="beta")
        >>> walk = ScoreWalk(space, lambda code: 50.0 * code.sum(1), steps=20)
        >>> new, ratio = walk.propose(torch.zeros(3, 2).long(), torch.Generator().manual_seed(0))
        >>> new.tolist(), ratio.tolist()
        ([[1, 1], [1, 1], [1, 1]], [-100.0, -100.0, -100.0])
    """

    def __init__(self, space: Space, score: Score, *, steps: int | None = None) -> None:
        if steps is not None and steps < 1:
            raise ConfigurationError(f"steps: expected 1 or more, got {steps}")
        swap = SWAP if isinstance(space, Subsets) and space.code_width > 1 else 0.0
        self._near = Neighbours(space, swap=swap)
        self.space, self.score = space, score
        self.steps = steps or max(2, space.code_width)

    def propose(self, code: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        new, first = code, self._scored(code)
        last = first
        for _ in range(self.steps):
            near = self._near.sample(new, generator)
            there = self._scored(near)
            u = torch.rand(len(code), generator=generator, device=code.device, dtype=there.dtype)
            taken = u.log() < there - last
            new = torch.where(taken[:, None], near, new)
            last = torch.where(taken, there, last)
        return new, first - last

    def _scored(self, code: Tensor) -> Tensor:
        return self.score(code).double().nan_to_num(-HOPELESS, -HOPELESS, -HOPELESS)

    def sample(self, code: Tensor, generator: torch.Generator) -> Tensor:
        return self.propose(code, generator)[0]

    def log_prob(self, new: Tensor, code: Tensor) -> Tensor:
        raise ConfigurationError(
            "ScoreWalk: its probabilities are known in ratios only; mix it with others as "
            "kernels (trj.kernel.Cycle or Mixture) and not in a MixtureProposal"
        )
