"""The points of one temperature of a tempered run, and the chains that move through them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

LEAST_PAIRS = 1000  # points that the pairs of a walk are drawn from, for each row, at least

LENGTH_SD = 1.0  # of the log length of a walk: some fit a narrow mode and some a broad one

DIFFERENCES = 0.5  # of the walks, along the difference of two particles, which leads between modes

WHOLE_DIFFERENCES = 0.3  # of these, as long as the difference: only those arrive in the other mode

ASIDE = 0.02  # of a walk, beside a difference: particles of one line would never leave it

TRAJECTORY_GAIN = 2.0  # by which a trajectory must outdo a walk in the worst coordinate to replace
# every other one: 4 to 60 on factor analysis (errors ten times smaller), below 1 on coal mining

OPTIMAL_WALK = 2.38  # over the root of the dimension: length of a walk in standard deviations


class Proposal(NamedTuple):
    """Where the chains of a generation may go next.

    Attributes:
        theta: Proposed points, shape (M, C, D).
        log_ratio: Log of what the acceptance ratio counts beside the densities, shape (M, C).
        gradients: Gradients at the chains' points and at the proposed ones, each of shape
            (M, C, D), where a trajectory has found them.
    """

    theta: Tensor
    log_ratio: Tensor | float = 0.0
    gradients: tuple[Tensor, Tensor] | None = None


@dataclass
class Population:
    """Weighted points of one temperature, for each of M rows.

    Attributes:
        temper: Exponent of the likelihood, shape (M, 1).
        theta: Padded coordinates, shape (M, N, D).
        log_prior: Log prior density, p(model) not included, shape (M, N), nats.
        log_likelihood: Shape (M, N), nats.
        weight: Share of the row that each point stands for, shape (M, N).
        ancestor: The prior draw, of those of its row, that each point descends from, (M, N).
    """

    temper: Tensor
    theta: Tensor
    log_prior: Tensor
    log_likelihood: Tensor
    weight: Tensor
    ancestor: Tensor

    @classmethod
    def of_draws(cls, theta: Tensor, log_prior: Tensor, log_likelihood: Tensor) -> Population:
        """Independent prior draws, equally weighted but where their likelihood is zero."""
        m, n = log_likelihood.shape
        weight = torch.full_like(log_likelihood, 1 / n)
        weight = torch.where(log_likelihood > -math.inf, weight, 0.0)
        drawn = torch.arange(n, device=log_likelihood.device).expand(m, -1)
        temper = torch.zeros(m, 1, dtype=torch.float64, device=theta.device)
        return cls(temper, theta, log_prior, log_likelihood, weight, drawn)


class Generation(Population):
    """Chains that move at one temperature; every point they try is kept with its share.

    Chains begin at points of the last temperature that are resampled by weight. Pairs of further
    such points give the directions of walks.

    Arguments:
        last: The last temperature.
        temper: Exponent of the likelihood, shape (M, 1).
        weight: Weights of the last temperature's points at this one, shape (M, N).
        chains: Chains of each row, C.
        schedule: What each move is, ``"walk"`` or ``"trajectory"``.
        active: Coordinates that each row's model uses, shape (M, 1, D), bool.
        generator: Source of randomness.

    Attributes:
        done: Moves made.
        here: Place of each chain among the points, shape (M, C).
        factor: Factors of the rows' covariances, scaled for walks, shape (M, D, D).
        gradient: Gradient at each chain's point where it is known, shape (M, C, D).
    """

    def __init__(
        self,
        last: Population,
        temper: Tensor,
        weight: Tensor,
        chains: int,
        *,
        schedule: list[str],
        active: Tensor,
        generator: torch.Generator,
    ) -> None:
        self.schedule, self.active, self.chains = schedule, active, chains
        self.size = active.sum(-1, keepdim=True).clamp(min=1)
        self.done = 0
        self.gradient: Tensor | None = None
        self._gains: dict[str, list[Tensor]] = {"walk": [], "trajectory": []}
        self.factor, self.scale = covariance_factor(last.theta, weight, active)
        start = systematic(weight, chains, generator)
        pairs = systematic(weight, max(chains, LEAST_PAIRS), generator)
        shuffled = torch.randperm(pairs.shape[1], generator=generator, device=pairs.device)
        self._pairs = rows(last.theta, pairs[:, shuffled])
        m, _, d = last.theta.shape
        total, like = chains * (1 + len(schedule)), last.log_prior
        super().__init__(
            temper,
            last.theta.new_zeros(m, total, d),
            like.new_zeros(m, total),
            like.new_zeros(m, total),
            like.new_zeros(m, total),
            last.ancestor.gather(1, start).repeat(1, total // chains),
        )
        self.here = torch.arange(chains, device=like.device).expand(m, -1)
        self.theta[:, :chains] = rows(last.theta, start)
        self.log_prior[:, :chains] = last.log_prior.gather(1, start)
        self.log_likelihood[:, :chains] = last.log_likelihood.gather(1, start)

    @property
    def complete(self) -> bool:
        """Whether all moves of the schedule are made."""
        return self.done == len(self.schedule)

    @property
    def theta_now(self) -> Tensor:
        """Where the chains are, shape (M, C, D)."""
        return rows(self.theta, self.here)

    def walk(self, generator: torch.Generator) -> Proposal:
        """Symmetric proposals: along the covariance, or the difference of two particles."""
        theta = self.theta_now
        m, n, _ = theta.shape

        def uniform() -> Tensor:
            return torch.rand(m, n, 1, generator=generator, device=theta.device)

        noise = torch.randn(
            theta.shape, generator=generator, dtype=theta.dtype, device=theta.device
        )
        spread = torch.randn(m, n, 1, generator=generator, dtype=theta.dtype, device=theta.device)
        length = torch.exp(LENGTH_SD * (spread - 0.5))
        along = noise @ self.factor.mT
        size = self._pairs.shape[1]
        a = torch.randint(size, (m, n), generator=generator, device=theta.device)
        other = torch.randint(1, size, (m, n), generator=generator, device=theta.device)
        difference = rows(self._pairs, a) - rows(self._pairs, (a + other) % size)
        part = length * OPTIMAL_WALK / (2 * self.size).to(theta.dtype).sqrt()
        times = torch.where(uniform() < WHOLE_DIFFERENCES, 1.0, part)
        move = torch.where(
            uniform() < DIFFERENCES,
            times * difference + ASIDE * along,
            length * along,
        )
        return Proposal(torch.where(self.active, theta + move, 0.0))

    def move(
        self,
        proposal: Proposal,
        log_prior: Tensor,
        log_likelihood: Tensor,
        generator: torch.Generator,
    ) -> Tensor:
        """Accept or reject; both points keep their share of a draw.

        Arguments:
            proposal: Where to, from the chains' present points.
            log_prior: At the proposed points, p(model) not included, shape (M, C), nats.
            log_likelihood: At the proposed points, shape (M, C), nats.
            generator: Source of randomness.

        Returns:
            Acceptance probabilities, shape (M, C).
        """
        n, here, theta = self.chains, self.here, proposal.theta
        old_prior, old = self.log_prior.gather(1, here), self.log_likelihood.gather(1, here)
        ratio = log_prior - old_prior + self.temper * (log_likelihood - old) + proposal.log_ratio
        chance = ratio.clamp(max=0).exp().nan_to_num(0.0)
        chance = torch.where(log_likelihood > -math.inf, chance, 0.0)
        u = torch.rand(chance.shape, generator=generator, dtype=chance.dtype, device=chance.device)
        kind = self.schedule[self.done]
        gap = (theta - self.theta_now) / self.scale
        gain = (chance[..., None] * gap.double().square()).nan_to_num(0.0, 0.0).mean(1)
        if gain.shape[1]:
            self._gains[kind].append(torch.where(self.active[:, 0], gain, math.inf).amin(-1))
        self.done += 1
        places = slice(self.done * n, (self.done + 1) * n)
        self.theta[:, places] = theta
        self.log_prior[:, places], self.log_likelihood[:, places] = log_prior, log_likelihood
        there = torch.arange(places.start, places.stop, device=here.device).expand_as(here)
        total = self.weight.shape[1] - n  # each move makes n draws
        self.weight.scatter_add_(1, here, (1 - chance) / total)
        self.weight.scatter_add_(1, there, chance / total)
        taken = u < chance
        self.here = torch.where(taken, there, here)
        self.gradient = None
        if proposal.gradients is not None:
            before, after = proposal.gradients
            self.gradient = torch.where(taken[..., None], after, before)
        return chance

    def cut(self) -> None:
        """Leave the moves that were not made: those made count for all."""
        if self.complete or not self.done:
            return
        total = self.chains * (1 + self.done)
        planned, made = self.chains * len(self.schedule), self.chains * self.done
        self.schedule = self.schedule[: self.done]
        self.theta, self.log_prior = self.theta[:, :total], self.log_prior[:, :total]
        self.log_likelihood = self.log_likelihood[:, :total]
        self.weight = self.weight[:, :total] * (planned / made)

    @property
    def trajectories_pay(self) -> bool | None:
        """Whether trajectories move the worst coordinate much further than walks.

        None where not both were made.
        """
        if not all(self._gains.values()):
            return None
        walk, trajectory = (torch.stack(self._gains[k]).mean(0) for k in ("walk", "trajectory"))
        return bool((trajectory > TRAJECTORY_GAIN * walk).double().mean() > 0.5)


def rows(x: Tensor, index: Tensor) -> Tensor:
    """Points (M, N, D) at indices (M, n)."""
    return x.gather(1, index[..., None].expand(-1, -1, x.shape[-1]))


def systematic(p: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Systematic resampling of each row, weights (M, N) -> indices (M, n)."""
    edges = p.double().cumsum(1)
    u = torch.rand(len(p), 1, generator=generator, dtype=torch.float64, device=p.device)
    grid = (torch.arange(n, device=p.device, dtype=torch.float64) + u) / n
    return torch.searchsorted(edges, grid * edges[:, -1:]).clamp(max=p.shape[1] - 1)


def covariance_factor(theta: Tensor, p: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
    """Factors of the rows' covariances, scaled for random walks, (M, D, D), and sds (M, 1, D)."""
    weight = p.to(theta.dtype)[..., None]
    centred = theta - (weight * theta).sum(1, keepdim=True)
    covariance = ((weight * centred).mT @ centred).double()
    scale = (covariance.diagonal(dim1=1, dim2=2) + 1e-12).sqrt()
    correlation = covariance / scale[:, :, None] / scale[:, None, :]
    eye = torch.eye(theta.shape[2], dtype=torch.float64, device=theta.device)
    values, vectors = torch.linalg.eigh(correlation + 1e-5 * eye)
    size = active.sum(-1, keepdim=True).clamp(min=1)
    factor = vectors * values.clamp(min=0).sqrt()[:, None, :] * (OPTIMAL_WALK / size.sqrt())
    return (factor * scale[:, :, None]).to(theta.dtype), scale[:, None].to(theta.dtype)
