"""Which points belong to one mode?"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

JOINED_NATS = 1.0  # a dip of the log joint between two points of one mode

BETWEEN = 7  # points at which the line between two ends is looked at


def distinct_modes(
    theta: Tensor, height: Tensor, log_joint: Callable[[Tensor], Tensor]
) -> Iterator[Tensor]:
    """The highest point, then the highest of those that are not of its mode, and so on.

    Two points are of one mode where the log joint does not dip on the line between them, so that
    a curved ridge counts as several.

    Arguments:
        theta: Points, shape (n, D).
        height: Their log joint, shape (n,), nats.
        log_joint: Of points, (m, D) -> (m,), nats.

    Example:
        >>> theta = torch.tensor([[-2.0], [-2.1], [2.0], [1.9], [2.1]])
        >>> def log_joint(x):
        ...     return x[:, 0] - 8 * (x[:, 0].abs() - 2).square()
        >>> [round(float(x), 1) for x in distinct_modes(theta, log_joint(theta), log_joint)]
        [2.1, -2.0]
    """
    usable = height.isfinite()
    order = height[usable].argsort(descending=True)
    theta, height = theta[usable][order], height[usable][order]
    share = (torch.arange(1, BETWEEN + 1, device=theta.device) / (BETWEEN + 1)).to(theta)
    while len(theta):
        line = theta[0] + share[:, None, None] * (theta - theta[0])
        between = log_joint(line.flatten(0, 1)).reshape(BETWEEN, -1)
        same = between.min(0).values >= height - JOINED_NATS
        same[0] = True
        yield theta[0]
        theta, height = theta[~same], height[~same]
