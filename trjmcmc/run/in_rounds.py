"""A run in rounds as a sampler's run: limits, Ctrl-C, progress, evidences, the result."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from .. import clock
from ..errors import BudgetError, ConfigurationError, InterruptedWarning, TRJError, warn_user
from ..estimate.routes import through_the_map
from ..progress import progress_bar
from ..promises import DONE_ERROR
from ..result import report as told
from ..result.report import Judged, RunReport
from ..result.result import Result
from ..target.target import Target
from .budget import Spending, limited
from .knowledge import Knowledge
from .plan import Plan
from .recipes.base import Limit, Recipe
from .recipes.choose import recipe_of
from .report import Routes, made_result
from .rounds import DISAGREE, Run, looks

VARIES = 0.02  # variance of an indicator, from which its groups tell how far off means may be


def begun(known: Knowledge, plan: Plan, seed: int) -> InRounds:
    """A run that has not begun.

    Raises:
        ConfigurationError: Graphs; more than 128 models that are no subsets; an impossible model.
    """
    space = known.target.space
    if space.few and not bool(space.log_prior(space.enumerate()).isfinite().all()):
        raise ConfigurationError("rounds: every model of a list has to have a prior above 0")
    return InRounds(recipe_of(known.target, plan, known.generator), known.spending, seed)


def error_of(until: Any) -> float:
    """The standard error of a probability that is asked for.

    Raises:
        ConfigurationError: Something else is.
    """
    until = {"probability": DONE_ERROR} if until is None else until
    if isinstance(until, Mapping) and set(until) == {"probability"}:
        error = until["probability"]
        if isinstance(error, int | float) and 0 < error < 1:
            return float(error)
    raise ConfigurationError(
        f'until: a run in rounds takes {{"probability": error}}, 0 < error < 1; got {until!r}'
    )


class InRounds:
    """A run in rounds, between two looks.

    Arguments:
        recipe: Where it begins and what moves it.
        spending: Where seconds and evaluations are counted.
        seed: The sampler's.
    """

    def __init__(self, recipe: Recipe, spending: Spending, seed: int) -> None:
        self._recipe, self._spending, self._seed = recipe, spending, seed
        self._looks = looks(recipe)
        self._last: Run | None = None

    @property
    def target(self) -> Target:
        """The target, in float64 if numbers asked for that."""
        return self._recipe.target if self._last is None else self._last.recipe.target

    def run(
        self,
        error: float | None,
        seconds: float,
        progress: bool,
        *,
        draws: int | None = None,
        max_evaluations: int | None = None,
    ) -> Result:
        """Go on until the run is done or late.

        Arguments:
            error: Standard error of a probability that is asked for, or None.
            seconds: After which it is late.
            progress: Show a bar.
            draws: Kept draws of each chain that are asked for, or None.
            max_evaluations: Most likelihood calls from here, or None.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed twice.
            TRJError: A density is NaN or +inf; attribute ``result`` has the draws so far.
        """
        limit, spending, failure, budget_spent = self._recipe.limit, self._spending, None, False
        begun, most = clock.now(), self._recipe.plan.most
        limit.begin(begun + seconds)
        spending.begin()
        with (
            limited(self._recipe.target, spending.account, max_evaluations),
            heard(limit),
            progress_bar(progress, desc="sampling", unit="round") as bar,
        ):
            try:
                for run in self._looks:
                    self._last, reached = run, float(run.error.max())
                    run.judge(math.inf if error is None else error)
                    bar.update()
                    bar.set_postfix_str(f"error {reached:.2g}")
                    enough = error is not None and run.done
                    if draws is not None:
                        enough = run.draws.n_draws >= draws and (error is None or enough)
                    if enough or limit.passed or run.steps >= most:
                        break
            except BudgetError:
                budget_spent = True
            except KeyboardInterrupt:
                if limit.pressed:  # the second time
                    raise
                limit.press()
            except TRJError as of_density:
                failure = of_density
            if self._last is None:
                raise failure or KeyboardInterrupt
            spending.spend("sample", clock.now() - begun)
            result = self._result(self._last, error, budget_spent)
        spending.close(None)
        if failure is not None:
            raise failure.carrying(result)
        if limit.pressed:
            warn_user(
                f"interrupted after {result.raw.n_draws} draws a chain; the result holds them",
                InterruptedWarning,
            )
        result.warn()
        return result

    def more(
        self,
        draws: int | None,
        until: Any,
        max_seconds: float | None,
        max_evaluations: int | None,
        progress: bool,
    ) -> Result:
        """Go on with the same chains; arguments as of :meth:`trjmcmc.TRJSampler.more`."""
        return self.run(
            None if until is None else error_of(until),
            math.inf if max_seconds is None else max_seconds,
            progress,
            draws=None if draws is None or self._last is None else draws + self._last.draws.n_draws,
            max_evaluations=max_evaluations,
        )

    def _result(self, run: Run, error: float | None, budget_spent: bool) -> Result:
        limit, target, draws = self._recipe.limit, run.recipe.target, run.draws
        weights, routes = weighed(run)
        finer = target.dtype != self._recipe.target.dtype
        reached = float(run.error.max())
        missed = ""
        if error is not None and reached > error:
            missed = f"a standard error of {reached:.2g} where {error:g} was asked for"
        report = RunReport(
            seconds=dict(self._spending.seconds),
            steps=draws.n_draws * draws.thin,
            seed=self._seed,
            interrupted=limit.pressed,
            budget_spent=budget_spent,
            overflows=run.overflows,
            evaluations=self._spending.evaluations,
            gradients=self._spending.gradients,
            plan=told.Plan(weights=dict(run.shares), automatic=True),
            out_of_time=limit.passed and not limit.pressed,
            missed=missed,
            precision=run.recipe.why if finer else "",
            unresolved=run.unresolved,
            reached_error=reached,
            judged=judged(run),
        )
        return made_result(target, draws, report, routes, weights)


def judged(run: Run) -> Judged:
    """How a run stands by its rule, and how far off means may be while it does not meet it."""
    doubt = "" if run.doubt == DISAGREE else run.doubt  # which the routes say themselves
    variance = run.visits * (1 - run.visits)
    telling = variance > VARIES
    off = (run.groups_error[telling] / variance[telling].sqrt()).max() if telling.any() else 0.0
    return Judged(doubt, float(off) if doubt else 0.0, run.mixing.tau, run.detection)


def weighed(run: Run) -> tuple[dict[str, Tensor], Routes]:
    """Importance weights and evidences by every route through the normals."""
    route, through, target = run.route, run.moves.through, run.recipe.target
    if route is None or through is None:  # it was too late
        return {}, {}
    labels = target.space.label(target.space.enumerate())
    weights = dict(zip(labels, route.log_weights, strict=True))
    return weights, through_the_map(target, through, run.draws, weights, run.recipe.generator)


@contextmanager
def heard(limit: Limit) -> Iterator[None]:
    """Let Ctrl-C end a run at its next step; pressed again it is heard at once."""
    if threading.current_thread() is not threading.main_thread():  # no signals come here
        yield
        return

    def press(number: int, frame: Any) -> None:
        if limit.pressed:
            raise KeyboardInterrupt
        limit.press()

    before = signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
