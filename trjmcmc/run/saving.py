"""A run in a folder: written while it samples, and taken up from there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checkpoint.folder import Folder, Found
from ..errors import CheckpointWarning, warn_user
from ..target.target import Target
from .same import check_pairs, check_target

ASKED = ("chains", "warmup", "thin", "fit")  # settings that must be those of the run in the folder


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
