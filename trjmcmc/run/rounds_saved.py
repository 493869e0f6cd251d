"""A run in rounds in a folder, or in a result: plain data, from which it goes on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import clock
from ..checkpoint.events import Events
from ..checkpoint.folder import File, Folder, Found
from ..doubts.of_chains import Judged
from ..draws import Draws
from ..errors import CheckpointError, CheckpointWarning, warn_user
from ..kernel.base import State
from ..result.files import as_data, smallest
from ..result.result import Result
from ..target.target import Target
from .knowledge import Spending
from .position import Position, about, check_pairs, check_target
from .recipes.base import Recipe
from .recorded import Recorded
from .rounds import Resumption

ROUNDS, PLAN = "rounds", "numbers of the Plan"  # where a file has the position, and these

CUT = "cut"  # where a result has the draws before those that it shows

DRAWN = "drawn"  # the draws that a run goes on from, by column, shape (draw, chain, ...)

COLUMNS = ("code", "theta", "log_joint")  # of these

SAVE_SECONDS = 30.0  # between two heads

SAVE_SHARE = 0.01  # of the time, that writing may take

WHOLE_SEGMENT = 2**20  # bytes from which a segment is not written again with later draws

STATED, MAP = "stated", "map"  # where it has what was stated of the chains, and a trained map


ASKED = ("chains", "warmup", "thin", "fit", "shards", "seed")  # what the run there was asked


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run, and what was there.

    Attributes:
        folder: Open for writing.
        found: What was there, or None.
        settings: What the user asks now, as plain data.
    """

    folder: Folder
    found: Found | None
    settings: Mapping[str, Any]

    @property
    def there(self) -> dict[str, Any] | None:
        """What the run there goes on with, as of :func:`onward`; None where none was saved."""
        if self.found is None:
            return None
        columns = zip(*([s[n] for n in COLUMNS] for s in self.found.segments), strict=True)
        drawn = [torch.cat(each) for each in columns]
        return {**onward_of(self.found.head, self.found.plan), DRAWN: drawn}

    @property
    def spent(self) -> float:
        """Seconds that the run took before."""
        return 0.0 if self.found is None else float(self.found.head["spent"])


@contextmanager
def place_of(path: str | Path | None, settings: Mapping[str, Any]) -> Iterator[RunFolder | None]:
    """The folder of a run, as long as this lasts; None without one, or where none can be made.

    Arguments:
        path: The folder, or None.
        settings: What the user asks, as plain data.

    Raises:
        CheckpointError: Another run writes there, or what is there is damaged.
    """
    folder = None
    if path is not None:
        try:
            folder = Folder(path)
        except OSError as error:
            why = f"checkpoint: {path} can't be written ({error}); the run goes on unsaved"
            warn_user(why, CheckpointWarning)
    if folder is None:
        yield None
        return
    try:
        yield RunFolder(folder, folder.read(), settings)
    finally:
        folder.close()


class RoundsSaver:
    """Writes a run in rounds into a folder, between two steps, now and then.

    Arguments:
        place: The folder, and what is there.
        spending: Seconds and likelihood calls of the sampler.
        before: Where the run there goes on, or None.

    Attributes:
        folder: As of ``place``.
        saved: Draws of each chain that it holds.
    """

    def __init__(self, place: RunFolder, spending: Spending, before: Resumption | None) -> None:
        head: Mapping[str, Any] = {} if place.found is None else place.found.head
        self.folder, self.saved = place.folder, head.get("kept", 0)
        self._begun, self._events = clock.now() - place.spent, Events(place.folder.path)
        self._due = -math.inf if before is None else clock.now() + SAVE_SECONDS
        self._looked, self._warned = -math.inf, False
        self._host: Target | None = None
        self._settings, self._spending = place.settings, spending
        self._plan = File(*head["plan"]) if head else None
        self._segments = [File(*s) for s in head.get("segments", [])]
        last = [] if place.found is None else place.found.segments[-1:]
        self._first = self.saved - sum(len(s["code"]) for s in last)  # before the last segment
        self._lesson = None if before is None else before.position.lesson  # that the plan holds
        self._thin = head.get("thin", 1)
        self._chains: Recorded | None = None
        self._closed = False
        self._judged = Judged(**head["judged"]) if head.get("judged") else None
        if head:
            self.tell("resumed", kept=self.saved, **self._settings)
        else:
            self.tell("begun", **self._settings)
            self.tell("stage", stage="the beginning")

    def close(self) -> None:
        """Write no more: the folder is anybody's."""
        self._chains, self._closed = None, True

    def look(self, judged: Judged, kept: int, words: str) -> None:
        """Tell of a look at so many kept draws, and how the run stands by its rule."""
        self._judged = judged
        self.tell("progress", kept=kept, precision=words)

    def keep(self, chains: Recorded, at: Callable[[], Position]) -> None:
        """Write what was drawn since, if it is time to."""
        if self._closed:
            return
        if self._chains is None:
            self.tell("stage", stage="the rounds")
        self._chains = chains
        now = clock.now()
        if now >= self._due or now < self._looked:  # a clock that was set back
            self.save(at())

    def save(self, at: Position | None) -> None:
        """Write what was drawn since, and where the next step begins.

        Where that fails it is said once, and the run goes on.
        """
        if at is None or self._chains is None:
            return
        begun = clock.now()
        try:
            self._write(self._chains, at)
            self.tell("saved", kept=self.saved, seconds=round(clock.now() - begun, 4))
        except (OSError, CheckpointError) as error:
            self.tell("unsaved", why=str(error))
            if not self._warned:
                warn_user(
                    f"checkpoint: nothing more is saved in {self.folder.path} ({error}); the run "
                    "goes on, and tries again",
                    CheckpointWarning,
                )
            self._warned = True
        self._looked = now = clock.now()
        self._due = now + max(SAVE_SECONDS, (now - begun) / SAVE_SHARE)

    def _write(self, chains: Recorded, at: Position) -> None:
        target, segments, first = chains.recipe.target, self._segments, self.saved
        if at.lesson is not self._lesson or at.thin != self._thin:  # another record
            segments, first = [], 0
        elif segments and segments[-1].size < WHOLE_SEGMENT:
            segments, first = segments[:-1], self._first
        if self._plan is None or at.lesson is not self._lesson:
            self._plan = self.folder.write("plan", _lesson(at, chains.recipe))
        if at.lesson is not self._lesson and self._lesson is not None:
            self._judged = None
        if first < at.recorded:
            drawn = chains.record[max(0, first - chains.gone) :]
            code, theta, log_joint = (
                torch.stack(x).cpu() for x in zip(*(s[:3] for s in drawn), strict=True)
            )
            segment = {
                "code": smallest(code),
                "theta": theta,
                "log_joint": log_joint,
                "values": self._values(target, code, theta),
            }
            segments = [*segments, self.folder.write("draws", segment)]
        self._segments, self._first, self.saved = segments, first, at.recorded
        self._lesson, self._thin = at.lesson, at.thin
        self.folder.write_head(
            {
                **_position(at, chains.recipe),
                "kept": at.recorded,
                "left_out": chains.left_out,
                "thin": at.thin,
                "plan": tuple(self._plan),
                "segments": [tuple(s) for s in segments],
                "settings": dict(self._settings),
                "spent": self.spent,
                "judged": None if self._judged is None else asdict(self._judged),
                "seconds": self._seconds(),
                "account": self._spending.account.held(),
            }
        )

    def _seconds(self) -> dict[str, float]:
        """Seconds by stage, those of sampling until now."""
        known = self._spending.seconds
        now = max(0.0, self.spent - sum(known.values()))
        return {**known, "sample": known.get("sample", 0.0) + now}

    @property
    def spent(self) -> float:
        """Seconds that the run has taken."""
        return max(0.0, clock.now() - self._begun)

    def tell(self, event: str, **found: Any) -> None:
        """Append a line to the events of the folder, with the seconds that the run has taken."""
        self._events.add(event, spent=round(self.spent, 3), **found)

    def _values(self, target: Target, code: Tensor, theta: Tensor) -> dict[str, Tensor]:
        """Parameters as users know them, (draw, chain, ...)."""
        if self._host is None:
            self._host = target.to(device="cpu", probe=False)
        if not len(code):
            return {}
        found = self._host.padded_values(code.flatten(0, 1), theta.flatten(0, 1))
        return {
            name: value.reshape(*code.shape[:2], *value.shape[1:]) for name, value in found.items()
        }


def check_asked(place: RunFolder) -> None:
    """Refuse to go on with a run of another request.

    Raises:
        CheckpointError: What differs is named.
    """
    if place.found is not None:
        was, now = place.found.head["settings"], place.settings
        pairs = {name: (was.get(name), now.get(name)) for name in ASKED}
        check_pairs(place.folder.path, pairs)


def onward(position: Position, recipe: Recipe, seed: int, cut: Draws | None) -> dict[str, Any]:
    """What a result goes on with: plain data, without its draws.

    Arguments:
        position: Where it goes on.
        recipe: Its recipe.
        seed: The sampler's.
        cut: Draws before those that the result has, or None.
    """
    parts = None if cut is None else (cut.code, cut.theta, cut.log_joint)
    lesson = _lesson(position, recipe)
    return {**_position(position, recipe), "lesson": lesson, "seed": seed, CUT: parts}


def onward_of(head: Mapping[str, Any], lesson: Mapping[str, Any]) -> dict[str, Any]:
    """The same, of the head of a folder and the lesson there."""
    return {**head, "lesson": lesson, "seed": head["settings"]["seed"], CUT: None}


def saved_in(result: object) -> Mapping[str, Any] | None:
    """What a result goes on with, of a run in rounds; None of others."""
    data = as_data(getattr(result, "_onward", None))
    if not isinstance(result, Result) or not isinstance(data, Mapping) or ROUNDS not in data:
        return None
    raw = result.raw
    parts = [] if data[CUT] is None else [data[CUT]]
    columns = zip(*parts, (raw.code, raw.theta, raw.log_joint), strict=True)
    return {**data, DRAWN: [torch.cat([x.transpose(0, 1) for x in each]) for each in columns]}


def before_of(where: object, there: Mapping[str, Any], recipe: Recipe, seed: int) -> Resumption:
    """Where a saved run goes on.

    Arguments:
        where: Names it in words.
        there: Of it, as of :func:`saved_in` and :attr:`RunFolder.there`.
        recipe: Of the run.
        seed: The sampler's.

    Raises:
        CheckpointError: It is of another target, version, seed or plan.
    """
    target = recipe.target
    check_target(where, there, there["shard"], target)
    numbers = there[PLAN], asdict(recipe.plan)
    check_pairs(where, {"seed": (there["seed"], seed), PLAN: numbers})
    position = Position.of(there[ROUNDS], there["lesson"], target.device)
    return Resumption(position, _record(there[DRAWN], target))


def record_of(draws: Draws, target: Target) -> list[State]:
    """The record of chains, step by step, by what a look has kept of it."""
    columns = draws.code.transpose(0, 1), draws.theta.transpose(0, 1), draws.log_joint.T
    return _record(columns, target)


def _record(columns: Any, target: Target) -> list[State]:
    """The record, step by step, of columns of shape (draw, chain, ...); of none it is empty."""
    if not columns:  # the run was saved before its first kept draw
        return []
    code, theta, log_joint = columns
    device = target.device
    rows = zip(code.long().to(device), theta.to(device), log_joint.to(device), strict=True)
    return [State(*row) for row in rows]


def _lesson(at: Position, recipe: Recipe) -> dict[str, Any]:
    """What moves are made of, as plain data."""
    trained = recipe.trained
    state = None if trained is None else {k: v.cpu() for k, v in trained.state_dict().items()}
    return {**at.lesson.data(), MAP: state}


def _position(at: Position, recipe: Recipe) -> dict[str, Any]:
    """Where a run goes on, and what is compared before it does, as plain data."""
    chains = {"code": at.code, "theta": at.theta, "log_joint": at.log_joint}
    plan = asdict(recipe.plan)
    stated = {
        name: getattr(recipe.stated, name) for name in ("chains", "warmup", "thin", "evaluations")
    }
    found = {ROUNDS: at.data(), PLAN: plan, STATED: stated, "shard": chains}
    return found | about(recipe.target)
