"""Pictures of fits and results; Okabe and Ito's colour-blind-safe palette."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.ticker import MaxNLocator

from .style import COLOUR_OF, PALETTE, reach_of, spread_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..result.result import Result


MOST_LINES = 8


def _hollow(bars: Any, se: Any) -> None:
    """Bars whose error nothing tells, drawn as outlines, with a word in the legend."""
    unknown = [bar for bar, error in zip(bars, se, strict=True) if np.isnan(error)]
    for bar in unknown:
        bar.set(facecolor="none", edgecolor=PALETTE[5], linestyle="--")
    if unknown:
        unknown[0].set_label("error not known")


def plot_inclusion(result: Result, ax: Axes | None = None) -> Axes:
    """Bars of the probability that each item is in, with two standard errors."""
    table = result.inclusion_probabilities()
    if ax is None:
        size = (5, 1 + 0.22 * len(table))
        ax = plt.subplots(figsize=size, layout="constrained")[1]
    place, reach = np.arange(len(table)), reach_of(table["probability"], table["se"])
    bars = ax.barh(place, table["probability"], color=PALETTE[5])
    _hollow(bars, table["se"])
    ax.errorbar(table["probability"], place, xerr=reach, fmt="none", ecolor="black", capsize=2)
    ax.set_yticks(place, table.index)
    ax.set(xlim=(0, 1), xlabel="probability of being in, ± 2 standard errors")
    ax.invert_yaxis()
    if ax.get_legend_handles_labels()[1]:
        ax.legend(frameon=False, fontsize=8)
    return ax


def plot_models(result: Result, ax: Axes | None = None) -> Axes:
    """Bars of model probabilities with two standard errors, beside combined ones and truth.

    Numbers of components stand on an axis of numbers, with their prior.
    """
    ax = ax if ax is not None else plt.subplots(figsize=(6, 3.5), layout="constrained")[1]
    counts = result.space.counts and len(result.space.kinds) == 1
    table = _of_counts(result) if counts else result.model_probabilities()
    x = table.index.to_numpy() if counts else np.arange(len(table))
    bars = ax.bar(x, table["visits"], color=PALETTE[5], label="visits, ± 2 standard errors")
    _hollow(bars, table["visits_se"])
    reach = reach_of(table["visits"], table["visits_se"])
    ax.errorbar(x, table["visits"], reach, fmt="none", ecolor="black", capsize=3)
    route = "combined" if counts or table["combined"].notna().any() else "importance"
    if table[route].notna().any():
        error, colour = 2 * table[f"{route}_se"], COLOUR_OF[route]
        style: dict[str, Any] = {"fmt": "D", "ms": 4, "color": colour, "capsize": 2, "mfc": "white"}
        ax.errorbar(x + 0.22, table[route], error, **style)
        known = error.notna().to_numpy()
        label = f"{route} evidences"
        ax.plot(x[known] + 0.22, table[route][known], "D", ms=4, color=colour, label=label)
    if result.truth is not None:
        known = [result.truth.probabilities.get(str(label), np.nan) for label in table.index]
        ax.plot(x, known, "_", ms=22, mew=2, color="black", label="exact")
    if counts:
        ax.plot(x, table["prior"], color="black", lw=1, ls=":", label="prior")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_xlim(x[0] - 1, x[-1] + 1)
    else:
        spread_labels(ax, x, [str(label) for label in table.index])
    ax.set_xlabel("number of components" if counts else "model")
    ax.set_ylabel("p(number | data)" if counts else "p(model | data)")
    ax.set_ylim(0, 1.35 * ax.get_ylim()[1])  # room for the legend
    ax.legend(frameon=False, fontsize=8, loc="upper right")
    return ax


def plot_running(result: Result, ax: Axes | None = None, *, chains: int = 0) -> Axes:
    """Share of the visits so far of the most probable models, over all chains.

    Arguments:
        result: The run.
        ax: Where to draw.
        chains: Show so many single chains as thin lines beside their mean.
    """
    ax = ax if ax is not None else plt.subplots(figsize=(6, 3.5), layout="constrained")[1]
    table = result.model_probabilities()
    labels = [label for label in result.models if table.loc[label, "visits"] > 0]
    labels = sorted(labels, key=lambda label: -float(table.loc[label, "visits"]))[:MOST_LINES]
    steps = np.arange(1, result.raw.n_draws + 1) * result.raw.thin
    for i, label in enumerate(label for label in result.models if label in labels):
        share = result.visited(label).mean(0).cumsum() / np.arange(1, result.raw.n_draws + 1)
        colour = PALETTE[i % len(PALETTE)]
        ax.plot(steps, share, color=colour, lw=1.4, label=label)
        single = result.visited(label)[:chains].cumsum(1) / np.arange(1, result.raw.n_draws + 1)
        for line in single:
            ax.plot(steps, line, color=colour, lw=0.5, alpha=0.5)
        if result.truth is not None and label in result.truth.probabilities:
            ax.axhline(result.truth.probabilities[label], color=colour, lw=0.8, ls="--")
    title = f"mean of {result.raw.n_chains} chains"
    title += f", thin: {min(chains, result.raw.n_chains)} of them" if chains else ""
    ax.set_xlabel("steps after warm-up")
    ax.set_ylabel("p(model | data) so far")
    ax.set_title(title + (", dashed: exact" if result.truth is not None else ""), fontsize=9)
    ax.legend(frameon=False, fontsize=8, ncols=2)
    return ax


def _of_counts(result: Result) -> Any:
    """Probabilities of the numbers between those that were visited."""
    table = result.counts().droplevel("kind")
    seen = table.index[table["probability"] > 0]
    table = table.loc[seen.min() : seen.max()]
    if any(result._best_route(m).warning for m in result._weighed):
        table[["combined", "combined_se"]] = np.nan
    return table.rename(columns={"probability": "visits", "se": "visits_se"})
