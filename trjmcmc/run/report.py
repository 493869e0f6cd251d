"""From a look at the draws of a run to evidences by every route, and to its result."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import torch
from torch import Tensor

from ..doubts.of_chains import Judged
from ..draws import Draws, Pool
from ..errors import TRJError
from ..estimate.estimate import Estimate
from ..estimate.importance import pareto_k
from ..estimate.indicator import MODELS_SHOWN
from ..estimate.routes import by_weights, through_the_map
from ..pilot.report import by_audit
from ..result.report import KernelPlan, RunReport, Started
from ..result.result import Result
from ..space.base import Space
from ..space.codes import distinct
from ..transport.base import Transport
from .knowledge import Knowledge
from .recipes.base import route_of
from .shards import numbers_of
from .summary import DISAGREE, Aims, Run, apart

IMPOSSIBLE = "no draw has a finite likelihood"

LEAST_DRAWS = 50  # of a model that is weighed through normals fitted to them

Routes = dict[str, dict[str, Estimate]]  # by route and model, log of p(model) times evidence


def result_of(
    run: Run,
    known: Knowledge,
    *,
    seed: int,
    aims: Aims | None,
    asked: int | None,
    cut: bool,
    budget_spent: bool,
) -> Result:
    """The result of a run, on the CPU.

    Arguments:
        run: The last look, and of its draws those that are shown.
        known: What is known of the target beside it.
        seed: The sampler's.
        aims: What it was asked for, or None.
        asked: Draws that it was asked for, or None.
        cut: Whether Ctrl-C has ended its training.
        budget_spent: Whether its evaluations are.
    """
    recipe, draws, limit = run.recipe, run.draws, run.recipe.limit
    late = limit.passed  # before models are weighed, which takes its time
    points, grid = recipe.stated.points, recipe.stated.grid
    if grid is not None and run.in_shards:
        draws = replace(draws, run=numbers_of(grid.shards, draws.n_chains))
    log_weights, routes = weighed(run) if known.strategy.weighs else ({}, {})
    if known.audit_report is not None:
        routes["audit"] = by_audit(recipe.target.space, known.audit_report)
    missed = [] if aims is None or aims.rule is not None else aims.missed(run)
    report = RunReport(
        seconds={**known.fitted.seconds, **known.spending.seconds},
        steps=draws.n_draws * draws.thin,
        seed=seed,
        interrupted=limit.pressed or cut,
        budget_spent=budget_spent,
        overflows=run.overflows,
        **known.spending.made,
        plan=KernelPlan(weights=dict(run.shares), settings=run.settings),
        acceptance=run.acceptance,
        unaudited=bool(log_weights) and weighed_by_map(run) and known.unaudited,
        draws_asked=asked,
        start=None if points is None else compared(recipe.host, points, draws),
        out_of_time=late and not (limit.pressed or budget_spent),
        missed="; ".join(missed),
        fit=known.trace if "fit" in known.fitted.seconds else None,
        audit=known.audit_report,
        precision=recipe.why,
        rounding=run.unresolved.rounding,
        unresolved=run.unresolved.coarse,
        judged=judged(run),
        variational=known.variational_answer(draws),
    )
    host = recipe.target.to(device="cpu", probe=False)
    code, theta = draws.flat()

    def values() -> dict[str, Tensor]:
        padded = host.padded_values(code, theta).items()
        return {name: x.reshape(*draws.code.shape[:2], *x.shape[1:]) for name, x in padded}

    return Result(
        copy.deepcopy(recipe.target.space).cpu(),
        draws,
        values,
        routes,
        report,
        recipe.target.truth,
        crossings=run.crossings,
        pareto_k={label: pareto_k(w) for label, w in log_weights.items()},
        target=host,
        slot_names=host.slot_names,
    )


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


def judged(run: Run) -> Judged:
    """How a run stands by its rule, and how far off means may be while it does not meet it.

    By the spread of groups; and by what is left of starts that are off by a standard deviation
    and are forgotten at the rate of tau, in a record whose burn-in was a third of its length.
    """
    tau, detection = run.mixing.tau, run.detection
    if run.known.incomplete:
        labels = run.recipe.target.space.label(run.recipe.codes)
        some = [labels[run.recipe.with_places[i]] for i in run.known.incomplete]
        words = f"the search kept finding lost modes of {', '.join(map(repr, some))}"
        return Judged(words, math.nan, tau, detection)
    if run.doubt in {"", DISAGREE}:  # the routes say themselves that they do
        return Judged("", 0.0, tau, detection)
    route = run.route
    if route is not None and route.by_proposals and bool((route.error < 1).all()):
        return Judged(run.doubt, 0.0, tau, detection)  # nothing rests on chains
    variance = run.visits * (1 - run.visits)
    telling = variance > run.recipe.plan.variance
    off = (run.groups_error[telling] / variance[telling].sqrt()).tolist()
    if not run.short:
        times = run.draws.n_draws * run.draws.thin / tau
        off.append(math.exp(-times / 3) / times)
    return Judged(run.doubt, max(off, default=0.0), tau, detection, run.short)


def weighed_by_map(run: Run) -> bool:
    """Whether models are weighed through a map that was trained or given."""
    recipe = run.recipe
    closest = run.moves.weighing is recipe.trained or recipe.stated.kernel is not None
    return recipe.trained is not None and closest


def weighed(run: Run) -> tuple[dict[str, Tensor], Routes]:
    """Importance weights and evidences by every route through normals.

    None of a run whose first lesson was cut short, unless groups and importance weights agree.
    Where the rule took no such route: once chains have mixed, of models that have draws, and only
    where visits agree with the weights that have an error.
    """
    recipe, target, route = run.recipe, run.recipe.target, run.route
    generator = recipe.generator.clone_state()  # chains go on as if nobody had looked
    if recipe.trained is not None and not target.space.few:
        return _most_visited(run, recipe.trained, generator)
    if route is not None and route.by_proposals:
        labels = target.space.label(recipe.codes)
        weights = dict(zip(labels, route.log_weights, strict=True))
        return weights, _where_possible(by_weights(weights, target.dtype))
    cut = run.position is None and not run.short  # in a first lesson: normals are the groups' own
    unmet = (route is None and run.doubt) or run.known.poor or cut
    through = None if unmet else recipe.normals(run.known, run.moves, generator)
    if through is None:  # many models have none
        return {}, {}
    codes = target.space.enumerate() if route is None else recipe.codes
    if route is None:
        drawn = target.space.index(run.known.draws.code).bincount(minlength=len(codes))
        rows = (drawn >= LEAST_DRAWS).nonzero()[:, 0].cpu()
        try:
            route = recipe.route(through, codes[rows], generator) if len(rows) else None
        except TRJError:  # what rests on visits needs none
            route = None
        if route is None or not bool((sound := route.log_mass_error.isfinite()).any()):
            return {}, {}
        checked, some = route_of([route.log_weights[i] for i in sound.nonzero()[:, 0]]), rows[sound]
        place = recipe.host.index(run.draws.code.flatten(0, 1)).view(run.draws.code.shape[:2])
        inside = torch.nn.functional.one_hot(place, len(codes)).double()[..., some]
        share, error = inside.mean((0, 1)), inside.mean(1).std(0) / run.draws.n_chains**0.5
        if not apart(share / share.sum(), error / share.sum(), checked) <= recipe.plan.agree:
            return {}, {}  # none of the draws is in them, or normals do not reach all
        codes = codes[rows]  # weights of some may have no error; a bridge may have one
    weights = dict(zip(target.space.label(codes), route.log_weights, strict=True))
    return weights, through_the_map(target, through, run.draws, weights, generator)


def _where_possible(routes: Routes) -> Routes:
    """The same, without errors of models that no draw of many proposals has found possible."""
    return {
        route: {
            m: replace(e, std_error=0.0, warning=IMPOSSIBLE) if e.value == -math.inf else e
            for m, e in each.items()
        }
        for route, each in routes.items()
    }


def _most_visited(
    run: Run, through: Transport, generator: torch.Generator
) -> tuple[dict[str, Tensor], Routes]:
    """The same of the models of many that chains visit most, through a map, as far as it goes."""
    recipe, target = run.recipe, run.recipe.target
    codes, _, counts = distinct(run.draws.flat()[0])
    codes = codes[counts.argsort(descending=True)[:MODELS_SHOWN]].to(target.device)
    try:
        route = recipe.route(through, codes, generator)
    except TRJError:  # the draws are worth more than their weights
        return {}, {}
    weights = dict(zip(target.space.label(codes), route.log_weights, strict=True))
    return weights, through_the_map(target, through, run.draws, weights, generator)
