"""The time that limits, prices and stopping rules go by."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_READ: ContextVar[Callable[[], float]] = ContextVar("_READ", default=time.monotonic)


def now() -> float:
    """Seconds since an arbitrary moment; they never go back.

    Whatever compares times with a deadline, or divides by a measured time, asks here, so that
    :func:`read_from` reaches all of it.
    """
    return _READ.get()()


@contextmanager
def read_from(clock: Callable[[], float]) -> Iterator[None]:
    """Read the time from another clock as long as this lasts: a simulated one, in tests.

    Other threads go on by theirs.

    Arguments:
        clock: Gives the time in seconds.

    Example:
        >>> with read_from(lambda: 3.0):
        ...     now()
        3.0
    """
    token = _READ.set(clock)
    try:
        yield
    finally:
        _READ.reset(token)


def part_of_the_time_left(share: float, deadline: float) -> float:
    """When a share of the time left until a deadline will have passed; infinite without one."""
    begun = now()
    return begun + share * max(0.0, deadline - begun)
