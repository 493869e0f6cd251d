"""A walk of what all components share."""

from __future__ import annotations

import copy

import torch

from ...errors import ConfigurationError
from ...target.exchangeable import components_of
from ...target.target import Target
from ...target.units import prior_units
from ..base import Info, Kernel, State, accept
from ..learning import RecentCovariance
from ..steps import Around, LogUniformSteps
from .sums import known_total, memo_of

LENGTHS = (0.01, 2.0)  # shortest and longest step, in prior standard deviations


class SharedWalk(Kernel):
    """A Gaussian step of log-uniform length by the parameters that all components share.

    Half of the steps have the prior's units; the others have the covariance of the chains, as
    warm-up has seen it of late. Periodic ones go around.

    Arguments:
        target: A target over :class:`~trjmcmc.Counts` with parameters beside the components'.

    Raises:
        ConfigurationError: Nothing is shared.

    Source:
        Metropolis et al. (1953), https://doi.org/10.1063/1.1699114

    Example:
        >>> from trjmcmc import problems
        >>> SharedWalk(problems.mixture_1d()).slots.tolist()  # the rate of the precisions
        [0]
    """

    name, within = "shared walk", True

    def __init__(self, target: Target) -> None:
        space = target.space
        self.slots = (space.slot_item == space.n_items).nonzero()[:, 0]
        if not space.counts or not len(self.slots):
            raise ConfigurationError("shared walk: the components of this target share nothing")
        self.target = target
        self.steps = LogUniformSteps(prior_units(target)[1][self.slots], LENGTHS)
        self._unit = LogUniformSteps(torch.ones_like(self.steps.scale), LENGTHS)
        self._spread = RecentCovariance(self.steps.scale)
        self.around = Around(target.periodic_slots[self.slots])
        parts = components_of(target)
        fixed = bool(parts) and parts[0].apart and not parts[0].delicate
        self._parts = parts[0] if fixed else None

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        code, theta = state.code, state.theta
        x = theta[:, self.slots]
        moved = theta.clone()
        step = self.steps.draw(x, generator)
        near = self._spread.scaled(self._unit.draw(x, generator))
        if near is not None:
            coin = torch.rand(len(x), 1, generator=generator, device=x.device)
            step = torch.where(coin < 0.5, step, near)
        moved[:, self.slots], log_around = self.around(x, step)
        total = memo = None
        if self._parts is not None:  # whose sum stays as it is
            known = known_total(self._parts, state)
            assert known is not None
            total, memo = self._parts.sum_in(known), memo_of(self._parts, known)
        state = state._replace(memo=memo)
        log_joint = self.target.log_joint(code, moved, total)
        proposed = State(code, moved, log_joint, memo)
        log_ratio = log_joint - state.log_joint + log_around
        return accept(self.name, state, proposed, log_ratio, generator)

    def adapted_to(self, infos: list[Info], generator: torch.Generator) -> Kernel:
        (info,) = infos
        found = copy.copy(self)
        found._spread = self._spread.plus(info.theta[:, self.slots])
        return found
