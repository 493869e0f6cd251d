"""Births, deaths and new values of single coordinates from what chains have seen of each."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...rng import weighted
from ...space.base import Space
from ...target.target import Target
from ...transport.normals import NormalMixture
from ..base import Info, Kernel, State, accept
from ..proposal.base import IndexProposal

WIDE_SHARE, WIDE = 0.1, 3.0  # weight, and width over a coordinate's spread, of a normal for tails

FEWEST = 20  # draws of a coordinate that are worth a fit

LOG_2PI = math.log(2 * math.pi)


class Marginals:
    """For each coordinate a mixture of normals, whatever the model that it is in use in.

    Arguments:
        weight, mean, sd: Shape (D, k), float64; weights of a coordinate sum to one.

    Example:
        >>> one = torch.ones(3, 1).double()
        >>> marginals = Marginals(one, 5 * one, one)
        >>> x = marginals.sample(100, torch.Generator().manual_seed(0))
        >>> x.shape, round(float(x.mean()))
        (torch.Size([100, 3]), 5)
    """

    def __init__(self, weight: Tensor, mean: Tensor, sd: Tensor) -> None:
        self.weight, self.mean, self.sd = weight, mean, sd

    @classmethod
    def fitted(
        cls,
        space: Space,
        code: Tensor,
        theta: Tensor,
        components: int,
        generator: torch.Generator,
    ) -> Marginals:
        """Fitted to draws (n, L), (n, D); a coordinate with few keeps a wide normal.

        Arguments:
            space: The bound space.
            code, theta: Draws.
            components: Most normals of a coordinate, beside a wide one.
            generator: Source of randomness.
        """
        active, d = space.active(code), theta.shape[1]
        weight = torch.zeros(d, components + 1, dtype=torch.float64, device=theta.device)
        mean, sd = torch.zeros_like(weight), torch.ones_like(weight)
        weight[:, -1], sd[:, -1] = 1.0, WIDE
        for j in range(d):
            x = theta[active[:, j], j].double()
            if len(x) < FEWEST or not float(x.std()) > 0:
                continue
            normals = NormalMixture.fitted(x[:, None], components, generator)
            k = len(normals.weight)
            weight[j, :k] = (1 - WIDE_SHARE) * normals.weight
            weight[j, -1] = WIDE_SHARE
            mean[j, :k], sd[j, :k] = normals.mean[:, 0], normals.factor[:, 0, 0]
            mean[j, -1], sd[j, -1] = x.mean(), WIDE * x.std()
        return cls(weight, mean, sd)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Shape (n, D), float64."""
        pick = weighted(self.weight, n, generator)  # (D, n)
        mean, sd = self.mean.gather(1, pick).T, self.sd.gather(1, pick).T
        noise = torch.randn(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype)
        return mean + sd * noise

    def log_prob(self, theta: Tensor) -> Tensor:
        """Of each coordinate, (n, D) -> (n, D), nats."""
        z = (theta.double()[..., None] - self.mean) / self.sd
        terms = self.weight.log() - self.sd.log() - 0.5 * (z.square() + LOG_2PI)
        return terms.logsumexp(-1)


class MarginalJump(Kernel):
    """Birth and death of coordinates whose values come from their marginals.

    Coordinates that both models share keep their values.

    Arguments:
        target: The target.
        marginals: Where the values of new coordinates come from.
        proposal: Proposal of the next model.
        name: Shown in tables.

    Source:
        Green (1995), https://doi.org/10.1093/biomet/82.4.711, with births from fitted densities

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.kernel import Neighbours
        >>> target = problems.variable_selection(4)
        >>> one = torch.ones(target.dim, 1).double()
        >>> kernel = MarginalJump(target, Marginals(one, 0 * one, one), Neighbours(target.space))
        >>> kernel.name
        'marginals'
    """

    between = True

    def __init__(
        self,
        target: Target,
        marginals: Marginals,
        proposal: IndexProposal,
        *,
        name: str = "marginals",
    ) -> None:
        self.target, self.marginals = target, marginals
        self.proposal, self.name = proposal, name

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        target, space = self.target, self.target.space
        code, log_ratio = self.proposal.propose(state.code, generator)
        keep = target.shared_slots(state.code, code)
        born, dead = space.active(code) & ~keep, space.active(state.code) & ~keep
        fresh = self.marginals.sample(len(code), generator).to(state.theta)
        theta = torch.where(born, fresh, torch.where(keep, state.theta, 0.0))
        log_joint = target.log_joint(code, theta)
        log_born = torch.where(born, self.marginals.log_prob(theta), 0.0).sum(-1)
        log_dead = torch.where(dead, self.marginals.log_prob(state.theta), 0.0).sum(-1)
        log_ratio = log_ratio + log_joint - state.log_joint + log_dead - log_born
        return accept(self.name, state, State(code, theta, log_joint), log_ratio, generator)


class MarginalRefresh(Kernel):
    """A new value of one coordinate from its marginal: from mode to mode of it.

    Arguments:
        target: The target.
        marginals: Where values come from.
        name: Shown in tables.

    Source:
        Tierney (1994), https://doi.org/10.1214/aos/1176325750, independence chains
    """

    within = True

    def __init__(self, target: Target, marginals: Marginals, *, name: str = "refresh") -> None:
        self.target, self.marginals, self.name = target, marginals, name

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        active = self.target.space.active(state.code)
        u = torch.rand(active.shape, generator=generator, device=active.device)
        place = torch.where(active, u, -1.0).argmax(-1, keepdim=True)
        chosen = torch.zeros_like(active).scatter(1, place, True) & active
        fresh = self.marginals.sample(len(u), generator).to(state.theta)
        theta = torch.where(chosen, fresh, state.theta)
        log_joint = self.target.log_joint(state.code, theta)
        each = self.marginals.log_prob(state.theta) - self.marginals.log_prob(theta)
        log_ratio = log_joint - state.log_joint + torch.where(chosen, each, 0.0).sum(-1)
        proposed = State(state.code, theta, log_joint)
        return accept(self.name, state, proposed, log_ratio, generator)
