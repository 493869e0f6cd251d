"""All that can be asked of a model without simulating data."""

from __future__ import annotations

import torch

from ..doubts.doubt import Doubt
from ..errors import TargetError, TRJError
from ..interop.check import check_priors
from ..interop.check_points import check_slopes
from ..result.result import Result
from ..rng import host_number, seeded
from ..target.support import unchecked
from ..target.target import Target
from .asked import Asked, Skipped
from .components import check_exchange, check_masks
from .places import Points, places
from .precision import check_precision
from .rows import check_rows

SLOPES = 12  # points at which gradients are compared


def check_statements(
    target: Target, result: Result | None, generator: torch.Generator, asked: Asked
) -> None:
    """Rows, priors, gradients, precision, components and masks of every likelihood.

    Arguments:
        target: The target.
        result: Of a run on it; None leaves out the posterior's points.
        generator: Source of randomness.
        asked: Takes what is found.
    """
    wide, narrow = _in(target, torch.float64), _in(target, torch.float32)
    fixed = not target.is_precision_open and target.dtype == torch.float32
    for place in places(wide or target, result, generator):
        asked.ask("rows", check_rows, place)
        asked.ask("prior", check_prior, place)
        asked.ask("gradient", check_gradient, place)
        asked.ask("components", check_exchange, place)
        asked.ask("mask", check_masks, place, host_number(generator))
        asked.ask("precision", check_precision, place, narrow, wide, fixed)


def _in(target: Target, dtype: torch.dtype) -> Target | None:
    try:
        return target.to(dtype=dtype)
    except TRJError:
        return None


def check_prior(place: Points) -> list[Doubt]:
    """Draws of each prior, against its density."""
    if not place.density.blocks:
        return []
    try:
        with seeded(0, place.theta.device), torch.no_grad(), unchecked():
            check_priors(place.density, "log_prob")
    except TargetError as error:
        words = f"{error}. Is a Jacobian forgotten in log_prob, or a constant?"
        return [Doubt(place.label, words)]
    return []


def check_gradient(place: Points) -> list[Doubt]:
    """Gradients against differences; wrong ones cost speed, never correctness."""
    if not place.density.differentiable or not place.density.blocks:
        raise Skipped(f"{place.label}: no gradients")
    spaced = torch.linspace(0, len(place.theta) - 1, min(SLOPES, len(place.theta))).round().long()
    items = None if place.items is None else place.items[spaced]
    try:
        with unchecked():
            check_slopes(place.density, place.theta[spaced], "torch", items)
    except TargetError as error:
        words = f"{error}. Answers stay right, and take longer. Is there a detach() or a round()?"
        return [Doubt(place.label, words, grave=False)]
    return []
