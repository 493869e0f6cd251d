"""What a step of chains over counts costs, by rungs, points of the data and components.

    python -m benchmarks.ladders                  # two minutes; writes benchmarks/ladders.png

A step is what a default run makes: births and deaths, an exchange, walks, and a trade of places
between neighbours. Bare mathematics is one signal of a component and one likelihood of a sum for
each evaluation that is counted.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from matplotlib import pyplot as plt

import trjmcmc as trj
from benchmarks.scaling import median_seconds
from trjmcmc.kernel import Cycle, Kernel, ParallelTempering, start
from trjmcmc.run.moves import component_births, component_exchanges, component_walks
from trjmcmc.target.exchangeable import components_of
from trjmcmc.target.tempered import Tempered

REPLICAS = 480

STEPS = 40  # that moves learn in

REPEATS = 16  # a step is another each time: pairs that are exchanged are drawn


def moves(target: Tempered) -> Kernel:
    parts = components_of(target)
    births, walks = component_births(target, parts), component_walks(target, parts)
    return Cycle([births, *component_exchanges(target, parts), *walks])


def cost(target: trj.Target, rungs: int) -> dict[str, Any]:
    """Seconds of a step of all replicas, and of the bare mathematics in it."""
    generator = torch.Generator().manual_seed(1)
    kernel: Kernel = ParallelTempering(target, moves, torch.logspace(0, -2, rungs).double())
    n = REPLICAS // rungs
    code = target.space.sample_prior(n, generator)
    state = start(target, code, target.sample_prior(code, generator))
    with torch.no_grad():
        for _ in range(STEPS):
            kernel, state, _ = kernel.adapt(state, generator)
    kernel = kernel.frozen()
    before, made = int(target.account.evaluations), 0

    def step() -> None:
        nonlocal state, made
        with torch.no_grad():
            state, _ = kernel.step(state, generator)
        made += 1

    many = kernel.replicas(state)
    (parts,) = components_of(target)
    x, total = parts.one(many.theta, 0 * many.code[:, 0]), target.total(many.code, many.theta)

    def bare() -> None:
        with torch.no_grad():
            parts.contribution(many.theta, x)
            target.log_joint(many.code, many.theta, total)

    def taken(function: Callable[[], None]) -> float:
        return median_seconds({"it": function}, REPEATS)["it"]

    seconds = taken(step)
    evaluations = (int(target.account.evaluations) - before) / made
    price = taken(bare) / len(many.code)
    return {
        "rungs": rungs,
        "replicas": len(many.code),
        "ms_a_step": 1000 * seconds,
        "evaluations_a_s": evaluations / seconds,
        "over_bare": seconds / (evaluations * price),
    }


def table() -> pd.DataFrame:
    rows = []
    for rungs in (2, 4, 8, 16):
        for name, target in (
            ("pulses", trj.problems.pulses(true=3)),
            ("planets", trj.problems.radial_velocity()),
        ):
            rows.append({"by": "rungs", "problem": name, "x": rungs} | cost(target, rungs))
    for points in (60, 200, 600, 2000):
        target = trj.problems.pulses(true=3, points=points)
        rows.append({"by": "points", "problem": "pulses", "x": points} | cost(target, 8))
        target = trj.problems.radial_velocity(epochs=points)
        rows.append({"by": "points", "problem": "planets", "x": points} | cost(target, 8))
    for most in (2, 4, 8, 16):
        target = trj.problems.pulses(true=2, most=most)
        rows.append({"by": "components", "problem": "pulses", "x": most} | cost(target, 8))
        target = trj.problems.radial_velocity(most=most)
        rows.append({"by": "components", "problem": "planets", "x": most} | cost(target, 8))
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("ladders.png"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found = table()
    print(found.round(2).to_string(index=False))
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained", sharey=True)
    titles = {
        "rungs": "rungs (480 replicas in all)",
        "points": "points of the data (8 rungs)",
        "components": "largest number of components (8 rungs)",
    }
    for axis, (by, title) in zip(axes, titles.items(), strict=True):
        for name, rows in found[found["by"] == by].groupby("problem"):
            axis.loglog(rows["x"], rows["ms_a_step"], "o-", label=name)
        axis.set_xticks(rows["x"], rows["x"])
        axis.minorticks_off()
        axis.set_xlabel(title)
    axes[0].set_ylabel("milliseconds a step")
    axes[0].legend(frameon=False)
    figure.savefig(options.output, dpi=120)
    print(f"Picture: {options.output}")


if __name__ == "__main__":
    main()
