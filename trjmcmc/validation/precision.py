"""Whether float32 says what float64 says."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..promises import ROUNDING_ERROR
from ..target.support import unchecked
from ..target.target import Target
from .finding import Finding
from .places import Place

HOPELESS = 1000.0  # nats below the best point, where what overflows is impossible in truth too

MANY = 0.1  # share of the points of a posterior that rounding must spoil


def check_precision(place: Place, narrow: Target, wide: Target, *, fixed: bool) -> list[Finding]:
    """Evaluate the same points in both precisions.

    Arguments:
        place: Points, of which draws of the posterior are marked.
        narrow, wide: The target in float32 and in float64.
        fixed: Whether the user has asked for float32, so that no run goes on in float64.
    """
    theta = place.theta.float()
    in32, in64 = place.of(narrow), place.of(wide)
    low, _ = _both(in32, theta)
    high, prior = _both(in64, theta.double())
    best = float(high[high.isfinite() & (prior > -math.inf)].max()) if len(high) else -math.inf
    plausible = high.isfinite() & (prior > -math.inf) & (high > best - HOPELESS)
    lost = plausible & ~low.isfinite()
    if bool(lost.any()):
        row = int(lost.int().argmax())
        return [
            Finding(
                "precision",
                "wrong",
                f"float32 overflow in the likelihood of {place.label}: {int(lost.sum())} of "
                f"{int(plausible.sum())} points are {float(low[row])} in float32 and finite in "
                f"float64, one of them {float(high[row]):.6g} at "
                f"{wide.describe(place.code[row], theta[row].double())}. Compute with logarithms "
                "(logsumexp, log_prob), rescale data, or state Target(..., dtype=torch.float64)",
                place.label,
            )
        ]
    seen = place.seen & plausible.cpu()
    gap = (low.double() - high).abs()[seen]
    if len(gap) and float((gap > ROUNDING_ERROR).double().mean()) > MANY:
        then = (
            "state Target(..., dtype=torch.float64)"
            if fixed
            else "runs notice and go on in float64; state it to save the time"
        )
        return [
            Finding(
                "precision",
                "wrong" if fixed else "doubtful",
                f"float32 is too coarse for {place.label}: at posterior draws it is "
                f"{float(gap.median()):.2g} nats off in the median, {float(gap.max()):.2g} at "
                "most. "
                f"{then}",
                place.label,
            )
        ]
    return [Finding("precision", "fine", f"{place.label}: float32 agrees with float64")]


def _both(place: Place, theta: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad(), unchecked():
        found = place.density.evaluate(theta, place.items, False)
        shown = place.density.shown(theta, place.items)
        active = place.density.by_kind(place.items)
        value = place.density.likelihood(shown, len(theta), active)
    return value, found.log_prior
