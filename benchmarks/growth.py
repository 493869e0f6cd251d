"""Three ODE growth curves as black boxes: log evidences for few likelihood calls.

    OMP_NUM_THREADS=1 python -m benchmarks.growth --peers      # four seeds: an hour
    python -m benchmarks.growth --calls 3000 --seeds 0
    python -m benchmarks.growth --truth                        # by importance sampling

Logistic, Gompertz and theta-logistic growth (theta = 2), four parameters each, 20 points, solved by
Runge-Kutta in NumPy, no gradients. Ours is one `run(max_evaluations=calls)` over the three models.
dynesty and nautilus get a third of the calls a model, at small settings; pocoMC takes no limit.
Without a limit peers run for the seeds --unlimited alone, at small settings and at their own.

A row a sampler: likelihood calls of the three models together; errors of the log evidences, root
mean square and largest; root mean square of the claimed errors; the largest error over the one that
was claimed; log evidences without a value or a claimed error; seconds of processor time.
Writes growth.md into the folder --output.
"""

import argparse
import math
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.stats
import torch
from scipy.special import ndtri
from torch.distributions import LogNormal

import trjmcmc as trj
from benchmarks.peers.nested import PEERS, Counted, Evidence
from benchmarks.peers.problems import IMPOSSIBLE, LOG_2PI, Array, Problem, inside
from benchmarks.peers.run import OURS, Row, guarded, missing

# slope of log(N / K) over r, given log(N / K)
CURVES: dict[str, Callable[[Array], Array]] = {
    "logistic": lambda x: -np.expm1(x),
    "gompertz": lambda x: -x,
    "theta": lambda x: -np.expm1(2 * x),
}
TIMES, STEPS = np.linspace(0, 10, 20), 4  # Runge-Kutta steps from a time to the next
NAMES = ("r", "K", "N0", "sigma")
CENTRE, WIDTH = np.log([0.7, 10.0, 0.6, 0.5]), np.array([0.7, 0.7, 0.8, 0.7])  # of their logarithms
NOISE = 0.4

# By `--truth`, a million draws each; their standard errors are .0013.
TRUTH: dict[int, dict[str, float]] = {
    0: {"logistic": -19.4306, "gompertz": -22.0253, "theta": -23.4030},
    1: {"logistic": -23.9876, "gompertz": -18.3467, "theta": -28.1289},
    2: {"logistic": -24.0171, "gompertz": -30.8732, "theta": -21.1536},
    3: {"logistic": -18.5353, "gompertz": -20.3652, "theta": -19.2239},
}


def solve(curve: str, r: Array, k: Array, n0: Array) -> Array:
    """Sizes at TIMES, (n, 20)."""
    slope, h = CURVES[curve], r * (TIMES[1] - TIMES[0]) / STEPS
    x = np.log(n0 / k)
    found = [x]
    for _ in TIMES[1:]:
        for _ in range(STEPS):
            a = slope(x)
            b = slope(x + h / 2 * a)
            c = slope(x + h / 2 * b)
            x = x + h / 6 * (a + 2 * (b + c) + slope(x + h * c))
        found.append(x)
    return k[:, None] * np.exp(np.stack(found, 1))


def data(seed: int) -> Array:
    """From each curve in turn."""
    rng = np.random.default_rng([8, seed])
    r, k, n0 = (np.array([rng.uniform(*ends)]) for ends in ((0.5, 1.2), (8, 15), (0.3, 1)))
    return solve(list(CURVES)[seed % 3], r, k, n0)[0] + rng.normal(0, NOISE, len(TIMES))


class Likelihood:
    """Normal errors around a curve; (n, 4) to (n,), with a value that peers take if it diverged."""

    def __init__(self, curve: str, y: Array) -> None:
        self.curve, self.y = curve, y

    def __call__(self, x: Array) -> Array:
        r, k, n0, sigma = x.T
        with np.errstate(all="ignore"):
            z = (self.y - solve(self.curve, r, k, n0)) / sigma[:, None]
            value = -0.5 * (z**2).sum(1) - len(self.y) * (np.log(sigma) + LOG_2PI / 2)
        return np.where(np.isfinite(value), value, IMPOSSIBLE)


def target(seed: int, curves: tuple[str, ...] = tuple(CURVES)) -> trj.Target:
    priors = {n: LogNormal(c, w) for n, c, w in zip(NAMES, CENTRE, WIDTH, strict=True)}

    def box(curve: str) -> trj.BlackBox:
        likelihood = Likelihood(curve, data(seed))

        def log_likelihood(q: dict[str, Array]) -> Array:
            value = likelihood(np.stack([q[name] for name in NAMES], 1))
            return np.where(value > IMPOSSIBLE, value, -math.inf)

        return trj.BlackBox(log_likelihood, vectorized=True)

    return trj.Target([trj.Model(c, dict(priors), box(c)) for c in curves], dtype=torch.float64)


def problem(seed: int, curve: str) -> Problem:
    """One of the models, for the peers."""
    return Problem(
        target(seed, (curve,)),
        Likelihood(curve, data(seed)),
        lambda u: np.exp(CENTRE + WIDTH * ndtri(inside(u))),
        [scipy.stats.lognorm(w, scale=math.exp(c)) for c, w in zip(CENTRE, WIDTH, strict=True)],
        dict.fromkeys(NAMES, 0),
        truth(seed)[curve],
    )


def importance(seed: int, curve: str, draws: int = 1_000_000, rounds: int = 4) -> Evidence:
    """Log evidence and its error: half of the draws from the prior, half from a Student t.

    The t, of the logarithms, takes mean and covariance of the rounds before, which are left out.
    """
    rng, likelihood = np.random.default_rng(seed), Likelihood(curve, data(seed))
    prior = scipy.stats.multivariate_normal(CENTRE, np.diag(WIDTH**2))
    mean, cov = CENTRE, np.diag(WIDTH**2)
    for n in [draws // 10] * rounds + [draws]:
        t = scipy.stats.multivariate_t(mean, cov, df=5)
        x = np.concatenate(
            [prior.rvs(n // 2, random_state=rng), t.rvs(n - n // 2, random_state=rng)]
        )
        log_w = np.concatenate([likelihood(np.exp(part)) for part in np.array_split(x, 100)])
        log_w += prior.logpdf(x) - np.logaddexp(prior.logpdf(x), t.logpdf(x)) + math.log(2)
        w = np.exp(log_w - log_w.max())
        mean, cov = np.average(x, 0, w), np.cov(x.T, aweights=w)
    return math.log(w.mean()) + log_w.max(), float(w.std() / w.mean()) / math.sqrt(n)


def truth(seed: int) -> dict[str, float]:
    if seed not in TRUTH:
        TRUTH[seed] = {curve: importance(seed, curve)[0] for curve in CURVES}
    return TRUTH[seed]


def ours(seed: int, calls: int) -> list[Row]:
    """A row a model; calls and seconds are in the first."""
    begun = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = trj.TRJSampler(target(seed), seed=seed).run(max_evaluations=calls, progress=False)
    seconds = time.process_time() - begun
    found = result.evidence(full=True)
    said = "; ".join(sorted({str(w.message)[:60] for w in caught}))
    spent = {"calls": result.report.evaluations, "seconds": seconds, "note": said}
    rows = [
        {"curve": curve, "value": row["combined"], "claimed_error": row["combined_se"]}
        for curve, row in found.iterrows()
    ]
    return [rows[0] | spent, *rows[1:]]


def peer(name: str, seed: int, *, quick: bool, most: int | None, budget: float) -> list[Row]:
    """A row a model."""
    module, run = PEERS[name]
    if gone := missing(module):
        return [{"curve": curve, "note": gone} for curve in CURVES]
    rows = []
    for curve in CURVES:
        stated = problem(seed, curve)
        stated.check()
        likelihood = Counted(stated.log_likelihood)

        def evidence(stated: Problem = stated, likelihood: Counted = likelihood) -> Row:
            limit = {} if most is None else {"most": most // len(CURVES)}
            value, error = run(stated, likelihood, seed, quick, **limit)
            return {"value": float(value), "claimed_error": float(error)}

        row = guarded(evidence, budget)
        rows.append({"curve": curve, "calls": likelihood.calls} | row)
    return rows


Plan = tuple[str, list[int], Callable[[int], list[Row]]]


def plans(options: argparse.Namespace) -> Iterator[Plan]:
    """Name, seeds and, given a seed, run."""
    for calls in options.calls:
        yield f"{OURS}, {calls} calls", options.seeds, partial(ours, calls=calls)
    if not options.peers:
        return
    run = partial(peer, budget=options.max_seconds)
    for calls in options.calls:
        for name in ("dynesty", "nautilus"):
            limit = partial(run, name, quick=True, most=calls)
            yield f"{name}, {calls} calls", options.seeds, limit
    for name, quick in ((n, q) for q in (True, False) for n in ("pocoMC", "dynesty", "nautilus")):
        unlimited = partial(run, name, quick=quick, most=None)
        yield f"{name}, small" if quick else name, options.unlimited, unlimited


def table(runs: pd.DataFrame) -> pd.DataFrame:
    """A row a sampler."""
    square = runs.assign(error=runs["error"] ** 2, claimed_error=runs["claimed_error"] ** 2)
    square = square.groupby("sampler", sort=False)
    every = runs.groupby("sampler", sort=False)
    seeds = every["seed"].nunique()
    return pd.DataFrame(
        {
            "seeds": seeds,
            "calls": every["calls"].sum() / seeds,
            "rms error": square["error"].mean() ** 0.5,
            "worst error": every["error"].max(),
            "claimed": square["claimed_error"].mean() ** 0.5,
            "worst z": every["z"].max(),
            "without": every["z"].agg(lambda z: f"{z.isna().sum()} of {len(z)}"),
            "seconds": every["seconds"].sum() / seeds,
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, nargs="+", default=[12_000, 3000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--peers", action="store_true", help="dynesty, nautilus and pocoMC too")
    parser.add_argument(
        "--unlimited", type=int, nargs="*", default=[0], help="seeds of peers without a limit"
    )
    parser.add_argument("--max-seconds", type=float, default=300.0, help="a peer's, of a model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--truth", action="store_true", help="show log evidences and end")
    parser.add_argument("--output", type=Path, default=Path("output"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.truth:
        for seed in options.seeds:
            for curve in CURVES:
                print(seed, curve, "{:.4f} +- {:.4f}".format(*importance(seed, curve)), flush=True)
        return
    options.output.mkdir(exist_ok=True)
    found: list[Row] = []
    blank = dict.fromkeys(("value", "claimed_error", "calls", "seconds"), math.nan)
    for name, seeds, run in plans(options):
        for seed in seeds:
            for row in run(seed):
                row = {"sampler": name, "seed": seed, **blank, **row}
                row["error"] = abs(row["value"] - truth(seed)[row["curve"]])
                claimed = row["claimed_error"]
                row["z"] = row["error"] / claimed if math.isfinite(claimed) else math.nan
                found.append(row)
                shown = {k: f"{v:.3g}" if isinstance(v, float) else v for k, v in row.items()}
                print(*(f"{k} {v}" for k, v in shown.items()), sep=", ", flush=True)
            text = table(pd.DataFrame(found)).to_string(float_format="{:.3g}".format)
            (options.output / "growth.md").write_text(f"```\n{text}\n```\n")
    print(text)


if __name__ == "__main__":
    main()
