"""Draws that torch has no function of a generator for."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_GLOBAL = threading.RLock()  # whoever seeds the global generator; threads share it


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed the global generator of a device, and put it back as it was afterwards.

    Other threads that want to wait until then: they would draw each other's numbers.
    """
    cuda = device is not None and device.type == "cuda"
    with _GLOBAL, torch.random.fork_rng(devices=[device] if cuda else []):
        torch.default_generator.manual_seed(seed)
        if cuda:
            torch.cuda.manual_seed(seed)
        yield


def stream(seed: int, number: int, device: torch.device | None = None) -> torch.Generator:
    """A generator that no other number, and no other seed, shares its random numbers with.

    Example:
        >>> draws = [float(torch.rand((), generator=stream(1, shard))) for shard in (0, 1, 0)]
        >>> draws[0] == draws[2], draws[0] == draws[1]
        (True, False)
    """
    name = hashlib.blake2b(f"trjmcmc {seed} {number}".encode(), digest_size=8).digest()
    return torch.Generator(device or "cpu").manual_seed(int.from_bytes(name, "little") >> 1)


def host_number(generator: torch.Generator) -> int:
    """A number below 2^62 from a generator, on the host: a seed.

    A device is not waited for: its generator keeps seed and counter on the host. These are hashed,
    and a draw that nobody reads moves the counter on.

    Example:
        >>> g = torch.Generator().manual_seed(0)
        >>> host_number(g) == host_number(g), host_number(g.manual_seed(0)) < 2**62
        (False, True)
    """
    if generator.device.type == "cpu":
        return int(torch.randint(2**62, (), generator=generator))
    state = generator.get_state().numpy().tobytes()
    torch.rand((), generator=generator, device=generator.device)
    return int.from_bytes(hashlib.blake2b(state, digest_size=8).digest(), "little") >> 2


def host_order(n: int, generator: torch.Generator) -> list[int]:
    """The numbers below n in random order, on the host: an order for all chains.

    Example:
        >>> sorted(host_order(4, torch.Generator().manual_seed(0)))
        [0, 1, 2, 3]
    """
    if generator.device.type != "cpu":  # which is not waited for
        generator = torch.Generator().manual_seed(host_number(generator))
    order: list[int] = torch.randperm(n, generator=generator).tolist()
    return order


def weighted(weight: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """n indices in proportion to weights, (..., K) -> (..., n), int64, with replacement.

    ``torch.multinomial`` on the host; a device would be waited for there, so that it searches in
    the sums of the weights.

    Example:
        >>> g = torch.Generator().manual_seed(0)
        >>> weighted(torch.tensor([0.0, 2.0]), 3, g).tolist()
        [1, 1, 1]
    """
    if weight.device.type == "cpu":
        return torch.multinomial(weight, n, True, generator=generator)
    sums, shape = weight.double().cumsum(-1), (*weight.shape[:-1], n)
    u = torch.rand(shape, generator=generator, device=sums.device, dtype=sums.dtype)
    every = sums[..., -1:]
    last = (sums < every).sum(-1, keepdim=True)  # rounding goes no farther than what has a weight
    return torch.searchsorted(sums, u * every, right=True).minimum(last)


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
