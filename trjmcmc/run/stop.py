"""When a run is long enough: rules that measure what it has."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from .. import clock
from ..draws import Draws, Recorder
from ..errors import ConfigurationError
from ..estimate.precision import FORGOTTEN, LEAST_DRAWS, Progress, progress_of
from ..promises import MODELS_ONE_BY_ONE, PRECISE_RHAT, RHAT_FLAGGED
from ..result.convergence import worst_rhat
from ..space.base import Space
from .policy import StoppingPolicy


class Verdict(Enum):
    """What a stopping rule says of a run so far; true unless the run goes on.

    Attributes:
        GO_ON: Neither precise nor late.
        RETHINK: What is wanted is further off than was hoped: other moves, or training, might be
            sooner.
        PRECISE: As precise as was asked for.
        LATE: Its time is up.
    """

    GO_ON = "go on"
    RETHINK = "rethink"
    PRECISE = "precise"
    LATE = "late"

    def __bool__(self) -> bool:
        return self is not Verdict.GO_ON


Rule = Callable[[Recorder], bool]

# standard error of a probability of one half, over that of each kind (delta method)
KINDS = {"probability": 1.0, "log_bayes_factor": 0.25}

RHAT = "rhat"


class Stop:
    """Says when a run may stop: it is precise enough, or its time is up.

    Precise enough also means twenty autocorrelation times long, and R-hat of models, log joint and
    parameters up to 1.02: the mean of many chains has a small standard error while it is still
    biased by where they started, or by what a slow parameter has not seen. A new rule needs no
    change here: it is a function of the recorder, given as ``until``.

    Arguments:
        space: The space, on the CPU.
        until: ``{"probability": error}``: the standard error that every model's probability
            (in a space of more than 64 models every unit's) must reach;
            ``{"log_bayes_factor": error}``: in nats, of every model of more than one percent to
            the most probable one; ``{"rhat": limit}``: rank-normalised split R-hat of models,
            log joint and parameters; 1.02 where a precision alone is named, and ``math.inf``
            asks for none. Of several all. Or a rule of your own: a function that gets the
            :class:`~trjmcmc.draws.Recorder` after each kept draw and says whether the run has
            what it is for.
        deadline: Time by :func:`trjmcmc.clock.now` at which to stop in any case.
        policy: When precision is looked at.

    Attributes:
        deadline: As above.
        reached: Whether the precision was.
        seconds_to_go: Seconds until the precision, at the last verdict to rethink.
        progress: In words, for a progress bar.

    Raises:
        ConfigurationError: A precision that is not known, not positive, or not for this space.

    Example:
        >>> import torch, trjmcmc as trj
        >>> space = trj.problems.sinh_arcsinh().space
        >>> code, theta = torch.zeros(4, 1, dtype=torch.long), torch.zeros(4, 2)
        >>> recorder = Recorder(10, code, theta, 1)
        >>> Stop(space, None, deadline=0.0)(recorder)
        <Verdict.LATE: 'late'>
    """

    def __init__(
        self,
        space: Space,
        until: Mapping[str, float] | Rule | None,
        deadline: float = math.inf,
        policy: StoppingPolicy | None = None,
    ) -> None:
        self.rule: Rule | None = None
        if callable(until):
            self.rule, until = until, None
        self.until = check_until(space, until)
        if self.error is not None:
            self.until.setdefault(RHAT, PRECISE_RHAT)
        self.space, self.deadline, self.reached = space, deadline, False
        self.policy = StoppingPolicy() if policy is None else policy
        self.seconds_to_go = math.inf
        self.progress = ""
        self._next = LEAST_DRAWS
        self._begun, self._length_to_go, self._said = clock.now(), math.inf, 0.0
        self._look_back: tuple[float, float, float] | None = None
        self._rhat, self._rhat_due = math.nan, -math.inf

    @property
    def error(self) -> float | None:
        """Standard error of a probability that is wanted, if any; see :data:`KINDS`."""
        errors = [KINDS[kind] * e for kind, e in self.until.items() if kind in KINDS]
        return min(errors, default=None)

    @property
    def times(self) -> float:
        """Autocorrelation times that the run must be long: R-hat of a chain says how many."""
        limit = self.until.get(RHAT, math.inf)
        return max(FORGOTTEN, 2 / (limit**2 - 1))

    def set_deadline(self, deadline: float) -> None:
        """Move the deadline: summing up takes its time."""
        self.deadline = deadline

    def reset(self) -> None:
        """Begin anew, for a record that begins anew."""
        self.reached = False
        self._next, self._begun, self._length_to_go = LEAST_DRAWS, clock.now(), math.inf
        self._look_back = None
        self._rhat, self._rhat_due = math.nan, -math.inf

    def set_aside(self, seconds: float) -> None:
        """Leave out seconds that passed while nothing was recorded."""
        self._begun += seconds
        if self._look_back is not None:
            begun, due, error = self._look_back
            self._look_back = begun + seconds, due + seconds, error

    def held(self) -> dict[str, Any]:
        """What it knows of the record, as plain data, to go on from."""
        return {
            "until": {kind: float(error) for kind, error in self.until.items()},
            "reached": bool(self.reached),
            "next": int(self._next),
            "elapsed": float(clock.now() - self._begun),
            "length": float(self._length_to_go),
            "rhat": float(self._rhat),
        }

    def take_up(self, held: Mapping[str, Any]) -> None:
        """Go on from what was held; anew where something else was asked for then."""
        self._begun = clock.now() - held.get("elapsed", 0.0)
        if held.get("until") == self.until:
            self.reached, self._next = held["reached"], held["next"]
            self._length_to_go, self._rhat = held["length"], held["rhat"]

    def look_back(self, hoped: float, error: float) -> None:
        """Reconsider moves and training after twice the predicted time to the precision.

        With a deadline, after a tenth of the remaining time at the latest. Where nothing comes of
        it, again later.

        Arguments:
            hoped: Predicted seconds to the precision.
            error: Standard error that is wanted where ``until`` names none.
        """
        now, least = clock.now(), self.policy.look_back_seconds
        after = max(least, self.policy.look_back_share * (self.deadline - now))
        self._look_back = (now, now + min(max(least, 2 * hoped), after), error)

    def __call__(self, recorder: Recorder) -> Verdict:
        """What there is to do after a kept draw."""
        if self.until and recorder.kept * recorder.thin >= self._next:
            now = self._progress(recorder.so_far())
            self._length_to_go = self._length(now, self.until, recorder.kept)
            growth = min(max(self._length_to_go, self.policy.least_growth), self.policy.most_growth)
            self._next = math.ceil(growth * recorder.kept * recorder.thin)
            self.reached = self._length_to_go <= 1
            self._say(now)
        elif not self.until and math.isfinite(self.deadline):
            self._say(None)
        if self.rule is not None:
            self.reached = bool(self.rule(recorder))
        if self._look_back is not None and clock.now() >= self._look_back[1]:
            self.seconds_to_go = self._look(recorder)
            return Verdict.RETHINK
        return self.so_far()

    def so_far(self) -> Verdict:
        """The verdict without another look at the record."""
        if self.reached:
            return Verdict.PRECISE
        return Verdict.LATE if clock.now() >= self.deadline else Verdict.GO_ON

    def ahead(self, recorder: Recorder, draws: int | None) -> float:
        """Seconds of sampling ahead as far as is known; 0 where nothing is.

        Arguments:
            recorder: The draws so far.
            draws: Kept draws that are asked for at most, or None.
        """
        now = clock.now()
        spent, lengths = now - self._begun, []
        if math.isfinite(self._length_to_go):
            lengths.append(spent * max(0.0, self._length_to_go - 1))
        elif self.until or self.rule is not None:
            return 0.0
        if draws is not None and recorder.kept:
            lengths.append(spent * max(0.0, draws / recorder.kept - 1))
        if math.isfinite(self.deadline):
            lengths.append(max(0.0, self.deadline - now))
        return min(lengths, default=0.0)

    def _look(self, recorder: Recorder) -> float:
        """Seconds until the precision, or the deadline, from the record so far."""
        assert self._look_back is not None
        begun, _, error = self._look_back
        again = self.policy.look_back_growth * (clock.now() - begun)
        self._look_back = begun, begun + again, error
        self._rhat_due = -math.inf
        now = self._progress(recorder.so_far())
        more = self._length(now, self.until or {"probability": error}, recorder.kept) - 1
        return min((clock.now() - begun) * more, self.deadline - clock.now())

    def _progress(self, record: Draws) -> Progress:
        """How far a record has come; R-hat once all else is reached, and before that for show."""
        now = progress_of(self.space, record.code.transpose(0, 1), record.log_joint.T)
        if RHAT not in self.until:
            return now
        begun = clock.now()
        if self._length(now, self.until, record.n_draws) <= 1 or begun > self._rhat_due:
            self._rhat = worst_rhat(self.space, record, self.until[RHAT])
            spent = clock.now() - begun
            self._rhat_due = begun + spent / self.policy.rhat_share
        return now._replace(rhat=self._rhat)

    def _length(self, now: Progress, until: Mapping[str, float], kept: int) -> float:
        """Length that the run must have, relative to its length so far; infinite if unknown."""
        lengths = [(now.of(kind) / error) ** 2 for kind, error in until.items() if kind in KINDS]
        lengths.append(FORGOTTEN * now.time / kept)
        if RHAT in until and not math.isnan(now.rhat):  # its square is 1 + 2 times / length
            lengths.append((now.rhat**2 - 1) / (until[RHAT] ** 2 - 1))
        return max(math.inf if math.isnan(x) else x for x in lengths)

    def _in_words(self, now: Progress, reached: bool = True) -> list[str]:
        """How far each precision has come.

        Arguments:
            now: The precision now.
            reached: List those that were reached too.
        """
        words = [
            f"{kind.replace('_', ' ')} ± {now.of(kind):.2g} of {error:.2g}"
            for kind, error in self.until.items()
            if kind in KINDS and (reached or not now.of(kind) <= error)
        ]
        limit = self.until.get(RHAT)
        if limit is not None and (reached or not now.rhat <= limit):
            words.append(f"R-hat {now.rhat:.3f} of {limit:.4g}")
        return words

    def missed(self, record: Draws) -> str:
        """How far a run has come that ended before it was as precise as asked; empty if it was.

        Arguments:
            record: The kept draws, on the CPU.
        """
        if not self.until or self.reached:
            return ""
        n = record.n_draws
        if n < LEAST_DRAWS:
            return f"{n} draws a chain"
        self._rhat_due = -math.inf
        now = self._progress(record)
        length = self._length(now, self.until, n)
        if length <= 1:
            return ""
        times = n / now.time
        short = self._in_words(now, reached=False)
        if times < FORGOTTEN:
            short.append(f"{times:.1f} of {FORGOTTEN:.0f} autocorrelation times")
        words = ", ".join(short)
        if math.isfinite(length) and not self._rhat > RHAT_FLAGGED:  # else it is too early to tell
            more = (length - 1) * (clock.now() - self._begun)
            words += f"; some {_round_up(more)} s more of sampling would do"
        return words

    def _say(self, now: Progress | None) -> None:
        """Put what is left into words, now and then."""
        time = clock.now()
        if time < self._said + self.policy.message_seconds:
            return
        self._said = time
        left = self.deadline - time
        if math.isfinite(self._length_to_go) and not self._rhat > RHAT_FLAGGED:
            left = min(left, (time - self._begun) * (self._length_to_go - 1))
        words = [] if now is None else self._in_words(now)
        if math.isfinite(left):
            words.append(f"about {max(left, 0.0):.0f} s left")
        self.progress = ", ".join(words)


def check_until(space: Space, until: Mapping[str, float] | None) -> dict[str, float]:
    """The standard errors asked for, refused if they make no sense."""
    if not isinstance(until, Mapping | None):
        raise ConfigurationError(
            'until: expected a dict such as {"probability": 0.01}, or a function of the recorder, '
            f"got {until!r}"
        )
    wanted = dict(until or {})
    if unknown := set(wanted) - {*KINDS, RHAT}:
        raise ConfigurationError(
            'until: expected {"probability": error}, {"log_bayes_factor": error}, {"rhat": limit} '
            f'or, of lists in rounds, {{"detection": share}}, got {sorted(unknown)}'
        )
    if not wanted.get(RHAT, math.inf) > 1:
        raise ConfigurationError(f"until: expected a limit of R-hat above 1, got {wanted[RHAT]}")
    for kind, error in wanted.items():
        if kind == RHAT:
            continue
        if not 0 < error < (1 if kind == "probability" else math.inf):
            limit = "between 0 and 1" if kind == "probability" else "above 0"
            raise ConfigurationError(f"until: expected an error {limit}, got {error}")
    if "log_bayes_factor" in wanted and not (space.few and space.several):
        raise ConfigurationError(
            f"until: log_bayes_factor is for 2 to {MODELS_ONE_BY_ONE} models; use probability"
        )
    return wanted


def _round_up(seconds: float) -> str:
    """Seconds with one digit that is not 0."""
    return f"{float(f'{seconds:.0e}'):.0f}" if seconds >= 1 else "1"
