"""Hamiltonian Monte Carlo inside a model, in reference space (NeuTra) or in plain coordinates."""

from __future__ import annotations

import copy
import math
from typing import Any, NamedTuple

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

MATURE = 20  # steps in one metric after which its step size counts as tuned


class Setting(NamedTuple):
    """A metric, and the step size that is tuned for it.

    Attributes:
        scale: Standard deviation of each coordinate by group of models, shape (G, D).
        log_size: Log of the step size in these units, shape (G,).
    """

    scale: Tensor
    log_size: Tensor


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
        self._setting = self._tuned = Setting(self._scale, first)

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        frame = self.frame
        state, x, log_density = frame.here(state, generator)
        group, active = frame.group(state.code), frame.active(state.code)
        device, dtype = x.device, x.dtype
        u = torch.rand(len(x), 1, generator=generator, device=device, dtype=dtype)
        size = self._setting.log_size[group].exp().to(dtype)[:, None]
        scale = size * (1 + JITTER * (2 * u - 1)) * self._setting.scale[group]
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
        after, (info,) = accept(self.name, state, proposed, log_ratio, generator)
        return after, [info._replace(note=(x, end, group))]

    def adapted_to(self, infos: list[Info], generator: torch.Generator) -> Kernel:
        (info,) = infos
        begun, end, group = info.note
        found = copy.copy(self)
        chance = info.log_ratio.clamp(max=0).exp().nan_to_num(0.0)
        found._averaging = averaging = copy.copy(self._averaging)
        averaging.update(chance, group, self.acceptance)
        found._window = copy.copy(self._window)
        found._window.add(torch.where(info.accepted[:, None], end, begun), group)
        found._steps, found._since = self._steps + 1, self._since + 1
        if found._since >= MATURE:
            found._tuned = Setting(self._scale, averaging.average)
        passed = found._steps / FIRST_WINDOW
        if passed >= 1 and math.log2(passed).is_integer():
            found._scale, found._since = found._window.scale(), 0
            found._window = Spread(found._scale)
            averaging.restart()
        found._setting = Setting(found._scale, averaging.log_size)
        return found

    def frozen(self) -> Kernel:
        if self._setting is self._tuned:
            return self
        found = copy.copy(self)
        found._setting = self._tuned
        return found

    def adapted(self) -> dict[str, Any]:
        return {
            "step size": self._tuned.log_size.exp().tolist(),
            "scale": self._tuned.scale.tolist(),
        }
