"""When a run is long enough: rules that measure what it has."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from torch import Tensor

from ..draws import Recorder
from ..errors import ConfigurationError
from ..estimate.precision import COUNTED, FEWEST, FORGOTTEN, Progress, progress_of
from ..space.base import Space

PATIENCE = 10.0  # seconds before a run is looked back on

EARLY = 0.1  # of the time left, when it is looked back on at the latest

SAY_EVERY = 0.5  # seconds between words for a progress bar

GROWTH = (1.05, 1.5)  # relative length of a run at the next look, at least and at most


class Enough:
    """Says when a run may stop: it is precise enough, or its time is up.

    Precise enough also means twenty autocorrelation times long: the starts of many chains are then
    forgotten, and not only averaged.

    Arguments:
        space: The space, on the CPU.
        until: ``{"probability": error}``: the standard error that every model's probability
            (in a space of more than 64 models every unit's) must reach;
            ``{"log_bayes_factor": error}``: in nats, of every model of more than one percent to
            the most probable one. Of several all.
        deadline: Time by ``time.monotonic`` at which to stop in any case.

    Attributes:
        reached: Whether the precision was.
        disappointed: Whether it stopped because precision is further off than was hoped; see
            :meth:`look_back`.
        progress: In words, for a progress bar.

    Raises:
        ConfigurationError: A precision that is not known, not positive, or not for this space.
    """

    def __init__(
        self, space: Space, until: Mapping[str, float] | None, deadline: float = math.inf
    ) -> None:
        self.until = check_until(space, until)
        self.space, self.deadline, self.reached = space, deadline, False
        self._next, self.disappointed = FEWEST, False
        self.progress = ""
        self._begun, self._far, self._said = time.monotonic(), math.inf, 0.0
        self._look_back: tuple[float, float, Callable[[], float], float] | None = None

    @property
    def error(self) -> float | None:
        """Standard error of a probability that is wanted, if any.

        Of a log Bayes factor a fourth: that of the probability of one of two equal models.
        """
        wanted = [e if kind == "probability" else e / 4 for kind, e in self.until.items()]
        return min(wanted, default=None)

    def again(self) -> None:
        """Begin anew, for a record that begins anew."""
        self.reached = self.disappointed = False
        self._next, self._begun, self._far = FEWEST, time.monotonic(), math.inf
        self._look_back = None

    def look_back(self, hoped: float, price: Callable[[], float], error: float) -> None:
        """Stop once if, in twice the time hoped, precision is still further off than a price.

        Where there is a deadline it looks back in a tenth of the time left at the latest.

        Arguments:
            hoped: Seconds in which the precision was expected.
            price: Function that gives the seconds that something better would cost.
            error: Standard error that is wanted where ``until`` names none.
        """
        now = time.monotonic()
        self.disappointed = False
        after = min(max(PATIENCE, 2 * hoped), max(PATIENCE, EARLY * (self.deadline - now)))
        self._look_back = (now, now + after, price, error)

    @property
    def looks_back(self) -> bool:
        """Whether it has yet to look back, which takes the time of a few training steps."""
        return self._look_back is not None

    def _hopeless(self, recorder: Recorder) -> bool:
        assert self._look_back is not None
        begun, _, price, error = self._look_back
        self._look_back = None
        now = progress_of(self.space, recorder.code, recorder.log_joint)
        far = self._length(now, self.until or {"probability": error}, recorder.kept) - 1
        ahead = min((time.monotonic() - begun) * far, self.deadline - time.monotonic())
        return ahead > price()

    def _length(self, now: Progress, until: Mapping[str, float], kept: int) -> float:
        """How many times as long as so far the run must be."""
        lengths = [(now.of(kind) / error) ** 2 for kind, error in until.items()]
        lengths.append(FORGOTTEN * now.time / kept)
        return max(x if x == x else math.inf for x in lengths)

    def __call__(self, recorder: Recorder) -> bool:
        if self.until and recorder.kept * recorder.thin >= self._next:
            now = progress_of(self.space, recorder.code, recorder.log_joint)
            self._far = self._length(now, self.until, recorder.kept)
            growth = min(max(self._far, GROWTH[0]), GROWTH[1])
            self._next = math.ceil(growth * recorder.kept * recorder.thin)
            self.reached = self._far <= 1
            self._say(now)
        elif not self.until and math.isfinite(self.deadline):
            self._say(None)
        if self._look_back is not None and time.monotonic() >= self._look_back[1]:
            self.disappointed = self._hopeless(recorder)
        return self.reached or self.disappointed or time.monotonic() >= self.deadline

    def _so_far(self, now: Progress) -> str:
        return ", ".join(
            f"{kind.replace('_', ' ')} ± {now.of(kind):.2g} of {error:.2g}"
            for kind, error in self.until.items()
        )

    def missed(self, code: Tensor, log_joint: Tensor | None = None) -> str:
        """How far a run has come that ended before it was precise enough; empty if it was.

        Arguments:
            code: Models of the kept draws, shape (draw, chain, L), on the CPU.
            log_joint: Of these, shape (draw, chain).
        """
        if not self.until or self.reached:
            return ""
        if len(code) < FEWEST:
            return f"{len(code)} draws a chain"
        now = progress_of(self.space, code, log_joint)
        if self._length(now, self.until, len(code)) <= 1:
            return ""
        times = len(code) / now.time
        long = f", {times:.1f} of {FORGOTTEN:.0f} autocorrelation times" * (times < FORGOTTEN)
        return self._so_far(now) + long

    def _say(self, now: Progress | None) -> None:
        """Put what is left into words, now and then."""
        clock = time.monotonic()
        if clock < self._said + SAY_EVERY:
            return
        self._said = clock
        left = min((clock - self._begun) * (self._far - 1), self.deadline - clock)
        words = [] if now is None else [self._so_far(now)]
        if math.isfinite(left):
            words.append(f"about {max(left, 0.0):.0f} s left")
        self.progress = ", ".join(words)


def check_until(space: Space, until: Mapping[str, float] | None) -> dict[str, float]:
    """The standard errors asked for, refused if they make no sense."""
    if not isinstance(until, Mapping | None):
        raise ConfigurationError(
            f'until: expected a dict such as {{"probability": 0.01}}, got {until!r}'
        )
    wanted = dict(until or {})
    if unknown := set(wanted) - {"probability", "log_bayes_factor"}:
        raise ConfigurationError(
            'until: expected {"probability": error} or {"log_bayes_factor": error}, '
            f"got {sorted(unknown)}"
        )
    for kind, error in wanted.items():
        if not 0 < error < (1 if kind == "probability" else math.inf):
            limit = "between 0 and 1" if kind == "probability" else "above 0"
            raise ConfigurationError(f"until: expected an error {limit}, got {error}")
    if "log_bayes_factor" in wanted and (space.size is None or not 1 < space.size <= COUNTED):
        raise ConfigurationError(
            f"until: log_bayes_factor is for 2 to {COUNTED} models; use probability"
        )
    return wanted
