"""Supports of priors, and the bijections onto them."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.distributions import (
    AffineTransform,
    Beta,
    ComposeTransform,
    Dirichlet,
    Distribution,
    ExpTransform,
    Gamma,
    Independent,
    IndependentTransform,
    LKJCholesky,
    MixtureSameFamily,
    Normal,
    SigmoidTransform,
    StickBreakingTransform,
    Transform,
    TransformedDistribution,
    Uniform,
    VonMises,
    biject_to,
    constraints,
)
from torch.nn.functional import logsigmoid, pad

from ..errors import NonFiniteError, TargetError
from ..priors.fields import Circle
from ..rng import seeded


class OrderedConstraint(constraints.Constraint):
    """Increasing vectors whose entries satisfy a base constraint."""

    event_dim = 1

    def __init__(self, base: Any) -> None:
        self.base = base

    def check(self, value: Tensor) -> Tensor:
        increasing = (value.diff(dim=-1) > 0).all(-1)
        fine: Tensor = increasing & self.base.check(value).all(-1)
        return fine


class _Increasing(Transform):
    """x -> cumulative sums of x_1, exp(x_2), ..., exp(x_n): the line to increasing vectors."""

    domain = constraints.real_vector
    codomain = constraints.real_vector
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        return torch.cat([x[..., :1], x[..., 1:].exp()], -1).cumsum(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return torch.cat([y[..., :1], y.diff(dim=-1).log()], -1)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x[..., 1:].sum(-1)


class _StickBreaking(StickBreakingTransform):
    """torch's bijection onto the simplex, exact for entries down to the smallest number."""

    def log_value(self, x: Tensor) -> Tensor:
        """Logarithms of the entries: each takes a share of what those before it leave."""
        n = x.shape[-1]
        left = torch.arange(n, 0, -1, dtype=x.dtype, device=x.device)
        x = x - left.log()
        return pad(logsigmoid(x), (0, 1)) + pad(logsigmoid(-x).cumsum(-1), (1, 0))

    def _call(self, x: Tensor) -> Tensor:
        return self.log_value(x).exp()

    def _inverse(self, y: Tensor) -> Tensor:
        # what is left after each entry, summed from the far end so that nothing cancels
        left = torch.arange(y.shape[-1] - 1, 0, -1, dtype=y.dtype, device=y.device)
        rest = y.flip(-1).cumsum(-1).flip(-1)[..., 1:]
        return y[..., :-1].log() - rest.log() + left.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.log_value(x).sum(-1)  # of the product of all entries


@biject_to.register(OrderedConstraint)
def _biject_to_ordered(constraint: OrderedConstraint) -> Transform:
    onto_base = IndependentTransform(bijection_onto(constraint.base), 1)
    return ComposeTransform([_Increasing(), onto_base])


_SWITCH = threading.Lock()

_BEFORE: list[bool] = []  # what the checks were, once for each block that they are off in


@contextmanager
def unchecked() -> Iterator[None]:
    """Switch torch's argument checks off, and back to what they were.

    At the edge of floating point a user's ``Normal(mu, log_sigma.exp())`` meets a scale of 0:
    that must come out as NaN or -inf of one point and not as an exception of the whole batch.
    Threads share the switch: it goes back with the last of them.
    """
    with _SWITCH:
        if not _BEFORE:
            _BEFORE.append(Distribution._validate_args)
        else:
            _BEFORE.append(_BEFORE[0])
        Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        with _SWITCH:
            before = _BEFORE.pop()
            Distribution.set_default_validate_args(False if _BEFORE else before)


def within_support(new: Distribution, old: Distribution, n: int = 1000) -> bool:
    """Whether draws of one distribution lie in the support of the other."""
    with seeded(0, torch.device("cpu")):
        draws = new.sample((max(1, n // max(1, new.batch_shape.numel())),))
    return bool(support_of(old).check(draws).all())


def log_density_of(dist: Distribution, value: Tensor) -> Tensor:
    """Log density of values, -inf outside the support, (n, *shape) -> (n, *batch), nats."""
    log_p: Tensor = dist.log_prob(value)
    inside: Tensor = support_of(dist).check(value)
    return torch.where(inside.expand(log_p.shape), log_p, -math.inf)


def support_of(dist: Distribution) -> Any:
    """The support; of a mixture that of its components, where it is the same for all.

    torch takes that of a transformed distribution from its last transform alone: the exponential
    of a uniform number would be any positive one, and of von Mises distributions the whole line.
    """
    if isinstance(dist, VonMises):
        return Circle(-math.pi, math.pi)
    if isinstance(dist, MixtureSameFamily):
        component = dist.component_distribution
        if isinstance(component, VonMises):
            return support_of(component)
        if isinstance(getattr(type(component), "support", None), constraints.Constraint):
            return component.support
    if isinstance(dist, Independent):
        return constraints.independent(support_of(dist.base_dist), dist.reinterpreted_batch_ndims)
    if type(dist) is not TransformedDistribution:
        return dist.support
    if "_image" not in vars(dist):
        dist._image = _image(dist)  # type: ignore[attr-defined]
    return dist._image  # type: ignore[attr-defined]


def _image(dist: TransformedDistribution) -> Any:
    """What monotone transforms make of an interval or a half-line."""
    base = support_of(dist.base_dist)
    low, high = getattr(base, "lower_bound", -math.inf), getattr(base, "upper_bound", math.inf)
    scalar = all(t.bijective and t.codomain.event_dim == 0 for t in dist.transforms)
    known = isinstance(
        base,
        constraints.interval
        | constraints.half_open_interval
        | constraints.greater_than
        | constraints.greater_than_eq
        | constraints.less_than,
    )
    if not scalar or not known or dist.event_shape:
        return dist.support
    like = some_tensor(dist.base_dist)
    ends = [torch.as_tensor(x).to(like) for x in (low, high)]
    for transform in dist.transforms:
        ends = [transform(x) for x in ends]
    low, high = torch.minimum(*ends), torch.maximum(*ends)
    below, above = bool(low.isfinite().all()), bool(high.isfinite().all())
    if below and above:
        return constraints.interval(low, high)
    if below and bool((high == math.inf).all()):
        return constraints.greater_than(low)
    if above and bool((low == -math.inf).all()):
        return constraints.less_than(high)
    return dist.support


def check_distribution(dist: Distribution, what: str) -> None:
    """Refuse parameters that are not finite or break their own constraints.

    Importing zuko switches torch's argument checks off, hence this one.
    """
    low, high = dist.__dict__.get("low"), dist.__dict__.get("high")
    if isinstance(low, Tensor) and isinstance(high, Tensor) and not bool((low < high).all()):
        raise TargetError(f"{what}: low must be below high, got {low.tolist()}, {high.tolist()}")
    for name, constraint in dist.arg_constraints.items():
        value = dist.__dict__.get(name)
        if not isinstance(value, Tensor):
            continue
        fine = torch.isfinite(value).all()
        if not constraints.is_dependent(constraint):
            fine = fine & constraint.check(value).all()
        if not bool(fine):
            raise NonFiniteError(
                f"{what}: {name} of {type(dist).__name__} must be finite and satisfy "
                f"{constraint}, got {value.tolist()}"
            )
    for child in ("base_dist", "component_distribution", "mixture_distribution"):
        if isinstance(inner := dist.__dict__.get(child), Distribution):
            check_distribution(inner, what)


def bijector_of(dist: Distribution, what: str) -> Transform:
    try:
        return bijection_onto(support_of(dist))  # knows no discrete support
    except NotImplementedError:
        raise TargetError(
            f"{what}: {type(dist).__name__} has no continuous support that "
            "torch.distributions.biject_to knows. Discrete choices belong into the model index; "
            "for covariance matrices use LKJCholesky and scales"
        ) from None


def _scalar(support: Any) -> Any:
    """The constraint that single numbers of a vector satisfy, where that is all there is."""
    if isinstance(support, OrderedConstraint):
        return _scalar(support.base)
    if isinstance(support, constraints.independent):
        return _scalar(support.base_constraint)
    return support


def ends_of(support: Any, dtype: torch.dtype) -> tuple[Any, Any] | None:
    """Where the bijection onto a bounded interval stops changing: torch clips its sigmoid."""
    support = _scalar(support)
    if not isinstance(support, constraints.interval | constraints.half_open_interval):
        return None
    low, width = support.lower_bound, support.upper_bound - support.lower_bound
    limits = torch.finfo(dtype)
    tiny, one = (torch.tensor(x, dtype=dtype) for x in (limits.tiny, 1 - limits.eps))
    return low + width * tiny, low + width * one  # rounded as the bijection rounds


def each_entry(support: Any, inside: Tensor) -> Tensor:
    """Whether that holds of all numbers of a batch entry."""
    lead = inside.dim() - support.event_dim
    return inside.flatten(lead).all(-1) if support.event_dim else inside


def bijection_onto(support: Any) -> Transform:
    """torch's bijection onto a support; exp alone above zero, where torch adds 0 + 1 * y.

    Onto the simplex in logarithms, where torch's clips entries next to 0 and 1.
    """
    if support is constraints.simplex:
        return _StickBreaking()
    half_line = isinstance(support, constraints.greater_than | constraints.greater_than_eq)
    if half_line and isinstance(support.lower_bound, float | int) and support.lower_bound == 0:
        return ExpTransform()
    return biject_to(support)


def with_slope(transform: Transform, u: Tensor) -> tuple[Tensor, Tensor]:
    """Value of a bijection, and its log-determinant there.

    Example:
        >>> value, slope = with_slope(bijection_onto(constraints.positive), torch.tensor([2.0]))
        >>> bool(slope == value.log())
        True
    """
    if isinstance(transform, _StickBreaking):
        log_y = transform.log_value(u)
        return log_y.exp(), log_y.sum(-1)
    if type(transform) is ExpTransform:
        return u.exp(), u
    if type(transform) is ComposeTransform and not transform.parts:
        return u, torch.zeros_like(u)
    y = transform(u)
    if (interval := _interval_of(transform)) is not None:  # half of torch's operations
        width = interval[1]
        log_width = width.abs().log() if isinstance(width, Tensor) else math.log(abs(width))
        return y, logsigmoid(u) + logsigmoid(-u) + log_width
    return y, transform.log_abs_det_jacobian(u, y)


class Unconstrained:
    """A distribution as a density of unconstrained coordinates.

    Arguments:
        dist: The distribution.
        dtype: Precision of the coordinates.

    Attributes:
        support, transform: Where its values lie, and the bijection there.

    Example:
        >>> normal = Unconstrained(Normal(0.0, 2.0), torch.float32)
        >>> value, log_density = normal.with_density(torch.zeros(1))
        >>> value.item(), round(log_density.item(), 4)
        (0.0, -1.6121)
    """

    def __init__(self, dist: Distribution, dtype: torch.dtype) -> None:
        self.dist, self.support = dist, support_of(dist)
        self.transform = bijection_onto(self.support)
        self._ends = ends_of(self.support, dtype)
        self._interval = _interval_of(self.transform)
        self._constant = _constant_of(dist)
        self._dtype = dtype

    @property
    def reach(self) -> float | None:
        """Size of coordinates up to which rounding leaves all values inside the support.

        None where that is not known.
        """
        limits = torch.finfo(self._dtype)
        largest = -math.log(limits.tiny)
        if type(self.transform) is ExpTransform:
            return largest
        if isinstance(self.transform, _StickBreaking):
            sticks = max(1, self.dist.event_shape.numel() - 1)  # no share is below their product
            return (largest - math.log(sticks)) / sticks - math.log(2)
        if self._interval is not None:
            low, width = (torch.as_tensor(x).double() for x in self._interval)
            size = float((torch.maximum(low.abs(), (low + width).abs()) / width).max())
            return -math.log(8 * limits.eps * (1 + size))
        return math.inf if _scalar(self.support) is constraints.real else None

    def value(self, u: Tensor) -> tuple[Tensor, None]:
        """The value."""
        if self._interval is None:
            return self.transform(u), None
        low, width = self._interval
        return low + width * u.sigmoid(), None

    def with_density(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """The value, and by batch entry the log density with the log-Jacobian inside.

        Those of some distributions that are met often take half of torch's operations.
        """
        dist, constant = self.dist, self._constant
        if constant is None:
            y, slope = with_slope(self.transform, u)
            return y, dist.log_prob(y) + slope
        if isinstance(dist, Normal):
            return u, constant - 0.5 * ((u - dist.loc) / dist.scale).square()
        if isinstance(dist, Gamma):
            y = u.exp()
            return y, constant + dist.concentration * u - dist.rate * y
        if isinstance(dist, Dirichlet):  # the Jacobian is the product of all entries
            log_y = self.transform.log_value(u)  # type: ignore[attr-defined]
            return log_y.exp(), constant + (dist.concentration * log_y).sum(-1)
        return self.value(u)[0], 2 * logsigmoid(u) - u

    def inside(self, u: Tensor, y: Tensor) -> Tensor:
        """Whether rounding left numbers of ``y``, of coordinates ``u``, inside an open support."""
        support, limits = _scalar(self.support), torch.finfo(y.dtype)
        if support is constraints.simplex:
            return y >= limits.tiny  # false for NaN too
        if isinstance(support, constraints.greater_than | constraints.greater_than_eq):
            return (y > support.lower_bound) & (y < math.inf)
        if self._ends is not None:
            return (y > self._ends[0]) & (y < self._ends[1])
        if support is constraints.corr_cholesky:  # torch clips its tanh
            free = (u.abs() < math.atanh(1 - limits.eps)).all(-1)
            return torch.isfinite(y) & free[..., None, None]
        fine = y.abs() < math.inf
        if support.event_dim == 0 and support is not constraints.real:
            fine = fine & support.check(y)
        return fine


def _interval_of(transform: Transform) -> tuple[Any, Any] | None:
    """Lower end and length of the interval that a sigmoid is stretched to; None of others."""
    if type(transform) is SigmoidTransform:
        return 0.0, 1.0
    if type(transform) is not ComposeTransform or len(transform.parts) != 2:
        return None
    first, second = transform.parts
    if type(first) is not SigmoidTransform or type(second) is not AffineTransform:
        return None
    return second.loc, second.scale


def _constant_of(dist: Distribution) -> Tensor | None:
    """The part of a log density that is the same at all values, of some that are met often."""
    if type(dist) is Uniform:
        return -(dist.high - dist.low).log()
    if type(dist) is Normal:
        return -dist.scale.log() - 0.5 * math.log(2 * math.pi)
    if type(dist) is Gamma:
        return dist.concentration * dist.rate.log() - dist.concentration.lgamma()
    if type(dist) is Dirichlet:
        total = dist.concentration.sum(-1)
        return total.lgamma() - dist.concentration.lgamma().sum(-1)
    return None


def repaired(dist: Distribution) -> Distribution:
    """The same density with draws of it: those of torch's ``LKJCholesky`` are others.

    The square of a row below the diagonal, i entries, has the distribution Beta(i / 2, ...), where
    torch (2.6 to 2.13 at least) draws Beta(i - 1 / 2, ...): right for two dimensions alone.

    Source:
        Lewandowski, Kurowicka & Joe (2009), section 3.2, https://doi.org/10.1016/j.jmva.2009.04.008
    """
    if isinstance(dist, LKJCholesky):
        lkj = copy.copy(dist)
        old = dist._beta
        rows = torch.arange(dist.dim).to(old.concentration1).clamp(min=1)
        own = (rows / 2).expand_as(old.concentration1)
        vars(lkj)["_beta"] = Beta(own, old.concentration0, validate_args=False)
        return lkj
    base = vars(dist).get("base_dist")
    if not isinstance(base, Distribution) or (fine := repaired(base)) is base:
        return dist
    new = copy.copy(dist)
    vars(new)["base_dist"] = fine
    return new


def some_tensor(obj: Any) -> Tensor:
    """A floating tensor among a distribution's parameters, to take dtype and device from."""
    for value in vars(obj).values():
        if isinstance(value, Tensor) and value.is_floating_point():
            return value
    for value in vars(obj).values():
        if isinstance(value, Distribution):
            return some_tensor(value)
    return torch.zeros(())


def cast_to(obj: Any, dtype: torch.dtype, device: torch.device) -> Any:
    """Copy distributions, transforms and constraints with their tensors cast and moved."""
    if isinstance(obj, Tensor):
        return obj.to(device, dtype) if obj.is_floating_point() else obj.to(device)
    if isinstance(obj, list | tuple):
        return type(obj)(cast_to(item, dtype, device) for item in obj)
    if isinstance(obj, torch.nn.Module):
        return copy.deepcopy(obj).to(device, dtype)
    if isinstance(obj, Distribution | Transform | constraints.Constraint):
        new = copy.copy(obj)
        for name, value in vars(obj).items():
            if name == "_inv":
                continue
            if name == "_cached_x_y":
                new.__dict__[name] = (None, None)
            else:
                new.__dict__[name] = cast_to(value, dtype, device)
        if "_inv" in new.__dict__:
            new.__dict__["_inv"] = None
        if isinstance(new, Distribution):
            new.__dict__["_validate_args"] = False  # see `unchecked`
        return new
    return obj
