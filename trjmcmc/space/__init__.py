"""Spaces of models: which there are, their prior, and who is next to whom."""

from .base import Space

__all__ = ["Space"]
