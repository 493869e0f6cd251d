"""A run in rounds as a sampler's run: limits, Ctrl-C, progress, evidences, the result."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from .. import clock
from ..doubts.doubt import warn_of
from ..errors import (
    BudgetError,
    ConfigurationError,
    InterruptedWarning,
    TRJError,
    warn_user,
)
from ..progress import progress_bar
from ..promises import DONE_SECONDS
from ..result.result import Result
from ..target.target import Target
from .asked import Stated, check_lengths
from .knowledge import Knowledge, limited
from .maps import check_round_trip
from .outlook import outlook
from .plan import Plan
from .recipes.base import Recipe
from .recipes.choose import recipe_of
from .report import judged, result_of
from .rounds import Resumption, looks
from .rounds_saved import (
    MAP,
    STATED,
    RoundsSaver,
    RunFolder,
    before_of,
    check_asked,
    onward,
    record_of,
)
from .strategy import FIT_SHARE
from .summary import MET, Aims, Run
from .tasks import one_thread

INTERRUPTED = "interrupted"  # why a training has stopped

INTERRUPTED_SECONDS = 1.0  # of sampling after that

VI_SHARE = 0.4  # of the time, for a fit by "vi", after which moves are chosen

ONWARD = (
    "a run in rounds goes on as it was: leave chains, warmup, thin, fit, shards "
    "and maps out; start=trj.fit.Pool(*result.raw.flat(), result.raw.log_joint.flatten()) "
    "starts new chains"
)

ONE_THREAD = 5e6  # numbers of a batch of all chains, under which threads wait for each other


def begin(
    known: Knowledge,
    plan: Plan | None,
    seed: int,
    until: Any,
    *,
    stated: Stated,
    fit: bool | str = "auto",
    there: Mapping[str, Any] | None = None,
    place: RunFolder | None = None,
) -> InRounds:
    """A run in rounds that has not begun.

    Arguments:
        known: What is known of the target.
        plan: Its numbers; None for the usual ones.
        seed: The sampler's.
        until: When it is done.
        stated: What is stated of its chains.
        fit: Whether a map is trained first, as of :meth:`trjmcmc.TRJSampler.run`.
        there: The plain data of a run that it goes on with, in a folder or a result; or None.
        place: The folder that the run is saved in, or None.

    Raises:
        CheckpointError: The folder or the result are of another run.
        ConfigurationError: More was asked of the run than rounds take.
    """
    resumed = place is not None and place.found is not None
    if known.strategy.given is not None:
        stated = stated._replace(kernel=lambda _: known.kernel(known.transport))
        needed = known.strategy.trains and not known.ready
        fit = "auto" if not needed else True if fit == "auto" else fit
    if fit in {True, "vi"} and stated.evaluations is not None:
        left = (1 - FIT_SHARE) * stated.evaluations
        stated = stated._replace(evaluations=max(1, int(left)))
    if place is not None:
        check_asked(place)
    if there is not None:
        stated = stated_again(stated, there, resumed)
        if (trained_map := there["lesson"][MAP]) is not None:
            known.restore_map(trained_map)
        elif known.ready or (fit in {True, "vi"} and not resumed):
            raise ConfigurationError(ONWARD)
    aims = Aims.of(known.target.to(device="cpu", probe=False).space, until)
    stated = stated._replace(climbs=math.ceil(MET / aims.detection))
    recipe = recipe_of(known.target, plan or Plan(), known.generator, stated=stated)
    if aims.detection < 1 and not (recipe.searches or recipe.exact):
        raise ConfigurationError('until: "detection" is for lists of models alone')
    by = trained_by(known)
    trained = by == "vi" if fit == "vi" else bool(by)
    before = None
    if there is not None:
        where = place.folder.path if place is not None and resumed else "start"
        before = before_of(where, there, recipe, seed)
        if resumed:
            known.spending.restore(there["account"], there["seconds"])
    climbed = () if before is None else before.position.climbs
    if climbed and min(climbed) < stated.climbs:
        raise ConfigurationError('until: "detection" is asked of a run that begins')
    saver = None if place is None else RoundsSaver(place, known.spending, before)
    fit = "" if trained or before is not None else fit
    return InRounds(recipe, known, seed, aims, fit, before=before, saver=saver)


def stated_again(stated: Stated, there: Mapping[str, Any], folder: bool) -> Stated:
    """What a saved run was told of its chains; of one in a folder points to start from as well.

    Raises:
        ConfigurationError: Something else is asked for now, or points to start from.
    """
    was = Stated(**there[STATED])
    same = stated.numbers in {Stated().numbers, was.numbers}
    if not same or (stated.points is not None and not folder):
        raise ConfigurationError(ONWARD)
    now = {name: getattr(stated, name) for name in ("points", "kernel", "grid")}
    return was._replace(**now)


def trained_by(known: Knowledge) -> str:
    """What the map was trained by to the end; nothing if it was not."""
    trace = known.trace
    ended = trace is not None and bool(trace.step) and trace.stopped != INTERRUPTED
    return trace.by if trace is not None and ended else ""


def is_enough(run: Run, aims: Aims | None, draws: int | None) -> bool:
    """Whether a run has what is asked for; never where nothing but a limit is."""
    thin = run.recipe.stated.thin  # memory may have thinned the record further
    if draws is not None and run.draws.n_draws * run.draws.thin >= draws * thin:
        return True
    return aims is not None and aims.reached(run)


class InRounds:
    """A run in rounds, between two looks.

    Arguments:
        recipe: Where it begins and what moves it.
        known: What is known of the target: its map, once that is trained or was given.
        seed: The sampler's.
        aims: What it is for.
        fit: What the map is to be trained by first, as of :meth:`trjmcmc.TRJSampler.run`.
        before: Where it goes on, or None.
        saver: Writes the run into a folder, or None.
    """

    def __init__(
        self,
        recipe: Recipe,
        known: Knowledge,
        seed: int,
        aims: Aims,
        fit: bool | str,
        *,
        before: Resumption | None = None,
        saver: RoundsSaver | None = None,
    ) -> None:
        self._recipe, self._known, self._seed, self._fit = recipe, known, seed, fit
        self._spending = known.spending
        self._aims = aims
        self._before, self._saver = before, saver
        self._looks: Iterator[Run] = iter(())
        self._last: Run | None = None
        self._kept = 0  # draws of each chain in the last result
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
        known, endless = self._known, draws is not None or max_evaluations is not None
        asked = until is not None or (max_seconds is None and not endless)
        seconds = max_seconds or (math.inf if endless else DONE_SECONDS)
        if self._fit in {True, "vi"}:
            by = "vi" if self._fit == "vi" else None
            share = VI_SHARE if by else known.strategy.fit_share
            late, most = begun + seconds * share, max_evaluations
            before = known.spending.account.evaluations
            try:
                trace = known.fit(  # the run weighs its models itself, through what is closer
                    by=by,
                    audit=by is None,
                    deadline=late,
                    max_evaluations=None if most is None else int(share * most),
                    progress=progress,
                )
                self._cut = trace.stopped == INTERRUPTED
            except KeyboardInterrupt:  # in what comes before or after the training itself
                self._cut = True
            if most is not None:
                max_evaluations = most - (known.spending.account.evaluations - before)
            if self._cut:
                begun, seconds = clock.now(), INTERRUPTED_SECONDS
        return self.run(
            None if until is None and draws is not None else self._aims,
            begun + seconds - clock.now(),
            progress,
            asked=asked,
            draws=draws,
            max_evaluations=max_evaluations,
        )

    def _looks_from_here(self) -> Iterator[Run]:
        """Looks of the run through its map, and where it was broken off from its last look."""
        known, last = self._known, self._last
        keep = None if self._saver is None else self._saver.keep
        if last is not None:
            assert last.position is not None
            record = record_of(last.draws, last.recipe.target)
            return looks(last.recipe, before=Resumption(last.position, record), keep=keep)
        if self.target.dim and (known.given_map or trained_by(known)):
            check_round_trip(self.target, known.transport, known.generator)
            self._recipe.take_map(known.transport)
        return looks(self._recipe, before=self._before, keep=keep)

    def run(
        self,
        aims: Aims | None,
        seconds: float,
        progress: bool,
        *,
        asked: bool = True,
        draws: int | None = None,
        max_evaluations: int | None = None,
    ) -> Result:
        """Go on until the run is done or late.

        Arguments:
            aims: What it is for, or None.
            seconds: After which it is late.
            progress: Show a bar.
            asked: Whether that was asked for, so that it is said where it was not reached.
            draws: Kept draws of each chain, the last of them, with which it ends in any case; or
                None.
            max_evaluations: Most likelihood calls from here, or None.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed twice.
            TRJError: A density is NaN or +inf; attribute ``result`` has the draws so far.
        """
        limit, spending, begun = self._recipe.limit, self._spending, clock.now()
        self._known.begin()
        with limited(self._recipe.target, spending.account, max_evaluations):
            limit.begin(begun + seconds, spending.account)
            with limit.heard():
                with nullcontext() if self._before is None else spending.account.free():
                    few = self._recipe.numbers * self._recipe.chains < ONE_THREAD
                    limit.keep(self._recipe.kept)
                if self._last is None or self._broken:
                    self._looks, self._broken = self._looks_from_here(), False
                try:
                    bar = progress_bar(progress, desc="sampling", unit="round")
                    with one_thread(few), bar as bar:
                        ended = self._look_on(aims, draws, bar, begun)
                finally:
                    if (grid := self._recipe.stated.grid) is not None:
                        grid.close()
                assert self._last is not None
                spending.spend("sample", clock.now() - begun)
                budget_spent = isinstance(ended, BudgetError) or limit.spent
                last = self._last.draws if draws is None else self._last.draws.last(draws)
                shown, self._kept = replace(self._last, draws=last), last.n_draws
                result = result_of(
                    shown,
                    self._known,
                    seed=self._seed,
                    aims=aims if asked else None,
                    asked=draws,
                    cut=self._cut,
                    budget_spent=budget_spent,
                )
        if shown.position is not None and shown.recipe.stated.grid is None:
            whole = self._last.draws
            left_out = whole.n_draws - last.n_draws
            before = whole.first(left_out) if left_out else None
            result._onward = partial(onward, shown.position, shown.recipe, self._seed, before)
        spending.close()
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
                f"interrupted after {result.raw.n_draws} draws per chain; the result holds them",
                InterruptedWarning,
            )
        warn_of(result.doubts)
        return result

    def _look_on(
        self, aims: Aims | None, draws: int | None, bar: Any, begun: float
    ) -> TRJError | None:
        """Look after each round until the run is done or late; what broke it off, if anything did.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed twice.
            TRJError: It was broken off before there was anything to look at.
        """
        limit, saver = self._recipe.limit, self._saver
        try:
            while self._last is None or not is_enough(self._last, aims, draws):
                before = None if self._last is None else self._last.position
                self._last = run = next(self._looks)
                self._broken = before is not None and run.position is before
                if not bar.disable:
                    now = clock.now()
                    words = outlook(run, aims, draws, now - begun, limit.deadline - now)
                    bar.set_postfix_str(words)
                bar.update()
                if saver is not None:
                    words = f"standard error {float(run.error.max()):.2g}"
                    saver.look(judged(run), run.draws.n_draws, words)
                if limit.passed or (draws is None and run.steps >= self._recipe.plan.most):
                    break
        except KeyboardInterrupt:
            self._broken = True
            if self._last is None or limit.pressed:  # the second time
                raise
            limit.press()
            return None
        except TRJError as error:
            self._broken = True
            if self._last is None:
                raise
            return error
        if saver is not None:  # chains are where the last look was
            saver.save(self._last.position)
        return None

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
        check_lengths(draws, max_seconds)
        last = self._last
        if self._broken and (last is None or last.position is None):
            raise ConfigurationError("more: the last run was broken off in a step; run anew")
        aims = None if until is None else Aims.of(self._recipe.host, until)
        if aims is not None and aims.detection < math.inf:
            raise ConfigurationError('more: "detection" is asked of run(); searches go on anyway')
        self._cut = False
        return self.run(
            aims,
            math.inf if max_seconds is None else max_seconds,
            progress,
            draws=None if draws is None else draws + self._kept,
            max_evaluations=max_evaluations,
        )
