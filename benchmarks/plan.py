"""What does a run cost until it is done, by the runner of R-hat ("now") and in rounds?

    python -m benchmarks.plan                 # all problems, three seeds, an hour and a half
    python -m benchmarks.plan --quick         # one seed, cheap problems, under ten minutes
    python -m benchmarks.plan --problem toy --runner rounds --set times=5 climbs=2000
    python -m benchmarks.plan --problem toy --without search "second lesson"

Processor seconds of one thread, all in: beginning, search, evidences. Both runners aim at a
standard error of .01: of each model's probability, in rounds over subsets of each item's inclusion.
``error_over_stated`` is the largest difference from the truth over the stated standard error, of
those above .003; NaN where no truth is known. ``--set`` changes a number of the plan of rounds
(trjmcmc/run/plan.py); ``--without`` leaves out parts of rounds one by one, all if none is named.
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
from trjmcmc import clock
from trjmcmc.promises import PRECISE_RHAT
from trjmcmc.run.plan import Plan
from trjmcmc.run.recipes.choose import recipe_of
from trjmcmc.run.rounds import rounds
from trjmcmc.run.stated import Limit

ERROR = 0.01
SMALL = 0.003  # a difference of a probability that no error is asked to cover
RUNNERS = ("now", "rounds")


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
        truth=trj.Truth({"gradual": 0.5510, "sudden": 0.4490}, source="quadrature"),
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
    return trj.Target(models, truth=trj.Truth(dict(zip(names, p, strict=True)), source="conjugacy"))


def listed(columns: int) -> trj.Target:
    """Regressions on all sets of some columns but the empty one, in a list."""
    some = range(columns)
    sets = [c for k in range(1, columns + 1) for c in itertools.combinations(some, k)]
    return regressions(60, [0.3, 0.2, 0.0, 0.25, 0.0, 0.15, 0.1][:columns], sets)


PROBLEMS: dict[str, Callable[[], trj.Target]] = {
    "toy": toy,
    "sinh-arcsinh": trj.problems.sinh_arcsinh,
    "sleep": trj.problems.sleep,
    "radiata pine": trj.problems.radiata_pine,
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


def row(problem: str, runner: str, seed: int, plan: Plan, limit: float) -> dict[str, Any]:
    """One run."""
    target = PROBLEMS[problem]()
    with (
        clock.read_from(time.process_time),
        warnings.catch_warnings(record=True) as said,
    ):
        warnings.simplefilter("always")
        found = (by_now if runner == "now" else in_rounds)(target, seed, plan, limit)
    return {
        "problem": problem,
        "runner": runner,
        "seed": seed,
        **found,
        "warnings": len(said),
    }


def in_rounds(target: trj.Target, seed: int, plan: Plan, limit: float) -> dict[str, Any]:
    """What a run in rounds answers."""
    begun, generator = time.process_time(), torch.Generator().manual_seed(seed)
    recipe = recipe_of(target, plan, generator, limit=Limit(clock.now() + limit))
    run = rounds(recipe, error=ERROR)
    seconds, exact = time.process_time() - begun, truth_of(target, recipe)
    return {
        "seconds": seconds,
        "evaluations": run.evaluations,
        "done": run.done,
        "stated": float(run.error.max()),
        "error_over_stated": math.nan if exact is None else off(run.p, run.error, exact),
        "tau": run.mixing.tau,
    }


def by_now(target: trj.Target, seed: int, plan: Plan, limit: float) -> dict[str, Any]:
    """What a run answers that takes no rounds, since R-hat is asked for as well."""
    begun = time.process_time()
    result = trj.TRJSampler(target, seed=seed).run(
        until={"probability": ERROR, "rhat": PRECISE_RHAT}, max_seconds=limit, progress=False
    )
    seconds = time.process_time() - begun
    table = result.model_probabilities(full=True)
    best = "combined" if "combined" in table and table["combined"].notna().all() else "visits"
    value, error = table[best], table[f"{best}_se"]
    known = {} if target.truth is None else target.truth.probabilities
    shown = [m for m in value.index if m in known]
    off_by = math.nan
    if shown:
        p, e = (torch.tensor(x[shown].to_numpy()).double() for x in (value, error))
        off_by = off(p, e, torch.tensor([known[m] for m in shown]).double())
    return {
        "seconds": seconds,
        "evaluations": result.report.evaluations,
        "done": not result.report.missed,
        "stated": float(error.max()),
        "error_over_stated": off_by,
        "tau": math.nan,
    }


def off(p: torch.Tensor, error: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest difference in stated errors, of those that matter; NaN without an error."""
    gap = (p - exact).abs()
    found = torch.where(gap > SMALL, gap / error, 0.0)
    return float(found.max())


def truth_of(target: trj.Target, recipe: Any) -> torch.Tensor | None:
    """What the run is asked for, as it is known."""
    if target.truth is None or not target.truth.probabilities:
        return None
    labels = [*target.truth.probabilities]
    p = torch.tensor([*target.truth.probabilities.values()], dtype=torch.float64)
    code = torch.stack([target.space.code_of(m) for m in labels])
    return p @ recipe.asked(code[None])[0]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.plan",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--problem", choices=PROBLEMS, action="append", help="all if omitted")
    parser.add_argument("--runner", choices=RUNNERS, action="append", help="both if omitted")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--limit", type=float, default=300.0, help="processor seconds a run")
    parser.add_argument("--set", nargs="+", default=[], metavar="NUMBER=VALUE")
    parser.add_argument("--without", nargs="*", choices=WITHOUT, help="rounds alone")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    changed = dict(each.split("=") for each in options.set)
    plan = Plan(**{k: type(getattr(Plan(), k))(v) for k, v in changed.items()})
    names = options.problem or (QUICK if options.quick else [*PROBLEMS])
    seeds, limit = ([1], 60.0) if options.quick else (options.seeds, options.limit)
    plans = dict.fromkeys(options.runner or RUNNERS, plan)
    if options.without is not None:
        plans = {"rounds": plan}
        for part in options.without or WITHOUT:
            plans[f"without {part}"] = replace(plan, **WITHOUT[part])
    rows = []
    for name in names:
        for runner, changes in plans.items():
            rows += [row(name, runner, seed, changes, limit) for seed in seeds]
            print(pd.DataFrame(rows[-1:]).to_string(header=len(rows) == 1), flush=True)
    table = pd.DataFrame(rows)
    numbers = ["seconds", "evaluations", "stated", "error_over_stated", "tau", "warnings", "done"]
    summed = table.groupby(["problem", "runner"], sort=False)[numbers]
    print("\nmedians\n", summed.median().to_string(float_format="{:.3g}".format))
    print("\nworst\n", summed.max().to_string(float_format="{:.3g}".format))


if __name__ == "__main__":
    main()
