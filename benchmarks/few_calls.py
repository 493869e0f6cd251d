"""How few calls of a NumPy function are enough, and what is said where they are not?

    python -m benchmarks.few_calls                          # 40 instances: two minutes
    python -m benchmarks.few_calls --calls 1000 20000 --first 100

Each instance comes from its number: a mixture of two or three normals of widths .15 to 1, in two to
five dimensions, of known evidence under N(0, 2^2), beside a model of one parameter. Both are
functions of a point in NumPy. A run is right if p(mixture) is within .03 and four standard errors,
of .03 at most. Of others one has said so by a warning or its error, or is silent.
"""

import argparse
import math
import time
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.distributions import Normal

import trjmcmc as trj

PRIOR_SD, WIDTH = 2.0, 0.5  # of all priors; of the simple model's likelihood


def instance(number: int) -> tuple[trj.Target, float]:
    """A target of two models, and p(mixture)."""
    rng = np.random.default_rng([31, number])
    dim, parts = int(rng.integers(2, 6)), int(rng.integers(2, 4))
    mean = rng.normal(0, PRIOR_SD, (parts, dim))
    sd = np.exp(rng.uniform(np.log(0.15), 0, (parts, 1)))
    variance = PRIOR_SD**2 + sd**2
    log_evidence = -0.5 * (mean**2 / variance + np.log(2 * np.pi * variance)).sum(1)
    log_weight = np.log(rng.dirichlet(np.full(parts, 3.0))) - log_evidence
    log_odds = rng.uniform(-1, 1)  # of the simple model

    def mixture(p: Mapping[str, Any]) -> float:
        z = (np.asarray(p["x"]) - mean) / sd
        terms = log_weight - 0.5 * (z**2 + np.log(2 * np.pi * sd**2)).sum(1)
        return float(np.logaddexp.reduce(terms))

    def simple(p: Mapping[str, Any]) -> float:
        variance = PRIOR_SD**2 + WIDTH**2
        return (
            float(-0.5 * (p["a"] / WIDTH) ** 2 - math.log(WIDTH))
            + log_odds
            + math.log(variance) / 2
        )

    models = [
        trj.Model("mixture", {"x": Normal(torch.zeros(dim), PRIOR_SD)}, trj.BlackBox(mixture)),
        trj.Model("simple", {"a": Normal(0.0, PRIOR_SD)}, trj.BlackBox(simple)),
    ]
    return trj.Target(models), 1 / (1 + math.exp(log_odds))


def run(number: int, calls: int) -> dict[str, Any]:
    """One run, of so many calls; of 0 without a limit."""
    target, p = instance(number)
    settings = {"max_evaluations": calls} if calls else {}
    begun, before = time.process_time(), target.evaluations
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = trj.TRJSampler(target, seed=1).run(progress=False, **settings)
        row = result.model_probabilities().loc["mixture"]
    off, error = row["probability"] - p, row["se"]
    right = abs(off) < min(0.03, 4 * error) and error < 0.03
    said = bool(caught) or not error < 0.03
    return {
        "instance": number,
        "off": off,
        "error": error,
        "z": off / error if right else math.nan,
        "right": right,
        "said": not right and said,
        "silent": not right and not said,
        "warned": bool(caught),
        "calls": target.evaluations - before,
        "seconds": time.process_time() - begun,
        "note": row["note"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.few_calls",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--calls", type=int, nargs="+", default=[2000, 4000, 8000, 0])
    parser.add_argument("--instances", type=int, default=40)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--verbose", action="store_true", help="a row a run")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = {}
    for calls in options.calls:
        each = range(options.first, options.first + options.instances)
        table = pd.DataFrame([run(i, calls) for i in each])
        if options.verbose:
            print(table.round(4).to_string(), flush=True)
        rows[calls or "no limit"] = {
            **table[["right", "said", "silent"]].sum(),
            "right and warned": (table["right"] & table["warned"]).sum(),
            "error": table.loc[table["right"], "error"].median(),
            "sd of z": table["z"].std(),
            "largest z": table["z"].abs().max(),
            "calls": table["calls"].median(),
            "seconds": table["seconds"].median(),
        }
    print(pd.DataFrame(rows).T.to_string(float_format=lambda x: f"{x:.3g}"))


if __name__ == "__main__":
    main()
