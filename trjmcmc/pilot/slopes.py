"""Slopes of a log density that has no gradient, by differences."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor


def slopes(
    log_density: Callable[[Tensor], Tensor], x: Tensor, value: Tensor, steps: Tensor
) -> Tensor:
    """Forward differences along some directions, one evaluation each, shape (n, k).

    Arguments:
        log_density: Of points, (m, d) -> (m,), nats.
        x: Points, shape (n, d).
        value: Their log densities, shape (n,), nats.
        steps: Along one coordinate each, shape (k, d).

    Example:
        >>> import torch
        >>> x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
        >>> slopes(lambda x: -x.square().sum(1), x, torch.tensor([-5.0]), 1e-6 * torch.eye(2))
        tensor([[-2.0000, -4.0000]], dtype=torch.float64)
    """
    there = log_density((x[:, None] + steps).flatten(0, 1)).view(len(x), len(steps))
    return (there - value[:, None]) / steps.sum(1)
