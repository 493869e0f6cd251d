"""The loops over kernels: warm-up, where they learn, and sampling."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .. import clock
from ..draws import Draws, Pool, Recorder
from ..errors import BudgetError, InterruptedWarning, TRJError, warn_user
from ..kernel.base import Kernel, State, start
from ..target.target import Target
from .count import Tally
from .interrupts import between_draws
from .sampling import Walk

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


def _deaf() -> None:
    """Ctrl-C is heard wherever it is pressed."""


def run_chains(
    walk: Walk,
    recorder: Recorder,
    *,
    draws: int | None,
    enough: Callable[[Recorder], bool] | None = None,
    on_draw: Callable[[Recorder], object] | None = None,
    waits: bool = False,
) -> Chains:
    """Advance chains and record them; nothing is adapted here.

    Arguments:
        walk: The chains, and what is counted of them.
        recorder: Where they are recorded; of draws that it holds already more are made.
        draws: Kept draws a chain; None for as many as come until there are enough.
        enough: Asked after each kept draw whether to stop.
        on_draw: Called after each kept draw.
        waits: Hear Ctrl-C between two draws alone, unless it is pressed twice.

    Returns:
        The draws; fewer than asked for if the user pressed Ctrl-C (with a warning), the limit
        was reached, or a likelihood failed.

    Raises:
        KeyboardInterrupt: The user pressed Ctrl-C before the first draw was kept.
        TRJError: A likelihood failed, or the limit was reached, before the first draw was kept.
    """
    stopped = "draws"
    failure: TRJError | None = None
    try:
        with torch.no_grad(), between_draws() if waits else nullcontext(_deaf) as listen:
            done = recorder.kept > 0 and enough is not None and enough(recorder)
            while not done and (draws is None or recorder.kept < draws):
                walk.draw(recorder.thin, recorder)
                done = enough is not None and enough(recorder)
                if on_draw is not None:
                    on_draw(recorder)
                listen()
            if recorder.pending:
                walk.tally.check()
            if done:
                stopped = "enough"
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
        if walk.visits is not None and record.thin > 1:
            record = replace(record, shares=walk.visits.result())
        seen = None if walk.crossings is None else walk.crossings.result()
        return Chains(record, walk.state, stopped, failure, seen)

    try:
        return found()
    except KeyboardInterrupt:  # the draws are all there
        if stopped == "interrupted":
            raise
        stopped = "interrupted"
        return found()
