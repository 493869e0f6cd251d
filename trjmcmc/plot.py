"""Pictures of fits and results; Okabe and Ito's colour-blind-safe palette."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from .errors import ConfigurationError, TRJError
from .estimate.importance import ENDLESS_K
from .space import Counts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .compare import Comparison
    from .fit import FitTrace
    from .result import Result

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
GREY = "#999999"
MOST_LINES = 8
MOST_POINTS = 20_000
BINS = 120
LABEL = 34.0  # points that the probability beside an interval takes, the gap after it included
MOST_MODELS = 16
CROWDED = 0.35  # inches a label under which long ones stand on end
TOO_WIDE = 5.0  # times the smallest error: a route that would dwarf the others


def _reach(p: Any, se: Any) -> Any:
    """Two standard errors of probabilities down and up, no further than 0 and 1, (2, n)."""
    return np.stack([(2 * se).clip(upper=p), (2 * se).clip(upper=1 - p)])


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
    place, reach = np.arange(len(table)), _reach(table["probability"], table["se"])
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
    counts = isinstance(result.space, Counts) and len(result.space.kinds) == 1
    table = _of_counts(result) if counts else result.model_probabilities()
    x = table.index.to_numpy() if counts else np.arange(len(table))
    bars = ax.bar(x, table["visits"], color=PALETTE[5], label="visits, ± 2 standard errors")
    _hollow(bars, table["visits_se"])
    reach = _reach(table["visits"], table["visits_se"])
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


ROUTES = ("visits", "bartolucci", "importance", "bridge", "warp", "audit", "combined")
COLOUR_OF = dict(zip(ROUTES, (*PALETTE[:6], "black"), strict=True))  # in every figure


def plot_evidence(result: Result, ax: Axes | None = None) -> Axes:
    """Log evidence of each model by every route, less the combined one, two standard errors.

    Estimates that carry a warning are hollow. The frame is that of the routes whose errors are of
    one size; triangles at its edge show where bars of the others run out of it.
    """
    table = result.evidence()
    found = table[np.isfinite(table["combined"])].nlargest(MOST_MODELS, "probability").index
    unknown = table.index[~np.isfinite(table["combined"])][: MOST_MODELS - len(found)]
    table = table[table.index.isin(found) | table.index.isin(unknown)]
    size = (max(6.0, 1.1 + 0.8 * len(table)), 3.5)
    ax = ax if ax is not None else plt.subplots(figsize=size, layout="constrained")[1]
    routes = [r for r in ROUTES if r in table and np.isfinite(table[f"{r}_se"]).any()]
    x = np.arange(len(table))
    exact = result.truth.log_evidence if result.truth is not None else {}
    gap = np.array([exact.get(str(m), np.nan) for m in table.index]) - table["combined"]
    low, high = _within_reach(table, routes)
    doubted = False
    for i, route in enumerate(routes):
        colour = COLOUR_OF[route]
        place = x + 0.7 * (i / max(len(routes) - 1, 1) - 0.5)
        known = np.isfinite(table[f"{route}_se"].to_numpy())
        flagged = table["note"].str.contains(f"{route}: ").to_numpy()
        style: dict[str, Any] = {
            "color": colour,
            "fmt": "D" if route == "combined" else "o",
            "ms": 4.5,
        }
        for rows, fill in ((known & ~flagged, colour), (known & flagged, "white")):
            y = (table[route] - table["combined"])[rows]
            error = 2 * table[f"{route}_se"][rows]
            ax.errorbar(place[rows], y, error, mfc=fill, lw=1, **style)
            for out, edge, mark in ((y + error > high, high, "^"), (y - error < low, low, "v")):
                x_out = place[rows][out.to_numpy()]
                ax.plot(x_out, np.full(len(x_out), edge), mark, color=colour, ms=5, clip_on=False)
        doubted |= bool((known & flagged).any())
        ax.plot([], [], "D" if route == "combined" else "o", color=colour, ms=4.5, label=route)
    if gap.notna().any():
        ax.plot(x, gap, "_", ms=34, mew=1.5, color="grey", zorder=0)
        ax.plot([], [], "_", ms=10, mew=1.5, color="grey", label="exact")
    if doubted:
        ax.plot([], [], "o", ms=4.5, mfc="white", color="grey", label="hollow: flagged")
    for place in x[~np.isfinite(table["combined"].to_numpy())]:
        where: dict[str, Any] = {"rotation": 90, "ha": "center", "va": "center"}
        ax.text(place, 0.0, "not known", color="grey", size=8, **where)
    spread_labels(ax, x, [str(m) for m in table.index])
    ax.set_ylabel("log evidence\nless combined (nats)")
    ax.set_xlabel("model")
    ax.set_xlim(-0.6, len(table) - 0.4)
    ax.set_ylim(low, high)
    ax.legend(frameon=False, fontsize=8, ncols=4, loc="upper center", columnspacing=1.2)
    return ax


def _within_reach(table: Any, routes: list[str]) -> tuple[float, float]:
    """Limits that show the routes whose errors are of one size, with room for a legend."""
    sizes = [np.nanmedian(table[f"{r}_se"].replace(np.inf, np.nan)) for r in routes]
    comparable = [float(s) for s in sizes if s <= TOO_WIDE * np.nanmin(sizes)]
    most = max(6 * max(comparable, default=0.0), 1e-3)
    return -most, 1.9 * most


def spread_labels(ax: Axes, x: Any, names: list[str]) -> None:
    """Names below their places: upright, tilted where long, on end where crowded."""
    tilted = max(len(name) for name in names) > 6
    room = ax.get_window_extent().width / ax.figure.dpi / len(names)
    angle = 90 if tilted and room < CROWDED else 30 if tilted else 0
    ax.set_xticks(x, names, rotation=angle, ha="right" if angle == 30 else "center")


def plot_jumps(result: Result, ax: Axes | None = None) -> Axes:
    """Chance that a jump goes from row to column and is accepted, as a heat map."""
    rates = result.jumps()
    share = {m: float(result.visited(str(m)).mean()) for m in rates.index}
    often = sorted((m for m in share if share[m]), key=lambda m: -share[m])[:MOST_MODELS]
    seen = [m for m in rates.index if m in often]
    rates = rates.loc[seen, seen]
    n = len(rates)
    size = (2.4 + 0.62 * max(n, 3), 1.4 + 0.5 * max(n, 3))
    ax = ax if ax is not None else plt.subplots(figsize=size, layout="constrained")[1]
    image = ax.imshow(rates, cmap="cividis", vmin=0)
    top = float(np.nanmax(rates.to_numpy(), initial=0.0))
    for i, j in np.ndindex(n, n):
        if np.isfinite(value := rates.iloc[i, j]):
            colour = "black" if value > 0.6 * top else "white"
            ax.text(j, i, f"{value:.2g}", ha="center", va="center", fontsize=7, color=colour)
    names = [str(m) for m in rates.index]
    ax.set_yticks(np.arange(n), names)
    spread_labels(ax, np.arange(n), names)
    ax.set_xlabel("to model")
    ax.set_ylabel("from model")
    ax.figure.colorbar(image, ax=ax, label="share of jumps that go there", shrink=0.9)
    return ax


def plot_pareto(result: Result, ax: Axes | None = None) -> Axes:
    """Pareto shape of the importance weights by model; above 0.5 they have no variance.

    Shapes below -1 and above 2 are drawn there.
    """
    found = result.pareto_k
    if not found:
        raise TRJError("plot_pareto: no map has weighed the models")
    labels = [m for m in result.models if m in found]
    size = (max(4.0, 1.1 + 0.5 * len(labels)), 3.0)
    ax = ax if ax is not None else plt.subplots(figsize=size, layout="constrained")[1]
    k = np.clip([found[m] for m in labels], -1.0, 2.0)
    x = np.arange(len(labels))
    colours = [PALETTE[1] if value > ENDLESS_K else PALETTE[0] for value in k]
    ax.scatter(x, k, c=colours, s=28, zorder=3)
    ax.axhline(ENDLESS_K, color="black", lw=1, ls="--", label="no variance above")
    low, high = min(float(k.min()), ENDLESS_K), max(float(k.max()), ENDLESS_K)
    edge = 0.15 * max(high - low, 0.5)
    ax.set_xlim(-0.6, len(labels) - 0.4)
    ax.set_ylim(low - edge, high + 2 * edge)  # room for the legend
    ax.legend(frameon=False, fontsize=8, loc="upper left")
    spread_labels(ax, x, labels)
    ax.set_xlabel("model")
    ax.set_ylabel("Pareto k of the weights")
    return ax


def _of_counts(result: Result) -> Any:
    """Probabilities of the numbers between those that were visited."""
    table = result.counts().droplevel("kind")
    seen = table.index[table["probability"] > 0]
    table = table.loc[seen.min() : seen.max()]
    if any(result._best_route(m).warning for m in result._weighed):
        table[["combined", "combined_se"]] = np.nan
    return table.rename(columns={"probability": "visits", "se": "visits_se"})


def plot_components(
    result: Result,
    x: str,
    y: str | None = None,
    ax: Axes | None = None,
    *,
    kind: str | int | None,
    interval: float,
) -> Axes:
    """Where components are, in the colours of their entries; grey ones belong to none.

    Bars are the intervals of the catalogue, with the probability of each entry.
    """
    size = (6, 3.5) if y is None else (5.5, 4.5)
    ax = ax if ax is not None else plt.subplots(figsize=size, layout="constrained")[1]
    table = result.catalogue(kind, interval=interval)
    parts, entry = result.components(kind)
    for name in (x,) if y is None else (x, y):
        if name not in parts:
            raise ConfigurationError(f"plot_components: no {name!r}; there are {sorted(parts)}")
    colours = {e: PALETTE[i % (len(PALETTE) - 1)] for i, e in enumerate(table.index)}
    shown = [(0, GREY), *colours.items()]
    low, high = _frame(parts[x], table, x)
    if y is None:
        top = _draw_intensity(ax, result, [parts[x][entry == e] for e, _ in shown], (low, high))
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
            said = f"{row['probability']:.2f}"
            ax.annotate(said, at, (4, 4), textcoords="offset points", fontsize=8)
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


def _draw_intensity(ax: Axes, result: Result, values: Any, limits: tuple[float, float]) -> float:
    """Stacked bars whose area is the mean number of components a draw; returns their height."""
    bins = np.linspace(*limits, BINS + 1)
    each = 1 / (result.raw.code[..., 0].numel() * (bins[1] - bins[0]))
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
        said = f"{row['probability']:.2f}"
        ax.annotate(said, (end, at), (4, 0), textcoords="offset points", va="center", fontsize=7)
    ax.set_ylim(0, top * (1.1 + 0.09 * max(len(free), 1)))


def plot_averaged(
    result: Result,
    grid: ArrayLike,
    f: Callable[..., Any] | Mapping[str, Callable[..., Any]],
    data: Any = None,
    ax: Axes | None = None,
    **settings: Any,
) -> Axes:
    """A function on a grid, averaged over models, with its pointwise band and data behind."""
    ax = ax if ax is not None else plt.subplots(figsize=(6, 3.5), layout="constrained")[1]
    at = np.asarray(grid, dtype=float)
    said = result.predict(f, **settings)
    if at.ndim != 1 or said.mean.shape != at.shape:
        raise ConfigurationError(
            f"plot_averaged: expected a grid (n,) and values (draws, n), got {at.shape} and "
            f"(draws, {', '.join(map(str, said.mean.shape))})"
        )
    if isinstance(data, tuple):
        ax.plot(*data, ".", ms=3, color=GREY, label="data")
    elif data is not None:
        edges = np.histogram_bin_edges(np.asarray(data), "fd").tolist()
        ax.hist(np.asarray(data), edges, density=True, color="lightgrey", label="data")
    ax.fill_between(at, said.lower, said.upper, color=PALETTE[5], alpha=0.5, lw=0, label="90 %")
    ax.plot(at, said.mean, color=PALETTE[0], lw=1.5, label="mean over all models")
    ax.legend(frameon=False, fontsize=8)
    return ax


def plot_repeats(
    repeats: Mapping[str, ArrayLike],
    truth: float | None = None,
    ax: Axes | None = None,
    *,
    colours: Mapping[str, str] | None = None,
) -> Axes:
    """Violins of repeated estimates of one number, side by side.

    Arguments:
        repeats: By name (a sampler, a map), estimates of one probability, shape (n,).
        truth: What they estimate, where it is known.
        ax: Where to draw.
        colours: By name.
    """
    size = (max(4.0, 1.2 + 0.9 * len(repeats)), 3.5)
    ax = ax if ax is not None else plt.subplots(figsize=size, layout="constrained")[1]
    x = np.arange(len(repeats))
    drawn = ax.violinplot(
        [np.asarray(v, dtype=float) for v in repeats.values()], x, widths=0.8, showmedians=True
    )
    chosen = [(colours or {}).get(n, PALETTE[i % len(PALETTE)]) for i, n in enumerate(repeats)]
    for i, body in enumerate(drawn["bodies"]):  # type: ignore[arg-type, var-annotated]
        body.set_facecolor(chosen[i])
        body.set_alpha(0.6)
    for part in ("cbars", "cmins", "cmaxes", "cmedians"):
        drawn[part].set_color("black")
        drawn[part].set_linewidth(1)
    if truth is not None:
        ax.axhline(truth, color="black", lw=1, ls="--", label="exact")
        ax.legend(frameon=False, fontsize=8)
    spread_labels(ax, x, list(repeats))
    ax.set_ylabel("estimate")
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
