"""What a user states of a run: of its chains, and until when it may go on."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .. import clock
from ..draws import Pool
from ..kernel.base import Kernel
from ..target.account import Account
from ..target.target import Target
from .tasks import TaskQueue


@dataclass
class Limit:
    """Until when a run may go on.

    Attributes:
        deadline: Time by :func:`trjmcmc.clock.now` from which it ends with what it has.
        account: Of likelihood evaluations, with their limit.
        kept: Of these, those by which it sums up.
        pressed: Whether the user has ended it.
    """

    deadline: float = math.inf
    account: Account = field(default_factory=Account)
    kept: float = 0.0
    pressed: bool = False

    def begin(self, deadline: float, account: Account) -> None:
        """Go on until another time."""
        self.deadline, self.account, self.kept, self.pressed = deadline, account, 0.0, False

    def press(self) -> None:
        """End the run at its next step."""
        self.pressed = True

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Ctrl-C ends the run at its next step in this block; pressed again it is heard at once."""
        if threading.current_thread() is not threading.main_thread():  # no signals come here
            yield
            return

        def hear(number: int, frame: Any) -> None:
            if self.pressed:
                raise KeyboardInterrupt
            self.pressed = True

        before = signal.signal(signal.SIGINT, hear)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def keep(self, evaluations: float) -> None:
        """Keep so many of them to sum up by."""
        self.kept = evaluations

    def spend(self) -> None:
        """End it for want of evaluations."""
        self.kept = math.inf

    @property
    def spent(self) -> bool:
        """Whether evaluations are."""
        return self.account.left < self.kept

    @property
    def passed(self) -> bool:
        """Whether the run has to end."""
        return self.pressed or self.spent or clock.now() > self.deadline


class Stated(NamedTuple):
    """What a user states of the chains of a run.

    Attributes:
        chains: Their number; None for as many as are planned.
        warmup: Steps before each record by which moves adapt, at least.
        thin: Steps of a kept draw.
        evaluations: Likelihood calls of the run at most, by which it is planned; or None.
        points: Where they start, or None.
        kernel: Makes the kernel of a target, in place of what a recipe has; or None.
        grid: Shards that sample once moves are learned, or None.
        climbs: In search of lost modes, of each model, at least.
    """

    chains: int | None = None
    warmup: int = 0
    thin: int = 1
    evaluations: int | None = None
    points: Pool | None = None
    kernel: Callable[[Target], Kernel] | None = None
    grid: TaskQueue | None = None
    climbs: int = 0

    @property
    def numbers(self) -> tuple[int | None, ...]:
        """What a run that goes on has to have been told too."""
        return self.chains, self.warmup, self.thin
