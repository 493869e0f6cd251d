"""False alarms, true errors, and what the alarms cost: runs of problems that mix.

    python -m benchmarks.alarms                          # 20 runs of each of eight: 40 minutes
    python -m benchmarks.alarms --repeats 5 --only coal --workers 2

Default runs. By problem: the share of runs that warned, and of what; mean,
spread and largest of the z-scores of probabilities, by visits and combined; seconds of
``Result.doubts`` with all that it computes for the first time, as a share of the run's, and those
of the climbs that look for lost parts of a posterior. Writes
alarms.json and alarms.md into the folder --output. Aimed at: at most 2 % of runs warn, z-scores
with a standard deviation of .85 to 1.15, at most 2 % of a run's time.
"""

import argparse
import json
import multiprocessing
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import trjmcmc as trj
from benchmarks.calibration import funnel, two_modes
from benchmarks.tables import as_markdown
from trjmcmc.errors import TRJWarning

COMMON = 0.02  # probability from which a model or an item counts, and to which
SHOWN = 90  # characters of a warning
FEW = 64  # models up to which probabilities are listed

Rows = list[dict[str, Any]]
CASES: dict[str, Callable[[], trj.Target]] = {
    "conjugate regression, p = 4": lambda: trj.problems.variable_selection(4),
    "sinh-arcsinh": trj.problems.sinh_arcsinh,
    "funnel": funnel,
    "two modes": two_modes,
    "coal mining": lambda: trj.problems.coal_mining(1, 6),
    "robust regression": trj.problems.robust_regression,
    "selection, p = 10": lambda: trj.problems.variable_selection(10),
    "sleep": trj.problems.sleep,
}


@contextmanager
def timed(spent: list[float]) -> Iterator[None]:
    """Append the seconds that the first look at ``Result.doubts`` takes, run by run."""
    original = trj.Result.doubts

    def doubts(self: trj.Result) -> list[Any]:
        begun = time.perf_counter()
        found = original.func(self)
        spent.append(time.perf_counter() - begun)
        return found

    timed_doubts = cached_property(doubts)
    timed_doubts.__set_name__(trj.Result, "doubts")
    trj.Result.doubts = timed_doubts
    try:
        yield
    finally:
        trj.Result.doubts = original


def answers(target: trj.Target, result: trj.Result) -> Rows:
    """Probabilities that are known, one row a column and model or item; none of unknown truth."""
    found: Rows = []
    if target.space.size is not None and target.space.size <= FEW:
        if target.truth is None:
            return []
        table, exact = result.model_probabilities(full=True), dict(target.truth.probabilities)
        pairs = [("visits", "visits_se"), ("combined", "combined_se")]
    else:
        table = result.inclusion_probabilities(full=True)
        known = getattr(target, "inclusion", None)
        if known is None:
            return []
        exact = dict(zip(table.index, known.tolist(), strict=True))
        pairs = [("probability", "se"), ("combined", "combined_se")]
    labels = [k for k, p in exact.items() if COMMON < p < 1 - COMMON and k in table.index]
    if len(exact) == 2:  # the other's error is the same
        labels = labels[:1]
    for column, error in pairs:
        for label in labels:
            row = {"column": column, "label": str(label), "exact": exact[label]}
            value, se = float(table.loc[label, column]), float(table.loc[label, error])
            found.append(row | {"value": value, "se": se, "note": table.loc[label, "note"]})
    return found


def scores(target: trj.Target, result: trj.Result) -> list[tuple[str, str, float]]:
    """Column, model or item, z-score; nothing where the truth is not known."""
    return [
        (row["column"], row["label"], (row["value"] - row["exact"]) / row["se"])
        for row in answers(target, result)
        if np.isfinite(row["value"]) and np.isfinite(row["se"]) and row["se"] > 0
    ]


def run(case: str, seed: int) -> dict[str, Any]:
    """One run: what it said, its z-scores, its seconds and those of its alarms."""
    target = CASES[case]()
    spent: list[float] = []
    with warnings.catch_warnings(record=True) as caught, timed(spent):
        warnings.simplefilter("always")
        begun = time.perf_counter()
        result = trj.TRJSampler(target, seed=seed).run(progress=False)
        seconds = time.perf_counter() - begun
    ours = [w for w in caught if issubclass(w.category, TRJWarning)]
    return {
        "problem": case,
        "seed": seed,
        "warned": bool(ours),
        "said": [f"{w.category.__name__}: {str(w.message)[:SHOWN]}" for w in ours],
        "scores": scores(target, result),
        "seconds": seconds,
        "alarm_s": sum(spent),
    }


def runs(
    jobs: list[tuple[str, int]], workers: int = 1, threads: int = 1
) -> Iterator[dict[str, Any]]:
    """One run after the other, in as many processes as there are workers."""
    torch.set_num_threads(threads)
    if workers == 1:
        yield from (run(*job) for job in jobs)
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, spawn, torch.set_num_threads, (threads,)) as pool:
        yield from (future.result() for future in [pool.submit(run, *job) for job in jobs])


def summary(found: Rows) -> pd.DataFrame:
    """One row a problem, and one for all."""
    rows = {}
    names = dict.fromkeys(r["problem"] for r in found)
    for name in [*names, "all"]:
        some = [r for r in found if name in (r["problem"], "all")]
        seconds = sum(r["seconds"] for r in some)
        row: dict[str, Any] = {
            "runs": len(some),
            "warned": np.mean([r["warned"] for r in some]),
            "run_s": seconds / len(some),
            "alarm_share": sum(r["alarm_s"] for r in some) / seconds,
        }
        for short, columns in (("visits", ("visits", "probability")), ("combined", ("combined",))):
            z = np.array([z for r in some for c, _, z in r["scores"] if c in columns])
            row[f"{short}_n"] = len(z)
            row[f"{short}_mean"] = z.mean() if len(z) else np.nan
            row[f"{short}_sd"] = z.std(ddof=1) if len(z) > 1 else np.nan
            row[f"{short}_worst"] = np.abs(z).max() if len(z) else np.nan
        rows[name] = row
    return pd.DataFrame.from_dict(rows, orient="index")


def texts(found: Rows) -> list[str]:
    """What was said, by problem, the commonest first."""
    lines = []
    for name in dict.fromkeys(r["problem"] for r in found):
        said = Counter(text for r in found if r["problem"] == name for text in r["said"])
        lines += [f"- {name}: {n} x {text}" for text, n in said.most_common()]
    return lines


def markdown(found: Rows) -> str:
    """The table and the texts."""
    return "\n".join([as_markdown(summary(found)), "", *texts(found)]) + "\n"


def rows_of(options: argparse.Namespace) -> Rows:
    """The case of ``python -m benchmarks``: five runs a problem, two if quick."""
    seeds = range(options.seed, options.seed + (2 if options.quick else 5))
    found = list(runs([(c, s) for c in CASES for s in seeds], threads=options.threads))
    print("\n".join(texts(found)))
    table = summary(found).rename_axis("problem").reset_index()
    return [{"case": "alarms"} | row for row in table.to_dict("records")]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.alarms",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", help="problems with this in their names")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--first", type=int, default=1000, help="the first seed")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--threads", type=int, default=1, help="of torch, in each")
    parser.add_argument("--output", type=Path, default=Path("output/honesty"), help="a folder")
    options = parser.parse_args()
    cases = [c for c in CASES if not options.only or any(part in c for part in options.only)]
    options.output.mkdir(parents=True, exist_ok=True)
    found: Rows = []
    seeds = range(options.first, options.first + options.repeats)
    jobs = [(case, seed) for seed in seeds for case in cases]
    for row in runs(jobs, options.workers, options.threads):
        found.append(row)
        (options.output / "alarms.json").write_text(json.dumps(found, indent=1))
        (options.output / "alarms.md").write_text(markdown(found))
        said = "; ".join(row["said"])
        print(f"{row['problem']}, seed {row['seed']}: {row['seconds']:.1f} s; {said}", flush=True)
    print("\n" + summary(found).to_string(float_format="{:.3g}".format))
    print("\n".join(["", *texts(found)]))


if __name__ == "__main__":
    main()
