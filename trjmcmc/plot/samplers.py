"""A picture that compares samplers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .style import PALETTE, axes_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def plot_comparison(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Bars of effective draws of the model indicator a second, fit included.

    Arguments:
        table: Indexed by sampler, with the column ``ess_per_s``; rows without it are left out.
        ax: Where to draw.
    """
    table = table.dropna(subset=["ess_per_s"]).sort_values("ess_per_s")
    ax = axes_of(ax, 6, 1.2 + 0.35 * len(table))
    y = np.arange(len(table))
    colours = [PALETTE[1] if name == "default" else PALETTE[5] for name in table.index]
    ax.barh(y, table["ess_per_s"], color=colours)
    ax.set_yticks(y, [str(name) for name in table.index])
    ax.set_xscale("log")
    for place, value in zip(y, table["ess_per_s"], strict=True):
        ax.text(float(value), float(place), f" {value:.3g}", va="center", fontsize=8)
    low, high = ax.get_xlim()
    ax.set_xlim(low / 2, high * 3)  # room for the shortest bar and for the numbers
    ax.set_xlabel("effective draws of the model indicator per second, fit included")
    return ax
