"""Numbers on a circle, laid out around their mean direction."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Turn = tuple[float, float]  # where it begins and ends


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
