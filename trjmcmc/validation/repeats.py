"""Repeats, here or on workers, within a budget, kept in a folder."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from ..checkpoint.lock import Lock
from ..errors import CheckpointError, PoolError
from ..run.tasks import Failed, TaskQueue
from .repeat import Setup, one_repeat

FILE = "repeats.jsonl"

AHEAD = 2  # repeats a worker that are on their way, so that none waits

WORKERS = 4  # supposed, where an executor does not say how many it has


class SavedRepeats:
    """Finished repeats in a folder, a line of JSON each, so that a new process goes on.

    Arguments:
        folder: The folder, made if it is not there; None keeps them in memory.
        spec: What repeats depend on; a folder of others is refused.

    Raises:
        CheckpointError: The folder holds repeats of something else, or another process writes.
    """

    def __init__(self, folder: str | Path | None, spec: dict[str, Any]) -> None:
        self.found: dict[int, dict[str, Any]] = {}
        self._path, self._lock = None, None
        if folder is None:
            return
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        self._lock = Lock(place)
        self._path = place / FILE
        head = json.dumps({"validate": spec}, sort_keys=True)
        if not self._path.exists():
            self._path.write_text(head + "\n")
            return
        lines = self._path.read_text().split("\n")
        if lines[0] != head:
            self.close()
            raise CheckpointError(
                f"{self._path}: holds repeats of other models or settings ({lines[0]}, now "
                f"{head}); give this validation a folder of its own"
            )
        whole = [lines[0]]
        for line in lines[1:]:
            try:
                row = json.loads(line)
            except ValueError:  # cut off when its writer was killed
                continue
            self.found[row["repeat"]] = row
            whole.append(line)
        self._path.write_text("\n".join(whole) + "\n")

    def add(self, row: dict[str, Any]) -> None:
        """Keep one more."""
        self.found[row["repeat"]] = row
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(row) + "\n")
                file.flush()

    def close(self) -> None:
        """Let others write."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def spec_of(given: Setup) -> dict[str, Any]:
    """What tells repeats of one validation from those of another, as plain data."""
    target = given.target
    return {
        "seed": given.seed,
        "slots": hashlib.blake2b("/".join(target.slot_names).encode(), digest_size=6).hexdigest(),
        "models": str(target.space.size),
        "run": {k: repr(v) for k, v in sorted(given.run.items())},
        "quantities": sorted(given.quantities),
    }


def finished(
    given: Setup, numbers: list[int], executor: Any, over: Callable[[], bool]
) -> Iterator[dict[str, Any]]:
    """Repeats of those numbers as they come, until time is over.

    Arguments:
        given: What they are made of.
        numbers: Which.
        executor: As of :class:`~trjmcmc.run.tasks.TaskQueue`; None does all here.
        over: Whether there is no time left.

    Raises:
        ConfigurationError: An executor that takes no tasks, or a model that can't be sent.
        PoolError: Workers died again and again.
    """
    if executor is None:
        for number in numbers:
            if over():
                return
            yield one_repeat(given, number)
        return
    queue = TaskQueue(0, executor)
    queue.begin(cast("Any", given))  # which asks of a work that it has a target
    most = AHEAD * (getattr(executor, "_max_workers", None) or WORKERS)
    left = list(numbers)
    try:
        while queue.pending or (left and not over()):
            while left and len(queue.pending) < most and not over():
                number = left.pop(0)
                queue.send(number, math.inf, one_repeat, number)
            if over():
                return
            for _, found in queue.arrived():
                if isinstance(found, Failed):
                    raise PoolError(f"executor: a repeat was lost: {found.text}") from found.error
                yield found.value
    finally:
        queue.close()
