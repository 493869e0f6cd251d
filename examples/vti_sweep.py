"""How near is a learned q(m) to p(m | data), from 2^7 to 2^24 models?

Sections 5.1 and F of Davies et al., "Variational transdimensional inference": columns of a
regression with outliers that may or may not be in, errors that the likelihood has wrong, two
priors. q(m) is trained together with one flow, by gradients alone, and so is that of a conjugate
regression, whose evidences are known. Up to 2^12 models p(m | data) is found by importance sampling
from Student's t about each mode; beyond that exact draws are those of a run.

Written for each data set, flow and q(m):

* excess: cross-entropy of q(m) and p(m | data), less the entropy of p, nats: KL(p(m) | q(m));
* cross: cross-entropy of q(m, theta) and the posterior, nats, by draws of a run, as published
  (without --draws only where models are too many to list);
* seconds of the training.

The table has means and standard errors over data sets. Picture: excess by number of columns.

    python examples/vti_sweep.py --quick                      # 2^7 and 2^9 models, two data sets
    python examples/vti_sweep.py --columns 7 9 12 --sets 10
    python examples/vti_sweep.py --columns 16 24 --weights made --draws 30
    python examples/vti_sweep.py --columns 7 --flows diagonal affine spline couplings --sets 10
"""

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import torch

import trjmcmc as trj

FLOWS: dict[str, Callable[[trj.Target], trj.transport.Transport]] = {
    "diagonal": lambda t: trj.transport.CosmicAutoregressive(t.space, transform="diagonal"),
    "affine": lambda t: trj.transport.CosmicAutoregressive(t.space, layers=5, blocks=5),
    "spline": lambda t: trj.transport.CosmicAutoregressive(
        t.space, transform="spline", layers=4, blocks=6
    ),
    "couplings": lambda t: trj.transport.CosmicFlow(t.space),
    "Laplace": lambda t: trj.transport.LaplaceMap(t, trj.transport.CosmicFlow(t.space, layers=2)),
}
WEIGHTS: dict[str, Any] = {
    "categorical": trj.weights.CategoricalWeights,
    "made": trj.weights.Made,
    "ucb": trj.weights.GaussianSurrogateWeights,
    "thompson": lambda s: trj.weights.GaussianSurrogateWeights(s, acquisition="thompson"),
}
LISTED = 2**12  # models whose probabilities are found one by one
EACH = 512  # draws of each of them


def target_of(problem: str, columns: int, seed: int) -> trj.Target:
    """A data set: conjugate, or robust as level-prior, such as mid-focused."""
    if problem == "conjugate":
        return trj.problems.variable_selection(columns, seed=seed)
    level, prior = problem.split("-")
    return trj.problems.robust_selection(level, prior, columns, seed)


@torch.no_grad()
def exact(target: trj.Target, seed: int) -> torch.Tensor:
    """log p(m | data) of all models, shape (M,), by importance sampling."""
    flow = trj.transport.LaplaceMap(target, reference=trj.transport.StudentT(5))
    generator, found = torch.Generator().manual_seed(seed), []
    for codes in target.space.enumerate().split(16):
        code = codes.repeat_interleave(EACH, 0)
        z = flow.reference.sample((len(code), target.dim), generator, target.dtype)
        theta, log_q = flow.push(z, code)
        log_w = (target.log_joint(code, theta) - log_q).double().view(len(codes), -1)
        found.append(log_w.logsumexp(1))
    return torch.cat(found).log_softmax(0)


def fitted(
    target: trj.Target, flow: str, weights: str, steps: int, batch: int, seed: int
) -> tuple[trj.TRJSampler, float]:
    """A flow and q(m) trained together, and how many seconds that took."""
    make = FLOWS[flow](target)
    sampler = trj.TRJSampler(target, make, models=WEIGHTS[weights], seed=seed)
    begun = time.process_time()
    sampler.fit(pilot=False, audit=False, steps=steps, batch=batch, progress=False)
    return sampler, time.process_time() - begun


def rows_of(
    problem: str,
    columns: int,
    sets: int,
    flows: list[str],
    weights: list[str],
    steps: int,
    batch: int,
    draws: float,
) -> list[dict[str, Any]]:
    """One row per data set, flow and q(m)."""
    rows = []
    for data in range(sets):
        target = target_of(problem, columns, 700 + data)
        listed = int(target.space.size or 0) <= LISTED
        log_p = exact(target, data) if listed else None
        result = None
        if draws:
            result = trj.TRJSampler(target, seed=data).run(max_seconds=draws, progress=False)
        for flow in flows:
            for name in weights:
                try:
                    sampler, seconds = fitted(target, flow, name, steps, batch, data)
                except trj.errors.TRJError:  # more models than it takes
                    continue
                row = {"problem": problem, "columns": columns, "set": data, "flow": flow}
                row |= {"q(m)": name, "steps": steps, "seconds": seconds}
                if log_p is not None:
                    with torch.no_grad():
                        log_q = sampler.models.log_prob(target.space.enumerate()).double()
                    row["excess"] = float((log_p.exp() * (log_p - log_q)).sum())
                    row["entropy"] = float(-(log_p.exp() * log_p).sum())
                if result is not None:
                    row["cross"] = sampler.variational.against(result).cross_entropy.value
                rows.append(row)
                print({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()})
    return rows


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Means over data sets, and standard errors of these."""
    keys = ["problem", "columns", "flow", "q(m)"]
    numbers = [c for c in ("seconds", "entropy", "excess", "cross") if c in table]
    groups = table.groupby(keys, sort=False)[numbers]
    error = groups.sem().add_suffix(", se").drop(columns="seconds, se")
    return groups.mean().join(error).join(groups.max().filter(["excess"]).add_suffix(", worst"))


def picture(table: pd.DataFrame, path: Path) -> None:
    """Excess of each q(m) by the number of columns."""
    figure, ax = plt.subplots(figsize=(5.5, 3.8), layout="constrained")
    seen = table.dropna(subset=["excess"]) if "excess" in table else table[:0]
    for (problem, flow, name), rows in seen.groupby(["problem", "flow", "q(m)"], sort=False):
        by = rows.groupby("columns")["excess"]
        label = f"{name}, {flow}, {problem}"
        ax.errorbar(by.mean().index, by.mean(), by.sem(), marker="o", ms=4, capsize=3, label=label)
    ax.set(yscale="log", xlabel="columns (2^columns models)", ylabel="KL(p(m) | q(m)), nats")
    ax.legend(fontsize=7)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="2^7 and 2^9 models, few steps")
    parser.add_argument("--columns", type=int, nargs="+", default=[7, 9, 12])
    parser.add_argument("--problems", nargs="+", default=["mid-focused"])
    parser.add_argument("--flows", nargs="+", choices=FLOWS, default=["Laplace"])
    parser.add_argument("--weights", nargs="+", choices=WEIGHTS, default=list(WEIGHTS))
    parser.add_argument("--sets", type=int, default=10, help="data sets")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--draws", type=float, default=0.0, help="seconds of a run for exact draws")
    parser.add_argument("--output", type=Path, default=Path("output/vti_sweep"))
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")  # answers warn of their doubts
    if options.quick:
        options.columns, options.sets, options.steps = [7, 9], 2, 200
        options.problems, options.flows = ["conjugate", "mid-focused"], ["Laplace"]
    options.output.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for problem in options.problems:
        for columns in options.columns:
            size = (options.sets, options.flows, options.weights, options.steps, options.batch)
            rows += rows_of(problem, columns, *size, options.draws)
            table = pd.DataFrame(rows)
            table.to_csv(options.output / "sweep.csv", index=False)
    print(summary(table).round(3).to_string())
    picture(table, options.output / "sweep.png")


if __name__ == "__main__":
    main()
