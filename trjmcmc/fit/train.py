"""The one training loop."""

from __future__ import annotations

import copy
import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from ..errors import (
    BudgetError,
    ConfigurationError,
    ConvergenceWarning,
    InterruptedWarning,
    warn_user,
)
from ..progress import progress_bar
from ..transport.base import Transport
from .objective import Objective
from .schedule import Rate
from .trace import FitTrace

WINDOW = 50  # steps that the objective is averaged over

LOUD = 0.01  # share of non-finite draws that is worth a warning


def train(
    transport: Transport,
    objective: Objective,
    *,
    steps: int = 2000,
    batch: int = 512,
    learning_rate: float = 2e-3,
    clip: float = 5.0,
    patience: int = 8,
    deadline: float = math.inf,
    generator: torch.Generator,
    progress: bool = True,
    label: str = "fit",
) -> FitTrace:
    """Train a map by stochastic gradients.

    Gradients are clipped by their norm; the learning rate rises, stays and falls. When the
    objective, averaged over a window or measured on held-out draws, has not improved by its own
    standard error for ``patience`` windows, the fall begins early. The map of the best window
    (at full likelihood) is kept.

    Arguments:
        transport: A map, changed in place.
        objective: :class:`ReverseKL`, :class:`ForwardKL`, or your own.
        steps: Most steps.
        batch: Draws a step, over all models.
        learning_rate: Peak learning rate of Adam.
        clip: Largest gradient norm.
        patience: Windows of 50 steps without improvement before the fall begins.
        deadline: Time by ``time.monotonic`` after which no step begins.
        generator: The only source of randomness.
        progress: Show a bar with the objective and the time left.
        label: What the bar is called.

    Returns:
        The trace. Ctrl-C ends the fit, keeps the best map so far and warns.

    Raises:
        ConfigurationError: A setting out of range, or no finite draw in a whole window.

    Source:
        Adam: Kingma & Ba (2015), https://arxiv.org/abs/1412.6980
    """
    if steps < 0 or batch < 1 or not learning_rate > 0 or not clip > 0 or patience < 1:
        raise ConfigurationError(
            "fit: expected steps >= 0, batch, patience >= 1, learning_rate, clip > 0, got "
            f"steps={steps}, batch={batch}, patience={patience}, learning_rate={learning_rate}, "
            f"clip={clip}"
        )
    trace = FitTrace()
    parameters = [p for p in transport.parameters() if p.requires_grad]
    learns = bool(parameters) or objective.learns
    if not learns or not steps or not transport.space.n_slots:
        return trace
    with _whole():
        optimiser = (
            torch.optim.Adam(parameters, lr=learning_rate, fused=True) if parameters else None
        )
    rate = Rate(steps)
    best: dict[str, Tensor] | None = None
    best_objective, best_error = math.inf, 0.0
    stale = 0
    window: list[Tensor] = []
    begun = time.perf_counter()
    bar = progress_bar(progress, total=steps, desc=label, unit="step")
    try:
        for i in range(1, steps + 1):
            temper = objective.temper(i / steps)
            value, finite = objective.losses(transport, i / steps, batch, generator)
            loss = value.mean()
            if optimiser is not None:
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                norm = torch.nn.utils.clip_grad_norm_(parameters, clip)
                for group in optimiser.param_groups:
                    group["lr"] = learning_rate * rate(i)
                if bool(norm.isfinite()):
                    optimiser.step()
                else:
                    trace.skipped += 1
            seen = torch.where(finite, value.detach(), 0.0).sum() / finite.sum().clamp(min=1)
            window.append(torch.stack([seen, (~finite).sum().to(seen)]))
            bar.update()
            late = time.monotonic() > deadline
            if i % WINDOW and i < steps:
                if late and best is not None:  # a part of a window says little
                    trace.stopped = "out of time"
                    break
                if not late:
                    continue
            values = torch.stack(window).double().cpu()
            objective_mean, lost = float(values[:, 0].mean()), int(values[:, 1].sum())
            error = float(values[:, 0].std(correction=0)) / len(values) ** 0.5
            held_out = objective.validate(transport)
            objective_now = objective_mean if held_out is None else held_out
            if lost == len(window) * len(value):
                raise ConfigurationError(
                    f"fit: no finite log density among {lost} draws of steps up to {i}; is the "
                    "posterior reachable from a standard normal in unconstrained coordinates?"
                )
            window.clear()
            trace.step.append(i)
            trace.objective.append(objective_now)
            trace.temper.append(temper)
            trace.non_finite.append(lost)
            trace.draws = i * len(value)
            bar.set_postfix({objective.shown: f"{-objective_now:.3f}", "temper": f"{temper:.2f}"})
            if temper < 1 and not late:
                continue
            stale = 0 if objective_now < best_objective - max(error, best_error) else stale + 1
            if objective_now < best_objective:
                best_objective, best_error = objective_now, error
                best = copy.deepcopy(transport.state_dict())
                trace.best_step = i
            if stale >= patience and rate.cool_from(i):
                trace.stopped = "plateau"
            if late and not rate.done(i):
                trace.stopped = "out of time"
            if late or rate.done(i):
                break
    except BudgetError:
        trace.stopped = "budget"
    except KeyboardInterrupt:
        trace.stopped = "interrupted"
        warn_user(
            "fit interrupted; the best map so far is kept, and runs use it",
            InterruptedWarning,
        )
    finally:
        bar.close()
    if best is not None:
        transport.load_state_dict(best)
    trace.seconds = time.perf_counter() - begun
    if trace.skipped > LOUD * (trace.step or [1])[-1]:
        warn_user(
            f"fit: {trace.skipped} steps had no finite gradient and were left out",
            ConvergenceWarning,
        )
    share = sum(trace.non_finite) / max(trace.draws, 1)
    if share > LOUD:
        warn_user(
            f"fit: {sum(trace.non_finite)} of {trace.draws} draws ({share:.1%}) had no finite log "
            "density or gradient and were left out; the map may not cover the posterior",
            ConvergenceWarning,
        )
    return trace


@contextmanager
def _whole() -> Iterator[None]:
    """Hold Ctrl-C back: the first optimiser imports modules that must not be left half imported."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    before = signal.default_int_handler if before is None else before  # it was not Python's
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        signal.raise_signal(signal.SIGINT)
