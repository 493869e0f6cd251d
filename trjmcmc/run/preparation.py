"""What a run does before it samples: a fit, the choice of its moves, the warm-up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from .. import clock
from ..kernel.base import Kernel, State
from ..progress import LOGGER, progress_bar
from .budget import affordable
from .chains import of_number
from .choice import Choice
from .choose import Chooser
from .choosers import chooser_of, counts_components
from .knowledge import Knowledge
from .loop import first_of, warm_up
from .request import Request
from .saving import Saver
from .start import given_starts, new_chains, prior_draws, starting_models
from .strategy import check_kernel


class Preparation:
    """A run until its chains are where they may be recorded, and its kernel is frozen.

    Arguments:
        known: What is known of the target; it grows.
        request: What the user asks.
        saver: Writes the run into a folder, or None.

    Attributes:
        kernel, state: What there is of them by now.
        ancestor: The independent draw that each chain descends from, shape (C,).
    """

    def __init__(self, known: Knowledge, request: Request, saver: Saver | None) -> None:
        self.known, self.request, self.saver = known, request, saver
        self.target, self.generator, self.policy = known.target, known.generator, known.policy
        self._stage = "the start"
        self.chooser: Chooser | None = None
        self.kernel: Kernel | None = None
        self.state: State | None = None
        self.ancestor: Tensor | None = None

    @property
    def stage(self) -> str:
        """What it is at, in words; a new one is logged, and told in the folder of the run."""
        return self._stage

    @stage.setter
    def stage(self, stage: str) -> None:
        if stage == self._stage:
            return
        self._stage = stage
        if self.request.progress:
            LOGGER.info("%s", stage)
        if self.saver is not None:
            self.saver.tell("stage", stage=stage)

    def _fit(self, most: int | None) -> None:
        """Train the map in full.

        Arguments:
            most: Likelihood calls that are left, or None without a limit.
        """
        request, shares = self.request, self.policy.shares
        self.stage = "the fit"
        share = self.known.strategy.fit_share(shares)
        if request.fit == "auto":
            share = min(share, shares.fit_before_choice)
        late = request.begun + share * request.seconds
        known, saver = self.known, self.saver
        grown = None if saver is None else lambda: saver.learnt(known)
        between = None if saver is None else lambda: saver.passing(known)
        with known.trainer.telling(grown, between):
            trace = known.fit(
                by=request.by,
                max_evaluations=None if most is None else int(share * most),
                deadline=late,
                mend_until=late,
                progress=request.progress,
            )
        if trace.stopped == "interrupted":
            raise KeyboardInterrupt
        if self.saver is not None:
            self.saver.learnt(self.known)

    def _choose(self, given: State | None = None, again: bool = False) -> Choice:
        """Find the kernel by measurement, training while that pays; warm chains up by it.

        Arguments:
            given: Chains to begin with; else new ones.
            again: Go on with what was chosen before where that is to be had.
        """
        known, request, policy = self.known, self.request, self.policy
        make = chooser_of(self.target, self.policy)
        if not make.tempers:
            self.stage = "the pilot run"
            before = known.fitted.audit
            known.trainer.survey(progress=request.progress)
            if self.saver is not None and known.fitted.audit is not before:
                self.saver.learnt(known)
        self.stage = "the search for starts"
        begun, before_it = clock.now(), known.spending.total
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
        self.stage = "the choice of the moves"
        if again and self.chooser is not None and self.chooser.goes_on:
            choice = self.chooser.again(state, ancestor)
        else:
            self.chooser = make(request, known, state, ancestor)
            choice = self.chooser.choose()
        self.state = first_of(choice.state, request.chains)
        self.ancestor = choice.ancestor[: request.chains]
        self._warm_up_chosen(choice, request.warmup)
        trained = known.fitted.seconds.get("fit", 0.0) if choice.plan.rounds else 0.0
        elsewhere = trained + known.spending.total - before_it  # the weighing of models
        known.spending.spend("warmup", max(0.0, clock.now() - begun - elsewhere))
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
