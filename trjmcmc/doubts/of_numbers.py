"""What speaks against numbers: digits that are lost, and densities that overflow."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ..estimate.indicator import ModelIndicator
from ..promises import ROUNDING_ERROR
from ..target.resolution import EXAMINED, resolution_doubts
from ..target.target import Target
from .doubt import COMMON_PROBABILITY, DRAWS, EVERY, Doubt


def unresolved(target: Target | None, indicator: ModelIndicator) -> dict[str, str]:
    """By model label, parameters that the precision of draws does not resolve, in words.

    Arguments:
        target: On the CPU; None where it is not known.
        indicator: Which model each draw is in.
    """
    theta = indicator.draws.theta
    if target is None or target.dtype != theta.dtype:
        return {}
    codes = torch.stack([target.space.code_of(m) for m in indicator.most_visited[:EXAMINED]])
    return resolution_doubts(target, codes, torch.as_tensor(indicator.place), theta)


def of_resolution(
    coarse: Mapping[str, str], indicator: ModelIndicator, before: str = ""
) -> list[Doubt]:
    """Models with parameters that the precision of draws does not resolve.

    Arguments:
        coarse: As of :func:`unresolved`.
        indicator: Which model each draw is in.
        before: What was not resolved before there were draws, in words.
    """
    found = [Doubt(EVERY, before, kind="resolution")] if before and not coarse else []
    for label, words in coarse.items():
        common = indicator.inside(label).mean() > COMMON_PROBABILITY
        found.append(Doubt(label, words, kind="resolution", against=DRAWS if common else ""))
    return found


def of_rounding(log_joint: Tensor, changed: str) -> list[Doubt]:
    """Log densities that lose digits which matter.

    Arguments:
        log_joint: Of draws, nats.
        changed: Models whose log densities rounding changed before sampling, and by how much.
    """
    dtype, size = log_joint.dtype, float(log_joint.abs().median())
    lost = torch.finfo(dtype).eps * size
    single = dtype != torch.float64
    if lost > ROUNDING_ERROR:
        words = f"of size {size:.3g} by {lost:.2g} nats in {dtype}"
        remedy = (
            f"{'Use dtype=torch.float64, or leave' if single else 'Leave'} constants out of the "
            "log likelihood (they cancel if all models leave out the same)"
        )
    elif changed:
        words = f"of {changed}"
        first = "Use dtype=torch.float64" if single else "Make sure that it returns float64 numbers"
        remedy = (
            f"{first}, {'or' if single else 'and'} write the likelihood so that large numbers do "
            "not cancel (differences from the data's mean, not sums of squares)"
        )
    else:
        return []
    return [Doubt(EVERY, words, lost, remedy, kind="rounding")]


def of_reweighting(subject: str, ess: float, n: int, k: float) -> Doubt:
    """Weights of n draws that leave few effective ones, with a tail of Pareto shape k."""
    shape = f" (Pareto k {k:.2f})" if math.isfinite(k) else ""
    where = "all models" if subject == EVERY else repr(subject)
    words = f"{ess:.0f} effective draws of {n} in {where}{shape}"
    return Doubt(subject, words, math.nan, "Run again with the new prior", kind="prior")


def of_overflows(overflows: int, evaluations: int) -> list[Doubt]:
    """Points of so many evaluations at which a likelihood was NaN or +inf far out in the tail."""
    words = (
        f"{overflows} of {evaluations} points, far out in the tail of the prior, had a likelihood "
        "of NaN or +inf, or parameters whose square overflows"
    )
    remedy = "The answer stands unless the posterior lies there: return finite values or -inf"
    return [Doubt(EVERY, words, math.nan, remedy, kind="overflow")]
