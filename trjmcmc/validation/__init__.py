"""Is the user's own model what it is meant to be? Checks, calibration by simulation, a report."""

from .report import Validation
from .validate import validate

__all__ = ["Validation", "validate"]
