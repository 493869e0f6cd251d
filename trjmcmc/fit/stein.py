"""Steps of Stein variational gradient descent: towards a target, and away from each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import ConfigurationError

FADES = 0.9  # memory of the mean square by which steps are scaled

TINY = 1e-8  # added to root mean squares


class SquaredExponential:
    r"""A kernel between particles, a sum over blocks of their coordinates.

    .. math:: k(x, y) = \sum_b \exp(-\lVert x_b - y_b \rVert^2 / h_b)

    Arguments:
        bandwidth: h, one number, or one a block; if omitted the median of the squared distances
            over log(M + 1), anew at each step.

    Raises:
        ConfigurationError: A bandwidth that is not positive.

    Source:
        Liu & Wang (2016), https://arxiv.org/abs/1608.04471; sum over blocks: Lorch et al. (2021),
        https://arxiv.org/abs/2105.11839, eq. 15

    Example:
        >>> kernel = SquaredExponential(2.0)
        >>> value, _ = kernel.parts([torch.tensor([[0.0], [1.0]])])[0]
        >>> [[round(v, 3) for v in row] for row in value.tolist()]
        [[1.0, 0.607], [0.607, 1.0]]
    """

    def __init__(self, bandwidth: float | Sequence[float] | None = None) -> None:
        several = isinstance(bandwidth, Sequence)
        values = list(bandwidth) if isinstance(bandwidth, Sequence) else [bandwidth]
        if any(h is not None and not h > 0 for h in values):
            raise ConfigurationError(f"kernel: expected bandwidth > 0, got {bandwidth}")
        self._bandwidths = values if several else None
        self._bandwidth = values[0]

    def parts(self, blocks: Sequence[Tensor]) -> list[tuple[Tensor, Any]]:
        """Values (M, M) and bandwidth of each block, (M, P_b)."""
        if self._bandwidths is not None and len(self._bandwidths) != len(blocks):
            raise ConfigurationError(
                f"bandwidth: {len(self._bandwidths)} numbers for {len(blocks)} blocks"
            )
        found: list[tuple[Tensor, Any]] = []
        for b, x in enumerate(blocks):
            square = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square()
            h: Any = self._bandwidth if self._bandwidths is None else self._bandwidths[b]
            if h is None:
                off = ~torch.eye(len(x), dtype=torch.bool, device=x.device)
                h = (square[off].median() / math.log(len(x) + 1)).clamp(min=TINY)
            found.append(((-square / h).exp(), h))
        return found


def stein_direction(
    blocks: Sequence[Tensor],
    gradients: Sequence[Tensor],
    kernel: SquaredExponential,
    alike: Tensor | None = None,
) -> list[Tensor]:
    r"""Where particles go next, block by block, (M, P_b).

    .. math:: \phi(x) = \frac{1}{M} \sum_m
              [k(x_m, x) \nabla \log p(x_m) + \nabla_{x_m} k(x_m, x)]

    Arguments:
        blocks: Coordinates of the particles, (M, P_b) each.
        gradients: Of the log density by them.
        kernel: Between particles.
        alike: Which particles see each other, (M, M), if not all do.

    Source:
        Liu & Wang (2016), https://arxiv.org/abs/1608.04471, eq. 8

    Example:
        >>> x = torch.tensor([[-1.0], [1.0]])
        >>> (found,) = stein_direction([x], [torch.zeros_like(x)], SquaredExponential(2.0))
        >>> found.sign().tolist()  # they repel each other
        [[-1.0], [1.0]]
    """
    parts = kernel.parts(blocks)
    if alike is not None:
        parts = [(value * alike.to(value), h) for value, h in parts]
    total = torch.stack([value for value, _ in parts]).sum(0)
    return [
        (total @ g + 2 / h * (x * value.sum(1, keepdim=True) - value @ x)) / len(x)
        for x, g, (value, h) in zip(blocks, gradients, parts, strict=True)
    ]


class RootMeanSquare:
    """Steps divided by the running root mean square of their directions, coordinate by
    coordinate.

    Arguments:
        rate: Learning rate.

    Source:
        Hinton, lecture 6e of "Neural networks for machine learning" (2012): RMSProp
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._square: list[Tensor] = []

    def steps(self, directions: Sequence[Tensor], factor: float = 1.0) -> list[Tensor]:
        """What to add to the particles."""
        if not self._square:
            self._square = [torch.zeros_like(x) for x in directions]
        self._square = [
            FADES * s + (1 - FADES) * x.square()
            for s, x in zip(self._square, directions, strict=True)
        ]
        pairs = zip(directions, self._square, strict=True)
        return [factor * self.rate * x / (s + TINY).sqrt() for x, s in pairs]
