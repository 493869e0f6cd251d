"""Axes and names of parameters as models state them, for ArviZ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..target.model import Model

Axes = dict[str, dict[str, list[Any]]]  # by parameter its axes, and their places

Description = Mapping[str, Mapping[str, Any]]


def description(model: Model, *, plain: bool = False) -> Description:
    """What a model says of its parameters' own names and axes; ``plain`` as files can hold it."""
    coords = {str(k): [_plain(x) if plain else x for x in v] for k, v in model.coords.items()}
    return {
        "names": dict(model.own_names),
        "dims": {k: list(v) for k, v in model.dims.items()},
        "coords": coords,
    }


def named(said: Description, values: dict[str, NDArray[Any]]) -> tuple[dict[str, Any], Axes]:
    """Draws of one model, (chain, draw, ...), by the names where it comes from, and their axes."""
    own = {k: said["names"].get(k, k) for k in values}
    axes = {own[k]: x for k, v in values.items() if (x := axes_of(said, k, v.shape[2:]))}
    return {own[k]: v for k, v in values.items()}, axes


def axes_of(said: Description, name: str, shape: tuple[int, ...]) -> dict[str, list[Any]]:
    """A parameter's axes and their places, as a model states them; none where they don't fit."""
    dims = said["dims"].get(name, ())
    if len(dims) != len(shape) or len(set(dims)) < len(dims):
        return {}
    places = {
        axis: list(said["coords"].get(axis, range(n))) for axis, n in zip(dims, shape, strict=True)
    }
    return places if tuple(map(len, places.values())) == shape else {}


def _plain(x: Any) -> Any:
    """A coordinate as a number or words."""
    x = x.item() if isinstance(x, np.generic) else x
    return x if isinstance(x, int | float | str) else str(x)
