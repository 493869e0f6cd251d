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
from .tuning import Covariance, DualAveraging, GroupScales

METRICS = ("diagonal", "dense")

TARGET_ACCEPTANCE = 0.8

JITTER = 0.3  # relative spread of the step size from chain to chain: no orbit closes for all

FIRST_WINDOW = 25  # steps after which the metric is set for the first time; then it doubles

MATURE = 20  # steps in one metric after which its step size counts as tuned


class Setting(NamedTuple):
    """A metric, and the step size that is tuned for it.

    Attributes:
        scale: By group of models: standard deviations of the coordinates, shape (G, D), or the
            lower factor of their covariance, (G, D, D).
        log_size: Log of the step size in these units, shape (G,).
    """

    scale: Tensor
    log_size: Tensor

    def forth(self, x: Tensor, group: Tensor) -> Tensor:
        """Vectors (C, D) of unit covariance with that of the metric."""
        if self.scale.dim() == 2:
            return self.scale[group] * x
        if len(self.scale) == 1:
            return x @ self.scale[0].mT
        return (self.scale[group] @ x[..., None])[..., 0]

    def back(self, gradient: Tensor, group: Tensor) -> Tensor:
        """The gradient with respect to such vectors, shape (C, D)."""
        if self.scale.dim() == 2:
            return self.scale[group] * gradient
        if len(self.scale) == 1:
            return gradient @ self.scale[0]
        return (self.scale[group].mT @ gradient[..., None])[..., 0]


class HMC(Kernel):
    """Hamiltonian Monte Carlo with batched leapfrog steps.

    Warm-up finds a step size by dual averaging and a metric, one for each model of a small space;
    both are frozen afterwards. Trajectories follow the gradient of a model's
    surrogate where it has one; the likelihood itself decides about their ends.

    Arguments:
        target: The target, with gradients.
        transport: The map in whose reference space it moves; None for plain coordinates.
        leaps: Leapfrog steps a trajectory.
        step_size: First step size.
        acceptance: Mean acceptance probability that warm-up aims at.
        metric: ``"diagonal"``; or ``"dense"``, the whole covariance, for small spaces: steps are
            then as long as the narrowest direction, not coordinate, asks for.
        name: Shown in tables.

    Raises:
        ConfigurationError: A black box without gradients; a setting out of range; a dense metric
            in a space whose models are too many for one each.

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
        metric: str = "diagonal",
        name: str = "hmc",
    ) -> None:
        if not target.differentiable:
            raise ConfigurationError(
                "HMC: a likelihood without gradients; use RandomWalk, or give gradients "
                " by trj.with_gradient"
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
        if metric not in METRICS:
            raise ConfigurationError(f"metric: expected one of {METRICS}, got {metric!r}")
        if metric == "dense" and groups == 1 and target.space.several:
            raise ConfigurationError(
                'HMC: metric="dense" needs a metric for each model, and there are too many'
            )
        self._scale = torch.ones(groups, target.dim, dtype=target.dtype, device=device)
        if metric == "dense":
            self._scale = torch.diag_embed(self._scale)
        self._learner = Covariance if metric == "dense" else GroupScales
        self._window, self._steps, self._since = self._learner(self._scale), 0, 0
        self._setting = self._tuned = Setting(self._scale, first)

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        frame = self.frame
        state, x, log_density = frame.here(state, generator)
        group, active = frame.group(state.code), frame.active(state.code)
        device, dtype = x.device, x.dtype
        u = torch.rand(len(x), 1, generator=generator, device=device, dtype=dtype)
        setting = self._setting
        size = setting.log_size[group].exp().to(dtype)[:, None] * (1 + JITTER * (2 * u - 1))
        noise = torch.randn(x.shape, generator=generator, device=device, dtype=dtype)
        momentum = torch.where(active, noise, 0.0)
        begun = momentum.square().sum(-1)
        end, gradient = x, setting.back(frame.gradient(state, x), group)
        for _ in range(self.leaps):
            momentum = momentum + 0.5 * size * gradient
            end = end + size * setting.forth(momentum, group)
            gradient = setting.back(frame.gradient(state, end), group)
            momentum = momentum + 0.5 * size * gradient
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
            found._window = self._learner(found._scale)
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
