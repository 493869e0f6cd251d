"""The numbers that parameters are made of, and their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


def numbers_of(name: str, shape: Sequence[int]) -> list[str]:
    """Names of the numbers of a parameter of some shape.

    Example:
        >>> numbers_of("x", ()), numbers_of("x", (2,))
        (['x'], ['x[0]', 'x[1]'])
    """
    places = (", ".join(map(str, position)) for position in np.ndindex(*shape))
    return [f"{name}[{place}]" if place else name for place in places]


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
