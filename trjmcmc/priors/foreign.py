"""Distributions of other packages as priors: frozen ones of scipy.stats, and what languages add."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import (
    AffineTransform,
    Beta,
    Cauchy,
    Dirichlet,
    Distribution,
    Exponential,
    Gamma,
    HalfCauchy,
    HalfNormal,
    Laplace,
    LogNormal,
    MultivariateNormal,
    Normal,
    StudentT,
    TransformedDistribution,
    Uniform,
    VonMises,
    Weibull,
    constraints,
)

from ..errors import TargetError
from .fields import LogUniform, Periodic, Rayleigh, TruncatedNormal, between, ended

SLOPE_STEP = 1e-5  # of central differences of a density in SciPy, standard deviations

_READERS: list[tuple[Callable[[Any], bool], Callable[[Any], Distribution]]] = []


def read_with(knows: Callable[[Any], bool], read: Callable[[Any], Distribution]) -> None:
    """Let distributions of another package be priors as they are.

    Arguments:
        knows: Whether something is one of them; must not import the package.
        read: Makes one of torch of it.
    """
    _READERS.append((knows, read))


def is_frozen(spec: Any) -> bool:
    """Whether something is a distribution of another package, with its parameters."""
    module = type(spec).__module__
    if module.startswith("scipy.stats") and hasattr(spec, "rvs"):
        return True
    if _is_bilbys(spec):
        return True
    return any(knows(spec) for knows, _ in _READERS)


def from_elsewhere(spec: Any) -> Distribution:
    """A distribution of another package as one of torch.

    Raises:
        TargetError: It can't be.
    """
    for knows, read in _READERS:
        if knows(spec):
            return read(spec)
    return _from_bilby(spec) if _is_bilbys(spec) else from_scipy(spec)


def from_scipy(frozen: Any) -> Distribution:
    """A frozen distribution of scipy.stats as one of torch.

    Those that torch has become torch's. The others are evaluated by SciPy, on the host, and
    differentiated by central differences.

    Arguments:
        frozen: Continuous, of numbers; or ``multivariate_normal``, ``dirichlet``.

    Raises:
        TargetError: It is discrete, or of other vectors or matrices.

    Example:
        >>> import scipy.stats
        >>> from_scipy(scipy.stats.norm(1.0, 2.0))
        Normal(loc: 1.0, scale: 2.0)
        >>> x = torch.tensor(0.3)
        >>> gap = from_scipy(scipy.stats.gumbel_r()).log_prob(x) - scipy.stats.gumbel_r.logpdf(0.3)
        >>> bool(gap.abs() < 1e-6)
        True
    """
    name = type(frozen).__name__
    if name == "multivariate_normal_frozen":
        cov = torch.as_tensor(np.asarray(frozen.cov))
        return MultivariateNormal(torch.as_tensor(np.asarray(frozen.mean)).to(cov), cov)
    if name == "dirichlet_frozen":
        return Dirichlet(torch.as_tensor(np.asarray(frozen.alpha, dtype=float)))
    kind: Any = getattr(frozen, "dist", None)
    if not hasattr(frozen, "ppf") or not hasattr(kind, "logpdf"):
        raise TargetError(
            f"{name} of scipy.stats: expected a frozen continuous distribution of numbers, "
            "multivariate_normal or dirichlet; discrete choices belong into the model index"
        )
    shapes, loc, scale = kind._parse_args(*frozen.args, **frozen.kwds)
    loc, scale = np.asarray(loc, dtype=float), np.asarray(scale, dtype=float)
    known = _in_torch(kind.name, loc, scale, shapes) if _is_scipys(kind) else None
    return _OfSciPy(frozen) if known is None else known


def _is_bilbys(spec: Any) -> bool:
    """Whether something is a prior of bilby, or of a class of the user's under one of these."""
    return any(base.__module__.startswith("bilby.core.prior") for base in type(spec).__mro__)


_NO_DENSITY = {"Constraint", "DeltaFunction", "DiscreteValues", "JointPrior"}  # of one number


def _from_bilby(prior: Any) -> Distribution:
    """A prior of bilby, of one number, as a distribution of torch.

    Raises:
        TargetError: It is discrete, fixed, a constraint, or depends on other parameters.
    """
    kinds = {base.__name__ for base in type(prior).__mro__}
    if kinds & _NO_DENSITY or hasattr(prior, "condition_func"):
        raise TargetError(
            f"{type(prior).__name__} of bilby: expected a prior of one "
            "continuous number that depends on no other; write others as functions of the "
            "parameters, constraints into the likelihood"
        )
    if prior.boundary == "periodic" and type(prior).__name__ == "Uniform":
        return Periodic(prior.minimum, prior.maximum)
    return _OfSciPy(_AsFrozen(prior))


class _AsFrozen:
    """A prior of bilby with the methods of a frozen distribution of SciPy."""

    def __init__(self, prior: Any) -> None:
        self._prior, self.dist = prior, SimpleNamespace(name=type(prior).__name__)

    def support(self) -> tuple[float, float]:
        return float(self._prior.minimum), float(self._prior.maximum)

    def logpdf(self, value: NDArray[Any]) -> NDArray[Any]:
        found = self._prior.ln_prob(np.ravel(value))
        return np.reshape(found, np.shape(value))

    def ppf(self, value: Any) -> NDArray[Any]:
        found = self._prior.rescale(np.ravel(value))
        return np.reshape(found, np.shape(value))


def _is_scipys(kind: Any) -> bool:
    """Whether a distribution is SciPy's of its name; a subclass of ``rv_continuous`` has any."""
    import scipy.stats

    return type(kind) is type(getattr(scipy.stats, kind.name, None))


def _in_torch(
    name: str, loc: NDArray[Any], scale: NDArray[Any], shapes: Any
) -> Distribution | None:
    """The distribution of this name in torch, or None."""
    at, by = torch.as_tensor(loc), torch.as_tensor(scale)
    some = [torch.as_tensor(np.asarray(x, dtype=float)) for x in shapes]
    if name == "norm":
        return Normal(at, by)
    if name == "uniform":
        return Uniform(at, at + by)
    if name == "cauchy":
        return Cauchy(at, by)
    if name == "laplace":
        return Laplace(at, by)
    if name == "t":
        return StudentT(some[0], at, by)
    if name == "truncnorm":
        return TruncatedNormal(at, by, at + by * some[0], at + by * some[1])
    if name == "beta" and not loc.any() and (scale == 1).all():
        return Beta(some[0], some[1])
    if name in {"loguniform", "reciprocal"} and not loc.any():
        return LogUniform(by * some[0], by * some[1])
    if name == "vonmises":  # SciPy's is periodic on the whole line, where nothing integrates to 1
        if (scale != 1).any():
            raise TargetError(
                "vonmises of scipy.stats: expected scale=1, an angle in radians; state the angle, "
                "and multiply it in the likelihood"
            )
        return VonMises(at, some[0])
    positive: Distribution | None = None
    if name == "expon":
        positive = Exponential(1 / by)
    elif name == "gamma":
        positive = Gamma(some[0], 1 / by)
    elif name == "halfnorm":
        positive = HalfNormal(by)
    elif name == "halfcauchy":
        positive = HalfCauchy(by)
    elif name == "rayleigh":
        positive = Rayleigh(by)
    elif name == "lognorm":
        positive = LogNormal(by.log(), some[0])
    elif name == "weibull_min":
        positive = Weibull(by, some[0])
    if positive is None or not loc.any():
        return positive
    return TransformedDistribution(positive, [AffineTransform(at, torch.ones_like(at))])


class _LogDensity(torch.autograd.Function):
    """A log density in SciPy, with a slope by central differences."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, frozen: Any, step: float) -> Tensor:
        if ctx.needs_input_grad[0]:
            x = value.detach().double()
            up, down = (_logpdf(frozen, x + sign * step) for sign in (1, -1))
            slope = ((up - down) / (2 * step)).nan_to_num(0.0, 0.0, 0.0)
            ctx.save_for_backward(slope.to(value.dtype))
        return _logpdf(frozen, value)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (slope,) = ctx.saved_tensors
        return grads[0] * slope, None, None


def _logpdf(frozen: Any, value: Tensor) -> Tensor:
    found = frozen.logpdf(value.detach().double().cpu().numpy())
    return torch.as_tensor(np.asarray(found)).to(value)


class _OfSciPy(Distribution):
    """A continuous distribution of numbers that SciPy evaluates."""

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(self, frozen: Any, batch_shape: Any = None) -> None:
        low, high = (torch.as_tensor(np.asarray(x, dtype=float)) for x in frozen.support())
        self.frozen, self.low, self.high = frozen, low, high
        self._ends = ended(low), ended(high)
        spread = np.asarray(frozen.ppf(0.75) - frozen.ppf(0.25), dtype=float)
        self._step = SLOPE_STEP * float(spread.min())
        shape = low.shape if batch_shape is None else torch.Size(batch_shape)
        super().__init__(shape, validate_args=False)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Distribution:
        return _OfSciPy(self.frozen, batch_shape)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return between(self.low, self.high, *self._ends)

    def log_prob(self, value: Tensor) -> Tensor:
        found: Tensor = _LogDensity.apply(value, self.frozen, self._step)
        return found

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = torch.rand(self._extended_shape(torch.Size(sample_shape)), dtype=torch.float64)
        found = torch.as_tensor(np.asarray(self.frozen.ppf(u.numpy())))
        return found.to(device=self.low.device, dtype=self.low.dtype)

    def __repr__(self) -> str:
        return f"{self.frozen.dist.name}(...)"
