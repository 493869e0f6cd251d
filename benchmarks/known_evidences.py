"""Evidences of single models beside exact ones: an overlooked spike, a narrow normal, a bent one.

    python -m benchmarks.known_evidences --seeds 30

Default runs. ``z`` is the error of the log evidence over the stated one; ``within`` counts runs
whose error is below 1.96 stated ones. ``mass`` is that of the spike, of which half is right.
"""

import argparse
import time
import warnings

import numpy as np
import pandas as pd
import torch

import trjmcmc as trj

PROBLEMS = {
    "G10": lambda: trj.problems.curved_normal(shear=0.0),
    "CG10": trj.problems.curved_normal,
    "SS10": trj.problems.spike_beside_slab,
}


def run(name: str, seed: int) -> dict[str, float]:
    """A default run: its log evidence, and what it took."""
    target, begun = PROBLEMS[name](), time.process_time()
    assert target.truth is not None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = trj.TRJSampler(target, seed=seed).run(progress=False)
    ((model, exact),) = target.truth.log_evidence.items()
    table = result.evidence().loc[model]
    found = {
        "error": table["log_evidence"] - exact,
        "stated": table["se"],
        "calls": result.report.evaluations,
        "seconds": time.process_time() - begun,
        "warnings": len(caught),
    }
    if isinstance(target, trj.problems.SpikeBesideSlab):
        x = torch.as_tensor(np.asarray(result.draws(model)["x"]))
        found["mass"] = float(target.in_spike(x.flatten(0, -2)).mean()) - target.spike_mass
    return found


def summary(runs: pd.DataFrame) -> dict[str, float]:
    """Of the runs of one problem."""
    z = runs["error"] / runs["stated"]
    found = {
        "rmse": (runs["error"] ** 2).mean() ** 0.5,
        "stated": runs["stated"].mean(),
        "mean z": z.mean(),
        "sd z": z.std(),
        "largest z": z.abs().max(),
        "within": (z.abs() < 1.96).mean(),
        "calls, millions": runs["calls"].mean() / 1e6,
        "seconds": runs["seconds"].median(),
        "warned": (runs["warnings"] > 0).sum(),
    }
    if "mass" in runs:
        mass = runs["mass"].abs()
        found |= {"mass rmse": (mass**2).mean() ** 0.5, "mass largest": mass.max()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = {}
    for name in options.problems:
        runs = pd.DataFrame([run(name, seed) for seed in range(options.seeds)])
        rows[name] = summary(runs)
        print(name, runs.round(5).to_string(), sep="\n", flush=True)
    print(pd.DataFrame(rows).T.round(4).to_string())


if __name__ == "__main__":
    main()
