"""A run in rounds: independent groups, one search, moves measured once, rounds that grow, one rule.

Nothing is decided by a clock. What is chosen, learned, searched, and how far, follows from draws
and from counted likelihood evaluations, so that equal seeds give equal draws however busy the
machine; a run that ends early is the beginning of the same run without a limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from ..draws import Draws, Pool
from ..errors import TargetError
from ..estimate.mixing import Mixing, mixing
from ..estimate.visits import rule_of_three
from ..kernel.base import Kernel, State
from ..kernel.compose import Cycle, MixtureKernel
from .plan import Plan
from .recipes.base import Known, Moves, Recipe, Route, gain

JUDGED_CHAINS, JUDGED_DRAWS = 256, 96  # that a look takes: all groups are among these chains

BURN_IN = 4  # a quarter of the record is left out

EVERY = 3  # steps of a measurement that draws are kept of to learn from

SOME_DRAWS = 16  # draws a chain of a round that are learned from

LEAST_STEPS = 8  # of a round

LONG = 4  # times the draws that are asked for, from which tau counts as settled

MOST_NUMBERS = 2**27  # of a record, coordinates of all chains; a longer one is thinned

MET = 3.0  # expected meetings of a basin that is met with 95 %

LEAST_CLIMBS = 1000  # of a search that goes on: a summit is weighed however few they are

DISAGREE = "visits and evidences disagree"

ROUNDING = 0.003  # difference of probabilities that two routes may always have


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
        shares: Of the steps, by move between models.
        done: Whether the rule was met.
        detection: Share of a model's prior from which a basin that leads to a mode was met with
            95 %; infinite where nothing was searched.
        unresolved: What numbers do not resolve, in words; empty if they will do.
        steps: Steps of each chain since moves were learned for the last time, burn-in included.
        evaluations: Likelihood evaluations, all in.
        overflows: Points of these steps at which a likelihood was no number, which counted as
            impossible.
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
    shares: Mapping[str, float]
    done: bool = False
    detection: float = math.inf
    unresolved: str = ""
    steps: int = 0
    evaluations: int = 0
    overflows: int = 0

    def judge(self, error: float) -> None:
        """See whether the run is done, with a standard error that is asked for."""
        sure = not self.doubt and not self.known.incomplete
        self.done = sure and float(self.error.max()) <= error


@dataclass
class _Chains:
    """The chains of a run, and all that they have drawn since kernels were frozen."""

    recipe: Recipe
    state: State
    worth: dict[str, float] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    record: list[State] = field(default_factory=list)
    thin: int = 1
    steps: int = 0
    overflows: int = 0

    def begin(self) -> None:
        """A record of what is drawn from now on."""
        self.record, self.thin, self.steps = [], 1, 0
        self.overflows = int(self.recipe.target.overflows)

    @torch.no_grad()
    def advance(self, kernel: Kernel, n: int) -> None:
        """Steps of a frozen kernel, which are recorded; where chains are if it is too late."""
        for _ in range(n):
            if self.recipe.late:
                break
            self.state, _ = kernel.step(self.state, self.recipe.generator)
            self._keep()
        self.record = self.record or [self.state]

    @torch.no_grad()
    def warmed(self, kernel: Kernel, n: int) -> Kernel:
        """A kernel that has learned from n steps, frozen; they are recorded."""
        for _ in range(n):
            if self.recipe.late:
                break
            kernel, self.state, _ = kernel.adapt(self.state, self.recipe.generator)
            self._keep()
        return kernel.frozen()

    def _keep(self) -> None:
        """Record where chains are, every other step alone once memory is short."""
        self.steps += 1
        if self.steps % self.thin:
            return
        self.record.append(self.state)
        if len(self.record) * self.state.theta.numel() > MOST_NUMBERS:
            self.record, self.thin = self.record[1::2], 2 * self.thin

    def measure(self, moves: Moves) -> list[Pool]:
        """Each new move between models alone, once; what these steps have drawn."""
        seen, account = [], self.recipe.target.account
        for name, move in moves.between.items():
            if name in self.worth or len(moves.between) == 1:
                continue
            self.begin()
            before = account.evaluations
            self.warmed(Cycle([move, *moves.inside]), self.recipe.plan.measured)
            if self.recipe.late:
                break
            tau = judged(self.recipe, self.kept()).tau
            self.worth[name] = 1 / (tau * max(1, account.evaluations - before))
            seen.append(pool_of(self.kept(), EVERY, self.recipe.target.device))
        return seen

    def mixture(self, moves: Moves) -> Kernel:
        """Moves between models by their worth, each followed by those inside."""
        plan, between = self.recipe.plan, moves.between
        if len(between) < 2:
            self.shares = dict.fromkeys(between, 1.0)
            return Cycle([*between.values(), *moves.inside])
        worth = {name: self.worth.get(name, 0.0) for name in between}  # 0 if it was too late
        best = max(worth.values()) or 1.0
        shares = [w if w > plan.useful * best else plan.least * best for w in worth.values()]
        self.shares = {m: s / sum(shares) for m, s in zip(worth, shares, strict=True)}
        kernels = [Cycle([move, *moves.inside]) for move in between.values()]
        return MixtureKernel(kernels, [*self.shares.values()])

    def some(self) -> Pool:
        """A few of these draws of each chain, where the target is."""
        draws = self.kept()
        return pool_of(draws, max(1, draws.n_draws // SOME_DRAWS), self.recipe.target.device)

    def kept(self) -> Draws:
        """The record without its burn-in."""
        kept = self.record[len(self.record) // BURN_IN :]
        return Draws(
            torch.stack([s.code for s in kept], 1).cpu(),
            torch.stack([s.theta for s in kept], 1).cpu(),
            torch.stack([s.log_joint for s in kept], 1).cpu(),
            thin=self.thin,
        )


def rounds(
    recipe: Recipe,
    *,
    error: float = 0.01,
    detection: float = math.inf,
    said: Callable[[Run], object] | None = None,
) -> Run:
    """Sample until standard errors are small enough and chains have mixed.

    Arguments:
        recipe: Where the run begins and what moves it (:func:`~.recipes.choose.recipe_of`).
        error: Standard error of what is asked for.
        detection: Share of a prior from which basins of modes are to be met with 95 %.
        said: Is told of each look.

    Source:
        Rounds that double, with adaptation between them alone, as in Surjanovic et al. (2023),
        https://arxiv.org/abs/2308.09769

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.run.plan import Plan
        >>> from trjmcmc.run.recipes.choose import recipe_of
        >>> generator = torch.Generator().manual_seed(0)
        >>> recipe = recipe_of(problems.sinh_arcsinh(), Plan(climbs=2000), generator)
        >>> run = rounds(recipe)
        >>> run.done, bool((run.p[1] - 0.75).abs() < 0.05)
        (True, True)
    """
    for run in looks(recipe, detection):
        run.judge(error)
        if said is not None:
            said(run)
        if run.done or run.steps >= recipe.plan.most or run.recipe.late:
            break
    return run


def looks(recipe: Recipe, detection: float = math.inf) -> Iterator[Run]:
    """The run after each round, for ever; where it is late, what there was.

    Arguments:
        recipe, detection: As of :func:`rounds`.
    """
    plan = recipe.plan
    recipe, known, moves, state, unresolved = begun(recipe, math.ceil(MET / detection))
    chains = _Chains(recipe, state)
    seen, n, learned, run = chains.measure(moves), plan.first, 0, None
    while True:
        before = recipe.evaluations
        if learned < plan.learned:
            old = known, moves
            if seen and not recipe.late:
                known = recipe.learn(known, joined(seen), learned == 0)
                moves = recipe.all_moves(known)
                chains.measure(moves)
            chains.begin()
            kernel = chains.warmed(chains.mixture(moves), n // 2)
            if not recipe.late and gain(moves.through, old[1].through, chains.some()) < 0:
                known, moves = old  # a few draws of chains that stick teach worse normals
                kernel = chains.warmed(chains.mixture(moves), n // 2)
            learned += 1
            chains.begin()
            route = recipe.weigh(moves)
        if run is not None and recipe.late:
            yield replace(run, known=known)
        chains.advance(kernel, n)
        run = replace(summed_up(chains, known, moves, route), unresolved=unresolved)
        yield run
        climbs = int(plan.sought * (recipe.evaluations - before) * known.climbs_per_call)
        climbs = climbs if climbs > min(LEAST_CLIMBS, recipe.climbs // 2) else 0
        climbs = recipe.climbs if known.incomplete else climbs
        drawn = chains.some()
        known, met = recipe.search(known, moves, drawn, climbs)
        if met is not None:
            moves, chains = recipe.all_moves(known), _Chains(recipe, met)
            seen, n, learned = chains.measure(moves), plan.first, 0
        elif learned < plan.learned:
            seen, n = [drawn], 2 * n
        else:
            n = max(LEAST_STEPS, int((plan.growth - 1) * run.steps))


def begun(recipe: Recipe, climbs: int) -> tuple[Recipe, Known, Moves, State, str]:
    """Groups and what was searched for, anew in float64 where float32 does not resolve them.

    Returns:
        Recipe, what is known, moves, where chains are, and what is not resolved all the same.
    """
    known, state = recipe.begin()
    if recipe.late:
        return recipe, known, recipe.all_moves(known), state, ""
    unresolved, finer = resolved(recipe, known)
    if finer is not None:
        return begun(finer, climbs)
    moves = recipe.all_moves(known)
    known, met = recipe.search(known, moves, known.draws, max(climbs, recipe.climbs))
    if met is not None:
        unresolved, finer = resolved(recipe, known)
        if finer is not None:
            return begun(finer, climbs)
        state, moves = met, recipe.all_moves(known)
    return recipe, known, moves, state, unresolved


def resolved(recipe: Recipe, known: Known) -> tuple[str, Recipe | None]:
    """What numbers do not resolve, in words, and a recipe in finer ones, if that helps.

    Raises:
        TargetError: These are the finest.
    """
    unresolved = recipe.unresolved(known)
    if unresolved and recipe.why:
        raise TargetError(f"no numbers of this machine resolve the posterior. {unresolved}")
    return unresolved, recipe.finer(unresolved) if unresolved else None


def summed_up(chains: _Chains, known: Known, moves: Moves, route: Route | None) -> Run:
    """What a record says, and whether that is enough."""
    recipe, plan, draws = chains.recipe, chains.recipe.plan, chains.kept()
    one, found = recipe.asked(draws.code), judged(recipe, draws)
    means = one.mean(1)
    p, visits_error = means.mean(0), means.std(0) / draws.n_chains**0.5
    rare = p * (1 - p) <= plan.variance
    if bool(((means - p.round()).abs() == 1)[:, rare].any()):  # a chain has never left it
        found = found._replace(tau=max(found.tau, float(draws.n_draws * draws.thin)))
    times = max(1.0, draws.n_draws * draws.thin / found.tau) if bool((p % 1 > 0).any()) else 1.0
    visits_error[p % 1 == 0] = rule_of_three(draws.n_chains * times)  # never met, or never left
    by_group = torch.stack([one[k :: plan.groups].mean((0, 1)) for k in range(plan.groups)])
    groups_error = by_group.std(0) / plan.groups**0.5
    clear = min(found.trend, found.alike) > plan.clear and found.slowing < plan.slowing
    asked = plan.times * found.tau * (1 if clear else 2)
    doubt = shortfall(found, draws.n_draws * draws.thin, asked, plan)
    short = draws.n_draws * draws.thin < asked
    if short:  # chains of a group may stand where it began
        visits_error = torch.maximum(visits_error, groups_error)
    best, best_error = p, visits_error
    agree = False
    if route is not None and bool((route.error < 1).all()):
        agree = apart(p, visits_error, route) <= plan.agree
        if agree:
            best, best_error = combined(p, visits_error, route)
        else:
            doubt = doubt or DISAGREE
    return Run(
        recipe=recipe,
        known=known,
        moves=moves,
        draws=draws,
        p=best,
        error=best_error,
        visits=p,
        visits_error=visits_error,
        groups_error=groups_error,
        route=route,
        mixing=found,
        doubt=doubt,
        short=short and agree and min(found.trend, found.alike) > plan.level,
        shares=chains.shares,
        detection=0.0 if recipe.exact else MET / known.climbs if known.climbs else math.inf,
        steps=chains.steps,
        evaluations=recipe.evaluations,
        overflows=int(recipe.target.overflows) - chains.overflows,
    )


def shortfall(found: Mixing, steps: int, asked: float, plan: Plan) -> str:
    """Why so many steps do not suffice, in words; empty if they do."""
    if steps < asked:
        times, least = steps / found.tau, asked / found.tau
        return f"chains are {times:.1f} autocorrelation times long, {least:.0f} are asked for"
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


def judged(recipe: Recipe, draws: Draws) -> Mixing:
    """How chains mix in what was asked for and in all that they pass, tau in steps."""
    every = max(1, draws.n_draws // JUDGED_DRAWS)
    code, theta, log_joint = (
        x[:JUDGED_CHAINS, ::every] for x in (draws.code, draws.theta, draws.log_joint)
    )
    few = Draws(code, theta, log_joint)
    asked = recipe.asked(few.code).numpy()
    x = np.concatenate([asked, *recipe.judged(few)], -1)
    found = mixing(
        x,
        recipe.plan.groups,
        starts=recipe.starts[: len(x)].numpy(),
        indicators=asked.shape[2],
        least_variance=recipe.plan.variance,
    )
    return found._replace(tau=found.tau * every * draws.thin)


def pool_of(draws: Draws, every: int, device: torch.device) -> Pool:
    """Every so many-th draw of all chains, on a device."""
    parts = (draws.code, draws.theta, draws.log_joint.double())
    return Pool(*(x[:, ::every].flatten(0, 1).to(device) for x in parts))


def joined(pools: list[Pool]) -> Pool:
    """All draws of some pools."""
    first, *rest = pools
    for pool in rest:
        first = first.joined(pool)
    return first
