"""Colours and labels that all pictures share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd
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


def panels(
    n: int, columns: int, size: tuple[float, float], words: str = "", **shared: Any
) -> NDArray[Any]:
    """Axes of a new figure, shape (n,), in rows of so many columns.

    Arguments:
        n: How many.
        columns: In a row, at most.
        size: Of each, inches.
        words: Above them all.
        shared: Further arguments of ``matplotlib.pyplot.subplots``.
    """
    from matplotlib import pyplot as plt  # seconds to import, and only pictures need it

    columns = min(n, columns)
    rows = -(-n // columns)
    whole = size[0] * columns + 0.4, size[1] * rows + 0.2
    shared |= {"figsize": whole, "squeeze": False, "layout": "constrained"}
    figure, axes = plt.subplots(rows, columns, **shared)
    if words:
        figure.suptitle(words, fontsize=8, color=GREY)
    for spare in axes.ravel()[n:]:
        spare.set_visible(False)
    return axes.ravel()[:n]


def frame_of(x: NDArray[Any]) -> tuple[float, float]:
    """Limits of an axis that leave 0.2 % of the draws beyond either end."""
    low, high = np.quantile(x, [0.002, 0.998])
    edge = 0.1 * (high - low) or 0.5
    return float(low - edge), float(high + edge)


def reach_of(p: Any, se: Any) -> Any:
    """Two standard errors of probabilities down and up, no further than 0 and 1, (2, n)."""
    return np.stack([(2 * se).clip(upper=p), (2 * se).clip(upper=1 - p)])


ROUTES = {  # those that rest on different draws, in words
    "visits": "visits",
    "importance": "importance sampling",
    "bridge": "bridge sampling",
    "audit": "tempered draws",
    "combined": "all together",
}

COLOUR_OF = dict(zip(ROUTES, (*PALETTE[:4], "black"), strict=True))  # in every figure


def spread_labels(ax: Axes, x: Any, names: list[str]) -> None:
    """Names below their places: upright, tilted where long, on end where crowded."""
    tilted = max(len(name) for name in names) > 6
    room = ax.get_window_extent().width / ax.figure.dpi / len(names)
    angle = 90 if tilted and room < CROWDED else 30 if tilted else 0
    ax.set_xticks(x, names, rotation=angle, ha="right" if angle == 30 else "center")


def heat_map(
    ax: Axes, table: pd.DataFrame, label: str, most: float | None = None, numbers: str = ".2g"
) -> None:
    """A table of numbers as colours, with the numbers in them, and a bar that tells colours.

    Arguments:
        ax: Where to draw.
        table: Rows from above, columns from the left; NaN draws nothing.
        label: Of the bar.
        most: Where colours end, if that is decided.
        numbers: How numbers above zero are written; "" writes none.
    """
    shown = table.to_numpy(dtype=float)
    most = most or float(np.nanmax(shown, initial=0.0))
    image = ax.imshow(shown, cmap="Blues", vmin=0, vmax=most)
    for (i, j), value in np.ndenumerate(shown) if numbers else ():
        if float(text := f"{value:{numbers}}") > 0:
            colour = "white" if value > 0.6 * most else "black"
            ax.text(j, i, text, ha="center", va="center", fontsize=7, color=colour)
    names = [str(name) for name in table.index]
    ax.set_yticks(np.arange(len(names)), names)
    spread_labels(ax, np.arange(len(names)), names)
    ax.figure.colorbar(image, ax=ax, label=label, shrink=0.8)
