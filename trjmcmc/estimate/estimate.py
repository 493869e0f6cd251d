"""One number with its error."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

LARGEST_LOG = 700.0  # beyond which an exponential overflows


@dataclass(frozen=True, repr=False)
class Estimate:
    """A value, its standard error, and what they rest on.

    Sums, differences, products and ratios with numbers, or with independent estimates, carry the
    error to first order; so do powers, ``abs()``, :meth:`log` and :meth:`exp`. ``float()`` gives
    the value, by which estimates are ordered; a format such as ``.3f`` holds for value and error.

    Attributes:
        value: The estimate.
        std_error: One standard error, in the unit of the value.
        ess: Effective number of independent draws behind it.
        warning: What makes it doubtful; empty if nothing does.
        batches: By batch of chains, what it adds to the deviation of the value: estimates from
            the same chains are correlated as these are. Empty where that is not known.

    Example:
        >>> e = Estimate(2.0, 0.3)
        >>> e - Estimate(1.0, 0.4), 3 * e
        (Estimate(1 ± 0.5), Estimate(6 ± 0.9))
        >>> float(e), f"{1 / e:.3f}", (e.log().exp() * e / e).value
        (2.0, '0.500 ± 0.075', 2.0)
        >>> e**2, abs(-e), e > 1.5, max(e, Estimate(1.0, 0.4))
        (Estimate(4 ± 1.2), Estimate(2 ± 0.3), True, Estimate(2 ± 0.3))
    """

    value: float
    std_error: float
    ess: float = math.nan
    warning: str = ""
    batches: tuple[float, ...] = field(default=(), repr=False)

    def __add__(self, other: Estimate | float) -> Estimate:
        if not isinstance(other, Estimate):
            return replace(self, value=self.value + other)
        error = math.hypot(self.std_error, other.std_error)
        return self._beside(other, self.value + other.value, error)

    def __mul__(self, by: Estimate | float) -> Estimate:
        if not isinstance(by, Estimate):
            return self._moved(self.value * by, by)
        error = math.hypot(self.std_error * by.value, self.value * by.std_error)
        error = math.nan if math.isnan(self.value * by.value) else error  # hypot(inf, NaN) is inf
        return (self * by.value)._beside(by, self.value * by.value, error)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Estimate:
        return self * -1

    def __sub__(self, other: Estimate | float) -> Estimate:
        return self + -other

    def __rsub__(self, other: float) -> Estimate:
        return -self + other

    def __truediv__(self, by: Estimate | float) -> Estimate:
        return self * (1 / by if float(by) else math.nan)

    def __rtruediv__(self, other: float) -> Estimate:
        if self.value == 0:
            return self._moved(math.nan, math.nan)
        return self._moved(other / self.value, -other / self.value**2)

    def __pow__(self, by: float) -> Estimate:
        with np.errstate(all="ignore"):
            value, below = (float(np.float64(self.value) ** power) for power in (by, by - 1))
        return self._moved(value, by * below)

    def __abs__(self) -> Estimate:
        return -self if self.value < 0 else self

    def __lt__(self, other: Estimate | float) -> bool:
        return self.value < float(other)

    def __le__(self, other: Estimate | float) -> bool:
        return self.value <= float(other)

    def __gt__(self, other: Estimate | float) -> bool:
        return self.value > float(other)

    def __ge__(self, other: Estimate | float) -> bool:
        return self.value >= float(other)

    def log(self) -> Estimate:
        """Natural logarithm; of 0 minus infinity, and below NaN, without an error."""
        if self.value <= 0:
            return self._moved(-math.inf if self.value == 0 else math.nan, math.nan)
        return self._moved(math.log(self.value), 1 / self.value)

    def exp(self) -> Estimate:
        """Exponential; infinite where it overflows."""
        value = math.inf if self.value >= LARGEST_LOG else math.exp(self.value)
        return self._moved(value, math.inf if math.isinf(self.std_error) else value)

    def _moved(self, value: float, slope: float) -> Estimate:
        """A function of the value, and its slope there."""
        parts, error = tuple(slope * x for x in self.batches), abs(slope) * self.std_error
        return replace(self, value=value, std_error=error, batches=parts)

    def _beside(self, other: Estimate, value: float, error: float) -> Estimate:
        """A function of two independent estimates, with the error that it has."""
        ess = min((e for e in (self.ess, other.ess) if not math.isnan(e)), default=math.nan)
        said = self.warning or other.warning
        return replace(self, value=value, std_error=error, ess=ess, warning=said, batches=())

    def __float__(self) -> float:
        return float(self.value)

    def __format__(self, spec: str) -> str:
        note = f" ({self.warning})" if self.warning else ""
        return f"{self.value:{spec or '.5g'}} ± {self.std_error:{spec or '.2g'}}{note}"

    def __str__(self) -> str:
        return f"{self:}"

    def __repr__(self) -> str:
        return f"Estimate({self:})"
