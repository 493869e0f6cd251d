"""One large population, tempered from the prior in a few moves: where are modes?"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import clock
from ..target.target import Target
from .generation import systematic
from .policy import CrowdPolicy

CHUNK = 16_384  # points evaluated at once: fits the caches

BISECTIONS = 40  # of a step of the temperature

OPTIMAL_WALK = 2.38  # over the root of the dimension

LEAST_JITTER = 1e-12  # relative to the largest variance, on the diagonal of a covariance


def affordable(seconds: float, price: float, policy: CrowdPolicy) -> int:
    """Points of a population that takes about so long; none where these would be too few.

    Arguments:
        seconds: That it may take.
        price: Seconds of an evaluation.
        policy: How they move and cool.
    """
    n = int(seconds / (price * (1 + policy.moves * policy.planned_temperatures)))
    return min(policy.points, n) if n >= policy.least_points else 0


class Crowd(NamedTuple):
    """A population that has been tempered.

    Attributes:
        theta: Its points, shape (n, D).
        hotter: Some of the points that it had at each temperature before, shape (k, D): from there
            slopes may lead to what it has lost since.
    """

    theta: Tensor
    hotter: Tensor


@torch.no_grad()
def crowd(
    target: Target,
    code: Tensor,
    n: int,
    generator: torch.Generator,
    deadline: float = math.inf,
    policy: CrowdPolicy = CrowdPolicy(),
) -> Crowd | None:
    """Points of one model's posterior, in modes that few prior draws lie near.

    Tempered sequential Monte Carlo. The shares of its modes are a lottery among few ancestors:
    it finds them, and something else has to weigh them. Half of the walks go along the difference
    of two points, half along the covariance, with lengths over two orders of magnitude.

    Arguments:
        target: The target.
        code: The model, shape (L,); it has parameters.
        n: Points.
        generator: Source of randomness.
        deadline: Time by :func:`trjmcmc.clock.now` after which it is given up.
        policy: How they move and cool.

    Returns:
        The population; None where time was up before, or no prior draw is possible.

    Source:
        Del Moral, Doucet & Jasra (2006), https://doi.org/10.1111/j.1467-9868.2006.00553.x; walks
        along differences: ter Braak (2006), https://doi.org/10.1007/s11222-006-8769-1

    Example:
        >>> from trjmcmc import problems
        >>> target = problems.sinh_arcsinh()
        >>> code = target.space.enumerate()[1]
        >>> crowd(target, code, 1000, torch.Generator().manual_seed(0)).theta.shape
        torch.Size([1000, 2])
    """
    run, hotter = _Moves(target, code, generator, policy), []
    every = max(1, int(1 / policy.climbing_share))
    theta = target.sample_prior(code.expand(n, -1), generator)
    theta = torch.where(theta.isfinite().all(-1, keepdim=True), theta, 0.0)
    log_prior, log_likelihood = run.evaluated(theta)
    temper = 0.0
    while temper < 1:
        hotter.append(theta[log_likelihood > -math.inf][::every])
        if clock.now() > deadline or not bool(log_likelihood.isfinite().any()):
            return None
        step, weight = next_step(log_likelihood, temper, policy.kept_share)
        temper = min(1.0, temper + step)
        index = systematic(weight[None], len(weight), generator)[0]
        theta, log_prior, log_likelihood = theta[index], log_prior[index], log_likelihood[index]
        for _ in range(policy.moves):
            there = theta + run.walks(theta)
            prior, likelihood = run.evaluated(there)
            gain = prior - log_prior + temper * (likelihood - log_likelihood)
            chance = torch.rand(n, generator=generator, device=theta.device, dtype=theta.dtype)
            taken = chance.log() < gain
            theta = torch.where(taken[:, None], there, theta)
            log_prior = torch.where(taken, prior, log_prior)
            log_likelihood = torch.where(taken, likelihood, log_likelihood)
    return Crowd(theta, torch.cat(hotter))


def next_step(log_likelihood: Tensor, temper: float, kept_share: float) -> tuple[float, Tensor]:
    """The step of the temperature that keeps a share of equal weights effective, and the weights.

    Arguments:
        log_likelihood: Of each point, shape (n,), nats.
        temper: The temperature now; steps end at 1.
        kept_share: Conditional effective sample size of the new weights, over n.
    """
    value = log_likelihood.double()
    value = value - value.max()

    def weights(step: float) -> Tensor:
        return torch.where(value > -math.inf, step * value, value).exp()

    def kept(step: float) -> float:
        w = weights(step)
        return float(w.mean().square() / w.square().mean())

    low, high = 0.0, 1.0 - temper
    share = min(kept_share, 0.99 * kept(0.0))  # impossible points leave at the first step
    if kept(high) >= share:
        return high, weights(high)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if kept(middle) >= share else (low, middle)
    return high, weights(high)


class _Moves:
    """Densities and walks of one model."""

    def __init__(
        self, target: Target, code: Tensor, generator: torch.Generator, policy: CrowdPolicy
    ) -> None:
        self.target, self.code, self.generator, self.policy = target, code, generator, policy
        self.used = target.free(code[None])[0]

    def evaluated(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Log prior and log likelihood, shape (n,); -inf where either is no number."""
        prior, likelihood = [], []
        for some in theta.split(CHUNK):
            a, b = self.target.log_prior_and_likelihood(self.code.expand(len(some), -1), some)
            prior.append(a)
            likelihood.append(torch.where(a > -math.inf, b, -math.inf))
        ends = torch.cat(prior), torch.cat(likelihood)
        return ends[0], ends[1].nan_to_num(-math.inf, -math.inf, -math.inf)

    def walks(self, theta: Tensor) -> Tensor:
        """Steps of all points, shape (n, D): the first half's along differences, or the other's."""
        n, generator, policy = len(theta), self.generator, self.policy
        like: dict[str, Any] = {
            "generator": generator,
            "device": theta.device,
            "dtype": theta.dtype,
        }
        here = theta[:, self.used]
        d = here.shape[1]
        low, high = math.log(policy.shortest), math.log(policy.longest)
        length = (low + (high - low) * torch.rand(n, 1, **like)).exp()
        pairs = torch.randint(n, (2, n), generator=generator, device=theta.device)
        along = here[pairs[0]] - here[pairs[1]]
        covariance = torch.cov(here.T.double()).reshape(d, d)
        jitter = LEAST_JITTER * covariance.diagonal().max().clamp(min=1e-300)
        factor, _ = torch.linalg.cholesky_ex(
            covariance + jitter * torch.eye(d, device=theta.device, dtype=torch.float64)
        )
        noise = torch.randn(n, d, **like) @ factor.to(theta.dtype).mT * (OPTIMAL_WALK / d**0.5)
        first = torch.rand(n, 1, **like) < policy.difference_share
        step = torch.zeros_like(theta)
        step[:, self.used] = length * torch.where(first, along, noise)
        return step
