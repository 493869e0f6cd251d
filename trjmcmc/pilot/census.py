"""At how many summits do climbs from prior draws end, and how many may be left?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from .. import clock

JOINED_NATS = 1.0  # a dip of the log joint between two points of one summit

BETWEEN = 7  # points at which the line between two ends is looked at


class Census(NamedTuple):
    """Ends of independent climbs.

    Attributes:
        ends: How many there were.
        summits: Summits at which they ended.
        once: Summits at which one of them ended alone.
    """

    ends: int = 0
    summits: int = 0
    once: int = 0


def census(
    theta: Tensor,
    height: Tensor,
    log_joint: Callable[[Tensor], Tensor],
    most: int,
    deadline: float = math.inf,
) -> Census:
    """Count the summits among ends of climbs.

    Two ends are of one summit where the log joint does not dip on the line between them, so that
    a curved ridge counts as several. Ends beyond the highest so many summits count as summits of
    their own.

    Arguments:
        theta: Ends, shape (n, D).
        height: Their log joint, shape (n,), nats.
        log_joint: Of points, (m, D) -> (m,), nats.
        most: Summits that are told apart.
        deadline: Time by :func:`trjmcmc.clock.now` after which no further ones are: nothing is
            counted then.

    Example:
        >>> theta = torch.tensor([[-2.0], [-2.1], [2.0], [1.9], [2.1]])
        >>> def log_joint(x):
        ...     return (-8 * (x[:, 0].abs() - 2).square())
        >>> census(theta, log_joint(theta), log_joint, most=10)
        Census(ends=5, summits=2, once=0)
    """
    ends, sizes = int(height.isfinite().sum()), list[int]()
    for _, size in hills(theta, height, log_joint):
        sizes.append(size)
        if len(sizes) == most or sum(sizes) == ends:
            break
        if clock.now() > deadline:
            return Census()
    left = ends - sum(sizes)
    return Census(ends, len(sizes) + left, sum(n == 1 for n in sizes) + left)


def hills(
    theta: Tensor, height: Tensor, log_joint: Callable[[Tensor], Tensor]
) -> Iterator[tuple[Tensor, int]]:
    """The highest point and how many there are of its summit, then the same of those left.

    Arguments:
        theta, height, log_joint: As of :func:`census`.
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
        yield theta[0], int(same.sum())
        theta, height = theta[~same], height[~same]
