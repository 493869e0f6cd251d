"""Pictures of evidences and jumps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .style import COLOUR_OF, ROUTES, axes_of, heat_map, spread_labels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


MOST_MODELS = 16  # models in a picture

TOO_WIDE = 5.0  # smallest errors of a route; one with a larger error would dwarf the others


def plot_evidence(
    table: pd.DataFrame, exact: Mapping[str, float] | None = None, ax: Axes | None = None
) -> Axes:
    """Log evidence of each model by several routes, less the combined one, two standard errors.

    Routes on the same draws as another one are left out. Estimates that carry a warning are
    hollow. The frame is that of the routes whose errors are of one size; triangles at its edge
    show where bars of the others run out of it.

    Arguments:
        table: One row a model, with a column of log evidences and a column ``_se`` for each
            route, nats, and ``combined``, ``probability`` and ``note``.
        exact: Log evidences by label, nats, where they are known.
        ax: Where to draw.
    """
    found = table[np.isfinite(table["combined"])].nlargest(MOST_MODELS, "probability").index
    unknown = table.index[~np.isfinite(table["combined"])][: MOST_MODELS - len(found)]
    table = table[table.index.isin(found) | table.index.isin(unknown)]
    ax = axes_of(ax, max(6.0, 1.1 + 0.8 * len(table)), 3.5)
    routes = [r for r in ROUTES if r in table and np.isfinite(table[f"{r}_se"]).any()]
    x = np.arange(len(table))
    gap = np.array([(exact or {}).get(str(m), np.nan) for m in table.index]) - table["combined"]
    low, high = _within_reach(table, routes)
    doubted = False
    for i, route in enumerate(routes):
        colour = COLOUR_OF[route]
        place = x + 0.7 * (i / max(len(routes) - 1, 1) - 0.5)
        known = np.isfinite(table[f"{route}_se"].to_numpy())
        flagged = table["note"].str.contains(f"{route}: ").to_numpy()
        mark = "D" if route == "combined" else "o"
        style: dict[str, Any] = {"color": colour, "fmt": mark, "ms": 4.5}
        for rows, fill in ((known & ~flagged, colour), (known & flagged, "white")):
            y = (table[route] - table["combined"])[rows]
            error = 2 * table[f"{route}_se"][rows]
            ax.errorbar(place[rows], y, error, mfc=fill, lw=1, **style)
            for out, edge, arrow in ((y + error > high, high, "^"), (y - error < low, low, "v")):
                if out.any():  # an empty line that is not clipped takes part in layouts
                    beyond = place[rows][out.to_numpy()]
                    at = np.full(len(beyond), edge)
                    ax.plot(beyond, at, arrow, color=colour, ms=5, clip_on=False)
        doubted |= bool((known & flagged).any())
        ax.plot([], [], mark, color=colour, ms=4.5, label=ROUTES[route])
    if gap.notna().any():
        ax.plot(x, gap, "_", ms=34, mew=1.5, color="grey", zorder=0)
        ax.plot([], [], "_", ms=10, mew=1.5, color="grey", label="exact")
    if doubted:
        ax.plot([], [], "o", ms=4.5, mfc="white", color="grey", label="hollow: flagged")
    for place in x[~np.isfinite(table["combined"].to_numpy())]:
        ax.text(
            place, 0.0, "not known", color="grey", size=8, rotation=90, ha="center", va="center"
        )
    spread_labels(ax, x, [str(m) for m in table.index])
    ax.set_ylabel("log evidence\nless combined (nats)")
    ax.set_xlabel("model")
    ax.set_xlim(-0.6, len(table) - 0.4)
    ax.set_ylim(low, high)
    if ax.get_legend_handles_labels()[1]:  # else no route tells anything
        ax.legend(frameon=False, fontsize=8, ncols=3, loc="lower right", bbox_to_anchor=(1, 1))
    return ax


def _within_reach(table: Any, routes: list[str]) -> tuple[float, float]:
    """Limits that show the routes whose errors are of one size."""
    sizes = [np.nanmedian(table[f"{r}_se"].replace(np.inf, np.nan)) for r in routes]
    comparable = [float(s) for s in sizes if s <= TOO_WIDE * np.nanmin(sizes)]
    most = max(6 * max(comparable, default=0.0), 1e-3)
    return -most, most


def plot_jumps(rates: pd.DataFrame, share: Mapping[str, float], ax: Axes | None = None) -> Axes:
    """Chance that a jump goes from row to column and is accepted, as a heat map.

    Arguments:
        rates: Those chances, from row to column, by label.
        share: Share of the draws in each model, by label; the most visited models are shown.
        ax: Where to draw.
    """
    often = sorted((m for m in share if share[m]), key=lambda m: -share[m])[:MOST_MODELS]
    seen = [m for m in rates.index if m in often]
    rates = rates.loc[seen, seen]
    n = len(rates)
    ax = axes_of(ax, 2.4 + 0.62 * max(n, 3), 1.4 + 0.5 * max(n, 3))
    heat_map(ax, rates, "share of jumps that go there")
    ax.set_xlabel("to model")
    ax.set_ylabel("from model")
    return ax
