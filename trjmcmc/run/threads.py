"""How many threads torch computes with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from .. import clock

TRIAL_SHARE = 0.05  # of the time left

TRIALS = 3  # of each number of threads; the fastest counts


@contextmanager
def fastest_threads(
    work: Callable[[], object], seconds_left: float = float("inf")
) -> Iterator[int]:
    """Compute with one thread if a sample of the work is done sooner by it, as long as this lasts.

    Batches of chains are small: on a busy machine threads that wait for each other cost more
    than they help, up to ten times.

    Arguments:
        work: Does a sample of what will be done; called a few times.
        seconds_left: Of which trials may take a twentieth, about.

    Returns:
        The number of threads.

    Example:
        >>> before = torch.get_num_threads()
        >>> with fastest_threads(lambda: torch.ones(10).sum()) as threads:
        ...     assert torch.get_num_threads() == threads
        >>> torch.get_num_threads() == before
        True
    """
    before = torch.get_num_threads()
    if before == 1:
        yield 1
        return
    seconds = dict.fromkeys((before, 1), float("inf"))
    end = clock.now() + TRIAL_SHARE * seconds_left
    try:
        for _ in range(TRIALS):
            if clock.now() > end:
                break
            for threads in seconds:
                torch.set_num_threads(threads)
                begun = clock.now()
                work()
                seconds[threads] = min(seconds[threads], clock.now() - begun)
        chosen = min(seconds, key=lambda threads: seconds[threads])
        torch.set_num_threads(chosen)
        yield chosen
    finally:
        torch.set_num_threads(before)
