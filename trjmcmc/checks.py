"""Checks of settings, once, where they are made."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

import torch

from .errors import ArgumentError, ConfigurationError

MAY_BE_ZERO = {"rounds", "climbs", "most_climbs", "learned", "warm"}

ELSEWHERE = {  # of an argument's name here, what other packages call it
    "draws": "sample step iter",
    "chains": "walker",
    "warmup": "burn tune",
    "seed": "random",
    "max_seconds": "time",
}

SHORT = 4  # letters of a name from which one that holds it is likely meant

Asked = ParamSpec("Asked")
Given = TypeVar("Given")


def spelled(function: Callable[Asked, Given]) -> Callable[Asked, Given]:
    """The same function, which says what was meant where an argument's name is wrong.

    Raises:
        ArgumentError: There is no such argument.

    Example:
        >>> @spelled
        ... def run(draws=1, chains=1): ...
        >>> run(n_draws=5)
        Traceback (most recent call last):
        ...
        trjmcmc.errors.ArgumentError: run: no argument 'n_draws'; did you mean 'draws'?
    """
    known = [name for name in signature(function).parameters if name != "self"]
    called = function.__qualname__.removesuffix(".__init__")

    @wraps(function)
    def checked(*args: Asked.args, **kwargs: Asked.kwargs) -> Given:
        for name in kwargs.keys() - known:
            raise ArgumentError(f"{called}: no argument {name!r}{meant(name, known)}")
        return function(*args, **kwargs)

    return checked


def meant(name: str, known: Iterable[str]) -> str:
    """Which of the known names a wrong one was meant to be, as the end of a sentence."""
    known = list(known)
    near = [x for x in known if (x in name or name in x) and min(len(x), len(name)) >= SHORT]
    near += get_close_matches(name, known, 1)
    near += [x for x, words in ELSEWHERE.items() if any(w in name for w in words.split())]
    near = [x for x in near if x in known]
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"


def checked_dtype(dtype: Any) -> torch.dtype | None:
    """A precision that is computed in, or None where it is left open.

    Raises:
        ConfigurationError: It is another.
    """
    if dtype is not None and dtype not in (torch.float32, torch.float64):
        raise ConfigurationError(f"dtype: expected torch.float32 or torch.float64, got {dtype!r}")
    return dtype


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
