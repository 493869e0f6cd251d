"""Steps of a kernel and what is counted of them, captured where that was asked for."""

from __future__ import annotations

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
    shape_of,
    traced,
)

LEARNING_SECONDS = 10.0  # that maps which remember models may take to learn all of them

LEAST_SHARE = 0.1  # of the steps, that a kernel of a mixture makes at least to be captured

MISSED_SHARE = 0.05  # of the steps, at which the usual case may not be at hand

MISSED_STEPS = 100  # after which that is looked at

NO_TIME = "steps not captured: the run ended before"

WAYS: dict[str, Way] = {"compiled": compiled, "traced": traced}  # the fastest first

Step = Callable[[State, torch.Generator], tuple[State, Any]]


class Stepper:
    """Advances chains by a kernel.

    With True they are compiled, or where that fails traced; with the name of a way they are made in
    that way or plainly. A kernel of a cycle that can not be captured is left as it is, the others
    are captured one by one.

    Arguments:
        kernel: The kernel.
        counts: What is counted of a step: a tuple of lists.
        generator: The only source of randomness.
        mode: True, False, or the name of a way.
    """

    def __init__(
        self,
        kernel: Kernel,
        counts: Counts,
        generator: torch.Generator,
        mode: bool | str = False,
    ) -> None:
        self.kernel, self.counts, self.generator, self.mode = kernel, counts, generator, mode
        self._came: dict[str, list[str]] = {}  # what came of captures, and of which kernels
        self._leaves: dict[Any, _Leaf] = {}

    def __call__(self, state: State) -> tuple[State, Any]:
        """The next state, and what is counted of the step."""
        if not self.mode:
            after, infos = self.kernel.step(state, self.generator)
            return after, self.counts(infos)
        return self._step(self.kernel, state, 1.0)

    @property
    def captured(self) -> bool:
        """Whether any step was captured."""
        return any(leaf.captured is not None for leaf in self._leaves.values())

    @property
    def said(self) -> list[str]:
        """What came of captures, in words; empty where none was asked for."""
        if self.mode and not self._came:
            return [NO_TIME]
        return [f"{', '.join(names)}: {words}" for words, names in self._came.items()]

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
        self.captured: CapturedStep | None = None
        self._steps = 0
        self._open = share >= LEAST_SHARE  # whether they may be captured
        if not self._open:
            of.say(kernel.name, "steps not captured: a small share of all")

    def step(self, state: State) -> tuple[State, Any]:
        if self._open and self._steps:  # shapes come back, or not at all
            self._open = False
            self._capture(state)
            if self.apart:
                return self.of._step(self.kernel, state, self.share)
        found = self._run(state, self.of.generator)
        self._watch(state)
        return found

    def _plain(self, state: State, generator: torch.Generator) -> tuple[State, Any]:
        after, infos = self.kernel.step(state, generator)
        return after, self.of.counts(infos)

    def _capture(self, state: State) -> None:
        """Compiled, or traced where that fails, or in the way that was asked for."""
        for name in WAYS:
            if self.of.mode in (True, name) and (self._taken(name, state) or self.apart):
                return

    def _taken(self, name: str, state: State, *, trusting: bool = True) -> bool:
        """Whether steps are captured from now on, or can never be."""
        begun = clock.now()
        try:
            captured = CapturedStep(
                self.kernel,
                self.of.counts,
                state,
                self.of.generator,
                WAYS[name],
                trusting=trusting,
                seconds=LEARNING_SECONDS,
            )
            captured.check(state, self.of.generator)
        except NotCapturable as error:
            whole = isinstance(error, NotTheSame) or not isinstance(self.kernel, Cycle)
            self.apart = self.captured is None and not whole
            hopeless = isinstance(error, NotTraceable)
            if not self.apart and trusting:
                how = "captured" if hopeless else name
                self.of.say(self.kernel.name, f"steps not {how} ({error})")
            return hopeless
        self._run, self.captured, self._way, self._steps = captured, captured, name, 0
        self.of.say(self.kernel.name, f"steps {name} in {clock.now() - begun:.1f} s")
        return True

    def _watch(self, state: State) -> None:
        """Take nothing for granted any more where the usual case is often not at hand."""
        captured = self.captured
        self._steps += 1
        if captured is None or not captured.trusting or self._steps != MISSED_STEPS:
            return
        if captured.missed > MISSED_SHARE * self._steps:
            self._taken(self._way, state, trusting=False)
