"""Births and deaths of items that the gradient of the log joint chooses."""

from __future__ import annotations

import copy
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ...errors import ConfigurationError
from ...rng import categorical
from ...target.target import Target
from ...target.units import STEP, WIDEST, check_absent_is_zero, prior_units
from ..base import Info, Kernel, State, accept
from ..learning import due

FLIPS = 4  # proposals a step; each costs one gradient, and a step one more

LOOKED_AT = 64  # chains at whose places curvature is measured

LOG_LEAST = -1e3  # nats: least log-probability weight of a flip, so that each can be undone

LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)


class _Look(NamedTuple):
    """What the gradient says of each place.

    Attributes:
        log_q: Log-probability that a switch is chosen, (C, U).
        mean: Of each slot's conditional posterior, (C, D).
    """

    log_q: Tensor
    mean: Tensor


class InformedBirthDeath(Kernel):
    r"""Turn the item on or off that the gradient says, its parameters drawn where they belong.

    An absent item is an item whose parameters are zero. So the gradient g of the log joint of
    all items together tells of each, given the others, the conditional posterior of a slot as
    a normal of precision h and mean g(0) / h, and the log odds that the item is in,

    .. math:: \Delta_i = \sum_{j \in i} \Bigl[ \frac{g_j(0)^2}{2 h_j} - \tfrac12 \log h_j
              + \log p_j(0) + \tfrac12 \log 2\pi \Bigr] + \log \frac{p(m + i)}{p(m - i)},

    where g(0) = g + h theta for those that are in. A unit, or an edge, is chosen in proportion to
    the sigmoid of its log odds to change, a locally balanced proposal; what is born is drawn from
    its normal. The precisions h are measured in warm-up, by differences of gradients, and
    frozen. They steer proposals only, as do gradients of a surrogate.

    Arguments:
        target: A target over :class:`~trjmcmc.Subsets` or :class:`~trjmcmc.Dags`, with gradients,
            whose item parameters are zero where their coordinate is.
        flips: Proposals a step.
        name: Shown in tables.

    Raises:
        ConfigurationError: Another space, no gradients, no units, no model of all items,
            parameters of items that are not real numbers, ``flips`` below 1.

    Source:
        Locally balanced proposals: Zanella (2020),
        https://doi.org/10.1080/01621459.2019.1585255; by gradients: Grathwohl et al. (2021),
        https://arxiv.org/abs/2102.04509

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.kernel import start
        >>> target = problems.variable_selection(4)
        >>> state = start(target, torch.zeros(5, 4, dtype=torch.long), torch.zeros(5, target.dim))
        >>> move = InformedBirthDeath(target, flips=2)
        >>> state, infos = move.step(state, torch.Generator().manual_seed(0))
        >>> [info.kernel for info in infos], infos[0].accepted.shape
        (['informed', 'informed'], torch.Size([5]))
    """

    between = True

    def __init__(self, target: Target, *, flips: int = FLIPS, name: str = "informed") -> None:
        space = target.space
        if not space.switches:
            raise ConfigurationError(
                "InformedBirthDeath: expected a space of Subsets or Dags with items to choose, got "
                f"{space}"
            )
        if not target.differentiable:
            raise ConfigurationError(
                "InformedBirthDeath: a likelihood without gradients; use BirthDeath, or give "
                "gradients by trj.with_gradient"
            )
        if flips < 1:
            raise ConfigurationError(f"flips: expected 1 or more, got {flips}")
        check_absent_is_zero(target)
        self.target, self.space, self.flips, self.name = target, space, flips, name
        self._everything = space.together()
        none = torch.zeros_like(self._everything).expand(space.switches, -1)
        each = space.switched(none, torch.arange(space.switches, device=target.device))
        self._slots = space.active(each) & ~space.active(none)  # of each switch, (U, D)
        zero = torch.zeros(1, target.dim, dtype=target.dtype, device=target.device)
        self._scale = prior_units(target)[1]
        self._prior = target.prior_by_slot(self._everything, zero)[0] + LOG_ROOT_TWO_PI
        self._least = (WIDEST * self._scale) ** -2
        self._precision = self._scale**-2
        self._steps = 0

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        here = self._look(state.code, state.theta)
        infos: list[Info] = []
        for _ in range(self.flips):
            proposed, there, log_ratio = self._propose(state, here, generator)
            state, (info,) = accept(self.name, state, proposed, log_ratio, generator)
            taken = info.accepted[:, None]
            here = _Look(*(torch.where(taken, b, a) for a, b in zip(here, there, strict=True)))
            infos.append(info)
        return state, infos

    def adapted_to(self, infos: list[Info], generator: torch.Generator) -> Kernel:
        found = copy.copy(self)
        found._steps = self._steps + 1
        if due(found._steps, 1):
            found._precision = self._measured(infos[-1].theta)
        return found

    def _propose(
        self, state: State, here: _Look, generator: torch.Generator
    ) -> tuple[State, _Look, Tensor]:
        target, theta = self.target, state.theta
        pick = categorical(here.log_q, generator)
        noise = torch.randn(theta.shape, generator=generator, device=theta.device)
        born = here.mean + noise.to(theta.dtype) / self._precision.sqrt()
        slots, on = self._slots[pick], self.space.on(state.code).gather(1, pick[:, None])
        code = self.space.switched(state.code, pick)
        moved = torch.where(slots, torch.where(on, 0.0, born), theta)
        log_joint = target.log_joint(code, moved)
        there = self._look(code, moved)
        log_birth = self._log_normal(moved, here.mean, slots)
        log_death = self._log_normal(theta, there.mean, slots)
        choice = (there.log_q - here.log_q).gather(1, pick[:, None])[:, 0]
        log_ratio = log_joint - state.log_joint + choice
        log_ratio = log_ratio + torch.where(on[:, 0], log_death, -log_birth)
        return State(code, moved, log_joint), there, log_ratio

    def _look(self, code: Tensor, theta: Tensor) -> _Look:
        h = self._precision
        # theta is zero where an item is absent; a broken gradient is none, at all places alike
        gradient = self._gradient(theta).nan_to_num(0.0, 0.0, 0.0) + h * theta
        by_slot = 0.5 * gradient.square() / h - 0.5 * h.log() + self._prior
        sign, prior = 1.0 - 2.0 * self.space.on(code), self.space.flip_log_odds(code)
        odds = sign * (by_slot @ self._slots.to(by_slot).mT) + prior
        weight = logsigmoid(odds.double()).clamp(min=LOG_LEAST)
        weight = weight.masked_fill(prior == -math.inf, -math.inf)  # there is no such model
        return _Look(weight.log_softmax(1), gradient / h)

    def _gradient(self, theta: Tensor) -> Tensor:
        code = self._everything.expand(len(theta), -1)
        return self.target.log_joint_and_grad(code, theta, surrogate=True)[1]

    def _log_normal(self, theta: Tensor, mean: Tensor, slots: Tensor) -> Tensor:
        h = self._precision
        log_density = 0.5 * h.log() - LOG_ROOT_TWO_PI - 0.5 * h * (theta - mean).square()
        return torch.where(slots, log_density, 0.0).sum(-1)

    def _measured(self, theta: Tensor) -> Tensor:
        """Mean curvature of the log joint along each slot that comes and goes, (D,)."""
        places = theta[:: -(-len(theta) // LOOKED_AT)]
        found = self._precision.clone()
        for slot in self._slots.any(0).nonzero()[:, 0].tolist():
            step = STEP * self._scale[slot]
            shift = torch.zeros_like(theta[0])
            shift[slot] = step
            both = torch.cat([places + shift, places - shift])
            up, down = self._gradient(both)[:, slot].double().chunk(2)
            curvature = (down - up).nanmean() / (2 * step)
            if bool(curvature.isfinite()):
                found[slot] = curvature.to(found).clamp(min=self._least[slot])
        return found

    def adapted(self) -> dict[str, Any]:
        return {"precision": self._precision.tolist()}
