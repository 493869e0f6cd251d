"""Sends the tasks of a run to workers, and again where a worker dies."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from typing import Any

from .. import clock
from ..errors import ConfigurationError, PoolError, PoolWarning, TRJError, warn_user
from .shard_work import Done, Failed, Work, pack_work, perform

DEATHS = 4  # times that a task is sent before its workers' deaths are laid to it

LONELY = 60.0  # seconds without workers after which that is said

ASKED = 5.0  # seconds between questions whether there are any

PAUSES = (0.001, 0.05)  # seconds between looks at tasks, the shortest and the longest


@dataclass
class Grid:
    """Shards, and who advances them.

    Attributes:
        shards: How many.
        executor: As of :class:`Crew`; None where all is done here.
    """

    shards: int
    executor: Any = None
    _crew: Crew | None = None

    def crew(self, work: Work) -> Crew:
        """Workers that know a work: those of before where it is the same."""
        if self._crew is None or self._crew.work != work:
            self.close()
            self._crew = Crew(self.executor, work)
        return self._crew

    def close(self) -> None:
        """Let workers go."""
        if self._crew is not None:
            self._crew.close()
        self._crew = None


class Crew:
    """Workers, and the tasks that they have.

    Arguments:
        executor: What has ``submit(function, *args)`` and gives futures with ``done`` and
            ``result``; or a function that makes one, which is asked again when it is broken.
        work: What the tasks are of.

    Attributes:
        pending: Keys of the tasks that are on their way.

    Raises:
        ConfigurationError: The executor has no ``submit``, or the work can't be sent.
    """

    def __init__(self, executor: Any, work: Work) -> None:
        self._make = executor if callable(executor) and not hasattr(executor, "submit") else None
        self._executor = self._fresh() if self._make is not None else executor
        if not callable(getattr(self._executor, "submit", None)):
            raise ConfigurationError(
                "executor: expected a Dask client, an executor of concurrent.futures, or anything "
                f"else with submit(function, *args), got {executor!r}"
            )
        self.work, (self._key, self._packed) = work, pack_work(work)
        self._tasks: dict[Hashable, tuple[Any, tuple[Any, ...]]] = {}
        self._deaths: dict[Hashable, int] = {}
        self._breaks = 0  # of pools, since the last task came back
        self._sent_to_all, self._warned = False, False
        self._pause, self._lonely_since, self._asked = PAUSES[0], -1.0, -ASKED
        self._said_lonely = False

    @property
    def pending(self) -> list[Hashable]:
        return list(self._tasks)

    @property
    def _is_dask(self) -> bool:
        return type(self._executor).__module__.partition(".")[0] == "distributed"

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
                future = self._executor.submit(*args, **({"pure": False} if self._is_dask else {}))
            except BrokenExecutor:
                if self._make is None:
                    raise
                self._breaks += 1
                if self._breaks >= DEATHS:
                    raise
                self._executor = self._fresh()
                args = perform, self._key, self._packed, *task
                future = self._executor.submit(*args)
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
            self._pause, self._said_lonely, self._lonely_since = PAUSES[0], False, -1.0
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

    def _fresh(self) -> Any:
        assert self._make is not None
        return self._make()

    def _look_for_workers(self) -> None:
        """Say so where no worker has been there for some time."""
        now = clock.now()
        if not self._is_dask or now < self._asked + ASKED:
            return
        self._asked = now
        try:
            there = bool(self._executor.nthreads())
        except Exception:  # the scheduler does not answer: futures will tell
            return
        if there:
            self._lonely_since, self._said_lonely = -1.0, False
        elif self._lonely_since < 0:
            self._lonely_since = now
        elif now > self._lonely_since + LONELY - ASKED and not self._said_lonely:
            self._said_lonely = True
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
        if self._make is not None and hasattr(self._executor, "shutdown"):
            self._executor.shutdown(wait=False, cancel_futures=True)


def _named(error: BaseException) -> str:
    words = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _said(key: Hashable, task: tuple[Any, ...]) -> str:
    if isinstance(key, tuple) and len(key) == 2:
        shard, steps = key
        return f"shard {shard} from step {steps} on"
    return f"the task {task[1]!r}"
