"""One run: from what is known, by a chosen kernel, to a result."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace

import torch

from .. import clock
from ..draws import Draws, Pool, Recorder
from ..errors import InterruptedWarning, TRJError, warn_user
from ..estimate.routes import MIRRORED
from ..kernel.base import State
from ..pilot.parts import Part
from ..progress import progress_bar
from ..result.report import Plan, RunReport
from ..result.result import Result
from .begun import Begun
from .budget import SummingUpInTime, limited
from .capture import off_target
from .choice import Choice
from .few_calls import propose, saving_calls
from .hurry import hurried_kernel, hurried_state
from .interrupts import import_whole
from .items import planted
from .knowledge import Knowledge
from .loop import Chains, last_of, run_chains
from .maps import check_round_trip
from .precision import Numbers, examined, roundings
from .preparation import Preparation
from .report import compared, expected_error, reached_error, summed_up
from .request import Request
from .resumed import Resumed
from .sampling import Walk
from .saving import Saver
from .screening import Discovery
from .stop import Stop, Verdict
from .threads import threads_of_a_run

PLAIN = "steps not captured: runs that are saved, or in shards, make plain ones"


class Runner(Preparation):
    """One run, and what is there of it where the user interrupts.

    Arguments:
        known: What is known of the target; it grows.
        request: What the user asks.
        stop: Says when there are enough draws.
        seed: The sampler's.
        resumed: A run between two draws to go on with, or None.
        saver: Writes the run into a folder, or None.
    """

    def __init__(
        self,
        known: Knowledge,
        request: Request,
        stop: Stop,
        seed: int,
        resumed: Resumed | None = None,
        saver: Saver | None = None,
    ) -> None:
        super().__init__(known, request, saver)
        self.stop, self.seed, self.begun = stop, seed, Begun(known, saver, resumed)
        self.chain: Chains | None = None
        self.discovery = Discovery(known, request, seed)
        self.missed = ""
        self.numbers = Numbers()
        self._parts: list[Part] = []  # that were met while sampling
        self._sooner: Choice | None = None  # what sampling is to go on with instead
        self._may_stop = False  # whether sampling may be set aside for them
        self._goes_on = False  # with the draws of an earlier call
        self.interrupted = False  # whether the user has stopped it before it had sampled
        self._bridge_seconds = 0.0  # kept for the symmetrised bridge; infinite: it is left out
        self._late = False  # whether sampling was ended by its time
        self._left: Resumed | None = None

    def run(self) -> Result:
        """Fit if that is asked for, warm up, sample, sum up.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed again, or before there was anything to start from.
            TRJError: See :meth:`trjmcmc.TRJSampler.run`.
        """
        self.known.begin()
        with self.known.trainer.within(self.request.deadline), ExitStack() as limits:
            try:
                import_whole()
                if self.begun.resumed is None:
                    self.request = saving_calls(self.known, self.request)
                account, most = self.known.spending.account, self.request.max_evaluations
                left = limits.enter_context(limited(self.target, account, most))
                with threads_of_a_run(self.known, self.request):
                    if self.begun.resumed is None:
                        self._sample(left)
                    else:
                        self._go_on(self.begun.resumed)
                return self._finish()
            except KeyboardInterrupt:
                if self.chain is not None and self.chain.stopped == "interrupted":
                    raise  # the second time
                self._end_interrupted()
            return self._finish()

    def _sample(self, left: Callable[[], int | None]) -> None:
        """All but the summing up.

        Arguments:
            left: Gives the likelihood calls that are left, or None without a limit.
        """
        request, known = self.request, self.known
        proposed = request.calls_are_few and self._propose(left)
        by = None if known.trace is None else known.trace.by
        fitted = by is not None and known.trainer.step is None and request.by in (None, by)
        if (request.fit is True or request.by) and not fitted and not proposed:
            self._fit(left())
        check_round_trip(known.target, known.transport, self.generator)
        choice = None
        if request.fit == "auto":
            choice = self._choose()
        else:
            self._warm_up(left)
        self._until_done(self._screened(choice))

    def _screened(self, choice: Choice | None) -> Choice | None:
        """Take up what looks for lost modes meet, until they meet little; what was chosen then."""
        known, policy = self.known, self.policy.screening
        met, looks = math.inf, policy.reopenings
        while True:
            assert self.state is not None  # rounding would be taken for modes
            self.numbers = examined(known, self.state, self.request).also(self.numbers.rounding)
            if met < policy.look_again_share:
                return choice
            self.stage = "the screening"
            parts = self._examined(self.discovery.before_sampling())
            if not parts or not looks or not self._may_reopen():
                return choice
            met, looks = self.discovery.share_of_all(parts), looks - 1
            choice = self._reopen(parts)

    def _go_on(self, before: Resumed) -> None:
        """Sample on, without a pilot run, a choice or a warm-up."""
        self.kernel, self.state = before.planned.kernel, State(*before.shard[:3])
        self.ancestor, self.numbers = before.ancestor, before.planned.numbers
        self.discovery.note(before.planned.said)
        self._until_done(None)

    def _until_done(self, choice: Choice | None) -> None:
        """Sample until there is enough, and say what is missing."""
        self._record_until_done(choice)
        self.stage = "the summing up"
        assert self.chain is not None
        self.missed = self.stop.missed(self.chain.draws)

    def _record_until_done(self, choice: Choice | None) -> None:
        """Sample; begin anew where lost parts are met, or other moves would be sooner."""
        reopenings = self.policy.screening.late_reopenings
        while True:
            self._may_stop = reopenings > 0
            self.stop.reset()
            if choice is not None and (choice.trainable or self.known.fitted.audit is not None):
                self.stop.look_back(choice.hoped_seconds, self.request.error)
            found = self._record()
            assert self.chain is not None
            if self.chain.stopped not in {"draws", "enough"}:
                return
            if found is Verdict.RETHINK and self.discovery.finds and self._may_stop:
                choice, reopenings = self._plant(self.chain.state), reopenings - 1
                continue
            if found is Verdict.RETHINK and not self._parts:
                choice, self.state = self._sooner, self.chain.state
                assert choice is not None
                self._warm_up_chosen(choice, None)
                continue
            if found is not Verdict.RETHINK:
                parts = self._examined(self.discovery.among(self._later(self.chain.draws)))
                self._parts = parts if self._may_stop and self._may_reopen() else []
            if not self._parts:
                return
            choice, reopenings = self._reopen(self._parts), reopenings - 1
            self._parts = []

    def _later(self, draws: Draws) -> Pool:
        """Later draws of the chains, to learn from."""
        return draws.second_half(self.policy.training.taught_draws, self.target.device)

    def _propose(self, left: Callable[[], int | None]) -> bool:
        """Find proposals by importance sampling; whether they are good enough."""
        self.stage = "the search for proposals"
        found = propose(self.known, left() or 0, self.request.left())
        self.discovery.note(found or ())
        return found is not None

    def _reopen(self, parts: list[Part]) -> Choice:
        """Take up parts that were lost, in starts and maps; choose anew if these are trained."""
        self.known.trainer.take_up(parts)
        self.discovery.taken_up()
        return self._choose(again=True)

    def _plant(self, state: State) -> Choice:
        """Move some chains to where they have not been, and choose anew from there."""
        state = planted(self.target, state, self.discovery.finds, self.generator)
        self.discovery.taken_up()
        return self._choose(state)

    def _examined(self, parts: list[Part]) -> list[Part]:
        """Lost parts, but for those that rounding has made."""
        found = roundings(self.known, parts, self.request, self.discovery.fresh_generator())
        self.numbers = self.numbers.also(next(filter(None, found), ""))
        return self.discovery.sound_of(parts, found)

    def _may_reopen(self) -> bool:
        """Whether lost parts can be taken up, and there is time to choose anew."""
        return self.known.fitted.audit is not None and self._may_choose

    @property
    def _may_choose(self) -> bool:
        """Whether there is time to choose anew, in a run that a folder goes on with too."""
        if self.chooser is not None:
            return clock.now() < self.chooser.adapt_by
        settled, request = self.begun.settled, self.request
        chose = settled is not None and settled.plan.automatic and self.saver is not None
        return chose and clock.now() < request.adapt_by(self.policy.shares.sampling)

    # ---- sampling ---------------------------------------------------------------------------

    def _record(self) -> Verdict:
        """Sample until there are enough draws; the verdict that ended it."""
        stop, request = self.stop, self.request
        self.stage, end = "the sampling", stop.deadline
        self._bridge_seconds = self.known.bridge_seconds(end, 3 * MIRRORED)
        kept = self._bridge_seconds if math.isfinite(self._bridge_seconds) else 0.0
        walk, record = self._begin()
        begun, before = clock.now(), self.known.spending.total
        verdict = Verdict.GO_ON
        self.discovery.sampling_begins()

        def sum_up(recorder: Recorder) -> None:
            self.stage, counted = "a rehearsal", walk.crossings
            seen = None if counted is None else counted.result()
            self._rehearse(Chains(recorder.draws(), walk.state, "enough", crossings=seen))
            self.stage = "the sampling"

        summary = SummingUpInTime(sum_up, stop, end - kept, self.policy.summing_up)
        with progress_bar(request.progress, total=request.draws, desc="sample", unit="draw") as bar:
            bar.update(record.kept)

            def on_draw(recorder: Recorder) -> None:
                if stop.progress:
                    bar.set_postfix_str(stop.progress, refresh=False)
                bar.update()
                if self.saver is not None:
                    self.saver.drawn(self.known, walk, recorder, stop)

            def enough(recorder: Recorder) -> bool:
                nonlocal verdict
                summary(recorder)
                found = stop(recorder)
                further = found is Verdict.GO_ON and self._may_stop and self.discovery.is_due
                if further or found is Verdict.RETHINK:
                    found = self._second_thoughts(recorder, further)
                    bar.unpause()  # something else took its time meanwhile
                verdict = found
                return bool(verdict)

            self.chain = run_chains(
                walk,
                record,
                draws=request.draws,
                enough=enough,
                on_draw=on_draw,
                waits=self.saver is not None,
            )
        if self.saver is not None and walk.whole:
            self.saver.save(self.known, walk, record, stop)
        if walk.capturing:
            self.known.spending.spend("capture", walk.capturing)
        elsewhere = self.known.spending.total - before  # looks for lost modes meanwhile, captures
        self.known.spending.spend("sample", clock.now() - begun - elsewhere)
        self._late = clock.now() >= stop.deadline
        stop.set_deadline(end)
        return verdict

    def _begin(self) -> tuple[Walk, Recorder]:
        """Chains and their record: new ones, or those to go on with."""
        begun, chooser = self.begun, self.chooser
        self._goes_on |= begun.resumed is not None
        if begun.resumed is None:
            assert self.kernel is not None and self.state is not None
            found = None if chooser is None else (chooser.plan, chooser.chosen)
            begun.anew(
                self.kernel,
                self.state,
                self.ancestor,
                self.request,
                found or (Plan(), None),
                self.numbers,
                self.discovery.said,
            )
        else:
            begun.again(self.request, self.stop)
        walk, record = begun.walk, begun.record
        assert walk is not None and record is not None
        walk.capture(self._captures, self._ahead, self.policy.capture)
        return walk, record

    @property
    def _captures(self) -> bool | str:
        """How steps are captured; by measured times only where no file promises the same bits."""
        asked = self.request.compile
        return False if asked == "auto" and self.saver is not None else asked

    def _ahead(self) -> float:
        """Seconds of sampling ahead, as far as is known."""
        record = self.begun.record
        return 0.0 if record is None else self.stop.ahead(record, self.request.draws)

    def left(self) -> Resumed | None:
        """What a later call may go on from; None where there is nothing whole."""
        return self._left

    def _second_thoughts(self, recorder: Recorder, further: bool) -> Verdict:
        """Whether sampling is to be set aside.

        Arguments:
            recorder: The draws so far.
            further: Look for lost modes only.
        """
        look, later = self.discovery, self._later(recorder.so_far())
        left = self.stop.deadline - clock.now()
        parts = self._examined(look.meanwhile(later, left) if further else look.among(later))
        self._parts = parts if self._may_stop and self._may_reopen() else []
        if look.finds and self._may_stop and self._may_choose:
            return Verdict.RETHINK
        self._sooner = None if further or self._parts else self._reconsider(recorder, later)
        return Verdict.RETHINK if self._parts or self._sooner else self.stop.so_far()

    def _reconsider(self, recorder: Recorder, later: Pool) -> Choice | None:
        """Other moves, or a trained map, that end sooner than sampling on; None if none do."""
        chooser, kernel, begun = self.chooser, self.kernel, clock.now()
        to_go, request = self.stop.seconds_to_go, self.request
        if chooser is None or kernel is None or not chooser.has_ideas(to_go):
            return None
        self.stage = "the choice of other moves"
        with torch.enable_grad():
            choice = chooser.after_all(last_of(recorder, self.target), later, to_go)
        self.stop.set_aside(clock.now() - begun)
        self.stage = "the sampling"
        return choice if choice.ends_sooner(kernel, to_go, request, self.policy) else None

    def _rehearse(self, chain: Chains) -> None:
        """Sum up what is there so far, and throw it away."""
        with warnings.catch_warnings(), suppress(TRJError):
            warnings.simplefilter("ignore")
            self._sum_up(chain, RunReport(), spare=0.0).warn()

    # ---- interrupts -------------------------------------------------------------------------

    def _end_interrupted(self) -> None:
        """Go on from where the user has interrupted to a result, with a second of sampling.

        Where draws are there these are taken, and evidences through the map left out.
        """
        known, stage = self.known, self.stage
        self.interrupted = True
        if self.chain is not None:
            warn_user(
                f"interrupted in {stage}: the result holds {self.chain.draws.n_draws} draws a "
                "chain, and no evidences through the map",
                InterruptedWarning,
            )
            return
        self.saver = None
        self.begun.unsaved()
        deadline = clock.now() + self.policy.summing_up.interrupted_seconds
        self.stop = Stop(self.stop.space, None, deadline, self.policy.stopping)
        with known.trainer.within(deadline):
            known.trainer.salvage()
        if self.kernel is None and self.chooser is not None:
            self.kernel = self.chooser.so_far()
        if self.kernel is None:
            self.kernel = hurried_kernel(known)
        if self.state is None:
            bench = None if self.chooser is None else self.chooser.bench
            self.state, self.ancestor = hurried_state(known, self.request.chains, bench)
        self.request = replace(self.request, thin=1)
        self._record()
        assert self.chain is not None
        warn_user(
            f"interrupted in {stage}: the result rests on {self.chain.draws.n_draws} draws a chain "
            "of the second after that, and its errors are those of a run that has hardly begun",
            InterruptedWarning,
        )

    # ---- the result -------------------------------------------------------------------------

    def _finish(self) -> Result:
        """Sum up, and warn of what is doubtful."""
        known, chain, trace = self.known, self.chain, self.known.trace
        walk, settled = self.begun.walk, self.begun.settled
        assert chain is not None and walk is not None and settled is not None
        record = chain.draws
        self._left = self.begun.left(record)  # before the summing up draws random numbers
        plan, chosen = settled.plan, settled.chosen
        if self.chooser is not None:
            plan, chosen = self.chooser.plan, self.chooser.chosen
        settings = {k.name: k.adapted() | k.seen(chain.state) for k in settled.kernel.parts()}
        settings = {name: found for name, found in settings.items() if found}
        report = RunReport(
            acceptance=walk.tally.rates(),
            fit=known.spending.news(trace),
            seconds={**known.fitted.seconds, **known.spending.seconds},
            steps=record.n_draws * record.thin,
            seed=self.seed,
            interrupted=self.interrupted or chain.stopped == "interrupted",
            budget_spent=chain.stopped == "budget",
            overflows=int(self.known.spending.account.overflows) - settled.overflows,
            audit=known.audit_report,
            plan=replace(plan, settings=settings),
            out_of_time=chain.stopped == "enough" and self._late,
            draws_asked=self.request.draws,
            missed=self.missed,
            screening=self.discovery.said,
            precision=self.known.precision,
            rounding=self.numbers.rounding,
            unresolved=self.numbers.unresolved,
            expected_error=expected_error(chosen, record),
            reached_error=reached_error(self.stop.space, record),
            off_target=self._off_target(walk, record),
            captured=walk.captured or ((PLAIN,) if self.request.compile else ()),
            thinned=self.begun.thinned(self.request.thin),
            unaudited=known.unaudited,
        )
        spare = 0.0
        if math.isfinite(self._bridge_seconds):
            spare = self.policy.shares.symmetrised_bridge * known.spending.evaluations
        known.note(self.discovery.said)
        if chain.error is None and not self.interrupted:
            report = replace(report, variational=known.variational_answer(record))
        if self.request.start is not None:
            report = replace(report, start=compared(self.stop.space, self.request.start, record))
        result = self._sum_up(chain, report, spare)
        known.spending.close(trace)
        if self.saver is not None:
            why = str(chain.error) if chain.error is not None else chain.stopped
            self.saver.tell("ended", why=why, kept=record.n_draws, missed=self.missed or None)
        if chain.error is not None:
            raise chain.error.carrying(result)
        result.warn()
        return result

    def _off_target(self, walk: Walk, record: Draws) -> str:
        """How far draws of captured steps are from the target, in words, earlier calls' too."""
        if not walk.has_captured and not (self.request.compile and self._goes_on):
            return ""
        most = self.policy.capture.kept_draws
        return off_target(self.known.target, record, most, self.request.deadline)

    def _sum_up(self, chain: Chains, report: RunReport, spare: float) -> Result:
        return summed_up(self.known, chain, report, weighs=not self.interrupted, spare=spare)
