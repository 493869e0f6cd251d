"""Functions in the processes of a pool, each of which is sent a function once."""

from __future__ import annotations

import importlib.util
import pickle
import secrets
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from typing import Any, NamedTuple

from ..errors import PoolError

TASKS = 64  # pieces that a batch is divided into for a pool of workers

PATIENCE = 0.2  # seconds between checks that the workers of a pool are alive

STALLED = 10.0  # seconds without an answer, at least, after which tasks of dead workers are lost

MOST_HELD = 2**30  # bytes of functions that were sent to a worker, and that it keeps

USUAL_WORKERS = 4  # that are sent the function first, where a pool does not tell their number

Outcome = tuple[bool, Any]  # (True, value), or (False, traceback)

Points = list[tuple[Any, ...]]

Task = tuple[str, bytes | None, Points]  # the function's name, the function or None, and points

_HELD: dict[str, Callable[..., Any]] = {}  # functions of this process, by name


class _Sent(threading.local):
    """Functions that this thread was sent, the oldest first: what they remember is its own."""

    def __init__(self) -> None:
        self.functions: dict[str, Callable[..., Any]] = {}
        self.sizes: dict[str, int] = {}  # bytes

    def keep(self, name: str, function: Callable[..., Any], size: int) -> None:
        self.functions[name], self.sizes[name] = function, size
        while sum(self.sizes.values()) > MOST_HELD and len(self.sizes) > 1:
            oldest = next(iter(self.sizes))
            del self.sizes[oldest], self.functions[oldest]


_SENT = _Sent()


class DeadWorkerError(Exception):
    """Workers have died, or failed otherwise.

    Attributes:
        points: Where; of several it may have been any.
    """

    def __init__(self, why: str, points: Points) -> None:
        super().__init__(why)
        self.points = points


# ---- in a worker --------------------------------------------------------------------------------


def guarded(function: Callable[..., Any], point: tuple[Any, ...]) -> Outcome:
    try:
        return True, function(*point)
    except Exception:
        return False, traceback.format_exc(limit=-3)


def one_task(task: Task) -> list[Outcome] | str | None:
    """Outcomes of points; None where this process lacks the function; why it can't be read."""
    name, payload, points = task
    function = _HELD.get(name) or _SENT.functions.get(name)
    if function is None:
        if payload is None:
            return None
        try:
            function = pickle.loads(payload)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        _SENT.keep(name, function, len(payload))
    return [guarded(function, p) for p in points]


# ---- where the batch is -------------------------------------------------------------------------


class Shipped:
    """A function that workers ask for where they lack it.

    Threads, and processes that are forked from now on, have it already if it is shared: it is
    pickled when a worker says that it has not, as it is then.

    Arguments:
        function: The function.
        words: What it is, in an error.
        shared: Whether threads may call it at once; else each is sent its own.
    """

    def __init__(
        self, function: Callable[..., Any], words: str = "the black box", shared: bool = True
    ) -> None:
        self.function, self.name, self.words = function, secrets.token_hex(16), words
        self._payload: bytes | None = None
        if shared:
            _HELD[self.name] = function

    def __del__(self) -> None:
        _HELD.pop(self.name, None)

    def payload(self) -> bytes:
        """The function as bytes, by ``cloudpickle`` where ``pickle`` can't and it is there.

        Raises:
            PoolError: It can't be pickled.
        """
        if self._payload is None:
            self._payload = _pickled(self.function, self.words)
        return self._payload

    def outcomes(
        self, pool: Any, tasks: Sequence[Points]
    ) -> Iterator[tuple[int, list[Outcome | None]]]:
        """The number of each task and the outcomes of its points, as they come; None of the lost.

        Arguments:
            pool: Anything with ``submit``, ``apply_async`` or ``map``.
            tasks: Points.

        Raises:
            DeadWorkerError: Workers died; it comes after the outcomes of all other tasks.
            PoolError: The function can't be sent.
        """
        todo: dict[int, Points] = dict(enumerate(tasks))
        payload, workers = None, _workers(pool)
        while todo:
            carrying = set(list(todo)[:workers])
            asked = {
                i: (self.name, payload if i in carrying else None, points)
                for i, points in todo.items()
            }
            lacking = {}
            for i, answer in _answers(pool, asked):
                if isinstance(answer, str):
                    raise PoolError(
                        f"the black box can't be read by the pool's workers ({answer}): define "
                        "the function at the top level of a module that they can import"
                    )
                if answer is None:
                    lacking[i] = todo[i]
                else:
                    yield i, answer
            todo = lacking
            if todo:
                payload = self.payload()


def _pickled(function: Callable[..., Any], words: str) -> bytes:
    in_script = getattr(function, "__module__", "") == "__main__"
    by_value = importlib.util.find_spec("cloudpickle") is not None
    try:
        if not (in_script and by_value):
            return pickle.dumps(function, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        if not by_value:
            raise PoolError(
                f"{words} can't be sent to the pool's workers ({error}): define its "
                "functions at the top level of a module, or install cloudpickle"
            ) from error
    import cloudpickle  # type: ignore[import-untyped,import-not-found,unused-ignore]

    try:
        found: bytes = cloudpickle.dumps(function)
    except Exception as error:  # of whatever the function holds
        raise PoolError(
            f"{words} can't be sent to the pool's workers: it holds what can't be pickled "
            f"({type(error).__name__}: {error}); open files and connections where it is called"
        ) from error
    return found


def _workers(pool: Any) -> int:
    """Workers of a pool, as far as it tells."""
    for name in ("_processes", "_max_workers"):
        if isinstance(found := getattr(pool, name, None), int):
            return max(1, found)
    if callable(threads := getattr(pool, "nthreads", None)):  # Dask
        return max(1, sum(threads().values()))
    return USUAL_WORKERS


def _answers(pool: Any, tasks: Mapping[int, Task]) -> Iterator[tuple[int, Any]]:
    if hasattr(pool, "apply_async") and _processes(pool):
        yield from _of_processes(pool, tasks)
    elif hasattr(pool, "submit"):
        yield from _of_futures(pool, tasks)
    else:
        found = pool.map(one_task, list(tasks.values()))
        for i, answer in zip(tasks, found, strict=True):
            yield i, answer.result() if hasattr(answer, "result") else answer


# ---- pools with submit --------------------------------------------------------------------------


def _of_futures(pool: Any, tasks: Mapping[int, Task]) -> Iterator[tuple[int, Any]]:
    """Executors of concurrent.futures, loky and MPI, clients of Dask."""
    settings = {"pure": False} if hasattr(pool, "nthreads") else {}  # Dask's: never from its cache
    waiting: dict[int, Any] = {}
    lost: list[int] = []
    why: Exception | None = None
    try:
        for i, task in tasks.items():
            try:
                waiting[i] = pool.submit(one_task, task, **settings)
            except BrokenExecutor as error:
                lost.append(i)
                why = why or error
        for i, future in waiting.items():
            try:
                answer = future.result()
            except Exception as error:
                lost.append(i)
                why = why or error
                continue
            yield i, answer
    finally:
        for future in waiting.values():
            if not future.done() and hasattr(future, "cancel"):
                future.cancel()
    if why is not None:
        running = sorted(lost)
        if isinstance(why, BrokenExecutor):  # all that had not ended: the first of them ran
            running = running[: _workers(pool)]
        points = [p for i in running for p in tasks[i][2]]
        raise DeadWorkerError(f"{type(why).__name__}: {why}", points) from why


# ---- pools of multiprocessing -------------------------------------------------------------------


def _processes(pool: Any) -> list[Any]:
    """Its processes; those of a pool of threads have no exit codes."""
    found = list(getattr(pool, "_pool", None) or [])
    return [w for w in found if hasattr(w, "exitcode") and hasattr(w, "pid")]


def _of_processes(pool: Any, tasks: Mapping[int, Task]) -> Iterator[tuple[int, Any]]:
    """What died with its worker is tried again, point by point, by those that come after it."""
    lost, fatal, code = dict[int, Task](), Points(), 0
    for i, answer in _watched(pool, tasks):
        if isinstance(answer, _Died):
            lost[i] = tasks[i]
        else:
            yield i, answer
    for i, (name, payload, points) in lost.items():
        found: list[Outcome | None] = []
        for point in points:
            ((_, answer),) = _watched(pool, {i: (name, payload, [point])})
            if not isinstance(answer, list | _Died):  # a new worker lacks the function
                yield i, answer
                break
            if isinstance(answer, _Died):
                fatal, code = [*fatal, point], answer.code
            found += [None] if isinstance(answer, _Died) else answer
        else:
            yield i, found
    if fatal:
        raise DeadWorkerError(f"its process ended with code {code}, twice", fatal)


class _Died(NamedTuple):
    """In place of an answer: the exit code of a worker."""

    code: int


class _Deaths:
    """Workers that have died, which such a pool replaces without a word."""

    def __init__(self, pool: Any) -> None:
        self._pool, self._seen = pool, {id(w): w for w in _processes(pool)}
        retire = getattr(pool, "_maxtasksperchild", None) is not None
        self._fine = {None, 0} if retire else {None}

    def codes(self) -> list[int]:
        """Their exit codes."""
        self._seen |= {id(w): w for w in _processes(self._pool)}
        return [w.exitcode for w in self._seen.values() if w.exitcode not in self._fine]


def _watched(pool: Any, tasks: Mapping[int, Task]) -> Iterator[tuple[int, Any]]:
    """Answers as they come; at last those that died with a worker.

    A worker that dies takes one task with it. So once no more tasks are open than workers have
    died, nothing is waited for; nor where nothing has come for long.
    """
    deaths = _Deaths(pool)
    waiting = {i: pool.apply_async(one_task, (task,)) for i, task in tasks.items()}
    begun = last = time.monotonic()
    while waiting:
        next(iter(waiting.values())).wait(PATIENCE)
        ready = [i for i, found in waiting.items() if found.ready()]
        for i in ready:
            yield i, waiting.pop(i).get()
        now = time.monotonic()
        last = now if ready else last
        codes = [] if ready else deaths.codes()
        pace = (last - begun) / max(1, len(tasks) - len(waiting))
        stalled = now - last > max(STALLED, 20 * _workers(pool) * pace)
        if codes and (len(waiting) <= len(codes) or stalled):
            for i in waiting:
                yield i, _Died(codes[-1])
            return
