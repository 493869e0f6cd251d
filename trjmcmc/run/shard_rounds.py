"""Rounds of blocks: how long they are, and one block of each shard in each."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from ..draws import Recorder
from ..errors import PoolError, TRJError
from .crew import Crew
from .interrupts import uninterrupted
from .sampling import Block, Shard
from .shard_work import Done, Failed, Start
from .team import told_apart

LEAST = 25  # draws a block, but for limits

GROWTH = 8  # draws so far, over those of the next block

BLOCK_NUMBERS = 4_000_000  # that a block holds at most

SPARE = 0.8  # of the time or the calls left that a round may be expected to take

TOGETHER = 16  # draws of all shards that are put side by side at once

AHEAD = 1  # rounds that a shard may be ahead of the slowest


def block_draws(kept: int, numbers: int) -> int:
    """Draws of the next block of each shard, whoever computes it and how fast.

    Short at first, an eighth of what there is later: that is what a stop or a crash may lose.

    Arguments:
        kept: Draws a chain so far.
        numbers: That a draw of all chains of a shard is.
    """
    return min(max(LEAST, kept // GROWTH), max(1, BLOCK_NUMBERS // max(numbers, 1)))


class Round(NamedTuple):
    """A round that is planned.

    Attributes:
        draws, thin: Of each block.
    """

    draws: int
    thin: int


@dataclass
class Lane:
    """What there is of a shard.

    Attributes:
        place: Where it starts.
        newest: Its state after its last block that has arrived; None before it has started.
        closed: Its state after the last round that all have done.
        done: Blocks that have arrived.
        waiting: Blocks, and states after them, of rounds that others have not done.
        busy: Whether a block is on its way.
    """

    place: Start | None
    newest: Shard | None = None
    closed: Shard | None = None
    done: int = 0
    waiting: list[tuple[Block, Shard]] = field(default_factory=list)
    busy: bool = False

    def send(self) -> None:
        """A task is on its way."""
        self.busy = True

    def take_start(self, shard: Shard) -> None:
        """It has started."""
        self.busy, self.newest, self.closed = False, shard, shard

    def take(self, number: int, block: Block, after: Shard) -> None:
        """A block has come back, and the state after it."""
        self.busy, self.newest, self.done = False, after, number
        self.waiting.append((block, after))

    def close(self) -> Block:
        """Its block of the next round, which all have done."""
        block, self.closed = self.waiting.pop(0)
        return block


class Rounds:
    """Blocks of all shards, in rounds that end together.

    Chains in models that are cheap would otherwise make more draws than others, and every
    probability would lean towards them.

    Arguments:
        crew: Workers.
        lanes: The shards.
        recorder: Where rounds are recorded that all shards have done.
        draws: Draws a chain, or None.
        numbers: That a draw of all chains of a shard is.
        common: As of :func:`~trjmcmc.run.team.told_apart`.

    Attributes:
        pace: Seconds of a draw of all shards, by the last round; NaN before.
        calls: Likelihood calls of a draw of all shards, by the last round; NaN before.
    """

    def __init__(
        self,
        crew: Crew,
        lanes: list[Lane],
        recorder: Recorder,
        draws: int | None,
        numbers: int,
        *,
        common: bool,
    ) -> None:
        self.crew, self.lanes, self.recorder, self.draws = crew, lanes, recorder, draws
        self.common, self.pace, self.calls = common, math.nan, math.nan
        self._planned: list[Round] = []  # of this process
        self._closed = 0
        self._made: dict[int, int] = {}  # calls by round
        self._numbers = numbers

    # ---- out ----------------------------------------------------------------------------------

    def begin(self, limit: float, seconds: float, candidates: int) -> None:
        """Let shards start that have not.

        Arguments:
            limit: Likelihood calls of each.
            seconds, candidates: As of :func:`~trjmcmc.run.shard_work.begin_shard`.
        """
        for number, lane in enumerate(self.lanes):
            if lane.newest is None:
                lane.send()
                task = "begin", number, lane.place, seconds, candidates
                self.crew.send((number, 0), limit, *task)

    @property
    def begun(self) -> bool:
        """Whether all shards have started."""
        return all(lane.newest is not None for lane in self.lanes)

    def send(self, seconds: float, calls: float) -> bool:
        """Send the next block of each shard that may have one; whether any is on its way.

        Arguments:
            seconds, calls: That are left for all.
        """
        for number, lane in enumerate(self.lanes):
            if lane.busy or lane.newest is None:
                continue
            ahead = 0 if math.isfinite(calls) else AHEAD
            if lane.done > self._closed + ahead:
                continue
            if lane.done == len(self._planned) and not self._plan(seconds, calls):
                continue
            lane.send()
            planned = self._planned[lane.done]
            limit = math.floor(calls / len(self.lanes)) if math.isfinite(calls) else math.inf
            task = "advance", lane.newest, planned.draws, planned.thin
            self.crew.send((number, lane.done + 1), limit, *task)
        return any(lane.busy for lane in self.lanes)

    def _plan(self, seconds: float, calls: float) -> bool:
        """Plan the next round, if there is to be one."""
        record, open_rounds = self.recorder, self._planned[self._closed :]
        ahead = sum(p.draws for p in open_rounds)
        if not ahead and record.open:
            record.make_room()
        kept = record.kept + ahead
        room = max(record.most - kept, 0 if ahead else 1)
        n = min(block_draws(kept, self._numbers), room)
        if self.draws is not None:
            n = min(n, self.draws - kept)
        for left, each in ((seconds, self.pace), (calls, self.calls)):
            if math.isfinite(left):
                fits = 1 if math.isnan(each) else int(SPARE * left / max(each, 1e-12)) - ahead
                n = min(n, max(fits, 0 if record.kept else 1))
        if n > 0:
            self._planned.append(Round(n, record.thin))
        return n > 0

    # ---- in -----------------------------------------------------------------------------------

    def take(self, key: Hashable, found: Done | Failed) -> int:
        """Take a task that has come back; the likelihood calls that it made.

        Raises:
            BudgetError: There were not enough calls for it.
            TRJError: It failed.
        """
        assert isinstance(key, tuple)
        number, block = key
        if isinstance(found, Failed):
            if isinstance(found.error, TRJError):
                raise found.error
            where = f"shard {number}, block {block}"
            raise PoolError(f"{where}: {found.text.strip()}") from found.error
        lane = self.lanes[number]
        if not block:
            lane.take_start(found.value)
        else:
            lane.take(block, *found.value)
            self._made[block] = self._made.get(block, 0) + found.evaluations
        return found.evaluations

    def close(self, seconds: float) -> int:
        """Record the next round if all shards have done it; its draws, else 0.

        Ctrl-C waits until the whole of it is recorded.

        Arguments:
            seconds: Since the last round was closed.
        """
        if not all(lane.waiting for lane in self.lanes):
            return 0
        n = self._planned[self._closed].draws
        with uninterrupted():
            self._record([lane.close() for lane in self.lanes], n)
            self._closed += 1
        self.pace = seconds / n
        self.calls = self._made.pop(self._closed, 0) / n
        return n

    def _record(self, blocks: list[Block], n: int) -> None:
        """Keep n draws of all shards side by side."""
        record = self.recorder
        columns = list(zip(*((b.code, b.theta, b.log_joint) for b in blocks), strict=True))
        with record.room_for(n):
            for some in (slice(i, i + TOGETHER) for i in range(0, n, TOGETHER)):
                joined = [torch.cat([x[some] for x in column], 1) for column in columns]
                for state in zip(*joined, strict=True):
                    record.keep(*state)
        ancestors = [b.ancestor for b in blocks if b.ancestor is not None]
        if ancestors:
            record.descend_from(told_apart(ancestors, self.common))

    def closed(self) -> list[Shard]:
        """The shards after the last round that all have done."""
        return [lane.closed for lane in self.lanes if lane.closed is not None]
