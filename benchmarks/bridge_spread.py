"""How much do Bartolucci's estimates scatter, by map? Robust regression, N draws a model.

Maps are trained on N pilot draws a model, as in the papers, or by our own fit, which needs none.
Each repeat takes N fresh posterior draws a model and proposes one jump from each.

    python benchmarks/bridge_spread.py                    # N = 500, about three minutes
    python benchmarks/bridge_spread.py --draws 4000 --plot spread.png
    python benchmarks/bridge_spread.py --data regression.csv   # columns y, x1, x2, x3, x4
"""

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import trjmcmc as trj
from trjmcmc.compare import METHODS
from trjmcmc.estimate.evaluate import repeated_bartolucci
from trjmcmc.fit import Audit
from trjmcmc.kernel import Cycle, Fixed, Jump, Kernel

REPEATS = 80
PARTICLES = 12_000  # a replicate, four of them, of the run that all draws come from
PAPERS = {  # standard deviations at N = 500 with the authors' code, models in the same order
    "affine": (0.0063, 0.0204, 0.0228, 0.0338),
    "spline": (0.0052, 0.0073, 0.0113, 0.0159),
    "VI-trained": (0.0018, 0.0053, 0.0082, 0.0107),
}


def jump_of(kernel: Kernel) -> Kernel:
    return kernel.kernels[0][0] if isinstance(kernel, Cycle) else kernel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=500, help="N, a model")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--steps", type=int, default=2000, help="of training, of every map")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    given = {}
    if options.data:
        table = pd.read_csv(options.data)
        first = list(table.columns).index("y") + 1
        x = table.iloc[:, first : first + 4].to_numpy()
        given = {"x": x, "y": table["y"].to_numpy()}
    target = trj.problems.robust_regression(**given)
    generator = torch.Generator().manual_seed(1)
    codes = target.space.enumerate()
    runs = Audit(target, codes, particles=PARTICLES, generator=generator)
    runs.grow(0)
    pool = runs.pool()
    pilot = pool.some(options.draws, generator)
    kernels, seconds = {}, {}
    for method in (
        "switch",
        "independence",
        "affine TRJ",
        "spline TRJ",
        "spline CTP",
        "VI TRJ",
        "VI CTP",
    ):
        begun = time.perf_counter()
        kernels[method] = METHODS[method].make(target, pilot, generator, options.steps)
        seconds[method] = time.perf_counter() - begun
    sampler = trj.TRJSampler(target, seed=3)
    begun = time.perf_counter()
    sampler.fit(steps=options.steps, progress=False)
    seconds["ours"] = time.perf_counter() - begun
    kernels["ours"] = Jump(target, sampler.transport, Fixed(target.space, other=True))

    def fresh() -> tuple[torch.Tensor, torch.Tensor]:
        draws = pool.some(options.draws, generator)
        return draws.code, draws.theta

    found: dict[str, np.ndarray] = {}
    for name, kernel in kernels.items():
        found[name] = repeated_bartolucci(
            target, jump_of(kernel), fresh, options.repeats, generator
        ).numpy()
    labels = target.space.label(codes)
    rows = {f"{n}, sd": v.std(0, ddof=1) for n, v in found.items()}
    rows |= {f"{n}, mean": v.mean(0) for n, v in found.items()}
    if options.draws == 500:
        rows |= {f"papers: {n}, sd": v for n, v in PAPERS.items()}
    rows["exact"] = [target.truth.probabilities[m] for m in labels]
    print(pd.DataFrame.from_dict(rows, orient="index", columns=labels).to_string())
    print({name: round(s, 1) for name, s in seconds.items()}, "seconds of training")
    if options.plot:
        from trjmcmc.plot import plot_repeats

        shown = {n: v[:, -1] for n, v in found.items() if n != "switch"}
        ax = plot_repeats(shown, target.truth.probabilities[labels[-1]])
        ax.set_ylabel(f"p({labels[-1]} | data), N = {options.draws}")
        ax.figure.savefig(options.plot, dpi=120)


if __name__ == "__main__":
    main()
