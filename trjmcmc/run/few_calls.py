"""Runs whose likelihood calls are few: proposals by importance sampling come first."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace

import torch

from .. import clock
from ..errors import BudgetError
from ..pilot.few_calls import Proposal, adaptive_proposal, as_map
from ..pilot.lost import Screening
from ..result.report import PROPOSALS
from ..target.exchangeable import components_of
from ..target.target import Target
from .knowledge import Knowledge
from .request import Request


def suits(target: Target) -> bool:
    """Whether each model of a target can have a proposal of its own."""
    return target.space.few and target.dim > 0 and not components_of(target)


def are_few(known: Knowledge, calls: int | None) -> bool:
    """Whether so many likelihood calls are better spent on proposals than on a flow."""
    if calls is None or not suits(known.target):
        return False
    return calls <= known.policy.few_calls.most_calls * int(known.target.space.size or 1)


def propose(known: Knowledge, calls: int, seconds: float) -> tuple[Screening, ...] | None:
    """Let evidences and jumps go through proposals that importance sampling has refined.

    Arguments:
        known: What is known of the target; it takes the proposals up.
        calls: Likelihood calls that may be made.
        seconds: Time that is left.

    Returns:
        For each model the draws of the prior that would have met further modes; None where a
        proposal is too poor, so that a flow is better trained if there are calls and time for it.
    """
    target, policy, begun = known.target, known.policy.few_calls, clock.now()
    space = target.space
    codes = space.enumerate()
    possible = space.active(codes).any(-1) & (space.log_prior(codes) > -math.inf)
    models = possible.nonzero()[:, 0].tolist()
    proposals: dict[int, Proposal] = {}
    left = int(policy.share * calls)
    with suppress(BudgetError):
        for place, m in enumerate(models):
            each = left // (len(models) - place)
            deadline = begun + policy.share * seconds * (place + 1) / len(models)
            found = adaptive_proposal(target, codes[m], each, known.generator, policy, deadline)
            proposals[m], left = found, left - found.calls
    known.spending.seconds[PROPOSALS] = clock.now() - begun
    poor = [m for m in models if m not in proposals or proposals[m].share < policy.poor_share]
    late = clock.now() - begun > policy.share * seconds
    if poor and not late and calls > 2 * policy.least_calls * len(models):
        return None
    known.use(as_map(target, proposals))
    labels = space.label(codes)
    return tuple(
        Screening(labels[m], p.prior_draws, 0, 0.0, climbs=False) for m, p in proposals.items()
    )


def calls_in_time(known: Knowledge, seconds: float) -> int | None:
    """Likelihood calls that time allows, where these are what a run spends it on; else None."""
    target, policy = known.target, known.policy.few_calls
    if not math.isfinite(seconds) or not suits(target):
        return None
    seconds_of = []
    # the first call may be slow, and what a batch costs by itself is no price of a call
    for n in (1, 1, 1 + policy.priced_calls):
        codes = target.space.enumerate()[:1].expand(n, -1)
        theta = target.sample_prior(codes, known.generator)
        theta = torch.where(theta.isfinite(), theta, 0.0)
        begun = clock.now()
        with torch.no_grad():
            target.log_joint(codes, theta)
        seconds_of.append(clock.now() - begun)
    price = (seconds_of[2] - seconds_of[1]) / policy.priced_calls
    return int(policy.time_share * seconds / price) if price > policy.seconds_a_call else None


def saving_calls(known: Knowledge, request: Request) -> Request:
    """The request; where calls are expensive, one that saves them."""
    if request.fit != "auto" or request.by or known.ready:
        return request
    calls = calls_in_time(known, request.left())
    if calls is None or not are_few(known, calls):
        return request
    least = known.policy.few_calls.least_calls * int(known.target.space.size or 1)
    calls = max(calls, least)  # a price is a guess: time ends the run, not these
    return replace(request, max_evaluations=calls, fit=True, calls_are_few=True)
