"""Chains of each group cool down together from the prior; some begin where climbs end."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...draws import Pool
from ...errors import UnreachableError
from ...kernel.base import Kernel, State, start
from ...pilot.generation import systematic
from ...pilot.smc import next_step
from ...target.target import Target
from ...target.tempered import Tempered
from ..asked import Stated
from ..plan import Plan
from .base import Known, Recipe
from .climbs import uphill

DRAWN = 200  # prior draws of each chain at most, where a likelihood may be 0

LEAST, LEAST_OF_BOXES, LEAST_OF_FEW = 32, 8, 4  # chains of a group, of black boxes, of few calls

A_CHAIN = 5000  # likelihood calls that are stated, for each chain: some 500 cool it

FEW_CALLS, FEW_GROUPS = 100_000, 4  # under which groups are fewer: chains are

A_POWER = 6  # evaluations of a step of all moves of one chain, about

CLIMBERS = 8  # one chain in so many of each group begins where a climb of a whole model ends

CLIMB = 200  # steps

LEAST_PROBABLE = -20.0  # nats that a model's prior may be under that of a draw from it


class CooledRecipe(Recipe):
    """A space too large to list: all chains begin in the prior, moved by the run's own kernels."""

    def __init__(
        self, target: Target, plan: Plan, generator: torch.Generator, **stated: Any
    ) -> None:
        few = (stated.get("stated", Stated()).evaluations or math.inf) < FEW_CALLS
        plan = replace(plan, groups=min(FEW_GROUPS, plan.groups)) if few else plan
        super().__init__(target, plan, generator, **stated)

    @property
    def least_chains(self) -> int:  # type: ignore[override]
        """That a group is resampled from; fewer where each draw is as dear as another."""
        if self.stated.evaluations is not None:
            return LEAST_OF_FEW
        return LEAST if math.isfinite(self.numbers) else LEAST_OF_BOXES

    @property
    def affordable(self) -> float:
        calls = self.stated.evaluations
        return super().affordable if calls is None else calls / A_CHAIN

    @property
    def kept(self) -> float:
        """Evaluations of a power too, about."""
        return super().kept + A_POWER * self.plan.warm * self.chains

    @abstractmethod
    def warm_kernel(self, target: Target) -> Kernel:
        """What moves chains on a tempered target, before anything is learned."""

    @property
    def kinds(self) -> Tensor:
        """0 of chains that cooled, 1 of those that begin where climbs of a whole model end."""
        return (torch.arange(self.chains) // self.plan.groups % CLIMBERS == 0).long()

    def begin(self) -> tuple[Known, State]:
        target, plan, g = self.target, self.plan, self.generator
        warm = Tempered(target, 0.0)
        kernel = self.warm_kernel(warm)
        code, theta, log_evidence = self._possible()
        power = 0.0
        while power < 1:
            level = target.log_prior_and_likelihood(code, theta)[1].double().view(-1, plan.groups)
            at = torch.full_like(level[:1].T, power)
            kept = next_step(level.T, torch.ones_like(level.T), at, plan.kept)
            step = 1 - power if self.late else float(kept.mean())
            log_evidence += (step * level).logsumexp(0) - math.log(len(level))
            rows = self._resampled((step * level).softmax(0))
            power += step
            power = 1.0 if power > 1 - 1e-12 else power
            warm.temper(power)
            state = start(warm, code[rows], theta[rows])
            for _ in range(0 if self.late else plan.warm):
                kernel, state, _ = kernel.adapt(state, g)
            kernel = kernel.frozen()
            code, theta = state.code, state.theta
        code, theta = self._climbed(code, theta)
        state = start(target, code, theta)
        pool = Pool(state.code, state.theta, state.log_joint.double())
        return Known(pool, None, log_evidence), state

    def _possible(self) -> tuple[Tensor, Tensor, Tensor]:
        """Prior draws of a likelihood above 0, and the log of their share by group, shape (K,).

        Raises:
            UnreachableError: A group has none of these.
            NonFiniteError: A likelihood is NaN or +inf.
        """
        target, groups, g = self.target, self.plan.groups, self.generator
        code = model = target.space.sample_prior(self.chains, g)
        theta = point = target.sample_prior(model, g)
        possible = torch.zeros(self.chains, dtype=torch.bool, device=code.device)
        met, batches = torch.zeros(groups, device=code.device, dtype=torch.float64), 0
        while True:
            log_likelihood = target.log_prior_and_likelihood(model, point)[1]
            target.check_finite(model, point, log_likelihood)
            here = log_likelihood > -math.inf
            new = (here & ~possible)[:, None]
            code, theta = torch.where(new, model, code), torch.where(new, point, theta)
            met, batches = met + here.view(-1, groups).double().mean(0), batches + 1
            possible |= here
            if bool(possible.all()) or batches == DRAWN or self.late:
                break
            model = target.space.sample_prior(self.chains, g)
            point = target.sample_prior(model, g)
        if not bool(met.all()):
            raise UnreachableError(
                f"likelihood: it is 0 at each of {batches * self.chains // groups} prior draws"
            )
        if not bool(possible.all()):
            weights = possible.view(-1, groups).double()
            rows = self._resampled(weights / weights.sum(0))
            code, theta = code[rows], theta[rows]
        return code, theta, (met / batches).log()

    @torch.no_grad()
    def _climbed(self, code: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Codes and points of chains, some of each group where climbs end: cooling loses modes."""
        target, g = self.target, self.generator
        if not target.dim:
            return code, theta
        rows = (self.kinds.to(code.device) == 1).nonzero()[:, 0]
        model = self._of_all_sizes(len(rows))
        point = target.sample_prior(model, g)
        scale = point.std(0).nan_to_num(1.0) * target.space.active(model)
        point, height = uphill(
            lambda x: target.log_joint(model, x), point, scale, CLIMB, g, lambda: self.late
        )
        if self.late:
            return code, theta
        rows, model, point = (x[height > -torch.inf] for x in (rows, model, point))
        return code.index_copy(0, rows, model), theta.index_copy(0, rows, point)

    def _of_all_sizes(self, n: int) -> Tensor:
        """Codes of n models: half from the prior, half alike in size from the least to the most."""
        space, g = self.target.space, self.generator
        code = space.sample_prior(n, g)
        low, levels = space.levels()
        size = torch.rand(n, 1, generator=g, device=code.device)
        rounded = torch.rand(code.shape, generator=g, device=code.device)
        sized = low + ((levels - 1) * size + rounded).long()
        probable = space.log_prior(sized) > space.log_prior(code).mean() + LEAST_PROBABLE
        other = torch.arange(n, device=code.device) % 2 == 1
        return torch.where((other & probable)[:, None], sized, code)

    def _resampled(self, weights: Tensor) -> Tensor:
        """Chains to go on from, systematically within each group, shape (C,).

        Arguments:
            weights: By point and group, shape (n, K), float64.
        """
        n, groups = weights.shape
        rows = systematic(weights.T.contiguous(), n, self.generator)
        return (rows * groups + torch.arange(groups, device=rows.device)[:, None]).T.flatten()
