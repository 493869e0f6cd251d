"""Likelihoods in the processes of a pool."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..errors import PoolError

TASKS = 64  # pieces that a batch is divided into for a pool of workers

PATIENCE = 0.2  # seconds between checks that the workers of a pool are alive


def guarded(function: Callable[..., Any], point: tuple[Any, ...]) -> tuple[bool, Any]:
    try:
        return True, function(*point)
    except Exception:
        return False, traceback.format_exc(limit=-3)


def one_task(
    function: Callable[..., Any], points: Sequence[tuple[Any, ...]]
) -> list[tuple[bool, Any]]:
    return [guarded(function, p) for p in points]


def through_pool(pool: Any, function: Callable[..., Any], tasks: list[Any]) -> Iterator[Any]:
    """``pool.map``; a pool of ``multiprocessing`` would wait for a dead worker for ever."""
    workers = list(getattr(pool, "_pool", None) or [])
    if not (hasattr(pool, "imap") and workers and hasattr(workers[0], "exitcode")):
        yield from pool.map(function, tasks)
        return
    retire = getattr(pool, "_maxtasksperchild", None) is not None
    results = pool.imap(function, tasks)
    for _ in tasks:
        while True:
            try:
                yield results.next(timeout=PATIENCE)
                break
            except multiprocessing.TimeoutError:
                codes = {w.exitcode for w in workers} - ({None, 0} if retire else {None})
                if codes:
                    raise PoolError(
                        f"a worker of the pool died (exit code {codes.pop()}). Values computed so "
                        "far are kept; set `.pool` to a fresh pool and call again."
                    ) from None
