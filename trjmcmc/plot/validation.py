"""Pictures of calibration: ranks within bands, probabilities against frequencies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .style import GREY, PALETTE, panels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 4

PANEL = 2.2  # inches


def plot_validation(lines: Mapping[str, tuple[Any, ...]], table: pd.DataFrame | None) -> Figure:
    """A panel for the ranks of each quantity, and one for probabilities.

    Arguments:
        lines: By quantity ranks in (0, 1), and grid, lower and upper end of their band.
        table: Reliability, with the columns ``p``, ``true``, ``low``, ``high``; None draws none.
    """
    axes = [*panels(len(lines) + (table is not None), COLUMNS, (PANEL, PANEL))]
    figure: Figure = axes[0].figure
    if table is not None:
        plot_reliability(table, axes.pop(0))
    for (name, (u, grid, low, high)), ax in zip(lines.items(), axes, strict=True):
        plot_ranks(name, u, grid, low, high, ax)
    return figure


def plot_ranks(name: str, u: Any, grid: Any, low: Any, high: Any, ax: Axes) -> None:
    """Distribution function of ranks less that of uniform ones, within its band."""
    share = (np.asarray(u)[:, None] <= grid).mean(0)
    ax.fill_between(grid, low - grid, high - grid, color=GREY, alpha=0.35, lw=0, step="mid")
    ax.axhline(0.0, color=GREY, lw=0.8)
    outside = bool(((share < low) | (share > high)).any())
    ax.plot(grid, share - grid, color=PALETTE[1] if outside else PALETTE[0], lw=1.2)
    ax.set_title(name, fontsize=8)
    ax.tick_params(labelsize=7)
    ax.set_xlabel("rank of the truth", fontsize=7)
    ax.set_ylabel("ECDF - uniform", fontsize=7)


def plot_reliability(table: pd.DataFrame, ax: Axes) -> None:
    """How often what has a probability is true, against it."""
    ax.plot([0, 1], [0, 1], color=GREY, lw=0.8)
    reach = np.stack([table["p"] - table["low"], table["high"] - table["p"]])
    ax.errorbar(table["p"], table["p"], reach, fmt="none", ecolor=GREY, elinewidth=3, alpha=0.5)
    ax.plot(table["p"], table["true"], "o", color=PALETTE[0], ms=4)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    ax.set_title("probabilities", fontsize=8)
    ax.tick_params(labelsize=7)
    ax.set_xlabel("posterior probability", fontsize=7)
    ax.set_ylabel("share that is true", fontsize=7)
