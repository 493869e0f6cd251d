"""How precise a run is so far, and whether that is enough."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ..draws import Recorder
from ..errors import ConfigurationError
from ..space import Space, Subsets
from .mean import mean_error

COUNTED = 64  # most models whose probabilities are watched one by one
FEWEST = 20  # draws a chain before precision is looked at
FORGOTTEN = 20.0  # autocorrelation times that a precise run must be long: R-hat 1.05
PATIENCE = 10.0  # seconds before a run is looked back on
EARLY = 0.1  # of the time left, when it is looked back on at the latest
COMMON = 0.01  # probability of a model from which its Bayes factor is watched
SAY_EVERY = 0.5  # seconds between words for a progress bar
GROWTH = (1.05, 1.5)  # relative length of a run at the next look, at least and at most


def features(space: Space, code: Tensor) -> Tensor:
    """Indicators whose means are watched: one a model, or in a large space one a unit.

    Of a long list or range, the models that occur most have one each, the rest one together.

    Arguments:
        space: The space.
        code: Models, shape (..., L).

    Returns:
        Shape (..., F), float64.
    """
    if space.size == 1:
        return torch.ones(*code.shape[:-1], 1, dtype=torch.float64, device=code.device)
    if isinstance(space, Subsets) and (space.size is None or space.size > COUNTED):
        return code.double()
    index = space.index(code.reshape(-1, code.shape[-1]))
    size = int(space.size or 0)
    if size > COUNTED:
        often = torch.bincount(index, minlength=size).argsort(descending=True)
        rank = torch.full_like(often, COUNTED - 1)
        rank[often[: COUNTED - 1]] = torch.arange(COUNTED - 1, device=index.device)
        index, size = rank[index], COUNTED
    return torch.nn.functional.one_hot(index.reshape(code.shape[:-1]), size).double()


class Progress(NamedTuple):
    """How far a run has come.

    Attributes:
        error: Largest standard error of an indicator's mean, a bound where nothing has changed.
        time: Largest autocorrelation time of an indicator, or the log joint, in kept draws.
        log_error: Largest standard error of the log Bayes factor of a model of more than one
            percent to the most probable one; 0 where there is none.
    """

    error: float
    time: float
    log_error: float = 0.0

    def of(self, kind: str) -> float:
        """The error of a kind that :class:`Enough` knows."""
        return self.error if kind == "probability" else self.log_error


def progress_of(space: Space, code: Tensor, log_joint: Tensor | None = None) -> Progress:
    """Precision of the models' probabilities, or the units', in a record so far.

    Arguments:
        space: The space, on the CPU.
        code: Models, shape (draw, chain, L), on the CPU.
        log_joint: Shape (draw, chain): chains have to forget where they were inside models too.
    """
    seen = features(space, code)
    if space.size == 1:
        return Progress(0.0, 1.0)
    found = [mean_error(seen[..., f].T.numpy()) for f in range(seen.shape[-1])]
    known = [(error, seen[..., 0].numel() / ess) for error, ess in found if not math.isnan(error)]
    ess = math.nan if log_joint is None else mean_error(log_joint.double().T.numpy())[1]
    memory = 1.0 if math.isnan(ess) else code[..., 0].numel() / ess
    if not known:  # one model throughout: the rule of three, a draw in twenty counted
        bound = min(1.0, 3 * FORGOTTEN / code[..., 0].numel())
        return Progress(bound, memory, 0.0 if bound < COMMON else math.inf)
    times = (memory, *(t for _, t in known))
    return Progress(max(e for e, _ in known), max(times), _log_error(seen))


def _log_error(seen: Tensor) -> float:
    """Largest error of the log ratio of an indicator's mean to the largest one."""
    share = seen.mean((0, 1))
    best = int(share.argmax())
    others = [f for f in range(len(share)) if f != best and float(share[f]) > COMMON]
    if not others:
        return 0.0
    first = seen[..., best] / share[best]
    errors = [mean_error((seen[..., f] / share[f] - first).T.numpy())[0] for f in others]
    return max(math.inf if math.isnan(e) else e for e in errors)


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
