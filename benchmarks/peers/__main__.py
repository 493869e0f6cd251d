"""Ours beside other packages, one after the other in one process on one thread.

Three questions. How long until p(model | data) is known to a standard error of .01 (cases "coal"
and "factors", 2 or 3 factors)? Eryn is the peer. How well is the number of pulses in noise known
when the budget is spent (case "pulses", 0 to 8)? Peers are Eryn and BayesBay. And what is the
evidence of one model (cases "evidence-factors", 17 parameters; "evidence-robust", 4;
"evidence-modes", two far modes in 10 dimensions)? The peers are pocoMC, dynesty, nautilus and
UltraNest.

    OMP_NUM_THREADS=1 python -m benchmarks.peers            # an hour or more
    OMP_NUM_THREADS=1 python -m benchmarks.peers --quick    # small settings: about four minutes
    OMP_NUM_THREADS=1 python -m benchmarks.peers --case coal --sampler Eryn --repeats 3
    OMP_NUM_THREADS=1 python -m benchmarks.peers --factor-data exchange_rates.csv \
        --factor-truth -903.212 -905.352 --robust-data six_dim_rr.csv --json out.json

Settings. Everyone has the same models and priors; peers get likelihoods written in NumPy, checked
against ours at draws of the prior, vectorised where they take that (dynesty does not), and every
other setting at its default, seeds apart. Ours is `run(until={"probability": .01})`, and for an
evidence `run()` and, as "trjmcmc, fit", `run(fit=True)`; fits and pilot runs count.
Eryn starts from the prior and proposes births and deaths of a change point with its height, or of a
column of loadings, from the prior. Inside a model it takes Gaussian steps, one change point at a
time and of two sizes; for the factors stretch moves of what both models share and Gaussian steps of
the third column. (Eryn advises against its stretch move where components come and go; on the change
points it gave wrong probabilities.) The first half of its steps is left out, its errors come from
the spread of the means of its walkers, and it stops when these are small, nothing drifts, and it is
20 autocorrelation times long, as our runs are.
On the pulses, Eryn's own example, births and deaths come from the prior too. "Eryn, tutorial" has
the settings of that example: 20 walkers at 8 temperatures, Gaussian steps of all pulses at once
with standard deviation .0032, likelihoods one at a time. "Eryn" has the best settings of those that
were tried, with vectorised likelihoods. Walkers swap temperatures within columns, which therefore
are independent, and the cold ones count. BayesBay has ten chains and steps of one pulse; its
tempering is left out, for it divides the ratio of a swap by one temperature too many and gives
wrong probabilities where they are known. Both start from the prior; ours is `run()`.

Columns. `seconds`: of processor time, which a busy machine does not stretch; `wall`: of the clock,
which budgets count. `value`: probability of the most probable model, or log evidence;
`claimed_error`: its standard error, of p(model) the largest; `error`: against the truth, of
p(model) the largest; `ess_per_s`: effective draws of the indicator that has fewest; `steps`: its
autocorrelation time; `seconds_to_01`: to a standard error of .01, extrapolated where the budget
ended first. `cost` is error x sqrt(seconds), the larger of claimed and true error, over ours: above
1 we are better. `calls` are likelihood evaluations of single points.
"""

import argparse
import contextlib
import importlib.metadata
import json
import platform
from pathlib import Path

import pandas as pd
import torch

from .nested import PEERS
from .problems import Data
from .run import CASES, FITTED, JUMPS, OURS, Row, rows, with_ratios


def shown(frame: pd.DataFrame) -> str:
    left_out = ["case", "note", "shares"]
    kept = [c for c in frame if c not in left_out and frame[c].notna().any()]
    return frame[kept].to_string(index=False, float_format="{:.4g}".format)


def versions() -> str:
    names = ["eryn", "bayesbay", "pocomc", "dynesty", "nautilus-sampler", "ultranest"]
    there = []
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            there.append(f"{name} {importlib.metadata.version(name)}")
    return ", ".join(there)


def main() -> None:
    beside = dict.fromkeys(name for case in JUMPS.values() for name in case.peers)
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument(
        "--sampler", action="append", help=f"{OURS}, {FITTED}, {', '.join([*beside, *PEERS])}"
    )
    parser.add_argument("--budget", type=float, help="most seconds a sampler; 300")
    parser.add_argument("--repeats", type=int, default=1, help="seeds, one run each")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="small settings and 12 s a sampler")
    parser.add_argument("--factor-data", type=Path, help="CSV with a header, rows of y")
    parser.add_argument(
        "--factor-truth", type=float, nargs=2, help="log evidences of 2 and 3 factors, if known"
    )
    parser.add_argument("--robust-data", type=Path, help="CSV: index, y, four columns of x")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    budget = options.budget or (12.0 if options.quick else 300.0)
    truth = None if options.factor_truth is None else tuple(options.factor_truth)
    data = Data(options.factor_data, truth, options.robust_data)
    machine = f"{platform.machine()}, torch {torch.__version__}, {options.threads} thread(s)"
    print(f"{machine}; {versions()}; at most {budget:g} s each")
    found: list[Row] = []
    for case in options.case or CASES:
        mine: list[Row] = []
        for seed in range(options.seed, options.seed + options.repeats):
            mine += rows(
                case,
                samplers=options.sampler,
                data=data,
                budget=budget,
                quick=options.quick,
                seed=seed,
            )
        print(f"\n{case}\n{shown(with_ratios(mine))}")
        for row in mine:
            if row["note"]:
                print(f"  {row['sampler']}, seed {row['seed']}: {row['note']}")
        print(end="", flush=True)
        found += mine
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "rows": found}, indent=1))


if __name__ == "__main__":
    main()
