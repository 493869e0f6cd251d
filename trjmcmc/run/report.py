"""From the draws of a run to evidences by every route, and to its result."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ..draws import Draws, Pool
from ..errors import TRJError
from ..estimate.estimate import Estimate
from ..estimate.importance import pareto_k
from ..estimate.precision import LEAST_DRAWS, progress_of
from ..estimate.routes import through_the_map
from ..pilot.report import by_audit
from ..result.indicator import MODELS_SHOWN
from ..result.report import RunReport, Started
from ..result.result import Result
from ..space.base import Space
from ..space.codes import distinct
from ..target.target import Target
from .knowledge import Knowledge
from .loop import Chains
from .segment import Segment

Routes = dict[str, dict[str, Estimate]]  # by route and model, log of p(model) times evidence


def routes_of(
    known: Knowledge, record: Draws, chain: Chains, *, weighs: bool, spare: float
) -> tuple[dict[str, Tensor], Routes]:
    """Evidences by every route that goes through the map.

    Arguments:
        known: What is known of the target.
        record: Draws.
        chain: The chains that they are of.
        weighs: Whether evidences go through the map; not those of a run that was interrupted.
        spare: Evaluations that the symmetrised bridge may take; none where they are limited.

    Returns:
        Log importance weights by model, and evidences by route.
    """
    target, space = known.target, known.target.space
    healthy = weighs and chain.error is None and chain.stopped != "interrupted"
    if healthy and not known.fitted.few and known.mapped:
        codes, _, counts = distinct(record.flat()[0])
        top = codes[counts.argsort(descending=True)[:MODELS_SHOWN]].to(target.device)
        known.weigh_visited(top)
    if not healthy or math.isfinite(known.spending.account.limit):
        spare = 0.0
    log_weights = known.log_weights if weighs else {}
    settings = target, known.map, record, log_weights, known.generator
    try:
        routes = through_the_map(*settings, evaluations=spare)
    except TRJError:  # a mirror image lay where the likelihood fails
        routes = through_the_map(*settings)
    if known.audit_report is not None:
        routes["audit"] = by_audit(space, known.audit_report)
    for route, found in known.told.items():
        routes[route] = {**found, **routes.get(route, {})}
    return log_weights, routes


def made_result(
    target: Target,
    draws: Draws,
    report: RunReport,
    routes: Routes,
    log_weights: Mapping[str, Tensor],
    crossings: tuple[Tensor, Tensor] | None = None,
) -> Result:
    """The result of a run, on the CPU.

    Arguments:
        target: The target.
        draws: What the chains kept.
        report: How the run went.
        routes, log_weights: Of :func:`routes_of`.
        crossings: As of :class:`~trjmcmc.Result`.
    """
    host = target.to(device="cpu", probe=False)
    code, theta = draws.flat()
    shape = (draws.n_chains, draws.n_draws)

    def values() -> dict[str, Tensor]:
        padded = host.padded_values(code, theta).items()
        return {name: value.reshape(*shape, *value.shape[1:]) for name, value in padded}

    return Result(
        copy.deepcopy(target.space).cpu(),
        draws,
        values,
        routes,
        report,
        target.truth,
        crossings=crossings,
        pareto_k={label: pareto_k(w) for label, w in log_weights.items()},
        target=host,
        slot_names=host.slot_names,
    )


def summed_up(
    known: Knowledge, chain: Chains, report: RunReport, *, weighs: bool, spare: float
) -> Result:
    """Weigh and bridge as far as there is time, then build the result.

    Arguments:
        known: What is known of the target.
        chain: The chains, and their draws.
        report: How the run went so far.
        weighs, spare: As of :func:`routes_of`.
    """
    record = chain.draws
    log_weights, routes = routes_of(known, record, chain, weighs=weighs, spare=spare)
    report = replace(  # weighing included
        report,
        audit=known.audit_report,
        evaluations=known.spending.evaluations,
        gradients=known.spending.gradients,
    )
    return made_result(known.target, record, report, routes, log_weights, chain.crossings)


def compared(space: Space, pool: Pool, record: Draws) -> Started:
    """Points that chains started at beside the draws that came of them."""

    def shares(code: Tensor) -> Tensor:
        if space.few:
            return torch.bincount(space.index(code), minlength=space.size or 0) / len(code)
        return space.items(code).double().mean(0)

    there, here = shares(pool.code.cpu()).double(), shares(record.flat()[0]).double()
    gap = float(record.log_joint.double().mean() - pool.log_joint.double().mean())
    if not len(there):
        return Started(len(pool.code), "nothing", 1.0, 1.0, gap)
    worst = int((there - here).abs().argmax())
    name = space.label(space.enumerate()[worst][None])[0] if space.few else space.names[worst]
    return Started(len(pool.code), name, float(there[worst]), float(here[worst]), gap)


def expected_error(found: Segment | None, record: Draws) -> float:
    """Largest standard error of a probability that a segment promises; infinite of none."""
    if found is None or not found.efficiency:
        return math.inf
    effective = found.efficiency * found.step / found.chains  # draws a step of a chain
    return 0.5 / math.sqrt(effective * record.n_draws * record.thin * record.n_chains)


def reached_error(space: Space, record: Draws) -> float:
    """Largest standard error of a probability by a record; infinite of too short a one."""
    if record.n_draws < LEAST_DRAWS:
        return math.inf
    return progress_of(space, record.code.transpose(0, 1)).error
