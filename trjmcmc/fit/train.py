"""The one training loop."""

from __future__ import annotations

import copy
import math
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import clock
from ..errors import (
    BudgetError,
    ConfigurationError,
    ConvergenceWarning,
    InterruptedWarning,
    warn_user,
)
from ..progress import progress_bar
from ..transport.base import Transport
from .objective import Losses, Objective
from .schedule import SCHEDULES, check_schedule
from .trace import FitTrace

STEPS, BATCH = 2000, 512  # most steps, and draws of each, where they are omitted

WINDOW = 50  # steps that the objective is averaged over: more see smaller improvements, and later

REPORTED = 0.01  # share of draws or steps without a finite gradient that is worth a warning


def train(
    transport: Transport,
    objective: Objective,
    *,
    steps: int | None = None,
    batch: int | None = None,
    learning_rate: float = 2e-3,
    clip: float = 5.0,
    patience: int = 8,
    schedule: str = "cosine",
    deadline: float = math.inf,
    generator: torch.Generator,
    progress: bool = True,
    label: str = "fit",
) -> FitTrace:
    """Train a map by stochastic gradients.

    Gradients are clipped by their norm; the learning rate rises, stays and falls. When the
    objective, averaged over a window or measured on held-out draws, has not improved by its own
    standard error for ``patience`` windows, the fall begins early, or the rate is halved. The map
    of the best window (at full likelihood) is kept.

    Arguments:
        transport: A map, changed in place.
        objective: :class:`ReverseKL`, :class:`ForwardKL`, or your own.
        steps: Most steps; 2000 if omitted.
        batch: Draws a step, over all models; 512 if omitted.
        learning_rate: Peak learning rate of Adam.
        clip: Largest gradient norm.
        patience: Windows of 50 steps without improvement that are a plateau.
        schedule: ``"cosine"``: the rate rises, stays, and falls along a cosine from the first
            plateau on; ``"plateau"``: it is halved at each, and six end the training.
        deadline: Time by :func:`trjmcmc.clock.now` after which no step begins.
        generator: The only source of randomness.
        progress: Show a bar with the objective and the time left.
        label: What the bar is called.

    Returns:
        The trace. Ctrl-C ends the fit, keeps the best map so far and warns.

    Raises:
        ConfigurationError: A setting out of range, or no finite draw in a whole window.

    Source:
        Adam: Kingma & Ba (2015), https://arxiv.org/abs/1412.6980; halved rates: Yin & Jiao,
        https://arxiv.org/abs/2512.12742, who take 1e-4 and batches of 256
    """
    steps = STEPS if steps is None else steps
    batch = BATCH if batch is None else batch
    if steps < 0 or batch < 1 or not learning_rate > 0 or not clip > 0 or patience < 1:
        raise ConfigurationError(
            "fit: expected steps >= 0, batch, patience >= 1, learning_rate, clip > 0, got "
            f"steps={steps}, batch={batch}, patience={patience}, learning_rate={learning_rate}, "
            f"clip={clip}"
        )
    check_schedule(schedule)
    shaped = transport.space.n_slots and any(p.requires_grad for p in transport.parameters())
    if not steps or not (objective.learns or shaped):
        return FitTrace()
    settings = _Settings(steps, batch, learning_rate, clip, patience, schedule, deadline)
    run, begun = _Training(transport, objective, settings, generator), clock.now()
    with progress_bar(progress, total=steps, desc=label, unit="step") as bar:
        run.descend(bar)
    run.best.restore()
    trace = run.trace(clock.now() - begun)
    _warn_of_losses(trace)
    return trace


@dataclass(frozen=True)
class _Settings:
    """Those of :func:`train`."""

    steps: int
    batch: int
    learning_rate: float
    clip: float
    patience: int
    schedule: str
    deadline: float


class _Training:
    """One training run: its descent, its window, and the windows behind it.

    Attributes:
        step: Steps that were made.
        ended: What ended it, in the words of :class:`FitTrace`; empty before.
    """

    def __init__(
        self,
        transport: Transport,
        objective: Objective,
        settings: _Settings,
        generator: torch.Generator,
    ) -> None:
        self.transport, self.objective = transport, objective
        self.settings, self.generator = settings, generator
        self.rate = SCHEDULES[settings.schedule](settings.steps)
        self.descent = _Descent(transport, settings.learning_rate, settings.clip)
        self.best = _Best(transport)
        self.window: list[Tensor] = []  # of each step, the mean of finite losses and the rest
        self.windows: list[_Window] = []
        self.draws = self.step = 0
        self.ended, self._levels = "", False

    def descend(self, bar: Any) -> None:
        """Make steps to the end."""
        try:
            while not self.ended:
                self.advance(bar)
        except BudgetError:
            self.ended = "budget"
        except KeyboardInterrupt:
            self.ended = "interrupted"
            warn_user(
                "fit interrupted; the best map so far is kept, and runs use it",
                InterruptedWarning,
            )

    def advance(self, bar: Any) -> None:
        """Make a step, and see whether it is the last."""
        i, s = self.step + 1, self.settings
        temper = self.objective.temper(i / s.steps)
        size = self._step(i)
        self.step = i
        bar.update()
        late = clock.now() > s.deadline
        whole = i % WINDOW == 0 or i == s.steps
        if not whole and not (late and not self.best.known):
            self.ended = "out of time" if late else ""  # a part of a window says little
            return
        window = self._close_window(i, size, temper)
        shown = {self.objective.shown: f"{-window.objective:.3f}", "temper": f"{temper:.2f}"}
        bar.set_postfix(shown)
        if temper == 1 or late:
            self.ended = self._judged(window, size, late)
        if i == s.steps and not self.ended:
            self.ended = "steps"

    def _judged(self, window: _Window, size: int, late: bool) -> str:
        """What ends the training after a window at full likelihood, if anything does."""
        s, i = self.settings, window.step
        if not math.isfinite(window.objective) or window.lost == size * WINDOW:
            return "diverged"
        self.best.offer(window)
        if self.best.stale >= s.patience and self.rate.plateau(i):
            self._levels = True
            self.best.count_anew()
        if self.rate.done(i):
            return self._last
        return "out of time" if late else ""

    @property
    def _last(self) -> str:
        return "plateau" if self._levels else "steps"

    def _step(self, i: int) -> int:
        """One step, counted from 1; returns the number of its draws."""
        s = self.settings
        losses = self.objective.losses(self.transport, i / s.steps, s.batch, self.generator)
        self.descent.step(losses.value.mean(), self.rate(i))
        self.window.append(_sums(losses))
        return len(losses.value)

    def _close_window(self, i: int, size: int, temper: float) -> _Window:
        """Average the objective over the window that ends with a step of ``size`` draws."""
        values = torch.stack(self.window).double().cpu()
        mean, lost = float(values[:, 0].mean()), int(values[:, 1].sum())
        error = float(values[:, 0].std(correction=0)) / len(values) ** 0.5
        held_out = self.objective.validate(self.transport)
        if lost == len(self.window) * size and not self.best.known:
            raise ConfigurationError(
                f"fit: no finite log density among {lost} draws of steps up to {i}; is the "
                "posterior reachable from a standard normal in unconstrained coordinates?"
            )
        self.window.clear()
        self.draws = i * size
        window = _Window(i, mean if held_out is None else held_out, error, temper, lost)
        self.windows.append(window)
        return window

    def trace(self, seconds: float) -> FitTrace:
        """What is left of it."""
        return FitTrace(
            step=[w.step for w in self.windows],
            objective=[w.objective for w in self.windows],
            temper=[w.temper for w in self.windows],
            non_finite=[w.lost for w in self.windows],
            draws=self.draws,
            skipped=self.descent.skipped,
            seconds=seconds,
            best_step=self.best.step,
            stopped=self.ended,
        )


class _Window(NamedTuple):
    """A window of steps: its last one, objective, standard error of it, and draws lost."""

    step: int
    objective: float
    error: float
    temper: float
    lost: int


class _Descent:
    """Adam on the parameters of a map; steps whose gradient is not finite are left out."""

    def __init__(self, transport: Transport, learning_rate: float, clip: float) -> None:
        self.parameters = [p for p in transport.parameters() if p.requires_grad]
        self.learning_rate, self.clip = learning_rate, clip
        self.skipped = 0
        self.optimiser: torch.optim.Adam | None = None
        if self.parameters:
            with _whole():
                self.optimiser = torch.optim.Adam(self.parameters, lr=learning_rate, fused=True)

    def step(self, loss: Tensor, factor: float) -> None:
        """One step down the loss, at a factor of the peak learning rate."""
        if self.optimiser is None or not loss.requires_grad:
            return
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)
        for group in self.optimiser.param_groups:
            group["lr"] = self.learning_rate * factor
        if bool(norm.isfinite()):
            self.optimiser.step()
        else:
            self.skipped += 1


class _Best:
    """The best map so far.

    Attributes:
        step: The last step of its window.
        stale: Windows since the objective improved by more than its standard error.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._state: dict[str, Tensor] | None = None
        self._objective, self._error = math.inf, 0.0
        self.step, self.stale = 0, 0

    @property
    def known(self) -> bool:
        """Whether any window was at full likelihood."""
        return self._state is not None

    def offer(self, window: _Window) -> None:
        """Keep the map of this window if it is better than the best."""
        better = window.objective < self._objective - max(window.error, self._error)
        self.stale = 0 if better else self.stale + 1
        if window.objective < self._objective:
            self._objective, self._error = window.objective, window.error
            self._state = copy.deepcopy(self._transport.state_dict())
            self.step = window.step

    def count_anew(self) -> None:
        """Count windows without improvement from here."""
        self.stale = 0

    def restore(self) -> None:
        """Give the map the parameters of the best window."""
        if self._state is not None:
            self._transport.load_state_dict(self._state)


def _sums(losses: Losses) -> Tensor:
    """Mean of the finite losses of a step, and the number of the others, shape (2,)."""
    value, finite = losses
    seen = torch.where(finite, value.detach(), 0.0).sum() / finite.sum().clamp(min=1)
    return torch.stack([seen, (~finite).sum().to(seen)])


def _warn_of_losses(trace: FitTrace) -> None:
    """Warn where more than a share of the steps or draws had to be left out."""
    if trace.skipped > REPORTED * (trace.step or [1])[-1]:
        warn_user(
            f"fit: {trace.skipped} steps had no finite gradient and were left out",
            ConvergenceWarning,
        )
    lost = sum(trace.non_finite)
    if lost > REPORTED * max(trace.draws, 1):
        warn_user(
            f"fit: {lost} of {trace.draws} draws ({lost / trace.draws:.1%}) had no finite log "
            "density or gradient and were left out; the map may not cover the posterior",
            ConvergenceWarning,
        )


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
