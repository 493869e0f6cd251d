"""Samplers side by side on one target."""

from .classical import ClassicalSampler
from .compare import Comparison

__all__ = ["ClassicalSampler", "Comparison"]
