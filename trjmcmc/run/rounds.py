"""A run in rounds: independent groups, one search, moves measured once, rounds that grow, one rule.

Nothing is decided by a clock. What is chosen, learned, searched, and how far, follows from draws
and from counted likelihood evaluations, so that equal seeds give equal draws however busy the
machine; a run that ends early is the beginning of the same run without a limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ..errors import TargetError
from ..kernel.base import Kernel, State
from .numbers import Unresolved, unresolved
from .position import Lesson, Position
from .recipes.base import Known, Moves, Recipe, Route, gain
from .recorded import Recorded
from .shards import Shards
from .start import given_starts
from .summary import Run, summed_up

LEAST_STEPS = 8  # of a round

LEAST_CLIMBS = 1000  # of a search that goes on: a summit is weighed however few they are

Keep = Callable[[Recorded, Callable[[], Position]], object]


class Resumption(NamedTuple):
    """Where a run goes on.

    Attributes:
        position: Between two steps.
        record: The last draws of its chains since moves were learned.
    """

    position: Position
    record: list[State]


def looks(
    recipe: Recipe,
    *,
    before: Resumption | None = None,
    keep: Keep | None = None,
) -> Iterator[Run]:
    """The run after each round, for ever; where it is late, what there was.

    Arguments:
        recipe: Where it begins and what moves it (:func:`~.recipes.choose.recipe_of`).
        before: Where it goes on, or None.
        keep: Called after each step of a round with the chains and a function that gives the
            position.

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
        >>> run = next(looks(recipe))
        >>> bool((run.p[1] - 0.75).abs() < 0.05)
        True
    """
    plan, run = recipe.plan, None
    if before is None:
        recipe, lesson = begun(recipe)
    else:
        lesson = before.position.lesson
    while True:
        counted, ahead = recipe.evaluations, lesson.steps
        if before is None:
            chains, kernel, known, moves, route = teach(recipe, lesson)
            whole = not recipe.late
        else:
            chains, kernel, known, moves, route = taught_again(recipe, before)
            counted, ahead, whole = before.position.counted, before.position.ahead, True
            if keep is not None:
                keep(chains, partial(chains.position, lesson, known, ahead, counted))
        before, learned, new = None, lesson.learned + 1, None
        if run is not None and recipe.late:
            yield replace(run, known=known)
        while new is None:
            steps = chains.advance(kernel, ahead)
            for ahead in steps:
                if keep is not None and whole:
                    keep(chains, partial(chains.position, lesson, known, ahead, counted))
            run = replace(
                summed_up(recipe, chains.kept(), known, moves, route),
                **chains.told(),
                unresolved=lesson.unresolved,
                in_shards=isinstance(chains, Shards),
                position=chains.position(lesson, known, ahead, counted) if whole else None,
            )
            alone = recipe.stated.grid is not None and learned < plan.learned  # shards come later
            if not alone or recipe.late:
                yield run
            if not whole:  # it was late: the lesson is made again
                recipe.generator.set_state(lesson.generator)
                new = lesson
                continue
            if ahead:  # it was late: first the rest of the round
                continue
            drawn, climbs = chains.some(), further(recipe, known, recipe.evaluations - counted)
            met = None
            with recipe.limit.until_spent():
                known, met = recipe.search(known, moves, drawn, climbs)
            if recipe.late:  # the position is that before the search
                yield replace(run, known=known)
            if met is not None:
                new = lesson_of(recipe, known, met, lesson.unresolved)
            elif learned < plan.learned:
                new = replace(
                    lesson_of(recipe, known, chains.state, lesson.unresolved),
                    steps=2 * lesson.steps,
                    seen=drawn,
                    learned=learned,
                    worth=chains.worth,
                )
            else:
                ahead = max(LEAST_STEPS * recipe.stated.thin, int((plan.growth - 1) * run.steps))
                counted = recipe.evaluations
        lesson = new


def further(recipe: Recipe, known: Known, evaluations: int) -> int:
    """Climbs of a search that goes on, after a round of so many evaluations."""
    usual = recipe.climbs(known)
    if known.incomplete:
        return usual
    each = sum(known.climbs) / max(1, len(known.climbs) * known.searched)  # for one evaluation
    climbs = int(recipe.plan.sought * evaluations * each)
    return climbs if climbs > min(LEAST_CLIMBS, usual // 2) else 0


def lesson_of(recipe: Recipe, known: Known, state: State, doubt: Unresolved) -> Lesson:
    """A first lesson at a place, of moves that have not been measured."""
    random, steps = recipe.generator.get_state(), LEAST_STEPS * recipe.stated.thin
    steps = max(steps, recipe.first(known))
    code, theta, log_joint = (x[: recipe.stated.chains] for x in state[:3])
    stated = State(code, theta, log_joint)
    return Lesson(known, stated, random, steps, unresolved=doubt)


def begun(recipe: Recipe) -> tuple[Recipe, Lesson]:
    """Groups and what was searched for, anew in float64 where float32 does not resolve them.

    Returns:
        The recipe, and the first lesson of its chains.
    """
    points, given = recipe.stated.points, None
    if points is not None:  # first: they may be refused
        given = given_starts(recipe.target, points, recipe.stated.chains or recipe.chains)
    if not math.isfinite(recipe.numbers) and not recipe.why:
        exact = recipe.finer("the likelihood is not written in torch")
        recipe = recipe if exact is None else exact
    known, state = recipe.begin()
    state = state if given is None else given
    if recipe.late:
        return recipe, lesson_of(recipe, known, state, Unresolved())
    doubt, finer = resolved(recipe, known)
    if finer is not None:
        return begun(finer)
    climbs = recipe.climbs(known)
    met = None
    with recipe.limit.until_spent():
        known, met = recipe.search(known, recipe.all_moves(known), known.draws, climbs)
    if met is not None:
        doubt, finer = resolved(recipe, known)
        if finer is not None:
            return begun(finer)
    return recipe, lesson_of(recipe, known, state if met is None else met, doubt)


class Taught(NamedTuple):
    """What comes of a lesson.

    Attributes:
        chains: With no record yet.
        kernel: Frozen.
        known: What is known now.
        moves: Made of it.
        route: Probabilities that rest on no chain, or None.
    """

    chains: Recorded
    kernel: Kernel
    known: Known
    moves: Moves
    route: Route | None


def teach(recipe: Recipe, lesson: Lesson) -> Taught:
    """Measure moves, learn from draws of the chains, keep the better normals, weigh models."""
    chains, known = Recorded(recipe, lesson.state, dict(lesson.worth)), lesson.known
    moves = old = recipe.all_moves(known)
    seen = chains.measure(moves) if lesson.seen is None else lesson.seen
    if seen is not None and not recipe.late:
        known = recipe.learn(known, seen, lesson.learned == 0)
        moves = recipe.all_moves(known)
        chains.measure(moves)
    chains.begin()
    steps = max(1, lesson.steps // 2, recipe.stated.warmup)
    kernel = chains.warmed(chains.mixture(moves), steps)
    if not recipe.late:
        after = chains.some()
        if gain(moves.through, old.through, after) < 0:
            known, moves = lesson.known, old  # a few draws of chains that stick teach worse normals
            kernel = chains.warmed(chains.mixture(moves), steps)
        moves = recipe.weighed_by(moves, after)
    chains.begin(recipe.stated.thin)
    if recipe.stated.grid is not None and lesson.learned + 1 >= recipe.plan.learned:
        chains = Shards(chains, recipe.stated.grid)
    route = None
    with recipe.limit.until_spent():
        route = recipe.weigh(known, moves)
    return Taught(chains, kernel, known, moves, route)


def taught_again(recipe: Recipe, before: Resumption) -> Taught:
    """The same lesson again, without a limit, and its chains where they were."""
    at = before.position
    recipe.generator.set_state(at.lesson.generator)
    with recipe.unlimited():
        found = teach(recipe, at.lesson)
    recipe.count_from(at.evaluations, at.why)
    found.chains.put(at, before.record, found.kernel)
    known = found.known._replace(climbs=at.climbs, needed=at.needed, searched=at.searched)
    return found._replace(known=known)


def resolved(recipe: Recipe, known: Known) -> tuple[Unresolved, Recipe | None]:
    """What numbers do not resolve, and a recipe in finer ones, if that helps.

    Raises:
        TargetError: These are the finest, and it is more than rounding of a likelihood's own.
    """
    found = unresolved(recipe.target, known.draws)
    if recipe.why and found.coarse:
        raise TargetError(f"no numbers of this machine resolve the posterior. {found}")
    finer = recipe.finer(f"float32 does not resolve {found}") if any(found) else None
    return found, finer
