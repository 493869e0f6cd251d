"""Pictures of an approximation's marginals beside importance weights and exact draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import NDArray

from ..errors import TRJError
from .style import GREY, PALETTE, frame_of, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_PANELS = 12  # numbers in a picture

COLUMNS = 4

MOST_DRAWS = 5000  # behind each curve

POINTS = 200  # of a curve


def plot_marginals(
    numbers: Mapping[str, NDArray[np.float64]],
    weights: NDArray[np.float64] | None,
    reference: Mapping[str, NDArray[np.float64] | None],
    ax: Any = None,
) -> NDArray[Any] | Axes:
    """Density of each number under q, with importance weights, and of reference draws.

    Arguments:
        numbers: Draws from q by name, shape (S,).
        weights: Their importance weights, with sum one, or None.
        reference: Draws of the posterior by name, where there are any.
        ax: Axes, or as many as there are numbers.

    Returns:
        The axes.

    Raises:
        TRJError: There is nothing to show.
    """
    if not numbers:
        raise TRJError("plot: the model has no parameters")
    shown = list(numbers)[:MOST_PANELS]
    axes = _axes(len(shown), ax)
    for place, name in zip(axes, shown, strict=True):
        _panel(place, name, numbers[name], weights, reference.get(name))
    axes[-1].legend(frameon=False, fontsize="x-small")
    if len(numbers) > len(shown):
        axes[-1].set_title(f"and {len(numbers) - len(shown)} more", fontsize="small", color=GREY)
    return axes if len(shown) > 1 else axes[0]


def _axes(n: int, ax: Any) -> NDArray[Any]:
    if ax is not None:
        given = np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
        if len(given) < n:
            raise TRJError(f"ax: expected {n} axes, got {len(given)}")
        return given[:n]
    return panels(n, COLUMNS, (2.6, 2.2))


def _panel(
    ax: Axes,
    name: str,
    x: NDArray[np.float64],
    weights: NDArray[np.float64] | None,
    exact: NDArray[np.float64] | None,
) -> None:
    both = x if exact is None else np.concatenate([x, exact])
    low, high = frame_of(both)
    grid = np.linspace(max(low, both.min()), min(high, both.max()), POINTS)
    some = slice(MOST_DRAWS)
    if exact is not None and np.ptp(exact) > 0:
        every = -(-len(exact) // MOST_DRAWS)
        ax.fill_between(
            grid, scipy.stats.gaussian_kde(exact[::every])(grid), color=GREY, alpha=0.4, lw=0
        )
        ax.plot([], [], color=GREY, lw=6, alpha=0.4, label="reference")
    if np.ptp(x) > 0:
        ax.plot(grid, scipy.stats.gaussian_kde(x[some])(grid), color=PALETTE[0], label="q")
        if weights is not None and weights[some].sum() > 0:
            corrected = scipy.stats.gaussian_kde(x[some], weights=weights[some])(grid)
            ax.plot(grid, corrected, color=PALETTE[1], ls="--", label="q, importance weights")
    ax.set_xlabel(name)
    ax.set_yticks([])
    for side in ("top", "left", "right"):
        ax.spines[side].set_visible(False)
