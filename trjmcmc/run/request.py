"""What a user asks of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real

from .. import clock
from ..draws import Pool
from ..errors import ConfigurationError
from ..estimate.precision import FORGOTTEN
from .decide import seconds_to_precision, seconds_until_done
from .policy import ChoicePolicy
from .segment import Segment


@dataclass(frozen=True)
class Request:
    """What a user asks of a run, with what is left open filled in.

    Attributes:
        draws: Kept draws a chain; None for as many as come.
        chains: Chains to start with.
        fewest_chains, most_chains: Chains at least and at most.
        thin: Steps a kept draw.
        warmup: Steps left out at the start; None where that is open.
        fit: ``"auto"``, True or False.
        by: What a map is trained by before anything else, as of :meth:`TRJSampler.fit`, or None.
        until: Standard errors that are asked for, by kind.
        error: Standard error of a probability by which training is judged.
        times: Autocorrelation times that the run has to be long.
        compile: Whether steps are captured: ``"auto"``, True or False.
        begun, deadline: When the run began, and when it has to be over, by
            :func:`trjmcmc.clock.now`.
        max_evaluations: Most likelihood calls, or None.
        progress: Whether to show bars.
        calls_are_few: Whether proposals by importance sampling come first.
        start: Points that chains start at, or None.
        refines: Whether the precision was left open, so that float64 may follow.
    """

    draws: int | None
    chains: int
    fewest_chains: int
    most_chains: int
    thin: int
    warmup: int | None
    fit: bool | str
    until: Mapping[str, float]
    error: float
    begun: float
    deadline: float
    max_evaluations: int | None
    progress: bool
    calls_are_few: bool = False
    refines: bool = False
    start: Pool | None = None
    times: float = FORGOTTEN
    compile: bool | str = False
    by: str | None = None

    @property
    def limited(self) -> bool:
        """Whether the run has to be over at some time."""
        return math.isfinite(self.deadline)

    @property
    def seconds(self) -> float:
        """Seconds that the run may take; infinite without a limit."""
        return self.deadline - self.begun

    @property
    def ahead(self) -> float:
        """Steps that it will make; infinite where that is open."""
        return math.inf if self.draws is None else self.draws * self.thin

    @property
    def uses_all_time(self) -> bool:
        """Whether the run goes on till its deadline, however precise it has become."""
        return self.draws is None and not self.until

    def adapt_by(self, sampling: float) -> float:
        """Deadline of choice, training and warm-up, which leave this share of the time."""
        return self.begun + (1 - sampling) * self.seconds if self.limited else math.inf

    def precise(self, found: Segment) -> float:
        """Seconds of sampling until a probability is as precise as is wanted."""
        return seconds_to_precision(found, self.error)

    def until_done(self, found: Segment) -> float:
        """Seconds of sampling until all that is wanted is reached."""
        return seconds_until_done(found, self.error, self.times)

    def takes_long(self, found: Segment, policy: ChoicePolicy) -> bool:
        """Whether that is much of the time left, or long, so that other moves are worth a try."""
        soon = min(policy.forgotten_share * self.left(), policy.seconds_to_reconsider)
        return self.until_done(found) > soon

    def ahead_of(self, found: Segment) -> float:
        """Seconds of sampling ahead."""
        length = self.until_done(found) if self.until else self.ahead * found.step
        return min(self.left(), length)

    def left(self) -> float:
        """Seconds left until the end of the run."""
        return max(0.0, self.deadline - clock.now())


def check_counts(
    draws: int | None, chains: int = 1, thin: int = 1, warmup: int | None = None
) -> None:
    """Refuse counts that are no counts.

    Raises:
        ConfigurationError: One is no integer, or too small.
    """
    counts = (1 if draws is None else draws, chains, thin, 0 if warmup is None else warmup)
    if not all(isinstance(n, int) for n in counts):
        raise ConfigurationError(f"run: draws, chains, thin, warmup are integers, got {counts}")
    if min(counts[:3]) < 1 or counts[3] < 0:
        raise ConfigurationError(
            "run: expected draws, chains, thin >= 1 and warmup >= 0, got "
            f"draws={draws}, chains={chains}, thin={thin}, warmup={warmup}"
        )


def check_seconds(max_seconds: float | None) -> None:
    """Refuse a limit of time that is none.

    Raises:
        ConfigurationError: It is no positive number.
    """
    if max_seconds is not None and not (isinstance(max_seconds, Real) and max_seconds > 0):
        raise ConfigurationError(f"max_seconds: expected a positive number, got {max_seconds!r}")


def checked_fit(fit: bool | str, may_train: bool) -> tuple[bool | str, str | None]:
    """Whether a map is trained in full, or the run chooses, and by what before it does.

    Arguments:
        fit: As of :meth:`trjmcmc.TRJSampler.run`.
        may_train: Whether a map may be trained over the models.

    Raises:
        ConfigurationError: Something else was asked for, or no map may be trained.
    """
    if fit not in {"auto", "vi", True, False}:
        raise ConfigurationError(f'fit: expected "auto", "vi", True or False, got {fit!r}')
    if fit in {True, "vi"} and not may_train:
        raise ConfigurationError(
            f"fit={fit!r}: no map is trained over so many graphs; run() samples them"
        )
    return ("auto", "vi") if fit == "vi" else (fit if fit == "auto" else bool(fit), None)


def checked_mode(mode: bool | str) -> bool | str:
    """Whether steps are captured, refused if it is none of the three.

    Raises:
        ConfigurationError: It is another.
    """
    if mode is not True and mode is not False and mode != "auto":
        raise ConfigurationError(f'compile: expected "auto", True or False, got {mode!r}')
    return mode
