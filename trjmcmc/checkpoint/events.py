"""What happens to a run, a line of JSON each, for those who look at it from outside."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

EVENTS = "events.jsonl"


class Events:
    """Appends lines to ``events.jsonl`` in the folder of a run.

    A line that a kill has cut off stays, and the next one begins anew below it.

    Arguments:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path, self._begun = folder / EVENTS, False

    def add(self, event: str, **found: Any) -> None:
        """Append a line with the wall clock's time, in seconds since 1970, and the process.

        It is not flushed to the disk, and a disk that is full loses it: a run goes on without.

        Arguments:
            event: Its name.
            found: Numbers, words, or None.
        """
        told = {"time": round(time.time(), 3), "pid": os.getpid(), "event": event, **found}
        line = json.dumps(told, allow_nan=False, default=str) + "\n"
        with suppress(OSError), open(self._path, "ab") as file:
            torn = not self._begun and _is_torn(self._path)
            file.write(("\n" if torn else "").encode() + line.encode())
            self._begun = True


def _is_torn(path: Path) -> bool:
    with open(path, "rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def read_events(folder: str | Path) -> list[dict[str, Any]]:
    """The events of a run, oldest first; lines that were cut off are left out.

    Arguments:
        folder: The folder of the run.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Events(Path(folder)).add("stage", stage="the pilot run")
        ...     [e["stage"] for e in read_events(folder)]
        ['the pilot run']
    """
    found: list[dict[str, Any]] = []
    with suppress(FileNotFoundError):
        for line in (Path(folder) / EVENTS).read_bytes().splitlines():
            with suppress(ValueError):
                told = json.loads(line)
                if isinstance(told, dict):
                    found.append(told)
    return found
