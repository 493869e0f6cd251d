"""Selection among up to 2^24 models: the sampler by default, beside the variational answers.

    python -m benchmarks.large_spaces --columns 10 15 20
    python -m benchmarks.large_spaces --columns 10 --draws 200 --steps 200

For each number of columns of the conjugate regression, whose inclusion probabilities are known:
time and memory of a default run, all in, and its largest error; then what q(m) of each kind answers
alone after its training over Laplace's map (exact here, so that the error is that of q(m)). With
`--robust 24` a default run of the robust regression, beside long data augmentation.
`--baselines SECONDS` adds effective draws of the slowest unit a second: the default kernel, births
and deaths from the prior, and the switch in saturated space, each with that budget. `--curves`
measures seconds a step of the moves that the default chooses from, and what Laplace's map holds
in memory, by number of columns.
"""

import argparse
import resource
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

import trjmcmc as trj
from benchmarks.robust_gibbs import gibbs_robust_selection
from trjmcmc import kernel
from trjmcmc.fit import ReverseKL
from trjmcmc.fit.train import train

WEIGHTS = {
    "made": trj.weights.Made,
    "mean field": trj.weights.MeanField,
    "straight-through": lambda s: trj.weights.MeanField(s, gradient="straight-through"),
    "categorical": trj.weights.CategoricalWeights,
    "ucb": trj.weights.GaussianSurrogateWeights,
    "thompson": lambda s: trj.weights.GaussianSurrogateWeights(s, acquisition="thompson"),
}


def default_run(target: trj.Target, draws: int, seed: int) -> tuple[dict[str, Any], np.ndarray]:
    """Time, memory and error of a run that nothing was said about; inclusion probabilities."""
    begun = time.perf_counter()
    result = trj.TRJSampler(target, seed=seed).run(draws, progress=False)
    found = result.inclusion_probabilities(full=True)
    worst = float(found["se"].max())
    seconds = time.perf_counter() - begun
    row = {
        "seconds": seconds,
        "largest se": worst,
        "effective draws/s": 0.25 / worst**2 / seconds,
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
        flow = trj.transport.LaplaceMap(target)
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


def moves_by_columns(columns: Sequence[int], chains: int = 256, steps: int = 20) -> pd.DataFrame:
    """Milliseconds a step of each move, after some steps."""
    rows = {}
    for p in columns:
        target = trj.problems.conjugate_selection(p, n=100, seed=3)
        generator = torch.Generator().manual_seed(0)
        flow = trj.transport.LaplaceMap(target)
        moves = {
            "birth-death": kernel.BirthDeath(target, kernel.Neighbours(target.space)),
            "units in turn": kernel.UnitGibbs(target),
            "jump": kernel.Jump(target, flow, kernel.Neighbours(target.space)),
        }
        code = target.space.sample_prior(chains, generator)
        row = {}
        for name, move in moves.items():
            state = kernel.start(target, code, target.sample_prior(code, generator))
            for i in range(2 * steps):  # half of them to find what is asked for again
                if i == steps:
                    begun = time.perf_counter()
                state, _ = move.step(state, generator)
            row[name + ", ms"] = 1e3 * (time.perf_counter() - begun) / steps
        rows[p] = row
    return pd.DataFrame(rows)


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
    parser.add_argument("--curves", type=int, nargs="*", default=[], help="columns")
    parser.add_argument("--reference", type=int, default=20_000, help="scans of augmentation")
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
        row, inclusion = default_run(target, options.draws, options.seed)
        print(pd.Series(row).to_string(), flush=True)
        begun = time.perf_counter()
        chains = gibbs_robust_selection(target, draws=options.reference)
        error = chains.std(0, ddof=1).max() / len(chains) ** 0.5
        seconds = time.perf_counter() - begun
        print(
            f"data augmentation: {seconds:.0f} s, largest se {error:.4f}, effective draws/s "
            f"{0.25 / error**2 / seconds:.0f}; largest difference "
            f"{np.abs(inclusion[1:] - chains.mean(0)).max():.4f}"
        )
        if options.baselines:
            table = baselines(target, options.baselines)
            print(table[["ess_per_s"]].to_string(), flush=True)
    if options.curves:
        print("\nmoves of 256 chains by columns")
        print(moves_by_columns(options.curves).round(2).to_string())


if __name__ == "__main__":
    main()
