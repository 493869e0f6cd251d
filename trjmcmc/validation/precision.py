"""Whether float32 says what float64 says."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..doubts.doubt import Doubt
from ..promises import ROUNDING_ERROR
from ..target.support import unchecked
from ..target.target import Target
from .asked import Skipped
from .places import Points

HOPELESS = 1000.0  # nats below the best point, where what overflows is impossible in truth too

MANY = 0.1  # share of the points of a posterior that rounding must spoil


def check_precision(
    place: Points, narrow: Target | None, wide: Target | None, fixed: bool
) -> list[Doubt]:
    """Evaluate the same points in both precisions.

    Arguments:
        place: Points, of which draws of the posterior are marked.
        narrow, wide: The target in float32 and in float64, where it can be.
        fixed: Whether the user has asked for float32, so that no run goes on in float64.
    """
    if narrow is None or wide is None:
        raise Skipped(f"{place.label}: its data are of one precision only")
    theta = place.theta.float()
    in32, in64 = place.of(narrow), place.of(wide)
    low, _ = _both(in32, theta)
    high, prior = _both(in64, theta.double())
    best = float(high[high.isfinite() & (prior > -math.inf)].max()) if len(high) else -math.inf
    plausible = high.isfinite() & (prior > -math.inf) & (high > best - HOPELESS)
    lost = plausible & ~low.isfinite()
    if bool(lost.any()):
        row = int(lost.int().argmax())
        words = (
            f"float32 overflow in the likelihood of {place.label}: {int(lost.sum())} of "
            f"{int(plausible.sum())} points are {float(low[row])} in float32 and finite in "
            f"float64, one of them {float(high[row]):.6g} at "
            f"{wide.describe(place.code[row], theta[row].double())}"
        )
        remedy = (
            "Compute with logarithms (logsumexp, log_prob), rescale data, or state "
            "Target(..., dtype=torch.float64)"
        )
        return [Doubt(place.label, words, remedy=remedy)]
    seen = place.seen & plausible.cpu()
    gap = (low.double() - high).abs()[seen]
    if not len(gap) or not float((gap > ROUNDING_ERROR).double().mean()) > MANY:
        return []
    words = (
        f"float32 is too coarse for {place.label}: at posterior draws it is "
        f"{float(gap.median()):.2g} nats off in the median, {float(gap.max()):.2g} at most"
    )
    remedy = "State Target(..., dtype=torch.float64)"
    if not fixed:
        remedy = "Runs notice and go on in float64; state it to save the time"
    return [Doubt(place.label, words, float(gap.max()), remedy, grave=fixed)]


def _both(place: Points, theta: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad(), unchecked():
        found = place.density.evaluate(theta, place.items, False)
        shown = place.density.shown(theta, place.items)
        active = place.density.by_kind(place.items)
        value = place.density.likelihood(shown, len(theta), active)
    return value, found.log_prior
