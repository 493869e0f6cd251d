"""Checks of settings, once, where they are made."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any

from .errors import ConfigurationError

MAY_BE_ZERO = {"rounds", "climbs", "most_climbs", "learned", "warm"}


class Checked:
    """Base of frozen dataclasses of numbers: counts are 1 or more, shares in (0, 1].

    Raises:
        ConfigurationError: A value is no number, negative, NaN, or an empty tuple; a count
            is 0 where there must be one; a share is 0 or above 1.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Sizes(Checked):
        ...     steps: int = 40
        ...     time_share: float = 0.5
        >>> Sizes(steps=0)
        Traceback (most recent call last):
        ...
        trjmcmc.errors.ConfigurationError: Sizes.steps: expected 1 or more, got 0
    """

    def __post_init__(self) -> None:
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            if not is_dataclass(value):
                _check(f"{type(self).__name__}.{item.name}", item.name, item.default, value)


def _check(where: str, name: str, default: Any, value: Any) -> None:
    values = value if isinstance(value, tuple) else (value,)
    if not values:
        raise ConfigurationError(f"{where}: expected one number or more, got none")
    for x in values:
        if isinstance(x, bool) or not isinstance(x, int | float):
            raise ConfigurationError(f"{where}: expected a number, got {x!r}")
        if math.isnan(x) or x < 0:
            raise ConfigurationError(f"{where}: expected 0 or more, got {x}")
        if isinstance(default, int) and x < 1 and name not in MAY_BE_ZERO:
            raise ConfigurationError(f"{where}: expected 1 or more, got {x}")
        if name.endswith("share") and not 0 < x <= 1:
            raise ConfigurationError(f"{where}: expected a share in (0, 1], got {x}")
