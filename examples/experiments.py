"""What the three published experiments share: the jumps of every sampler, and how they are judged.

Not a script: see sinh_arcsinh.py, factor_analysis.py and robust_regression.py.

Training differs from the papers in what gives all maps the same chance: batches of 512 at a
learning rate that rises to 2e-3 and falls, where Yin & Jiao take 256 at 1e-4; and one set of pilot
draws, of the largest size, for every size of the evaluation set. "Spline CTP" is a CoSMIC flow.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jumps import plot_repeats, repeated_bartolucci
from matplotlib import pyplot as plt

import trjmcmc as trj
from trjmcmc.compare.classical import METHODS, on_itself, uniform_proposal
from trjmcmc.fit import Pool
from trjmcmc.kernel import Cycle, Jump, Kernel, RandomWalk, start
from trjmcmc.plot.style import PALETTE

# Davies et al. (2023) and Yin & Jiao; all but the last two are trained on pilot draws
PUBLISHED = ("independence", "affine TRJ", "spline TRJ", "spline CTP", "VI TRJ", "VI CTP")
COLOURS = {
    "switch": "#999999",
    "independence": "#666666",
    "affine TRJ": PALETTE[3],
    "spline TRJ": PALETTE[2],
    "spline CTP": PALETTE[5],
    "VI TRJ": PALETTE[4],
    "VI CTP": PALETTE[0],
    "ours": PALETTE[1],
    "exact": PALETTE[7],
}
NAMES = """\
Samplers: TRJ, transport reversible jumps (a map a model); CTP, conditional transport proposals (one
map for all); affine and spline maps are trained on pilot draws, VI ones by variational inference
(reverse KL), without any. "independence" redraws everything from a map, "switch" is the saturated
space sampler. "ours" jumps through the map that TRJSampler.fit trains, its audit included."""
CHAINS = 3  # of a running estimate, as in the papers
NOTHING = 1e-5  # rounding in an estimate of a probability
WALKS = 2  # random walks inside the model between two jumps


@dataclass(frozen=True)
class Size:
    """How much work an experiment is.

    Attributes:
        particles: Of each of four tempered runs that pilot draws come from, and again of four
            that evaluation draws come from.
        pilot: Draws a model that maps are trained on.
        steps: Training steps of every map.
        running: Steps of a running estimate.
        sets: Sizes of the evaluation sets, draws a model.
        repeats: Bartolucci estimates of each.
        depths: Couplings of the maps in the ablation.
        fit: Settings of our own fit beyond the number of steps.
        seconds: Of the default run at the end.
    """

    particles: int
    pilot: int
    steps: int
    running: int
    sets: Sequence[int]
    repeats: int
    depths: Sequence[int] = ()
    fit: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 600.0


@dataclass(frozen=True)
class Trained:
    """A jump, and the seconds that its map took to train."""

    jump: Kernel
    seconds: float


def say(title: str, meaning: str) -> None:
    """What the next table holds, and how to read it."""
    print(f"\n{title}\n{'-' * len(title)}\n{meaning}\n")


def two_digits(x: float) -> str:
    """A number with two digits that count; what rounding has left is 0."""
    return "-" if x != x else "0" if abs(x) < NOTHING else f"{x:.2g}" if abs(x) < 10 else f"{x:.0f}"


def couplings(layers: int) -> str:
    return "1 coupling" if layers == 1 else f"{layers} couplings"


def parser(doc: str | None, picture: str) -> argparse.ArgumentParser:
    """Options that the three scripts have in common."""
    options = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    options.add_argument("--quick", action="store_true", help="two minutes instead of hours")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--threads", type=int, default=1, help="more only if cores are idle")
    options.add_argument("--output", type=Path, default=Path("output") / picture, help="a folder")
    return options


def train_all(
    target: trj.Target,
    names: Sequence[str],
    pool: Pool,
    size: Size,
    generator: torch.Generator,
    seed: int,
) -> dict[str, Trained]:
    """Every published sampler's jump, and one through our own map, which needs no pilot draws."""
    found = {}
    for name in names:
        begun = time.perf_counter()
        pilot = pool.some(size.pilot, generator)
        jump = METHODS[name].make(target, pilot, generator, {"steps": size.steps})
        found[name] = Trained(jump, time.perf_counter() - begun)
        print(f"trained {name:<14} {found[name].seconds:7.1f} s", flush=True)
    begun = time.perf_counter()
    sampler = trj.TRJSampler(target, seed=seed)
    sampler.fit(steps=size.steps, progress=False, **size.fit)
    jump = Jump(target, sampler.transport, uniform_proposal(target))
    found["ours"] = Trained(jump, time.perf_counter() - begun)
    print(f"trained {'ours':<14} {found['ours'].seconds:7.1f} s, audit included\n", flush=True)
    return found


def running_estimates(
    target: trj.Target,
    jump: Kernel,
    pool: Pool,
    model: int,
    steps: int,
    generator: torch.Generator,
) -> np.ndarray:
    """Share of a model so far in each of three chains that start at posterior draws.

    Returns:
        Shape (steps, 3).
    """
    kernel = Cycle([jump, (RandomWalk(target), WALKS)])
    rows = torch.randint(len(pool.code), (CHAINS,), generator=generator)
    state = start(target, pool.code[rows], pool.theta[rows])
    seen = torch.empty(steps, CHAINS)
    with torch.no_grad():
        for i in range(steps):
            state, _ = kernel.step(state, generator)
            seen[i] = (target.space.index(state.code) == model).float()
    count = torch.arange(1, steps + 1)[:, None]
    return (seen.cumsum(0) / count).numpy()


def bridge_estimates(
    target: trj.Target,
    trained: Mapping[str, Trained],
    pool: Pool,
    size: int,
    repeats: int,
    generator: torch.Generator,
) -> dict[str, np.ndarray]:
    """Bartolucci's estimates of all models' probabilities from evaluation sets of one size.

    Returns:
        By sampler, shape (repeats, M).
    """
    return {
        name: repeated_bartolucci(target, each.jump, pool, size, repeats, generator).numpy()
        for name, each in trained.items()
    }


def spread_table(
    estimates: Mapping[str, np.ndarray], labels: Sequence[str], truth: Mapping[str, float] | None
) -> pd.DataFrame:
    """Standard deviations of repeated estimates, and root mean square errors where truth is."""
    rows = {name: values.std(0, ddof=1) for name, values in estimates.items()}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=[f"sd {m}" for m in labels])
    if truth is not None:
        exact = np.array([truth[m] for m in labels])
        errors = [np.sqrt(((v - exact) ** 2).mean(0)).max() for v in estimates.values()]
        table["largest rms error"] = errors
    return table


def running_figure(
    estimates: Mapping[str, np.ndarray], truth: float | None, model: str
) -> plt.Figure:
    """A panel a sampler, a line a chain."""
    columns = min(4, len(estimates))
    rows = -(-len(estimates) // columns)
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(2.7 * columns, 2.2 * rows + 0.4),
        layout="constrained",
        squeeze=False,
        sharex=True,
        sharey=True,
    )
    for ax, (name, lines) in zip(axes.flat, estimates.items(), strict=False):
        steps = np.arange(1, len(lines) + 1)
        ax.plot(steps, lines, color=COLOURS.get(name, PALETTE[0]), lw=1)
        if truth is not None:
            ax.axhline(truth, color="black", ls="--", lw=1, label="exact")
        ax.set_xscale("log")
        ax.set_ylim(-0.02, 1.02)
        ax.set_title(name, fontsize=10)
    for ax in axes.flat[len(estimates) :]:
        ax.set_axis_off()
    figure.supxlabel("steps", fontsize=10)
    if truth is not None:
        shown = axes[0, 0].get_lines()[-1:]
        figure.legend(handles=shown, loc="outside lower right", frameon=False, fontsize=8)
    figure.supylabel(f"p({model} | data) so far", fontsize=10)
    return figure


def violin_figure(
    estimates: Mapping[int, Mapping[str, np.ndarray]],
    labels: Sequence[str],
    truth: Mapping[str, float] | None,
) -> plt.Figure:
    """Repeated estimates: a row a model, a column a size of the evaluation set.

    The saturated switch is left out: its scatter would hide the others'.
    """
    figure, axes = plt.subplots(
        len(labels),
        len(estimates),
        figsize=(4.2 * len(estimates) + 0.6, 2.2 * len(labels) + 0.8),
        layout="constrained",
        squeeze=False,
        sharex=True,
        sharey="row",
    )
    for column, (n, found) in zip(axes.T, estimates.items(), strict=True):
        shown = {name: values for name, values in found.items() if name != "switch"}
        for m, (ax, label) in enumerate(zip(column, labels, strict=True)):
            exact = None if truth is None else truth[label]
            plot_repeats({k: v[:, m] for k, v in shown.items()}, exact, ax, colours=COLOURS)
            ax.set_ylabel("")
            ax.set_title(f"N = {n} draws a model" if m == 0 else "", fontsize=10)
    for ax, label in zip(axes[:, 0], labels, strict=True):
        ax.set_ylabel(f"p({label} | data)", fontsize=9)
    return figure


def by_depth(
    target: trj.Target, pool: Pool, model: int, size: Size, generator: torch.Generator
) -> dict[str, np.ndarray]:
    """Running estimates through RealNVPs of several depths, trained without pilot draws."""
    found = {}
    for layers in size.depths:
        make = on_itself(partial(trj.transport.RealNVP, layers=layers), couplings(layers))
        jump = make(target, None, generator, {"steps": size.steps})
        found[couplings(layers)] = running_estimates(
            target, jump, pool, model, size.running, generator
        )
    return found


def save(figure: plt.Figure, folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / name, dpi=130)
    plt.close(figure)
    print(f"picture {folder / name}")
