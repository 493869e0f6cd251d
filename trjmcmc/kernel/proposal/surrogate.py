"""Walks in the space of models by the moves of a cheaper target."""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...target.target import Target
from ..base import Kernel, start
from .base import IndexProposal


class SurrogateWalk(IndexProposal):
    r"""Steps of a kernel on another target over the same models, as one proposal.

    The kernel is reversible for the surrogate, which has no parameters; so that, with s its log
    joint, :math:`\log q(m | m') - \log q(m' | m) = s(m) - s(m')`. The target itself is evaluated
    once, at the end. Any surrogate is exact; a poor one is rejected more often.

    Arguments:
        surrogate: A target without parameters over the same models.
        kernel: One move, reversible for it.
        steps: Steps of it.

    Raises:
        ConfigurationError: The surrogate has parameters; no steps.

    Source:
        Surrogate transitions: Liu, "Monte Carlo Strategies in Scientific Computing" (2001),
        section 9.4.3

    Example:
        >>> from trjmcmc import graphs
        >>> from trjmcmc.kernel import GraphWalk
        >>> x = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
        >>> cheap = graphs.target(graphs.bge(x))
        >>> walk = SurrogateWalk(cheap, GraphWalk(cheap, moves=1))
        >>> code = torch.zeros(4, 3, dtype=torch.long)
        >>> new, ratio = walk.propose(code, torch.Generator().manual_seed(0))
        >>> new.shape, ratio.shape
        (torch.Size([4, 3]), torch.Size([4]))
    """

    def __init__(self, surrogate: Target, kernel: Kernel, *, steps: int = 1) -> None:
        if surrogate.dim or steps < 1:
            raise ConfigurationError(
                "surrogate walk: expected steps >= 1 of a target without parameters"
            )
        self.surrogate, self.kernel, self.steps = surrogate, kernel, steps
        self.space = surrogate.space

    def sample(self, code: Tensor, generator: torch.Generator) -> Tensor:
        return self.propose(code, generator)[0]

    def log_prob(self, new: Tensor, code: Tensor) -> Tensor:
        raise ConfigurationError(
            "SurrogateWalk: its probabilities are known in ratios only; mix it with others as "
            "kernels (trj.kernel.Cycle or MixtureKernel) and not in a MixtureProposal"
        )

    def propose(self, code: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        theta = torch.zeros(len(code), 0, dtype=self.surrogate.dtype, device=code.device)
        first = start(self.surrogate, code, theta)
        state = first
        for _ in range(self.steps):
            state, _ = self.kernel.step(state, generator)
        return state.code, first.log_joint - state.log_joint
