"""One number with its error."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Estimate:
    """A value, its standard error, and what they rest on.

    Attributes:
        value: The estimate.
        std_error: One standard error, in the unit of the value.
        ess: Effective number of independent draws behind it.
        warning: What makes it doubtful; empty if nothing does.
    """

    value: float
    std_error: float
    ess: float = math.nan
    warning: str = ""

    def shifted(self, by: float) -> Estimate:
        """The estimate of a value that is larger by a known number."""
        return replace(self, value=self.value + by)

    def scaled(self, by: float) -> Estimate:
        """The estimate of a value that is larger by a known factor."""
        return replace(self, value=self.value * by, std_error=self.std_error * by)

    def times(self, by: Estimate) -> Estimate:
        """The estimate of the product with an independent estimate."""
        error = math.hypot(self.std_error * by.value, self.value * by.std_error)
        return replace(self, value=self.value * by.value, std_error=error)

    def __str__(self) -> str:
        note = f" ({self.warning})" if self.warning else ""
        return f"{self.value:.5g} ± {self.std_error:.2g}{note}"
