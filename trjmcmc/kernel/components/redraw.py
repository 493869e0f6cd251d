"""What all components share, drawn anew for chains that have none."""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...target.exchangeable import components_of
from ...target.target import Target
from ...transport.normals import NormalMixture
from ..learning import RecentRows, due

TRIED = 8  # draws that each chain without components is offered, a step

PRIOR = 0.5  # share of them that the prior makes

NORMALS = 4  # at most, that are fitted to what such chains are like

FIRST = 16  # step of warm-up after which they are fitted first

MOST = 4000  # chains that they are fitted to

FEWEST_STARTS = 20  # independent draws that these have to come from


class Redrawn(NamedTuple):
    """Chains without components after they were offered draws.

    Attributes:
        theta: Their coordinates, shape (n, D).
        log_prior, log_likelihood: There, the latter to the power 1, shape (n,) each.
        taken: Whether each has taken one, shape (n,).
    """

    theta: Tensor
    log_prior: Tensor
    log_likelihood: Tensor
    taken: Tensor


class SharedRedraw:
    r"""Offers chains without components independent draws of what all components would share.

    One that takes a draw keeps nothing of its past. Half of the draws come from the prior, the
    others from normals that are fitted in warm-up to such chains, if these descend from enough
    independent starts. With q the density of both together a draw is taken with probability

    .. math:: \min\left(1, \frac{p(\theta') L(\theta')^\beta q(\theta)}
        {p(\theta) L(\theta)^\beta q(\theta')}\right).

    Arguments:
        target: A target over :class:`~trjmcmc.Counts`, not tempered.

    Source:
        Independence sampler: Tierney (1994), https://doi.org/10.1214/aos/1176325750
    """

    def __init__(self, target: Target) -> None:
        space = target.space
        counted = bool(components_of(target))
        shared = (space.slot_item == space.n_items) & counted
        self.target, self.slots = target, shared.nonzero()[:, 0]
        self.normals: NormalMixture | None = None
        self._steps, self._seen, self._starts = 0, RecentRows(MOST), RecentRows(MOST)

    def __bool__(self) -> bool:
        """Whether anything is shared."""
        return len(self.slots) > 0

    def learned(self, theta: Tensor, start: Tensor, generator: torch.Generator) -> SharedRedraw:
        """The same after a step of warm-up.

        Arguments:
            theta: Chains without components, shape (n, D).
            start: A number of the independent start that each descends from, shape (n,).
            generator: Source of randomness.
        """
        found = copy.copy(self)
        found._steps += 1
        found._seen = self._seen.plus(theta[:, self.slots])
        found._starts = self._starts.plus(start)
        if due(found._steps, FIRST):
            starts = found._starts.rows().unique()
            if len(starts) >= FEWEST_STARTS:
                found.normals = NormalMixture.fitted(found._seen.rows(), NORMALS, generator)
        return found

    def __call__(
        self, code: Tensor, theta: Tensor, power: Tensor, generator: torch.Generator
    ) -> Redrawn:
        """Offer draws to chains without components.

        Arguments:
            code, theta: The chains, shapes (n, L) and (n, D).
            power: Of the likelihood, that each is at, shape (n,).
            generator: Source of randomness.
        """
        n = len(code)
        every = torch.cat([theta, self._drawn(code.repeat(TRIED, 1), generator)])
        codes = code.repeat(TRIED + 1, 1)
        finite = every.isfinite().all(1)
        every = torch.where(finite[:, None], every, 0.0)
        with torch.no_grad():
            log_prior, log_likelihood = self.target.log_prior_and_likelihood(codes, every)
        sound = finite & log_prior.isfinite() & (log_likelihood < math.inf)
        heated = torch.where(power > 0, power, 0.0).repeat(TRIED + 1).double()
        height = torch.where(heated > 0, heated * log_likelihood.double(), 0.0)
        weight = log_prior.double() + height - self._log_density(codes, every, log_prior)
        weight = torch.where(sound, weight, -math.inf).view(TRIED + 1, n)
        u = torch.rand(weight.shape, generator=generator, device=weight.device).double().log()
        now, taken = weight[0], torch.zeros(n, dtype=torch.long, device=code.device)
        for i in range(1, TRIED + 1):
            accepted = (weight[i] > -math.inf) & ~(u[i] >= weight[i] - now)
            now, taken = torch.where(accepted, weight[i], now), torch.where(accepted, i, taken)
        row = taken * n + torch.arange(n, device=code.device)
        return Redrawn(every[row], log_prior[row], log_likelihood[row], taken > 0)

    def _drawn(self, code: Tensor, generator: torch.Generator) -> Tensor:
        theta = self.target.sample_prior(code, generator)
        theta = torch.where(self.target.space.active(code), theta, 0.0)
        if self.normals is not None:
            fitted = theta.clone()
            fitted[:, self.slots] = self.normals.sample(len(theta), generator).to(theta)
            u = torch.rand(len(theta), 1, generator=generator, device=theta.device)
            theta = torch.where(u < PRIOR, theta, fitted)
        return theta

    def _log_density(self, code: Tensor, theta: Tensor, log_prior: Tensor) -> Tensor:
        """Of draws, (n,), float64, up to a constant."""
        prior = (log_prior - self.target.space.log_prior(code)).double()
        if self.normals is None:
            return prior
        fitted = self.normals.log_prob(theta[:, self.slots]).double()
        return (prior + math.log(PRIOR)).logaddexp(fitted + math.log(1 - PRIOR))
