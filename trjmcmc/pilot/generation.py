"""The chains of one temperature of a tempered run: what they have visited, how they move."""

from __future__ import annotations

import math

import torch
from torch import Tensor

STEP_SPREAD = 1.0  # standard deviation of the log length of a walk

DIFFERENCES = 0.5  # share of the walks along the difference of two particles

WHOLE = 0.3  # share of those that are as long as the difference: they lead between modes

JITTER = 0.02  # noise beside a difference, in units of a walk

# Least ratio, in the worst coordinate, of how far a trajectory and a walk of equal price move.
# Measured 4 to 60 on factor analysis (errors ten times smaller), below 1 on coal mining.
WORTH = 2.0


class Generation:
    """The chains of one temperature: what they have visited and where they are."""

    theta: Tensor
    log_prior: Tensor
    log_likelihood: Tensor
    weight: Tensor
    ancestor: Tensor  # the prior draw, of those of its row, that each point descends from

    def __init__(self, temper: Tensor, active: Tensor, schedule: list[str]) -> None:
        self.temper, self.active, self.schedule = temper, active, schedule
        self.size = active.sum(-1, keepdim=True).clamp(min=1)
        self.done = 0
        self.proposed: tuple[Tensor, Tensor | None, Tensor | float] | None = None
        self.gradient: Tensor | None = None
        self._gains: dict[str, list[Tensor]] = {"walk": [], "trajectory": []}

    @property
    def complete(self) -> bool:
        return self.done == len(self.schedule)

    def fill(self, theta: Tensor, log_prior: Tensor, log_likelihood: Tensor) -> None:
        """Take independent draws as they are."""
        self.theta, self.log_prior, self.log_likelihood = theta, log_prior, log_likelihood
        self.weight = torch.full_like(log_likelihood, 1 / log_likelihood.shape[1])
        self.weight = torch.where(log_likelihood > -math.inf, self.weight, 0.0)
        drawn = torch.arange(log_likelihood.shape[1], device=log_likelihood.device)
        self.ancestor = drawn.expand(len(log_likelihood), -1)
        self.done += 1

    def begin(self, last: Generation, p: Tensor, chains: int, generator: torch.Generator) -> None:
        """Choose the chains' first points, and the pairs of points that walks go along."""
        m, _, d = last.theta.shape
        self.factor, self.scale = covariance_factor(last.theta, p, self.active)
        index = systematic(p, chains, generator)
        pool = systematic(p, max(chains, 1000), generator)
        shuffled = torch.randperm(pool.shape[1], generator=generator, device=pool.device)
        self.pool = rows(last.theta, pool[:, shuffled])
        total = chains * (1 + len(self.schedule))
        like = last.log_prior
        self.theta = last.theta.new_zeros(m, total, d)
        self.log_prior, self.log_likelihood = like.new_zeros(m, total), like.new_zeros(m, total)
        self.weight = like.new_zeros(m, total)
        self.chains = chains
        self.here = torch.arange(chains, device=like.device).expand(m, -1)
        self.theta[:, :chains] = rows(last.theta, index)
        self.log_prior[:, :chains] = last.log_prior.gather(1, index)
        self.log_likelihood[:, :chains] = last.log_likelihood.gather(1, index)
        self.ancestor = last.ancestor.gather(1, index).repeat(1, total // chains)

    @property
    def theta_now(self) -> Tensor:
        return rows(self.theta, self.here)

    def walk(self, generator: torch.Generator) -> Tensor:
        """Symmetric proposals: along the covariance, or the difference of two particles."""
        theta = self.theta_now
        m, n, _ = theta.shape

        def uniform() -> Tensor:
            return torch.rand(m, n, 1, generator=generator, device=theta.device)

        noise = torch.randn(
            theta.shape, generator=generator, dtype=theta.dtype, device=theta.device
        )
        spread = torch.randn(m, n, 1, generator=generator, dtype=theta.dtype, device=theta.device)
        length = torch.exp(STEP_SPREAD * spread - 0.5 * STEP_SPREAD)
        along = noise @ self.factor.mT
        size = self.pool.shape[1]
        a = torch.randint(size, (m, n), generator=generator, device=theta.device)
        other = torch.randint(1, size, (m, n), generator=generator, device=theta.device)
        difference = rows(self.pool, a) - rows(self.pool, (a + other) % size)
        part = length * 2.38 / (2 * self.size).to(theta.dtype).sqrt()
        times = torch.where(uniform() < WHOLE, 1.0, part)
        move = torch.where(
            uniform() < DIFFERENCES, times * difference + JITTER * along, length * along
        )
        return torch.where(self.active, theta + move, 0.0)

    def move(
        self,
        theta: Tensor,
        log_prior: Tensor,
        log_likelihood: Tensor,
        log_ratio: Tensor | float,
        gradient: Tensor | None,
        generator: torch.Generator,
    ) -> Tensor:
        """Accept or reject; both points keep their share of a draw. Returns the chances."""
        n, here = self.chains, self.here
        old_prior, old = self.log_prior.gather(1, here), self.log_likelihood.gather(1, here)
        ratio = log_prior - old_prior + self.temper * (log_likelihood - old) + log_ratio
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
        if gradient is not None and self.gradient is not None:
            self.gradient = torch.where(taken[..., None], gradient, self.gradient)
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
    def trajectories_pay(self) -> bool:
        """Whether trajectories move the worst coordinate much further than walks."""
        walk, trajectory = (torch.stack(self._gains[k]).mean(0) for k in ("walk", "trajectory"))
        return bool((trajectory > WORTH * walk).double().mean() > 0.5)


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
    factor = vectors * values.clamp(min=0).sqrt()[:, None, :] * (2.38 / size.sqrt())
    return (factor * scale[:, :, None]).to(theta.dtype), scale[:, None].to(theta.dtype)
