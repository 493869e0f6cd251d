"""How much do Bartolucci's estimates scatter, by map? Robust regression, N draws a model.

Maps are trained on N pilot draws a model as in the papers, by reverse KL, or by our own fit; the
last two need no pilot draws. Each repeat takes N fresh posterior draws a model and proposes one
jump from each.

    python -m benchmarks.bridge_spread                    # N = 500, about six minutes
    python -m benchmarks.bridge_spread --draws 4000 --plot spread.png
    python -m benchmarks.bridge_spread --data regression.csv   # columns y, x1, x2, x3, x4
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import trjmcmc as trj
from examples.jumps import plot_repeats, repeated_bartolucci
from trjmcmc.compare.classical import METHODS, uniform_proposal
from trjmcmc.fit import tempered_draws
from trjmcmc.kernel import Jump, Kernel
from trjmcmc.plot.style import PALETTE

REPEATS = 80
PARTICLES = 12_000  # of each of the tempered runs that draws come from
JUMPS = ("switch", "independence", "affine TRJ", "spline TRJ", "spline CTP", "VI TRJ", "VI CTP")
PAPERS = {  # of the published data, N = 500, with the authors' code, models in the same order
    "affine": (0.0063, 0.0204, 0.0228, 0.0338),
    "spline": (0.0052, 0.0073, 0.0113, 0.0159),
    "VI-trained": (0.0018, 0.0053, 0.0082, 0.0107),
}


def regression(data: Path | None) -> trj.Target:
    """The target, of a file's data or of simulated ones."""
    if data is None:
        return trj.problems.robust_regression()
    table = pd.read_csv(data)
    first = list(table.columns).index("y") + 1
    return trj.problems.robust_regression(table.iloc[:, first : first + 4], table["y"])


def scatter(
    target: trj.Target,
    draws: int,
    *,
    repeats: int,
    steps: int,
    particles: int = PARTICLES,
    seed: int = 0,
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Repeated estimates by map, shape (repeats, M), and seconds of training."""
    generator = torch.Generator().manual_seed(seed)
    to_train_on, to_evaluate_on = (tempered_draws(target, particles, generator) for _ in range(2))
    pilot = to_train_on.some(draws, generator)
    jumps: dict[str, Kernel] = {}
    seconds = {}
    for method in JUMPS:
        begun = time.perf_counter()
        jumps[method] = METHODS[method].make(target, pilot, generator, {"steps": steps})
        seconds[method] = time.perf_counter() - begun
    sampler = trj.TRJSampler(target, seed=seed)
    begun = time.perf_counter()
    sampler.fit(steps=steps, progress=False)
    seconds["ours"] = time.perf_counter() - begun
    jumps["ours"] = Jump(target, sampler.transport, uniform_proposal(target))

    found = {
        name: repeated_bartolucci(target, jump, to_evaluate_on, draws, repeats, generator).numpy()
        for name, jump in jumps.items()
    }
    return found, seconds


def rows(found: dict[str, np.ndarray], seconds: dict[str, float], target: trj.Target) -> list[Any]:
    """Standard deviations by map and model."""
    labels = target.space.label(target.space.enumerate())
    spread = {name: values.std(0, ddof=1) for name, values in found.items()}
    exact = np.array([target.truth.probabilities[m] for m in labels])
    return [
        {"case": "bridges", "map": name, "training_s": seconds[name]}
        | {f"sd {label}": float(sd) for label, sd in zip(labels, values, strict=True)}
        | {"error of means": float(np.abs(found[name].mean(0) - exact).max())}
        for name, values in spread.items()
    ]


def draw(found: dict[str, np.ndarray], target: trj.Target, draws: int, path: Path) -> None:
    """Estimates of the largest model; the switch would hide the rest."""
    label = target.space.label(target.space.enumerate())[-1]
    shown = {name: values[:, -1] for name, values in found.items() if name != "switch"}
    colours = dict.fromkeys(shown, PALETTE[5]) | {"ours": PALETTE[1]}
    ax = plot_repeats(shown, target.truth.probabilities[label], colours=colours)
    ax.set_ylabel(f"p({label} | data), N = {draws}")
    ax.figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--draws", type=int, default=500, help="N, a model")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--steps", type=int, default=2000, help="of training, of every map")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    target = regression(options.data)
    found, seconds = scatter(
        target, options.draws, repeats=options.repeats, steps=options.steps, seed=options.seed
    )
    table = pd.DataFrame(rows(found, seconds, target)).drop(columns="case").set_index("map")
    if options.data:
        for name, values in PAPERS.items():
            table.loc[f"published, {name}, N = 500"] = [float("nan"), *values, float("nan")]
    print(table.to_string(float_format="{:.3g}".format), "\n")
    means = {name: values.mean(0) for name, values in found.items()}
    means["exact"] = np.array([*target.truth.probabilities.values()])
    print(pd.DataFrame(means, index=target.truth.probabilities).T.round(4).to_string())
    if options.plot:
        draw(found, target, options.draws, options.plot)


if __name__ == "__main__":
    main()
