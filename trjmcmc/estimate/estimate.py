"""One number with its error."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Estimate:
    """A value, its standard error, and what they rest on.

    Attributes:
        value: The estimate.
        std_error: One standard error, in the unit of the value.
        ess: Effective number of independent draws behind it.
        warning: What makes it doubtful; empty if nothing does.
        batches: By batch of chains, what it adds to the deviation of the value: estimates from
            the same chains are correlated as these are. Empty where that is not known.
    """

    value: float
    std_error: float
    ess: float = math.nan
    warning: str = ""
    batches: tuple[float, ...] = field(default=(), repr=False)

    def shifted(self, by: float) -> Estimate:
        """The estimate of a value that is larger by a known number."""
        return replace(self, value=self.value + by)

    def scaled(self, by: float) -> Estimate:
        """The estimate of a value that is larger by a known factor."""
        parts = tuple(by * x for x in self.batches)
        return replace(self, value=self.value * by, std_error=self.std_error * by, batches=parts)

    def times(self, by: Estimate) -> Estimate:
        """The estimate of the product with an independent estimate.

        Example:
            >>> print(Estimate(math.nan, math.nan).times(Estimate(1.0, math.inf)))
            nan ± nan
        """
        error = math.hypot(self.std_error * by.value, self.value * by.std_error)
        error = math.nan if math.isnan(self.value * by.value) else error  # hypot(inf, NaN) is inf
        return replace(self.scaled(by.value), std_error=error)

    def __str__(self) -> str:
        note = f" ({self.warning})" if self.warning else ""
        return f"{self.value:.5g} ± {self.std_error:.2g}{note}"
