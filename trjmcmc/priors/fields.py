"""Priors that fields use beside those of torch.distributions."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import (
    Beta,
    ComposeTransform,
    Distribution,
    ExpTransform,
    Normal,
    Uniform,
    biject_to,
    constraints,
)
from torch.distributions.utils import broadcast_all

from ..errors import TargetError
from ..grouping import on_host

KIPPING = (0.867, 3.03)  # shape of the eccentricities of planets found by radial velocities


class _LogInterval(constraints.interval):
    """An interval of positive numbers, whose logarithm is what a chain walks in."""


@biject_to.register(_LogInterval)
def _biject_to_log_interval(support: Any) -> ComposeTransform:
    low, high = (torch.as_tensor(x).log() for x in (support.lower_bound, support.upper_bound))
    return ComposeTransform([biject_to(constraints.interval(low, high)), ExpTransform()])


class Circle(constraints.interval):
    """An interval whose two ends are the same place: walks go around."""


@biject_to.register(Circle)
def _biject_to_circle(support: Any) -> Any:
    return biject_to(constraints.interval(support.lower_bound, support.upper_bound))


def ended(end: Any) -> bool:
    """Whether there is such an end, which is infinite where there is none."""
    return bool(torch.as_tensor(end).isfinite().all())


def between(low: Tensor, high: Tensor, below: bool, above: bool) -> Any:
    """The numbers between two ends, each of which there may be none of."""
    if below and above:
        return constraints.interval(low, high)
    if below:
        return constraints.greater_than(low)
    return constraints.less_than(high) if above else constraints.real


class _Univariate(Distribution):
    """A distribution of numbers by its quantile function; parameters are tensors of one shape."""

    def __init__(self, **parameters: Any) -> None:
        values = broadcast_all(*parameters.values())
        for name, value in zip(parameters, values, strict=True):
            setattr(self, name, value)
        self._names = list(parameters)
        super().__init__(values[0].shape, validate_args=False)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Distribution:
        new = self._get_checked_instance(type(self), _instance)
        vars(new).update(vars(self))
        for name in self._names:
            setattr(new, name, getattr(self, name).expand(batch_shape))
        Distribution.__init__(new, torch.Size(batch_shape), validate_args=False)
        return new

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        like = getattr(self, self._names[0])
        u = torch.rand(
            self._extended_shape(torch.Size(sample_shape)), dtype=like.dtype, device=like.device
        )
        return self.icdf(u)


def _out_of_order(sound: Tensor) -> bool:
    """Whether parameters are not sound; a device, on which steps make priors, is not asked."""
    return on_host(sound) and not bool(sound.all())


class LogUniform(_Univariate):
    """Uniform in the logarithm: p(x) proportional to 1 / x from low to high.

    Arguments:
        low, high: Ends, in the unit of x; 0 < low < high.

    Raises:
        TargetError: Ends out of order, or not positive.

    Example:
        >>> round(float(LogUniform(1.0, 100.0).log_prob(torch.tensor(10.0)).exp()), 5)
        0.02171
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "low": constraints.positive,
        "high": constraints.positive,
    }
    low: Tensor
    high: Tensor

    def __init__(self, low: Any, high: Any) -> None:
        super().__init__(low=low, high=high)
        if _out_of_order((self.low > 0) & (self.low < self.high)):
            raise TargetError(f"LogUniform: expected 0 < low < high, got {low} and {high}")

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return _LogInterval(self.low, self.high)

    def log_prob(self, value: Tensor) -> Tensor:
        return -value.log() - (self.high / self.low).log().log()

    def icdf(self, value: Tensor) -> Tensor:
        return self.low * (self.high / self.low) ** value


class ModifiedJeffreys(_Univariate):
    """Uniform well below a scale, and in the logarithm above: p(x) proportional to 1 / (x + scale).

    Arguments:
        scale: Where it bends, in the unit of x.
        high: Upper end; the lower one is 0.

    Raises:
        TargetError: A number that is not positive.

    Source:
        Amplitudes of planets: Gregory (2005), https://doi.org/10.1086/432594

    Example:
        >>> round(float(ModifiedJeffreys(1.0, 999.0).log_prob(torch.tensor(9.0)).exp()), 5)
        0.01448
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "scale": constraints.positive,
        "high": constraints.positive,
    }
    scale: Tensor
    high: Tensor

    def __init__(self, scale: Any, high: Any) -> None:
        super().__init__(scale=scale, high=high)
        if _out_of_order((self.scale > 0) & (self.high > 0)):
            raise TargetError(
                f"ModifiedJeffreys: expected a positive scale and end, got {scale} and {high}"
            )

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.interval(torch.zeros_like(self.high), self.high)

    def log_prob(self, value: Tensor) -> Tensor:
        return -(value + self.scale).log() - torch.log1p(self.high / self.scale).log()

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * torch.expm1(value * torch.log1p(self.high / self.scale))


class TruncatedNormal(_Univariate):
    """A normal cut at one end or both, right far out in a tail too.

    Arguments:
        loc, scale: Mean and standard deviation of the whole normal.
        low, high: Ends; infinite where there is none.

    Raises:
        TargetError: Ends out of order, or a scale that is not positive.

    Example:
        >>> x = TruncatedNormal(0.0, 1.0, low=8.0).sample((1000,))
        >>> bool((x >= 8).all()), bool(x.mean() < 8.2)
        (True, True)
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    loc: Tensor
    scale: Tensor
    low: Tensor
    high: Tensor

    def __init__(
        self,
        loc: Any,
        scale: Any,
        low: Any = -math.inf,
        high: Any = math.inf,
    ) -> None:
        super().__init__(loc=loc, scale=scale, low=low, high=high)
        self._ends_known = ended(low), ended(high)
        if _out_of_order((self.low < self.high) & (self.scale > 0)):
            raise TargetError(
                f"TruncatedNormal: expected low < high and a positive scale, got {low}, {high} and "
                f"{scale}"
            )

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return between(self.low, self.high, *self._ends_known)

    def _ends(self) -> tuple[Tensor, Tensor, Tensor]:
        """Standardised ends in float64 on the side where tails are exact, and that side."""
        low, high = ((x.double() - self.loc) / self.scale for x in (self.low, self.high))
        side = torch.where(low > 0, -1.0, 1.0).double()
        return torch.where(side > 0, low, -high), torch.where(side > 0, high, -low), side

    def log_prob(self, value: Tensor) -> Tensor:
        low, high, _ = self._ends()
        below, above = torch.special.log_ndtr(low), torch.special.log_ndtr(high)
        log_mass = above + torch.log1p(-(below - above).exp())
        return Normal(self.loc, self.scale).log_prob(value) - log_mass.to(value.dtype)

    def icdf(self, value: Tensor) -> Tensor:
        low, high, side = self._ends()
        u = torch.where(side > 0, value.double(), 1 - value.double())
        below, above = torch.special.log_ndtr(low), torch.special.log_ndtr(high)
        log_p = torch.logaddexp(torch.log1p(-u) + below, u.log() + above)
        z = _quantile_of_normal(log_p).clamp(low, high)
        found = self.loc + self.scale * side * z
        return found.to(value.dtype).clamp(self.low, self.high)


def _quantile_of_normal(log_p: Tensor) -> Tensor:
    """Of log probabilities, float64, exact in the lower tail: a guess and Newton's steps."""
    z = torch.special.ndtri(log_p.exp())
    far = -(-2 * log_p).clamp(min=1.0).sqrt()
    z = torch.where(z.isfinite(), z, far)
    tail = log_p < -30.0
    for _ in range(8):
        log_cdf = torch.special.log_ndtr(z)
        log_pdf = -0.5 * z.square() - 0.5 * math.log(2 * math.pi)
        step = (log_cdf - log_p) * (log_cdf - log_pdf).exp()
        z = torch.where(tail, z - step, z)
    return z


class Rayleigh(_Univariate):
    """The length of a vector of two independent normals, cut at an end if there is one.

    Arguments:
        scale: Standard deviation of the normals.
        high: Upper end; infinite where there is none.

    Raises:
        TargetError: A number that is not positive.

    Example:
        >>> round(float(Rayleigh(0.2, high=1.0).log_prob(torch.tensor(0.2)).exp()), 4)
        3.0327
    """

    arg_constraints: ClassVar[dict[str, Any]] = {"scale": constraints.positive}
    scale: Tensor
    high: Tensor

    def __init__(self, scale: Any, high: Any = math.inf) -> None:
        super().__init__(scale=scale, high=high)
        self._above = ended(high)
        if _out_of_order((self.scale > 0) & (self.high > 0)):
            raise TargetError(
                f"Rayleigh: expected a positive scale and end, got {scale} and {high}"
            )

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return between(torch.zeros_like(self.high), self.high, True, self._above)

    def _mass(self) -> Tensor:
        return -torch.expm1(-0.5 * (self.high / self.scale).square())

    def log_prob(self, value: Tensor) -> Tensor:
        z = value / self.scale
        return z.log() - 0.5 * z.square() - self.scale.log() - self._mass().log()

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * (-2 * torch.log1p(-value * self._mass())).sqrt()


class PolarAngle(_Univariate):
    """The angle between an axis and a direction that may be any: density sin(x) / 2 on (0, pi).

    Inclinations of orbits are of this kind.

    Example:
        >>> x = PolarAngle().sample((4000,)).cos()
        >>> bool(x.mean().abs() < 0.05), bool((x.std() - 3**-0.5).abs() < 0.03)
        (True, True)
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    support = constraints.interval(0.0, math.pi)
    unit: Tensor

    def __init__(self) -> None:
        super().__init__(unit=torch.ones(()))

    def log_prob(self, value: Tensor) -> Tensor:
        return value.sin().clamp(min=0.0).log() - math.log(2) + 0 * self.unit

    def icdf(self, value: Tensor) -> Tensor:
        return 2 * value.sqrt().asin() * self.unit


class Latitude(_Univariate):
    """The angle between the equator and a direction that may be any: cos(x) / 2 on (-pi/2, pi/2).

    Declinations on the sky are of this kind.

    Example:
        >>> bool(Latitude().sample((4000,)).sin().mean().abs() < 0.05)
        True
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    support = constraints.interval(-math.pi / 2, math.pi / 2)
    unit: Tensor

    def __init__(self) -> None:
        super().__init__(unit=torch.ones(()))

    def log_prob(self, value: Tensor) -> Tensor:
        return value.cos().clamp(min=0.0).log() - math.log(2) + 0 * self.unit

    def icdf(self, value: Tensor) -> Tensor:
        return (2 * value - 1).asin() * self.unit


class Periodic(Uniform):
    """Uniform over one turn, whose two ends are the same place: angles, phases, times of day.

    Walks go around; a :class:`torch.distributions.Uniform` has a wall at each end.

    Arguments:
        low, high: Where the turn begins and ends, in the parameter's unit.

    Example:
        >>> import trjmcmc as trj
        >>> prior = trj.priors.Periodic(0.0, 2 * math.pi)
        >>> target = trj.Target([trj.Model("wave", {"phase": prior}, lambda p: p["phase"].cos())])
        >>> target.periodic_slots.tolist()
        [True]
    """

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return Circle(self.low, self.high)


def kipping_beta() -> Beta:
    """Eccentricities of planets found by radial velocities.

    Source:
        Kipping (2013), https://doi.org/10.1093/mnrasl/slt075

    Example:
        >>> round(float(kipping_beta().mean), 3)
        0.222
    """
    return Beta(torch.tensor(KIPPING[0]), torch.tensor(KIPPING[1]))


def isotropic(polar: str = "theta", azimuth: str = "phi") -> dict[str, Distribution]:
    """Priors of a direction that may be any, by the names of its two angles, radians.

    Example:
        >>> sorted(isotropic())
        ['phi', 'theta']
    """
    return {polar: PolarAngle(), azimuth: Periodic(0.0, 2 * math.pi)}
