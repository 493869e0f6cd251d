"""Random walks of one component at a time."""

from __future__ import annotations

import math

import torch

from ...target.exchangeable import Components, components
from ...target.target import Target
from ...target.units import prior_units
from ..base import Info, Kernel, State, accept
from ..steps import Around, LogUniformSteps
from .sums import known_total, memo_of

LENGTHS = (0.003, 3.0)  # shortest and longest step, in prior standard deviations


class ComponentWalk(Kernel):
    """A Gaussian step of log-uniform length by one component, chosen at random.

    Periodic parameters go around.

    Arguments:
        target: A target over :class:`~trjmcmc.Counts` whose components are exchangeable.
        kind: Name or position of the kind of components, where there are several.
        lengths: Range of the step in units of the prior's spread.
        name: Shown in tables, with the kind where there are several.

    Raises:
        ConfigurationError: Another space, components that are not exchangeable, no such kind,
            lengths that are not positive.

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
        self,
        target: Target,
        kind: Components | int | str | None = None,
        *,
        lengths: tuple[float, float] = LENGTHS,
        name: str = "component walk",
    ) -> None:
        self.target, self.components = target, components(target, kind)
        self.name = self.components.named(name)
        scale = prior_units(target)[1][self.components.slots[0]]
        self.steps = LogUniformSteps(scale, lengths)
        self.around = Around(target.periodic_slots[self.components.slots[0]])

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        parts, code, theta = self.components, state.code, state.theta
        total = known_total(parts, state)
        index = parts.some(code, generator)
        x = parts.one(theta, index)
        y, log_around = self.around(x, self.steps.draw(x, generator))
        some = parts.count(code) > 0
        y = torch.where(some[:, None], y, x)
        state = State(code, theta, state.log_joint, memo_of(parts, total))
        moved = parts.put(theta, index, y)
        if total is None:
            log_joint = self.target.log_joint(code, moved)
        else:
            change = parts.contribution(theta, y) - parts.contribution(theta, x)
            change = parts.times(some, change)
            log_joint, total = parts.log_joint(code, moved, state.log_joint, total, change)
        log_ratio = log_joint - state.log_joint + log_around
        log_ratio = torch.where(some, log_ratio, -math.inf)
        proposed = State(code, moved, log_joint, memo_of(parts, total))
        return accept(self.name, state, proposed, log_ratio, generator)
