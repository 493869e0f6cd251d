"""Where a list begins whose evaluations are dear: climbs, and mixtures that importance refines."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from ...draws import Pool
from ...errors import BudgetError, UnreachableError
from ...estimate.estimate import Estimate
from ...estimate.importance import smoothed
from ...fit.summits import Summits
from ...pilot.few_calls import AdaptiveProposal
from ...target.target import Target
from ..asked import Limit

REPEATS = 2  # independent proposals of each model; groups take turns among them

FEW_CLIMBS, CLIMBS = 8, 512  # from prior draws of each model: at first, in all

LONELY = 4  # times as many in the end, while one alone has met a summit that matters

AGAIN = 3  # refinements in the end, while some draws have far more than the mean weight

CLIMBED = 8000  # evaluations of the climbs of a model at most, unless more climbs are asked for

PLANTED = 0.3  # of the calls that are left, for draws about summits

FIRST = 2  # climbs of a model, of which the others learn what one takes

CLIMBING, FROM_DRAWS = 0.4, 0.1  # of the calls that a user states, for climbs from prior draws at
# most, and for those from draws of far more than the mean weight

LEAST = (
    15  # calls of a proposal, for each coordinate and two more, from which its error is believed
)

FEWEST = 30  # calls of a proposal, for each coordinate and two more, at first

SOME, CALLS = 120, 960  # the same at most, before all climbs are made and after

SHARE, LAST = 0.85, 0.3  # of the calls that a user states, for proposals at most; of these, for
# the draws that no fit sees

MOST_SPREAD = 5.0  # standard deviation of weights over their mean, above which it does not count

DRAWN = 400  # posterior draws of each

AIM, SURE = 0.04, 0.1  # nats: standard errors of their evidences that are aimed at, that will do

MORE = 1.2  # times the draws that an error asks for

APART, ROUNDING = 4.0, 0.05  # standard errors, and nats, that evidences of repeats may differ by


NOTHING = Estimate(-math.inf, math.inf, 0.0)


class Begun(NamedTuple):
    """What proposals have come to, R of each of M models.

    Repeats that have met no possible point are left out.

    Attributes:
        log_mass: Log of p(model) times its evidence, shape (R, M), nats.
        draws: Posterior draws, n of each repeat and model in this order: R M n rows.
        log_weights: Of draws of each model's proposals that no fit has seen, nats.
        climbs: From prior draws of each model with parameters.
        good: Whether evidences are known well enough, and repeats agree. Of models of which no draw
            is possible they are 0.
    """

    log_mass: Tensor
    draws: Pool
    log_weights: tuple[Tensor, ...]
    climbs: tuple[int, ...]
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
    climbs: int = CLIMBS,
    evaluations: float = math.inf,
) -> Begun:
    """Independent proposals of every model, each refined until it will do.

    They begin from draws of the prior and of normals about the summits that some climbs have met.
    Then twice as many climbs follow, and what these have met is drawn from as well, and so on.

    Arguments:
        target: The target.
        codes: All models, shape (M, L).
        generator: Source of randomness.
        limit: Until when.
        climbs: From prior draws of each model.
        evaluations: Likelihood calls of the run.

    Raises:
        UnreachableError: They have met no point where the likelihood is above 0.
    """
    made = [AdaptiveProposal(target, code, generator) for code in [*codes] * REPEATS]
    summits = [Summits(target, each.code, generator) for each in made[: len(codes)]]
    some = [s for s, each in zip(summits, made, strict=False) if each.dim]
    most = CLIMBING * evaluations
    most = min(most, CLIMBED * len(some)) if climbs <= CLIMBS else most
    number, again, planted = FEW_CLIMBS, AGAIN, [0] * len(made)
    account = target.account
    before = account.evaluations
    with account.held_to((1 - LAST) * SHARE * evaluations), suppress(BudgetError):
        while True:
            whole = number >= climbs
            for i, s in enumerate(some):
                left = (most - sum(x.evaluations for x in some)) / (len(some) - i)
                _climbed(s, number, LONELY * number if whole else number, limit, left)
            _plant(made, summits, planted, limit)
            _refine(made, len(codes), AIM if whole else SURE, limit)
            outlying = [*_outlying(made, summits)]
            again -= whole
            if limit.passed or (whole and not (outlying and again)):
                break
            left = most + FROM_DRAWS * evaluations - sum(x.evaluations for x in some)
            for s, x in outlying if left > 0 else ():
                s.climb_from(x, limit.deadline, s.evaluations + left / len(outlying))
            number = min(2 * number, climbs)
    with account.held_to(SHARE * evaluations - account.evaluations + before), suppress(BudgetError):
        _plant(made, summits, planted, limit)  # what the last climbs have met
        _weigh(made, limit)
    for each in made:
        if not each.calls:
            each.refine(2)
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
    known = [smoothed(w) for w in by_model]
    sure = all(e.std_error < SURE for e in known if e.value > -math.inf)
    good = sure and _agree(found, len(codes))
    never = (log_mass == -math.inf).all(0).tolist()
    climbed = tuple(
        number if n else s.climbs for s, n in zip(summits, never, strict=True) if s in some
    )
    return Begun(log_mass[met], reduce(Pool.joined, draws), by_model, climbed, good)


def _climbed(summits: Summits, enough: int, most: int, limit: Limit, left: float) -> None:
    """Climb until so many climbs were made, at most more while one alone has met what matters."""
    last = summits.evaluations + left
    while summits.climbs < (most if summits.lonely else enough) and not limit.passed:
        before, n = summits.climbs, FIRST
        if before:
            affordable = (last - summits.evaluations) * before / summits.evaluations
            n = int(min(enough - before if before < enough else before, affordable))
        if n < 1:
            break
        summits.climb(n, limit.deadline, last)
        if summits.climbs == before:  # none has come to its end
            break


def _plant(
    made: list[AdaptiveProposal], summits: list[Summits], planted: list[int], limit: Limit
) -> None:
    """Draw about summits that climbs have met since, as ``planted`` counts their evaluations."""
    for k, each in enumerate(made):
        s = summits[k % len(summits)]
        if planted[k] < s.evaluations and not limit.passed:
            planted[k] = s.evaluations
            each.plant(s.normals, PLANTED * each.target.account.left / len(made))


def _weigh(made: list[AdaptiveProposal], limit: Limit) -> None:
    """Spend stated calls that are left on draws that no fit sees, most where weights vary most.

    Those that all repeats together know well enough draw no more: chains have use for the calls.
    """
    aim = AIM * REPEATS**0.5
    account = made[0].target.account
    if not math.isfinite(account.left):
        return
    found = [smoothed(each.log_weights()) if each.calls else NOTHING for each in made]
    spread = [e.std_error * max(1, x.unseen) ** 0.5 for e, x in zip(found, made, strict=True)]
    asked = [min(s, MOST_SPREAD) if s == s else MOST_SPREAD for s in spread]
    known = [
        not x.dim or e.value == -math.inf or e.std_error < aim
        for x, e in zip(made, found, strict=True)
    ]
    asked = [0.0 if k else a for a, k in zip(asked, known, strict=True)]
    calls = account.left / max(sum(asked), 1e-9)
    for each, share, e in zip(made, asked, found, strict=True):
        n, sure = int(calls * share), e.std_error < SURE
        n = min(n, _needed(each, e, aim)) if sure else n
        each.refine(each.calls + n, limit.deadline, fit=each.unseen < n and not sure)


def _outlying(
    made: list[AdaptiveProposal], summits: list[Summits]
) -> Iterator[tuple[Summits, Tensor]]:
    """Draws of each proposal of far more than the mean weight, beside the model's summits."""
    for k, each in enumerate(made):
        if each.dim and len(x := each.outliers):
            yield summits[k % len(summits)], x


def _refine(made: list[AdaptiveProposal], models: int, aim: float, limit: Limit) -> None:
    """Refine repeats of all models until they will do and agree.

    Those whose evidences are nearly known are fitted no more: what they draw then weighs models.
    """
    calls, account = FEWEST, made[0].target.account
    while True:
        found = [smoothed(e.log_weights()) if e.calls else NOTHING for e in made]
        left = account.left
        unknown = [each.unseen < LEAST * (each.dim + 2) and each.dim > 0 for each in made]
        sure = [e.std_error < SURE and not u for e, u in zip(found, unknown, strict=True)]
        asked = [
            max(0, _needed(each, e, aim) if s else calls * (each.dim + 2) - each.calls)
            for each, e, s in zip(made, found, sure, strict=True)
        ]
        over = calls > (CALLS if aim < SURE else SOME) or left < 2 * len(made) or limit.passed
        told = all(sure) and not any(asked) and _agree(found, models)
        if told or (over and all(e.calls for e in made)):
            return
        if all(sure) and not any(asked):  # they disagree
            asked = [max(1, calls * (each.dim + 2) - each.calls) for each in made]
        share = min(1.0, left / max(1, sum(asked)))
        for each, n, s in zip(made, asked, sure, strict=True):
            if n or not s:
                each.refine(each.calls + max(2, int(share * n)), limit.deadline, fit=not s)
        calls *= 2


def _needed(proposal: AdaptiveProposal, found: Estimate, aim: float) -> int:
    """Draws that it takes until an evidence is known as well as that, by draws no fit has seen."""
    if found.std_error < aim or not proposal.dim:
        return 0
    return math.ceil(proposal.unseen * (MORE * (found.std_error / aim) ** 2 - 1))


def _agree(found: list[Estimate], models: int) -> bool:
    """Whether evidences of one repeat are those of the next, as far as their errors are known."""
    error = [SURE if math.isnan(e.std_error) else e.std_error for e in found]
    for i, (a, b) in enumerate(zip(found, found[models:], strict=False)):
        far = APART * math.hypot(error[i], error[i + models]) + ROUNDING
        if a.value != b.value and not abs(a.value - b.value) <= far:
            return False
    return True
