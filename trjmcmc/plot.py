"""Pictures of fits and results; Okabe and Ito's colour-blind-safe palette."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .compare import Comparison
    from .fit import FitTrace
    from .result import Result

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
MOST_LINES = 8


def plot_models(result: Result, ax: Axes | None = None) -> Axes:
    """Bars of model probabilities with two standard errors, beside importance and truth."""
    ax = ax if ax is not None else plt.subplots(figsize=(6, 3.5), layout="constrained")[1]
    table = result.model_probabilities()
    x = np.arange(len(table))
    ax.bar(x, table["visits"], color=PALETTE[5], label="visits, ± 2 standard errors")
    ax.errorbar(x, table["visits"], 2 * table["visits_se"], fmt="none", ecolor="black", capsize=3)
    if table["importance"].notna().any():
        ax.errorbar(
            x + 0.22,
            table["importance"],
            2 * table["importance_se"],
            fmt="D",
            ms=4,
            color=PALETTE[1],
            capsize=2,
            label="importance sampling",
        )
    if result.truth is not None:
        known = [result.truth.probabilities.get(str(label), np.nan) for label in table.index]
        ax.plot(x, known, "_", ms=22, mew=2, color="black", label="exact")
    names = [str(label) for label in table.index]
    tilted = max(len(name) for name in names) > 6
    ax.set_xticks(x, names, rotation=30 if tilted else 0, ha="right" if tilted else "center")
    ax.set_xlabel("model")
    ax.set_ylabel("p(model | data)")
    ax.set_ylim(0, 1.35 * ax.get_ylim()[1])  # room for the legend
    ax.legend(frameon=False, fontsize=8, loc="upper right")
    return ax


def plot_running(result: Result, ax: Axes | None = None) -> Axes:
    """Share of the visits so far of the most probable models, over all chains."""
    ax = ax if ax is not None else plt.subplots(figsize=(6, 3.5), layout="constrained")[1]
    table = result.model_probabilities()
    labels = [label for label in result.models if table.loc[label, "visits"] > 0]
    labels = sorted(labels, key=lambda label: -float(table.loc[label, "visits"]))[:MOST_LINES]
    steps = np.arange(1, result.raw.n_draws + 1) * result.raw.thin
    for i, label in enumerate(label for label in result.models if label in labels):
        share = result.visited(label).mean(0).cumsum() / np.arange(1, result.raw.n_draws + 1)
        colour = PALETTE[i % len(PALETTE)]
        ax.plot(steps, share, color=colour, lw=1.4, label=label)
        if result.truth is not None and label in result.truth.probabilities:
            ax.axhline(result.truth.probabilities[label], color=colour, lw=0.8, ls="--")
    title = f"mean of {result.raw.n_chains} chains"
    ax.set_xlabel("steps after warm-up")
    ax.set_ylabel("p(model | data) so far")
    ax.set_title(title + (", dashed: exact" if result.truth is not None else ""), fontsize=9)
    ax.legend(frameon=False, fontsize=8, ncols=2)
    return ax


def plot_fit(trace: FitTrace, ax: Axes | None = None) -> Axes:
    """Objective against step, lower is better; dashed while the likelihood is tempered."""
    ax = ax if ax is not None else plt.subplots(figsize=(6, 3.5), layout="constrained")[1]
    step, value = np.asarray(trace.step), np.asarray(trace.objective)
    tempered = np.asarray(trace.temper) < 1
    if tempered.any():
        ax.plot(step[tempered], value[tempered], ls="--", color=PALETTE[0], label="tempered")
    ax.plot(step[~tempered], value[~tempered], color=PALETTE[0], label="full likelihood")
    if trace.best_step:
        ax.axvline(trace.best_step, color=PALETTE[1], lw=1, label="kept")
    ax.set_xlabel("training step")
    ax.set_ylabel("objective (nats)")
    ax.legend(frameon=False, fontsize=8)
    return ax


def plot_comparison(comparison: Comparison, ax: Axes | None = None) -> Axes:
    """Bars of effective draws of the model indicator a second, fit included."""
    table = comparison.table.dropna(subset=["ess_per_s"]).sort_values("ess_per_s")
    size = (6, 1.2 + 0.35 * len(table))
    ax = ax if ax is not None else plt.subplots(figsize=size, layout="constrained")[1]
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
