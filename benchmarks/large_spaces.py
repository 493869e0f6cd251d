"""Selection among up to 2^24 models: the sampler by default, beside the variational answers.

    python -m benchmarks.large_spaces --columns 10 15 20
    python -m benchmarks.large_spaces --columns 10 --draws 200 --steps 200

For each number of columns of the conjugate regression, whose inclusion probabilities are known:
time and memory of a default run, all in, and its largest error; then what q(m) of each kind answers
alone after its training over Laplace's map (exact here, so that the error is that of q(m)). With
`--robust 24` the robust regression, where nothing is known, is run twice and compared with itself.
`--baselines SECONDS` adds effective draws of the slowest unit a second: the default kernel, births
and deaths from the prior, and the switch in saturated space, each with that budget.
"""

import argparse
import resource
import time
from typing import Any

import numpy as np
import pandas as pd
import torch

import trjmcmc as trj
from trjmcmc.fit import ReverseKL, train

WEIGHTS = {
    "made": trj.Made,
    "mean field": trj.MeanField,
    "straight-through": lambda s: trj.MeanField(s, gradient="straight-through"),
    "categorical": trj.Categorical,
    "ucb": trj.GaussianSurrogate,
    "thompson": lambda s: trj.GaussianSurrogate(s, acquisition="thompson"),
    "process": trj.GaussianProcess,
}


def default_run(target: trj.Target, draws: int, seed: int) -> tuple[dict[str, Any], np.ndarray]:
    """Time, memory and error of a run that nothing was said about; inclusion probabilities."""
    begun = time.perf_counter()
    result = trj.TRJSampler(target, seed=seed).run(draws, progress=False)
    found = result.inclusion_probabilities()
    row = {
        "seconds": time.perf_counter() - begun,
        "largest se": float(found["se"].max()),
        "peak memory, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "evaluations": result.report.evaluations,
        "kernel": max(result.report.plan.weights, key=result.report.plan.weights.__getitem__),
    }
    if hasattr(target, "inclusion"):
        gap = found["probability"].to_numpy() - target.inclusion.numpy()
        row["largest error"] = float(np.abs(gap).max())
    return row, found["probability"].to_numpy()


def answers(target: Any, steps: int, batch: int) -> pd.DataFrame:
    """What each q(m) answers alone, and its cost."""
    rows = {}
    for name, make in WEIGHTS.items():
        try:
            weights = make(target.space)
        except trj.errors.TRJError:  # the space is too large for it
            continue
        generator = torch.Generator().manual_seed(1)
        begun = time.perf_counter()
        objective = ReverseKL(target, anneal=0.0, weights=weights)
        flow = trj.Laplace(target)
        train(flow, objective, steps=steps, batch=batch, generator=generator, progress=False)
        code = weights.sample(20_000, generator)
        error = (code.double().mean(0) - target.inclusion).abs().max()
        with torch.no_grad():
            log_q = weights.log_prob(code).double()
        log_prior = target.space.log_prior(code).double()
        bound = (target.log_evidence(code) + log_prior - log_q).mean()
        rows[name] = {
            "seconds": time.perf_counter() - begun,
            "largest error": float(error),
            "divergence, nats": float(target.log_evidence_total - bound),
        }
    return pd.DataFrame(rows).T


def baselines(target: trj.Target, seconds: float) -> pd.DataFrame:
    """Effective draws of the slowest inclusion indicator a second, fit included."""
    names = ["default", "birth-death", "switch"]
    table = trj.compare_samplers(target, names, budget=seconds, seed=0, progress=False).table
    return table[["ess_per_s", "error"]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--columns", type=int, nargs="*", default=[10, 15, 20])
    parser.add_argument("--robust", type=int, nargs="*", default=[])
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=1000, help="of training")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--baselines", type=float, default=0.0, help="seconds for each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for p in options.columns:
        target = trj.problems.conjugate_selection(p, seed=3)
        print(f"\nconjugate selection, {p} columns, {2**p} models")
        row, _ = default_run(target, options.draws, options.seed)
        print(pd.Series(row).to_string(), flush=True)
        if options.steps:
            found = answers(target, options.steps, options.batch)
            print(f"q(m) alone, {options.steps} steps of {options.batch}")
            print(found.round(4).to_string(), flush=True)
        if options.baselines:
            print(baselines(target, options.baselines).to_string(), flush=True)
    for p in options.robust:
        target = trj.problems.robust_selection("mid", p=p, seed=701)
        print(f"\nrobust selection, {p} columns, {2**p} models")
        runs = []
        for seed in (options.seed, options.seed + 1):
            row, inclusion = default_run(target, options.draws, seed)
            print(pd.Series(row).to_string(), flush=True)
            runs.append(inclusion)
        print(f"largest difference of two runs: {np.abs(runs[0] - runs[1]).max():.4f}")


if __name__ == "__main__":
    main()
