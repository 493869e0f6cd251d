"""Randomness beside the stream of a device's generator."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


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


def categorical(log_weight: Tensor, generator: torch.Generator) -> Tensor:
    """An index of each row in proportion to exp(log_weight), by the Gumbel maximum.

    Nothing is added up and nothing is waited for; 0 where all weights are zero.

    Arguments:
        log_weight: Shape (C, K), nats, -inf for what can not be drawn.
        generator: Source of randomness.

    Returns:
        Shape (C,), int64.

    Example:
        >>> log_weight = torch.tensor([[-torch.inf, 0.0], [3.0, -torch.inf]])
        >>> categorical(log_weight, torch.Generator().manual_seed(0)).tolist()
        [1, 0]
    """
    u = torch.rand(
        log_weight.shape, generator=generator, device=log_weight.device, dtype=torch.float64
    )
    return (log_weight - torch.log(-u.log())).argmax(-1)
