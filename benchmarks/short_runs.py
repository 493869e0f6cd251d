"""Are errors honest before chains have converged? Many runs of three seconds.

    python -m benchmarks.short_runs                           # 200 runs of each of five: two hours
    python -m benchmarks.short_runs --only coal --repeats 30 --seconds 10
    python -m benchmarks.short_runs --only factors --factor-data exchange_rates.csv \\
        --factor-truth -903.212 -905.352

By problem and route, of probabilities from .02 to .98: how many were asked, the share whose error
is NaN, and of the others the z-scores. Then the share of runs that warned, and the most effective
draws, ``visits_ess``, of a run whose R-hat is above 1.1. Pulses have data of their own in every
run. Writes short_runs.json and short_runs.md into the folder --output. Aimed at: z-scores with a
standard deviation of at most 1.3 wherever a number is given, and few effective draws where R-hat
is bad.
"""

import argparse
import json
import math
import multiprocessing
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import trjmcmc as trj
from benchmarks.ablation import factor_analysis
from benchmarks.alarms import Rows, answers
from benchmarks.honest_problems import pulse_counts
from benchmarks.tables import as_markdown
from trjmcmc.errors import TRJWarning
from trjmcmc.promises import RHAT_FLAGGED

ROUTES = ("visits", "combined")


def pulses(seed: int) -> trj.Target:
    """Two pulses in noise, the data by the seed."""
    stated = pulse_counts(seed)
    exact = {str(k): question.exact for k, question in enumerate(stated.questions)}
    stated.target.truth = trj.Truth(exact, source="a grid")
    return stated.target


factors = cache(factor_analysis)

Known = tuple[float, float] | None  # log evidences of two and three factors
CASES: dict[str, Callable[[int, Path | None, Known], trj.Target]] = {
    "coal mining": lambda seed, path, known: trj.problems.coal_mining(),
    "pulses": lambda seed, path, known: pulses(seed),
    "factors": lambda seed, path, known: factors(path, known),
    "sinh-arcsinh": lambda seed, path, known: trj.problems.sinh_arcsinh(),
    "selection, p = 4": lambda seed, path, known: trj.problems.variable_selection(4),
}


def run(
    job: tuple[str, int], seconds: float, path: Path | None = None, known: Known = None
) -> dict[str, Any]:
    """One short run: its answers, its worst R-hat, what it said."""
    case, seed = job
    target = CASES[case](seed, path, known)
    begun = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = trj.TRJSampler(target, seed=seed).run(max_seconds=seconds, progress=False)
    return {
        "case": case,
        "seed": seed,
        "seconds": time.perf_counter() - begun,
        "answers": answers(target, result),
        "rhat": float(result.chains.convergence()["rhat"].max()),
        "ess": float(
            result.model_probabilities(full=True)["visits_ess"].max()
        ),  # NaN only if all are
        "said": [str(w.message)[:90] for w in caught if issubclass(w.category, TRJWarning)],
    }


def scored(answer: dict[str, Any]) -> float:
    """The z-score of an answer; NaN where no number is given, infinite of an error of zero."""
    gap, se = answer["value"] - answer["exact"], answer["se"]
    if not math.isfinite(se):
        return math.nan
    return gap / se if se > 0 else math.copysign(math.inf, gap)


def summary(found: Rows) -> pd.DataFrame:
    """One row a problem and route."""
    rows = {}
    for case in dict.fromkeys(r["case"] for r in found):
        some = [r for r in found if r["case"] == case]
        bad = [r for r in some if not r["rhat"] <= RHAT_FLAGGED]
        worst = max(bad, key=lambda r: np.nan_to_num(r["ess"], nan=-1.0), default={})
        for route in ROUTES:
            z = np.array([scored(a) for r in some for a in r["answers"] if a["column"] == route])
            given = z[~np.isnan(z)]
            rows[f"{case}, {route}"] = {
                "runs": len(some),
                "asked": len(z),
                "NaN": np.isnan(z).mean() if len(z) else math.nan,
                "mean": given.mean() if len(given) else math.nan,
                "sd": given.std(ddof=1) if len(given) > 1 else math.nan,
                "rms": np.sqrt(np.square(given).mean()) if len(given) else math.nan,
                "worst": np.abs(given).max(initial=0.0) if len(given) else math.nan,
                "warned": np.mean([bool(r["said"]) for r in some]),
                "bad R-hat": len(bad) / len(some),
                "most ESS there": worst.get("ess", math.nan),
                "its R-hat": worst.get("rhat", math.nan),
            }
    return pd.DataFrame.from_dict(rows, orient="index")


def markdown(found: Rows) -> str:
    """The table."""
    return as_markdown(summary(found)) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.short_runs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", help="problems with this in their names")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--first", type=int, default=1000, help="the first seed")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run")
    parser.add_argument("--factor-data", type=Path, help="CSV with a header, rows of y")
    parser.add_argument(
        "--factor-truth", type=float, nargs=2, help="log evidences of 2 and 3 factors, if known"
    )
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--threads", type=int, default=1, help="of torch, in each")
    parser.add_argument("--output", type=Path, default=Path("output"), help="a folder")
    options = parser.parse_args()
    known = None if options.factor_truth is None else tuple(options.factor_truth)
    cases = [c for c in CASES if not options.only or any(part in c for part in options.only)]
    seeds = range(options.first, options.first + options.repeats)
    jobs = [(case, seed) for case in cases for seed in seeds]
    one = partial(run, seconds=options.seconds, path=options.factor_data, known=known)
    options.output.mkdir(parents=True, exist_ok=True)
    found: Rows = []
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        options.workers, spawn, torch.set_num_threads, (options.threads,)
    ) as pool:
        for row in pool.map(one, jobs):
            found.append(row)
            (options.output / "short_runs.json").write_text(json.dumps(found, indent=1))
            (options.output / "short_runs.md").write_text(markdown(found))
            told = {(a["column"], a["label"]): round(scored(a), 2) for a in row["answers"]}
            print(f"{row['case']}, seed {row['seed']}: R-hat {row['rhat']:.2f}, {told}", flush=True)
    print("\n" + summary(found).to_string(float_format="{:.3g}".format))


if __name__ == "__main__":
    main()
