"""One named parameter: prior density, support, and the bijection to unconstrained slots."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ..errors import ShapeError, TargetError, TRJError
from ..grouping import surely
from ..priors.fields import Circle
from ..priors.foreign import from_elsewhere, is_frozen
from .support import (
    Unconstrained,
    bijection_onto,
    bijector_of,
    cast_to,
    check_distribution,
    each_entry,
    repaired,
    some_tensor,
    support_of,
    unchecked,
    with_slope,
)

TRIED_AT = (-4.0, -1.0, 1.0, 4.0)  # unconstrained values at which a new prior is evaluated

Params = Mapping[str, Tensor]

PriorSpec = Distribution | Callable[[dict[str, Tensor]], Distribution] | Any


class Prior:
    """The prior of one parameter, on constrained values and on unconstrained slots.

    Arguments:
        name: The parameter's name.
        spec: A distribution, or a function of the parameters before it (batched, leading
            size C) that returns one whose batch shape starts with C.
        items: For a parameter with one entry an item, the number of items; the distribution is
            then for one item, or has a batch shape of one entry an item.
        example: Values of the parameters before it, for two batch sizes, to find shapes by.
        owner: What to call the model in messages.

    Attributes:
        shape: Shape of one constrained value.
        size: Unconstrained slots it takes.
        support: Where it lies, as found when it was made.
        reach: Size of its slots up to which values are surely inside; None if nobody knows.
    """

    def __init__(
        self,
        name: str,
        spec: PriorSpec,
        *,
        items: int | None,
        example: tuple[dict[str, Tensor], dict[str, Tensor]],
        owner: str,
    ) -> None:
        self.name, self.items, self.owner = name, items, owner
        self._check_spec(spec)
        try:
            spec = from_elsewhere(spec) if is_frozen(spec) else spec
        except TargetError as error:
            raise TargetError(f"prior of {name!r} in {owner}: {error}") from None
        self.spec = spec = repaired(spec) if isinstance(spec, Distribution) else spec
        self._stated = spec  # unrounded: a copy in float64 of one in float32 is exact
        self._fixed: Distribution | None = None
        self._on_line: Unconstrained | None = None
        self.reach: float | None = None
        self._batched = False
        if isinstance(spec, Distribution):
            dist = spec
            batch = tuple(dist.batch_shape)
        else:
            dist, other = (self._call(values) for values in example)
            self._batched = dist.batch_shape[:1] != other.batch_shape[:1]
            batch = tuple(dist.batch_shape[1:] if self._batched else dist.batch_shape)
        check_distribution(dist, f"prior of {name!r} in {owner}")
        if items is not None:
            if self._batched and not batch:
                raise ShapeError(
                    f"prior of {name!r} in {owner}: expected a batch shape (C, 1) or "
                    f"(C, {items}), got (C,); index the earlier parameters with [:, None]"
                )
            if batch not in {(), (1,), (items,)}:
                raise ShapeError(
                    f"prior of {name!r} in {owner}: expected one entry, or one for each of "
                    f"{items} items, got batch shape {batch}; an item's parameter that is a "
                    "vector needs torch.distributions.Independent"
                )
            batch = (items,)
        self.batch_shape = torch.Size(batch)
        self.shape = self.batch_shape + dist.event_shape
        self.support = support_of(dist)
        transform = bijector_of(dist, f"prior of {name!r} in {owner}")
        lead = dist.batch_shape[:1] if self._batched else torch.Size()
        self.u_shape = torch.Size(transform.inverse_shape(lead + self.shape)[len(lead) :])
        self.size = math.prod(self.u_shape)
        if isinstance(spec, Distribution):
            self._set_fixed(dist)
        self._check_density(example[0])

    def _check_spec(self, spec: PriorSpec) -> None:
        """Refuse what is no prior, and distributions that lack their parameters."""
        bare = isinstance(spec, type) and issubclass(spec, Distribution)
        bare |= is_frozen(spec) and type(spec).__name__.endswith("_gen")  # SciPy's name of these
        if bare or not (isinstance(spec, Distribution) or callable(spec) or is_frozen(spec)):
            name = getattr(spec, "__name__", None) or getattr(spec, "name", "")
            hint = f"; give it parameters: {name}(...)" if bare else ""
            raise TargetError(
                f"prior of {self.name!r} in {self.owner}: expected a distribution of "
                "torch.distributions or trj.priors, a frozen one of scipy.stats, or a function "
                f"that returns one, got {spec!r}{hint}"
            )

    def _check_density(self, given: Params) -> None:
        """Refuse a density that is NaN inside the support that is stated."""
        n = len(next(iter(given.values()))) if given else 1
        like = self.sample(n, given)
        for u in TRIED_AT if like.is_floating_point() else ():
            with unchecked():
                value, log_density = self.evaluate(like.new_full((n, self.size), u), given)
            if bool(log_density.isnan().any()):
                raise TargetError(f"{self.undefined_at(value[0])}; state its support")

    def undefined_at(self, value: Tensor) -> str:
        """What is wrong where the log density of one value is NaN, in words."""
        shown = [f"{v:.6g}" for v in value.flatten().tolist()]
        return (
            f"the prior of {self.name!r} in {self.owner} is NaN at {', '.join(shown)}, inside the "
            "support that its distribution states"
        )

    def _set_fixed(self, dist: Distribution) -> None:
        self._fixed = self._expanded(dist, self.batch_shape)
        self._on_line = Unconstrained(self._fixed, some_tensor(self._fixed).dtype)
        self.reach = self._on_line.reach

    @property
    def fixed(self) -> bool:
        """Whether it does not depend on other parameters."""
        return self._fixed is not None

    def _call(self, given: Params) -> Distribution:
        assert not isinstance(self.spec, Distribution)
        try:
            dist = self.called(self.spec, given)
        except TRJError:
            raise
        except Exception as error:
            raise TargetError(
                f"prior of {self.name!r} in {self.owner}: the function failed, "
                f"{type(error).__name__}: {error}; it is given the parameters before it, "
                f"{sorted(given) or 'none'}"
            ) from error
        if not isinstance(dist, Distribution):
            raise TargetError(
                f"prior of {self.name!r} in {self.owner}: the function must return a "
                f"torch.distributions.Distribution, got {type(dist).__name__}"
            )
        return dist

    @staticmethod
    def called(spec: PriorSpec, given: Params) -> Distribution:
        """The distribution that a prior is, given the parameters before it."""
        spec = from_elsewhere(spec) if is_frozen(spec) else spec
        found = spec if isinstance(spec, Distribution) else spec(dict(given))
        found = from_elsewhere(found) if is_frozen(found) else found
        return repaired(found) if isinstance(found, Distribution) else found

    def distribution(self, given: Params, n: int) -> Distribution:
        """The prior given the parameters before it, batch shape (n, *batch) or (*batch,)."""
        if self._fixed is not None:
            return self._fixed
        return self._expanded(self._call(given), torch.Size((n, *self.batch_shape)))

    def _expanded(self, dist: Distribution, shape: torch.Size) -> Distribution:
        if dist.batch_shape == shape:
            return dist
        try:
            return dist.expand(shape)
        except NotImplementedError:
            raise TargetError(
                f"prior of {self.name!r} in {self.owner}: {type(dist).__name__} has no method "
                f"expand(batch_shape), which is needed to make {tuple(shape)} entries of "
                f"{tuple(dist.batch_shape)}; write one, or give it that batch shape"
            ) from None

    def evaluate(self, x: Tensor, given: Params, sure: bool = False) -> tuple[Tensor, Tensor]:
        """Constrained value and log prior density of unconstrained slots.

        Arguments:
            x: Unconstrained slots, shape (C, size).
            given: Constrained values of the parameters before, each with leading size C.
            sure: Whether no slot is beyond :attr:`reach`.

        Returns:
            The value, shape (C, *shape), and the log density per batch entry with the
            log-Jacobian of the bijection inside, shape (C, *batch_shape), nats. Where rounding
            puts the value on the boundary of the support, or the bijection has stopped changing,
            the density is -inf and the value is replaced by an interior one: there would be a
            ridge without end else.
        """
        return self._reached(x, given, Unconstrained.with_density, sure)

    def placed(self, x: Tensor, given: Params) -> tuple[Tensor, Tensor]:
        """:meth:`evaluate` without the density of the value: what is left is the log-Jacobian.

        Shapes (C, *shape) and (C,), nats; -inf where the value was replaced.
        """
        value, slope = self._reached(x, given, lambda prior, u: with_slope(prior.transform, u))
        return value, slope.reshape(len(x), -1).sum(-1)

    def value(self, x: Tensor, given: Params, sure: bool = False) -> Tensor:
        """The value alone of :meth:`evaluate`, which costs less, shape (C, *shape)."""
        return self._reached(x, given, Unconstrained.value, sure)[0]

    def _reached(
        self, x: Tensor, given: Params, way: Callable[..., tuple[Tensor, Any]], sure: bool = False
    ) -> tuple[Tensor, Any]:
        """Where slots lead; coordinates that do not stay inside the support count as zero."""
        u, on_line = x.reshape(len(x), *self.u_shape), self._on_line
        if on_line is None:
            on_line = Unconstrained(self.distribution(given, len(x)), x.dtype)
        y, log = way(on_line, u)
        if sure or surely(inside := on_line.inside(u, y)):
            return y, log
        inside = each_entry(on_line.support, inside)
        u = torch.where(inside.reshape(inside.shape + (1,) * (u.dim() - inside.dim())), u, 0.0)
        y, log = way(on_line, u)
        return y, log if log is None else torch.where(inside, log, -math.inf)

    def constrain(self, x: Tensor, given: Params) -> Tensor:
        """Value of unconstrained slots, (C, size) -> (C, *shape)."""
        dist = self.distribution(given, len(x))
        value: Tensor = bijection_onto(support_of(dist))(x.reshape(len(x), *self.u_shape))
        return value

    def log_slope(self, x: Tensor, given: Params) -> Tensor:
        """Log-determinant of the bijection to values at unconstrained slots, (C, size) -> (C,)."""
        transform = bijection_onto(support_of(self.distribution(given, len(x))))
        u = x.reshape(len(x), *self.u_shape)
        slope: Tensor = transform.log_abs_det_jacobian(u, transform(u))
        return slope.reshape(len(x), -1).sum(-1)

    def inside(self, value: Tensor, given: Params) -> Tensor:
        """Whether all of a value lies in the support, (C, *shape) -> (C,)."""
        fine: Tensor = support_of(self.distribution(given, len(value))).check(value)
        return fine.reshape(len(value), -1).all(1)

    def unconstrain(self, value: Tensor, given: Params) -> Tensor:
        """Unconstrained slots of a value, (C, *shape) -> (C, size)."""
        dist = self.distribution(given, len(value))
        x: Tensor = bijection_onto(support_of(dist)).inv(value)
        return x.reshape(len(value), self.size)

    def sample(self, n: int, given: Params) -> Tensor:
        """Prior draws from torch's global generator, shape (n, *shape)."""
        if self._fixed is not None:
            return self._fixed.sample((n,))
        return self.distribution(given, n).sample()

    @property
    def kind(self) -> str:
        """``"entries"``, ``"simplex"`` or ``"other"``: what a vector is made of."""
        if len(self.shape) != 1:
            return "other"
        if self.shape == self.batch_shape and self.size == self.shape[0]:
            return "entries"
        on_simplex = self._fixed is not None and support_of(self._fixed) is constraints.simplex
        return "simplex" if on_simplex and self.size == self.shape[0] - 1 else "other"

    @property
    def positive(self) -> bool:
        """Whether it is of numbers on the half-line above zero, fixed in advance."""
        support = self._support_of_entries()
        lower = getattr(support, "lower_bound", None)
        half_line = isinstance(support, constraints.greater_than | constraints.greater_than_eq)
        return half_line and bool(torch.as_tensor(lower == 0).all())

    @property
    def bounded(self) -> bool:
        """Whether it is of numbers with a largest or a smallest one, fixed in advance."""
        support = self._support_of_entries()
        return support is not None and support is not constraints.real

    @property
    def periodic(self) -> bool:
        """Whether it is of numbers on a circle, fixed in advance."""
        return isinstance(self._support_of_entries(), Circle)

    @property
    def turn(self) -> tuple[float, float] | None:
        """Where its circle begins and ends; None where it has none, or entries differ."""
        support = self._support_of_entries()
        if not self.periodic or not isinstance(support, constraints.interval):
            return None
        low, high = (torch.as_tensor(x) for x in (support.lower_bound, support.upper_bound))
        if not (bool((low == low.max()).all()) and bool((high == high.max()).all())):
            return None
        return float(low.max()), float(high.max())

    def _support_of_entries(self) -> constraints.Constraint | None:
        """Where its numbers lie; None where that depends on other parameters."""
        if self._fixed is None:
            return None
        support = support_of(self._fixed)
        while isinstance(support, constraints.independent):
            support = support.base_constraint
        return support

    def typical(self, given: Params) -> Tensor:
        """Median log density of a few prior draws by batch entry; -inf if none is usable."""
        n = len(next(iter(given.values()))) if given else 5
        with unchecked():
            x = self.unconstrain(self.sample(n, given), given)
            log_density = self.evaluate(x, given)[1]
        return log_density.nan_to_num(-math.inf, -math.inf, -math.inf).median(0).values

    def to(self, dtype: torch.dtype, device: torch.device) -> Prior:
        """A copy with every tensor cast and moved."""
        new = copy.copy(self)
        if isinstance(self._stated, Distribution):
            dist: Distribution = cast_to(self._stated, dtype, device)
            new.spec = dist
            new._set_fixed(dist)
        return new
