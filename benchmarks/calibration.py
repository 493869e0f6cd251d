"""Is every error bar true? z-scores of each route to the evidence over many runs.

Targets have exact evidences. One map is trained a little, so that it is neither exact nor hopeless;
then each run has chains, draws and a seed of its own. Of an honest route the z-scores have mean 0
and standard deviation 1.

    python benchmarks/calibration.py                        # 200 runs a target: twenty minutes
    python benchmarks/calibration.py --repeats 20 --case sinh-arcsinh
"""

import argparse
import copy
import math
import time
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
import torch
from torch.distributions import Normal

import trjmcmc as trj
from trjmcmc.errors import TRJWarning

SHARES = ("visits", "bartolucci")
EVIDENCES = ("importance", "smoothed", "bridge", "warp", "combined")
COMMON = 0.02  # probability from which a model counts
BAD = 4.0  # standard errors off


def funnel() -> trj.Target:
    """Neal's funnel in three dimensions as a prior, beside one normal; nothing is observed."""
    models = [
        trj.Model("normal", {"v": Normal(0.0, 1.0)}, lambda p: 0 * p["v"]),
        trj.Model(
            "funnel",
            {
                "v": Normal(0.0, 1.5),
                "x": lambda p: Normal(0.0, (p["v"] / 2).exp()[:, None]).expand([len(p["v"]), 2]),
            },
            lambda p: 0 * p["v"],
        ),
    ]
    truth = trj.problems.Truth({"normal": 0.4, "funnel": 0.6}, {"normal": 0.0, "funnel": 0.0})
    return trj.Target(models, model_prior=[0.4, 0.6], truth=truth)


def two_modes() -> trj.Target:
    """Two normals of unequal weight in one dimension, and a constant."""

    def log_likelihood(p: dict[str, torch.Tensor]) -> torch.Tensor:
        x = p["x"]
        left = math.log(0.3) + Normal(-3.0, 0.6).log_prob(x)
        right = math.log(0.7) + Normal(2.0, 1.0).log_prob(x)
        return torch.logaddexp(left, right) - Normal(0.0, 5.0).log_prob(x)

    models = [
        trj.Model("two modes", {"x": Normal(0.0, 5.0)}, log_likelihood),
        trj.Model("constant", {}, lambda p: torch.tensor(0.0)),
    ]
    truth = trj.problems.Truth(
        {"two modes": 0.5, "constant": 0.5}, {"two modes": 0.0, "constant": 0.0}
    )
    return trj.Target(models, truth=truth)


CASES: dict[str, Callable[[], trj.Target]] = {
    "conjugate regression, p = 4": lambda: trj.problems.variable_selection(4),
    "sinh-arcsinh": trj.problems.sinh_arcsinh,
    "funnel": funnel,
    "two modes": two_modes,
}


def scores(
    target: trj.Target,
    repeats: int,
    *,
    steps: int = 300,
    draws: int = 250,
    chains: int = 64,
    warmup: int = 80,
) -> pd.DataFrame:
    """One row a run, model and route: ``z``, ``flagged``; and the run's ``agree``."""
    first = trj.TRJSampler(
        target, lambda space: trj.transport.CosmicFlow(space, layers=4, hidden=(32,)), seed=0
    )
    first.fit(steps=steps, progress=False)
    exact = target.truth
    rows = []
    for seed in range(repeats):
        sampler = trj.TRJSampler(target, copy.deepcopy(first.transport), seed=1000 + seed)
        result = sampler.run(draws=draws, chains=chains, warmup=warmup, fit=False, progress=False)
        table, agree = result.evidence(full=True), not result.evidences.clashes
        shares = {
            "visits": {m: result.chains.visits(m) for m in table.index},
            "bartolucci": result._visits.by_jumps,
        }
        for model in table.index:
            p = exact.probabilities[model]
            if p < COMMON:
                continue
            for route in SHARES:
                e = shares[route][model]
                rows.append((seed, model, route, (e.value - p) / e.std_error, e.warning, agree))
            for route in EVIDENCES:
                if f"{route}_se" not in table:
                    continue
                value, error = table.loc[model, route], table.loc[model, f"{route}_se"]
                if not error > 1e-6:  # a model without parameters is known exactly
                    continue
                said = f"{route}: " in table.loc[model, "note"]
                gap = (value - exact.log_evidence[model]) / error
                rows.append((seed, model, route, gap, said, agree))
    columns = ["run", "model", "route", "z", "flagged", "agree"]
    return pd.DataFrame(rows, columns=columns)


def summary(found: pd.DataFrame) -> pd.DataFrame:
    """By route: mean and spread of the z-scores without a flag, and what the flags catch."""
    rows = {}
    for route, part in found.groupby("route", sort=False):
        flagged = part["flagged"].astype(bool)
        z = part.loc[~flagged, "z"]
        bad = part["z"].abs() > BAD
        rows[route] = {
            "n": len(z),
            "mean": z.mean(),
            "sd": z.std(),
            "worst": z.abs().max(),
            "flagged": flagged.mean(),
            "bad": int(bad.sum()),
            "bad_flagged": flagged[bad].mean() if bad.any() else np.nan,
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=[*CASES], action="append")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore", TRJWarning)
    for case in options.case or CASES:
        begun = time.perf_counter()
        found = scores(CASES[case](), options.repeats)
        alarms = 1 - found.groupby("run")["agree"].first().mean()
        spent = time.perf_counter() - begun
        print(f"\n{case}: {options.repeats} runs, {spent:.0f} s, disagreement said in {alarms:.1%}")
        print(summary(found).to_string(float_format="{:.3g}".format), flush=True)


if __name__ == "__main__":
    main()
