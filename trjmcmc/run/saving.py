"""A run in a folder: written while it samples, and taken up from there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from .. import clock
from ..checkpoint.folder import File, Folder, Found, read_folder
from ..checkpoint.frozen import Roots, freeze, thaw
from ..draws import Recorder
from ..errors import CheckpointWarning, warn_user
from ..kernel.base import Kernel
from ..result.files import smallest
from ..target.target import Target
from . import writing
from .knowledge import Knowledge
from .memories import Held, Memories
from .request import Request
from .resumed import Planned, Resumed, new_rows, shard_data, with_rows
from .same import about, check_pairs, check_target
from .sampling import Shard, Walk
from .stop import Stop
from .writing import Writer

TOLD_SECONDS = 60.0  # between two lines of progress in the events

ASKED = ("chains", "warmup", "thin", "fit")  # settings that must be those of the run in the folder


def roots_of(known: Knowledge, made: Kernel) -> Roots:
    """What a script makes again.

    Arguments:
        known: As it was made by the script, before anything was learnt.
        made: The kernel that the strategy has made then.
    """
    objects = {
        "target": known.target,
        "strategy": known.strategy,
        "policy": known.policy,
        "weights": known.make_weights,
        "transport": known.transport,
        "kernel": made,
    }
    return Roots(objects, {"target", "strategy", "policy"})


class Saver(Writer):
    """Writes a run into a folder, between two draws.

    Arguments:
        folder: The folder.
        roots: What the script makes again.
        settings: What the user asked, as plain data; kept to be compared.
        found: What was there, if anything.
        spent: Seconds that the run took before.
    """

    def __init__(
        self,
        folder: Folder,
        roots: Roots,
        settings: Mapping[str, Any],
        found: Found | None,
        spent: float,
    ) -> None:
        super().__init__(folder, spent, 0 if found is None else found.head["kept"])
        self._roots, self._settings = roots, dict(settings)
        self._plan: File | None = None if found is None else File(*found.head["plan"])
        self._segments = [] if found is None else [File(*s) for s in found.head["segments"]]
        self._thin = None if found is None else found.head["thin"]
        self._remembered: tuple[Held, ...] | None = None
        self._open: tuple[int, tuple[Held, ...] | None] | None = None  # what the last began with
        self._told = clock.now()

    # ---- who looks at it from outside -----------------------------------------------------------

    def _tell_progress(self, recorder: Recorder, stop: Stop) -> None:
        now = clock.now()
        if now - self._told < TOLD_SECONDS:
            return
        self._told, left = now, stop.deadline - now
        self.tell(
            "progress",
            kept=recorder.kept,
            thin=recorder.thin,
            precision=stop.progress or None,
            left=round(left, 1) if math.isfinite(left) else None,
        )

    # ---- what there is to write ---------------------------------------------------------------

    def learnt(self, known: Knowledge) -> None:
        """Write what is known before sampling: a pilot run, a fit, or a part of one."""
        self.guarded(lambda: self._write_plan(known, None), step=known.trainer.step)

    def passing(self, known: Knowledge) -> None:
        """Write a fit between two steps of its training, if it is time to."""
        if self.is_due:
            self.learnt(known)

    def planned(self, known: Knowledge, planned: Planned, walk: Walk, recorder: Recorder) -> None:
        """Write what is settled, and begin a new record."""
        self._segments, self.saved, self._thin = [], 0, recorder.thin
        self._remembered, self._plan, self._open = None, None, None

        def write() -> None:
            self._write_plan(known, planned)
            self._write(known, walk, recorder, {})
            found = read_folder(self.folder.path, plan=True)
            assert found is not None
            taken_up(found, self._roots)  # better now than after a crash

        self.guarded(write)

    def resumed(self, known: Knowledge, planned: Planned, walk: Walk, recorder: Recorder) -> None:
        """Take note of what the folder holds; write all of it where that is nothing."""
        if self._plan is None:
            self.planned(known, planned, walk, recorder)
            return
        self._remembered = walk.shard().remembered
        self.wait()

    def drawn(self, known: Knowledge, walk: Walk, recorder: Recorder, stop: Stop) -> None:
        """Write the draws since, if it is time to."""
        self._tell_progress(recorder, stop)
        if self.is_due:
            self.save(known, walk, recorder, stop)

    def save(self, known: Knowledge, walk: Walk, recorder: Recorder, stop: Stop) -> None:
        """Write the draws since, and a head that the next draw can begin from."""
        if self._plan is not None:
            self.guarded(lambda: self._write(known, walk, recorder, stop.held()))

    # ---- how it is written --------------------------------------------------------------------

    def _write_plan(self, known: Knowledge, planned: Planned | None) -> None:
        data = freeze({"known": known, "planned": planned}, self._roots)
        if planned is None:  # later it goes with the draws
            data["remembered"] = new_rows(_memories(known).held(), None)
        self._plan = self.folder.write("plan", data)
        if planned is None:
            self._write_head(known, {"shard": None, "kept": 0, "thin": None, "stop": {}})

    def _write(
        self, known: Knowledge, walk: Walk, recorder: Recorder, stop: Mapping[str, Any]
    ) -> None:
        assert self._plan is not None
        segments, first, before = self._segments, self.saved, self._remembered
        if self._open is not None and segments[-1].size < writing.WHOLE_SEGMENT:
            segments, (first, before) = segments[:-1], self._open
        if recorder.thin != self._thin or recorder.kept < first:  # every other draw was dropped
            segments, first, before = [], 0, None
            self.tell("thinned", thin=recorder.thin, kept=recorder.kept)
        shard = walk.shard()
        assert shard.remembered is not None
        code, theta, log_joint = recorder.since(first)
        segment = {
            "code": smallest(code),
            "theta": theta.clone(),
            "log_joint": log_joint.clone(),
            "values": self.values(known.target, code, theta),
            "remembered": new_rows(shard.remembered, before),
        }
        segments = [*segments, self.folder.write("draws", segment)]
        ancestor = recorder.ancestor
        seen = None if walk.crossings is None else walk.crossings.result()
        shares = None if walk.visits is None or recorder.thin == 1 else walk.visits.result()
        head = {"shard": shard_data(shard), "kept": recorder.kept, "thin": recorder.thin}
        head |= {"ancestor": ancestor, "stop": dict(stop), "crossings": seen, "shares": shares}
        self._write_head(known, head | {"acceptance": walk.tally.rates()}, segments)
        self._segments, self.saved, self._thin = segments, recorder.kept, recorder.thin
        self._open = first, before
        self._remembered = shard.remembered

    def _write_head(
        self, known: Knowledge, head: Mapping[str, Any], segments: list[File] | None = None
    ) -> None:
        assert self._plan is not None
        self.folder.write_head(
            {
                **head,
                "plan": tuple(self._plan),
                "segments": [tuple(s) for s in segments or []],
                "settings": self._settings,
                "spent": self.spent,
                "account": known.spending.account.held(),
                **about(known.target),
            }
        )


# ---- a folder for a run -------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """The folder of a run, and what was there.

    Attributes:
        folder: Open for writing.
        found: What was there, or None.
        settings: What the user asks now, as plain data.
        spent: Seconds that the run took before.
    """

    folder: Folder
    found: Found | None
    settings: Mapping[str, Any]
    spent: float = 0.0

    def anew(self, spent: float) -> Place:
        """The folder for a run that begins anew after so many seconds."""
        return replace(self, found=None, spent=spent)

    def begin(
        self, known: Knowledge, made: Kernel, request: Request
    ) -> tuple[Saver, Knowledge, Resumed | None, int | None]:
        """Begin to write, and take up what is there.

        Arguments:
            known, made: As of :func:`roots_of`.
            request: What the user asks.

        Returns:
            What writes; what is known; the chains, None where they had not begun to sample; and
            the likelihood calls that are left.

        Raises:
            CheckpointError: What is there is another run's.
        """
        roots, before, most = roots_of(known, made), None, request.max_evaluations
        saver = Saver(self.folder, roots, self.settings, self.found, self.spent)
        if self.found is not None:
            check_same(self, known.target)
            known, before = taken_up(self.found, roots)
            most = None if most is None else max(1, most - known.spending.evaluations)
        found, step = self.found, known.trainer.step
        then = {} if found is None else {"kept": found.head["kept"], "step": step}
        saver.tell("resumed" if then else "begun", **then, **self.settings)
        return saver, known, before, most


@contextmanager
def place_of(path: str | Path | None, settings: Mapping[str, Any]) -> Iterator[Place | None]:
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
        found = folder.read()
        yield Place(folder, found, settings, 0.0 if found is None else float(found.head["spent"]))
    finally:
        folder.close()


def _memories(known: Knowledge) -> Memories:
    """What a fit computes with what it has computed before."""
    return Memories((known.transport, known.fitted.weights), known.target)


# ---- taking it up -------------------------------------------------------------------------------


def check_same(place: Place, target: Target) -> None:
    """Refuse to go on with a run of another target, version, device or request.

    Raises:
        CheckpointError: What differs is named.
    """
    found, path, now = place.found, place.folder.path, place.settings
    assert found is not None
    asked = found.head["settings"]
    names = (*ASKED, "shards", "seed")
    check_pairs(path, {name: (asked.get(name), now.get(name)) for name in names})
    check_target(path, found.head, found.head["shard"], target)


def taken_up(found: Found, roots: Roots) -> tuple[Knowledge, Resumed | None]:
    """What was known, and where the chains were; None where they had not begun to sample.

    Raises:
        CheckpointError: The plan names what the script does not make, or what is not allowed.
    """
    assert found.plan is not None
    thawed, head = thaw(found.plan, roots), found.head
    known, planned = thawed["known"], thawed["planned"]
    known.spending.account.take_up(head["account"])
    if head["shard"] is None or planned is None:
        if "remembered" in found.plan:
            _memories(known).take_up(with_rows(None, found.plan["remembered"]))
        return known, None
    remembered: tuple[Held, ...] | None = None
    for segment in found.segments:
        remembered = with_rows(remembered, segment["remembered"])
    shard = Shard(**{**head["shard"], "remembered": remembered})
    columns = (
        torch.cat([s[name] for s in found.segments]) for name in ("code", "theta", "log_joint")
    )
    code, theta, log_joint = columns
    resumed = Resumed(
        planned, shard, code.long(), theta, log_joint, head["thin"], head["ancestor"], head["stop"]
    )
    return known, resumed
