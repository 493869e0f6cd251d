"""Gaussian steps of log-uniform length: short ones refine, long ones cross."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import ConfigurationError


class LogUniformSteps:
    """Steps of normal direction, whose length is drawn afresh for each chain.

    Arguments:
        scale: Standard deviation of each coordinate at length 1, shape (P,), or one number.
        lengths: Shortest and longest, in units of ``scale``.

    Raises:
        ConfigurationError: Lengths that are not positive, or not in order.

    Example:
        >>> steps = LogUniformSteps(torch.tensor([1.0, 100.0]), (0.01, 10.0))
        >>> steps.draw(torch.zeros(5, 2), torch.Generator().manual_seed(0)).shape
        torch.Size([5, 2])
    """

    def __init__(self, scale: Tensor, lengths: tuple[float, float]) -> None:
        if not 0 < lengths[0] <= lengths[1]:
            raise ConfigurationError(f"lengths: expected 0 < shortest <= longest, got {lengths}")
        self.scale = scale
        self.log_lengths = (math.log(lengths[0]), math.log(lengths[1]))

    def draw(self, like: Tensor, generator: torch.Generator) -> Tensor:
        """A step of each chain, (C, P) -> (C, P)."""
        low, high = self.log_lengths
        device, dtype = like.device, like.dtype
        u = torch.rand(len(like), 1, generator=generator, device=device, dtype=dtype)
        noise = torch.randn(like.shape, generator=generator, device=device, dtype=dtype)
        return noise * self.scale * torch.exp(low + (high - low) * u)
