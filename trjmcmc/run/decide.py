"""What a run decides while it warms up: functions of measurements, prices and seconds left.

Nothing here measures, moves a chain or reads a clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

from .policy import ChainPolicy, ChoicePolicy, Policy, RoundPolicy, SegmentPolicy
from .policy_of_capture import CapturePolicy
from .segment import Segment

Names = tuple[str, ...]  # of moves between models that take turns

Worth = Callable[[Segment], float]


def seconds_to_precision(found: Segment, error: float) -> float:
    """Seconds of sampling until a probability of one half is known to a standard error.

    Example:
        >>> quick = Segment(efficiency=500.0, time=4.0, step=0.01, varied=True, steps=40)
        >>> seconds_to_precision(quick, 0.01)
        5.0
    """
    needed = 0.25 / error**2 if found.varied else 0.0
    return needed / found.efficiency if found.efficiency else (math.inf if needed else 0.0)


def seconds_until_done(found: Segment, error: float, times: float) -> float:
    """Seconds of sampling until a probability is precise and all has forgotten its start.

    Arguments:
        found: What was measured of a kernel.
        error: Standard error that is wanted.
        times: Autocorrelation times, of what is slowest, that a run has to be long.

    Example:
        >>> found = Segment(500.0, time=4.0, step=0.01, varied=True, steps=400, memory=50.0)
        >>> seconds_until_done(found, 0.01, 20.0)  # of which precision takes five
        10.0
    """
    return max(seconds_to_precision(found, error), times * found.memory * found.step)


def seconds_saved(found: Segment, hoped: float, wait: float) -> float:
    """Seconds by which an efficiency that is hoped for would shorten a wait.

    Arguments:
        found: The best kernel so far.
        hoped: Effective draws a second of a better one.
        wait: Seconds of sampling ahead with the best kernel so far.
    """
    if not found.varied:
        return 0.0
    better = max(hoped, found.efficiency)
    return wait * (1 - found.efficiency / better) if better else 0.0


def leader(
    found: Mapping[Names, Segment],
    combined: Names | None,
    moves: ChoicePolicy,
    worth: Worth = lambda found: found.efficiency,
) -> Names:
    """The moves that are worth most; all useful ones in turn win unless clearly worse.

    Arguments:
        found: By names of moves that took turns, their segment.
        combined: The names of all useful moves, if they have been measured together.
        moves: The policy.
        worth: What a segment is worth, in effective draws a second.
    """

    def rank(names: Names) -> float:
        return worth(found[names]) / (moves.combined_share if names == combined else 1.0)

    return max(found, key=rank)


def useful_moves(
    found: Mapping[Names, Segment], names: Collection[str], moves: ChoicePolicy
) -> Names:
    """All moves whose efficiency is a share of the best one's."""
    first = max(names, key=lambda name: found[name,].efficiency)
    least = moves.useful_share * found[first,].efficiency
    return tuple(n for n in names if found[n,].efficiency > least)


def longer_segment(
    found: Segment, *, room: float, ahead: float, error: float, policy: Policy
) -> int | None:
    """Steps of another segment of the leading moves; None where one is not needed or too long.

    Arguments:
        found: Their last segment.
        room: Seconds left for choice, training and warm-up.
        ahead: Steps that the run will make.
        error: Standard error that is wanted.
        policy: The policy.
    """
    segments = policy.segments
    steps = 2 * found.steps
    patience = min(
        policy.training.round_share * room,
        max(segments.share_of_sampling * seconds_to_precision(found, error), segments.most_seconds),
        max(1.0, ahead * found.step),
    )
    known = not found.varied or is_trusted(found, segments)
    if known or steps > segments.most_steps or steps * found.step > patience:
        return None
    return steps


def is_trusted(found: Segment, segments: SegmentPolicy) -> bool:
    """Whether a segment is so many autocorrelation times long that it can be relied on."""
    return found.steps > segments.trusted_autocorrelation_times * found.time


def clearly_best(
    found: Mapping[Names, Segment], best: Names, combined: Names | None, segments: SegmentPolicy
) -> bool:
    """Whether the best moves would still be the best if their segment overstated them."""
    now = found[best]
    if best != combined or now.steps < segments.least_autocorrelation_times * now.time:
        return False
    return now.efficiency >= segments.overstatement * max(rivals(found, best), default=0.0)


def rivals(found: Mapping[Names, Segment], best: Names) -> list[float]:
    """Efficiencies of moves that have nothing in common with the best."""
    return [f.efficiency for names, f in found.items() if not set(names) & set(best)]


def burn_in(
    found: Segment, *, room: float, times: float, moves: ChoicePolicy, segments: SegmentPolicy
) -> int:
    """Steps of the chosen kernel until the chains have forgotten where they were.

    Arguments:
        found: Its segment; where that can be relied on, its steps count.
        room: Seconds left for choice, training and warm-up.
        times: Autocorrelation times that burn-in takes.
        moves, segments: The policy.
    """
    most = min(segments.most_steps, moves.burn_in_share * room / max(found.step, 1e-12))
    done = found.steps if is_trusted(found, segments) else 0
    return int(max(0.0, min(times * found.time - done, most)))


def step_shares(rest: int, moves: ChoicePolicy) -> list[float]:
    """Shares of the steps: of the chosen moves, then of each that was not."""
    return [1 - moves.least_share * rest] + [moves.least_share] * rest


def no_time_to_train(room: float, priced: bool, training: RoundPolicy) -> bool:
    """Whether a first round of the cheapest steps, and their pricing, would take too much time."""
    least = least_seconds_of_a_round(training.first_round_steps, priced, training)
    return training.round_share * room < least


def least_seconds_of_a_round(steps: int, priced: bool, training: RoundPolicy) -> float:
    """Seconds of so many of the cheapest training steps, and of pricing one if that is not done."""
    pricing = 0.0 if priced else training.pricing_seconds
    return steps * training.least_step_seconds + pricing


def seconds_to_meet_models(price: float, steps: int, training: RoundPolicy) -> float:
    """Seconds that a map needs for models that are new to it, in some steps of its training.

    Arguments:
        price: Seconds that a new model costs the map.
        steps: Training steps.
        training: The policy.
    """
    return price * training.new_models_a_step * steps


def sampling_ends_first(wait: float, training: RoundPolicy) -> bool:
    """Whether sampling will be over before the fastest first round of training."""
    return wait < training.first_round_steps * training.least_step_seconds


def hope_after_a_round(now: float, last: float) -> float:
    """Efficiency hoped of another round: its relative gain is that of the last one, 2 at most."""
    return now * min(2.0, now / last if last else 2.0)


def may_have_more_chains(
    found: Segment | None, chains: ChainPolicy, segments: SegmentPolicy
) -> bool:
    """Whether more chains could pay: their burn-in needs an autocorrelation time to be trusted."""
    if found is None or not found.varied or found.step > chains.busy_step_seconds:
        return False
    return is_trusted(found, segments)


def chains_of_memory(free: int, taken: int, chains: int, policy: ChainPolicy) -> int:
    """Chains that the memory of a device holds.

    Arguments:
        free: Bytes that are free beside what a step takes.
        taken: Bytes that a step of some chains took at its peak.
        chains: How many these were.
        policy: The policy.

    Example:
        >>> chains_of_memory(70 * 2**30, taken=2**20, chains=256, policy=ChainPolicy())
        14680064
    """
    each = max(1, taken // chains)
    return max(1, int(policy.memory_share * free) // each)


def number_of_chains(now: int, ends: Mapping[int, float], chains: ChainPolicy) -> int:
    """As many as there are if these end nearly as soon as the soonest; else the nearest that do.

    Arguments:
        now: Chains that there are.
        ends: By number of chains, seconds until the run would end.
        chains: The policy.

    Example:
        >>> number_of_chains(256, {256: 10.0, 512: 6.0, 1024: 5.8}, ChainPolicy())
        512
        >>> number_of_chains(256, {64: 5.0, 128: 5.1, 256: 10.0}, ChainPolicy())
        128
    """
    soonest = min(ends.values())
    near = [n for n, end in ends.items() if chains.relative_wait * end <= soonest]
    return min((n for n in near if n >= now), default=max(near))


def capture_pays(
    price: float, hoped: float, now: float, ahead: float, policy: CapturePolicy
) -> bool:
    """Whether another way to make steps is sure to give more of them in the time ahead.

    Of the seconds ahead the price is lost, and each of the others makes ``now / hoped`` times the
    steps: together more, if the price is less than the share ``1 - hoped / now`` of them.

    Arguments:
        price: Seconds until steps are made so.
        hoped: Seconds of such a step, as they are counted on.
        now: Seconds of a step as it is made now.
        ahead: Seconds of steps ahead.
        policy: How many times the price has to be saved.

    Example:
        >>> from .policy_of_capture import CapturePolicy
        >>> policy = CapturePolicy(margin=1.5)
        >>> [capture_pays(2.0, 0.001, 0.002, ahead, policy) for ahead in (5.0, 7.0)]
        [False, True]
    """
    return policy.margin * price <= (1 - hoped / now) * ahead


def worth_having(now: float, before: float, policy: CapturePolicy) -> bool:
    """Whether steps that take so many seconds are to be preferred to those before."""
    return now <= policy.gain * before
