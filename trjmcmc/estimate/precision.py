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
GROWTH = 1.1  # relative length of a run from one look to the next


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
    if isinstance(space, Subsets) and int(space.size or 0) > COUNTED:
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
        time: Largest autocorrelation time of an indicator, in kept draws.
    """

    error: float
    time: float


def progress_of(space: Space, code: Tensor) -> Progress:
    """Precision of the models' probabilities, or the units', in a record so far.

    Arguments:
        space: The space, on the CPU.
        code: Models, shape (draw, chain, L), on the CPU.
    """
    seen = features(space, code)
    if space.size == 1:
        return Progress(0.0, 1.0)
    found = [mean_error(seen[..., f].T.numpy()) for f in range(seen.shape[-1])]
    known = [(error, seen[..., 0].numel() / ess) for error, ess in found if not math.isnan(error)]
    if not known:  # one model throughout: the rule of three, a draw in twenty counted
        return Progress(min(1.0, 3 * FORGOTTEN / code[..., 0].numel()), 1.0)
    return Progress(max(e for e, _ in known), max(t for _, t in known))


class Enough:
    """Says when a run may stop: it is precise enough, or its time is up.

    Precise enough also means twenty autocorrelation times long: the starts of many chains are then
    forgotten, and not only averaged.

    Arguments:
        space: The space, on the CPU.
        until: ``{"probability": error}``: the standard error that every model's probability
            (in a space of more than 64 models every unit's) must reach.
        deadline: Time by ``time.monotonic`` at which to stop in any case.

    Attributes:
        reached: Whether the precision was.
        disappointed: Whether it stopped because precision is further off than was hoped; see
            :meth:`look_back`.

    Raises:
        ConfigurationError: A precision that is not known, or not positive.
    """

    def __init__(
        self, space: Space, until: Mapping[str, float] | None, deadline: float = math.inf
    ) -> None:
        wanted = dict(until or {})
        self.error = check_until(wanted)
        self.space, self.deadline, self.reached = space, deadline, False
        self._next, self.disappointed = FEWEST, False
        self._look_back: tuple[float, float, Callable[[], float], float] | None = None

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
        self._look_back = (now, now + after, price, self.error or error)

    def _hopeless(self, recorder: Recorder) -> bool:
        assert self._look_back is not None
        begun, _, price, error = self._look_back
        self._look_back = None
        now = progress_of(self.space, recorder.code)
        lengths = (now.error / error) ** 2, FORGOTTEN * now.time / recorder.kept
        far = max(x if x == x else math.inf for x in lengths) - 1
        ahead = min((time.monotonic() - begun) * far, self.deadline - time.monotonic())
        return ahead > price()

    def __call__(self, recorder: Recorder) -> bool:
        if self.error is not None and recorder.kept * recorder.thin >= self._next:
            self._next = int(GROWTH * recorder.kept * recorder.thin) + FEWEST
            now = progress_of(self.space, recorder.code)
            self.reached = now.error <= self.error and recorder.kept >= FORGOTTEN * now.time
        if self._look_back is not None and time.monotonic() >= self._look_back[1]:
            self.disappointed = self._hopeless(recorder)
        return self.reached or self.disappointed or time.monotonic() >= self.deadline


def check_until(until: Mapping[str, float]) -> float | None:
    """The standard error asked for, if any."""
    if unknown := set(until) - {"probability"}:
        raise ConfigurationError(f'until: expected {{"probability": error}}, got {sorted(unknown)}')
    error = until.get("probability")
    if error is not None and not 0 < error < 1:
        raise ConfigurationError(f"until: expected an error between 0 and 1, got {error}")
    return error
