"""Several runs of one target as one result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..doubts.of_chains import Judged
from ..draws import Draws
from ..errors import ConfigurationError
from ..estimate.between import ALPHA
from ..estimate.estimate import Estimate
from ..target.target import Target
from .files import Contents
from .report import RunReport

Routes = dict[str, dict[str, Estimate]]

COMPARED = 8  # draws of each run at which a target that is known is asked again

LIKE = 1e-4  # relative difference of log joint densities that rounding may make

EXACT = 1e-6  # nats, and share of the largest error, below which an error counts as that

SHARED = 0.5  # share of last draws found in another run from which both are one run


def merged(found: Sequence[Contents], targets: Sequence[Target | None]) -> Contents:
    """What several results are made of, as one; see :func:`trjmcmc.merge`.

    Arguments:
        found: Contents of the results.
        targets: Their targets, on the CPU, where these are known.

    Raises:
        ConfigurationError: They do not belong together.
    """
    check_alike(found, targets)
    first, draws = found[0], [c.draws for c in found]
    thin = math.lcm(*(d.thin for d in draws))
    n = min(d.n_draws // (thin // d.thin) for d in draws)
    rows = [_rows(d, thin, n) for d in draws]
    coarse: dict[str, str] = {}
    for c in found:
        coarse = {**(c.coarse or {}), **coarse}
    told = any(c.coarse is not None for c in found)
    crossings = [c.crossings for c in found if c.crossings is not None]
    return Contents(
        space=first.space,
        draws=_draws(draws, rows, thin),
        values={
            name: torch.cat([c.values[name][:, r] for c, r in zip(found, rows, strict=True)])
            for name in first.values
        },
        routes=_routes([c.routes for c in found]),
        report=_report([c.report for c in found], thin * n),
        truth=first.truth,
        crossings=(
            (torch.cat([x for x, _ in crossings]), torch.cat([x for _, x in crossings]))
            if len(crossings) == len(found)
            else None
        ),
        pareto_k=reduce(_largest, (c.pareto_k for c in found), {}),
        slot_names=first.slot_names,
        coarse=coarse if told else None,
        turns=first.turns,
    )


# ---- what belongs together ----------------------------------------------------------------------


def check_alike(found: Sequence[Contents], targets: Sequence[Target | None]) -> None:
    """Refuse results of different targets, and one run given twice.

    Raises:
        ConfigurationError: What differs is named.
    """
    first, spec = found[0], str(found[0].space.spec())
    for i, other in enumerate(found[1:], 1):
        pairs = {
            "precisions": (str(first.draws.theta.dtype), str(other.draws.theta.dtype)),
            "spaces of models": (spec, str(other.space.spec())),
            "coordinates": (list(first.slot_names), list(other.slot_names)),
            "parameters": (sorted(first.values), sorted(other.values)),
        }
        for what, (a, b) in pairs.items():
            if a != b:
                raise ConfigurationError(
                    f"merge: results 0 and {i} have different {what}: {_short(a)} and {_short(b)}"
                )
    known = next(((i, t) for i, t in enumerate(targets) if t is not None), None)
    for i, other in enumerate(found):
        if known is not None and i != known[0]:
            _check_target(known[1], known[0], other.draws, i)
    if (pair := _overlap([c.draws for c in found])) is not None:
        i, j = pair
        raise ConfigurationError(
            f"merge: results {i} and {j} hold the same draws, of seeds "
            f"{found[i].report.seed} and {found[j].report.seed}: runs to merge have seeds of "
            "their own, and none goes on with another"
        )


def _check_target(target: Target, of: int, draws: Draws, other: int) -> None:
    """Refuse draws whose log joint density another target does not confirm."""
    if target.dtype != draws.theta.dtype:
        return
    some = torch.arange(draws.n_chains)[:: max(1, draws.n_chains // COMPARED)]
    code, theta = draws.code[some, -1], draws.theta[some, -1]
    with torch.no_grad():
        there = target.log_joint(code, theta).double()
    here = draws.log_joint[some, -1].double()
    gap = (there - here).abs() / (1 + here.abs())
    if not bool((gap < LIKE).all()):
        raise ConfigurationError(
            f"merge: results {of} and {other} have different priors or likelihoods: at a draw of "
            f"result {other}, log joint {float(here[gap.argmax()]):.6g}, the target of result {of} "
            f"gives {float(there[gap.argmax()]):.6g}"
        )


def _overlap(draws: Sequence[Draws]) -> tuple[int, int] | None:
    """Two records of which most chains of one end in points that the other holds, or None."""
    weight = torch.linspace(1.0, 2.0, draws[0].theta.shape[2], dtype=torch.float64).sqrt()
    ends = [d.theta[:, -1].double() @ weight for d in draws]
    ends = [e[e != 0] for e in ends]  # models without parameters tell nothing
    number = torch.tensor([len(e) for e in ends])
    owner = torch.arange(len(draws)).repeat_interleave(number)
    every, place = torch.cat(ends).unique(return_inverse=True)
    if not len(every):
        return None
    for j, d in enumerate(draws):
        points = (d.theta.double() @ weight).flatten()
        near = torch.searchsorted(every, points).clamp(max=len(every) - 1)
        held = torch.zeros(len(every), dtype=torch.float64)
        held[near[every[near] == points]] = 1.0
        shared = torch.bincount(owner, held[place], len(draws)) / number.clamp(min=1)
        shared[j] = 0.0
        if float(shared.max()) > SHARED:
            i = int(shared.argmax())
            return min(i, j), max(i, j)
    return None


def _short(x: object) -> str:
    words = str(x)
    return words if len(words) < 80 else words[:77] + "..."


# ---- draws --------------------------------------------------------------------------------------


def _rows(draws: Draws, thin: int, n: int) -> Tensor:
    """The last of its draws, every so many steps, (n,)."""
    every = thin // draws.thin
    return torch.arange(every - 1, draws.n_draws, every)[-n:]


def _draws(draws: Sequence[Draws], rows: Sequence[Tensor], thin: int) -> Draws:
    whole = list(zip(draws, rows, strict=True))
    runs = [torch.zeros(d.n_chains, dtype=torch.long) if d.run is None else d.run for d in draws]
    return Draws(
        torch.cat([d.code[:, r] for d, r in whole]),
        torch.cat([d.theta[:, r] for d, r in whole]),
        torch.cat([d.log_joint[:, r] for d, r in whole]),
        thin,
        _told_apart(runs),
    )


def _told_apart(numbers: Sequence[Tensor]) -> Tensor:
    """Numbers of several runs, so that none has one of another's."""
    found, used = [], 0
    for mine in numbers:
        values, place = mine.unique(return_inverse=True)
        found.append(place + used)
        used += len(values)
    return torch.cat(found)


# ---- evidences ----------------------------------------------------------------------------------


def _routes(routes: Sequence[Mapping[str, Mapping[str, Estimate]]]) -> Routes:
    """Log masses by route and model, those of independent runs weighted by their errors."""
    names = dict.fromkeys(name for found in routes for name in found)
    found: Routes = {}
    for name in names:
        labels = dict.fromkeys(m for r in routes for m in r.get(name, {}))
        by_run = {m: [r[name][m] for r in routes if m in r.get(name, {})] for m in labels}
        found[name] = {m: pooled(each, _shares_map(routes, m)) for m, each in by_run.items()}
    return found


def _shares_map(routes: Sequence[Mapping[str, Mapping[str, Estimate]]], label: str) -> bool:
    """Whether the runs weighed a model by the same draws of one map."""
    known = [r["importance"][label] for r in routes if label in r.get("importance", {})]
    return len({(e.value, e.std_error) for e in known}) < len(known)


def pooled(each: Sequence[Estimate], related: bool = False) -> Estimate:
    """One estimate of several runs' estimates of a number.

    Weighted by their errors; the error grows with what the runs differ by beyond these (Birge's
    ratio), and a difference that chance does not explain is flagged.

    Arguments:
        each: Estimates.
        related: Whether they rest on common draws, so that their error is that of one.

    Example:
        >>> pooled([Estimate(1.0, 0.1), Estimate(1.1, 0.1)]).std_error.__round__(3)
        0.071
        >>> pooled([Estimate(1.0, 0.1), Estimate(3.0, 0.1)]).warning
        'runs disagree: 1 to 3'
    """
    usable = [e for e in each if math.isfinite(e.value) and math.isfinite(e.std_error)]
    if len(usable) < 2:
        return replace(usable[0] if usable else each[0], batches=())
    sound = [e for e in usable if not e.warning] or usable  # those that the value is taken from
    value, weight = _weighted(sound)
    variance = max(e.std_error for e in sound) ** 2 if related else 1 / float(weight.sum())
    everywhere, weights = _weighted(usable)
    gaps = np.array([e.value for e in usable]) - everywhere
    square, degrees = float((weights * gaps**2).sum()), len(usable) - 1
    error = math.sqrt(variance * max(1.0, square / degrees))
    warning = sound[0].warning
    if scipy.stats.chi2.sf(square, degrees) < ALPHA:
        low, high = min(e.value for e in usable), max(e.value for e in usable)
        warning = f"runs disagree: {low:.4g} to {high:.4g}"
        error = max(error, float(np.abs(gaps).max()))
    return Estimate(value, error, sum(e.ess for e in sound), warning)


def _weighted(each: Sequence[Estimate]) -> tuple[float, NDArray[np.float64]]:
    """Mean weighted by errors, and the weights; exact numbers weigh much, but not all."""
    error = np.array([e.std_error for e in each])
    weight = 1 / np.fmax(error, max(EXACT * float(error.max()), EXACT)) ** 2
    return float(np.average([e.value for e in each], weights=weight)), weight


def _largest(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
    return {m: max(a.get(m, -math.inf), b.get(m, -math.inf)) for m in {**a, **b}}


# ---- reports ------------------------------------------------------------------------------------


def _report(reports: Sequence[RunReport], steps: int) -> RunReport:
    """How the runs went, all together."""
    first = reports[0]

    def told(name: str) -> str:
        return "; ".join(dict.fromkeys(x for r in reports if (x := getattr(r, name))))

    seconds: dict[str, float] = {}
    for r in reports:
        for stage, s in r.seconds.items():
            seconds[stage] = seconds.get(stage, 0.0) + s
    return replace(
        first,
        acceptance=_acceptance([r.acceptance for r in reports]),
        seconds=seconds,
        steps=steps,
        interrupted=any(r.interrupted for r in reports),
        overflows=sum(r.overflows for r in reports),
        budget_spent=any(r.budget_spent for r in reports),
        evaluations=sum(r.evaluations for r in reports),
        gradients=sum(r.gradients for r in reports),
        audit=next((r.audit for r in reports if r.audit is not None), None),
        out_of_time=any(r.out_of_time for r in reports),
        missed="",  # of each alone; that of all together is not known
        precision=told("precision"),
        rounding=told("rounding"),
        unresolved=told("unresolved"),
        draws_asked=None,
        judged=_judged([r.judged for r in reports]),
        unaudited=any(r.unaudited for r in reports),
    )


def _judged(each: Sequence[Judged | None]) -> Judged | None:
    """How the runs stand by their rule, by the worst of them; None where one has none."""
    known = [j for j in each if j is not None]
    if len(known) < len(each):
        return None
    worst = max(known, key=lambda j: (bool(j.doubt), not j.short, j.off))
    detection = min(j.detection for j in known)
    return replace(worst, tau=max(j.tau for j in known), detection=detection)


def _acceptance(tables: Sequence[Mapping[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Acceptance rates, weighted by what was proposed."""
    found: dict[str, dict[str, float]] = {}
    for name in dict.fromkeys(n for t in tables for n in t):
        rows = [t[name] for t in tables if name in t]
        weight = [r["proposals"] for r in rows]
        found[name] = {"proposals": sum(weight)}
        for where in ("within", "between"):
            pairs = [(r[where], w) for r, w in zip(rows, weight, strict=True) if r[where] >= 0]
            total = sum(w for _, w in pairs)
            found[name][where] = sum(x * w for x, w in pairs) / total if total else math.nan
    return found
