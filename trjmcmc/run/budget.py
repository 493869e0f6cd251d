"""What a run may spend, and what it has spent."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from ..errors import ConfigurationError
from ..fit.trace import FitTrace
from ..target.account import Account
from ..target.target import Target


@contextmanager
def limited(
    target: Target, account: Account, evaluations: int | None
) -> Iterator[Callable[[], int | None]]:
    """Count a target's calls in an account, and hold them to a number.

    Arguments:
        target: The target.
        account: Of the sampler.
        evaluations: Calls that may be made, or None.

    Returns:
        A function of the calls that are left; it gives None without a limit.

    Raises:
        ConfigurationError: The number is below 1.
    """
    if evaluations is not None and evaluations < 1:
        raise ConfigurationError(f"max_evaluations: expected 1 or more, got {evaluations}")
    most = math.inf if evaluations is None else evaluations
    with account.held_to(min(most, target.account.left)), target.counted_in(account):
        yield lambda: None if math.isinf(account.limit) else int(account.left)


class Spending:
    """Seconds and likelihood calls since the last report, fits before a run included.

    Attributes:
        account: Counts the calls.
        seconds: Wall time by stage.
    """

    def __init__(self) -> None:
        self.account = Account()
        self.seconds: dict[str, float] = {}
        self._before = 0, 0  # evaluations and gradients that earlier reports hold
        self._reported = False
        self._told: FitTrace | None = None

    def spend(self, stage: str, seconds: float) -> None:
        """Add seconds to those of a stage."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def begin(self) -> bool:
        """Begin a new period if the last one was reported; whether that was so."""
        again = self._reported
        if again:
            self._before = self.account.evaluations, self.account.gradients
            self.seconds, self._reported = {}, False
        return again

    @property
    def evaluations(self) -> int:
        """Likelihood calls."""
        return self.account.evaluations - self._before[0]

    @property
    def gradients(self) -> int:
        """Calls that were differentiated."""
        return self.account.gradients - self._before[1]

    def news(self, trace: FitTrace | None) -> FitTrace | None:
        """A training, unless an earlier report has told of it."""
        return None if trace is self._told else trace

    def restore(self, account: Mapping[str, int], seconds: Mapping[str, float]) -> None:
        """Go on from what a saved run has spent: held counts, and seconds by stage."""
        self.account.restore(account)
        self.seconds, self._before, self._reported = dict(seconds), (0, 0), False

    def close(self, trace: FitTrace | None) -> None:
        """All of it has been reported, with this training."""
        self._reported, self._told = True, trace
