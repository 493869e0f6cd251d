"""The loops over kernels: warm-up, where they learn, and sampling."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .. import clock
from ..draws import Draws, Pool, Recorder
from ..errors import BudgetError, InterruptedWarning, TRJError, warn_user
from ..kernel.base import Kernel, State, start
from ..target.target import Target
from .count import Crossings, StepsInModels, Tally

CHECK_EVERY = 25  # warm-up steps between looks at the count of undefined densities


def warm_up(
    kernel: Kernel,
    state: State,
    steps: int,
    target: Target,
    generator: torch.Generator,
    on_step: Callable[[], object] | None = None,
    deadline: float = math.inf,
    points: int = 20_000,
) -> tuple[Kernel, State, Pool | None]:
    """Advance chains without recording them as results; the kernel learns at each step.

    It ends early at ``deadline``, a time by :func:`trjmcmc.clock.now`.

    Returns:
        The kernel that has learned, where the chains are, and a selection of their second half
        that a map may be trained on.

    Raises:
        NonFiniteError: A density was NaN or +inf.
    """
    tally = Tally(target)
    every = min(max(1, steps * len(state.code) // (2 * points)), max(1, steps // 4))
    some = slice(None, None, -(-len(state.code) // points))
    kept: list[State] = []
    with torch.no_grad():
        for i in range(steps):
            kernel, state, infos = kernel.adapt(state, generator)
            tally.add(infos)
            if i % CHECK_EVERY == 0 or i == steps - 1:
                tally.check()
            if i >= steps // 2 and i % every == 0:
                kept.append(State(state.code[some], state.theta[some], state.log_joint[some]))
            if on_step is not None:
                on_step()
            if clock.now() >= deadline:
                tally.check()
                break
    return kernel.frozen(), state, pooled(kept)


def joined(a: State, b: State) -> State:
    """Chains of two batches in one."""
    code, theta, log_joint = (torch.cat(pair) for pair in zip(a[:3], b[:3], strict=True))
    return State(code, theta, log_joint)


def last_of(recorder: Recorder, target: Target) -> State:
    """Where the recorded chains are."""
    record, device = recorder.so_far(), target.device
    return start(target, record.code[:, -1].to(device), record.theta[:, -1].to(device))


def first_of(state: State, chains: int) -> State:
    """The first of some chains."""
    memo = None if state.memo is None else state.memo.rows(slice(chains))
    return State(state.code[:chains], state.theta[:chains], state.log_joint[:chains], memo)


def renewed(kernel: Kernel, state: State, ancestor: Tensor) -> Tensor:
    """The start of each chain, as a number, shape (C,): its ancestor, or where it started afresh.

    Arguments:
        kernel: The kernel; parts of it may know of fresh starts.
        state: Where it has moved the chains.
        ancestor: The independent draw that each descended from, shape (C,).
    """
    for part in kernel.parts():
        ancestor = part.ancestors(state, ancestor)
    return ancestor


class Renewals:
    """Tells which chains have started afresh while they are recorded.

    Arguments:
        kernel, state, ancestor: As of :func:`renewed`, when the record begins.
    """

    def __init__(self, kernel: Kernel, state: State, ancestor: Tensor) -> None:
        self._kernel, self._first = kernel, renewed(kernel, state, ancestor)
        self._draws, self._away = 0, torch.zeros_like(ancestor)  # draws, those from other starts
        self._other = self._first

    def starts(self, state: State) -> Tensor:
        """The start of each chain, (C,), asked at each draw: another if half of them come from it.

        Of several others it is the last one that counts.
        """
        now = renewed(self._kernel, state, self._first)
        self._draws += 1
        self._away = self._away + (now != self._first)
        self._other = torch.where(now != self._first, now, self._other)
        return torch.where(2 * self._away >= self._draws, self._other, self._first)


def pooled(states: list[State]) -> Pool | None:
    """The points of several states to train on, or None of none."""
    if not states:
        return None
    columns = zip(*((s.code, s.theta, s.log_joint) for s in states), strict=True)
    code, theta, log_joint = (torch.cat(x) for x in columns)
    return Pool(code, theta, log_joint.double())


@dataclass(frozen=True)
class Chains:
    """What :func:`run_chains` came back with.

    Attributes:
        draws: Kept draws.
        state: Where the chains are.
        stopped: ``"draws"``, ``"enough"``, ``"budget"``, ``"interrupted"`` or ``"error"``.
        error: What ended it, if anything did.
        crossings: Sums of acceptance probabilities between models, and numbers of draws, both by
            batch; None in a large space.
    """

    draws: Draws
    state: State
    stopped: str
    error: TRJError | None = None
    crossings: tuple[Tensor, Tensor] | None = None


def run_chains(
    kernel: Kernel,
    state: State,
    tally: Tally,
    *,
    draws: int | None,
    thin: int,
    generator: torch.Generator,
    ancestor: Tensor | None = None,
    enough: Callable[[Recorder], bool] | None = None,
    crossings: Crossings | None = None,
    visits: StepsInModels | None = None,
    on_draw: Callable[[], object] | None = None,
) -> Chains:
    """Advance chains and record them; nothing is adapted here.

    Arguments:
        kernel: Leaves the target invariant.
        state: Where the chains are.
        tally: Acceptance counts to add to.
        draws: Kept draws a chain; None for as many as come until there are enough.
        thin: Steps a kept draw; may grow where the number of draws is open.
        generator: The only source of randomness.
        ancestor: The independent draw that each chain descends from, shape (C,), if known.
        enough: Asked after each kept draw whether to stop.
        crossings: Counts jumps between models, if given.
        visits: Counts steps in models, if given.
        on_draw: Called after each kept draw.

    Returns:
        The draws; fewer than asked for if the user pressed Ctrl-C (with a warning), the limit
        was reached, or a likelihood failed.

    Raises:
        KeyboardInterrupt: The user pressed Ctrl-C before the first draw was kept.
        TRJError: A likelihood failed, or the limit was reached, before the first draw was kept.
    """
    recorder = Recorder(draws, state.code, state.theta, thin, ancestor)
    renewals = None if ancestor is None else Renewals(kernel, state, ancestor)
    stopped = "draws"
    failure: TRJError | None = None
    try:
        with torch.no_grad():
            while recorder.kept != draws:
                for _ in range(recorder.thin):
                    state, infos = kernel.step(state, generator)
                    tally.add(infos)
                    if crossings is not None:
                        crossings.add(infos)
                    if visits is not None:
                        visits.add(state.code)
                tally.check()
                recorder.keep(state.code, state.theta, state.log_joint)
                if renewals is not None:
                    recorder.descend_from(renewals.starts(state))
                done = enough is not None and enough(recorder)
                if on_draw is not None:
                    on_draw()
                if done:
                    stopped = "enough"
                    break
    except KeyboardInterrupt:
        if not recorder.kept:
            raise
        stopped = "interrupted"
        of = "" if draws is None else f" of {draws}"
        warn_user(
            f"interrupted after {recorder.kept}{of} draws a chain; the result holds them",
            InterruptedWarning,
        )
    except BudgetError:
        if not recorder.kept:
            raise
        stopped = "budget"
    except TRJError as error:
        if not recorder.kept:
            raise
        stopped, failure = "error", error

    def found() -> Chains:
        record = recorder.draws()
        if visits is not None and record.thin > 1:
            record = replace(record, shares=visits.result())
        seen = None if crossings is None else crossings.result()
        return Chains(record, state, stopped, failure, seen)

    try:
        return found()
    except KeyboardInterrupt:  # the draws are all there
        if stopped == "interrupted":
            raise
        stopped = "interrupted"
        return found()
