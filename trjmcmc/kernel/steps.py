"""Gaussian steps of log-uniform length: short ones refine, long ones cross."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

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
        device, dtype = like.device, like.dtype
        length = self.factor(len(like), generator)[:, None]
        noise = torch.randn(like.shape, generator=generator, device=device, dtype=dtype)
        return noise * self.scale * length

    def factor(self, n: int, generator: torch.Generator) -> Tensor:
        """Log-uniform lengths, (n,)."""
        low, high = self.log_lengths
        like = self.scale
        u = torch.rand(n, generator=generator, device=like.device, dtype=like.dtype)
        return torch.exp(low + (high - low) * u)


TURN = 0.2  # share of a turn that a step of one moves: the slope of where it counts, rounded


class Around:
    r"""Steps that go around where a parameter is periodic, and straight on elsewhere.

    The coordinate of a periodic parameter is the logit of the share u of a turn. A step of it
    moves u by ``TURN`` times as much, modulo 1, which is as probable back; density in the
    coordinate counts with

    .. math:: \log \frac{u (1 - u)}{u' (1 - u')}.

    Arguments:
        periodic: Which coordinates are, shape (P,), bool.

    Example:
        >>> around = Around(torch.tensor([True, False]))
        >>> x = torch.tensor([[0.0, 0.0]])
        >>> there, log_ratio = around(x, torch.tensor([[3.0, 1.0]]))
        >>> there[0, 0].sigmoid(), there[0, 1]  # .5 + .6, less one turn
        (tensor(0.1000), tensor(1.))
    """

    def __init__(self, periodic: Tensor) -> None:
        self.periodic, self.any = periodic, bool(periodic.any())

    def __call__(self, x: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        """Points after a step, and what is added to their log acceptance ratio.

        Arguments:
            x, step: Shape (C, P) each.

        Returns:
            Shape (C, P), and shape (C,), nats: -inf where a step ends on the very seam.
        """
        straight = x + step
        if not self.any:
            return straight, x.new_zeros(len(x))
        share = (x.sigmoid() + TURN * step) % 1.0
        seam = (share <= 0) | (share >= 1)
        there = share.clamp(torch.finfo(x.dtype).tiny, 1 - torch.finfo(x.dtype).eps).logit()
        change = torch.where(seam, -math.inf, _log_slope(x) - _log_slope(there))
        moved = self.periodic & (step != 0)
        change = torch.where(moved, change, 0.0).sum(-1)
        return torch.where(moved, there, straight), change


def _log_slope(x: Tensor) -> Tensor:
    """Log of u (1 - u) where u = sigmoid(x)."""
    return logsigmoid(x) + logsigmoid(-x)
