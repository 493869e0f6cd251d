"""The chains of a run and their record, begun anew or gone on with."""

from __future__ import annotations

from torch import Tensor

from ..draws import Draws, Recorder
from ..estimate.mean import MANY_CHAINS
from ..kernel.base import Kernel, State
from ..pilot.lost import Screening
from ..result.report import Plan
from .knowledge import Knowledge
from .precision import Numbers
from .request import Request
from .resumed import Planned, Resumed
from .sampling import SamplingPlan, Walk
from .saving import Saver
from .segment import Segment
from .stop import Stop
from .team import Team


class Begun:
    """What a run samples with.

    Arguments:
        known: What is known of the target.
        saver: Writes the run into a folder, or None.
        resumed: A run between two draws to go on with, or None.

    Attributes:
        resumed: As above, until it was gone on with.
        settled: What does not change while the run samples.
        walk, record: The chains, and their draws.
    """

    def __init__(self, known: Knowledge, saver: Saver | None, resumed: Resumed | None) -> None:
        self.known, self.saver, self.resumed = known, saver, resumed
        self.settled: Planned | None = None if resumed is None else resumed.planned
        self.walk: Walk | None = None
        self.record: Recorder | None = None
        self._thinned = ""

    def anew(
        self,
        kernel: Kernel,
        state: State,
        ancestor: Tensor | None,
        request: Request,
        found: tuple[Plan, Segment | None],
        numbers: Numbers,
        said: tuple[Screening, ...],
    ) -> None:
        """Begin a record with a kernel that is frozen from now on.

        Arguments:
            kernel: The kernel.
            state: Where the chains are.
            ancestor: The independent draw that each descends from, shape (C,), if known.
            request: What the user asks.
            found: What was planned, and what was measured of the kernel.
            numbers: What rounding does.
            said: What searches for lost modes have found.
        """
        known = self.known
        crosses = known.fitted.few and known.target.space.several
        many = len(state.code) >= MANY_CHAINS  # of few, errors rest on autocorrelations
        thins = request.thin > 1 or request.draws is None  # else every step is kept
        visits, forgiven = crosses and many and thins, int(known.spending.account.overflows)
        self.settled = Planned(kernel, crosses, visits, *found, numbers, said, forgiven)
        plan = SamplingPlan(known.target, kernel, crosses, visits)
        self.walk = Walk(plan, state, known.generator, ancestor)
        self.record = Recorder(request.draws, state.code, state.theta, request.thin, ancestor)
        if self.saver is not None:
            self.saver.planned(known, self.settled, self.walk, self.record)

    def again(self, request: Request, stop: Stop) -> None:
        """Go on with the run that was given.

        Arguments:
            request: What the user asks.
            stop: It takes up what it knew.
        """
        before, self.resumed, settled = self.resumed, None, self.settled
        assert before is not None and settled is not None
        plan = SamplingPlan(self.known.target, settled.kernel, settled.crosses, settled.visits)
        self.walk = before.walk(plan, self.known.generator)
        self.record = before.recorder(request.draws)
        self.known.spending.spend("sample", before.stop.get("elapsed", 0.0))
        stop.take_up(before.stop)
        if self.saver is not None:
            self.saver.resumed(self.known, settled, self.walk, self.record)

    def by_shards(self, settled: Planned, team: Team, record: Recorder, stop: Stop) -> None:
        """Sample by shards, anew or going on with what was given.

        Arguments:
            settled: What does not change while they sample.
            team: All chains, side by side.
            record: Their draws.
            stop: It takes up what it knew.
        """
        before, self.resumed, self.settled = self.resumed, None, settled
        self.walk, self.record = team, record
        if before is not None:
            self.known.spending.spend("sample", before.stop.get("elapsed", 0.0))
            stop.take_up(before.stop)
        if self.saver is not None:
            write = self.saver.planned if before is None else self.saver.resumed
            write(self.known, settled, team, record)

    def unsaved(self) -> None:
        """Leave the folder as it is: what comes next is not worth going on with."""
        self.saver = None

    def thinned(self, asked: int) -> str:
        """Why fewer steps are kept than were asked for, in words; the record is let go."""
        if self.record is not None:  # its memory is for the summing up
            self._thinned, self.record = self.record.thinned(asked), None
        return self._thinned

    def left(self, draws: Draws) -> Resumed | None:
        """What a later call may go on from; None where a draw was broken off.

        Arguments:
            draws: The record of the run.
        """
        if self.walk is None or self.settled is None or not self.walk.whole:
            return None
        code, theta = draws.code.transpose(0, 1), draws.theta.transpose(0, 1)
        kept = code, theta, draws.log_joint.T, draws.thin, draws.ancestor
        return Resumed(self.settled, self.walk.shard(), *kept)
