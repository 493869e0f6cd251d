"""Where a list begins whose evaluations are dear: mixtures that importance sampling refines."""

from __future__ import annotations

import math
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from ...draws import Pool
from ...errors import UnreachableError
from ...estimate.estimate import Estimate
from ...estimate.importance import smoothed
from ...pilot.few_calls import adaptive_proposal
from ...target.target import Target
from ..stated import Limit

REPEATS = 2  # independent proposals of each model; groups take turns among them

UNSEARCHED = 4  # the same where nothing else meets a lost mode

FEWEST, CALLS = 30, 480  # of a proposal, for each coordinate and two more: at first, and at most

SHARE = 0.35  # of the calls that a user states, for first proposals and their weights

WEIGHED, LEAST_WEIGHED = 100, 20  # draws that weigh a model at first, and of few calls at least

GOOD = 0.3  # effective draws, over a hundred or more, from which a proposal will do

APART, ROUNDING = 4.0, 0.05  # standard errors, and nats, that evidences of repeats may differ by


class Begun(NamedTuple):
    """What proposals have come to, R of each of M models.

    Repeats that have met no possible point are left out.

    Attributes:
        log_mass: Log of p(model) times its evidence, shape (R, M), nats.
        draws: Posterior draws, n of each repeat and model in this order: R M n rows.
        good: Whether each proposal is close, and repeats agree.
    """

    log_mass: Tensor
    draws: Pool
    good: bool

    def rows(self, repeat: Tensor, model: Tensor, generator: torch.Generator) -> Tensor:
        """Random rows of some repeats and models, shape (C,)."""
        each = len(self.draws.code) // self.log_mass.numel()
        n = torch.randint(each, model.shape, generator=generator, device=model.device)
        return (repeat * self.log_mass.shape[1] + model) * each + n


def sizes(target: Target, codes: Tensor, evaluations: int | None) -> tuple[int, int]:
    """Likelihood calls of first proposals, for each coordinate and two more, and of weights.

    Arguments:
        target: The target.
        codes: All models, shape (M, L).
        evaluations: Of the run, where a user states them.
    """
    if evaluations is None:
        return FEWEST, WEIGHED
    each = int(SHARE * evaluations / (REPEATS * len(codes)))  # of a proposal and its weights
    coordinates = float(target.space.active(codes).sum(1).double().mean()) + 2
    weighed = max(LEAST_WEIGHED, each // 2)
    return min(CALLS, max(1, int((each - weighed) / coordinates))), weighed


@torch.no_grad()
def begun(
    target: Target,
    codes: Tensor,
    calls: int,
    weighed: int,
    generator: torch.Generator,
    limit: Limit,
    repeats: int = REPEATS,
) -> Begun:
    """Independent proposals of every model.

    Arguments:
        target: The target.
        codes: All models, shape (M, L).
        calls: Of a proposal, for each coordinate and two more.
        weighed: Draws that weigh a model, and that chains begin at.
        generator: Source of randomness.
        limit: Until when; proposals are poor after it.
        repeats: Proposals of each; those beyond two are made where two are close and agree.

    Raises:
        UnreachableError: They have met no point where the likelihood is above 0.
    """
    n, found, good = weighed, list[tuple[Estimate, Pool]](), True
    for more in (REPEATS, repeats - REPEATS):
        if not good:  # there is nothing to confirm
            break
        found += [_weighed(target, code, calls, n, generator, limit) for code in [*codes] * more]
        each = [estimate for estimate, _ in found]
        good = n >= WEIGHED and all(e.ess > GOOD * n for e in each) and not limit.passed
        for a, b in zip(each, each[len(codes) :], strict=False):  # of one repeat and the next
            far = APART * math.hypot(a.std_error, b.std_error) + ROUNDING
            good &= abs(a.value - b.value) <= far
    log_mass = torch.tensor([e.value for e in each], dtype=torch.float64, device=codes.device)
    log_mass = log_mass.view(-1, len(codes))
    met = (log_mass > -math.inf).any(1)
    if not met.any():
        raise UnreachableError("likelihood: it is 0 wherever proposals have drawn, in every model")
    kept = met.repeat_interleave(len(codes)).tolist()
    draws = reduce(Pool.joined, (pool for (_, pool), k in zip(found, kept, strict=True) if k))
    return Begun(log_mass[met], draws, good)


def _weighed(
    target: Target, code: Tensor, calls: int, n: int, generator: torch.Generator, limit: Limit
) -> tuple[Estimate, Pool]:
    """Log of p(model) times its evidence by n draws of a proposal, and n posterior draws."""
    used = target.space.active(code[None])[0]
    theta = torch.zeros(n, target.dim, dtype=target.dtype, device=target.device)
    log_q = theta.new_zeros(n, dtype=torch.float64)
    if used.any():
        calls *= int(used.sum()) + 2
        normals = adaptive_proposal(target, code, calls, generator, deadline=limit.deadline).normals
        x = normals.sample(n, generator)
        theta[:, used], log_q = x.to(theta), normals.log_prob(x)
    log_joint = target.log_joint(code.expand(n, -1), theta).double()
    log_weight = log_joint - log_q
    weights = log_weight.softmax(0).nan_to_num(1.0)  # none where all are impossible
    rows = torch.multinomial(weights, n, True, generator=generator)
    return smoothed(log_weight), Pool(code.expand(n, -1), theta[rows], log_joint[rows])
