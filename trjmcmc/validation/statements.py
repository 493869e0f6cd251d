"""All that can be asked of a model without simulating data."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..errors import TargetError, TRJError
from ..interop.check import check_priors
from ..interop.check_points import check_slopes
from ..result.result import Result
from ..rng import host_number, seeded
from ..target.support import unchecked
from ..target.target import Target
from .components import check_exchange, check_masks
from .finding import Finding
from .places import Place, places
from .precision import check_precision
from .rows import check_rows

SLOPES = 12  # points at which gradients are compared


def check_statements(
    target: Target,
    result: Result | None,
    generator: torch.Generator,
) -> list[Finding]:
    """Rows, priors, gradients, precision, components and masks of every likelihood.

    Arguments:
        target: The target.
        result: Of a run on it; None leaves out the posterior's points.
        generator: Source of randomness.
    """
    wide, narrow = _in(target, torch.float64), _in(target, torch.float32)
    best = wide or target
    found: list[Finding] = []
    for place in places(best, result, generator):
        found.append(_or_failed("rows", place, check_rows))
        found.append(_prior(place))
        found.append(_slopes(place))
        found += _each("components", place, check_exchange)
        seed = host_number(generator)
        found += _each("mask", place, lambda p, seed=seed: check_masks(p, seed))  # type: ignore[misc]
        if wide is not None and narrow is not None:
            fixed = not target.is_precision_open and target.dtype == torch.float32
            found += _each(
                "precision",
                place,
                lambda p, fixed=fixed: check_precision(p, narrow, wide, fixed=fixed),  # type: ignore[misc]
            )
        else:
            words = f"{place.label}: its data are of one precision only"
            found.append(Finding("precision", "not checked", words, place.label))
    return found


def _in(target: Target, dtype: torch.dtype) -> Target | None:
    try:
        return target.to(dtype=dtype)
    except TRJError:
        return None


def _each(check: str, place: Place, function: Callable[[Place], list[Finding]]) -> list[Finding]:
    try:
        return function(place)
    except TRJError as error:
        return [Finding(check, "not checked", f"{place.label}: {error}", place.label)]


def _or_failed(check: str, place: Place, function: Callable[[Place], Finding]) -> Finding:
    return _each(check, place, lambda p: [function(p)])[0]


def _prior(place: Place) -> Finding:
    """Draws of each prior, against its density."""
    if not place.density.blocks:
        return Finding("prior", "fine", f"{place.label}: no parameters")
    try:
        with seeded(0, place.theta.device), torch.no_grad(), unchecked():
            check_priors(place.density, "log_prob")
    except TargetError as error:
        words = f"{error}. Is a Jacobian forgotten in log_prob, or a constant?"
        return Finding("prior", "wrong", words, place.label)
    return Finding("prior", "fine", f"{place.label}: draws of priors follow their densities")


def _slopes(place: Place) -> Finding:
    """Gradients against differences; wrong ones cost speed, never correctness."""
    if not place.density.differentiable or not place.density.blocks:
        return Finding("gradient", "not checked", f"{place.label}: no gradients")
    spaced = torch.linspace(0, len(place.theta) - 1, min(SLOPES, len(place.theta))).round().long()
    items = None if place.items is None else place.items[spaced]
    try:
        with unchecked():
            check_slopes(place.density, place.theta[spaced], "torch", items)
    except TargetError as error:
        words = f"{error}. Answers stay right, and take longer. Is there a detach() or a round()?"
        return Finding("gradient", "doubtful", words, place.label)
    return Finding("gradient", "fine", f"{place.label}: gradients agree with differences")
