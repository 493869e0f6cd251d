"""Variational answers: q(theta | m) by name, fitted, weighed and judged."""

from ..result.variational import Variational
from .families import FAMILIES, NAMES
from .policy import ApproximationPolicy
from .variational import variational

__all__ = ["FAMILIES", "NAMES", "ApproximationPolicy", "Variational", "variational"]
