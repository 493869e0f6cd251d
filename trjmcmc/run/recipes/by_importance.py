"""Where a list begins whose evaluations are dear: mixtures that importance sampling refines."""

from __future__ import annotations

import math
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from ...draws import Pool
from ...estimate.estimate import Estimate
from ...estimate.importance import smoothed
from ...pilot.few_calls import adaptive_proposal
from ...target.target import Target
from .base import Limit

REPEATS = 2  # independent proposals of each model; groups take turns among them

CALLS = 250  # of a proposal, for each coordinate and two more; twice as many of a second one

WEIGHED = 500  # draws of a proposal that weigh its model, and that chains begin at

GOOD = 0.3  # effective draws, over these, from which a proposal will do: a posterior like normals

APART, ROUNDING = 4.0, 0.05  # standard errors, and nats, that evidences of repeats may differ by


class Begun(NamedTuple):
    """What proposals have come to, R of each of M models.

    Attributes:
        log_mass: Log of p(model) times its evidence, shape (R, M), nats.
        draws: Posterior draws, n of each repeat and model in this order: R M n rows.
    """

    log_mass: Tensor
    draws: Pool

    def rows(self, repeat: Tensor, model: Tensor, generator: torch.Generator) -> Tensor:
        """Random rows of some repeats and models, shape (C,)."""
        n = torch.randint(WEIGHED, model.shape, generator=generator, device=model.device)
        return (repeat * self.log_mass.shape[1] + model) * WEIGHED + n


@torch.no_grad()
def begun(target: Target, codes: Tensor, generator: torch.Generator, limit: Limit) -> Begun | None:
    """Independent proposals of every model; None where one is poor, two differ, or time is up.

    Arguments:
        target: The target.
        codes: All models, shape (M, L).
        generator: Source of randomness.
        limit: Until when.
    """
    each, draws = list[Estimate](), list[Pool]()
    for code in [*codes] * REPEATS:
        for calls in (CALLS, 2 * CALLS):  # one in fifty falls short by chance
            found, pool = _weighed(target, code, calls, generator, limit)
            if limit.passed or found.ess > GOOD * WEIGHED:
                break
        if limit.passed or not found.ess > GOOD * WEIGHED:
            return None
        each, draws = [*each, found], [*draws, pool]
    first, second = each[: len(codes)], each[len(codes) :]
    for a, b in zip(first, second, strict=True):
        if abs(a.value - b.value) > APART * math.hypot(a.std_error, b.std_error) + ROUNDING:
            return None
    log_mass = torch.tensor([e.value for e in each], dtype=torch.float64, device=codes.device)
    return Begun(log_mass.view(REPEATS, -1), reduce(Pool.joined, draws))


def _weighed(
    target: Target, code: Tensor, calls: int, generator: torch.Generator, limit: Limit
) -> tuple[Estimate, Pool]:
    """Log of p(model) times its evidence by a proposal, and posterior draws."""
    used = target.space.active(code[None])[0]
    theta = torch.zeros(WEIGHED, target.dim, dtype=target.dtype, device=target.device)
    log_q = theta.new_zeros(WEIGHED, dtype=torch.float64)
    if used.any():
        calls *= int(used.sum()) + 2
        normals = adaptive_proposal(target, code, calls, generator, deadline=limit.deadline).normals
        x = normals.sample(WEIGHED, generator)
        theta[:, used], log_q = x.to(theta), normals.log_prob(x)
    log_joint = target.log_joint(code.expand(WEIGHED, -1), theta).double()
    log_weight = log_joint - log_q
    weights = log_weight.softmax(0).nan_to_num(1.0)  # none where all are impossible
    rows = torch.multinomial(weights, WEIGHED, True, generator=generator)
    return smoothed(log_weight), Pool(code.expand(WEIGHED, -1), theta[rows], log_joint[rows])
