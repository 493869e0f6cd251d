"""The classical birth and death of one parameter block."""

from __future__ import annotations

import math

import torch

from ...rng import host_number
from ...target.target import Target
from ..base import Info, Kernel, State, accept
from ..proposal.base import IndexProposal


class BirthDeath(Kernel):
    """New parameters are drawn from their priors, given those that both models share.

    Entries of parameters (components, coefficients) that both models have keep their values;
    those that the proposed model lacks die. The priors of what is born and dies cancel, so that
    the ratio is that of the likelihoods and of the models' priors.

    Arguments:
        target: The target.
        proposal: Proposal of the next model.
        name: Shown in tables.

    Source:
        Green (1995), https://doi.org/10.1093/biomet/82.4.711

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.kernel import Neighbours, start
        >>> target = problems.robust_regression()
        >>> state = start(target, torch.zeros(5, 2, dtype=torch.long), torch.zeros(5, 4))
        >>> kernel = BirthDeath(target, Neighbours(target.space))
        >>> state, (info,) = kernel.step(state, torch.Generator().manual_seed(0))
        >>> info.kernel, info.accepted.shape
        ('birth-death', torch.Size([5]))
    """

    between = True

    def __init__(
        self, target: Target, proposal: IndexProposal, *, name: str = "birth-death"
    ) -> None:
        self.target, self.proposal, self.name = target, proposal, name

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        target, space = self.target, self.target.space
        code, log_ratio = self.proposal.propose(state.code, generator)
        keep = target.shared_slots(state.code, code)
        theta = target.sample_missing(code, state.theta, keep, host_number(generator))
        possible = theta.isfinite().all(-1)
        theta = torch.where(possible[:, None], theta, 0.0)
        log_joint = torch.where(possible, target.log_joint(code, theta), -math.inf)
        born, dead = space.active(code) & ~keep, space.active(state.code) & ~keep
        log_born = torch.where(born, target.prior_by_slot(code, theta), 0.0).sum(-1)
        log_dead = torch.where(dead, target.prior_by_slot(state.code, state.theta), 0.0).sum(-1)
        log_ratio = log_ratio + log_joint - state.log_joint + log_dead - log_born
        return accept(self.name, state, State(code, theta, log_joint), log_ratio, generator)
