"""Colours and labels that all pictures share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes


PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")

GREY = "#999999"

CROWDED = 0.35  # inches a label under which long ones stand on end


def axes_of(ax: Axes | None, width: float, height: float) -> Axes:
    """The axes that are given, or those of a new figure.

    Arguments:
        ax: Where to draw, if that is decided.
        width, height: Of a new figure, inches.
    """
    if ax is not None:
        return ax
    from matplotlib import pyplot as plt  # seconds to import, and only pictures need it

    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def reach_of(p: Any, se: Any) -> Any:
    """Two standard errors of probabilities down and up, no further than 0 and 1, (2, n)."""
    return np.stack([(2 * se).clip(upper=p), (2 * se).clip(upper=1 - p)])


ROUTES = ("visits", "bartolucci", "importance", "bridge", "warp", "audit", "combined")

COLOUR_OF = dict(zip(ROUTES, (*PALETTE[:6], "black"), strict=True))  # in every figure


def spread_labels(ax: Axes, x: Any, names: list[str]) -> None:
    """Names below their places: upright, tilted where long, on end where crowded."""
    tilted = max(len(name) for name in names) > 6
    room = ax.get_window_extent().width / ax.figure.dpi / len(names)
    angle = 90 if tilted and room < CROWDED else 30 if tilted else 0
    ax.set_xticks(x, names, rotation=angle, ha="right" if angle == 30 else "center")
