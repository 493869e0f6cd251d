"""A run in rounds: independent groups, one search, moves measured once, rounds that grow, one rule.

Nothing is decided by a clock. What is chosen, learned, searched, and how far, follows from draws
and from counted likelihood evaluations, so that equal seeds give equal draws however busy the
machine; a run that ends early is the beginning of the same run without a limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from ..errors import TargetError
from ..kernel.base import State
from .look import MET, Run, summed_up
from .recipes.base import Known, Moves, Recipe, gain
from .recorded import Recorded, joined

LEAST_STEPS = 8  # of a round

LEAST_CLIMBS = 1000  # of a search that goes on: a summit is weighed however few they are


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
        >>> import torch
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
    chains = Recorded(recipe, state)
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
            kernel = chains.warmed(chains.mixture(moves), max(1, n // 2))
            if not recipe.late:
                after = chains.some()
                if gain(moves.through, old[1].through, after) < 0:
                    known, moves = old  # a few draws of chains that stick teach worse normals
                    kernel = chains.warmed(chains.mixture(moves), max(1, n // 2))
                moves = recipe.weighed_by(moves, after)
            learned += 1
            chains.begin()
            route = recipe.weigh(moves)
        if run is not None and recipe.late:
            yield replace(run, known=known)
        chains.advance(kernel, n)
        run = replace(
            summed_up(recipe, chains.kept(), known, moves, route),
            shares=chains.shares,
            unresolved=unresolved,
            steps=chains.steps,
            overflows=int(recipe.target.overflows) - chains.overflows,
        )
        yield run
        climbs = int(plan.sought * (recipe.evaluations - before) * known.climbs_per_call)
        climbs = climbs if climbs > min(LEAST_CLIMBS, recipe.climbs // 2) else 0
        climbs = recipe.climbs if known.incomplete else climbs
        drawn = chains.some()
        known, met = recipe.search(known, moves, drawn, climbs)
        if met is not None:
            moves, chains = recipe.all_moves(known), Recorded(recipe, met)
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
