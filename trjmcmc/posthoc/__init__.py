"""The evidence behind anybody's draws."""

from .evidence import Evidence

__all__ = ["Evidence"]
