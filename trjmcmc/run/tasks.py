"""Work of a run elsewhere: pure steps on plain data, sent to workers, and again where one dies."""

from __future__ import annotations

import math
import pickle
import time
import traceback
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import clock
from ..errors import ConfigurationError, PoolError, PoolWarning, TRJError, warn_user
from ..kernel.base import Kernel
from ..target.target import Target
from ..target.workers import Shipped, one_task

DEATHS = 4  # times that a task is sent before its workers' deaths are laid to it

LONELY = 60.0  # seconds without workers after which that is said

ASKED = 5.0  # seconds between questions whether there are any

PAUSES = (0.001, 0.05)  # seconds between looks at tasks, the shortest and the longest


@contextmanager
def one_thread(alone: bool) -> Iterator[None]:
    """Compute with one thread as long as this lasts, if asked to.

    Arguments:
        alone: Whether to; else threads are left as they are.
    """
    before = torch.get_num_threads()
    if alone:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Work:
    """What all shards of a run have in common; it does not change while they sample.

    Attributes:
        target: The target.
        kernel: Frozen.
    """

    target: Target
    kernel: Kernel


class Done(NamedTuple):
    """What came of a task.

    Attributes:
        value: What its step gave, on the CPU.
        evaluations, gradients, overflows: Likelihood calls that were made, as of
            :class:`~trjmcmc.target.account.Account`.
    """

    value: Any
    evaluations: int
    gradients: int
    overflows: int


class Failed(NamedTuple):
    """An error that a task met.

    Attributes:
        error: It, where it can be sent.
        text: Its last lines.
    """

    error: Exception | None
    text: str


def perform(work: Work, limit: float, step: Callable[..., Any], *args: Any) -> Done | Failed:
    """Do a step of a work.

    Torch computes with one thread meanwhile, so that the bits are those of every other worker.

    Arguments:
        work: Target and kernel.
        limit: Likelihood calls that may be made.
        step: What is done, a function of the work and more.
        args: Of the step, after the work.
    """
    account, device = work.target.account, work.target.device
    before = account.held()
    try:
        with one_thread(True), account.held_to(limit):
            value = moved(step(work, *(moved(x, device) for x in args)), torch.device("cpu"))
    except Exception as error:
        return Failed(_sendable(error), traceback.format_exc(limit=-3))
    return Done(value, **{name: n - before[name] for name, n in account.held().items()})


def _sendable(error: Exception) -> Exception | None:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return None
    return error


def moved(x: Any, device: torch.device) -> Any:
    """Plain data with its tensors on a device; those that are part of a larger one are copied."""
    if isinstance(x, Tensor):
        x = x.detach().to(device)
        whole = x.untyped_storage().nbytes() <= x.numel() * x.element_size()
        return x if whole else x.clone()
    if isinstance(x, dict):
        return {k: moved(v, device) for k, v in x.items()}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(moved(v, device) for v in x))
    if isinstance(x, tuple | list):
        return type(x)(moved(v, device) for v in x)
    return x


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
        self._shipped: Shipped | None = None
        self._tasks: dict[Hashable, tuple[Any, tuple[Any, ...]]] = {}

    def begin(self, work: Work) -> None:
        """Have tasks of a work, which workers are sent unless they have it.

        Raises:
            ConfigurationError: The executor has no ``submit``.
            PoolError: The work can't be sent.
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
        self._work = work
        self._shipped = Shipped(partial(perform, work), "executor: this target", shared=False)
        self._shipped.payload()
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
            limit, step, args: As of :func:`~trjmcmc.run.tasks.perform`.

        Raises:
            PoolError: The executor takes no tasks.
        """
        self._submit(key, (limit, step, *args), packed=not self._sent_to_all)

    def _submit(self, key: Hashable, task: tuple[Any, ...], packed: bool) -> None:
        assert self._shipped is not None
        name, payload = self._shipped.name, self._shipped.payload()
        try:
            try:
                sent = name, payload if packed else None, [task]
                settings = {"pure": False} if self._is_dask else {}
                future = self._pool.submit(one_task, sent, **settings)
            except BrokenExecutor:
                self._breaks += 1
                if self._make is None or self._breaks >= DEATHS:
                    raise
                self._pool = self._make()
                future = self._pool.submit(one_task, (name, payload, [task]))
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
                outcomes = future.result()
            except Exception as error:
                self._again(key, task, error)
                continue
            if outcomes is None:  # a worker that came late
                self._submit(key, task, packed=True)
            elif isinstance(outcomes, str):  # it lacks a module
                found.append((key, Failed(None, outcomes)))
            else:
                found.append((key, outcomes[0][1]))
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
        self._pool = self._work = self._shipped = None


def _named(error: BaseException) -> str:
    words = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _said(key: Hashable, task: tuple[Any, ...]) -> str:
    if isinstance(key, tuple) and len(key) == 2:
        shard, steps = key
        return f"shard {shard} from step {steps} on"
    return f"the task {task[1]!r}"
