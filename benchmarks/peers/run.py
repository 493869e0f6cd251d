"""One row a sampler and problem: what it found, how long it took, how far off it is."""

import contextlib
import importlib
import io
import math
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

import trjmcmc as trj

from . import pulses
from .ensemble import WALKERS, WANTED, Ensemble, Row, eryn_coal, eryn_factors, of_shares, run_eryn
from .nested import PEERS, Counted, Evidence
from .problems import Data, Problem, factor_problem, modes_problem, robust_problem


class OutOfTime(BaseException):
    """The budget is spent; not an Exception, so that no package swallows it."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise OutOfTime in the block after so many seconds; on Unix, in the main thread."""

    def stop(*_: Any) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def our_evidence(problem: Problem, seed: int, fit: bool | str) -> Row:
    result = trj.TRJSampler(problem.target, seed=seed).run(fit=fit, progress=False)
    found = result.evidence(full=True).iloc[0]
    spent = ", ".join(f"{k} {v:.1f} s" for k, v in result.report.seconds.items())
    return {
        "value": float(found["combined"]),
        "claimed_error": float(found["combined_se"]),
        "calls": result.report.evaluations,
        "note": "; ".join(filter(None, [found["verdict"], found["note"], spent])),
    }


# p(model), by Eryn and BayesBay


def our_shares(target: trj.Target, budget: float, seed: int, whole: bool) -> Row:
    until = None if whole else {"probability": WANTED}
    sampler = trj.TRJSampler(target, seed=seed)
    result = sampler.run(until=until, max_seconds=budget, progress=False)
    found = result.model_probabilities(full=True)
    draws = result.raw.n_draws * result.raw.n_chains
    row = of_shares(dict(found["visits"]), found["visits_se"].to_numpy(), draws)
    best = found["combined_se"].max()
    combined = f", combined within {best:.4f}" if np.isfinite(best) else ""
    spent = ", ".join(f"{k} {v:.1f} s" for k, v in result.report.seconds.items())
    return row | {
        "calls": result.report.evaluations,
        "note": f"{result.raw.n_chains} chains, {result.report.steps} steps{combined}; {spent}",
    }


def coal_target(data: Data) -> trj.Target:
    return trj.problems.coal_mining(1, 6)


def factor_target(data: Data) -> trj.Target:
    target = trj.problems.factor_analysis(data.factor_matrix())
    if data.factor_truth is not None:
        p = torch.tensor(data.factor_truth, dtype=torch.float64).softmax(0).tolist()
        target.truth = trj.problems.Truth(dict(zip(["2 factors", "3 factors"], p, strict=True)))
    return target


GRACE = 1.2  # budgets after which a run is cut short; some stop by themselves at one
OURS, FITTED = "trjmcmc", "trjmcmc, fit"


@dataclass(frozen=True)
class Jumps:
    """A problem of p(model).

    Attributes:
        target: For us.
        peers: By name: the module it needs, and its run, given target, data, budget and seed.
        whole: Everyone spends the whole budget; else until the errors are small.
    """

    target: Callable[[Data], trj.Target]
    peers: dict[str, tuple[str, Callable[..., Row]]]
    whole: bool = False


def by_eryn(make: Callable[..., Ensemble], whole: bool = False) -> tuple[str, Callable[..., Row]]:
    def run(target: trj.Target, data: Data, budget: float, seed: int) -> Row:
        begun = time.perf_counter()
        np.random.seed(seed)  # noqa: NPY002 Eryn shuffles and draws by the global state
        return run_eryn(make(target, data, seed, WALKERS), budget, begun, whole)

    return "eryn", run


JUMPS = {
    "coal": Jumps(coal_target, {"Eryn": by_eryn(eryn_coal)}),
    "factors": Jumps(factor_target, {"Eryn": by_eryn(eryn_factors)}),
    "pulses": Jumps(
        pulses.pulses_target,
        {
            "Eryn": by_eryn(pulses.eryn_tuned, whole=True),
            "Eryn, tutorial": by_eryn(pulses.eryn_tutorial, whole=True),
            "BayesBay": ("bayesbay", pulses.run_bayesbay),
        },
        whole=True,
    ),
}
EVIDENCES: dict[str, Callable[[Data], Problem]] = {
    "evidence-factors": factor_problem,
    "evidence-robust": robust_problem,
    "evidence-modes": modes_problem,
}
CASES = [*JUMPS, *EVIDENCES]
COLUMNS = ("seconds", "calls", "value", "claimed_error", "error", "ess_per_s")


def missing(module: str) -> str | None:
    """How to install a package that is not there."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        return f"not there ({error}): pip install '.[peers]'"
    return None


def guarded(run: Callable[[], Row], budget: float) -> Row:
    """A run that neither its failure nor its length keeps from the next one."""
    begun, cpu = time.perf_counter(), time.process_time()
    try:
        with (
            limited(GRACE * budget),
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            row = run()
    except OutOfTime:
        row = {"note": f"stopped at {time.perf_counter() - begun:.0f} s"}
    except Exception as error:  # whatever goes wrong in one must not lose the others
        row = {"note": f"failed: {type(error).__name__}: {error}"}
    seconds = time.process_time() - cpu
    row |= {"seconds": seconds, "wall": time.perf_counter() - begun}
    if "ess" in row:
        row["ess_per_s"] = row["ess"] / seconds
    if math.isfinite(error := row.get("claimed_error", math.nan)):
        row["seconds_to_01"] = seconds * max(1.0, (error / WANTED) ** 2)
    return row


def rows(
    case: str,
    *,
    samplers: list[str] | None = None,
    data: Data | None = None,
    budget: float = 300.0,
    quick: bool = False,
    seed: int = 0,
) -> list[Row]:
    """One row a sampler: what it found, how long it took, and how far off it is."""
    data = data or Data()
    if case in JUMPS:
        found = _jump_rows(case, samplers, data, budget, seed)
    else:
        found = _evidence_rows(case, samplers, data, budget, quick, seed)
    start = {"case": case, "seed": seed}
    blank = dict.fromkeys(COLUMNS, math.nan) | {"note": ""}
    return [{**start, "sampler": name, **blank, **row} for name, row in found]


def _jump_rows(
    case: str, samplers: list[str] | None, data: Data, budget: float, seed: int
) -> list[tuple[str, Row]]:
    problem = JUMPS[case]
    target = problem.target(data)
    found = []
    if wanted(OURS, samplers):
        row = guarded(lambda: our_shares(target, budget, seed, problem.whole), budget)
        found.append((OURS, row))
    if not hasattr(np, "in1d"):
        np.in1d = np.isin  # noqa: NPY201 Eryn 1.2.6 calls what NumPy 2.4 dropped
    for name, (module, run) in problem.peers.items():
        if not wanted(name, samplers):
            continue

        def peer(run: Callable[..., Row] = run) -> Row:
            return run(target, data, budget, seed)

        gone = missing(module)
        found.append((name, {"note": gone} if gone else guarded(peer, budget)))
    for _, row in found:
        known = target.truth.probabilities if target.truth is not None else {}
        if (share := row.get("shares")) and known:
            row["error"] = max(abs(share.get(m, 0.0) - p) for m, p in known.items())
    return found


def _evidence_rows(
    case: str, samplers: list[str] | None, data: Data, budget: float, quick: bool, seed: int
) -> list[tuple[str, Row]]:
    problem = EVIDENCES[case](data)
    problem.check()
    found = []
    for name, fit in ((OURS, "auto"), (FITTED, True)):
        if wanted(name, samplers) and not (quick and fit is True):

            def ours(fit: bool | str = fit) -> Row:
                return our_evidence(problem, seed, fit)

            found.append((name, guarded(ours, budget)))
    for name, (module, run) in PEERS.items():
        if not wanted(name, samplers):
            continue
        if gone := missing(module):
            found.append((name, {"note": gone}))
            continue
        likelihood = Counted(problem.log_likelihood)

        def peer(run: Callable[..., Evidence] = run, likelihood: Counted = likelihood) -> Row:
            value, error = run(problem, likelihood, seed, quick)
            return {"value": float(value), "claimed_error": float(error)}

        row = guarded(peer, budget)
        found.append((name, row | {"calls": likelihood.calls}))
    for _, row in found:
        row["error"] = abs(row.get("value", math.nan) - problem.truth)
    return found


def wanted(name: str, samplers: list[str] | None) -> bool:
    return samplers is None or name in samplers


def with_ratios(found: list[Row]) -> pd.DataFrame:
    """Rows as a table, with `cost` and `calls` over ours of the same case and seed."""
    frame = pd.DataFrame(found)
    worst = frame[["claimed_error", "error"]].max(axis=1)
    frame["cost"] = worst * frame["seconds"] ** 0.5
    ours = frame[frame["sampler"] == OURS].set_index(["case", "seed"])
    index = pd.MultiIndex.from_frame(frame[["case", "seed"]])
    frame["cost"] /= ours["cost"].reindex(index).to_numpy()
    frame["calls_ratio"] = frame["calls"] / ours["calls"].reindex(index).to_numpy()
    return frame
