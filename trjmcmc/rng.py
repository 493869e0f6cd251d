"""Code that only knows torch's global generator, run without touching the user's stream."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed the global generator of a device, and put it back as it was afterwards."""
    cuda = device is not None and device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if cuda else []):
        torch.default_generator.manual_seed(seed)
        if cuda:
            torch.cuda.manual_seed(seed)
        yield
