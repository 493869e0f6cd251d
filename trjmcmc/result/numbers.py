"""Names of the numbers that a parameter is made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def numbers_of(name: str, shape: Sequence[int]) -> list[str]:
    """Names of the numbers of a parameter of some shape.

    Example:
        >>> numbers_of("x", ()), numbers_of("x", (2,))
        (['x'], ['x[0]', 'x[1]'])
    """
    places = (", ".join(map(str, position)) for position in np.ndindex(*shape))
    return [f"{name}[{place}]" if place else name for place in places]
