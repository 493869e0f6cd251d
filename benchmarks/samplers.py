"""Effective draws of the model indicator a second, fit included: ours and the classical samplers.

Every sampler runs alone for the whole budget, one after the other in one process; truths are
exact, or for factor analysis those of a long run, with an error of .0007.

    python benchmarks/samplers.py                             # 30 s each: about 25 minutes
    python benchmarks/samplers.py --budget 120 --case coal
    python benchmarks/samplers.py --threads 2 --json out.json
"""

import argparse
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch

import trjmcmc as trj

CASES: dict[str, Callable[[], trj.Target]] = {
    "coal": lambda: trj.problems.coal_mining(1, 6),
    "factors": lambda: with_long_run(trj.problems.factor_analysis()),
    "robust": trj.problems.robust_regression,
    "selection": lambda: trj.problems.variable_selection(10),
    "sinh-arcsinh": trj.problems.sinh_arcsinh,
}
SHOWN = ["fit_s", "ess", "ess_per_s", "ess_per_step", "ess_per_evaluation", "between", "error", "z"]


def with_long_run(target: trj.Target) -> trj.Target:
    """The target with the combined estimate of a fit in full and a long run (three minutes)."""
    sampler = trj.TRJSampler(target, seed=2**20)
    sampler.fit(progress=False)
    found = sampler.run(draws=1500, chains=512, progress=False).model_probabilities()
    target.truth = trj.Truth(dict(found["combined"]), source="long run")
    return target


def cached(case: str, folder: Path | None) -> trj.Target:
    """A case, its truth from an earlier run where one was kept."""
    kept = None if folder is None else folder / f"{case}.json"
    if case != "factors" or kept is None or not kept.exists():
        target = CASES[case]()
        if case == "factors" and kept is not None:
            kept.write_text(json.dumps(dict(target.truth.probabilities)))
        return target
    target = trj.problems.factor_analysis()
    target.truth = trj.Truth(json.loads(kept.read_text()), source="long run")
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=[*CASES], action="append")
    parser.add_argument("--sampler", action="append", help="all that apply if omitted")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds a sampler")
    parser.add_argument("--chains", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="folder for the truth that takes a long run")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    machine = f"{platform.machine()}, torch {torch.__version__}, {options.threads} thread(s)"
    print(f"{machine}, {options.budget:g} s each, seed {options.seed}\n")
    found = {}
    for case in options.case or CASES:
        comparison = trj.compare_samplers(
            cached(case, options.keep),
            options.sampler,
            budget=options.budget,
            chains=options.chains,
            seed=options.seed,
            progress=False,
        )
        table = comparison.table
        ours = table["ess_per_s"].get("default")
        table["ours_over_it"] = ours / table["ess_per_s"] if ours is not None else float("nan")
        with pd.option_context("display.width", 200, "display.max_columns", None):
            print(
                f"{case}\n{table[[*SHOWN, 'ours_over_it']].to_string(float_format='{:.4g}'.format)}"
            )
        for name, note in table["note"].items():
            print(f"  {name}: {note}" if note else "", end="\n" if note else "")
        if (mine := comparison.results.get("default")) is not None:
            plan = mine.report.plan
            print(f"  default: {plan.weights}, {plan.efficiency}, rounds {plan.rounds}\n")
        sys.stdout.flush()
        found[case] = table.to_dict("index")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "cases": found}, indent=1))


if __name__ == "__main__":
    main()
