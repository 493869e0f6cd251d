"""A run in shards: planned here, sampled by workers, summed up here."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from .. import clock
from ..draws import Recorder
from ..errors import BudgetError, InterruptedWarning, PoolError, TRJError, warn_user
from ..estimate.mean import MANY_CHAINS
from ..estimate.routes import MIRRORED
from ..progress import progress_bar
from ..result.report import Plan
from ..transport.base import Transport
from .budget import SummingUpInTime
from .choice import Choice
from .choosers import chooser_of
from .crew import Crew, Grid
from .loop import Chains
from .memories import Memories
from .resumed import Planned, Resumed
from .runner import Runner
from .sampling import SamplingPlan, Shard
from .shard_rounds import Lane, Rounds
from .shard_work import Done, Start, Work
from .start import given_starts, starting_models
from .stop import Verdict
from .team import Team, numbers_of

STARTING_SHARE = 0.3  # of the time left that all shards may take to start and burn in

STARTING_CALLS = 0.2  # of the likelihood calls left, likewise


def runner_of(grid: Grid | None, *args: Any) -> Runner:
    """One run, in shards or in one batch; arguments as of :class:`~trjmcmc.run.runner.Runner`."""
    return Runner(*args) if grid is None else ShardedRunner(grid, *args)


class ShardedRunner(Runner):
    """A run whose draws are made by shards, each with chains and random numbers of its own.

    Pilot run, fit, choice of the moves and warm-up are those of any run, made here. Then the kernel
    is frozen, shards start anew by what the pilot run has found, burn in, and make their draws in
    blocks, each a function of the plan and the shard's state.

    Arguments:
        grid: The shards.
        args, settings: As of :class:`~trjmcmc.run.runner.Runner`.
    """

    def __init__(self, grid: Grid, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.grid, self._warmed = grid, 0

    def _choose(self, *args: Any) -> Choice:
        self._warmed = 0
        return super()._choose(*args)

    def _advance(self, state: Any, steps: int, until: float) -> None:
        super()._advance(state, steps, until)
        self._warmed += steps

    def left(self) -> Resumed | None:
        """Nothing: shards go on in their folder."""
        return None

    # ---- the plan -----------------------------------------------------------------------------

    def _settled(self) -> Planned:
        """What does not change while shards sample."""
        known, chooser, request = self.known, self.chooser, self.request
        assert self.kernel is not None and self.state is not None
        crosses = known.fitted.few and known.target.space.several
        many = self.grid.shards * len(self.state.code) >= MANY_CHAINS
        visits = crosses and many and (request.thin > 1 or request.draws is None)
        plan, chosen = (Plan(), None) if chooser is None else (chooser.plan, chooser.chosen)
        forgiven = int(known.spending.account.overflows)
        settings = plan, chosen, self.numbers, self.discovery.said, forgiven
        return Planned(self.kernel, crosses, visits, *settings)

    @property
    def _common(self) -> bool:
        """Whether shards branch off the chains of the warm-up, which have been tempered together.

        Where components or edges are counted there is no pilot run that gives each its own start.
        """
        return self.request.fit == "auto" and chooser_of(self.target, self.policy).tempers

    def _places(self) -> list[Start]:
        """Where each shard starts."""
        known, target, shards = self.known, self.target, self.grid.shards
        assert self.state is not None and self.kernel is not None
        chains, given = len(self.state.code), self.request.start
        if self._common:
            code, theta, log_joint, memo = self.state
            owner = Memories(self.kernel, target).place_of(memo)
            values = () if memo is None or owner < 0 else memo.values
            return [Start(code, theta, log_joint, values, owner, self.ancestor)] * shards
        if given is not None:
            state, ancestor = given_starts(target, given, shards * chains)
            rows = [slice(number, None, shards) for number in range(shards)]
            code, theta, log_joint, _ = state
            return [Start(code[r], theta[r], log_joint[r], ancestor=ancestor[r]) for r in rows]
        places = []
        for _ in range(shards):
            code = starting_models(known, chains)
            if known.fitted.audit is None:
                places.append(Start(code))
                continue
            theta, _, ancestor = known.fitted.audit.draw(target.space.index(code))
            places.append(Start(code, theta, ancestor=ancestor))
        return places

    def _work(self, settled: Planned, choice: Choice | None) -> Work:
        """What all shards have in common."""
        known, request = self.known, self.request
        plan = SamplingPlan(known.target, settled.kernel, settled.crosses, settled.visits)
        through: Transport | None = known.map
        if choice is not None:
            through = known.transport if known.ready else None
        steps = self._warmed if choice is None else max(self._warmed, choice.steps)
        if math.isfinite(account_left := known.spending.account.left):
            each = self.policy.chains.evaluations_a_step * self._chains * self.grid.shards
            steps = min(steps, int(STARTING_CALLS * account_left) // each)
        begins = known.fitted.audit is None and request.start is None and not self._common
        transport = known.transport if begins else None
        return Work(plan, self.seed, steps, through, transport, self.policy)

    @property
    def _chains(self) -> int:
        assert self.state is not None
        return len(self.state.code)

    # ---- sampling -----------------------------------------------------------------------------

    def _until_done(self, choice: Choice | None) -> None:
        """Sample by shards until there is enough, and say what is missing."""
        self.stage = "the sampling"
        before, settled = self.begun.resumed, self.begun.settled
        if before is None or settled is None:
            settled = self._settled()
            work, lanes = self._work(settled, choice), [Lane(p) for p in self._places()]
            record = self._record_of(lanes)
        else:
            work = self._work(settled, None)
            lanes = [Lane(None, shard, shard) for shard in shards_of(before)]
            record = before.recorder(self.request.draws)
        crew = Crew(self.grid.executor, work)
        each = record.chains // self.grid.shards
        numbers = each * (self.target.space.code_width + self.target.dim + 1)
        draws = self.request.draws
        rounds = Rounds(crew, lanes, record, draws, numbers, common=self._common)
        try:
            self._sample_rounds(rounds, settled, work.plan, before)
        finally:
            crew.close()
        assert self.chain is not None
        if self.chain.error is None and self.chain.stopped != "interrupted":
            later = self._later(self.chain.draws)
            self._examined(self.discovery.among(later))  # for the report: nothing begins anew
        self.stage = "the summing up"
        self.missed = self.stop.missed(self.chain.draws)

    def _record_of(self, lanes: list[Lane]) -> Recorder:
        assert self.state is not None
        n, request = self.grid.shards, self.request
        code, theta = self.state.code.repeat(n, 1), self.state.theta.repeat(n, 1)
        return Recorder(request.draws, code, theta, request.thin, None)

    def _sample_rounds(
        self, rounds: Rounds, settled: Planned, plan: SamplingPlan, before: Resumed | None
    ) -> None:
        """Sample until there is enough, time is up, or something fails."""
        stop, record, begun, end = self.stop, rounds.recorder, clock.now(), self.stop.deadline
        failure: TRJError | None = None
        try:
            self._start(rounds)
            team = Team(plan, rounds.closed(), None)
            self.begun.by_shards(settled, team, record, stop)
            stopped = self._go_through(rounds, team, anew=before is None)
        except KeyboardInterrupt:
            if not record.kept:
                raise
            stopped = "interrupted"
            warn_user(
                f"interrupted after {record.kept} draws a chain; the result holds them",
                InterruptedWarning,
            )
        except BudgetError:
            if not record.kept:
                raise
            stopped = "budget"
        except TRJError as error:
            if not record.kept:
                raise
            stopped, failure = "error", error
        if not record.kept:
            raise PoolError("run: no block of draws was done before the time was up; give it more")
        team = Team(plan, rounds.closed(), None)
        if self.saver is not None:
            self.saver.save(self.known, team, record, stop)
        self.known.spending.spend("sample", clock.now() - begun)
        self._late = stopped == "enough" and not stop.reached
        stop.set_deadline(end)
        self.chain = self._joined(team, record, stopped, failure)

    def _go_through(self, rounds: Rounds, team: Team, anew: bool) -> str:
        """Close round after round; what ended that, as of :class:`~trjmcmc.run.loop.Chains`."""
        stop, record, request = self.stop, rounds.recorder, self.request
        self._bridge_seconds = self.known.bridge_seconds(stop.deadline, 3 * MIRRORED)
        kept = self._bridge_seconds if math.isfinite(self._bridge_seconds) else 0.0
        if anew:
            stop.reset()

        def sum_up(recorder: Recorder) -> None:
            self.stage = "a rehearsal"
            self._rehearse(self._joined(team, recorder, "enough", None))
            self.stage = "the sampling"

        summary = SummingUpInTime(sum_up, stop, stop.deadline - kept, self.policy.summing_up)
        verdict = stop(record) if record.kept else Verdict.GO_ON
        since = clock.now()
        with progress_bar(request.progress, total=request.draws, desc="sample", unit="draw") as bar:
            bar.update(record.kept)
            while not verdict and rounds.send(stop.deadline - clock.now(), self._calls_left):
                self._take_in(rounds)
                while not verdict and (n := rounds.close(clock.now() - since)):
                    since = clock.now()
                    team.go_to(rounds.closed())
                    summary(record)
                    verdict = stop(record)
                    bar.set_postfix_str(stop.progress, refresh=False)
                    bar.update(n)
                    if self.saver is not None:
                        self.saver.drawn(self.known, team, record, stop)
                verdict = verdict or stop.so_far()
        if verdict:
            return "enough"
        if record.kept == request.draws:
            return "draws"
        return "budget" if math.isfinite(self._calls_left) else "enough"  # no further round fits

    def _start(self, rounds: Rounds) -> None:
        """Let shards start and burn in."""
        seconds, crew = self.stop.deadline - clock.now(), rounds.crew
        if math.isfinite(seconds):
            at_once = min(crew.workers() or self.grid.shards, self.grid.shards)
            seconds *= STARTING_SHARE * max(at_once, 1) / self.grid.shards
        calls = STARTING_CALLS * self._calls_left / self.grid.shards
        limit = 2 * calls if math.isfinite(calls) else math.inf  # starts beside the burn-in
        rounds.begin(limit, seconds, self.policy.starts.candidates)
        while not rounds.begun and clock.now() < self.stop.deadline:
            self._take_in(rounds)
        if not rounds.begun:
            raise PoolError(
                "run: not all shards had started before the time was up; give it more, more "
                "workers, or fewer shards"
            )

    @property
    def _calls_left(self) -> float:
        account = self.known.spending.account
        return min(account.left, self.target.account.left)

    def _take_in(self, rounds: Rounds) -> None:
        """Take up what tasks have done, their likelihood calls too."""
        for key, found in rounds.crew.arrived():
            rounds.take(key, found)
            if not rounds.crew.local and isinstance(found, Done):
                self.target.account.add(
                    evaluations=found.evaluations,
                    gradients=found.gradients,
                    overflows=torch.tensor(found.overflows, device=self.target.device),
                )

    # ---- the result ---------------------------------------------------------------------------

    def _joined(
        self, team: Team, recorder: Recorder, stopped: str, failure: TRJError | None
    ) -> Chains:
        """The draws of all shards, chains side by side."""
        record = recorder.draws()
        record = replace(record, run=numbers_of(self.grid.shards, record.n_chains))
        if team.visits is not None and record.thin > 1:
            record = replace(record, shares=team.visits.result())
        seen = None if team.crossings is None else team.crossings.result()
        return Chains(record, team.state, stopped, failure, seen)


def shards_of(before: Resumed) -> list[Shard]:
    """The shards of a run that was saved."""
    assert before.shard.parts is not None
    return [Shard(**held) for held in before.shard.parts]
