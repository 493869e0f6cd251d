"""Pieces of log densities, called row by row in groups of one model."""

from __future__ import annotations

from torch import Tensor

from .density import Density


def refill(density: Density, packed: Tensor) -> tuple[Tensor]:
    theta, keep = packed.chunk(2, -1)
    return (density.refill(theta, keep > 0, None),)


def prior_by_slot(density: Density, theta: Tensor) -> tuple[Tensor]:
    return (density.prior_by_slot(theta, None),)
