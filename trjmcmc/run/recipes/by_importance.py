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
from ...pilot.few_calls import AdaptiveProposal
from ...target.target import Target
from ..stated import Limit

REPEATS = 2  # independent proposals of each model; groups take turns among them

UNSEARCHED = 4  # the same where calls may not suffice for a search

FEWEST, CALLS = 30, 960  # of a proposal, for each coordinate and two more: at first, at most

SHARE = 0.9  # of the calls that a user states, for proposals at most

DRAWN = 400  # posterior draws of each

SURE = 0.1  # nats: standard errors of their evidences with which they will do

APART, ROUNDING = 4.0, 0.05  # standard errors, and nats, that evidences of repeats may differ by


NOTHING = Estimate(-math.inf, math.inf, 0.0)


class Begun(NamedTuple):
    """What proposals have come to, R of each of M models.

    Repeats that have met no possible point are left out.

    Attributes:
        log_mass: Log of p(model) times its evidence, shape (R, M), nats.
        draws: Posterior draws, n of each repeat and model in this order: R M n rows.
        log_weights: Of all draws of each model's proposals, nats.
        good: Whether evidences are known well enough, and repeats agree.
    """

    log_mass: Tensor
    draws: Pool
    log_weights: tuple[Tensor, ...]
    good: bool

    def rows(self, repeat: Tensor, model: Tensor, generator: torch.Generator) -> Tensor:
        """Random rows of some repeats and models, shape (C,)."""
        n = torch.randint(DRAWN, model.shape, generator=generator, device=model.device)
        return (repeat * self.log_mass.shape[1] + model) * DRAWN + n


@torch.no_grad()
def begun(
    target: Target,
    codes: Tensor,
    generator: torch.Generator,
    limit: Limit,
    *,
    repeats: int = REPEATS,
    evaluations: float = math.inf,
) -> Begun:
    """Independent proposals of every model, each refined until it will do.

    Arguments:
        target: The target.
        codes: All models, shape (M, L).
        generator: Source of randomness.
        limit: Until when.
        repeats: Proposals of each; those beyond two are made where two will do and agree.
        evaluations: Likelihood calls of the run.

    Raises:
        UnreachableError: They have met no point where the likelihood is above 0.
    """
    made, left, good = list[AdaptiveProposal](), SHARE * evaluations, True
    for more in (REPEATS, repeats - REPEATS):
        if not good:  # there is nothing to confirm
            break
        fresh = [AdaptiveProposal(target, code, generator) for code in [*codes] * more]
        good, left = _refined([*made, *fresh], len(codes), left, limit)
        if good or not made or (left >= len(fresh) and not limit.passed):  # else it was too late
            made += fresh
    found = [smoothed(each.log_weights()) for each in made]
    log_mass = torch.tensor([e.value for e in found], dtype=torch.float64, device=codes.device)
    log_mass = log_mass.view(-1, len(codes))
    met = (log_mass > -math.inf).any(1)
    if not met.any():
        raise UnreachableError("likelihood: it is 0 wherever proposals have drawn, in every model")
    kept = met.repeat_interleave(len(codes)).tolist()
    made = [each for each, k in zip(made, kept, strict=True) if k]
    draws = [Pool(each.code.expand(DRAWN, -1), *each.resampled(DRAWN)) for each in made]
    weights = [each.log_weights() for each in made]
    by_model = tuple(torch.cat(weights[m :: len(codes)]) for m in range(len(codes)))
    return Begun(log_mass[met], reduce(Pool.joined, draws), by_model, good)


def _refined(
    made: list[AdaptiveProposal], models: int, left: float, limit: Limit
) -> tuple[bool, float]:
    """Refine repeats of all models; whether they will do and agree, and calls that are left."""
    calls = FEWEST
    while True:
        found = [smoothed(e.log_weights()) if e.calls else NOTHING for e in made]
        poor = [not e.std_error < SURE for e in found]
        if not any(poor) and _agree(found, models):
            return True, left
        over = (calls > CALLS and left == math.inf) or left < len(made) or limit.passed
        if over and all(e.calls for e in made):
            return False, left
        some = [each for each, more in zip(made, poor, strict=True) if more or not any(poor)]
        asked = [max(0, calls * (each.dim + 2) - each.calls) for each in some]
        share = min(1.0, max(0.0, left) / max(1, sum(asked)))
        for each, n in zip(some, asked, strict=True):
            before = each.calls
            each.refine(before + max(1, int(share * n)), limit.deadline)
            left -= each.calls - before
        calls *= 2


def _agree(found: list[Estimate], models: int) -> bool:
    """Whether evidences of one repeat are those of the next."""
    for a, b in zip(found, found[models:], strict=False):
        far = APART * math.hypot(a.std_error, b.std_error) + ROUNDING
        if not abs(a.value - b.value) <= far:
            return False
    return True
