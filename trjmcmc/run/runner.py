"""One run: from what is known, by a chosen kernel, to a result."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace

import torch
from torch import Tensor

from .. import clock
from ..draws import Draws, Pool, Recorder
from ..errors import InterruptedWarning, TRJError, warn_user
from ..estimate.mean import MANY_CHAINS
from ..estimate.routes import MIRRORED
from ..kernel.base import Kernel, State
from ..pilot.parts import Part
from ..progress import progress_bar
from ..result.report import Plan, RunReport
from ..result.result import Result
from .budget import SummingUpInTime, affordable, limited
from .chains import of_number
from .choice import Choice
from .choose import Chooser
from .choosers import chooser_of, counts_components
from .few_calls import propose, saving_calls
from .hurry import hurried_kernel, hurried_state
from .interrupts import import_whole
from .items import planted
from .knowledge import Knowledge
from .loop import Chains, first_of, last_of, run_chains, warm_up
from .maps import check_round_trip
from .precision import Numbers, examined, roundings
from .report import compared, expected_error, reached_error, result_of, routes_of
from .request import Request
from .sampling import SamplingPlan, Walk
from .screening import Discovery
from .start import given_starts, new_chains, prior_draws, starting_models
from .stop import Stop, Verdict
from .strategy import check_kernel
from .threads import threads_of_a_run


class Runner:
    """One run, and what is there of it where the user interrupts.

    Arguments:
        known: What is known of the target; it grows.
        request: What the user asks.
        stop: Says when there are enough draws.
        seed: The sampler's.
    """

    def __init__(self, known: Knowledge, request: Request, stop: Stop, seed: int) -> None:
        self.known, self.request, self.stop, self.seed = known, request, stop, seed
        self.target, self.generator, self.policy = known.target, known.generator, known.policy
        self.stage = "the start"
        self.chooser: Chooser | None = None
        self.kernel: Kernel | None = None
        self.state: State | None = None
        self.ancestor: Tensor | None = None  # the independent draw that each chain descends from
        self.chain: Chains | None = None
        self.walk: Walk | None = None
        self.discovery = Discovery(known, request, seed)
        self.missed = ""
        self.numbers = Numbers()
        self._parts: list[Part] = []  # that were met while sampling
        self._sooner: Choice | None = None  # what sampling is to go on with instead
        self._may_stop = False  # whether sampling may be set aside for them
        self.interrupted = False  # whether the user has stopped it before it had sampled
        self._bridge_seconds = 0.0  # kept for the symmetrised bridge; infinite: it is left out
        self._late = False  # whether sampling was ended by its time
        self._overflows = 0  # of the warm-up, which are forgiven

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
                self.request = saving_calls(self.known, self.request)
                account, most = self.known.spending.account, self.request.max_evaluations
                left = limits.enter_context(limited(self.target, account, most))
                with threads_of_a_run(self.known, self.request):
                    self._sample(left)
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
        if request.fit is True and known.trace is None and not proposed:
            self._fit(left())
        check_round_trip(known.target, known.transport, self.generator)
        choice = None
        if request.fit == "auto":
            choice = self._choose()
        else:
            self._warm_up(left)
        for again in range(self.policy.screening.reopenings + 1):
            assert self.state is not None  # rounding would be taken for modes
            self.numbers = examined(known, self.state, request).also(self.numbers.rounding)
            self.stage = "the screening"
            parts = self._examined(self.discovery.before_sampling())
            if not parts or again == self.policy.screening.reopenings or not self._may_reopen():
                break
            choice = self._reopen(parts)
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
        """Take up parts that were lost, and choose anew."""
        self.known.trainer.take_up(parts)
        self.discovery.taken_up()
        return self._choose()

    def _plant(self, state: State) -> Choice:
        """Move some chains to where they have not been, and choose anew from there."""
        state = planted(self.target, state, self.discovery.finds, self.generator)
        self.discovery.taken_up()
        return self._choose(state)

    def _examined(self, parts: list[Part]) -> list[Part]:
        """Lost parts, but for those that rounding has made."""
        found = roundings(self.known, parts, self.request, self.generator)
        self.numbers = self.numbers.also(next(filter(None, found), ""))
        return self.discovery.sound_of(parts, found)

    def _may_reopen(self) -> bool:
        """Whether lost parts can be taken up, and there is time to choose anew."""
        return self.known.fitted.audit is not None and self._may_choose

    @property
    def _may_choose(self) -> bool:
        """Whether there is time to choose anew."""
        return self.chooser is not None and clock.now() < self.chooser.adapt_by

    # ---- before sampling --------------------------------------------------------------------

    def _fit(self, most: int | None) -> None:
        """Train the map in full.

        Arguments:
            most: Likelihood calls that are left, or None without a limit.
        """
        request, shares = self.request, self.policy.shares
        self.stage = "the fit"
        share = self.known.strategy.fit_share(shares)
        late = request.begun + share * request.seconds
        trace = self.known.fit(
            max_evaluations=None if most is None else int(share * most),
            deadline=late,
            mend_until=late,
            progress=request.progress,
        )
        if trace.stopped == "interrupted":
            raise KeyboardInterrupt

    def _choose(self, given: State | None = None) -> Choice:
        """Find the kernel by measurement, training while that pays; warm chains up by it.

        Arguments:
            given: Chains to begin with; else new ones.
        """
        known, request, policy = self.known, self.request, self.policy
        make = chooser_of(self.target, self.policy)
        if not make.tempers:
            self.stage = "the pilot run"
            known.trainer.survey(progress=request.progress)
        self.stage = "the search for starts"
        begun = clock.now()
        if given is not None:
            assert self.ancestor is not None
            state, ancestor = given, self.ancestor
        elif request.start is not None and not make.tempers:
            n = max(request.chains, policy.chains.of_given_draws)
            state, ancestor = given_starts(self.target, request.start, n)
        elif make.tempers:
            least = max(request.chains, policy.chains.least_of_components)
            state, ancestor = prior_draws(self.target, least, self.generator, policy.starts)
            if counts_components(self.target):
                request = replace(request, most_chains=request.chains)
        else:
            code = starting_models(known, max(request.chains, policy.chains.of_given_draws))
            through = known.transport if known.ready else None
            state, ancestor = new_chains(known, code, through, request.deadline)
        self.chooser = make(request, known, state, ancestor)
        self.stage = "the choice of the moves"
        choice = self.chooser.choose()
        self.state = first_of(choice.state, request.chains)
        self.ancestor = choice.ancestor[: request.chains]
        self._warm_up_chosen(choice, request.warmup)
        trained = known.fitted.seconds.get("fit", 0.0) if choice.plan.rounds else 0.0
        known.spending.seconds["warmup"] = clock.now() - begun - trained
        return choice

    def _warm_up_chosen(self, choice: Choice, warmup: int | None) -> None:
        """Warm up with the kernel that was chosen, and weigh models through its map."""
        known, chooser, trace = self.known, self.chooser, self.known.trace
        assert chooser is not None and self.state is not None and self.ancestor is not None
        self.kernel = choice.kernel
        here = bool(choice.plan.rounds)  # else the trace is of an earlier fit
        if here and trace is not None and trace.stopped == "interrupted":
            raise KeyboardInterrupt
        self.stage = "the warm-up"
        check_kernel(self.target, self.kernel)
        before = len(self.state.code)
        if chooser.request.fewest_chains != chooser.request.most_chains:
            wanted, until = chooser.chains_for(choice, self.state), self.request.deadline
            self.state, self.ancestor = of_number(known, self.state, self.ancestor, wanted, until)
        made = choice.steps if len(self.state.code) <= before else 0  # of new chains none
        steps = max(choice.burn_in, choice.steps - made, 0 if warmup is None else warmup - made)
        until = clock.part_of_the_time_left(self.policy.shares.settling, chooser.adapt_by)
        self._advance(self.state, steps, until)
        known.remember(known.passed or choice.seen)
        known.use(None if known.ready else choice.map)
        unmapped = chooser.tempers and self.target.dim > 0 and not known.mapped
        if known.fitted.few and not unmapped and not known.is_weighed:
            known.trainer.keep(replace(known.fitted, score=known.trainer.scored(known.map)))
            known.weigh(until=chooser.adapt_by)
        if known.trace is not None:
            known.spot_check(self.request.deadline, self.request.progress)

    def _warm_up(self, left: Callable[[], int | None]) -> None:
        """Warm up chains by the strategy's kernel.

        Where there is a deadline, and the user leaves the length open, it takes a tenth of the
        time left; no more steps than otherwise where calls are limited.

        Arguments:
            left: Gives the likelihood calls that are left, or None without a limit.
        """
        known, request, shares = self.known, self.request, self.policy.shares
        chains, warmup = request.chains, request.warmup
        if warmup is None:
            half = (request.draws or 0) * request.thin // 2
            warmup = max(self.policy.chains.warm_up_steps, half)
        if known.ready or not known.strategy.chooses:
            known.use(None)  # not those that an earlier run has fitted
        self.stage = "the warm-up"
        remaining = left()
        few = self.policy.few_calls.weighing_share if request.calls_are_few else None
        until = clock.part_of_the_time_left(few or shares.warm_up, request.deadline)
        known.weigh(None if remaining is None else int((few or 0.5) * remaining), until)
        self.kernel = known.kernel(known.map)
        remaining = left()
        if remaining is not None:
            chains, warmup = affordable(remaining, chains, warmup, self.policy)
        begun, code = clock.now(), starting_models(known, chains)
        if request.start is None:
            self.state, self.ancestor = new_chains(known, code, known.map, request.deadline)
        else:
            self.state, self.ancestor = given_starts(self.target, request.start, chains)
        timed = request.warmup is None and request.limited
        until = request.deadline
        if timed:
            until = clock.part_of_the_time_left(shares.warm_up, request.deadline)
        least = until - clock.now() if timed else 0.0
        self._advance(self.state, warmup, until)
        pace = (clock.now() - begun) / max(warmup, 1)
        more = int(max(0.0, least / max(pace, 1e-12) - warmup)) if warmup else 0
        if more and remaining is None:  # calls are kept for sampling
            self._advance(self.state, more, until)
        known.spending.seconds["warmup"] = clock.now() - begun
        if remaining is None:
            known.spot_check(request.deadline, request.progress)

    def _advance(self, state: State, steps: int, until: float) -> None:
        """Warm-up steps, recorded for training alone."""
        assert self.kernel is not None
        with progress_bar(self.request.progress, total=steps, desc="warm-up", unit="step") as bar:
            self.kernel, self.state, passed = warm_up(
                self.kernel,
                state,
                steps,
                self.target,
                self.generator,
                on_step=bar.update,
                deadline=until,
                points=self.policy.training.replayed_points,
            )
        self.known.remember(passed)

    # ---- sampling ---------------------------------------------------------------------------

    def _record(self) -> Verdict:
        """Sample until there are enough draws; the verdict that ended it."""
        kernel, state, stop, request = self.kernel, self.state, self.stop, self.request
        assert kernel is not None and state is not None
        self.stage, end = "the sampling", stop.deadline
        self._bridge_seconds = self.known.bridge_seconds(end, 3 * MIRRORED)
        kept = self._bridge_seconds if math.isfinite(self._bridge_seconds) else 0.0
        begun, self._overflows = clock.now(), int(self.known.spending.account.overflows)
        crosses = self.known.fitted.few and self.target.space.several
        many = len(state.code) >= MANY_CHAINS  # of few, errors rest on autocorrelations
        thins = request.thin > 1 or request.draws is None  # else every step is kept
        plan = SamplingPlan(self.target, kernel, crosses, crosses and many and thins)
        self.walk = walk = Walk(plan, state, self.generator, self.ancestor)
        verdict = Verdict.GO_ON
        self.discovery.sampling_begins()

        def sum_up(recorder: Recorder) -> None:
            self.stage, counted = "a rehearsal", walk.crossings
            seen = None if counted is None else counted.result()
            self._rehearse(Chains(recorder.draws(), state, "enough", crossings=seen))
            self.stage = "the sampling"

        summary = SummingUpInTime(sum_up, stop, end - kept, self.policy.summing_up)
        with progress_bar(request.progress, total=request.draws, desc="sample", unit="draw") as bar:

            def on_draw(recorder: Recorder) -> None:
                if stop.progress:
                    bar.set_postfix_str(stop.progress, refresh=False)
                bar.update()

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
                walk, draws=request.draws, thin=request.thin, enough=enough, on_draw=on_draw
            )
        self.known.spending.spend("sample", clock.now() - begun)
        self._late = clock.now() >= stop.deadline
        stop.set_deadline(end)
        return verdict

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
            self._sum_up(chain.draws, chain, RunReport(), spare=0.0).warn()

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
        assert chain is not None and self.walk is not None and self.kernel is not None
        record = chain.draws
        plan = Plan() if self.chooser is None else self.chooser.plan
        settings = {k.name: k.adapted() | k.seen(chain.state) for k in self.kernel.parts()}
        settings = {name: found for name, found in settings.items() if found}
        report = RunReport(
            acceptance=self.walk.tally.rates(),
            fit=known.spending.news(trace),
            seconds={**known.fitted.seconds, **known.spending.seconds},
            steps=record.n_draws * record.thin,
            seed=self.seed,
            interrupted=self.interrupted or chain.stopped == "interrupted",
            budget_spent=chain.stopped == "budget",
            overflows=int(self.known.spending.account.overflows) - self._overflows,
            audit=known.audit_report,
            plan=replace(plan, settings=settings),
            out_of_time=chain.stopped == "enough" and self._late,
            missed=self.missed,
            screening=self.discovery.said,
            precision=self.known.precision,
            rounding=self.numbers.rounding,
            unresolved=self.numbers.unresolved,
            expected_error=expected_error(self.chooser.chosen if self.chooser else None, record),
            reached_error=reached_error(self.stop.space, record),
        )
        spare = 0.0
        if math.isfinite(self._bridge_seconds):
            spare = self.policy.shares.symmetrised_bridge * known.spending.evaluations
        if chain.error is None and not self.interrupted:
            report = replace(report, variational=known.variational_answer(record))
        if self.request.start is not None:
            report = replace(report, start=compared(self.stop.space, self.request.start, record))
        result = self._sum_up(record, chain, report, spare)
        known.spending.close(trace)
        if chain.error is not None:
            raise chain.error.carrying(result)
        result.warn()
        return result

    def _sum_up(self, record: Draws, chain: Chains, report: RunReport, spare: float) -> Result:
        """Weigh and bridge as far as there is time, then build the result.

        Arguments:
            record, chain: Draws, and the chains that they are of.
            report: How the run went so far.
            spare: Evaluations that the symmetrised bridge may take.
        """
        known = self.known
        log_weights, routes = routes_of(
            known, record, chain, weighs=not self.interrupted, spare=spare
        )
        report = replace(  # weighing included
            report,
            audit=known.audit_report,
            evaluations=known.spending.evaluations,
            gradients=known.spending.gradients,
        )
        return result_of(known, record, chain, report, log_weights, routes)
