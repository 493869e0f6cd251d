"""Hamiltonian Monte Carlo inside a model, in reference space (NeuTra) or in plain coordinates."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...target.target import Target
from ...transport.base import Transport
from ..base import Info, Kernel, State, accept
from .frame import Frame
from .tuning import DualAveraging, Spread

TARGET_ACCEPTANCE = 0.8

JITTER = 0.3  # relative spread of the step size from chain to chain: no orbit closes for all

FIRST_WINDOW = 25  # steps after which the metric is set for the first time; then it doubles

MATURE = 20  # steps after which a step size is tuned for its metric


class HMC(Kernel):
    """Hamiltonian Monte Carlo with batched leapfrog steps.

    Warm-up finds a step size by dual averaging and a diagonal metric, one for each model of a
    small space; both are frozen afterwards. Trajectories follow the gradient of a model's
    surrogate where it has one; the likelihood itself decides about their ends.

    Arguments:
        target: The target, with gradients.
        transport: The map in whose reference space it moves; None for plain coordinates.
        leaps: Leapfrog steps a trajectory.
        step_size: First step size.
        acceptance: Mean acceptance probability that warm-up aims at.
        name: Shown in tables.

    Raises:
        ConfigurationError: A black box without gradients; a setting out of range.

    Source:
        NeuTra: Hoffman et al. (2019), https://arxiv.org/abs/1903.03704; dual averaging:
        Hoffman & Gelman (2014), https://jmlr.org/papers/v15/hoffman14a.html, eq. 6

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.kernel import start
        >>> target = problems.robust_regression()
        >>> state = start(target, torch.zeros(5, 2, dtype=torch.long), torch.zeros(5, 4))
        >>> state, (info,) = HMC(target).step(state, torch.Generator().manual_seed(0))
        >>> info.kernel, info.accepted.shape
        ('hmc', torch.Size([5]))
    """

    within = True

    def __init__(
        self,
        target: Target,
        transport: Transport | None = None,
        *,
        leaps: int = 8,
        step_size: float = 0.3,
        acceptance: float = TARGET_ACCEPTANCE,
        name: str = "hmc",
    ) -> None:
        if not target.differentiable:
            raise ConfigurationError(
                "HMC: a likelihood without gradients; use Stretch or RandomWalk, or give "
                "gradients by trj.with_gradient"
            )
        if leaps < 1 or not step_size > 0 or not 0 < acceptance < 1:
            raise ConfigurationError(
                "HMC: expected leaps >= 1, step_size > 0, 0 < acceptance < 1, got "
                f"{leaps}, {step_size}, {acceptance}"
            )
        self.frame, self.leaps, self.acceptance, self.name = (
            Frame(target, transport),
            leaps,
            acceptance,
            name,
        )
        groups, device = self.frame.groups, target.device
        first = torch.full((groups,), math.log(step_size), dtype=torch.float64, device=device)
        self._averaging = DualAveraging(first)
        self._scale = torch.ones(groups, target.dim, dtype=target.dtype, device=device)
        self._window, self._steps, self._since = Spread(self._scale), 0, 0
        self._mature = self._scale, first  # what was tuned for each other

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        frame = self.frame
        state, x, log_density = frame.here(state, generator)
        group, active = frame.group(state.code), frame.active(state.code)
        device, dtype = x.device, x.dtype
        u = torch.rand(len(x), 1, generator=generator, device=device, dtype=dtype)
        width, log_size = self._mature
        if self.adapting:
            width, log_size = self._scale, self._averaging.log_size
        size = log_size[group].exp().to(dtype)[:, None]
        scale = size * (1 + JITTER * (2 * u - 1)) * width[group]
        noise = torch.randn(x.shape, generator=generator, device=device, dtype=dtype)
        momentum = torch.where(active, noise, 0.0)
        begun = momentum.square().sum(-1)
        end, gradient = x, frame.gradient(state, x)
        for _ in range(self.leaps):
            momentum = momentum + 0.5 * scale * gradient
            end = end + scale * momentum
            gradient = frame.gradient(state, end)
            momentum = momentum + 0.5 * scale * gradient
        lost = ~(end.isfinite().all(-1) & momentum.isfinite().all(-1))
        end = torch.where(lost[:, None], x, end)
        proposed, there = frame.there(state, end)
        log_ratio = there - log_density + 0.5 * (begun - momentum.square().sum(-1))
        log_ratio = torch.where(lost, -math.inf, log_ratio)
        after, info = accept(self.name, state, proposed, log_ratio, generator)
        if self.adapting:
            moved = torch.where(info[0].accepted[:, None], end, x)
            self._adapt(log_ratio.clamp(max=0).exp().nan_to_num(0.0), moved, group)
        return after, info

    def _adapt(self, chance: Tensor, x: Tensor, group: Tensor) -> None:
        self._averaging.update(chance, group, self.acceptance)
        self._window.add(x, group)
        self._steps, self._since = self._steps + 1, self._since + 1
        if self._since >= MATURE:
            self._mature = self._scale, self._averaging.average
        passed = self._steps / FIRST_WINDOW
        if passed >= 1 and math.log2(passed).is_integer():
            self._scale = self._window.scale()
            self._window = Spread(self._scale)
            self._averaging.restart()
            self._since = 0

    def adapted(self) -> dict[str, Any]:
        return {
            "step size": self._mature[1].exp().tolist(),
            "scale": self._mature[0].tolist(),
        }
