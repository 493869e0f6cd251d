"""Are answers right on data from a problem's own prior, and are right models called wrong?

``--case coal`` and its like make truths from the prior of a problem, data from these, and a run on
the data: the truth's rank among the draws must be uniform, and models must be true as often as
their probabilities say. ``--case right`` validates small right models, drawn at random, many
times: nothing may be called wrong. Their posteriors are drawn by resampling from the prior, so that
only the tests themselves are at stake.

    python -m benchmarks.validation                              # 200 repeats a case: hours
    python -m benchmarks.validation --case coal --repeats 50 --seconds 2 --folder output/validation
    python -m benchmarks.validation --case right --repeats 100
"""

import argparse
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Gamma, Normal, Poisson, Uniform

import trjmcmc as trj
from trjmcmc import clock, graphs
from trjmcmc.draws import Draws
from trjmcmc.kernel import start
from trjmcmc.problems.coal_mining import LENGTH
from trjmcmc.validation.repeat import Setup
from trjmcmc.validation.repeats import SavedRepeats, finished, spec_of
from trjmcmc.validation.validate import judge

NOISE = 0.1  # variance, of graphs
ROWS, NODES = 20, 4
COLUMNS = 4  # of the selection
POINTS, MOST = 200, 3  # of the pulses


def coal_events(model: str, params: dict[str, Tensor], generator: torch.Generator) -> list[Tensor]:
    """Days of events at a rate that steps, one row of parameters after the other."""
    found = []
    for spacing, height in zip(params["spacing"], params["height"], strict=True):
        length = LENGTH * spacing
        begin = length.cumsum(0) - length
        counts = Poisson(height * length).sample().long()
        times = [
            b + size * torch.rand(int(n), generator=generator)
            for b, size, n in zip(begin, length, counts, strict=True)
        ]
        found.append(torch.cat(times).clamp(1e-3, LENGTH - 1e-3))
    return found


def selection() -> tuple[trj.Target, Callable[..., Any], Callable[..., Any]]:
    """Columns of a regression, of which each is in with probability one half."""
    x = torch.randn(30, COLUMNS, generator=torch.Generator().manual_seed(1)).double()

    def simulate(active: Tensor, params: dict[str, Tensor], generator: torch.Generator) -> Tensor:
        mean = params["beta"].double() @ x.T
        return mean + torch.randn(mean.shape, generator=generator, dtype=torch.float64)

    def make(y: Tensor) -> trj.Target:
        return trj.problems.conjugate_selection(x=x, y=y)

    return make(torch.zeros(30)), simulate, make


def pulses() -> tuple[trj.Target, Callable[..., Any], Callable[..., Any]]:
    """Pulses in white noise, up to three."""
    t = torch.linspace(-1.0, 1.0, POINTS)

    def simulate(active: Tensor, params: dict[str, Tensor], generator: torch.Generator) -> Tensor:
        width = torch.where(active, params["width"], 1.0)[..., None]
        z = (t - params["centre"][..., None]) / width
        mean = (params["amplitude"][..., None] * torch.exp(-0.5 * z * z)).sum(1)
        return mean + 2.0 * torch.randn(mean.shape, generator=generator)

    def make(y: Tensor) -> trj.Target:
        return trj.problems.pulses(y=y, t=t, most=MOST)

    return make(torch.zeros(POINTS)), simulate, make


def network() -> tuple[trj.Target, Callable[..., Any], Callable[..., Any]]:
    """Linear equations over acyclic graphs of four nodes."""
    child, parent = zip(
        *((j, i) for j in range(NODES) for i in range(NODES) if i != j), strict=True
    )

    def simulate(active: Tensor, params: dict[str, Tensor], generator: torch.Generator) -> Tensor:
        n = len(active)
        weights = torch.zeros(n, NODES, NODES)
        weights[:, list(parent), list(child)] = torch.where(active, params["w"].reshape(n, -1), 0.0)
        noise = NOISE**0.5 * torch.randn(n, ROWS, NODES, generator=generator)
        return noise @ torch.linalg.inv(torch.eye(NODES) - weights)

    def make(x: Tensor) -> trj.Target:
        return graphs.network(x, noise=NOISE)

    rows = torch.randn(ROWS, NODES, generator=torch.Generator().manual_seed(1))
    return make(rows), simulate, make


CASES: dict[str, Callable[[], tuple[trj.Target, Callable[..., Any], Callable[..., Any]]]] = {
    "coal": lambda: (
        trj.problems.coal_mining(),
        coal_events,
        lambda days: trj.problems.coal_mining(days=days),
    ),
    "selection": selection,
    "pulses": pulses,
    "graphs": network,
}


class Resampler:
    """Independent posterior draws of a small target, by resampling draws of its prior."""

    def __init__(self, target: trj.Target, *, seed: int) -> None:
        self.target, self.generator = target, torch.Generator().manual_seed(seed)

    def run(self, **_: Any) -> Any:
        target, g = self.target, self.generator
        code = target.space.sample_prior(40_000, g)
        theta = target.sample_prior(code, g)
        weight = target.log_prior_and_likelihood(code, theta)[1].double().softmax(0)
        pick = torch.multinomial(weight, 200, True, generator=g)
        state = start(target, code[pick], theta[pick])
        return SimpleNamespace(raw=Draws(*(x[:, None] for x in state[:3])))


def right(seed: int) -> trj.Target:
    """Two models of numbers in noise: of random size, with random priors."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 13))
    x = torch.tensor(rng.normal(size=n), dtype=torch.float32)
    level, spread = float(rng.normal()), float(rng.uniform(0.5, 2.0))

    def flat(p: dict[str, Tensor]) -> Normal:
        return Normal(p["mu"][:, None].expand(-1, n), p["sigma"][:, None])

    def line(p: dict[str, Tensor]) -> Normal:
        return Normal(p["mu"][:, None] + p["slope"][:, None] * x, p["sigma"][:, None])

    scale = Gamma(20.0, 20.0) if rng.random() < 0.5 else Uniform(0.5, 1.5)
    priors = {"mu": Normal(level, spread), "sigma": scale}
    more = {**priors, "slope": Normal(0.0, spread)}
    y = torch.tensor(rng.normal(level, 1.0, size=n), dtype=torch.float32)
    models = [
        trj.Model("flat", priors, trj.Observed(flat, y)),
        trj.Model("line", more, trj.Observed(line, y)),
    ]
    share = float(rng.uniform(0.2, 0.8))
    return trj.Target(models, model_prior=[share, 1 - share])


def right_models(validations: int, repeats: int) -> None:
    """Validate right models with a seed each, and say how many were called wrong."""
    verdicts = {"fine": 0, "doubtful": 0, "wrong": 0}
    for seed in range(validations):
        report = trj.validate(
            right(seed), sampler=Resampler, repeats=repeats, seed=seed, progress=False
        )
        verdict = "wrong" if report.wrong else "doubtful" if report.doubtful else "fine"
        verdicts[verdict] += 1
        if verdict != "fine":
            said = [d.words for d in [*report.wrong, *report.doubtful]]
            print(f"seed {seed}: {said}", flush=True)
        spent = time.process_time()
        print(f"{seed + 1} validations: {verdicts}, {spent:.0f} s of processor", flush=True)


def of_package(case: str, options: argparse.Namespace) -> trj.validation.Validation:
    """Ranks and probabilities alone: the likelihoods are the package's own."""
    target, simulate, make = CASES[case]()
    given = Setup(target, make, simulate, {"max_seconds": options.seconds})
    kept = SavedRepeats(None if options.folder is None else options.folder / case, spec_of(given))
    with clock.read_from(time.process_time):  # others may use the machine
        end = clock.now() + (options.most_seconds or math.inf)
        left = [r for r in range(options.repeats) if r not in kept.found]
        for row in finished(given, left, None, lambda: clock.now() > end):
            kept.add(row)
    kept.close()
    rows = [kept.found[r] for r in sorted(kept.found)]
    return judge([], rows, options.repeats, 0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", choices=[*CASES, "right"], action="append")
    parser.add_argument("--repeats", type=int, default=200, help="of a case; models of `right`")
    parser.add_argument("--seconds", type=float, default=3.0, help="of processor, of each run")
    parser.add_argument("--most-seconds", type=float, help="of processor, of each case")
    parser.add_argument("--truths", type=int, default=100, help="of each validation of `right`")
    parser.add_argument("--folder", type=Path, help="where finished repeats are kept")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore", trj.errors.TRJWarning)
    for case in options.case or [*CASES, "right"]:
        if case == "right":
            right_models(options.repeats, options.truths)
            continue
        report = of_package(case, options)
        print(f"\n{case}: {report}\n{report.rank_table().round(3).to_string()}")
        if report.calibration is not None:
            print(report.calibration.table().round(3).to_string(), flush=True)


if __name__ == "__main__":
    main()
