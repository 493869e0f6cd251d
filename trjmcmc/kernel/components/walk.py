"""Random walks of one component at a time."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...target.exchangeable import Components, components
from ...target.target import Target
from ...target.units import prior_units
from ..base import Info, Kernel, State, accept
from ..learning import due
from ..steps import Around, LogUniformSteps
from .differences import differences
from .sums import known_total, memo_of

LENGTHS = (0.003, 3.0)  # shortest and longest step, in prior standard deviations

ALIKE = 0.4  # share of the steps that are differences of components that look alike

ALL = 0.3  # share of the other steps by all coordinates of a component; the rest is by one of them

SHORTEST, LONGEST = 0.1, 3.0  # of such differences, times

FIRST_FIT = 32  # warm-up step after which they are taken first; then after 64, 128, ...


class ComponentWalk(Kernel):
    """Gaussian steps of log-uniform length by one component, chosen at random.

    Steps in a row share what the others add to an additive likelihood. Some go along one of its
    coordinates, which may be known much better than others; some, after warm-up, as two components
    differ that look alike in the data. Periodic parameters go around.

    Arguments:
        target: A target over :class:`~trjmcmc.Counts` whose components are exchangeable.
        kind: Name or position of the kind of components, where there are several.
        times: Steps in a row, each accepted or not.

    Raises:
        ConfigurationError: Another space, components that are not exchangeable, no such kind; no
            step.

    Source:
        Metropolis et al. (1953), https://doi.org/10.1063/1.1699114

    Example:
        >>> from trjmcmc import problems
        >>> move = ComponentWalk(problems.pulses(points=50))
        >>> move.between, move.within
        (False, True)
    """

    within = True

    def __init__(
        self, target: Target, kind: Components | int | str | None = None, *, times: int = 1
    ) -> None:
        if times < 1:
            raise ConfigurationError(f"times: expected 1 or more, got {times}")
        self.target, self.components, self.times = target, components(target, kind), times
        self.name = self.components.named("component walk")
        scale = prior_units(target)[1][self.components.slots[0]]
        self.steps = LogUniformSteps(scale, LENGTHS)
        self.around = Around(target.periodic_slots[self.components.slots[0]])
        self._unit = scale
        self._differences = scale.new_zeros(0, len(scale))
        self._factors = LogUniformSteps(scale, (SHORTEST, LONGEST))
        self._steps = 0

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        parts, code, infos = self.components, state.code, list[Info]()
        total = known_total(parts, state)
        index, some = parts.some(code, generator), parts.count(code) > 0
        x, signal = parts.one(state.theta, index), None
        state = State(code, state.theta, state.log_joint, memo_of(parts, total))
        for _ in range(self.times):
            theta, new = state.theta, None
            y, log_around = self.around(x, self._step(x, generator))
            y = torch.where(some[:, None], y, x)
            moved = parts.put(theta, index, y)
            total = known_total(parts, state)
            if total is None:
                log_joint = self.target.log_joint(code, moved)
            else:
                signal = parts.contribution(theta, x) if signal is None else signal
                new = parts.contribution(theta, y)
                change = parts.times(some, new - signal)
                log_joint, total = parts.log_joint(code, moved, state.log_joint, total, change)
            log_ratio = log_joint - state.log_joint + log_around
            log_ratio = torch.where(some, log_ratio, -math.inf)
            proposed = State(code, moved, log_joint, memo_of(parts, total))
            state, (info,) = accept(self.name, state, proposed, log_ratio, generator)
            infos.append(info)
            x = torch.where(info.accepted[:, None], y, x)
            if new is not None and signal is not None:
                signal = torch.where(info.accepted.view(-1, *[1] * (new.ndim - 1)), new, signal)
        return state, infos

    def _step(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Of each component (C, P)."""
        n, p = x.shape
        u = torch.rand(4, n, generator=generator, device=x.device)
        one = (u[0] * p).long()[:, None] == torch.arange(p, device=x.device)
        step = torch.where(one | (u[1] < ALL)[:, None], self.steps.draw(x, generator), 0.0)
        if not len(self._differences):
            return step
        which = (u[2] * len(self._differences)).long()
        factor = self._factors.factor(n, generator)
        sign = torch.where(u[3] < 0.5, 1.0, -1.0)
        alike = self._differences[which] * (factor * sign)[:, None]
        pick = torch.rand(n, 1, generator=generator, device=x.device) < ALIKE
        return torch.where(pick, alike, step)

    def adapted_to(self, infos: list[Info], generator: torch.Generator) -> Kernel:
        info = infos[-1]
        found = copy.copy(self)
        found._steps = self._steps + self.times
        if any(due(n + 1, FIRST_FIT) for n in range(self._steps, found._steps)):
            rows, items = self.components.items(info.code).nonzero(as_tuple=True)
            x = self.components.of(info.theta)[rows, items]
            found._differences = differences(self.components, info.theta[rows], x, self._unit)
        return found
