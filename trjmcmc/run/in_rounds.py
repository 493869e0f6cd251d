"""A run in rounds as a sampler's run: limits, Ctrl-C, progress, evidences, the result."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from .. import clock
from ..errors import BudgetError, ConfigurationError, InterruptedWarning, TRJError, warn_user
from ..estimate.routes import through_the_map
from ..progress import progress_bar
from ..promises import DONE_ERROR, DONE_SECONDS
from ..result import report as told
from ..result.report import Judged, RunReport
from ..result.result import Result
from ..target.exchangeable import components_of
from ..target.target import Target
from .budget import limited
from .interrupts import once_pressed
from .knowledge import Knowledge
from .look import DISAGREE, MET, Run, apart
from .plan import Plan
from .policy import Policy
from .recipes.base import Recipe, route_of
from .recipes.choose import kind_of, recipe_of
from .recipes.counts import Components
from .recipes.lists import Lists
from .report import Routes, made_result
from .rounds import Resumption, looks
from .rounds_saved import (
    ROUNDS,
    RoundsOnward,
    RoundsSaver,
    before_in,
    before_of,
    record_of,
)
from .saving import Place
from .threads import one_thread

AIMS = {"probability", "detection"}  # that a run in rounds may have

INTERRUPTED = "interrupted"  # why a training has stopped

LEAST_DRAWS = 50  # of a model that is weighed through normals fitted to them

ONE_THREAD = 5e6  # numbers of a batch of all chains, under which threads wait for each other


def begin(
    known: Knowledge,
    plan: Plan | None,
    seed: int,
    until: Any,
    *,
    plain: bool,
    limits: bool = False,
    fit: bool | str = "auto",
    start: Any = None,
    saved: Mapping[str, Any] | None = None,
    place: Place | None = None,
) -> InRounds | None:
    """A run in rounds that has not begun, or None where another kind of run suits.

    Arguments:
        known: What is known of the target.
        plan: Its numbers; None where nobody asked for rounds.
        seed: The sampler's.
        until: When it is done.
        plain: Whether nothing else was asked for than limits, progress bar and a map.
        limits: Whether draws or evaluations were asked for, as only a run that goes on takes them.
        fit: Whether a map is trained first, as of :meth:`trjmcmc.TRJSampler.run`.
        start: What to start from, or None.
        saved: The plain data of a run in rounds that it goes on with, or None.
        place: The folder that the run is saved in, or None.

    Raises:
        CheckpointError: The folder or the result are of another run.
        ConfigurationError: Rounds were asked for over orders of the nodes of graphs, over more
            than 128 models that are no subsets, of an impossible model; a kernel or a strategy was
            given; more was asked of the run than rounds take.
    """
    asked, found = plan is not None, None if place is None else place.found
    there = saved is not None if found is None else ROUNDS in found.head
    if not there and (found is not None or start is not None):  # of another kind
        if asked or saved is not None:
            raise ConfigurationError("rounds: the run there is none in rounds; leave it out")
        return None
    if not asked and not there and (limits or not (plain and suits(known, until, fit))):
        return None
    saving = place is not None or start is not None
    mapped = fit != "auto" or known.ready
    if there and (mapped or not plain):
        raise ConfigurationError(
            "a run in rounds goes on as it was: leave chains, warmup, thin, fit, shards, compile "
            "and maps out; start=result.raw.second_half(10_000, 'cpu') starts new chains"
        )
    if saving and mapped:  # maps are not saved
        if asked:
            raise ConfigurationError("rounds: no run with a map is saved; leave it out")
        return None
    if not plain or (limits and not there):
        raise ConfigurationError(
            "run: in rounds it takes until, max_seconds, start, checkpoint, progress, and "
            'fit="vi" or True, uncompiled'
        )
    if not known.strategy.chooses:
        raise ConfigurationError("rounds: they take no kernel or strategy; leave it out")
    if not all_possible(known.target):
        raise ConfigurationError("rounds: each of so few models has to have a prior above 0")
    recipe = recipe_of(known.target, plan or Plan(), known.generator)
    dear = recipe.numbers > recipe.dearest and not asked
    aims = aims_of(until)
    if aims[1] < 1 and not (recipe.searches or recipe.exact):
        raise ConfigurationError('until: "detection" is for lists of models alone')
    by = trained_by(known)
    trained = by == "vi" if fit == "vi" else bool(by)
    if dear and not there:
        return None
    before = None if place is None else before_in(place, recipe, known.spending)
    if before is None and saved is not None:
        before = before_of(start, saved, recipe, seed)
    if before is not None and before.position.climbs * aims[1] < MET and recipe.searches:
        raise ConfigurationError('until: "detection" is asked of a run that begins')
    saver = None if place is None else RoundsSaver(place, known.spending)
    fit = "" if trained else fit
    return InRounds(recipe, known, seed, aims, fit, before=before, saver=saver)


def trained_by(known: Knowledge) -> str:
    """What the map was trained by to the end; nothing if it was not."""
    trace = known.trace
    ended = trace is not None and bool(trace.step) and trace.stopped != INTERRUPTED
    return trace.by if trace is not None and ended else ""


def suits(known: Knowledge, until: Any, fit: bool | str = "auto") -> bool:
    """Whether rounds are the usual run of a target, and what is asked for is theirs."""
    target = known.target
    asked = until is None or (isinstance(until, Mapping) and set(until) <= AIMS)
    usual = known.strategy.chooses and known.policy == Policy()
    served = kind_of(target) is not None and all_possible(target)
    if not (asked and usual and served and target.account.unlimited):
        return False
    if (known.ready or fit != "auto") and not (target.space.few and known.make_weights is None):
        return False  # moves through q(m), and among many models, are made elsewhere
    return kind_of(target) is not Components or bool(components_of(target))


def all_possible(target: Target) -> bool:
    """Whether each of few models has a prior above 0; true of targets of many models."""
    space = target.space
    if space.graphs or (not space.few and kind_of(target) is not Lists):
        return True
    return bool(space.log_prior(space.enumerate()).isfinite().all())


def aims_of(until: Any) -> tuple[float, float]:
    """Standard error of a probability, and share of a prior from which basins are to be met.

    Raises:
        ConfigurationError: Something else is asked for.
    """
    aims = {"probability": DONE_ERROR} if until is None else until
    known = isinstance(aims, Mapping) and bool(aims) and set(aims) <= AIMS
    if not known or not all(isinstance(x, int | float) and 0 < x < 1 for x in aims.values()):
        raise ConfigurationError(
            'until: a run in rounds takes "probability", a standard error, and "detection", a '
            f"share of a prior, both between 0 and 1; got {until!r}"
        )
    return float(aims.get("probability", DONE_ERROR)), float(aims.get("detection", math.inf))


class InRounds:
    """A run in rounds, between two looks.

    Arguments:
        recipe: Where it begins and what moves it.
        known: What is known of the target: its map, once that is trained or was given.
        seed: The sampler's.
        aims: Standard error, and share of a prior from which basins of modes are to be met.
        fit: What the map is to be trained by first, as of :meth:`trjmcmc.TRJSampler.run`.
        before: Where it goes on, or None.
        saver: Writes the run into a folder, or None.
    """

    def __init__(
        self,
        recipe: Recipe,
        known: Knowledge,
        seed: int,
        aims: tuple[float, float],
        fit: bool | str,
        *,
        before: Resumption | None = None,
        saver: RoundsSaver | None = None,
    ) -> None:
        self._recipe, self._known, self._seed, self._fit = recipe, known, seed, fit
        self._spending = known.spending
        self._error, self._detection = aims
        self._before, self._saver = before, saver
        if saver is not None and before is not None:
            saver.go_on(before.position)
        self._looks = self._through_the_map()
        self._last: Run | None = None
        self._broken = False  # off in a step, in a search, or in a lesson
        self._cut = False  # short in its training

    @property
    def target(self) -> Target:
        """The target, in float64 if numbers asked for that."""
        return self._recipe.target if self._last is None else self._last.recipe.target

    @property
    def begun(self) -> bool:
        """Whether there is something to go on from."""
        return self._last is not None

    def first(
        self,
        until: Any,
        max_seconds: float | None,
        progress: bool,
        begun: float,
        draws: int | None = None,
        max_evaluations: int | None = None,
    ) -> Result:
        """The first of its calls; arguments as of :meth:`trjmcmc.TRJSampler.run`.

        Where Ctrl-C ends a training, chains are sampled for a second.
        """
        asked, seconds = until is not None or max_seconds is None, max_seconds or DONE_SECONDS
        known = self._known
        if self._fit in {True, "vi"}:
            shares, by = known.policy.shares, "vi" if self._fit == "vi" else None
            late = begun + seconds * (shares.fit_before_choice if by else shares.fit)
            trace = known.fit(  # the run weighs its models itself, through what is closer
                by=by, audit=by is None, deadline=late, mend_until=late, progress=progress
            )
            self._cut = trace.stopped == INTERRUPTED
            if self._cut:
                begun, seconds = clock.now(), known.policy.summing_up.interrupted_seconds
        error = None if until is None and draws is not None else self._error
        return self.run(
            error,
            begun + seconds - clock.now(),
            progress,
            asked=asked,
            draws=draws,
            max_evaluations=max_evaluations,
        )

    def _through_the_map(self) -> Iterator[Run]:
        """Looks of the run, through the map if there is one."""
        known = self._known
        trained = known.transport if known.given_map or trained_by(known) else None
        trained = trained if self.target.dim else None
        yield from self._from(self._recipe.with_map(trained), self._before)

    def _from(self, recipe: Recipe, before: Resumption | None) -> Iterator[Run]:
        """Looks of the run from where it goes on, or from its beginning."""
        keep = None if self._saver is None else self._saver.keep
        return looks(recipe, self._detection, before=before, keep=keep)

    def _mend(self) -> None:
        """Go on from the last look where the run was broken off, as if it had not been."""
        last = self._last
        if self._broken and last is not None and last.position is not None:
            record = record_of(last.draws, last.recipe.target)
            self._looks = self._from(last.recipe, Resumption(last.position, record))
            self._broken = False

    def run(
        self,
        error: float | None,
        seconds: float,
        progress: bool,
        *,
        asked: bool = True,
        draws: int | None = None,
        max_evaluations: int | None = None,
    ) -> Result:
        """Go on until the run is done or late.

        Arguments:
            error: Standard error of a probability at which it is done, or None.
            seconds: After which it is late.
            progress: Show a bar.
            asked: Whether that was asked for, so that it is said where it was not reached.
            draws: Kept draws of each chain that are asked for, or None.
            max_evaluations: Most likelihood calls from here, or None.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed twice.
            TRJError: A density is NaN or +inf; attribute ``result`` has the draws so far.
        """
        if draws is not None and not (isinstance(draws, int) and draws > 0):
            raise ConfigurationError(f"draws: expected an integer of 1 or more, got {draws!r}")
        self._mend()
        limit, spending, ended, off = self._recipe.limit, self._spending, None, False
        begun = clock.now()
        limit.begin(begun + seconds)
        self._known.begin()
        few = self._recipe.numbers * self._recipe.chains < ONE_THREAD
        with (
            one_thread(few),
            limited(self._recipe.target, spending.account, max_evaluations),
            once_pressed(limit.press),
            progress_bar(progress, desc="sampling", unit="round") as bar,
        ):
            try:
                while self._last is None or not self._is_enough(self._last, error, draws):
                    before = None if self._last is None else self._last.position
                    self._last = run = next(self._looks)
                    self._broken = before is not None and run.position is before
                    bar.update()
                    words = f"error {float(run.error.max()):.2g}"
                    bar.set_postfix_str(words)
                    if self._saver is not None:
                        self._saver.look(judged(run), run.draws.n_draws, words)
                    if limit.passed or run.steps >= self._recipe.plan.most:
                        break
            except KeyboardInterrupt:
                self._broken = off = True
                if self._last is None or limit.pressed:  # the second time
                    raise
                limit.press()
            except TRJError as error_in_step:
                self._broken, off, ended = True, True, error_in_step
                if self._last is None:
                    raise
            assert self._last is not None
            spending.spend("sample", clock.now() - begun)
            if self._saver is not None and not off:  # chains are where the last look was
                self._saver.save(self._last.position)
            budget_spent = isinstance(ended, BudgetError)
            result = self._result(self._last, error if asked else None, budget_spent)
        spending.close(self._known.trace)
        if self._saver is not None:
            why = str(ended) if ended is not None else "enough"
            why = "interrupted" if result.report.interrupted else why
            missed = result.report.missed or None
            self._saver.tell("ended", why=why, kept=result.raw.n_draws, missed=missed)
            self._saver.close()
            self._saver = None
        if ended is not None and not isinstance(ended, BudgetError):
            raise ended.carrying(result)
        if result.report.interrupted:
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
        """Go on with the same chains; arguments as of :meth:`trjmcmc.TRJSampler.more`.

        Raises:
            ConfigurationError: The last run was broken off in a step; detection is asked for.
        """
        last = self._last
        if self._broken and (last is None or last.position is None):
            raise ConfigurationError("more: the last run was broken off in a step; run anew")
        if isinstance(until, Mapping) and "detection" in until:
            raise ConfigurationError('more: "detection" is asked of run(); searches go on anyway')
        self._cut = False
        return self.run(
            None if until is None else aims_of(until)[0],
            math.inf if max_seconds is None else max_seconds,
            progress,
            draws=None if draws is None or self._last is None else draws + self._last.draws.n_draws,
            max_evaluations=max_evaluations,
        )

    def _is_enough(self, run: Run, error: float | None, draws: int | None) -> bool:
        """Whether a run has what is asked for; never where nothing but a limit is."""
        if error is None and draws is None:
            return False
        run.judge(math.inf if error is None else error)
        precise = error is None or (run.done and run.detection <= self._detection)
        return precise and run.draws.n_draws >= (draws or 0)

    def _result(self, run: Run, error: float | None, budget_spent: bool) -> Result:
        limit, target, draws = self._recipe.limit, run.recipe.target, run.draws
        weights, routes = weighed(run)
        reached = float(run.error.max())
        missed = ""
        if error is not None and reached > error:
            missed = f"a standard error of {reached:.2g} where {error:g} was asked for"
        elif run.detection > self._detection:
            missed = f"its search for basins of {self._detection:g} of a prior is not finished"
        report = RunReport(
            seconds={**self._known.fitted.seconds, **self._spending.seconds},
            steps=draws.n_draws * draws.thin,
            seed=self._seed,
            interrupted=limit.pressed or self._cut,
            budget_spent=budget_spent,
            overflows=run.overflows,
            evaluations=self._spending.evaluations,
            gradients=self._spending.gradients,
            plan=told.Plan(weights=dict(run.shares), automatic=True),
            out_of_time=limit.passed and not limit.pressed,
            missed=missed,
            fit=self._spending.news(self._known.trace),
            audit=self._known.audit_report,
            precision=run.recipe.why,
            unresolved=run.unresolved,
            reached_error=reached,
            judged=judged(run),
        )
        result = made_result(target, draws, report, routes, weights)
        if run.position is not None and run.recipe.trained is None:
            result.onward = RoundsOnward(run.position, run.recipe, self._seed)
        return result


def judged(run: Run) -> Judged:
    """How a run stands by its rule, and how far off means may be while it does not meet it.

    By the spread of groups; and by what is left of starts that are off by a standard deviation
    and are forgotten at the rate of tau, in a record whose burn-in was a third of its length.
    """
    tau, detection = run.mixing.tau, run.detection
    if some := run.known.incomplete:
        words = f"searches went on meeting lost modes of {', '.join(map(repr, some))}"
        return Judged(words, math.nan, tau, detection)
    if run.doubt in {"", DISAGREE}:  # the routes say themselves that they do
        return Judged("", 0.0, tau, detection)
    variance = run.visits * (1 - run.visits)
    telling = variance > run.recipe.plan.variance
    off = (run.groups_error[telling] / variance[telling].sqrt()).tolist()
    if not run.short:
        times = run.draws.n_draws * run.draws.thin / tau
        off.append(math.exp(-times / 3) / times)
    return Judged(run.doubt, max(off, default=0.0), tau, detection, run.short)


def weighed(run: Run) -> tuple[dict[str, Tensor], Routes]:
    """Importance weights and evidences by every route through normals.

    Where the rule took no such route: once chains have mixed, of models that have draws, and only
    where visits agree with the weights that have an error.
    """
    recipe, target, route = run.recipe, run.recipe.target, run.route
    generator = recipe.generator.clone_state()  # chains go on as if nobody had looked
    unmet = route is None and run.doubt
    through = None if unmet else recipe.normals(run.known, run.moves, generator)
    if through is None:  # many models have none
        return {}, {}
    codes = target.space.enumerate()
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
