"""One writer at a time."""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..atomic import replace_file
from ..errors import CheckpointError

FOREIGN_SECONDS = (
    3600.0  # since a writer on another host was last heard of, until it counts as gone
)


class Lock:
    """A file that says who writes into a folder.

    Arguments:
        folder: The folder.

    Raises:
        CheckpointError: Somebody else does, and is alive, or was a short time ago on another host.
    """

    def __init__(self, folder: Path) -> None:
        self._path, self._mine = folder / "lock", _identity()
        content = json.dumps(self._mine).encode()
        try:
            handle = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            self._refuse_if_alive()
            replace_file(self._path, content)  # a stale one
        else:
            with open(handle, "wb") as file:
                file.write(content)
        if _read(self._path) != self._mine:
            raise CheckpointError(f"{folder}: another run has just begun to write here")

    def _refuse_if_alive(self) -> None:
        there = _read(self._path)
        with suppress(OSError):
            age = time.time() - self._path.stat().st_mtime
            who = f"process {there.get('pid')} on {there.get('host')}"
            here = there.get("host") == self._mine["host"]
            tells = here and os.name != "nt"  # where asking for a process does not end it
            if _alive(there) if tells else there and age < FOREIGN_SECONDS:
                raise CheckpointError(
                    f"{self._path.parent}: {who} is writing here: give this run a folder of its "
                    f"own, or end that one (if it is gone, delete {self._path})"
                )

    def refresh(self) -> None:
        """Say that this writer is alive."""
        with suppress(OSError):
            os.utime(self._path)

    def release(self) -> None:
        """Let others write."""
        with suppress(OSError):
            if _read(self._path) == self._mine:
                self._path.unlink()


def _identity() -> dict[str, Any]:
    return {"pid": os.getpid(), "host": socket.gethostname(), "begun": _begun(os.getpid())}


def _read(path: Path) -> dict[str, Any]:
    """Who holds a lock; nobody, if it was cut off while it was written."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _begun(pid: int) -> str:
    """When a process began, in ticks since the start of the system; empty where nobody tells."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]


def _alive(there: dict[str, Any]) -> bool:
    """Whether the process of a lock on this host runs; not one that has its number by now."""
    pid = there.get("pid")
    if not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        pass
    return _begun(pid) == there.get("begun")
