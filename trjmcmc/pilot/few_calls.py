"""Posteriors from few likelihood calls: mixtures of t distributions, refined by importance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .. import clock
from ..target.target import Target
from ..transport.normals import NormalMixture
from .policy import FewCallsPolicy

USUAL = FewCallsPolicy()


@dataclass(frozen=True)
class Proposal:
    """What importance sampling of a model has come to.

    Attributes:
        normals: Over the coordinates in use; each t distribution as a few normals of one shape.
        share: Effective draws of the last round over its draws, importance weights at the
            posterior itself; 0 where it has not come that far.
        prior_draws: Independent draws of the prior that it began with.
        calls: Likelihood calls that it took.
    """

    normals: NormalMixture
    share: float
    prior_draws: int
    calls: int


@torch.no_grad()
def adaptive_proposal(
    target: Target,
    code: Tensor,
    calls: int,
    generator: torch.Generator,
    policy: FewCallsPolicy = USUAL,
    deadline: float = math.inf,
) -> Proposal:
    """Refine a proposal for one model by importance sampling, from the prior on.

    Every point counts in every round, weighted by the mixture of all proposals so far. A round
    raises the likelihood to the largest power at which the effective number of points is enough
    for a fit, fits normals to them, and draws from these with heavier tails.

    Arguments:
        target: The target.
        code: A model with parameters, shape (L,).
        calls: Likelihood calls that it may take.
        generator: Source of randomness.
        policy: Sizes.
        deadline: Time by :func:`trjmcmc.clock.now` after which no further round begins.

    Source:
        Cornuet, Marin, Mira & Robert (2012), https://doi.org/10.1111/j.1467-9469.2011.00756.x;
        powers: Neal (2001), https://doi.org/10.1023/A:1008923215028

    Example:
        >>> from trjmcmc import problems
        >>> target = problems.sinh_arcsinh()
        >>> generator = torch.Generator().manual_seed(0)
        >>> found = adaptive_proposal(target, torch.tensor([0]), 500, generator)
        >>> found.calls <= 500, found.share > 0.5
        (True, True)
    """
    used = target.space.active(code[None])[0]
    dim = int(used.sum())
    first = max(2 * policy.draws_a_dimension, int(policy.prior_share * calls))
    each = max(policy.draws_a_dimension * (dim + 1), (calls - first) // policy.rounds)
    first = min(first, calls)
    theta = target.sample_prior(code.expand(first, -1), generator)
    points = [_Points(target, code, theta)]
    proposals: list[NormalMixture] = []
    spent, share = first, 0.0
    while True:
        x = torch.cat([p.theta for p in points])[:, used].double()
        log_prior = torch.cat([p.log_prior for p in points])
        log_likelihood = torch.cat([p.log_likelihood for p in points])
        log_q = _mixture_density(x, log_prior, [len(p.theta) for p in points], proposals)
        enough = policy.points_a_fit * (dim + 1)
        power = _power(log_prior - log_q, log_likelihood, enough)
        tempered = power * log_likelihood if power else torch.zeros_like(log_likelihood)
        weight = (log_prior - log_q + tempered).softmax(0)
        pick = torch.multinomial(weight, policy.fitted_draws, True, generator=generator)
        distinct_points = 1 / float(weight.square().sum())
        normals = _fitted(x[pick], distinct_points, policy, generator)
        if power == 1 and proposals:
            last = slice(len(x) - len(points[-1].theta), None)
            log_w = (log_prior + log_likelihood)[last] - proposals[-1].log_prob(x[last])
            share = _effective(log_w) / len(log_w)
        n = min(each, calls - spent)
        if n < 2 or share > policy.good_share or clock.now() > deadline:
            return Proposal(normals, share, first, spent)
        fresh = torch.zeros(n, target.dim, dtype=target.dtype, device=target.device)
        fresh[:, used] = normals.sample(n, generator).to(target.dtype)
        proposals.append(normals)
        points.append(_Points(target, code, fresh))
        spent += n


class _Points:
    """Draws of one proposal, shape (n, D), and what the target says of them, shapes (n,)."""

    def __init__(self, target: Target, code: Tensor, theta: Tensor) -> None:
        theta = torch.where(theta.isfinite(), theta, 0.0)
        codes = code.expand(len(theta), -1)
        log_prior, log_likelihood = target.log_prior_and_likelihood(codes, theta)
        self.theta = theta
        self.log_prior = log_prior.double() - float(target.space.log_prior(code[None])[0])
        possible = log_prior > -math.inf
        self.log_likelihood = torch.where(possible, log_likelihood.double(), -math.inf)


def _mixture_density(
    x: Tensor, log_prior: Tensor, counts: list[int], proposals: list[NormalMixture]
) -> Tensor:
    """Log density of the mixture of the prior and all proposals, by their draws, shape (n,)."""
    total = sum(counts)
    terms = [log_prior + math.log(counts[0] / total)]
    terms += [
        p.log_prob(x) + math.log(n / total) for p, n in zip(proposals, counts[1:], strict=True)
    ]
    return torch.stack(terms).logsumexp(0)


def _effective(log_w: Tensor) -> float:
    """Effective number of weighted points."""
    if not bool((log_w > -math.inf).any()):
        return 0.0
    return float(torch.exp(2 * log_w.logsumexp(0) - (2 * log_w).logsumexp(0)))


def _power(log_ratio: Tensor, log_likelihood: Tensor, enough: float) -> float:
    """The largest power of the likelihood, up to 1, with enough effective points; 0 if none has."""
    if not bool((log_likelihood > -math.inf).any()):
        return 0.0
    likelihood = torch.where(log_likelihood > -math.inf, log_likelihood, -1e300)
    if _effective(log_ratio + likelihood) >= enough:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2 if low else high / 10
        if _effective(log_ratio + middle * likelihood) >= enough:
            low = middle
        else:
            high = middle
        if low and high - low < 1e-3 * high:
            break
    return low


def _fitted(
    draws: Tensor, effective: float, policy: FewCallsPolicy, generator: torch.Generator
) -> NormalMixture:
    """A mixture of t distributions by a few normals each, from resampled draws (n, d)."""
    d = draws.shape[1]
    affordable = int(effective / (policy.points_a_component * (d + 1)))
    k = max(1, min(policy.components, affordable))
    base = NormalMixture.fitted(draws, k, generator)
    scales = torch.tensor(policy.tail_scales, dtype=base.mean.dtype, device=base.mean.device)
    shares = torch.tensor(policy.tail_shares, dtype=base.mean.dtype, device=base.mean.device)
    wider = (1 + policy.widening * d / max(effective, 1.0)) ** 0.5
    return NormalMixture(
        (base.weight[:, None] * shares).flatten(),
        base.mean.repeat_interleave(len(scales), 0),
        (wider * scales[:, None, None] * base.factor[:, None]).flatten(0, 1),
    )
