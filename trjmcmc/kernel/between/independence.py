"""Jumps to draws of a density that does not depend on where a chain is."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ...rng import host_number, seeded
from ...space.base import check_enumerable
from ...target.target import Target
from ..base import Info, Kernel, State, accept
from ..proposal.base import IndexProposal


class ProposalDensity(ABC):
    """A density of the parameters of each model that can be drawn from."""

    @abstractmethod
    def sample(self, code: Tensor, seed: int) -> Tensor:
        """Padded coordinates, (C, L) -> (C, D)."""

    @abstractmethod
    def log_prob(self, theta: Tensor, code: Tensor) -> Tensor:
        """Log density of the active coordinates, shape (C,), nats."""


class NormalInverseGamma(ProposalDensity):
    """For each model a normal for its real parameters and inverse gammas for positive ones.

    Arguments:
        target: A target of few models.
        code: Models of posterior draws, shape (N, L).
        theta: Posterior draws to take moments from, shape (N, D); a model with fewer than two
            keeps unit scales.

    Source:
        Lopes & West (2004), Statistica Sinica 14, 41-67, section 4

    Example:
        >>> from trjmcmc import problems
        >>> target = problems.sinh_arcsinh()
        >>> density = NormalInverseGamma(target, torch.zeros(9, 1).long(), torch.randn(9, 2,
        ...     generator=torch.Generator().manual_seed(0)))
        >>> density.sample(torch.tensor([[0], [1]]), 0).shape
        torch.Size([2, 2])
    """

    def __init__(self, target: Target, code: Tensor, theta: Tensor) -> None:
        check_enumerable(target.space)
        self.space = target.space
        codes = target.space.enumerate()
        m, d = len(codes), target.dim
        self.positive = torch.stack([target.positive_slots(c) for c in codes])
        self.normal = target.space.active(codes) & ~self.positive
        self.loc = theta.new_zeros(m, d)
        self.tril = torch.eye(d, dtype=theta.dtype, device=theta.device).repeat(m, 1, 1)
        self.shape, self.rate = theta.new_full((m, d), 3.0), theta.new_full((m, d), 2.0)
        which = target.space.index(code)
        for i in range(m):
            mine = theta[which == i]
            if len(mine) < 2:
                continue
            used = self.normal[i].nonzero()[:, 0]
            x = mine[:, used].double()
            self.loc[i, used] = x.mean(0).to(theta.dtype)
            eye = 1e-6 * torch.eye(len(used), dtype=x.dtype, device=x.device)
            covariance = x.T.cov().reshape(len(used), len(used)) + eye
            factor = torch.linalg.cholesky(covariance)
            self.tril[i, used[:, None], used] = factor.to(theta.dtype)
            y = mine.exp()  # moments of an inverse gamma: mean b / (a - 1), shape from the spread
            shape = (y.mean(0).square() / y.var(0).clamp(min=1e-12)).clamp(max=1e4) + 2
            self.shape[i] = torch.where(self.positive[i], shape, self.shape[i])
            self.rate[i] = torch.where(self.positive[i], y.mean(0) * (shape - 1), self.rate[i])

    def sample(self, code: Tensor, seed: int) -> Tensor:
        i = self.space.index(code)
        with seeded(seed, code.device):
            noise = torch.randn(len(i), self.loc.shape[1], device=code.device).to(self.loc)
            gamma = torch.distributions.Gamma(self.shape[i], self.rate[i], validate_args=False)
            precision = gamma.sample()
        x = (
            self.loc[i]
            + (self.tril[i] @ torch.where(self.normal[i], noise, 0.0)[..., None])[..., 0]
        )
        return torch.where(self.positive[i], -precision.log(), torch.where(self.normal[i], x, 0.0))

    def log_prob(self, theta: Tensor, code: Tensor) -> Tensor:
        i = self.space.index(code)
        gap = torch.where(self.normal[i], theta - self.loc[i], 0.0)
        z = torch.linalg.solve_triangular(self.tril[i], gap[..., None], upper=False)[..., 0]
        log_scale = self.tril[i].diagonal(dim1=1, dim2=2).log()
        each = -0.5 * z.square() - 0.5 * math.log(2 * math.pi) - log_scale
        a, b = self.shape[i], self.rate[i]
        # the density of log y where 1 / y is Gamma(a, b)
        gamma = a * b.log() - torch.lgamma(a) - a * theta - b * torch.exp(-theta)
        zero = torch.zeros_like(each)
        by_slot = torch.where(self.positive[i], gamma, torch.where(self.normal[i], each, zero))
        return by_slot.sum(-1)


class IndependenceJump(Kernel):
    """All parameters of the proposed model from a density fitted beforehand.

    Arguments:
        target: The target.
        density: Where parameters come from.
        proposal: Proposal of the next model.
        name: Shown in tables.

    Source:
        Lopes & West (2004), Statistica Sinica 14, 41-67, section 4

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.kernel import Fixed
        >>> target = problems.sinh_arcsinh()
        >>> density = NormalInverseGamma(target, torch.zeros(0, 1).long(), torch.zeros(0, 2))
        >>> IndependenceJump(target, density, Fixed(target.space)).within
        True
    """

    between = within = True

    def __init__(
        self,
        target: Target,
        density: ProposalDensity,
        proposal: IndexProposal,
        *,
        name: str = "independence",
    ) -> None:
        self.target, self.density, self.proposal, self.name = target, density, proposal, name

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        density = self.density
        code, log_ratio = self.proposal.propose(state.code, generator)
        theta = density.sample(code, host_number(generator))
        theta = torch.where(self.target.space.active(code), theta, 0.0)
        log_joint = self.target.log_joint(code, theta)
        log_w = log_joint - density.log_prob(theta, code)
        log_w_here = state.log_joint - density.log_prob(state.theta, state.code)
        proposed = State(code, theta, log_joint)
        return accept(self.name, state, proposed, log_w - log_w_here + log_ratio, generator)
