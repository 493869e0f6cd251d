"""Roots of monotone functions: SciPy's module of them takes half a second to import."""

from __future__ import annotations

import math
from collections.abc import Callable

STEPS = 60  # at most: of these each halves the bracket at least


def falling_root(
    function: Callable[[float], float], low: float, high: float, tolerance: float
) -> float:
    """Where a falling function is zero, between points at which it is not below and not above it.

    Arguments:
        function: Finite between them.
        low, high: A bracket.
        tolerance: Of the root, until which steps go on.

    Source:
        Ridders (1979), https://doi.org/10.1109/TCS.1979.1084580

    Example:
        >>> round(falling_root(lambda x: 2.0 - x**3, 0.0, 50.0, 1e-9), 6)
        1.259921
    """
    above, below = float(function(low)), float(function(high))
    root = math.inf
    for _ in range(STEPS):
        middle = (low + high) / 2
        here = float(function(middle))
        scale = math.sqrt(here * here - above * below)
        before, root = root, middle + ((middle - low) * here / scale if scale else 0.0)
        if abs(root - before) < tolerance or high - low < tolerance:
            break
        there = float(function(root))
        known = [(low, above), (middle, here), (root, there), (high, below)]
        low, above = max(point for point in known if point[1] >= 0)
        high, below = min(point for point in known if point[1] <= 0)
    return root
