"""What a run is asked for, what a record of its chains says of that, and whether that is enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checks import meant
from ..doubts.convergence import worst_rhat
from ..draws import Draws, odd
from ..errors import ConfigurationError
from ..estimate.mixing import Mixing, mixing
from ..estimate.visits import rule_of_three
from ..promises import DONE_ERROR, MODELS_ONE_BY_ONE
from ..space.base import Space
from .numbers import Unresolved
from .plan import Plan
from .position import Position
from .recipes.base import LEAST_CHAINS, Known, Moves, Recipe, Route

JUDGED_CHAINS, JUDGED_DRAWS = 256, 96  # that a look takes: all groups are among these chains

LONG = 4  # times the draws that are asked for, from which tau counts as settled

NOISE = 5.0  # relative errors of tau, by so many chains, up to which it may seem to grow

MET = 3.0  # expected meetings of a basin that is met with 95 %

DISAGREE = "visits and evidences disagree"

ONE_START = "all chains start at one point"

POOR = "too few likelihood calls for importance sampling"

ROUNDING = 0.003  # difference of probabilities that two routes may always have

Rule = Callable[[Draws], bool]

COMMON = 0.01  # probability of models whose Bayes factors are asked for

LIMITS = {
    "probability": (0.0, 1.0),
    "log_bayes_factor": (0.0, math.inf),
    "rhat": (1.0, math.inf),
    "detection": (0.0, 1.0),
}  # between which each number is


@dataclass
class Run:
    """Draws of a run in rounds, and what they say.

    Attributes:
        recipe: What made it; its target is in float64 if numbers asked for that.
        known: What was learned.
        moves: Made of it.
        draws: Kept draws of all chains, burn-in left out.
        p: What was asked for, by the best route, shape (Q,).
        error: Standard errors, shape (Q,).
        visits, visits_error: The same by the chains alone; before these have mixed the error holds
            the spread of the groups. Of what no draw has, or every one, the distance of a 95 %
            bound.
        groups_error: Standard errors by the spread of the groups.
        route: What rests on no chain, or None.
        mixing: How chains mix; tau in steps.
        doubt: Why the draws do not suffice, however large an error may be, in words; empty if
            they do.
        short: Whether that is their length alone: groups are alike, chains do not drift, and a
            route that rests on no chain agrees.
        evaluations: Likelihood evaluations, all in.
        detection: Share of climbs from a model's prior that lead to a mode, from which it was met
            with 95 %; infinite where nothing was searched, 0 of independent draws.
        shares: Of the steps, by move between models.
        done: Whether the rule was met.
        unresolved: What numbers do not resolve.
        steps: Steps of each chain since moves were learned for the last time, burn-in included.
        overflows: Points of these steps at which a likelihood was no number, which counted as
            impossible.
        position: Where the run goes on; None where its lesson was cut short.
        acceptance: Rates of these steps by move, as of
            :class:`~trjmcmc.result.report.RunReport`.
        crossings: Of few models, as of :class:`~trjmcmc.Result`, since moves were learned or the
            run was gone on with.
        settings: What moves have learned, by their names.
        in_shards: Whether its chains are those of all shards.
    """

    recipe: Recipe
    known: Known
    moves: Moves
    draws: Draws
    p: Tensor
    error: Tensor
    visits: Tensor
    visits_error: Tensor
    groups_error: Tensor
    route: Route | None
    mixing: Mixing
    doubt: str
    short: bool
    evaluations: int
    detection: float
    shares: Mapping[str, float] = field(default_factory=dict)
    done: bool = False
    unresolved: Unresolved = field(default_factory=Unresolved)
    steps: int = 0
    overflows: int = 0
    position: Position | None = None
    acceptance: dict[str, dict[str, float]] = field(default_factory=dict)
    crossings: tuple[Tensor, Tensor] | None = None
    settings: dict[str, dict[str, float]] = field(default_factory=dict)
    in_shards: bool = False

    def judge(self, error: float) -> None:
        """See whether the run is done, with a standard error that is asked for."""
        sure = not self.doubt and not self.known.incomplete
        self.done = sure and float(self.error.max()) <= error


def summed_up(recipe: Recipe, draws: Draws, known: Known, moves: Moves, route: Route | None) -> Run:
    """What kept draws of all chains say, and whether that is enough."""
    found, all_draws, draws = mixing_of(recipe, draws), draws, draws.in_pieces(LEAST_CHAINS)
    plan, one = recipe.plan, recipe.asked(draws.code)
    means = one.mean(1)
    p, visits_error = means.mean(0), means.std(0) / draws.n_chains**0.5
    rare = p * (1 - p) <= plan.variance
    if bool(((means - p.round()).abs() == 1)[:, rare].any()):  # a chain has never left it
        found = found._replace(tau=max(found.tau, float(draws.n_draws * draws.thin)))
    times = max(1.0, draws.n_draws * draws.thin / found.tau) if bool((p % 1 > 0).any()) else 1.0
    visits_error[p % 1 == 0] = rule_of_three(draws.n_chains * times)  # never met, or never left
    by_group = torch.stack([one[k :: plan.groups].mean((0, 1)) for k in range(plan.groups)])
    groups_error = by_group.std(0, correction=min(1, plan.groups - 1)) / plan.groups**0.5
    clear = min(found.trend, found.alike) > plan.clear and found.slowing < plan.slowing
    asked = plan.times * found.tau * (1 if clear else 2)
    steps, settled = draws.n_draws * draws.thin, 1 + NOISE * (2 / draws.n_chains) ** 0.5
    plan = replace(plan, settled=max(plan.settled, settled))
    doubt = "" if recipe.exact else shortfall(found, steps, asked, plan)
    short = draws.n_draws * draws.thin < asked
    if short:  # chains of a group may stand where it began
        visits_error = torch.maximum(visits_error, groups_error)
    best, best_error = p, visits_error
    agree = False
    if route is not None and bool((route.error < 1).all()):
        if not known.poor:
            agree = apart(p, visits_error, route) <= plan.agree
        elif route.by_proposals:  # chains stand where these have begun
            best, best_error = route.p, route.error
        if agree:
            best, best_error = combined(p, visits_error, route)
            searched = route.by_proposals and any(known.climbs)
            doubt = "" if short and searched else doubt  # chains are not what it rests on
        elif not known.poor:
            doubt = doubt or DISAGREE
    if known.poor:
        doubt = doubt or POOR
    if recipe.stated.points is not None and not agree and not recipe.starts.any():
        doubt = doubt or ONE_START
    return Run(
        recipe=recipe,
        known=known,
        moves=moves,
        draws=all_draws,
        p=best,
        error=best_error,
        visits=p,
        visits_error=visits_error,
        groups_error=groups_error,
        route=route,
        mixing=found,
        doubt=doubt,
        short=short and agree and min(found.trend, found.alike) > plan.level,
        evaluations=recipe.evaluations,
        detection=detected(recipe, known),
    )


def detected(recipe: Recipe, known: Known) -> float:
    """Share of climbs that lead to a mode, from which it was met with 95 %; infinite of none."""
    if recipe.exact or (recipe.searches and not recipe.with_places):  # nothing can be lost
        return 0.0
    fewest = min(known.climbs, default=0)
    none = 1.0 if known.proposed else math.inf  # proposals would have climbed
    return min(1.0, MET / fewest) if fewest else none


def shortfall(found: Mixing, steps: int, asked: float, plan: Plan) -> str:
    """Why so many steps do not suffice, in words; empty if they do."""
    if steps < asked:
        times, least = steps / found.tau, asked / found.tau
        return f"chains are {times:.1f} autocorrelation times long, not {least:.0f}"
    if found.grown >= plan.settled and steps < LONG * asked:
        return "autocorrelation times still grow with the run"
    if found.trend <= plan.level:
        return "chains drift"
    return "groups of chains differ" if found.alike <= plan.level else ""


def apart(p: Tensor, error: Tensor, route: Route) -> float:
    """Largest difference between visits and a route that share no draws, in their errors."""
    gap = ((route.p - p).abs() - ROUNDING).clamp(min=0)
    return float((gap / (error**2 + route.error**2 + 1e-30).sqrt()).max())


def combined(p: Tensor, error: Tensor, route: Route) -> tuple[Tensor, Tensor]:
    """Visits and a route that share no draws, by their precision."""
    variance = error**2 + route.error**2 + 1e-30
    share = error**2 / variance  # of the route: its error may be 0, and so may both
    return p + share * (route.p - p), error * route.error / variance.sqrt()


def mixing_of(recipe: Recipe, draws: Draws) -> Mixing:
    """How chains mix in what was asked for and in all that they pass, tau in steps."""
    draws, starts = draws.in_pieces(LEAST_CHAINS), recipe.starts[: recipe.stated.chains]
    every = odd(draws.n_draws // JUDGED_DRAWS)
    code, theta, log_joint = (
        x[:JUDGED_CHAINS, ::every] for x in (draws.code, draws.theta, draws.log_joint)
    )
    few = Draws(code, theta, log_joint)
    asked = recipe.asked(few.code).numpy()
    x = np.concatenate([asked, *recipe.judged(few)], -1)
    found = mixing(
        x,
        recipe.plan.groups,
        starts=starts.repeat(-(-len(x) // len(starts)))[: len(x)].numpy(),
        indicators=asked.shape[2],
        least_variance=recipe.plan.variance,
    )
    return found._replace(tau=found.tau * every * draws.thin)


@dataclass(frozen=True)
class Aims:
    """When a run has what it is for; infinite where that is not asked.

    Attributes:
        probability: Largest standard error of a probability; of a run that has mixed.
        log_bayes_factor: The same of log Bayes factors of common models to the best, nats.
        rhat: Largest rank-normalised split R-hat of what chains pass.
        detection: Share of climbs from a prior that lead to a mode, from which it is to be met.
        rule: Of the user: says of the kept draws whether they suffice; or None.
    """

    probability: float = math.inf
    log_bayes_factor: float = math.inf
    rhat: float = math.inf
    detection: float = math.inf
    rule: Rule | None = None

    @classmethod
    def of(cls, space: Space, until: Any) -> Aims:
        """What a user states as ``until`` of :meth:`trjmcmc.TRJSampler.run`.

        Raises:
            ConfigurationError: Something else is asked for, or not for this space.

        Example:
            >>> from trjmcmc import problems
            >>> Aims.of(problems.sinh_arcsinh().space, {"rhat": 1.1}).rhat
            1.1
        """
        if callable(until):
            return cls(rule=until)
        asked = {"probability": DONE_ERROR} if until is None else until
        odd = [x for x in asked if x not in LIMITS] if isinstance(asked, Mapping) else [""]
        if odd or not asked:
            raise ConfigurationError(
                'until: expected a dict such as {"probability": 0.01} or a function of the draws, '
                f"got {until!r}{meant(str(*odd[:1]), LIMITS)}"
            )
        for name, x in asked.items():
            low, high = LIMITS[name]
            if not (isinstance(x, int | float) and low < x < high):
                raise ConfigurationError(
                    f"until: expected {name} between {low:g} and {high:g}, got {x!r}"
                )
        listed = space.few and space.several and not space.graphs
        if "log_bayes_factor" in asked and (not listed or (space.counts and len(space.kinds) > 1)):
            raise ConfigurationError(
                f"until: log_bayes_factor is for 2 to {MODELS_ONE_BY_ONE} models that are no "
                "graphs, and of one kind of components; use probability"
            )
        return cls(**asked)

    def missed(self, run: Run) -> list[str]:
        """What is not reached, in words; empty if all is."""
        found, error = list[str](), float(run.error.max())
        if error > self.probability:
            found.append(f"standard error {error:.2g}, not {self.probability:g}")
        if self.log_bayes_factor < math.inf:
            error = self._of_bayes_factors(run)
            if not error <= self.log_bayes_factor:
                found.append(
                    f"log Bayes factors to {error:.2g} nats, not {self.log_bayes_factor:g}"
                )
        if self.rhat < math.inf:
            rhat = worst_rhat(run.recipe.host, run.draws, self.rhat)
            if not rhat <= self.rhat:
                found.append(f"R-hat {rhat:.3f}, not {self.rhat:g}")
        if run.detection > self.detection:
            found.append(f"detection limit {run.detection:.2g}, not {self.detection:g}")
        return found

    def reached(self, run: Run) -> bool:
        """Whether a run has what it is for."""
        if self.rule is not None:
            return bool(self.rule(run.draws))
        run.judge(self.probability)
        return run.done and not self.missed(run)

    @staticmethod
    def _of_bayes_factors(run: Run) -> float:
        """Largest standard error of the log of a Bayes factor to the best model, nats."""
        models = int(run.recipe.host.size or 0)
        p, error = run.p[-models:], run.error[-models:]
        best, relative = int(p.argmax()), (error / p)[p > COMMON]
        rest = (error / p)[best]
        return float((relative.square() + rest.square()).sqrt().max())
