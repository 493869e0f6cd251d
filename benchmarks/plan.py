"""What does a run cost until it is done, and is it right?

    python -m benchmarks.plan                 # all problems, three seeds, half an hour
    python -m benchmarks.plan --quick         # one seed, cheap problems, a minute
    python -m benchmarks.plan --problem toy --set times=10 climbs=2000
    python -m benchmarks.plan --problem toy --without search "second lesson"

Processor seconds of one thread, all in: beginning, search, evidences, result. A run aims at a
standard error of .01: of each model's probability, over subsets of each item's inclusion.
``error_over_stated`` is the largest difference from the truth over the stated standard error, of
those above .003; NaN where no truth is known. ``--set`` changes a number of the plan
(trjmcmc/run/plan.py); ``--without`` leaves out parts of a run one by one, all if none is named.
"""

import argparse
import itertools
import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from torch.distributions import Normal, Poisson, Uniform

import trjmcmc as trj
from benchmarks.discovery import instance
from benchmarks.honest_problems import against_null
from benchmarks.radiata_pine import radiata_pine
from trjmcmc import clock
from trjmcmc.run.plan import Plan

ERROR = 0.01
SMALL = 0.003  # a difference of a probability that no error is asked to cover


def toy() -> trj.Target:
    """The counts of the README: a trend, or a sudden change."""
    year = torch.arange(12.0)
    count = torch.tensor([9.0, 11, 8, 12, 10, 9, 15, 16, 19, 14, 18, 17])

    def gradual(p: Any) -> torch.Tensor:
        rate = (p["level"][:, None] + p["slope"][:, None] * year).exp()
        return Poisson(rate).log_prob(count).sum(-1)

    def sudden(p: Any) -> torch.Tensor:
        rate = (p["level"][:, None] + p["jump"][:, None] * (year > p["when"][:, None])).exp()
        return Poisson(rate).log_prob(count).sum(-1)

    level = {"level": Normal(2.0, 1.0)}
    return trj.Target(
        [
            trj.Model("gradual", level | {"slope": Normal(0.0, 0.3)}, gradual),
            trj.Model(
                "sudden", level | {"jump": Normal(0.0, 1.0), "when": Uniform(0.0, 11.0)}, sudden
            ),
        ],
        truth=trj.problems.Truth({"gradual": 0.5510, "sudden": 0.4490}, source="quadrature"),
    )


def hidden_modes(number: int) -> trj.Target:
    """A mixture of two or three modes, from its seed, beside a null model."""
    return against_null(*instance(number)).target


def regressions(rows: int, slopes: list[float], sets: Sequence[Sequence[int]]) -> trj.Target:
    """Conjugate regressions on sets of columns: noise, intercept and slopes of variance one."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(rows, len(slopes), generator=generator)
    y = x @ torch.tensor(slopes) + torch.randn(rows, generator=generator)

    def on(columns: Sequence[int]) -> trj.Model:
        own = x[:, list(columns)]

        def log_likelihood(p: Any) -> torch.Tensor:
            mean = p["level"][:, None] + p["slopes"].view(-1, len(columns)) @ own.T
            return Normal(mean, 1.0).log_prob(y).sum(-1)

        priors = {"level": Normal(0.0, 1.0), "slopes": Normal(torch.zeros(len(columns)), 1.0)}
        return trj.Model(f"{len(columns)}: {columns}", priors, log_likelihood)

    def log_evidence(columns: Sequence[int]) -> torch.Tensor:
        z = torch.cat([torch.ones(rows, 1), x[:, list(columns)]], 1).double()
        precision = z.T @ z + torch.eye(z.shape[1], dtype=torch.float64)
        moment = z.T @ y.double()
        return (moment @ torch.linalg.solve(precision, moment) - precision.logdet()) / 2

    p = torch.stack([log_evidence(c) for c in sets]).softmax(0).tolist()
    models = [on(c) for c in sets]
    names = [model.name for model in models]
    return trj.Target(
        models, truth=trj.problems.Truth(dict(zip(names, p, strict=True)), source="conjugacy")
    )


def listed(columns: int) -> trj.Target:
    """Regressions on all sets of some columns but the empty one, in a list."""
    some = range(columns)
    sets = [c for k in range(1, columns + 1) for c in itertools.combinations(some, k)]
    return regressions(60, [0.3, 0.2, 0.0, 0.25, 0.0, 0.15, 0.1][:columns], sets)


PROBLEMS: dict[str, Callable[[], trj.Target]] = {
    "toy": toy,
    "sinh-arcsinh": trj.problems.sinh_arcsinh,
    "sleep": trj.problems.sleep,
    "radiata pine": radiata_pine,
    "robust regression": trj.problems.robust_regression,
    "ten columns": lambda: trj.problems.variable_selection(10),
    "fifteen columns": lambda: trj.problems.variable_selection(15),
    "hidden modes 1": lambda: hidden_modes(1),
    "hidden modes 2": lambda: hidden_modes(2),
    "few pulses": lambda: trj.problems.pulses(points=100, true=2, most=4, seed=1),
    "robust selection": trj.problems.robust_selection,
    "coal mining": lambda: trj.problems.coal_mining(1, 6),
    "pulses": trj.problems.pulses,
    "factors": trj.problems.factor_analysis,
    "63 models": lambda: listed(6),
    "127 models": lambda: listed(7),
    "20 coefficients": lambda: regressions(200, [0.3] * 19 + [0.17], [range(19), range(20)]),
    "10^4 rows": lambda: regressions(10_000, [0.3, 0.2, 0.03], [range(2), range(3)]),
    "10^5 rows": lambda: regressions(100_000, [0.3, 0.2, 0.0095], [range(2), range(3)]),
}
QUICK = [*PROBLEMS][:9]

WITHOUT = {
    "search": {"climbs": 0, "most_climbs": 0},
    "search that goes on": {"sought": 0.0},
    "second lesson": {"learned": 1},
    "several normals": {"normals": 1},
    "settled times": {"settled": math.inf, "slowing": math.inf},
    "clear tests": {"clear": 0.0},
    "tests of trend and groups": {"level": 0.0, "clear": 0.0},
    "move by worth": {"useful": math.inf, "least": 1.0},
}  # what a run in rounds does beyond drawing, and the numbers without it


def row(problem: str, settings: str, seed: int, plan: Plan, limit: float) -> dict[str, Any]:
    """One run."""
    target = PROBLEMS[problem]()
    with (
        clock.read_from(time.process_time),
        warnings.catch_warnings(record=True) as said,
    ):
        warnings.simplefilter("always")
        begun = time.process_time()
        sampler = trj.TRJSampler(target, seed=seed, plan=plan)
        result = sampler.run(until={"probability": ERROR}, max_seconds=limit, progress=False)
        seconds = time.process_time() - begun
    table, known = answer(result)
    judged = result.report.judged
    return {
        "problem": problem,
        "settings": settings,
        "seed": seed,
        "seconds": seconds,
        "evaluations": result.report.evaluations,
        "stated": float(table["se"].max()),
        "error_over_stated": math.nan if known is None else off(table, known),
        "tau": math.nan if judged is None else judged.tau,
        "warnings": len(said),
        "done": not result.report.out_of_time,
    }


def answer(result: trj.Result) -> tuple[pd.DataFrame, pd.Series | None]:
    """What a run is asked for with its errors, and the truth of it as far as it is known."""
    truth = result.chains.truth
    if result.space.has_items and not result.space.counts:
        table = result.inclusion_probabilities()
        return table, truth_of_items(result)
    table = result.model_probabilities()
    known = {} if truth is None else truth.probabilities
    return table, pd.Series(known).reindex(table.index) if known else None


def truth_of_items(result: trj.Result) -> pd.Series | None:
    """Inclusion probabilities of items, where those of models are known."""
    if result.chains.truth is None or not result.chains.truth.probabilities:
        return None
    p = pd.Series(result.chains.truth.probabilities)
    code = torch.stack([result.space.code_of(m) for m in p.index])
    found = torch.tensor(p.to_numpy()) @ result.space.items(code).double()
    return pd.Series(found.numpy(), index=result.inclusion_probabilities().index)


def off(table: pd.DataFrame, known: pd.Series) -> float:
    """The largest difference in stated errors, of those that matter; NaN without an error."""
    gap = (table["probability"] - known).abs()
    return float((gap / table["se"]).where(gap > SMALL, 0.0).max(skipna=False))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.plan",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--problem", choices=PROBLEMS, action="append", help="all if omitted")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--limit", type=float, default=300.0, help="processor seconds a run")
    parser.add_argument("--set", nargs="+", default=[], metavar="NUMBER=VALUE")
    parser.add_argument("--without", nargs="*", choices=WITHOUT)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    changed = dict(each.split("=") for each in options.set)
    plan = Plan(**{k: type(getattr(Plan(), k))(v) for k, v in changed.items()})
    names = options.problem or (QUICK if options.quick else [*PROBLEMS])
    seeds, limit = ([1], 60.0) if options.quick else (options.seeds, options.limit)
    plans = {"default": plan}
    if options.without is not None:
        for part in options.without or WITHOUT:
            plans[f"without {part}"] = replace(plan, **WITHOUT[part])
    rows = []
    for name in names:
        for settings, changes in plans.items():
            rows += [row(name, settings, seed, changes, limit) for seed in seeds]
            print(
                pd.DataFrame(rows[-len(seeds) :]).to_string(header=not rows[len(seeds) :]),
                flush=True,
            )
    table = pd.DataFrame(rows)
    numbers = ["seconds", "evaluations", "stated", "error_over_stated", "tau", "warnings", "done"]
    summed = table.groupby(["problem", "settings"], sort=False)[numbers]
    print("\nmedians\n", summed.median().to_string(float_format="{:.3g}".format))
    print("\nworst\n", summed.max().to_string(float_format="{:.3g}".format))


if __name__ == "__main__":
    main()
