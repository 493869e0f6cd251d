"""Pictures of graphs: probable edges."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigurationError
from .style import PALETTE, axes_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


MOST_NUMBERS = 14  # nodes up to which a heat map has its numbers written in

SMALLEST = 0.005  # probability below which a cell stays empty


def plot_edges(matrix: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Heat map of edge probabilities.

    Arguments:
        matrix: Probabilities, parents in rows, children in columns.
        ax: Where to draw.
    """
    d = len(matrix)
    side = 1.8 + (0.42 if d <= MOST_NUMBERS else 0.28) * max(d, 4)
    ax = axes_of(ax, side + 0.9, side)
    p = matrix.to_numpy(dtype=float).copy()
    np.fill_diagonal(p, np.nan)
    image = ax.imshow(p, cmap="Blues", vmin=0, vmax=1)
    ax.set_facecolor("#DDDDDD")  # of the diagonal
    names = [str(name) for name in matrix.index]
    for i, j in np.ndindex(d, d) if d <= MOST_NUMBERS else ():
        if p[i, j] >= SMALLEST:
            colour = "white" if p[i, j] > 0.6 else "black"
            text = f"{p[i, j]:.2f}".removeprefix("0")
            ax.text(j, i, text, ha="center", va="center", fontsize=7, color=colour)
    size = 9 if d <= MOST_NUMBERS else 8
    ax.set_yticks(np.arange(d), names, fontsize=size)
    ax.set_xticks(np.arange(d), names, rotation=90, fontsize=size)
    ax.set_xticks(np.arange(d - 1) + 0.5, minor=True)
    ax.set_yticks(np.arange(d - 1) + 0.5, minor=True)
    ax.grid(which="minor", color="white", lw=0.6)
    ax.tick_params(which="minor", length=0)
    ax.set_xlabel("child")
    ax.set_ylabel("parent")
    ax.figure.colorbar(image, ax=ax, label="probability of the edge", shrink=0.8)
    return ax


def plot_graph(matrix: pd.DataFrame, ax: Axes | None = None, *, least: float = 0.1) -> Axes:
    """The probable edges of a graph; arrows are as wide as they are probable.

    Edges of about equal probability both ways have an arrow at either end.

    Arguments:
        matrix: Probabilities, parents in rows, children in columns.
        ax: Where to draw.
        least: Probability of an edge that is drawn.

    Raises:
        ConfigurationError: networkx is not installed; ``least`` is not in (0, 1].
    """
    if not 0 < least <= 1:
        raise ConfigurationError(f"plot_graph: least: expected a number in (0, 1], got {least}")
    d, p = len(matrix), matrix.to_numpy(dtype=float)
    place = _layout(p)
    ax = axes_of(ax, *((5.5, 4.5) if d <= 12 else (8.0, 6.5)))
    names = [str(name) for name in matrix.index]
    for i, j in np.argwhere((p >= least) & ~np.eye(d, dtype=bool)).tolist():
        both = p[j, i] >= least
        ax.annotate(
            "",
            place[j],
            place[i],
            arrowprops={
                "arrowstyle": "-|>",
                "mutation_scale": 9 + 5 * p[i, j],
                "lw": 0.4 + 2.6 * p[i, j],
                "color": PALETTE[0],
                "alpha": 0.25 + 0.75 * p[i, j],
                "shrinkA": 15,
                "shrinkB": 15,
                "connectionstyle": f"arc3,rad={0.18 if both else 0.06}",
            },
        )
    for name, (x, y) in zip(names, place, strict=True):
        box: dict[str, Any] = {"boxstyle": "round,pad=0.3", "fc": "white", "ec": "#666666"}
        ax.text(x, y, name, ha="center", va="center", fontsize=9, bbox=box, zorder=3)
    ax.set_xlim(-1.2, 1.2)
    ax.set_ylim(-1.15, 1.15)
    ax.set_axis_off()
    ax.set_title(f"edges of probability {least:g} and above; width: probability", fontsize=9)
    return ax


def _layout(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Places of nodes in [-1, 1]^2, neighbours near each other."""
    try:
        networkx = importlib.import_module("networkx")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "plot_graph: networkx lays graphs out and is not installed: pip install networkx; "
            "plot_edges() needs nothing"
        ) from error
    d = len(p)
    near = np.minimum(p + p.T, 1.0)
    graph = networkx.Graph()
    graph.add_nodes_from(range(d))
    pairs = [(i, j, 1.3 - near[i, j]) for i in range(d) for j in range(i) if near[i, j] > 0.02]
    graph.add_weighted_edges_from(pairs, weight="length")
    far = dict(networkx.shortest_path_length(graph, weight="length"))
    length = [[min(far[i].get(j, np.inf), 3.0) for j in range(d)] for i in range(d)]
    dist = {i: dict(enumerate(row)) for i, row in enumerate(length)}
    found = networkx.kamada_kawai_layout(graph, dist=dist) if d > 1 else {0: (0.0, 0.0)}
    place = np.array([found[i] for i in range(d)], dtype=float)
    low, high = place.min(0), place.max(0)
    fitted: NDArray[np.float64] = 2 * (place - low) / np.where(high > low, high - low, 1.0) - 1
    return fitted
