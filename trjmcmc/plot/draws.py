"""Pictures of draws: traces, ranks, and parameters in pairs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import NDArray

from .style import GREY, PALETTE, frame_of, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Series = Mapping[str, NDArray[Any]]

SHOWN = 6  # numbers in a picture if the user names none

FEW = 20  # distinct values up to which each is drawn as a point

MOST_DRAWS = 5000  # behind each density

BINS = 20  # of ranks

CELLS = 40  # a side at most, of the histogram that contours are drawn from

LEAST = 200  # draws from which contours are drawn

WITHIN = (0.393, 0.865)  # mass of a normal in two dimensions within 1 and 2 standard deviations

POINTS = 2000  # of a panel of a pair


def plot_trace(series: Series, named: bool = True) -> NDArray[Any]:
    """Density and trace of each number, in a colour per chain.

    Arguments:
        series: Numbers by name, shape (chain, draw).
        named: The user named them; else the first six are drawn, and a line says how many more
            there are.

    Returns:
        The axes, a row per number.
    """
    shown, more = _first(series, named)
    axes = panels(2 * len(shown), 2, (4.5, 1.5), more).reshape(-1, 2)
    for (left, right), (name, x) in zip(axes, shown.items(), strict=True):
        for chain, colour in zip(x, PALETTE * len(x), strict=False):
            at, height = _density(chain)
            left.plot(at, height, "o-" if len(at) <= FEW else "-", ms=4, lw=1.2, color=colour)
            mark = ".-" if len(chain) <= FEW else "-"
            right.plot(chain, mark, lw=0.7, alpha=0.7, color=colour)
        left.axhline(0.0, color=GREY, lw=0.5)
        left.set_yticks([])
        left.locator_params(axis="x", nbins=5, integer=x.dtype.kind == "i")
        left.set_title(name, fontsize=9)
        right.margins(x=0.01)
    axes[-1, 1].set_xlabel("draw")
    return axes


def _density(x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """A density on a grid; the shares of values that are few."""
    values, n = np.unique(x, return_counts=True)
    if len(values) <= FEW:
        return values, n / n.sum()
    grid = np.linspace(values[0], values[-1], 200)
    return grid, scipy.stats.gaussian_kde(x[:: -(-len(x) // MOST_DRAWS)])(grid)


def plot_rank(series: Series, named: bool = True) -> NDArray[Any]:
    """Histogram of the ranks of each number, a row of bars per chain, beside what flat ones are.

    Equal values have ranks in random order.

    Arguments:
        series: Numbers by name, shape (chain, draw).
        named: As of :func:`plot_trace`.

    Returns:
        The axes, one per number.
    """
    shown, more = _first(series, named)
    axes, random = panels(len(shown), 3, (3.2, 2.4), more), np.random.default_rng(0)
    for ax, (name, x) in zip(axes, shown.items(), strict=True):
        order = np.lexsort((random.random(x.size), x.ravel()))
        for i, rank in enumerate(order.argsort().reshape(x.shape) / x.size):
            share = np.histogram(rank, BINS, (0, 1))[0] * BINS / len(rank)
            ax.bar((np.arange(BINS) + 0.5) / BINS, share / 2, 0.85 / BINS, i, color=PALETTE[i])
            ax.axhline(i + 0.5, color="black", lw=0.8, ls="--")
        ax.set(yticks=np.arange(len(x)) + 0.25, yticklabels=np.arange(len(x)) + 1, xlim=(0, 1))
        ax.set_title(name, fontsize=9)
        ax.set_xlabel("rank (share of all draws)")
    return axes


def plot_corner(series: Series, named: bool = True) -> NDArray[Any]:
    """Numbers in pairs, with contours of 1 and 2 standard deviations, and each alone.

    Contours hold 39 and 86 % of the draws, by a smoothed histogram; below 200 draws there are
    none. Titles tell the median, and how far the 16 and 84 % quantiles are from it.

    Arguments:
        series: Numbers by name, shape (n,).
        named: As of :func:`plot_trace`.

    Returns:
        The axes, (number, number); those above the diagonal are hidden.
    """
    shown, more = _first(series, named)
    n, names = len(shown), list(shown)
    axes = panels(n * n, n, (1.6, 1.5), more, sharex="col").reshape(n, n)
    for i, j in np.ndindex(n, n):
        ax: Any = axes[i, j]
        x, y = shown[names[j]], shown[names[i]]
        ax.set_visible(j <= i)
        if j == i:
            ax.hist(x, _cells(x), range=frame_of(x), histtype="step", color=PALETTE[0])
            for at in np.quantile(x, [0.16, 0.5, 0.84]):
                ax.axvline(at, color=GREY, lw=0.8, ls="--")
            ax.set_title(_in_words(names[i], x), fontsize=8)
            ax.set_yticks([])
        elif j < i:
            _draw_pair(ax, x, y)
            ax.set_ylim(*frame_of(y))
        ax.set_xlim(*frame_of(x))
        ax.tick_params(labelsize=7)
        ax.locator_params(nbins=3)
        ax.set_xlabel(names[j], fontsize=8)
        ax.set_ylabel(names[i] if i else "", fontsize=8)
        ax.label_outer()
    return axes


def _draw_pair(ax: Axes, x: NDArray[Any], y: NDArray[Any]) -> None:
    some, few = slice(None, None, -(-len(x) // POINTS)), len(x) < LEAST
    ax.plot(x[some], y[some], ".", ms=9 if few else 2, mew=0, color=PALETTE[5], rasterized=True)
    if few:
        return
    height, *edges = np.histogram2d(x, y, _cells(x), [frame_of(x), frame_of(y)])
    height = scipy.ndimage.gaussian_filter(height, 1.0)
    falling = np.sort(height, axis=None)[::-1]
    levels = falling[np.searchsorted(falling.cumsum(), np.multiply(WITHIN, falling.sum()))]
    middles = [(e[1:] + e[:-1]) / 2 for e in edges]
    ax.contour(*middles, height.T, np.unique(levels), colors=PALETTE[0], linewidths=1)


def _cells(x: NDArray[Any]) -> int:
    return int(min(CELLS, 5 + len(x) ** 0.4))


def _in_words(name: str, x: NDArray[Any]) -> str:
    """A number's median, and how far its 16 and 84 % quantiles are from it."""
    low, middle, high = np.quantile(x, [0.16, 0.5, 0.84])
    up, down = high - middle, middle - low
    digits = 1 - int(np.floor(np.log10(max(up, down)))) if max(up, down) > 0 else 3
    form = f".{max(digits, 0)}f" if digits < 7 else ".2g"
    return f"{name}\n${middle:{form}}^{{+{up:{form}}}}_{{-{down:{form}}}}$"


def _first(series: Series, named: bool) -> tuple[dict[str, NDArray[Any]], str]:
    """Numbers that are drawn, and a line on those that are not."""
    shown = dict(series if named else islice(series.items(), SHOWN))
    more = len(series) - len(shown)
    return shown, f"{more} more numbers are not shown; var_names names them" if more else ""
