"""Randomness beside the stream of a device's generator."""

from __future__ import annotations

import random
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


class HostRandom:
    """Random numbers on the host that follow from a device's generator, without waiting for it.

    Seeded by a draw from the generator at the first call: each object has a stream of its own.
    """

    def __init__(self) -> None:
        self._random: random.Random | None = None

    def __call__(self, generator: torch.Generator) -> random.Random:
        if self._random is None:
            seed = torch.randint(2**62, (), generator=generator, device=generator.device)
            self._random = random.Random(int(seed))
        return self._random
