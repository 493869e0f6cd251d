"""Are modes found, and what is said where they are not? Mixtures of two and three normals.

    python -m benchmarks.discovery                            # 100 instances: half an hour
    python -m benchmarks.discovery --max-seconds 60           # done, or a minute
    python -m benchmarks.discovery --instances 20 --first 100 # others of the same kind

Each instance comes from its number: dimension (2 to 20), widths (a narrow mode .03 to 1 times as
wide as the broad one), weights, distances and the width of the prior. The posterior is designed:
p(null) is one half and every share a weight that was put in. A basin is where one mode's density
is the highest; its share of the prior, by simulation, is how hard the mode is to find. Writes
discovery.json and discovery.md into the folder --output.
"""

import argparse
import json
import math
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import trjmcmc as trj
from benchmarks.honest_problems import Mixture, against_null
from benchmarks.honesty import FAR, NO_NUMBER, RIGHT, RIGHT_WARNED, SILENT, WRONG_WARNED, verdict
from trjmcmc.errors import TRJError, TRJWarning

SIMULATED = 4_000_000  # prior draws by which basins are weighed
BINS = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1.0)  # of the smallest basin's share of the prior
WANTED = {"probability": 0.01, "rhat": 1.01}  # what a run without a limit goes on for

TOLERANCE = 0.005  # of a probability, a gap that matters to nobody


def instance(number: int) -> tuple[Mixture, float]:
    """A mixture and the standard deviation of its prior."""
    rng = np.random.default_rng([21, number])
    dim = int(rng.integers(2, 21))
    parts = int(rng.integers(2, 4))
    ratio = float(np.exp(rng.uniform(math.log(0.03), 0.0)))
    sds = np.concatenate([[1.0], np.exp(rng.uniform(math.log(ratio), 0.0, parts - 1))])
    sds[1] = ratio
    weights = rng.dirichlet(np.full(parts, 3.0))
    prior_sd = float(rng.uniform(3.0, 6.0))
    # centres within the prior's bulk, 1 to 2.5 of its standard deviations from each other
    directions = rng.standard_normal((parts, dim))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    lengths = rng.uniform(0.5, 1.25, (parts, 1)) * prior_sd
    return Mixture(weights, lengths * directions, sds), prior_sd


def shares_of_basins(number: int) -> torch.Tensor:
    """The share of the prior where each mode's density is the highest, by simulation."""
    mixture, prior_sd = instance(number)
    generator = torch.Generator().manual_seed(number)
    counts = torch.zeros(len(mixture.weights))
    for _ in range(SIMULATED // 100_000):
        x = prior_sd * torch.randn(100_000, mixture.dim, generator=generator)
        counts += torch.bincount(mixture.by_part(x).argmax(1), minlength=len(counts))
    return counts / SIMULATED


def run(number: int, max_seconds: float | None, threads: int = 1) -> dict[str, Any]:
    """One default run: its worst answer, and what it said."""
    torch.set_num_threads(threads)
    mixture, prior_sd = instance(number)
    stated = against_null(mixture, prior_sd)
    row: dict[str, Any] = {
        "instance": number,
        "dim": mixture.dim,
        "parts": len(mixture.weights),
        "ratio": float(min(mixture.sds)),
        "prior_sd": prior_sd,
        "basin": float(shares_of_basins(number).min()),
    }
    begun = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = trj.TRJSampler(stated.target, seed=number).run(
                until=WANTED if max_seconds else None, max_seconds=max_seconds, progress=False
            )
        except TRJError as error:
            return row | {"verdict": "refused", "said": str(error)[:80]}
    row["seconds"] = time.perf_counter() - begun
    said = [w for w in caught if issubclass(w.category, TRJWarning)]
    table = result.model_probabilities(full=True).loc["null"]
    worst, order = RIGHT, (RIGHT, RIGHT_WARNED, NO_NUMBER, WRONG_WARNED, SILENT)
    for column, error in (("visits", "visits_se"), ("combined", "combined_se")):
        worth = verdict(table[column] - 0.5, table[error], TOLERANCE, bool(said), table["note"])
        worst = max(worst, worth, key=order.index)
    x = torch.as_tensor(result.draws("modes")["x"])
    nearest = mixture.by_part(x.double().reshape(-1, mixture.dim)).argmax(1)
    shares = torch.bincount(nearest, minlength=len(mixture.weights)) / max(len(nearest), 1)
    found = shares > 0.2 * torch.as_tensor(mixture.weights)
    judged = result.report.judged
    return row | {
        "null": float(table["combined"]),
        "null_se": float(table["combined_se"]),
        "found": bool(found.all()),
        "limit": math.nan if judged is None else judged.detection,
        "verdict": worst,
        "said": "; ".join(sorted({str(w.message)[:60] for w in said})),
    }


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Shares by the size of the smallest basin."""
    rows = rows.assign(bin=pd.cut(rows["basin"], BINS, include_lowest=True))
    groups = rows.groupby("bin", observed=True)
    table = pd.DataFrame({"instances": groups.size(), "found": groups["found"].mean()})
    for name in (RIGHT, RIGHT_WARNED, NO_NUMBER, WRONG_WARNED, SILENT):
        table[name] = groups["verdict"].apply(lambda v, name=name: int((v == name).sum()))
    table["seconds"] = groups["seconds"].median()
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--max-seconds", type=float, default=None)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument("--output", type=Path, default=Path("output"))
    options = parser.parse_args()
    numbers = range(options.first, options.first + options.instances)
    rows = []
    with ProcessPoolExecutor(options.workers) as pool:
        for row in pool.map(
            run,
            numbers,
            [options.max_seconds] * len(numbers),
            [options.threads] * len(numbers),
        ):
            rows.append(row)
            print(json.dumps(row), flush=True)
    found = pd.DataFrame(rows)
    table = summary(found).to_string(float_format=lambda x: f"{x:.3g}")
    options.output.mkdir(exist_ok=True)
    (options.output / "discovery.json").write_text(json.dumps(rows, indent=1))
    (options.output / "discovery.md").write_text(f"```\n{table}\n```\n")
    print(table)
    print(f"worst of {FAR:.0f} standard errors: {int((found['verdict'] == SILENT).sum())} silent")


if __name__ == "__main__":
    main()
