"""One named parameter: prior density, support, and the bijection to unconstrained slots."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.distributions import (
    ComposeTransform,
    Distribution,
    ExpTransform,
    Independent,
    IndependentTransform,
    MixtureSameFamily,
    StickBreakingTransform,
    Transform,
    TransformedDistribution,
    VonMises,
    biject_to,
    constraints,
)
from torch.nn.functional import logsigmoid, pad

from .errors import NonFiniteError, ShapeError, TargetError
from .grouping import on_host
from .rng import seeded

LOOKED_AT = (-4.0, -1.0, 1.0, 4.0)  # unconstrained values at which a new prior is tried

Params = Mapping[str, Tensor]
PriorSpec = Distribution | Callable[[dict[str, Tensor]], Distribution]


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
        self.name, self.spec, self.items, self.owner = name, spec, items, owner
        if not isinstance(spec, Distribution) and not callable(spec):
            raise TargetError(
                f"prior of {name!r} in {owner}: expected a torch.distributions distribution or a "
                f"function that returns one, got {spec!r}"
            )
        self._fixed: Distribution | None = None
        self._batched = False
        if isinstance(spec, Distribution):
            dist = spec
            batch = tuple(dist.batch_shape)
        else:
            dist, other = (self._call(values) for values in example)
            self._batched = dist.batch_shape[:1] != other.batch_shape[:1]
            batch = tuple(dist.batch_shape[1:] if self._batched else dist.batch_shape)
        _check_distribution(dist, f"prior of {name!r} in {owner}")
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
        transform = _bijector(dist, f"prior of {name!r} in {owner}")
        lead = dist.batch_shape[:1] if self._batched else torch.Size()
        self.u_shape = torch.Size(transform.inverse_shape(lead + self.shape)[len(lead) :])
        self.size = math.prod(self.u_shape)
        if isinstance(spec, Distribution):
            self._set_fixed(dist)
        self._check_density(example[0])

    def _check_density(self, given: Params) -> None:
        """Refuse a density that is NaN inside the support that is stated."""
        n = len(next(iter(given.values()))) if given else 1
        like = self.sample(n, given)
        for u in LOOKED_AT if like.is_floating_point() else ():
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
        self._transform = _onto(_support(self._fixed))
        self._ends = _ends(_support(self._fixed), _some_tensor(self._fixed).dtype)
        self._centre = self._transform(self._origin(1))

    def _origin(self, n: int) -> Tensor:
        like = _some_tensor(self._fixed)
        return torch.zeros(n, *self.u_shape, dtype=like.dtype, device=like.device)

    def _call(self, given: Params) -> Distribution:
        assert not isinstance(self.spec, Distribution)
        dist = self.spec(dict(given))
        if not isinstance(dist, Distribution):
            raise TargetError(
                f"prior of {self.name!r} in {self.owner}: the function must return a "
                f"torch.distributions.Distribution, got {type(dist).__name__}"
            )
        return dist

    @staticmethod
    def called(spec: PriorSpec, given: Params) -> Distribution:
        """The distribution that a prior is, given the parameters before it."""
        return spec if isinstance(spec, Distribution) else spec(dict(given))

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

    def evaluate(self, x: Tensor, given: Params) -> tuple[Tensor, Tensor]:
        """Constrained value and log prior density of unconstrained slots.

        Arguments:
            x: Unconstrained slots, shape (C, size).
            given: Constrained values of the parameters before, each with leading size C.

        Returns:
            The value, shape (C, *shape), and the log density per batch entry with the
            log-Jacobian of the bijection inside, shape (C, *batch_shape), nats. Where rounding
            puts the value on the boundary of the support, or the bijection has stopped changing,
            the density is -inf and the value is replaced by an interior one: there would be a
            ridge without end else.
        """
        u = x.reshape(len(x), *self.u_shape)
        dist = self.distribution(given, len(x))
        fixed = self._fixed is not None
        transform = self._transform if fixed else _onto(_support(dist))
        y = transform(u)
        ends = self._ends if fixed else _ends(_support(dist), y.dtype)
        inside = _interior(_support(dist), ends, u, y)
        if on_host(x) and bool(inside.all()):
            return y, dist.log_prob(y) + transform.log_abs_det_jacobian(u, y)
        inside = _by_entry(_support(dist), inside)
        centre = self._centre if fixed else transform(torch.zeros_like(u))
        value = torch.where(inside.reshape(inside.shape + (1,) * len(dist.event_shape)), y, centre)
        log_density = dist.log_prob(value) + transform.log_abs_det_jacobian(u, y)
        return value, torch.where(inside, log_density, -math.inf)

    def constrain(self, x: Tensor, given: Params) -> Tensor:
        """Value of unconstrained slots, (C, size) -> (C, *shape)."""
        dist = self.distribution(given, len(x))
        value: Tensor = _onto(_support(dist))(x.reshape(len(x), *self.u_shape))
        return value

    def unconstrain(self, value: Tensor, given: Params) -> Tensor:
        """Unconstrained slots of a value, (C, *shape) -> (C, size)."""
        dist = self.distribution(given, len(value))
        x: Tensor = _onto(_support(dist)).inv(value)
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
        on_simplex = self._fixed is not None and _support(self._fixed) is constraints.simplex
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

    def _support_of_entries(self) -> constraints.Constraint | None:
        """Where its numbers lie; None where that depends on other parameters."""
        if self._fixed is None:
            return None
        support = _support(self._fixed)
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
        if isinstance(self.spec, Distribution):
            dist: Distribution = _cast(self.spec, dtype, device)
            new.spec = dist
            new._set_fixed(dist)
        return new


class _OrderedConstraint(constraints.Constraint):
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

    def _pieces(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Log of the share that each entry takes of the rest, and of what it is taken from."""
        n = x.shape[-1]
        left = torch.arange(n, 0, -1, dtype=x.dtype, device=x.device)
        x = x - left.log()
        rest = pad(logsigmoid(-x).cumsum(-1), (1, 0))
        return logsigmoid(x), rest

    def _call(self, x: Tensor) -> Tensor:
        log_share, log_rest = self._pieces(x)
        return (pad(log_share, (0, 1)) + log_rest).exp()

    def _inverse(self, y: Tensor) -> Tensor:
        # what is left after each entry, summed from the far end so that nothing cancels
        left = torch.arange(y.shape[-1] - 1, 0, -1, dtype=y.dtype, device=y.device)
        rest = y.flip(-1).cumsum(-1).flip(-1)[..., 1:]
        return y[..., :-1].log() - rest.log() + left.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        log_share, log_rest = self._pieces(x)
        return (log_share + log_rest[..., 1:]).sum(-1)


@biject_to.register(_OrderedConstraint)
def _biject_to_ordered(constraint: _OrderedConstraint) -> Transform:
    onto_base = IndependentTransform(_onto(constraint.base), 1)
    return ComposeTransform([_Increasing(), onto_base])


class Ordered(Distribution):
    """Order statistics of n independent draws from a scalar distribution.

    The way to say that parameters are increasing (component means, change points, cut points):
    the density is n! times the product of the base densities on increasing vectors.

    Arguments:
        base: A scalar distribution with an increasing bijection onto its support (any interval,
            half-line or the line).
        n: Length of the vector.

    Example:
        >>> from torch.distributions import Uniform
        >>> prior = Ordered(Uniform(0.0, 2.0), 3)
        >>> prior.event_shape, round(float(prior.log_prob(torch.tensor([0.1, 0.5, 1.9]))), 4)
        (torch.Size([3]), -0.2877)
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012 - torch's own convention

    def __init__(self, base: Distribution, n: int) -> None:
        if base.event_shape or n < 1:
            raise TargetError(
                f"Ordered: expected a scalar distribution and n >= 1, got event shape "
                f"{tuple(base.event_shape)} and n={n}"
            )
        onto = _bijector(base, "base of Ordered")(
            torch.tensor([0.0, 1.0]).reshape(2, *[1] * len(base.batch_shape))
        )
        if not bool((onto[1] > onto[0]).all()):
            raise TargetError(
                "Ordered: the base's support is mapped downwards (bounded above only); negate it"
            )
        self.base_dist, self.n = base, n
        super().__init__(base.batch_shape, torch.Size([n]), validate_args=False)

    @property
    def support(self) -> Any:
        return _OrderedConstraint(_support(self.base_dist))

    def expand(self, batch_shape: Any, _instance: Any = None) -> Ordered:
        return Ordered(self.base_dist.expand(batch_shape), self.n)

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        draws: Tensor = self.base_dist.sample((*sample_shape, self.n))
        return draws.movedim(len(sample_shape), -1).sort(-1).values

    def log_prob(self, value: Tensor) -> Tensor:
        each = self.base_dist.log_prob(value.movedim(-1, 0)).sum(0)
        return torch.where(self.support.check(value), each, -math.inf) + math.lgamma(self.n + 1)


@contextmanager
def unchecked() -> Iterator[None]:
    """Switch torch's argument checks off, and back to what they were.

    At the edge of floating point a user's ``Normal(mu, log_sigma.exp())`` meets a scale of 0:
    that must come out as NaN or -inf of one point and not as an exception of the whole batch.
    """
    before = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)


def within_support(new: Distribution, old: Distribution, n: int = 1000) -> bool:
    """Whether draws of one distribution lie in the support of the other."""
    with seeded(0, torch.device("cpu")):
        draws = new.sample((max(1, n // max(1, new.batch_shape.numel())),))
    return bool(_support(old).check(draws).all())


def log_density_of(dist: Distribution, value: Tensor) -> Tensor:
    """Log density of values, -inf outside the support, (n, *shape) -> (n, *batch), nats."""
    log_p: Tensor = dist.log_prob(value)
    inside: Tensor = _support(dist).check(value)
    return torch.where(inside.expand(log_p.shape), log_p, -math.inf)


def _support(dist: Distribution) -> Any:
    """The support; of a mixture that of its components, where it is the same for all.

    torch takes that of a transformed distribution from its last transform alone: the exponential
    of a uniform number would be any positive one.
    """
    if isinstance(dist, MixtureSameFamily):
        component = dist.component_distribution
        if isinstance(vars(type(component)).get("support"), constraints.Constraint):
            return component.support
    if isinstance(dist, Independent):
        return constraints.independent(_support(dist.base_dist), dist.reinterpreted_batch_ndims)
    if type(dist) is not TransformedDistribution:
        return dist.support
    if "_image" not in vars(dist):
        dist._image = _image(dist)  # type: ignore[attr-defined]
    return dist._image  # type: ignore[attr-defined]


def _image(dist: TransformedDistribution) -> Any:
    """What monotone transforms make of an interval or a half-line."""
    base = _support(dist.base_dist)
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
    like = _some_tensor(dist.base_dist)
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


def _check_distribution(dist: Distribution, what: str) -> None:
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
            _check_distribution(inner, what)


def _bijector(dist: Distribution, what: str) -> Transform:
    if isinstance(dist, VonMises):
        raise TargetError(
            f"{what}: VonMises is a density on a circle, its declared support is the whole line; "
            "use Uniform(-pi, pi) and put the density into the likelihood"
        )
    try:
        return _onto(_support(dist))  # knows no discrete support
    except NotImplementedError:
        raise TargetError(
            f"{what}: {type(dist).__name__} has no continuous support that "
            "torch.distributions.biject_to knows. Discrete choices belong into the model index; "
            "for covariance matrices use LKJCholesky and scales"
        ) from None


def _scalar(support: Any) -> Any:
    """The constraint that single numbers of a vector satisfy, where that is all there is."""
    if isinstance(support, _OrderedConstraint):
        return _scalar(support.base)
    if isinstance(support, constraints.independent):
        return _scalar(support.base_constraint)
    return support


def _ends(support: Any, dtype: torch.dtype) -> tuple[Any, Any] | None:
    """Where the bijection onto a bounded interval stops changing: torch clips its sigmoid."""
    support = _scalar(support)
    if not isinstance(support, constraints.interval | constraints.half_open_interval):
        return None
    low, width = support.lower_bound, support.upper_bound - support.lower_bound
    limits = torch.finfo(dtype)
    tiny, one = (torch.tensor(x, dtype=dtype) for x in (limits.tiny, 1 - limits.eps))
    return low + width * tiny, low + width * one  # rounded as the bijection rounds


def _interior(support: Any, ends: tuple[Any, Any] | None, u: Tensor, y: Tensor) -> Tensor:
    """Whether rounding left numbers of ``y`` inside an open support."""
    support, limits = _scalar(support), torch.finfo(y.dtype)
    if support is constraints.simplex:
        fine = y >= limits.tiny  # false for NaN too
    elif isinstance(support, constraints.greater_than | constraints.greater_than_eq):
        fine = (y > support.lower_bound) & (y < math.inf)
    elif ends is not None:
        fine = (y > ends[0]) & (y < ends[1])
    elif support is constraints.corr_cholesky:  # torch clips its tanh
        free = (u.abs() < math.atanh(1 - limits.eps)).all(-1)
        fine = torch.isfinite(y) & free[..., None, None]
    else:
        fine = torch.isfinite(y)
        if support.event_dim == 0:
            fine = fine & support.check(y)
    return fine


def _by_entry(support: Any, inside: Tensor) -> Tensor:
    """Whether that holds of all numbers of a batch entry."""
    lead = inside.dim() - support.event_dim
    return inside.flatten(lead).all(-1) if support.event_dim else inside


def _onto(support: Any) -> Transform:
    """torch's bijection onto a support; exp alone above zero, where torch adds 0 + 1 * y.

    Onto the simplex in logarithms, where torch's clips entries next to 0 and 1.
    """
    if support is constraints.simplex:
        return _StickBreaking()
    half_line = isinstance(support, constraints.greater_than | constraints.greater_than_eq)
    if half_line and isinstance(support.lower_bound, float | int) and support.lower_bound == 0:
        return ExpTransform()
    return biject_to(support)


def _some_tensor(obj: Any) -> Tensor:
    """A floating tensor among a distribution's parameters, to take dtype and device from."""
    for value in vars(obj).values():
        if isinstance(value, Tensor) and value.is_floating_point():
            return value
    for value in vars(obj).values():
        if isinstance(value, Distribution):
            return _some_tensor(value)
    return torch.zeros(())


def _cast(obj: Any, dtype: torch.dtype, device: torch.device) -> Any:
    """Copy distributions, transforms and constraints with their tensors cast and moved."""
    if isinstance(obj, Tensor):
        return obj.to(device, dtype) if obj.is_floating_point() else obj.to(device)
    if isinstance(obj, list | tuple):
        return type(obj)(_cast(item, dtype, device) for item in obj)
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
                new.__dict__[name] = _cast(value, dtype, device)
        if "_inv" in new.__dict__:
            new.__dict__["_inv"] = None
        if isinstance(new, Distribution):
            new.__dict__["_validate_args"] = False  # see `unchecked`
        return new
    return obj
