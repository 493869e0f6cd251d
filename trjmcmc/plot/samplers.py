"""Pictures that compare samplers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from .style import PALETTE, axes_of, spread_labels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def plot_repeats(
    repeats: Mapping[str, ArrayLike],
    truth: float | None = None,
    ax: Axes | None = None,
    *,
    colours: Mapping[str, str] | None = None,
) -> Axes:
    """Violins of repeated estimates of one number, side by side.

    Arguments:
        repeats: By name (a sampler, a map), estimates of one probability, shape (n,).
        truth: What they estimate, where it is known.
        ax: Where to draw.
        colours: By name.
    """
    ax = axes_of(ax, max(4.0, 1.2 + 0.9 * len(repeats)), 3.5)
    x = np.arange(len(repeats))
    drawn = ax.violinplot(
        [np.asarray(v, dtype=float) for v in repeats.values()], x, widths=0.8, showmedians=True
    )
    chosen = [(colours or {}).get(n, PALETTE[i % len(PALETTE)]) for i, n in enumerate(repeats)]
    for i, body in enumerate(drawn["bodies"]):  # type: ignore[arg-type, var-annotated]
        body.set_facecolor(chosen[i])
        body.set_alpha(0.6)
    for part in ("cbars", "cmins", "cmaxes", "cmedians"):
        drawn[part].set_color("black")
        drawn[part].set_linewidth(1)
    if truth is not None:
        ax.axhline(truth, color="black", lw=1, ls="--", label="exact")
        ax.legend(frameon=False, fontsize=8)
    spread_labels(ax, x, list(repeats))
    ax.set_ylabel("estimate")
    return ax


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
