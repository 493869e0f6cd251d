"""Variational answers: q(theta | m) by name, fitted, weighed and judged."""

from .families import FAMILIES, NAMES
from .policy import ApproximationPolicy
from .population import Population
from .variational import variational

__all__ = ["FAMILIES", "NAMES", "ApproximationPolicy", "Population", "variational"]
