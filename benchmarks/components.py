"""What a step of a component costs, and what it buys: by data, by components, by kernel.

python -m benchmarks.components --steps       # milliseconds, and a picture
python -m benchmarks.components --pulses 180  # p(k) and effective draws, by kernel, seconds each
"""

import argparse
import time
from pathlib import Path

import pandas as pd
import torch
from matplotlib import pyplot as plt

import trjmcmc as trj
from benchmarks.scaling import median_seconds
from trjmcmc.estimate import mean_error
from trjmcmc.kernel import (
    BirthDeath,
    ComponentBirthDeath,
    ComponentWalk,
    Cycle,
    Kernel,
    Neighbours,
    RandomWalk,
    start,
)

POINTS = (250, 1000, 4000, 16_000, 64_000)
COMPONENTS = (2, 5, 10, 20, 50, 100)
CHAINS, REPEATS = 64, 15
BOX = 60.0  # side of the square that holds a hundred sources


def mixture(points: int, components: int) -> trj.Target:
    return trj.problems.gaussian_mixture_2d(
        true=components, points=points, most=components + 20, side=BOX, seed=1
    )


def steps(points: int, components: int) -> dict[str, float]:
    """Milliseconds of a step of all chains, each at the true components."""
    target = mixture(points, components)
    y = target.means_true  # type: ignore[attr-defined]
    params = {name: y[None, :, i].expand(CHAINS, -1).float() for i, name in enumerate("xy")}
    theta = target.unconstrain(str(components), params)
    code = torch.full((CHAINS, 1), components)
    generator = torch.Generator().manual_seed(0)
    moves: dict[str, Kernel] = {
        "one component": Cycle([ComponentBirthDeath(target, prior_share=1), ComponentWalk(target)]),
        "all of them": Cycle([BirthDeath(target, Neighbours(target.space)), RandomWalk(target)]),
    }
    states = {name: start(target, code, theta) for name in moves}

    def go(name: str) -> None:
        with torch.no_grad():
            states[name], _ = moves[name].step(states[name], generator)

    repeats = REPEATS if points * components <= 200_000 else 3
    found = median_seconds({name: lambda name=name: go(name) for name in moves}, repeats)
    return {name: 1e3 * seconds for name, seconds in found.items()}


def draw(by_points: pd.DataFrame, by_components: pd.DataFrame, path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", sharey=True)
    for ax, table, label in zip(
        axes, (by_points, by_components), ("points", "components"), strict=True
    ):
        for name in table:
            ax.loglog(table.index, table[name], "o-", label=f"a step of {name}")
        ax.set_xlabel(label)
    axes[0].set_ylabel(f"milliseconds, {CHAINS} chains")
    axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=120)


def pulses(seconds: float) -> pd.DataFrame:
    """p(3), p(4), p(5) with errors, and effective draws of each and of k a second of processor.

    Everything is included; the wall clock ends a run.
    """
    target = trj.problems.pulses()
    kernels: dict[str, Kernel | None] = {
        "default": None,
        "births from the prior, by sums": Cycle(
            [ComponentBirthDeath(target, prior_share=1), (ComponentWalk(target), 2)]
        ),
        "births from the prior": Cycle(
            [BirthDeath(target, Neighbours(target.space)), (RandomWalk(target), 2)]
        ),
    }
    rows = []
    for name, kernel in kernels.items():
        begun = time.process_time()
        sampler = trj.TRJSampler(target, kernel=kernel, seed=0)
        settings = {} if kernel is None else {"fit": False}
        result = sampler.run(max_seconds=seconds, progress=False, **settings)
        spent = time.process_time() - begun
        table = result.counts(full=True).loc["amplitude+centre+width"]
        k_drawn = result.raw.code[..., 0].numpy().astype(float)
        error, _ = mean_error(k_drawn)
        row: dict[str, object] = {"kernel": name, "seconds": round(spent, 1)}
        row["eff/s(k)"] = k_drawn.var() / error**2 / spent
        for k in (3, 4, 5):
            p, se = table.loc[k, "probability"], table.loc[k, "se"]
            row |= {f"p({k})": p, f"se({k})": se, f"eff/s({k})": p * (1 - p) / se**2 / spent}
        rows.append(row)
    return pd.DataFrame(rows).set_index("kernel")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", action="store_true")
    parser.add_argument("--pulses", type=float, metavar="SECONDS")
    parser.add_argument("--output", type=Path, default=Path("output"))
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.output.mkdir(parents=True, exist_ok=True)
    if options.steps:
        by_points = pd.DataFrame({n: steps(n, 10) for n in POINTS}).T
        by_components = pd.DataFrame({k: steps(4000, k) for k in COMPONENTS}).T
        print(by_points.round(2).to_string(), by_components.round(2).to_string(), sep="\n\n")
        draw(by_points, by_components, options.output / "components.png")
    if options.pulses:
        print(pulses(options.pulses).round(4).to_string())


if __name__ == "__main__":
    main()
