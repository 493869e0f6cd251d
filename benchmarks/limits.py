"""Time limits held: wall time over ``max_seconds``, and what came of the time.

``python -m benchmarks.limits`` prints a table of cases by budgets. A budget counts as held within
the larger of one second and ten percent. Run it on a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import math
import resource
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd
import torch
from torch.distributions import Normal, Uniform

import trjmcmc as trj

GRACE, SHARE = 1.0, 0.1  # seconds, and share of the budget, that a run may take beyond it
BUDGETS = (1.0, 3.0, 8.0, 12.0)


def subsets() -> trj.Target:
    """Sixty-four subsets of six regressors."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(80, 6, generator=generator)
    y = x @ torch.tensor([1.0, -0.5, 0.0, 0.0, 0.3, 0.0]) + torch.randn(80, generator=generator)
    return trj.Target(
        trj.Subsets([f"x{i}" for i in range(6)], of="beta"),
        {"beta": Normal(0.0, 1.0), "level": Normal(0.0, 3.0), "log_sd": Normal(0.0, 1.0)},
        lambda p, active: (
            Normal(p["beta"] @ x.T + p["level"][:, None], p["log_sd"].exp()[:, None])
            .log_prob(y)
            .sum(-1)
        ),
    )


def many_models() -> trj.Target:
    """A list of forty: a line and a wave of one of thirty-nine periods."""
    generator = torch.Generator().manual_seed(6)
    t = torch.linspace(0, 10, 60)
    y = 0.2 * t + torch.sin(2 * math.pi * t / 3.1) + 0.7 * torch.randn(60, generator=generator)

    def model(i: int) -> trj.Model:
        priors = {"slope": Normal(0.0, 1.0), "sine": Normal(0.0, 1.0), "cosine": Normal(0.0, 1.0)}
        w = 2 * math.pi * t / (1 + 0.1 * i)

        def log_likelihood(p: Any) -> torch.Tensor:
            mean = p["slope"][:, None] * t
            if i:
                mean = mean + p["sine"][:, None] * w.sin() + p["cosine"][:, None] * w.cos()
            return Normal(mean, 0.7).log_prob(y).sum(-1)

        return trj.Model(f"m{i}", priors if i else {"slope": Normal(0.0, 1.0)}, log_likelihood)

    return trj.Target([model(i) for i in range(40)])


def sinusoid() -> trj.Target:
    """Nothing or a wave of unknown frequency in sixty nights: many narrow modes."""
    generator = torch.Generator().manual_seed(7)
    t = torch.randint(0, 1500, (60,), generator=generator).double().sort().values.float()
    t = t + 0.1 * torch.rand(60, generator=generator)
    y = 2.0 * torch.sin(2 * math.pi * 0.137 * t) + 0.5 * torch.randn(60, generator=generator)

    def wave(p: Any) -> torch.Tensor:
        w = 2 * math.pi * p["frequency"][:, None] * t
        mean = p["a"][:, None] * w.sin() + p["b"][:, None] * w.cos()
        return Normal(mean, 0.5).log_prob(y).sum(-1)

    priors = {"a": Normal(0.0, 2.0), "b": Normal(0.0, 2.0), "frequency": Uniform(0.0, 1.0)}
    return trj.Target(
        [
            trj.Model("nothing", {}, lambda p: Normal(0.0, 0.5).log_prob(y).sum()),
            trj.Model("sinusoid", priors, wave),
        ]
    )


def two_normals() -> trj.Target:
    """Two models that cost nothing: millions of draws."""

    def log_likelihood(p: Any) -> torch.Tensor:
        return Normal(p["mu"], 1.0).log_prob(torch.tensor(1.0))

    return trj.Target(
        [trj.Model(n, {"mu": Normal(0.0, s)}, log_likelihood) for n, s in (("a", 1.0), ("b", 3.0))]
    )


def expensive() -> trj.Target:
    """Two models whose likelihood takes 50 ms, however many points it is asked for."""

    def log_likelihood(p: Any) -> torch.Tensor:
        time.sleep(0.05)
        return Normal(p["mu"], 1.0).log_prob(torch.tensor(1.0))

    return trj.Target(
        [trj.Model(n, {"mu": Normal(0.0, s)}, log_likelihood) for n, s in (("a", 1.0), ("b", 3.0))]
    )


CASES: dict[str, Callable[[], trj.Target]] = {
    "64 subsets": subsets,
    "40 models": many_models,
    "coal mining": trj.problems.coal_mining,
    "factor analysis": trj.problems.factor_analysis,
    "sinusoid": sinusoid,
    "two normals": two_normals,
    "expensive": expensive,
    "pulses": trj.problems.pulses,
    "16 variables": lambda: trj.problems.variable_selection(16),
}


def limit(case: str, budget: float, *, fit: bool | str = "auto", seed: int = 1) -> dict[str, Any]:
    """One run, as a row of the table."""
    target = CASES[case]()
    begun = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = trj.TRJSampler(target, seed=seed).run(max_seconds=budget, fit=fit, progress=False)
    seconds = time.monotonic() - begun
    p = result.model_probabilities(full=True)
    top = p["visits"].drop("(other models)", errors="ignore").idxmax()
    return {
        "case": case,
        "budget": budget,
        "fit": fit,
        "seconds": seconds,
        "held": seconds <= budget + max(GRACE, SHARE * budget),
        "chains": result.raw.n_chains,
        "draws": result.raw.n_draws,
        "thin": result.raw.thin,
        "top": top,
        "p": p.loc[top, "visits"],
        "se": p.loc[top, "visits_se"],
        "note": p.loc[top, "note"],
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
        "stages": " ".join(f"{k} {s:.2f}" for k, s in result.report.seconds.items()),
    }


def limits(
    cases: Iterable[str] = tuple(CASES),
    budgets: Iterable[float] = BUDGETS,
    fit: bool | str = "auto",
) -> pd.DataFrame:
    """The table: a row a case and budget."""
    return pd.DataFrame([limit(c, b, fit=fit) for c in cases for b in budgets])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--budgets", nargs="*", type=float, default=list(BUDGETS))
    parser.add_argument("--fit", action="store_true", help="train in full")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    limit("two normals", 1.0)  # what a process does once
    table = limits(options.cases, options.budgets, True if options.fit else "auto")
    print(table.to_string(index=False, float_format="%.3g"))
    print(f"held: {int(table['held'].sum())} of {len(table)}")


if __name__ == "__main__":
    main()
