"""Pictures of graphs: probable edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import NDArray

from ..errors import ConfigurationError
from .style import PALETTE, axes_of, heat_map

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


MOST_NUMBERS = 14  # nodes up to which a heat map has its numbers written in


def plot_edges(matrix: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Heat map of edge probabilities.

    Arguments:
        matrix: Probabilities, parents in rows, children in columns.
        ax: Where to draw.
    """
    d = len(matrix)
    side = 1.8 + (0.42 if d <= MOST_NUMBERS else 0.28) * max(d, 4)
    ax = axes_of(ax, side + 0.9, side)
    ax.set_facecolor("#DDDDDD")  # of the diagonal
    others = matrix.where(~np.eye(d, dtype=bool))
    heat_map(ax, others, "probability of the edge", 1.0, ".2f" if d <= MOST_NUMBERS else "")
    ax.set_xticks(np.arange(d - 1) + 0.5, minor=True)
    ax.set_yticks(np.arange(d - 1) + 0.5, minor=True)
    ax.grid(which="minor", color="white", lw=0.6)
    ax.tick_params(which="minor", length=0)
    ax.set_xlabel("child")
    ax.set_ylabel("parent")
    return ax


def plot_graph(matrix: pd.DataFrame, ax: Axes | None = None, *, least: float = 0.1) -> Axes:
    """The probable edges of a graph; arrows are as wide as they are probable.

    Edges of about equal probability both ways have an arrow at either end.

    Arguments:
        matrix: Probabilities, parents in rows, children in columns.
        ax: Where to draw.
        least: Probability of an edge that is drawn.

    Raises:
        ConfigurationError: ``least`` is not in (0, 1].
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
    """Places of nodes in [-1, 1]^2 that are as far apart as their path is long.

    Source:
        Kamada & Kawai (1989), https://doi.org/10.1016/0020-0190(89)90102-6
    """
    near = np.minimum(p + p.T, 1.0)
    path = scipy.sparse.csgraph.shortest_path(np.where(near > 0.02, 1.3 - near, 0.0))
    far = np.minimum(path, 3.0)[pairs := np.triu_indices(len(p), 1)]

    def stress(flat: NDArray[np.float64]) -> float:
        i, j = flat.reshape(-1, 2)[pairs, :]
        return float(((np.linalg.norm(i - j, axis=1) / far - 1) ** 2).sum())

    turn = 2 * np.pi * np.arange(len(p)) / len(p)
    circle = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    place = scipy.optimize.minimize(stress, circle.ravel()).x.reshape(-1, 2)
    low, high = place.min(0), place.max(0)
    fitted: NDArray[np.float64] = 2 * (place - low) / np.where(high > low, high - low, 1.0) - 1
    return fitted
