"""Pictures of the probabilities of models and items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .style import COLOUR_OF, PALETTE, axes_of, reach_of, spread_labels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


Exact = Mapping[str, float]

MOST_LINES = 8  # models in a picture of running estimates


def _hollow(bars: Any, se: Any) -> None:
    """Bars whose error nothing tells, drawn as outlines, with a word in the legend."""
    unknown = [bar for bar, error in zip(bars, se, strict=True) if np.isnan(error)]
    for bar in unknown:
        bar.set(facecolor="none", edgecolor=PALETTE[5], linestyle="--")
    if unknown:
        unknown[0].set_label("error not known")


def plot_inclusion(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Bars of the probability that each item is in the model, with two standard errors.

    Arguments:
        table: Indexed by item, whatever it is called, with the columns ``probability`` and ``se``.
        ax: Where to draw.
    """
    ax = axes_of(ax, 5, 1 + 0.22 * len(table))
    place, reach = np.arange(len(table)), reach_of(table["probability"], table["se"])
    bars = ax.barh(place, table["probability"], color=PALETTE[5])
    _hollow(bars, table["se"])
    ax.errorbar(table["probability"], place, xerr=reach, fmt="none", ecolor="black", capsize=2)
    ax.set_yticks(place, table.index)
    ax.set(xlim=(0, 1), xlabel="probability of being in, ± 2 standard errors")
    ax.set_ylabel(str(table.index.name))
    ax.invert_yaxis()
    if ax.get_legend_handles_labels()[1]:
        ax.legend(frameon=False, fontsize=8)
    return ax


def plot_models(table: pd.DataFrame, exact: Exact | None = None, ax: Axes | None = None) -> Axes:
    """Bars of model probabilities with two standard errors, beside combined ones and truth.

    Arguments:
        table: Indexed by model, with the columns ``visits``, ``combined``, ``importance``, and
            the standard error ``_se`` of each. With a column ``prior`` it is indexed by numbers
            of components, which stand on an axis of numbers with their prior.
        exact: Probabilities by label, where they are known; None draws no legend for them.
        ax: Where to draw.
    """
    ax, counts = axes_of(ax, 6, 3.5), "prior" in table
    x = table.index.to_numpy() if counts else np.arange(len(table))
    bars = ax.bar(x, table["visits"], color=PALETTE[5], label="visits, ± 2 errors")
    _hollow(bars, table["visits_se"])
    reach = reach_of(table["visits"], table["visits_se"])
    ax.errorbar(x, table["visits"], reach, fmt="none", ecolor="black", capsize=3)
    route = "combined" if counts or table["combined"].notna().any() else "importance"
    if table[route].notna().any():
        error, place = 2 * table[f"{route}_se"], x + 0.22
        style: dict[str, Any] = {"ms": 4, "color": COLOUR_OF[route]}
        ax.errorbar(place, table[route], error, fmt="D", capsize=2, mfc="white", **style)
        sure, words = table[route].where(error.notna()), f"{route} evidences"
        ax.plot(place, sure, "D", label=words, zorder=3, **style)
    if exact is not None:
        known = [exact.get(str(label), np.nan) for label in table.index]
        ax.plot(x, known, "_", ms=22, mew=2, color="black", label="exact")
    if counts:
        ax.plot(x, table["prior"], color="black", lw=1, ls=":", label="prior")
        ax.locator_params(axis="x", integer=True)
        ax.set_xlim(x[0] - 0.6, x[-1] + 0.6)
    else:
        spread_labels(ax, x, [str(label) for label in table.index])
    ax.set_xlabel("number of components" if counts else "model")
    ax.set_ylabel("p(number | data)" if counts else "p(model | data)")
    ax.set_ylim(0, min(ax.get_ylim()[1], 1.02))
    ax.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), ncols=4)
    return ax


def plot_running(
    visited: Mapping[str, NDArray[np.bool_]],
    thin: int = 1,
    exact: Exact | None = None,
    ax: Axes | None = None,
    *,
    chains: int = 0,
) -> Axes:
    """Share of the visits so far of the most visited models, over all chains.

    Arguments:
        visited: By label, whether each draw is in the model, shape (chain, draw).
        thin: Kernel steps between draws.
        exact: Probabilities by label, where they are known.
        ax: Where to draw.
        chains: Show so many single chains as thin lines beside their mean.
    """
    ax = axes_of(ax, 6, 3.5)
    share = {label: float(inside.mean()) for label, inside in visited.items() if inside.any()}
    often = sorted(share, key=lambda label: -share[label])[:MOST_LINES]
    n_chains, n_draws = next(iter(visited.values())).shape
    so_far = np.arange(1, n_draws + 1)
    for i, label in enumerate(label for label in visited if label in often):
        inside, colour = visited[label], PALETTE[i % len(PALETTE)]
        ax.plot(so_far * thin, inside.mean(0).cumsum() / so_far, color=colour, lw=1.4, label=label)
        for line in inside[:chains].cumsum(1) / so_far:
            ax.plot(so_far * thin, line, color=colour, lw=0.5, alpha=0.5)
        if exact is not None and label in exact:
            ax.axhline(exact[label], color=colour, lw=0.8, ls="--")
    title = f"mean of {n_chains} chains"
    title += f", thin: {min(chains, n_chains)} of them" if chains else ""
    ax.set_xlabel("steps after warm-up")
    ax.set_ylabel("p(model | data) so far")
    ax.set_title(title + (", dashed: exact" if exact is not None else ""), fontsize=9)
    ax.legend(frameon=False, fontsize=8, ncols=2)
    return ax
