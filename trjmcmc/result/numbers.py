"""The numbers that parameters are made of, and their names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..errors import ConfigurationError

Turn = tuple[float, float]  # where a circle begins and ends


def numbers_of(name: str, shape: Sequence[int]) -> list[str]:
    """Names of the numbers of a parameter of some shape.

    Example:
        >>> numbers_of("x", ()), numbers_of("x", (2,))
        (['x'], ['x[0]', 'x[1]'])
    """
    places = (", ".join(map(str, position)) for position in np.ndindex(*shape))
    return [f"{name}[{place}]" if place else name for place in places]


def by_number(values: Mapping[str, NDArray[np.floating]]) -> dict[str, NDArray[np.float64]]:
    """Draws of parameters by name, (n, ...), as those of each number, (n,)."""
    found: dict[str, NDArray[np.float64]] = {}
    for name, value in values.items():
        flat = value.reshape(len(value), -1).astype(float)
        found |= dict(zip(numbers_of(name, value.shape[1:]), flat.T, strict=True))
    return found


def unpadded(
    values: Mapping[str, Tensor], rows: NDArray[np.bool_] | Tensor
) -> dict[str, NDArray[np.floating]]:
    """Parameters of one model by name, (n, *shape), without what it does not use.

    Arguments:
        values: By name, padded to the largest model with NaN.
        rows: The draws in the model.
    """
    found = {}
    for name, padded in values.items():
        value = padded.numpy()[np.asarray(rows)]
        used = ~np.isnan(value[0])
        if not used.any():
            continue
        for axis in range(used.ndim):
            others = tuple(i for i in range(used.ndim) if i != axis)
            value = np.compress(used.any(axis=others), value, axis=axis + 1)
        found[name] = value
    return found


def chosen(
    series: Mapping[str, NDArray[Any]], names: Sequence[str] | None, argument: str = "var_names"
) -> dict[str, NDArray[Any]]:
    """The numbers that are named (``beta`` stands for all of its entries), else all.

    Raises:
        ConfigurationError: There is none of such a name.

    Example:
        >>> list(chosen({"a": np.zeros(2), "b[0]": np.zeros(2), "b[1]": np.ones(2)}, ["b"]))
        ['b[0]', 'b[1]']
    """
    if names is None:
        return dict(series)
    found: dict[str, NDArray[Any]] = {}
    for name in [names] if isinstance(names, str) else names:
        these = {k: x for k, x in series.items() if k == name or k.startswith(f"{name}[")}
        if not these:
            raise ConfigurationError(f"{argument}: no {name!r}; there are {list(series)}")
        found |= these
    return found


def laid_out(x: NDArray[np.floating], turn: Turn | None) -> NDArray[np.floating]:
    """Values on a circle as numbers on a line that is cut opposite to their mean direction.

    Their mean lies within the turn; values on the far side of its seam lie outside.

    Arguments:
        x: Any shape.
        turn: Where the turn begins and ends; None where there is no circle.

    Example:
        >>> laid_out(np.array([0.1, 0.9]), (0.0, 1.0)).round(3).tolist()
        [0.1, -0.1]
    """
    if turn is None or not x.size:
        return x
    low, width = turn[0], turn[1] - turn[0]
    share = (np.asarray(x, dtype=float) - low) / width
    angle = 2 * math.pi * share
    centre = math.atan2(float(np.sin(angle).mean()), float(np.cos(angle).mean())) / (2 * math.pi)
    line = centre + np.remainder(share - centre + 0.5, 1.0) - 0.5
    return low + width * (line - np.floor(line.mean()))
