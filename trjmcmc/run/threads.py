"""How many threads torch computes with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from .. import clock
from .knowledge import Knowledge
from .policy import ThreadPolicy
from .request import Request
from .start import starting_models


@contextmanager
def fastest_threads(
    work: Callable[[], object],
    seconds_left: float = float("inf"),
    policy: ThreadPolicy | None = None,
) -> Iterator[int]:
    """Compute with one thread if a sample of the work is done sooner by it, as long as this lasts.

    Batches of chains are small: on a busy machine threads that wait for each other cost more
    than they help, up to ten times.

    Arguments:
        work: Does a sample of what will be done; called a few times.
        seconds_left: Of which trials may take a share, about.
        policy: How many trials, and their share.

    Returns:
        The number of threads.

    Example:
        >>> before = torch.get_num_threads()
        >>> with fastest_threads(lambda: torch.ones(10).sum()) as threads:
        ...     assert torch.get_num_threads() == threads
        >>> torch.get_num_threads() == before
        True
    """
    policy = ThreadPolicy() if policy is None else policy
    before = torch.get_num_threads()
    if before == 1:
        yield 1
        return
    seconds = dict.fromkeys((before, 1), float("inf"))
    end = clock.now() + policy.trial_share * seconds_left
    try:
        for _ in range(policy.trials):
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


@contextmanager
def threads_of_a_run(known: Knowledge, request: Request) -> Iterator[None]:
    """As many threads as are fastest where choices rest on times anyway."""
    target, policy = known.target, known.policy
    cheap = target.differentiable and target.device.type == "cpu"
    if request.fit != "auto" or not cheap or torch.get_num_threads() == 1:
        yield
        return
    code = starting_models(known, policy.chains.of_given_draws)
    theta = target.sample_prior(code, known.generator)

    @torch.no_grad()
    def work() -> None:
        target.log_joint(code, torch.where(theta.isfinite(), theta, 0.0))

    with fastest_threads(work, request.deadline - clock.now(), policy.threads):
        yield
