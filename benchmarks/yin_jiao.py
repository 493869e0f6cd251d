"""The figures and released numbers of Yin & Jiao beside ours: same problems, same measures.

    python -m benchmarks --case yin-jiao             # the papers' size, two to three hours
    python -m benchmarks --case yin-jiao --quick     # short trainings, under ten minutes
    python -m benchmarks.yin_jiao --problem robust   # one of them alone

Theirs: the mean of the files that the authors' repository holds (github.com/Palantir-zoe/vinftrjp),
none where the paper has a picture alone. "Their settings": reverse KL alone, batches of 256 at a
learning rate of 1e-4 that is halved on plateaus, at most 10 000 steps (40 000 for one map of all
models). Maps that learn from pilot draws never see those that they are judged by. Chains propose
all models alike, the present one too, as the released ones do: an exact map then makes .5 effective
draws a step of two equal models. The published data are taken from ../shared/data where they are,
else simulated ones of the same shape. Figures 1 and 8, points carried by each map, are drawn by
examples/sinh_arcsinh.py and factor_analysis.py.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import arviz
import pandas as pd
import torch

import trjmcmc as trj
from benchmarks.bridge_spread import PAPERS, regression
from examples.jumps import repeated_bartolucci
from trjmcmc.compare.classical import METHODS, on_itself, uniform_proposal
from trjmcmc.draws import Pool
from trjmcmc.fit import tempered_draws
from trjmcmc.kernel import Cycle, Fixed, Jump, Kernel, RandomWalk, start
from trjmcmc.problems import SinhArcsinhMap
from trjmcmc.problems.coal_mining import DAYS

Rows = list[dict[str, Any]]
DATA = Path(__file__).parents[2] / "shared" / "data"
THEIRS = {"batch": 256, "learning_rate": 1e-4, "schedule": "plateau"}
PILOT = ("affine TRJ", "spline TRJ")  # jumps through maps fitted to pilot draws
VI = "VI TRJ, their settings"
CHAINS, WALKS = 10, 2  # of a running estimate, as many as files; random walks between two jumps
A_STEP = {VI: 0.096, "spline TRJ": 0.106, "exact": 0.49}  # effective draws, sinh-arcsinh
CHAIN_ERROR = {VI: 0.010}  # of p(2d)
RATES = (-903.212, -905.352)  # log evidences of the exchange rates, to .001 nats
LATER = (0.058, 0.250, 0.296, 0.234, 0.118, 0.045)  # p(k = 1 to 6), 190 events, by quadrature
RELEASED = (0.063, 0.260, 0.306, 0.226, 0.086, 0.049)


@dataclass(frozen=True)
class Size:
    """How much work it is: training steps (theirs, of one map of all, ours), chains, repeats."""

    theirs: int = 10_000
    of_all: int = 40_000
    ours: int = 2000
    pilot: int = 50_000
    taught: int = 500
    running: int = 10_000
    sets: tuple[int, ...] = (500, 1000, 2000, 4000)
    repeats: int = 80
    depths: tuple[int, ...] = (2, 4, 8, 16)
    particles: int = 12_500
    seconds: float = 60.0


QUICK = Size(500, 500, 300, 5000, 500, 1000, (500,), 20, (2, 8), 1500, 10.0)


def rows_of(options: argparse.Namespace) -> Rows:
    """All problems, a row a measure and map."""
    size = QUICK if options.quick else Size()
    rows = []
    for problem in PROBLEMS.values():
        for row in problem(size, torch.Generator().manual_seed(options.seed), options.seed):
            rows.append({"case": "yin-jiao", "problem": problem.__name__} | row)
        print(f"  {problem.__name__}: {len(rows)} rows so far", flush=True)
    return rows


def toy(size: Size, generator: torch.Generator, seed: int) -> Rows:
    """Figures 2 and 6: running estimates of p(2d), by map and by depth."""
    target = trj.problems.sinh_arcsinh()
    exact = SinhArcsinhMap(target.space)

    def drawn() -> Pool:
        code = torch.arange(2).repeat(size.pilot)[:, None]
        theta = exact.push(torch.randn(len(code), 2, generator=generator), code)[0]
        theta = torch.where(target.space.active(code), theta, 0.0)
        return Pool(code, theta, target.log_joint(code, theta))

    pilot, pool = drawn(), drawn()
    jumps = {name: made(name, target, pilot, generator, size.ours) for name in PILOT} | {
        VI: theirs(target, trj.transport.RealNVP, 8, size.theirs, generator),
        "VI TRJ": ours(target, trj.transport.RealNVP, size.ours, seed),
        "VI CTP": ours(target, trj.transport.ConditionalRealNVP, size.ours, seed),
        "exact": (Jump(target, exact, uniform_proposal(target)), 0.0),
    }
    rows = []
    for name, (jump, seconds) in jumps.items():
        p, *rates = running(target, jump, pool, size.running, generator)
        off = (p[:, 1] - 0.75).square().mean().sqrt()
        what = f"rms error of p(2d), chains of {size.running} steps"
        rows.append(row("2", what, name, CHAIN_ERROR.get(name), off, 0, seconds))
        rows += of_chains("2", name, rates, A_STEP.get(name))
        rows += of_bridges("-", name, target, jump, pool, size, generator)
    return rows + by_depth(target, pool, size, generator, "6")


def factors(size: Size, generator: torch.Generator, seed: int) -> Rows:
    """Figures 3, 4 and 7, and evidences of eq. 22: factor models of the exchange rates."""
    data = DATA / "exchange_rates.csv"
    known = data.exists()
    target = trj.problems.factor_analysis(pd.read_csv(data).to_numpy() if known else None)
    truth = torch.tensor(RATES, dtype=torch.float64)
    two = truth.softmax(0)[0].item() if known else None
    if known:
        target.truth = trj.problems.Truth(
            {"2 factors": two, "3 factors": 1 - two}, source="long runs"
        )
    pilot, pool = (tempered_draws(target, size.particles, generator) for _ in range(2))
    sampler = vi_sampler(target, trj.transport.RealNVP, seed)
    jumps = {
        name: made(name, target, pilot, generator, size.ours) for name in ("independence", *PILOT)
    } | {
        VI: theirs(target, trj.transport.RealNVP, 16, size.theirs, generator),
        "VI TRJ": trained(sampler, size.ours),
    }
    rows = []
    for name, (jump, seconds) in jumps.items():
        shares, *rates = running(target, jump, pool, size.running, generator)
        p = shares[:, 0]
        published = (0.875, 0.04) if name == VI else (None, None)
        what = f"chains of {size.running} steps"
        rows += [
            row("3", f"p(2), mean of {what}", name, published[0], p.mean(), two, seconds),
            row("3", f"p(2), sd of {what}", name, published[1], p.std(), seconds=seconds),
        ]
        rows += of_chains("3", name, rates)
        rows += of_bridges("4", name, target, jump, pool, size, generator)
    found = sampler.variational.models
    for i, label in enumerate(target.space.label(target.space.enumerate())):
        level = truth[i].item() if known else 0.0
        of_exact = " less the exact one, nats" if known else ", nats"
        for what, column in (("log evidence", "log_evidence"), ("bound of eq. 13", "elbo")):
            value = found.loc[label, column] - level
            rows.append(row("eq. 22", f"{what}, {label}{of_exact}", "VI TRJ", None, value))
    result = sampler.run(max_seconds=size.seconds, progress=False)
    table = result.model_probabilities(full=True)
    rows.append(row("3", "p(2)", "run()", None, table["combined"].iloc[0], two, size.seconds))
    return rows + by_depth(target, pool, size, generator, "7")


def robust(size: Size, generator: torch.Generator, seed: int) -> Rows:
    """Figures 5 and 9: scatter of Bartolucci's estimates, by map and size of the evaluation set."""
    data = DATA / "six_dim_rr.csv"
    known = data.exists()
    target = regression(data if known else None)
    pilot, pool = (tempered_draws(target, size.particles, generator) for _ in range(2))
    pilot = pilot.some(size.taught, generator)  # as theirs saw for the released figures
    labels = target.space.label(target.space.enumerate())
    jumps = {
        name: made(name, target, pilot, generator, size.ours)
        for name in ("switch", *PILOT, "spline CTP")
    } | {
        VI: theirs(target, trj.transport.RealNVP, 16, size.theirs, generator),
        "VI CTP, their settings": theirs(
            target, trj.transport.ConditionalRealNVP, 16, size.of_all, generator
        ),
        "VI TRJ": ours(target, trj.transport.RealNVP, size.ours, seed),
        "VI CTP": ours(target, trj.transport.ConditionalRealNVP, size.ours, seed),
    }
    released = {
        "affine TRJ": PAPERS["affine"],
        "spline TRJ": PAPERS["spline"],
        VI: PAPERS["VI-trained"],
    }
    rows = []
    for name, (jump, seconds) in jumps.items():
        published = dict(zip(labels, released.get(name, ()), strict=False)) if known else {}
        rows.append(row("5, 9", "seconds of training", name, None, seconds))
        rows += of_bridges("5, 9", name, target, jump, pool, size, generator, published)
        if name != "switch":  # which lives on a space of its own
            rows += of_chains("-", name, running(target, jump, pool, size.running, generator)[1:])
    return rows


def coal(size: Size, generator: torch.Generator, seed: int) -> Rows:
    """The change points of the authors' repository: 190 events, at most ten."""
    target = trj.problems.coal_mining(0, 10, days=DAYS[1:])
    begun = time.perf_counter()
    result = trj.TRJSampler(target, seed=seed).run(max_seconds=size.seconds, progress=False)
    seconds = time.perf_counter() - begun
    visits = result.model_probabilities(full=True)["visits"]
    return [row("released", "seconds, all in", "run()", 1129, seconds)] + [
        row("released", f"p(k = {k})", "run()", published, visits[f"k={k}"], exact, seconds)
        for k, (published, exact) in enumerate(zip(RELEASED, LATER, strict=True), 1)
    ]


def by_depth(
    target: trj.Target, pool: Pool, size: Size, generator: torch.Generator, figure: str
) -> Rows:
    """Jumps accepted through RealNVPs of several depths, reverse KL alone."""
    rows = []
    for layers in size.depths:
        make = on_itself(partial(trj.transport.RealNVP, layers=layers), f"{layers} couplings")
        begun = time.perf_counter()
        jump = make(target, None, generator, {"steps": size.ours})
        seconds = time.perf_counter() - begun
        accepted = running(target, jump, pool, size.running // 10, generator)[1]
        name = f"VI TRJ, {layers} couplings"
        rows.append(row(figure, "share of jumps accepted", name, None, accepted, seconds=seconds))
    return rows


def of_chains(
    figure: str, name: str, rates: Sequence[float], published: float | None = None
) -> Rows:
    """What :func:`running` counts beside shares."""
    accepted, ess = rates
    return [
        row(figure, "effective draws a step", name, published, ess),
        row(figure, "share of jumps accepted", name, None, accepted),
    ]


def of_bridges(
    figure: str,
    name: str,
    target: trj.Target,
    jump: Kernel,
    pool: Pool,
    size: Size,
    generator: torch.Generator,
    published: Mapping[str, float] | None = None,
) -> Rows:
    """Scatter and bias of Bartolucci's estimates, by model and size of the evaluation set.

    Arguments:
        published: Their scatter by model, of 500 draws a model.
    """
    rows = []
    exact = {} if target.truth is None else target.truth.probabilities
    for n in size.sets:
        found = repeated_bartolucci(target, jump, pool, n, size.repeats, generator)
        for i, label in enumerate(target.space.label(target.space.enumerate())):
            released = (published or {}).get(label) if n == 500 else None
            what = f"Bartolucci's p({label}), N = {n}"
            rows.append(row(figure, f"sd of {what}", name, released, found[:, i].std()))
            if label in exact:
                bias = found[:, i].mean() - exact[label]
                rows.append(row(figure, f"bias of {what}", name, None, bias, 0))
    return rows


def row(
    figure: str,
    measure: str,
    name: str,
    published: float | None,
    found: Any,
    exact: float | None = None,
    seconds: float | None = None,
) -> dict[str, Any]:
    """One line of the table."""
    return {
        "figure": figure,
        "measure": measure,
        "map": name,
        "theirs": published,
        "ours": float(found),
        "exact": exact,
        "training_s": seconds,
    }


def made(
    name: str, target: trj.Target, pool: Pool, generator: torch.Generator, steps: int
) -> tuple[Kernel, float]:
    """A classical jump, and the seconds that it took."""
    begun = time.perf_counter()
    return METHODS[name].make(
        target, pool, generator, {"steps": steps}
    ), time.perf_counter() - begun


def theirs(
    target: trj.Target, kind: Any, layers: int, steps: int, generator: torch.Generator
) -> tuple[Kernel, float]:
    """A jump through a map of theirs, trained as they do, and the seconds that it took."""
    begun = time.perf_counter()
    make = on_itself(partial(kind, layers=layers), f"{kind.__name__}, their settings")
    settings: Mapping[str, Any] = {**THEIRS, "steps": steps}
    return make(target, None, generator, settings), time.perf_counter() - begun


def ours(target: trj.Target, kind: Any, steps: int, seed: int) -> tuple[Kernel, float]:
    """A jump through the same kind of map by ``fit(by="vi")``, and its seconds without an audit."""
    return trained(vi_sampler(target, kind, seed), steps)


def vi_sampler(target: trj.Target, kind: Any, seed: int) -> trj.TRJSampler:
    """A sampler of as many couplings as the paper's."""
    return trj.TRJSampler(target, partial(kind, layers=16 if target.dim > 2 else 8), seed=seed)


def trained(sampler: trj.TRJSampler, steps: int) -> tuple[Kernel, float]:
    """A jump through a sampler's map once that is trained, and the seconds that it took."""
    begun = time.perf_counter()
    sampler.fit(by="vi", audit=False, steps=steps, progress=False)
    jump = Jump(sampler.target, sampler.transport, uniform_proposal(sampler.target))
    return jump, time.perf_counter() - begun


def running(
    target: trj.Target, jump: Kernel, pool: Pool, steps: int, generator: torch.Generator
) -> tuple[torch.Tensor, float, float]:
    """Chains from posterior draws that propose all models alike, the present one too.

    Returns:
        Shares of models by chain, shape (CHAINS, M); share of accepted jumps to another model;
        effective draws of the first model's indicator a step.
    """
    if hasattr(jump, "proposal"):
        jump = copy(jump)
        jump.proposal = Fixed(target.space)
    kernel = Cycle([jump, (RandomWalk(target), WALKS)])
    rows = torch.randint(len(pool.code), (CHAINS,), generator=generator)
    state = start(target, pool.code[rows], pool.theta[rows])
    seen = torch.empty(CHAINS, steps, dtype=torch.long)
    gone, accepted = 0, 0
    with torch.no_grad():
        for i in range(steps):
            before = target.space.index(state.code)
            state, (info, *_) = kernel.step(state, generator)
            seen[:, i] = target.space.index(state.code)
            gone += int((target.space.index(info.proposed.code) != before).sum())
            accepted += int((seen[:, i] != before).sum())
    shares = torch.stack([(seen == m).double().mean(1) for m in range(target.space.size)], 1)
    ess = float(arviz.ess((seen == 0).double().numpy())) / (CHAINS * steps)
    return shares, accepted / max(gone, 1), ess


PROBLEMS = {f.__name__: f for f in (toy, factors, robust, coal)}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.yin_jiao", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--problem", choices=PROBLEMS, required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    generator = torch.Generator().manual_seed(options.seed)
    rows = PROBLEMS[options.problem](QUICK if options.quick else Size(), generator, options.seed)
    print(pd.DataFrame(rows).to_string(index=False, float_format="{:.4g}".format, na_rep=""))


if __name__ == "__main__":
    main()
