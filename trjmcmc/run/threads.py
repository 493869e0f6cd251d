"""How many threads torch computes with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
