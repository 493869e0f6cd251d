"""Chains from the prior to the posterior, through all models at once."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .. import clock
from ..kernel.base import Kernel, State, start
from ..pilot.generation import systematic
from ..pilot.smc import next_step
from ..target.tempered import Tempered
from .count import Tally
from .policy import CarryPolicy


def carry(
    target: Tempered,
    state: State,
    kernel: Kernel,
    generator: torch.Generator,
    tally: Tally,
    deadline: float = math.inf,
    policy: CarryPolicy | None = None,
) -> tuple[Kernel, State, Tensor]:
    """Raise the likelihood's power from 0 to 1, choosing chains by weight and moving them.

    Chains that the prior has left in a corner are dropped on the way, not carried along for
    ever. What comes out is near the posterior, and a start of a run, no more.

    Arguments:
        target: The target, tempered; its power is 1 afterwards, even if this is interrupted.
        state: Draws from the prior over models and parameters.
        kernel: Moves the chains and is built on the tempered target; it learns at each step.
        generator: Source of randomness.
        tally: Counts what is accepted.
        deadline: Time by :func:`trjmcmc.clock.now` by which the power has to be 1; then it rises as
            fast as it must.
        policy: How many steps each power has.

    Returns:
        The kernel that has learned, the chains, and the row of ``state`` that each descends from,
        shape (chain,).

    Source:
        CarryPolicy across dimensions: Jasra, Doucet, Stephens & Holmes (2008),
        https://doi.org/10.1016/j.csda.2007.09.009; steps: Jasra et al. (2011),
        https://doi.org/10.1111/j.1467-9469.2010.00723.x
    """
    policy = CarryPolicy() if policy is None else policy
    n, power, seconds, steps = len(state.code), 0.0, 0.0, policy.least_steps
    ancestor = torch.arange(n, device=state.code.device)
    try:
        with torch.no_grad():
            while power < 1:
                begun = clock.now()
                _, value = target.target.log_prior_and_likelihood(state.code, state.theta)
                value = value.double()[None]
                now = torch.full_like(value[:, :1], power)
                step = float(
                    next_step(value, (value > -math.inf).double(), now, policy.kept_chains)
                )
                left = (deadline - begun) / seconds if seconds else math.inf
                if left <= 1:
                    step = 1 - power
                elif power:
                    step = max(step, power ** (1 - 1 / left) - power)
                power = 1.0 if power + step > 1 - 1e-9 else power + step
                pick = systematic((step * value).softmax(1), n, generator)[0]
                ancestor = ancestor[pick]
                target.temper(power)
                state = start(target, state.code[pick], state.theta[pick])
                for _ in range(steps):
                    if clock.now() > deadline:
                        break
                    kernel, state, infos = kernel.adapt(state, generator)
                    tally.add(infos)
                tally.check()
                seconds = clock.now() - begun
                pace, room = seconds / steps, max(0.0, deadline - clock.now())
                least = max(policy.least_steps, room / (policy.planned_powers * max(pace, 1e-12)))
                steps = int(min(policy.steps, least))
                seconds = steps * pace
    finally:
        target.temper(1.0)  # whatever has interrupted it
    return kernel.frozen(), start(target, state.code, state.theta), ancestor
