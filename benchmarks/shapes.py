"""Curved, ridged, hierarchical and many-modal posteriors: right, and forgotten inside models too?

    python -m benchmarks.shapes                       # five seeds each, 60 s: an hour
    python -m benchmarks.shapes --only ridge --seeds 1 2 --max-seconds 30

Of each run the worst standard score of the answers that are known exactly, the largest R-hat of all
parameters, and what was said. Writes shapes.md into the folder --output.
"""

import argparse
import math
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import trjmcmc as trj
from benchmarks.discovery import WANTED
from benchmarks.honest_problems import problems
from trjmcmc.errors import TRJWarning

CASES = (
    "alone/two bananas",
    "alone/ridge",
    "shapes/funnel",
    "shapes/horseshoe",
    "subsets/16 spikes",
    "subsets/two far",
)


def run(name: str, seed: int, max_seconds: float, threads: int) -> dict[str, Any]:
    """One run until it is done, or its time is up."""
    torch.set_num_threads(threads)
    stated = problems()[name]()
    begun = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = trj.TRJSampler(stated.target, seed=seed).run(
            until=WANTED, max_seconds=max_seconds, progress=False
        )
    seconds = time.perf_counter() - begun
    scores, widest = [], 0.0
    for question in stated.questions:
        for _, value, error, _ in question.read(result):
            gap = abs(value - question.exact)
            if math.isfinite(error):
                scores.append(gap / error if gap > question.tolerance else 0.0)
                widest = max(widest, error)
    said = {str(w.message)[:40] for w in caught if issubclass(w.category, TRJWarning)}
    return {
        "case": name,
        "seed": seed,
        "seconds": seconds,
        "worst z": max(scores, default=math.nan),
        "widest error": widest,
        "R-hat": float(result.chains.convergence()["rhat"].max()),
        "missed": result.report.missed,
        "said": "; ".join(sorted(said)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--max-seconds", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument("--output", type=Path, default=Path("output"))
    options = parser.parse_args()
    asked = [(name, seed) for name in CASES if options.only in name for seed in options.seeds]
    rows = []
    with ProcessPoolExecutor(options.workers) as pool:
        names, seeds = zip(*asked, strict=True)
        for row in pool.map(
            run, names, seeds, [options.max_seconds] * len(asked), [options.threads] * len(asked)
        ):
            rows.append(row)
            print(
                {k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}, flush=True
            )
    table = pd.DataFrame(rows).to_string(index=False, float_format=lambda x: f"{x:.3g}")
    options.output.mkdir(exist_ok=True)
    (options.output / "shapes.md").write_text(f"```\n{table}\n```\n")


if __name__ == "__main__":
    main()
