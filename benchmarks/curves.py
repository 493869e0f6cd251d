"""Which curve are fifteen data of, from few calls of a NumPy function?

    python -m benchmarks.curves                         # 32 lists, 3000 and 8000 calls: a minute
    python -m benchmarks.curves --calls 1500 0 --instances 4

Lists of two or three curves with normal noise: three of growth, one or two decays, Michaelis-Menten
or Hill, a line or a power. Data come from a number, parameters from half the width of their priors.
Posteriors have three to five dimensions and bent tails. Evidences are known to 0.005 nats by
200 000 draws of a t distribution that tempered weights have fitted.

A list is within 0.1 if all log evidences of models of probability 0.001 and more are; they are
known if all have errors.
"""

import argparse
import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import stats
from torch.distributions import LogNormal, Normal

import trjmcmc as trj

Array = NDArray[np.float64]

TIMES = np.linspace(0, 10, 15)

LOG_NORMAL = {  # mean and standard deviation of the logarithm
    "K": (2.3, 0.5),
    "r": (-0.5, 0.7),
    "s": (-1.0, 0.7),
    "nu": (0.0, 1.0),
    "A": (1.0, 0.7),
    "k": (0.0, 0.7),
    "B": (0.0, 0.7),
    "m": (-2.0, 0.7),
    "V": (1.0, 0.7),
    "Km": (0.5, 0.7),
    "n": (0.0, 0.5),
    "c": (0.0, 0.5),
}

NORMAL = {"t0": (4.0, 2.0), "a": (0.0, 2.0), "b": (0.0, 2.0)}

CURVES = {
    "logistic": ("K r t0", lambda K, r, t0: K / (1 + np.exp(-r * (TIMES - t0)))),
    "gompertz": ("K r t0", lambda K, r, t0: K * np.exp(-np.exp(-r * (TIMES - t0)))),
    "richards": (
        "K r t0 nu",
        lambda K, r, t0, nu: K * (1 + nu * np.exp(-r * (TIMES - t0))) ** (-1 / nu),
    ),
    "one decay": ("A k", lambda A, k: A * np.exp(-k * TIMES)),
    "two decays": ("A k B m", lambda A, k, B, m: A * np.exp(-k * TIMES) + B * np.exp(-m * TIMES)),
    "michaelis-menten": ("V Km", lambda V, Km: V * TIMES / (Km + TIMES)),
    "hill": ("V Km n", lambda V, Km, n: V * TIMES**n / (Km**n + TIMES**n)),
    "line": ("a b", lambda a, b: a + b * TIMES),
    "power": ("a b c", lambda a, b, c: a + b * (TIMES + 0.01) ** c),
}

LISTS = [
    ["logistic", "gompertz", "richards"],
    ["one decay", "two decays"],
    ["michaelis-menten", "hill"],
    ["line", "power"],
]


def log_likelihood(name: str, p: Mapping[str, Any], y: Array) -> Array:
    """Of parameters of shape (..., 1) each, nats."""
    names, curve = CURVES[name]
    with np.errstate(all="ignore"):
        mean = curve(*(p[k] for k in names.split()))
        z = ((y - mean) / p["s"]) ** 2
    found = -0.5 * z.sum(-1) - len(y) * np.log(p["s"][..., 0])
    return np.where(np.isfinite(found), found, -np.inf)


def natural(p: Mapping[str, Any]) -> dict[str, Any]:
    """The exponentials of what is log-normal."""
    return {k: np.exp(x) if k in LOG_NORMAL else x for k, x in p.items()}


def log_evidence(name: str, y: Array, draws: int = 200_000) -> float:
    """By importance sampling from a t distribution, nats."""
    names = [*CURVES[name][0].split(), "s"]
    mean, sd = np.array([(LOG_NORMAL | NORMAL)[k] for k in names]).T
    rng = np.random.default_rng(0)

    def log_joint(x: Array) -> Array:
        p = natural(dict(zip(names, x.T[..., None], strict=True)))
        return log_likelihood(name, p, y) + stats.norm.logpdf(x, mean, sd).sum(1)

    x = rng.normal(mean, sd, (draws, len(names)))
    log_w = log_joint(x) - stats.norm.logpdf(x, mean, sd).sum(1)
    for temperature in (16, 8, 4, 2, 1, 1, 1):
        w = np.exp((log_w - log_w.max()) / temperature)
        w /= w.sum()
        t = stats.multivariate_t(w @ x, 1.3 * np.cov(x.T, aweights=w), df=5, seed=rng)
        x = t.rvs(draws)
        log_w = log_joint(x) - t.logpdf(x)
    return float(np.logaddexp.reduce(log_w) - math.log(draws))


def instance(number: int) -> tuple[trj.Target, Array]:
    """A target, and log evidences of its models."""
    names, rng = LISTS[number % len(LISTS)], np.random.default_rng([57, number])
    kind = names[int(rng.integers(len(names)))]
    both = (LOG_NORMAL | NORMAL).items()
    at = natural({k: np.atleast_1d(rng.normal(m, s / 2)) for k, (m, s) in both})
    y = CURVES[kind][1](*(at[k] for k in CURVES[kind][0].split())) + at["s"] * rng.normal(size=15)

    def model(name: str) -> trj.Model:
        used = [*CURVES[name][0].split(), "s"]
        priors = {k: LogNormal(*LOG_NORMAL[k]) for k in used if k in LOG_NORMAL}
        priors |= {k: Normal(*NORMAL[k]) for k in used if k in NORMAL}

        def one(p: Mapping[str, Any]) -> float:
            return float(log_likelihood(name, {k: v[None] for k, v in p.items()}, y))

        return trj.Model(name, priors, trj.BlackBox(one))

    target = trj.Target([model(name) for name in names])
    return target, np.array([log_evidence(name, y) for name in names])


def run(number: int, calls: int) -> dict[str, Any]:
    """One run, of so many calls; of 0 without a limit."""
    target, truth = instance(number)
    p = np.exp(truth - np.logaddexp.reduce(truth))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = {"max_evaluations": calls} if calls else {}
        result = trj.TRJSampler(target, seed=number).run(progress=False, **settings)
    off = (result.evidence()["log_evidence"].to_numpy(float) - truth)[p > 1e-3]
    error = result.evidence()["se"].to_numpy(float)[p > 1e-3]
    table = result.model_probabilities()
    known = bool(np.isfinite(off).all() and np.isfinite(error).all())
    return {
        "within 0.1": bool((np.abs(off) < 0.1).all()),
        "known": known,
        "z": float(np.abs(off / error).max()) if known else math.nan,
        "error of p": float(np.abs(table["probability"] - p).max()),
        "stated": float(table["se"].max()),
        "calls": result.report.evaluations,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.curves",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--calls", type=int, nargs="+", default=[3000, 8000])
    parser.add_argument("--instances", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = {}
    for calls in options.calls:
        table = pd.DataFrame([run(i, calls) for i in range(options.instances)])
        rows[calls or "no limit"] = {
            **table[["within 0.1", "known"]].sum(),
            **{f"{k}, median": table[k].median() for k in ("error of p", "stated", "calls")},
            "error of p, worst": table["error of p"].max(),
            "rms of z": float((table["z"] ** 2).mean() ** 0.5),
            "largest z": table["z"].max(),
        }
    print(pd.DataFrame(rows).T.to_string(float_format=lambda x: f"{x:.3g}"))


if __name__ == "__main__":
    main()
