"""Problems at awkward scales with exact answers: each right, or with a warning that names why.

    python -m benchmarks.resolution
    python -m benchmarks.resolution --draws 300 --seeds 1 2 --dtype auto float32 float64
    python -m benchmarks.resolution --draws 300 --random 20

A model without parameters against one with a parameter ``height`` whose posterior is narrow beside
its prior, far from zero, or next to a bound, with constants added to both log likelihoods, and with
data of another precision than the run; both models have probability 1/2. Exact answers by
quadrature or conjugacy in float64. With ``auto`` no precision is stated.

Verdicts: right; said (an error, or a warning with no error bar, names the parameter); vague (they
do not name it); USELESS (no error bar, no word); SILENT (wrong, no word).
"""

from __future__ import annotations

import argparse
import math
import re
import time
import warnings
from collections.abc import Callable
from typing import NamedTuple

import pandas as pd
import torch
from torch import Tensor
from torch.distributions import (
    Beta,
    Binomial,
    Dirichlet,
    Distribution,
    Gamma,
    HalfNormal,
    LogNormal,
    Multinomial,
    Normal,
    Poisson,
    Uniform,
)

import trjmcmc as trj
from trjmcmc.errors import TRJError
from trjmcmc.target.support import cast_to

WIDTH, POINTS = 9.0, 100_001  # of a quadrature, standard deviations to each side, and points
SIGMAS = 5.0  # standard errors from the truth at which an answer is wrong
F32, F64, CPU = torch.float32, torch.float64, torch.device("cpu")
DTYPES = {"auto": None, "float32": F32, "float64": F64}
NAMED = re.compile(r"\bheight\b|log densities")
SHIFTS = torch.tensor([-1.5, -0.5, 0.5, 1.5], dtype=F64)  # of four data about their mean, sd


class Problem(NamedTuple):
    """A target in a precision, None for the package's choice, and what float64 resolves of it."""

    make: Callable[[torch.dtype | None], trj.Target]
    numbers: float = math.inf  # float64 numbers in a standard deviation of the posterior


def against_null(
    prior: Distribution, loc: float, sd: float, *, dtype: torch.dtype | None = F32
) -> trj.Target:
    """A null against a parameter with likelihood Normal(x; loc, sd), as probable as the other."""
    x = torch.linspace(-WIDTH, WIDTH, POINTS, dtype=F64) * sd + loc
    log_f = prior.log_prob(x).double() + Normal(loc, sd).log_prob(x)
    log_z = float(log_f.logsumexp(0)) + math.log(2 * WIDTH * sd / (POINTS - 1))
    return pair(prior, lambda v: Normal(loc, sd).log_prob(v), log_z, dtype)


def pair(
    prior: Distribution,
    log_likelihood: Callable[[Tensor], Tensor],
    log_z: float,
    dtype: torch.dtype | None,
    null_dtype: torch.dtype = F64,
) -> trj.Target:
    """A null against a model of that log evidence."""
    null = trj.Model("null", {}, lambda p: torch.tensor(log_z, dtype=null_dtype))
    one = trj.Model("one", {"height": prior}, lambda p: log_likelihood(p["height"]))
    return trj.Target([null, one], dtype=dtype)


def measured(
    prior: Distribution,
    loc: float | list[float],
    sd: float | list[float],
    *,
    offset: float = 0.0,
    data: torch.dtype = F64,
    each: Distribution | None = None,
    orders: int = 1,
    null: torch.dtype = F64,
    numpy: bool = False,
    matmul: bool = False,
) -> Problem:
    """Entries of a parameter, four data of each.

    Arguments:
        prior: Of all entries.
        loc, sd: Mean and standard deviation of the likelihood, of each entry.
        offset: Constant in both log likelihoods.
        data: Precision of the data.
        each: Prior of the entries by themselves, if it is not ``prior``.
        orders: How many orders of the entries the prior counts as one.
        null: Precision of what the null returns.
        numpy: Whether the data are made of a NumPy array.
        matmul: Whether data meet the parameter in a matrix product.
    """
    at, width = (torch.as_tensor(v, dtype=F64).reshape(-1) for v in (loc, sd))
    y = (at[:, None] + width[:, None] * SHIFTS).to(data)  # (entries, 4)
    noise = 2 * width
    middle = y.double().mean(1)
    t = torch.linspace(-WIDTH, WIDTH, POINTS, dtype=F64)[:, None] * width  # about the middle
    fine = cast_to(each or prior, F64, CPU)
    log_f = fine.log_prob(middle + t).reshape(len(t), -1)
    apart = (y.double() - middle[:, None]) - t[..., None]
    log_f = log_f + Normal(0.0, noise[:, None]).log_prob(apart).sum(-1)
    log_z = (log_f.logsumexp(0) + (2 * WIDTH * width / (POINTS - 1)).log()).sum()
    given = torch.as_tensor(y.numpy()) if numpy else y
    ones = torch.ones(1, 4, dtype=data)

    def log_likelihood(v: Tensor) -> Tensor:
        x = v.reshape(len(v), -1, 1)
        x = x @ ones if matmul else x
        return Normal(x, noise[:, None].to(v.dtype)).log_prob(given).sum((1, 2)) + offset

    total = float(log_z) + math.log(orders) + offset
    gap = torch.finfo(F64).eps * at.abs()
    return Problem(
        lambda dtype: pair(prior, log_likelihood, total, dtype, null),
        min(float((width / gap).min()), ROUND / max(abs(offset), 1.0)),
    )


ROUND = 20 * 0.03 / torch.finfo(F64).eps  # an offset at which float64 is off by .03 counts as 20


def binomial(a: float, dtype: torch.dtype | None, n: float = 5.0, k: float = 5.0) -> trj.Target:
    """Five successes of five, or so: the posterior lies at a bound."""
    log_beta = sum(
        sign * math.lgamma(x)
        for sign, x in (
            (1, a + k), (1, a + n - k), (-1, 2 * a + n), (-2, a), (1, 2 * a),
            (1, n + 1), (-1, k + 1), (-1, n - k + 1),
        )
    )  # fmt: skip
    return pair(
        Beta(a, a),
        lambda v: Binomial(int(n), v, validate_args=False).log_prob(v.new_tensor(k)),
        log_beta,
        dtype,
    )


def multinomial(a: float, dtype: torch.dtype | None) -> trj.Target:
    """Three categories of which one is empty."""
    y = torch.tensor([3.0, 2.0, 0.0])
    log_z = (
        counted(torch.full((3,), a, dtype=F64), y.double())
        + math.lgamma(6)
        - float(torch.lgamma(y.double() + 1).sum())
    )
    return pair(
        Dirichlet(torch.full((3,), a)),
        lambda v: Multinomial(5, v, validate_args=False).log_prob(y.to(v)),
        log_z,
        dtype,
    )


def counted(alpha: Tensor, y: Tensor) -> float:
    """Log evidence of counts in an order."""
    all_of = torch.lgamma(alpha.sum()) - torch.lgamma((alpha + y).sum())
    return float(all_of + (torch.lgamma(alpha + y) - torch.lgamma(alpha)).sum())


def shares(a: float, n: float, *, centred: bool) -> Problem:
    """Three categories with many counts; centred: relative to the likelihood's maximum."""
    y = n * torch.tensor([0.2, 0.3, 0.5], dtype=F64)
    best = (y / n).log() if centred else torch.zeros(3, dtype=F64)
    log_z = counted(torch.full((3,), a, dtype=F64), y) - float((y * best).sum())
    return Problem(
        lambda dtype: pair(
            Dirichlet(torch.full((3,), a)),
            lambda v: (y.to(v) * v.log()).sum(-1) - (y * best).sum().to(v),
            log_z,
            dtype,
        )
    )


def by_sums(prior: Distribution, mean: float, n: float) -> Problem:
    """n standard normal data about a mean, of which only sums are kept: squares cancel."""
    sums, squares = n * mean, n * mean**2 + n
    sd = n**-0.5
    t = torch.linspace(-WIDTH, WIDTH, POINTS, dtype=F64) * sd
    log_f = cast_to(prior, F64, CPU).log_prob(mean + t) - 0.5 * n * t.square() - 0.5 * n
    log_z = float(log_f.logsumexp(0)) + math.log(2 * WIDTH * sd / (POINTS - 1))
    return Problem(
        lambda dtype: pair(
            prior, lambda v: -0.5 * (n * v.square() - 2 * sums * v + squares), log_z, dtype
        )
    )


def poisson(a: float, dtype: torch.dtype | None) -> trj.Target:
    """No event under a rate whose prior is all next to zero."""
    log_z = a * math.log(a / (a + 1))
    return pair(
        Gamma(a, a),
        lambda v: Poisson(v, validate_args=False).log_prob(v.new_tensor(0.0)),
        log_z,
        dtype,
    )


def problems() -> dict[str, Problem]:
    """The first family, by name: a likelihood of one number."""
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
        name: Problem(lambda dtype, given=given: against_null(*given, dtype=dtype))  # type: ignore[misc]
        for name, given in narrow.items()
    }
    for of, name, values in (
        (binomial, "Beta({}), 5 of 5", (0.05, 0.1, 0.5, 1.0)),
        (multinomial, "Dirichlet({}), one empty", (0.05, 0.3, 1.0)),
        (poisson, "Gamma({}), no event", (0.01, 0.1, 1.0)),
    ):
        found |= {name.format(a): Problem(lambda dtype, a=a, of=of: of(a, dtype)) for a in values}  # type: ignore[misc]
    return found


def exact(*values: float) -> list[Tensor]:
    """Numbers of a prior that float32 would round."""
    return [torch.tensor(v, dtype=F64) for v in values]


def extremes() -> dict[str, Problem]:
    """The second family, by name: far scales, offsets, vectors, data of either precision."""
    unit, wide = Normal(0.0, 1.0), Uniform(-1e9, 1e9)
    three = Normal(torch.zeros(3), torch.tensor([1e-3, 1.0, 1e3]))
    far = Normal(torch.tensor([1e6, 0.0]), torch.tensor([1e3, 1e-3]))
    at, sd = [2e-4, 0.3, -400.0], [1e-5, 1e-2, 10.0]
    near = Normal(*exact(1e8 + 3, 1.0))
    return {
        "N(0, 1) +- 1e-2, data float32": measured(unit, 0.3, 1e-2, data=F32),
        "N(0, 1) +- 1e-8, data float32": measured(unit, 0.3, 1e-8, data=F32),
        "N(0, 1) +- 1e-10, data float64": measured(unit, 0.3, 1e-10),
        "N(0, 1) +- 1e-12": measured(unit, 0.3, 1e-12),
        "N(0, 1) +- 1e-6, NumPy": measured(unit, 0.3, 1e-6, numpy=True),
        "N(0, 1) +- 1e-6, product, data float32": measured(unit, 0.3, 1e-6, data=F32, matmul=True),
        "N(0, 1) +- 1e-2, product, data float32": measured(unit, 0.3, 1e-2, data=F32, matmul=True),
        "N(0, 1) +- 1e-6, product, data float64": measured(unit, 0.3, 1e-6, matmul=True),
        "N(1e8, 1e3), 1e8 + 7 +- 1": measured(Normal(1e8, 1e3), 1e8 + 7, 1.0),
        "N(1e8 + 3, 1), +- .1": measured(near, 1e8 + 3.5, 0.1),
        "N(1e6, 1), +- 1e-12": measured(Normal(1e6, 1.0), 1e6 + 0.3, 1e-12),
        "U(-1e9, 1e9), 3e8 +- 1e-3": measured(wide, 3e8, 1e-3),
        "U(-1e9, 1e9), 3e8 +- 1e-9": measured(wide, 3e8, 1e-9),
        "U(-1e9, 1e9), 3.2 +- 1e-3": measured(wide, 3.2, 1e-3),
        "U(0, 1e-6), 3e-7 +- 1e-12": measured(Uniform(0.0, 1e-6), 3e-7, 1e-12),
        "HalfNormal(1e8), 3 +- 1e-2": measured(HalfNormal(1e8), 3.0, 1e-2),
        "HalfNormal(1), 1e-10 +- 1e-12": measured(HalfNormal(1.0), 1e-10, 1e-12),
        "Gamma(2, 1e-6), 1e6 +- 1e-2": measured(Gamma(2.0, 1e-6), 1e6, 1e-2),
        "Gamma(.01, .01), 1e-9 +- 1e-10": measured(Gamma(0.01, 0.01), 1e-9, 1e-10),
        "LogNormal(0, 10), 1e8 +- 1": measured(LogNormal(0.0, 10.0), 1e8, 1.0),
        "LogNormal(0, 1), 1.7 +- 1e-9": measured(LogNormal(0.0, 1.0), 1.7, 1e-9),
        "offset 1e8, N(0, 1) +- .1": measured(unit, 0.3, 0.1, offset=1e8),
        "offset -1e8, N(0, 1) +- 1e-8": measured(unit, 0.3, 1e-8, offset=-1e8),
        "offset 1e6, data float32": measured(unit, 0.3, 0.1, offset=1e6, data=F32),
        "offset 1e6, null float32": measured(unit, 0.3, 0.1, offset=1e6 / 3, null=F32),
        "offset 1e15": measured(unit, 0.3, 0.1, offset=1e15),
        "three scales, 1e6 apart": measured(three, at, sd),
        "three scales, data float32": measured(three, at, [s * 1e-4 for s in sd], data=F32),
        "1e6 +- 1e-2 and 1e-4 +- 1e-8": measured(far, [1e6, 1e-4], [1e-2, 1e-8]),
        "Ordered N(0, 1e4), 1 apart +- 1e-3": measured(
            trj.Ordered(Normal(0.0, 1e4), 2),
            [5000.0, 5001.0],
            [1e-3, 1e-3],
            each=Normal(0.0, 1e4),
            orders=2,
        ),
        "Ordered U(0, 1), +- 1e-8": measured(
            trj.Ordered(Uniform(0.0, 1.0), 2),
            [0.3, 0.6],
            [1e-8, 1e-8],
            each=Uniform(0.0, 1.0),
            orders=2,
        ),
        "Dirichlet(1), 1e6 counts": shares(1.0, 1e6, centred=False),
        "Dirichlet(1), 1e9 counts": shares(1.0, 1e9, centred=False),
        "Dirichlet(1), 1e7 counts, centred": shares(1.0, 1e7, centred=True),
        "Dirichlet(1), 3e7 counts, centred": shares(1.0, 3e7, centred=True),
        "sums of 1e4 squares about 1e3": by_sums(Normal(0.0, 1e4), 1e3, 1e4),
        "sums of 100 squares about 100": by_sums(Normal(0.0, 1e3), 100.0, 100.0),
        "sums of 300 squares about 300": by_sums(Normal(0.0, 1e4), 300.0, 300.0),
        "sums of 1e4 squares about 1e6": by_sums(Normal(0.0, 1e7), 1e6, 1e4),
        "Beta(.05), 3 of 1e6": Problem(lambda dtype: binomial(0.05, dtype, 1e6, 3.0)),
    }


def randomly(n: int, seed: int) -> dict[str, Problem]:
    """Problems drawn from a seed: prior, ratio of scales, offset and precision of the data."""
    generator = torch.Generator().manual_seed(seed)

    def between(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=generator, dtype=F64))

    kinds = ["normal", "uniform", "half-normal", "gamma", "log-normal", "ordered", "two"]
    found = {}
    for i in range(n):
        kind = kinds[int(between(0, len(kinds)))]
        ratio, scale = 10 ** between(2, 12), 10 ** between(-3, 4)
        centre = 10 ** between(2, 8) if between(0, 1) < 0.5 else 0.0
        offset = 10 ** between(2, 8) if between(0, 1) < 0.5 else 0.0
        data, x = (F32, F64)[int(between(0, 2))], between(0.2, 0.9)
        loc, sd, more = centre + scale * x, scale / ratio, {}
        line = Normal(*exact(centre, scale))
        if kind == "normal":
            prior: Distribution = line
        elif kind == "uniform":
            prior = Uniform(*exact(centre - scale, centre + scale))
        elif kind == "ordered":
            prior, more = trj.Ordered(line, 2), {"each": line, "orders": 2}
        elif kind == "two":  # the other one 1e6 times as large
            prior = Normal(centre * torch.ones(2, dtype=F64), scale * torch.tensor([1.0, 1e6]))
        else:
            loc = scale * x
            prior = {
                "half-normal": lambda s=scale: HalfNormal(*exact(s)),
                "gamma": lambda s=scale: Gamma(*exact(2.0, 1 / s)),
                "log-normal": lambda s=scale: LogNormal(*exact(math.log(s), 1.0)),
            }[kind]()
            centre = 0.0
        at, width = loc, sd
        if kind == "ordered":
            at, width = [loc - scale / 3, loc], [sd, sd]
        if kind == "two":
            at, width = [loc, centre + 1e6 * scale * x], [sd, 1e6 * sd]
        name = f"{i}: {kind} {centre:.1e} {scale:.0e} ratio {ratio:.0e} offset {offset:.0e}"
        found[f"{name} {data}".replace("torch.", "")] = measured(
            prior, at, width, offset=offset, data=data, **more
        )
    return found


def verdict_of(
    row: pd.Series | None, said: list[warnings.WarningMessage], error: Exception | None
) -> str:
    """What a run is worth; see the module."""
    texts = [str(w.message) for w in said] + ([str(error)] if error else [])
    told = "said" if any(NAMED.search(t) for t in texts) else "vague"
    if error is not None:
        return told if isinstance(error, TRJError) else "CRASH"
    assert row is not None
    gaps = [abs(row[r] - 0.5) - SIGMAS * row[f"{r}_se"] - 1e-3 for r in ("visits", "combined")]
    if all(gap <= 0 for gap in gaps):
        return "right"
    if said:
        return told
    return "SILENT" if any(gap > 0 for gap in gaps) else "USELESS"


def compare(
    family: dict[str, Problem],
    settings: list[str],
    seeds: list[int],
    draws: int | None,
    max_seconds: float | None = None,
) -> pd.DataFrame:
    """One row a problem, setting and seed."""
    rows = []
    for setting in settings:
        for name, problem in family.items():
            for seed in seeds:
                begun, row, error, sampler = time.perf_counter(), None, None, None
                with warnings.catch_warnings(record=True) as said:
                    warnings.simplefilter("always")
                    try:
                        target = problem.make(DTYPES[setting])
                        sampler = trj.TRJSampler(target, seed=seed)
                        result = sampler.run(draws=draws, max_seconds=max_seconds, progress=False)
                        row = result.model_probabilities(full=True).loc["one"]
                    except Exception as found:
                        error = found
                verdict = verdict_of(row, said, error)
                kinds = {w.category.__name__ for w in said} | (
                    {type(error).__name__} - {"NoneType"}
                )
                rows.append(
                    {
                        "problem": name,
                        "setting": setting,
                        "seed": seed,
                        "numbers": problem.numbers,
                        "in": str(sampler.target.dtype)[-2:] if sampler else "",
                        "visits": math.nan if row is None else row["visits"],
                        "visits_se": math.nan if row is None else row["visits_se"],
                        "combined": math.nan if row is None else row["combined"],
                        "combined_se": math.nan if row is None else row["combined_se"],
                        "verdict": verdict,
                        "needless": " ".join(sorted(kinds)) if verdict == "right" else "",
                        "because": "" if verdict == "right" else " ".join(sorted(kinds)),
                        "seconds": time.perf_counter() - begun,
                    }
                )
                print(
                    pd.DataFrame(rows[-1:]).to_csv(
                        header=len(rows) == 1, index=False, float_format="%.4g"
                    ),
                    end="",
                    flush=True,
                )
                if verdict != "right":
                    for text in [*(str(w.message) for w in said), *([str(error)] if error else [])]:
                        print("    " + text[:400], flush=True)
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--draws", type=int, help="draws a chain; the run's own choice if omitted")
    parser.add_argument("--max-seconds", type=float, help="of each run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=tuple(DTYPES), nargs="+", default=["auto"])
    parser.add_argument("--random", type=int, help="that many problems drawn from the first seed")
    parser.add_argument("--only", default="", help="problems whose name contains this")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    family = problems() | extremes()
    if options.random:
        family = randomly(options.random, options.seeds[0])
    family = {name: problem for name, problem in family.items() if options.only in name}
    table = compare(family, options.dtype, options.seeds, options.draws, options.max_seconds)
    print(pd.crosstab(table["setting"], table["verdict"]).to_string())
    print("right, with a warning:", int((table["needless"] != "").sum()))


if __name__ == "__main__":
    main()
