"""What users ask of a run, refused where it can't be, and until when it may go on."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, NamedTuple

import torch

from .. import clock
from ..checks import checked_dtype
from ..draws import Pool
from ..errors import BudgetError, ConfigurationError, TargetError
from ..kernel.base import Kernel
from ..result.result import Result
from ..space.base import Space
from ..target.account import Account
from ..target.target import Target
from ..weights.base import ModelWeights
from ..weights.made import Made
from .tasks import TaskQueue

MakeWeights = Callable[[Space], ModelWeights]


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

    def keep(self, evaluations: float) -> None:
        """Keep so many of them to sum up by; of infinitely many the run ends."""
        self.kept = evaluations

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

    @contextmanager
    def until_spent(self) -> Iterator[None]:
        """Where evaluations do not suffice for this block it ends, and the run at its next step."""
        try:
            yield
        except BudgetError:
            self.keep(math.inf)

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


def weights_maker(
    target: Target, models: ModelWeights | MakeWeights | None
) -> Callable[[], ModelWeights] | None:
    """Gives the q(m) that a fit learns, or None where it learns none."""
    space = target.space
    if models is None:
        learns = not space.few and not space.graphs and target.dim > 0
        return (lambda: Made(space)) if learns else None
    if not isinstance(models, ModelWeights) and callable(models):
        models = models(space)
    fits = isinstance(models, ModelWeights) and models.space.code_width == space.code_width
    if not fits:
        raise ConfigurationError(
            "models: expected a trj.weights.ModelWeights over the target's space, or a function "
            f"of the space that makes one, such as trj.weights.Made; got {models!r}"
        )
    return lambda: models.to(target.device)


def as_pool(pilot: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """Points of a result, or of particles; anything else as it is."""
    if isinstance(held := getattr(pilot, "pool", None), Pool):
        return held
    if not isinstance(pilot, Result):
        return pilot
    code, theta = pilot.raw.flat()
    log_joint = pilot.raw.log_joint.flatten().double()
    return Pool(code.to(device), theta.to(device, dtype), log_joint.to(device))


def check_given(
    target: object, dtype: torch.dtype | None, device: str | torch.device | None, seed: object
) -> None:
    """Refuse what a sampler can't work with.

    Raises:
        TargetError: No target.
        ConfigurationError: Another precision, a device that is not there, a seed that is none.
    """
    if not isinstance(target, Target):
        raise TargetError(f"target: expected a trj.Target, got {type(target).__name__}")
    checked_dtype(dtype)
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigurationError(f"device: {device!r} is not there ({error})") from None
    if seed is not None and not isinstance(seed, Integral):
        raise ConfigurationError(f"seed: expected an integer, got {seed!r}")


def check_lengths(
    draws: int | None,
    max_seconds: float | None,
    chains: int | None = None,
    thin: int = 1,
    warmup: int | None = None,
) -> None:
    """Refuse counts that are no counts, and a limit of time that is none.

    Raises:
        ConfigurationError: One is no number, or too small.
    """
    if max_seconds is not None and not (isinstance(max_seconds, Real) and max_seconds > 0):
        raise ConfigurationError(f"max_seconds: expected a positive number, got {max_seconds!r}")
    chains, warmup = 1 if chains is None else chains, 0 if warmup is None else warmup
    counts = (1 if draws is None else draws, chains, thin, warmup)
    if not all(isinstance(n, int) for n in counts):
        raise ConfigurationError(f"run: draws, chains, thin, warmup are integers, got {counts}")
    if min(counts[:3]) < 1 or counts[3] < 0:
        raise ConfigurationError(
            "run: expected draws, chains, thin >= 1 and warmup >= 0, got "
            f"draws={draws}, chains={chains}, thin={thin}, warmup={warmup}"
        )


def check_fit(fit: bool | str, space: Space) -> None:
    """Refuse a way to train that there is not.

    Arguments:
        fit: As of :meth:`trjmcmc.TRJSampler.run`.
        space: Of the models; over many graphs no map is trained.

    Raises:
        ConfigurationError: Something else was asked for, or no map may be trained.
    """
    if fit not in {"auto", "vi", True, False}:
        raise ConfigurationError(f'fit: expected "auto", "vi", True or False, got {fit!r}')
    if fit in {True, "vi"} and space.graphs and not space.few:
        raise ConfigurationError(
            f"fit={fit!r}: no map is trained over so many graphs; run() samples them"
        )


def grid_of(shards: int | None, executor: Any) -> TaskQueue | None:
    """What the user asks, or None of one batch of chains here.

    Raises:
        ConfigurationError: Less than one shard, or workers for none.
    """
    if shards is None:
        if executor is not None:
            raise ConfigurationError("executor: say how many shards it is to work on, shards=16")
        return None
    if not isinstance(shards, Integral) or shards < 1:
        raise ConfigurationError(f"shards: expected an integer of 1 or more, got {shards!r}")
    return TaskQueue(int(shards), executor)
