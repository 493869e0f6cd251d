"""Pictures of components that are counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ConfigurationError
from .style import GREY, PALETTE, axes_of, frame_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


Array = NDArray[np.floating]

MOST_POINTS = 20_000  # components drawn as points, of each entry

BINS = 120  # of the intensity

LABEL = 34.0  # points of type that a probability beside its interval takes, with a gap after it


def plot_components(
    table: pd.DataFrame,
    parts: Mapping[str, Array],
    entry: NDArray[np.integer],
    draws: int,
    x: str,
    y: str | None = None,
    ax: Axes | None = None,
    *,
    interval: float,
) -> Axes:
    """Where components are, in the colours of their entries; grey ones belong to none.

    Bars are the intervals of the catalogue, with the probability of each entry.

    Arguments:
        table: The catalogue: indexed by entry, from 1; ``probability``, and for each parameter
            the columns ``_mean``, ``_low`` and ``_high``.
        parts: The components of all draws: by parameter, shape (n,).
        entry: Entry of each component, 0 where it belongs to none, shape (n,).
        draws: Number of draws that they are from.
        x: A parameter. Of this alone, its intensity: components per unit, on average over draws.
        y: Another parameter: components as points in the plane.
        ax: Where to draw.
        interval: Probability of the intervals in the table.

    Raises:
        ConfigurationError: No such parameter.
    """
    ax = axes_of(ax, *((6, 3.5) if y is None else (5.5, 4.5)))
    for name in (x,) if y is None else (x, y):
        if name not in parts:
            raise ConfigurationError(f"plot_components: no {name!r}; there are {sorted(parts)}")
    colours = {e: PALETTE[i % (len(PALETTE) - 1)] for i, e in enumerate(table.index)}
    shown = [(0, GREY), *colours.items()]
    low, high = _frame(parts[x], table, x)
    if y is None:
        top = _draw_intensity(ax, draws, [parts[x][entry == e] for e, _ in shown], (low, high))
        _lay_out(ax, table, x, colours, top, (low, high))
        ax.set_ylabel(f"components per unit of {x}")
    else:
        every = max(1, -(-len(entry) // MOST_POINTS))
        for e, colour in shown:
            mine = np.flatnonzero(entry == e)[::every]
            ax.scatter(parts[x][mine], parts[y][mine], 3, colour, alpha=0.25, lw=0, rasterized=True)
        for row in table.to_dict("records"):
            at = row[f"{x}_mean"], row[f"{y}_mean"]
            ax.plot([row[f"{x}_low"], row[f"{x}_high"]], [at[1]] * 2, color="black", lw=1.2)
            ax.plot([at[0]] * 2, [row[f"{y}_low"], row[f"{y}_high"]], color="black", lw=1.2)
            probability = f"{row['probability']:.2f}"
            ax.annotate(probability, at, (4, 4), textcoords="offset points", fontsize=8)
        ax.set_ylim(*_frame(parts[y], table, y))
        ax.set_ylabel(y)
    ax.set_xlim(low, high)
    ax.set_xlabel(x)
    ax.set_title(f"{interval:.0%} intervals and probabilities of the entries", fontsize=9)
    return ax


def _frame(values: Any, table: Any, name: str) -> tuple[float, float]:
    """Limits that show most components, and all intervals."""
    if not len(values):
        return 0.0, 1.0
    ends = [*np.quantile(values, [0.01, 0.99]), *table[f"{name}_low"], *table[f"{name}_high"]]
    edge = 0.04 * (max(ends) - min(ends)) or 0.5
    return min(ends) - edge, max(ends) + edge


def _draw_intensity(
    ax: Axes, draws: int, values: Sequence[Array], limits: tuple[float, float]
) -> float:
    """Stacked bars whose area is the mean number of components a draw; returns their height."""
    bins = np.linspace(*limits, BINS + 1)
    each = 1 / (draws * (bins[1] - bins[0]))
    height = np.zeros(BINS)
    for i, own in enumerate(values):
        colour = GREY if i == 0 else PALETTE[(i - 1) % (len(PALETTE) - 1)]
        more = np.histogram(own, bins)[0] * each
        ax.bar(bins[:-1], more, np.diff(bins), height, align="edge", color=colour, alpha=0.7)
        height += more
    return float(height.max()) or 1.0


def _lay_out(
    ax: Axes,
    table: Any,
    x: str,
    colours: Mapping[int, str],
    top: float,
    limits: tuple[float, float],
) -> None:
    """Intervals above the bars, on as many levels as keep them apart."""
    free: list[float] = []
    low, high = limits
    width = 72 * ax.get_position().width * float(ax.figure.get_figwidth())  # type: ignore[union-attr]
    room = LABEL / width * (high - low)
    for row in table.reset_index().sort_values(f"{x}_low").to_dict("records"):
        start, end = row[f"{x}_low"], row[f"{x}_high"]
        level = next((i for i, until in enumerate(free) if until < start), len(free))
        free[level : level + 1] = [end + room]
        at, colour = top * (1.1 + 0.09 * level), colours[row["entry"]]
        ax.plot([start, end], [at, at], "|-", color=colour, lw=1.5, ms=5)
        ax.plot(row[f"{x}_mean"], at, "o", color=colour, ms=3.5)
        probability = f"{row['probability']:.2f}"
        ax.annotate(
            probability, (end, at), (4, 0), textcoords="offset points", va="center", fontsize=7
        )
    ax.set_ylim(0, top * (1.1 + 0.09 * max(len(free), 1)))


def plot_averaged(
    grid: ArrayLike, curves: Array, data: Any = None, ax: Axes | None = None, *, depth: bool = False
) -> Axes:
    """A curve, averaged over models, with its pointwise 90 % band and data behind.

    Arguments:
        grid: Where the curve is known, shape (n,).
        curves: The curve at draws of the posterior, shape (draws, n).
        data: A tuple of arrays (x, y) as points, one array as a histogram of area 1.
        ax: Where to draw.
        depth: The grid goes down the page, and shades show the density of the curve there.

    Raises:
        ConfigurationError: The curve does not fit the grid.
    """
    at, order = np.asarray(grid, dtype=float), -1 if depth else 1
    if at.ndim != 1 or curves.shape[1:] != at.shape:
        raise ConfigurationError(
            f"plot_averaged: expected a grid (n,) and values (draws, n), got {at.shape} and "
            f"(draws, {', '.join(map(str, curves.shape[1:]))})"
        )
    ax = axes_of(ax, *((4, 4.5) if depth else (6, 3.5)))
    low, high = np.quantile(curves, [0.05, 0.95], axis=0)
    if isinstance(data, tuple):
        ax.plot(*data[::order], ".", ms=3, color=GREY, label="data")
    elif data is not None:
        edges = np.histogram_bin_edges(np.asarray(data), "fd").tolist()
        ax.hist(np.asarray(data), edges, density=True, color="lightgrey", label="data")
    if depth:
        edges = np.linspace(*frame_of(curves), BINS + 1)
        share = [np.histogram(values, edges)[0] / len(curves) for values in curves.T]
        ax.pcolormesh((edges[1:] + edges[:-1]) / 2, at, np.sqrt(share), cmap="Blues", zorder=0)
        ax.plot(np.stack([low, high], 1), at, "--", color="black", lw=0.8, label=["90 %", None])
        ax.invert_yaxis()
    else:
        ax.fill_between(at, low, high, color=PALETTE[5], alpha=0.5, lw=0, label="90 %")
    mean = curves.mean(0)
    ax.plot(*(at, mean)[::order], color=PALETTE[1 if depth else 0], label="mean over all models")
    ax.legend(frameon=False, fontsize=8)
    return ax
