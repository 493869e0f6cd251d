"""The conjugate selection problem on other simulated data, with torch's random numbers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..errors import TargetError
from .conjugate_selection import ConjugateSelection, conjugate_selection

OBSERVATIONS = 60

CORRELATION = 0.7  # between neighbouring columns

EFFECTS = (1.0, 0.0, -0.6, 0.0, 0.4, 0.0, 0.0, 0.25)  # of the first columns; the rest have none


def variable_selection(
    p: int = 10, x: Any = None, y: Any = None, *, seed: int = 0
) -> ConjugateSelection:
    """:func:`conjugate_selection` by its older name, with simulated data of its own.

    Arguments:
        p: Columns, where data are simulated.
        x: Columns of your own, shape (n, p).
        y: Response of your own, shape (n,).
        seed: Of the simulated data.

    Returns:
        What :func:`conjugate_selection` returns.

    Raises:
        ShapeError, TargetError: As :func:`conjugate_selection`.

    Example:
        >>> target = variable_selection(3)
        >>> target.space.size, round(sum(target.truth.probabilities.values()), 6)
        (8, 1.0)
    """
    if x is None and y is None:
        x, y = _simulated(p, seed)
    return conjugate_selection(x=x, y=y)


def _simulated(p: int, seed: int) -> tuple[Tensor, Tensor]:
    if p < 1:
        raise TargetError(f"p: expected at least one column, got {p}")
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(OBSERVATIONS, p + 1, generator=generator, dtype=torch.float64)
    columns = [noise[:, 0]]
    for j in range(1, p):
        fresh = math.sqrt(1 - CORRELATION**2) * noise[:, j]
        columns.append(CORRELATION * columns[-1] + fresh)
    x = torch.stack(columns, 1)
    x = (x - x.mean(0)) / x.std(0)
    effects = torch.tensor(EFFECTS[:p], dtype=torch.float64)
    y = x[:, : len(effects)] @ effects + noise[:, p]
    return x, y - y.mean()
