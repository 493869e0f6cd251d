"""Sends the tasks of a run to workers, and again where a worker dies."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable
from concurrent.futures import BrokenExecutor
from typing import Any

from .. import clock
from ..errors import ConfigurationError, PoolError, PoolWarning, TRJError, warn_user
from .shard_work import Done, Failed, Work, pack_work, perform

DEATHS = 4  # times that a task is sent before its workers' deaths are laid to it

LONELY = 60.0  # seconds without workers after which that is said

ASKED = 5.0  # seconds between questions whether there are any

PAUSES = (0.001, 0.05)  # seconds between looks at tasks, the shortest and the longest


class TaskQueue:
    """Shards, the workers that advance them, and the tasks that these have.

    Arguments:
        shards: How many.
        executor: What has ``submit(function, *args)`` and gives futures with ``done`` and
            ``result``; or a function that makes one, which is asked again when it is broken; None
            where all is done here, without any of what follows.

    Attributes:
        shards, executor: As above.
        pending: Keys of the tasks that are on their way.
    """

    def __init__(self, shards: int, executor: Any = None) -> None:
        self.shards, self.executor = shards, executor
        self._make = executor if callable(executor) and not hasattr(executor, "submit") else None
        self._pool: Any = None
        self._work: Work | None = None
        self._tasks: dict[Hashable, tuple[Any, tuple[Any, ...]]] = {}

    def begin(self, work: Work) -> None:
        """Have tasks of a work, which workers are sent unless they have it.

        Raises:
            ConfigurationError: The executor has no ``submit``, or the work can't be sent.
        """
        if self._work == work:
            return
        if self._pool is None:
            self._pool = self.executor if self._make is None else self._make()
        if not callable(getattr(self._pool, "submit", None)):
            raise ConfigurationError(
                "executor: expected a Dask client, an executor of concurrent.futures, or anything "
                f"else with submit(function, *args), got {self.executor!r}"
            )
        self._work, (self._key, self._packed) = work, pack_work(work)
        self._deaths: dict[Hashable, int] = {}
        self._breaks = 0  # of pools, since the last task came back
        self._sent_to_all = self._warned = False
        self._pause, self._lonely_since, self._asked = PAUSES[0], math.inf, -ASKED

    @property
    def pending(self) -> list[Hashable]:
        return list(self._tasks)

    @property
    def _is_dask(self) -> bool:
        return type(self._pool).__module__.partition(".")[0] == "distributed"

    # ---- tasks --------------------------------------------------------------------------------

    def send(self, key: Hashable, limit: float, step: Callable[..., Any], *args: Any) -> None:
        """Send a task.

        Arguments:
            key: Name of the task.
            limit, step, args: As of :func:`~trjmcmc.run.shard_work.perform`.

        Raises:
            PoolError: The executor takes no tasks.
        """
        self._submit(key, (limit, step, *args), packed=not self._sent_to_all)

    def _submit(self, key: Hashable, task: tuple[Any, ...], packed: bool) -> None:
        args = perform, self._key, self._packed if packed else None, *task
        try:
            try:
                future = self._pool.submit(*args, **({"pure": False} if self._is_dask else {}))
            except BrokenExecutor:
                self._breaks += 1
                if self._make is None or self._breaks >= DEATHS:
                    raise
                self._pool = self._make()
                args = perform, self._key, self._packed, *task
                future = self._pool.submit(*args)
        except TRJError:
            raise
        except Exception as error:
            raise PoolError(
                f"executor: it takes no more tasks ({_named(error)}); run again with a fresh one"
            ) from error
        self._tasks[key] = future, task

    def arrived(self) -> list[tuple[Hashable, Done | Failed]]:
        """Tasks that have come back; none after a short wait in which none has.

        Raises:
            PoolError: Workers have died of a task again and again, or the executor is broken.
        """
        found: list[tuple[Hashable, Done | Failed]] = []
        for key, (future, task) in list(self._tasks.items()):
            if not future.done():
                continue
            del self._tasks[key]
            try:
                result = future.result()
            except Exception as error:
                self._again(key, task, error)
                continue
            if result is None:  # a worker that came late
                self._submit(key, task, packed=True)
                continue
            found.append((key, result))
        if found:
            self._pause, self._lonely_since = PAUSES[0], math.inf
            self._sent_to_all, self._breaks = True, 0
        elif self._tasks:
            time.sleep(self._pause)
            self._pause = min(2 * self._pause, PAUSES[1])
            self._look_for_workers()
        return found

    def _again(self, key: Hashable, task: tuple[Any, ...], error: Exception) -> None:
        """Send a task again whose worker has died."""
        broken = isinstance(error, BrokenExecutor)
        if broken and self._make is None:
            raise PoolError(
                f"executor: a worker died, and the whole pool with it ({_named(error)}). The "
                "result so far is this error's `result`. Where workers may die, give a function "
                "that makes a pool (executor=lambda: ProcessPoolExecutor(8)) or a Dask client; "
                "with checkpoint= the same line goes on"
            ) from error
        if not broken:  # of a pool that is broken all tasks come back so
            self._deaths[key] = self._deaths.get(key, 0) + 1
        if self._deaths.get(key, 0) >= DEATHS:
            raise PoolError(
                f"executor: {_said(key, task)} was sent {DEATHS} times, and no worker came back "
                f"with it, the last for {_named(error)}: too little memory, or a likelihood that "
                "ends its process? The result so far is this error's `result`"
            ) from error
        if not self._warned:
            self._warned = True
            warn_user(
                f"executor: a worker was lost with {_said(key, task)} ({_named(error)}), which is "
                "done again, as others will be",
                PoolWarning,
            )
        self._submit(key, task, packed=True)

    def _look_for_workers(self) -> None:
        """Say so where no worker has been there for some time."""
        now = clock.now()
        if not self._is_dask or now < self._asked + ASKED:
            return
        self._asked = now
        try:
            there = bool(self._pool.nthreads())
        except Exception:  # the scheduler does not answer: futures will tell
            return
        if there:
            self._lonely_since = math.inf
        elif self._lonely_since == math.inf:
            self._lonely_since = now
        elif -math.inf < self._lonely_since < now - LONELY + ASKED:
            self._lonely_since = -math.inf  # it is said once
            warn_user(
                f"executor: no workers for {LONELY:.0f} s; {len(self._tasks)} blocks wait for some",
                PoolWarning,
            )

    def drop(self) -> None:
        """Let go of what is still on its way."""
        for future, _ in self._tasks.values():
            cancel = getattr(future, "cancel", None)
            if cancel is not None:
                cancel()
        self._tasks = {}

    def close(self) -> None:
        """Let go of what is still on its way, and of workers that were made for it."""
        self.drop()
        if self._make is not None and hasattr(self._pool, "shutdown"):
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = self._work = None


def _named(error: BaseException) -> str:
    words = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _said(key: Hashable, task: tuple[Any, ...]) -> str:
    if isinstance(key, tuple) and len(key) == 2:
        shard, steps = key
        return f"shard {shard} from step {steps} on"
    return f"the task {task[1]!r}"
