"""Seeds for random numbers of other languages."""

from __future__ import annotations

import torch


def draw_seed() -> int:
    """A seed below 2^32 from torch's global generator, which targets seed before they draw.

    Example:
        >>> from trjmcmc.rng import seeded
        >>> with seeded(1):
        ...     a = draw_seed()
        >>> with seeded(1):
        ...     b = draw_seed()
        >>> a == b
        True
    """
    return int(torch.randint(2**32, ()))
