"""How many planets does the evidence challenge hide? Default runs, beside what teams published.

    python -m benchmarks.planets --data eprv3 --published eprv3.json --sets 1 2 3 --seconds 280

``--data`` is a folder with the challenge's velocities (rvs_0001.txt and so on: days, m/s, m/s);
``--published`` a JSON of log10 evidences, ``log10_evidence`` by set and team and ``reference``
by set, each {planets: [value, error]}. Every period may be 1.25 to 10 000 days.
"""

import argparse
import json
import math
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import trjmcmc as trj
from trjmcmc.problems.radial_velocity import QuasiPeriodic


def shares(log10: dict[str, list[float]]) -> dict[str, float]:
    """p(k) of evidences, numbers of planets equally likely."""
    value = np.array([log10[k][0] for k in sorted(log10)])
    p = 10 ** (value - value.max())
    return dict(zip(sorted(log10), (p / p.sum()).tolist(), strict=True))


def run(path: Path, seconds: float, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """p(k) by a default run, and log10 evidences by all births and deaths."""
    time, velocity, error = np.loadtxt(path).T
    target = trj.problems.radial_velocity(time, velocity, error, correlated=QuasiPeriodic())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = trj.TRJSampler(target, seed=seed).run(max_seconds=seconds, progress=False)
        evidences = trj.evidences_of_counts(target, max_seconds=seconds, seed=seed, progress=False)
    for warning in caught:
        print("warned:", warning.message)
    print(result.report)
    counts = result.counts(full=True).droplevel("kind")[["probability", "se"]]
    log10 = evidences[["log_evidence", "se"]] / math.log(10)
    return counts, log10


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--published", type=Path, required=True)
    parser.add_argument("--sets", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--seconds", type=float, default=280.0, help="of either answer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    known = json.loads(options.published.read_text())
    for number in options.sets:
        name = f"{number}a"
        path = options.data / f"rvs_{number:04d}.txt"
        counts, log10 = run(path, options.seconds, options.seed)
        print(f"\nSet {number}: p(k) by a default run, and log10 evidences\n")
        print(counts.join(log10.add_prefix("log10_")).round(4).to_string())
        entries = known["log10_evidence"][name] | {"reference": known["reference"]["values"][name]}
        rows = {team: {k: v[0] for k, v in entry.items()} for team, entry in entries.items()}
        table = pd.DataFrame(rows).T.sort_index(axis=1)
        p = pd.DataFrame({team: shares(entry) for team, entry in entries.items()}).T
        print("\nPublished, and p(k) that they imply\n")
        print(table.join(p.add_prefix("p_")).round(3).to_string())


if __name__ == "__main__":
    main()
