"""Problems at awkward scales with exact answers: each right, or with a warning.

    python -m benchmarks.resolution
    python -m benchmarks.resolution --draws 500 --seeds 1 2

A model without parameters against one with a parameter whose posterior is narrow beside its
prior, far from zero, or next to a bound; both models have probability 1/2. Exact answers by
quadrature or conjugacy in float64.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable

import pandas as pd
import torch
from torch.distributions import (
    Beta,
    Binomial,
    Dirichlet,
    Distribution,
    Gamma,
    HalfNormal,
    Multinomial,
    Normal,
    Poisson,
    Uniform,
)

import trjmcmc as trj

WIDTH, POINTS = 9.0, 100_001  # of a quadrature, standard deviations to each side, and points
SIGMAS = 5.0  # standard errors from the truth at which an answer is wrong


def against_null(
    prior: Distribution, loc: float, sd: float, *, dtype: torch.dtype = torch.float32
) -> trj.Target:
    """A null against a parameter with likelihood Normal(x; loc, sd), as probable as the other."""
    x = torch.linspace(-WIDTH, WIDTH, POINTS, dtype=torch.float64) * sd + loc
    log_f = prior.log_prob(x).double() + Normal(loc, sd).log_prob(x)
    log_z = float(log_f.logsumexp(0)) + math.log(2 * WIDTH * sd / (POINTS - 1))
    return pair(prior, lambda v: Normal(loc, sd).log_prob(v), log_z, dtype)


def pair(
    prior: Distribution,
    log_likelihood: Callable[[torch.Tensor], torch.Tensor],
    log_z: float,
    dtype: torch.dtype,
) -> trj.Target:
    """A null against a model of that log evidence."""
    null = trj.Model("null", {}, lambda p: torch.tensor(log_z))
    one = trj.Model("one", {"x": prior}, lambda p: log_likelihood(p["x"]))
    return trj.Target([null, one], dtype=dtype)


def binomial(a: float, dtype: torch.dtype) -> trj.Target:
    """Five successes of five, or none seen: the posterior lies at a bound."""
    log_beta = math.lgamma(a + 5) + math.lgamma(2 * a) - math.lgamma(2 * a + 5) - math.lgamma(a)
    return pair(
        Beta(a, a),
        lambda v: Binomial(5, v, validate_args=False).log_prob(v.new_tensor(5.0)),
        log_beta,
        dtype,
    )


def multinomial(a: float, dtype: torch.dtype) -> trj.Target:
    """Three categories of which one is empty."""
    y = torch.tensor([3.0, 2.0, 0.0], dtype=dtype)
    alpha = torch.full((3,), a, dtype=torch.float64)
    log_z = (
        torch.lgamma(alpha.sum())
        - torch.lgamma((alpha + y).sum())
        + (torch.lgamma(alpha + y) - torch.lgamma(alpha)).sum()
        + math.lgamma(6)
        - torch.lgamma(y.double() + 1).sum()
    )
    prior = Dirichlet(torch.full((3,), a))
    return pair(
        prior,
        lambda v: Multinomial(5, v, validate_args=False).log_prob(y),
        float(log_z),
        dtype,
    )


def poisson(a: float, dtype: torch.dtype) -> trj.Target:
    """No event under a rate whose prior is all next to zero."""
    log_z = a * math.log(a / (a + 1))
    return pair(
        Gamma(a, a),
        lambda v: Poisson(v, validate_args=False).log_prob(v.new_tensor(0.0)),
        log_z,
        dtype,
    )


def problems(dtype: torch.dtype) -> dict[str, trj.Target]:
    """The family, by name."""
    narrow = {
        "N(0, 1), .3 +- .5": (Normal(0.0, 1.0), 0.3, 0.5),
        "N(0, 1), .3 +- 1e-2": (Normal(0.0, 1.0), 0.3, 1e-2),
        "N(0, 1), .3 +- 1e-4": (Normal(0.0, 1.0), 0.3, 1e-4),
        "N(0, 1), .3 +- 1e-6": (Normal(0.0, 1.0), 0.3, 1e-6),
        "N(0, 1), .3 +- 3e-8": (Normal(0.0, 1.0), 0.3, 3e-8),
        "N(0, 1e4), 5000.3 +- 5e-4": (Normal(0.0, 1e4), 5000.3, 5e-4),
        "N(1e6, 1e3), 1e6 + 7 +- 1": (Normal(1e6, 1e3), 1e6 + 7, 1.0),
        "N(1e6, 1), 1e6 +- .1": (Normal(1e6, 1.0), 1e6, 0.1),
        "U(0, 1), .7 +- 1e-3": (Uniform(0.0, 1.0), 0.7, 1e-3),
        "U(0, 1), 1e-6 +- 1e-7": (Uniform(0.0, 1.0), 1e-6, 1e-7),
        "U(0, 1), 1 - 2e-5 +- 1e-6": (Uniform(0.0, 1.0), 1 - 2e-5, 1e-6),
        "U(0, 1), 1 - 2e-6 +- 1e-7": (Uniform(0.0, 1.0), 1 - 2e-6, 1e-7),
        "U(-1e4, 1e4), 3.2 +- 1": (Uniform(-1e4, 1e4), 3.2, 1.0),
        "U(-1e4, 1e4), 3.2 +- .001": (Uniform(-1e4, 1e4), 3.2, 1e-3),
        "U(0, 6e4), 55000.123 +- .01": (Uniform(0.0, 6e4), 55000.123, 0.01),
        "U(2.4e6, 2.5e6), +- 10": (Uniform(2.4e6, 2.5e6), 2.45e6, 10.0),
        "HalfNormal(1), 1e-5 +- 1e-7": (HalfNormal(1.0), 1e-5, 1e-7),
        "HalfNormal(1e6), 1e5 +- .1": (HalfNormal(1e6), 1e5, 0.1),
    }
    found = {
        name: against_null(prior, loc, sd, dtype=dtype) for name, (prior, loc, sd) in narrow.items()
    }
    found |= {f"Beta({a}), 5 of 5": binomial(a, dtype) for a in (0.05, 0.1, 0.5, 1.0)}
    found |= {f"Dirichlet({a}), one empty": multinomial(a, dtype) for a in (0.05, 0.3, 1.0)}
    found |= {f"Gamma({a}), no event": poisson(a, dtype) for a in (0.01, 0.1, 1.0)}
    return found


def compare(draws: int | None, seeds: list[int], dtypes: list[torch.dtype]) -> pd.DataFrame:
    """One row a problem, precision and seed; ``verdict`` is right, warned or SILENT."""
    rows = []
    for dtype in dtypes:
        for name, target in problems(dtype).items():
            for seed in seeds:
                begun = time.perf_counter()
                with warnings.catch_warnings(record=True) as said:
                    warnings.simplefilter("always")
                    sampler = trj.TRJSampler(target, seed=seed, dtype=dtype)
                    result = sampler.run(draws=draws, progress=False)
                row = result.model_probabilities().loc["one"]
                wrong = any(
                    not abs(row[route] - 0.5) <= SIGMAS * row[f"{route}_se"] + 1e-3
                    for route in ("visits", "combined")
                )
                kinds = sorted({w.category.__name__ for w in said})
                rows.append(
                    {
                        "problem": name,
                        "dtype": str(dtype).removeprefix("torch."),
                        "seed": seed,
                        "visits": row["visits"],
                        "visits_se": row["visits_se"],
                        "combined": row["combined"],
                        "combined_se": row["combined_se"],
                        "coarse": bool(result.coarse),
                        "warnings": " ".join(kinds),
                        "verdict": ("warned" if kinds else "SILENT") if wrong else "right",
                        "seconds": time.perf_counter() - begun,
                    }
                )
                print(pd.DataFrame(rows[-1:]).to_string(header=len(rows) == 1), flush=True)
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--draws", type=int, help="draws a chain; the run's own choice if omitted")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=("float32", "float64"), help="both if omitted")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    chosen = [options.dtype] if options.dtype else ["float32", "float64"]
    table = compare(options.draws, options.seeds, [getattr(torch, d) for d in chosen])
    print(table["verdict"].value_counts().to_string())


if __name__ == "__main__":
    main()
