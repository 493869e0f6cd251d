"""Supports of PyMC's distributions as constraints of torch, by the transforms they come with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import constraints

from ..priors.fields import Circle
from .bridge import through
from .pymc_calls import Call, WithProduct
from .pymc_graph import over_points
from .pymc_refuse import all_before, no_order, no_support

Support = Any | Callable[[Mapping[str, Tensor]], Any]


def support_of(
    name: str, rv: Any, transform: Any, parents: Mapping[str, Any], dtype: torch.dtype
) -> tuple[Support, bool]:
    """The support of a variable, and whether its entries are in ascending order.

    Arguments:
        name: Of the model.
        rv: The variable.
        transform: The one that the model has for it, or None.
        parents: By name, variables that it depends on.
        dtype: Precision of bounds.

    Returns:
        A constraint of its numbers (of its events, where these are no numbers), or a function of
        its parents' values that gives one.

    Raises:
        TargetError: torch has no such support.
    """
    from pymc.distributions import transforms as known
    from pymc.logprob import transforms as base

    natural = _default(rv)
    parts = getattr(transform, "transform_list", [transform])
    ordered = [t for t in parts if isinstance(t, known.Ordered)]
    if ordered:
        if not all(t.ascending for t in ordered) or rv.owner.op.ndim_supp or not rv.ndim:
            raise no_order(name, rv.name)
        transform = natural
    elif transform is None:
        transform = natural
    if transform is None:
        return _real(rv.owner.op.ndim_supp), bool(ordered)
    if isinstance(transform, base.LogTransform | known.LogExpM1):
        return constraints.positive, bool(ordered)
    if isinstance(transform, base.LogOddsTransform):
        return constraints.unit_interval, bool(ordered)
    if isinstance(transform, base.SimplexTransform) and not ordered:
        return constraints.simplex, False
    if isinstance(transform, base.CircularTransform) and not ordered:
        return Circle(-math.pi, math.pi), False
    if isinstance(transform, base.IntervalTransform):
        return _interval(name, rv, transform, parents, dtype), bool(ordered)
    raise no_support(name, rv.name, transform)


def _default(rv: Any) -> Any:
    from pymc.distributions.transforms import _default_transform

    return _default_transform(rv.owner.op, rv)


def _real(event_dim: int) -> Any:
    return constraints.independent(constraints.real, event_dim) if event_dim else constraints.real


def _interval(
    name: str, rv: Any, transform: Any, parents: Mapping[str, Any], dtype: torch.dtype
) -> Support:
    """Bounds that are numbers, or a function of parents."""
    import pytensor.tensor as pt

    shape = tuple(rv.type.shape)
    low, high = transform.args_fn(*rv.owner.inputs)
    ends: list[Any] = [-np.inf if low is None else low, np.inf if high is None else high]
    ends = [pt.cast(pt.as_tensor(x), rv.dtype) for x in ends]
    before = set(all_before(ends))
    some = [p for p in parents.values() if p in before]
    if not some:
        found = Call([], ends, "numpy")()
        low, high = (torch.as_tensor(np.array(x)).to(dtype) for x in found)
        return _between(name, rv, transform, low, high)
    given = [pt.tensor(f"{p.name}_given", dtype=p.dtype, shape=(None, *p.type.shape)) for p in some]
    batched = [
        x.dimshuffle(0, *["x"] * (len(shape) - x.ndim + 1), *range(1, x.ndim))
        for x in over_points(ends, dict(zip(some, given, strict=True)))
    ]
    calls = [WithProduct(given, x) for x in batched]
    return _Bounds(name, rv, transform, [p.name for p in some], calls)


class _Bounds:
    """An interval whose ends depend on other parameters, and move with them."""

    def __init__(
        self, name: str, rv: Any, transform: Any, parents: Sequence[str], calls: Sequence[Any]
    ) -> None:
        self.name, self.rv, self.transform = name, rv, transform
        self.parents, self.calls = list(parents), list(calls)

    def __call__(self, given: Mapping[str, Tensor]) -> Any:
        values = [given[p] for p in self.parents]
        low, high = (through(call, values) for call in self.calls)
        return _between(self.name, self.rv, self.transform, low, high)


def _between(name: str, rv: Any, transform: Any, low: Tensor, high: Tensor) -> Any:
    below, above = low.isfinite(), high.isfinite()
    if bool(below.all()) and bool(above.all()):
        return constraints.interval(*_plain(low, high))
    if bool(below.all()) and not bool(above.any()):
        return constraints.greater_than(*_plain(low))
    if bool(above.all()) and not bool(below.any()):
        return constraints.less_than(*_plain(high))
    if not bool(below.any()) and not bool(above.any()):
        return constraints.real
    raise no_support(name, rv.name, transform)


def _plain(*ends: Tensor) -> list[Any]:
    """Numbers where all entries have the same: casts and comparisons are simpler."""
    return [float(x) if not x.dim() else x for x in ends]
