"""Steps of a kernel and what is counted of them, captured where that pays."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import torch

from .. import clock
from ..kernel.base import Kernel, State
from ..kernel.compose import Cycle, MixtureKernel
from ..tape import NotCapturable
from .capture import (
    CapturedStep,
    Counts,
    NotTheSame,
    NotTraceable,
    Way,
    compiled,
    replayed,
    shape_of,
    traced,
)

MEASURED_STEPS = 20  # whose median time counts, of a way to make them

IDLE_STEPS = 4  # first steps of a captured function, in which torch makes up its plan

TRACED_PRICE = 600.0  # seconds of a trace in those of a plain step: coal mining, robust regression
# and pulses took 430 to 620 with 16 chains, fewer with more

TRACED_HOPE = 0.7  # time of a traced step in that of a plain one, as it is counted on: .33 to .48
# where chains are few, .97 for coal mining with one chain

COMPILED_PRICE = 8.0  # seconds of a compilation in those of the trace: five to ten times as long

COMPILED_HOPE = 0.5  # time of a compiled step in that of a traced one: .24 to .48

MARGIN = 1.5  # times that a capture has to save what it costs by these numbers

LEARNING_SECONDS = 10.0  # that maps which remember models may take to learn all of them

GAIN = 0.95  # time of a step in that of another way, from which it is worth having

LEAST_SHARE = 0.1  # of the steps, that a kernel of a mixture makes at least to be captured

MISSED_SHARE = 0.05  # of the steps, at which the usual case may not be at hand

MISSED_STEPS = 100  # after which that is looked at

Ahead = Callable[[], float]  # seconds of sampling ahead

NOT_BEGUN = "steps not captured: that was not counted on to pay in the time ahead"

NO_TIME = "steps not captured: the run ended before"

Step = Callable[[State, torch.Generator], tuple[State, Any]]


def nothing_ahead() -> float:
    """For runs whose steps are not captured."""
    return 0.0


class Stepper:
    """Advances chains by a kernel.

    With ``"auto"`` steps are timed; they are traced, and then compiled, where that is counted on to
    save more than it costs in the time ahead, and the fastest way is kept. With True they are
    compiled at once, or where that fails traced; with the name of a way they are made in that way
    or plainly. A kernel of a cycle that can not be captured is left as it is, the others are
    captured one by one.

    Arguments:
        kernel: The kernel.
        counts: What is counted of a step: a tuple of lists.
        generator: The only source of randomness.
        mode: ``"auto"``, True, False, or the name of a way.
        ahead: Gives the seconds of sampling ahead.

    Attributes:
        captured: Whether any step was captured.
    """

    def __init__(
        self,
        kernel: Kernel,
        counts: Counts,
        generator: torch.Generator,
        mode: bool | str = False,
        ahead: Ahead = nothing_ahead,
    ) -> None:
        self.kernel, self.counts, self.generator = kernel, counts, generator
        self.mode, self.ahead = mode, ahead
        self.captured = False
        self._came: dict[str, list[str]] = {}  # what came of captures, and of which kernels
        self._leaves: dict[Any, _Leaf] = {}

    def __call__(self, state: State) -> tuple[State, Any]:
        """The next state, and what is counted of the step."""
        if not self.mode:
            after, infos = self.kernel.step(state, self.generator)
            return after, self.counts(infos)
        return self._step(self.kernel, state, 1.0)

    @property
    def said(self) -> list[str]:
        """What came of captures, in words; empty where none was asked for."""
        if self.mode and not self._came:
            return [NOT_BEGUN if self.mode == "auto" else NO_TIME]
        return [f"{', '.join(names)}: {words}" for words, names in self._came.items()]

    def capture(self) -> None:
        """Count a capture that was taken."""
        self.captured = True

    def say(self, name: str, words: str) -> None:
        """Note what came of the capture of a kernel."""
        names = self._came.setdefault(words, [])
        if name not in names:
            names.append(name)

    def _step(self, kernel: Kernel, state: State, share: float) -> tuple[State, Any]:
        while isinstance(kernel, MixtureKernel):
            i = kernel.drawn(self.generator)
            share *= kernel.weights[i]
            kernel = kernel.kernels[i]
        key = id(kernel), shape_of(state)
        leaf = self._leaves.get(key)
        if leaf is None:
            leaf = self._leaves[key] = _Leaf(kernel, self, share)
        if leaf.apart:
            assert isinstance(kernel, Cycle)
            return self._in_turn(kernel, state, share)
        return leaf.step(state)

    def _in_turn(self, cycle: Cycle, state: State, share: float) -> tuple[State, Any]:
        """The kernels of a cycle, each captured or not."""
        counted: Any = None
        for kernel, repeats in cycle.kernels:
            for _ in range(repeats):
                state, found = self._step(kernel, state, share)
                counted = (
                    found
                    if counted is None
                    else tuple(a + b for a, b in zip(counted, found, strict=True))
                )
        return state, counted


class _Leaf:
    """Steps of one kernel at states of one shape.

    Arguments:
        kernel: The kernel.
        of: What it belongs to.
        share: Of the steps, that are its own.
    """

    def __init__(self, kernel: Kernel, of: Stepper, share: float) -> None:
        self.kernel, self.of, self.share, self.apart = kernel, of, share, False
        self._run: Step = self._plain
        self._way = "plain"
        self._captured: CapturedStep | None = None
        self._before: tuple[str, Step, CapturedStep | None] = "plain", self._plain, None
        self._judged = True  # whether the way of now has been held against the one before
        self._times: list[float] = []
        self._seconds = {"plain": math.inf}  # of a step, by way
        self._price = 0.0  # seconds of the trace
        self._steps = 0
        self._open = share >= LEAST_SHARE  # whether a faster way may be found
        self._hopeless = False  # whether none can be
        if of.mode and not self._open:
            of.say(kernel.name, "steps not captured: a small share of all")

    def step(self, state: State) -> tuple[State, Any]:
        generator = self.of.generator
        if not self._open:
            found = self._run(state, generator)
            self._watch(state)
            return found
        if self.of.mode != "auto":
            if self._steps == 0:  # shapes come back, or not at all
                self._steps += 1
                return self._run(state, generator)
            self._open = False
            self._capture_now(state)
            return self.of._step(self.kernel, state, self.share) if self.apart else self.step(state)
        begun = clock.now()
        found = self._run(state, generator)
        self._times.append(clock.now() - begun)
        idle = 0 if self._captured is None else IDLE_STEPS
        if len(self._times) >= idle + MEASURED_STEPS:
            self._seconds[self._way] = statistics.median(self._times[idle:])
            self._times = []
            self._decide(state)
        self._watch(state)
        return found

    def _plain(self, state: State, generator: torch.Generator) -> tuple[State, Any]:
        after, infos = self.kernel.step(state, generator)
        return after, self.of.counts(infos)

    # ---- which way --------------------------------------------------------------------------

    def _capture_now(self, state: State) -> None:
        """Compiled, or traced where that fails, or in the way that was asked for."""
        mode = self.of.mode
        for name, way in _ways(state)[::-1]:
            if mode in (True, name) and self._taken(name, way, state):
                return
            if self.apart or self._hopeless:
                return

    def _decide(self, state: State) -> None:
        """Keep the faster of two ways, and try the next where that is sure to pay."""
        if not self._judged:
            self._judge()
        names = [name for name, _ in _ways(state)]
        untried = [name for name in names if name not in self._seconds]
        if not untried:
            self._open = False
            return
        now, ahead = self._seconds[self._way], self.of.ahead() * self.share
        price, hoped = self._counted_on(untried[0])
        if capture_pays(price, hoped, now, ahead):
            self._before = self._way, self._run, self._captured
            self._open = self._taken(untried[0], dict(_ways(state))[untried[0]], state)

    def _judge(self) -> None:
        """Go back to the way before where that was as fast."""
        self._judged, now, before = True, self._seconds[self._way], self._before[0]
        if worth_having(now, self._seconds[before]):
            gain = self._seconds["plain"] / now
            words = f"steps {self._way} in {self._price:.1f} s, {gain:.1f} times as fast"
            self.of.say(self.kernel.name, words)
            return
        self.of.say(
            self.kernel.name,
            f"{self._way} steps were not faster ({1e3 * now:.2g} ms), so they are made as before",
        )
        self._way, self._run, self._captured = self._before

    def _counted_on(self, name: str) -> tuple[float, float]:
        """Seconds until steps are made in a way, and of such a step."""
        if name == "compiled":
            return COMPILED_PRICE * self._price, COMPILED_HOPE * self._seconds["traced"]
        return TRACED_PRICE * self._seconds["plain"], TRACED_HOPE * self._seconds["plain"]

    def _taken(self, name: str, way: Way, state: State, *, trusting: bool = True) -> bool:
        """Whether steps are captured from now on."""
        begun, learning = clock.now(), LEARNING_SECONDS
        if self.of.mode == "auto":
            learning = min(learning, (1 - TRACED_HOPE) * self.of.ahead() / MARGIN)
        try:
            captured = CapturedStep(
                self.kernel,
                self.of.counts,
                state,
                self.of.generator,
                way,
                trusting=trusting,
                seconds=learning,
            )
            captured.check(state, self.of.generator)
        except NotCapturable as error:
            whole = isinstance(error, NotTheSame) or not isinstance(self.kernel, Cycle)
            self.apart = self._captured is None and not whole
            self._hopeless = isinstance(error, NotTraceable)
            if not self.apart and trusting:
                how = "captured" if self._hopeless else name
                self.of.say(self.kernel.name, f"steps not {how} ({error})")
            return False
        self._price = clock.now() - begun
        self.of.capture()
        self._run, self._captured, self._way, self._steps = captured, captured, name, 0
        self._judged = not trusting
        if self.of.mode != "auto":
            self.of.say(self.kernel.name, f"steps {name} in {self._price:.1f} s")
        return True

    def _watch(self, state: State) -> None:
        """Take nothing for granted any more where the usual case is often not at hand."""
        captured = self._captured
        self._steps += 1
        if captured is None or not captured.trusting or self._steps != MISSED_STEPS:
            return
        if captured.missed > MISSED_SHARE * self._steps:
            self._taken(self._way, dict(_ways(state))[self._way], state, trusting=False)


def _ways(state: State) -> list[tuple[str, Way]]:
    """How steps are captured where the chains are, the cheapest first."""
    if state.theta.device.type == "cuda":
        return [("replayed", replayed)]
    return [("traced", traced), ("compiled", compiled)]


def capture_pays(price: float, hoped: float, now: float, ahead: float) -> bool:
    """Whether another way to make steps is sure to give more of them in the time ahead.

    Of the seconds ahead the price is lost, and each of the others makes ``now / hoped`` times the
    steps: together more, if the price is less than the share ``1 - hoped / now`` of them.

    Arguments:
        price: Seconds until steps are made so.
        hoped: Seconds of such a step, as they are counted on.
        now: Seconds of a step as it is made now.
        ahead: Seconds of steps ahead.

    Example:
        >>> [capture_pays(2.0, 0.001, 0.002, ahead) for ahead in (5.0, 7.0)]
        [False, True]
    """
    return MARGIN * price <= (1 - hoped / now) * ahead


def worth_having(now: float, before: float) -> bool:
    """Whether steps that take so many seconds are to be preferred to those before."""
    return now <= GAIN * before
