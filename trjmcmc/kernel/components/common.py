"""A walk of all components at once."""

from __future__ import annotations

import torch

from ...target.exchangeable import Components, components
from ...target.target import Target
from ...target.units import prior_units
from ..base import Info, Kernel, State, accept
from ..steps import Around, LogUniformSteps
from .sums import memo_of

LENGTHS = (0.01, 1.0)  # shortest and longest step, in prior standard deviations


class CommonWalk(Kernel):
    """A Gaussian step of log-uniform length that all components make along one coordinate.

    Scales that components have in common, such as the precisions in a mixture, or a place that all
    are off, change at once where one component at a time would take many steps. In half of the
    steps one of the parameters that all share goes along, as far as they or as far back: the scale
    or the mean of their prior. Periodic parameters go around.

    Arguments:
        target: A target over :class:`~trjmcmc.Counts` whose components are exchangeable.
        kind: Name or position of the kind of components, where there are several.

    Raises:
        ConfigurationError: Another space, components that are not exchangeable, no such kind.

    Source:
        Joint moves along a group of transformations: Liu & Sabatti (2000),
        https://doi.org/10.1093/biomet/87.2.353

    Example:
        >>> from trjmcmc import problems
        >>> move = CommonWalk(problems.mixture_1d())
        >>> move.between, move.within
        (False, True)
    """

    within = True

    def __init__(self, target: Target, kind: Components | int | str | None = None) -> None:
        self.target, self.components = target, components(target, kind)
        self.name, parts = self.components.named("common walk"), self.components
        self.steps = LogUniformSteps(prior_units(target)[1][parts.slots[0]], LENGTHS)
        space = target.space
        self._shared = (space.slot_item == space.n_items).nonzero()[:, 0]
        self._slots = torch.cat([parts.slots.flatten(), self._shared])
        self.around = Around(target.periodic_slots[self._slots])

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        parts, code, theta = self.components, state.code, state.theta
        n, shared = len(code), len(self._shared)
        number, width = parts.slots.shape
        u = torch.rand(3, n, generator=generator, device=theta.device)
        one = (u[0] * width).long()[:, None] == torch.arange(width, device=theta.device)
        step = torch.where(one, self.steps.draw(theta[:, parts.slots[0]], generator), 0.0)
        there = parts.items(code)[:, :, None]
        along = torch.where(there, step[:, None], 0.0).expand(n, number, width).flatten(1)
        other = (u[1] * shared).long()[:, None] == torch.arange(shared, device=theta.device)
        sign = (4 * u[2]).floor() - 1  # -1, 0, 1, 2
        sign = torch.where(sign > 1, 0.0, sign)[:, None]
        beside = torch.where(other, sign * step.sum(1, keepdim=True), 0.0)
        step = torch.cat([along, beside], 1)
        moved = theta.clone()
        moved[:, self._slots], log_around = self.around(theta[:, self._slots], step)
        total = parts.total(code, moved)
        known = None if total is None else parts.sum_in(total)
        log_joint = self.target.log_joint(code, moved, known)
        proposed = State(code, moved, log_joint, memo_of(parts, total))
        log_ratio = log_joint - state.log_joint + log_around
        return accept(self.name, state, proposed, log_ratio, generator)
