"""Random walks that spread over a part of a posterior, however narrow it is in one direction."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .. import clock
from ..target.target import Target

BEST_SCALE = 2.4  # length of a step in standard deviations, over the root of the dimension

RECORDED = 20  # last steps, whose points are kept

SEARCHING = 16  # first steps, the same length along all coordinates; later ones are as long in each
# direction as the walkers are spread. Parts a thousand times wider one way than another weighed
# e^-4 to e^-60 of their mass without

FIRST_LENGTH = 0.01  # of a step in units of the prior's spread: a narrow mode is what was lost

GROWTH, SHRINKAGE = 1.3, 0.9  # of that length after a step that was taken and one that was not:
# 29 % are taken

HASTE = 5.0  # power of both in the first steps

LOOKS = 2  # steps between two looks at the spread

RIDGE = 1e-9  # on a covariance's diagonal, relative


@torch.no_grad()
def walked(
    target: Target,
    code: Tensor,
    starts: Tensor,
    scale: Tensor,
    generator: torch.Generator,
    steps: int,
    deadline: float = math.inf,
) -> Tensor:
    """Points of chains inside one model: they tell the extent of where they start.

    It may be narrow in one direction and wide in another: once steps are short enough to be taken,
    they are as long in each as the walkers are spread. Such steps learn from all walkers of a
    place, so that the points are for proposals, not for estimates.

    Arguments:
        target: The target.
        code: The model, shape (L,).
        starts: Where each walker starts, shape (n, D), or (k, n, D) of k places side by side.
        scale: Standard deviations of prior draws, shape (D,).
        generator: Source of randomness.
        steps: Of each.
        deadline: Time by :func:`trjmcmc.clock.now` after which they stop.

    Returns:
        Points, shape (m, D), or (k, m, D).
    """
    if starts.dim() == 2:
        return walked(target, code, starts[None], scale, generator, steps, deadline)[0]
    like: dict[str, Any] = {
        "generator": generator,
        "device": starts.device,
        "dtype": starts.dtype,
    }
    used = target.space.active(code[None])[0]
    codes, theta = code.expand(starts.shape[:-1].numel(), -1), starts

    def height_at(x: Tensor) -> Tensor:
        return target.log_joint(codes, x.flatten(0, 1)).view(x.shape[:2])

    height = height_at(theta)
    factor = (FIRST_LENGTH * scale * used).diag().expand(len(starts), -1, -1)
    haste = torch.full_like(theta[:, :1, :1], HASTE)
    size, kept = torch.ones_like(theta[..., :1]), []
    for step in range(steps):
        if clock.now() > deadline:
            return theta
        there = theta + size * (torch.randn(theta.shape, **like) @ factor.mT)
        value = height_at(there)
        taken = torch.rand(value.shape, **like).log() < value - height
        theta = torch.where(taken[..., None], there, theta)
        height = torch.where(taken, value, height)
        size = size * torch.where(taken[..., None], GROWTH, SHRINKAGE) ** haste
        if step >= steps - RECORDED:
            kept.append(theta)
        elif step >= SEARCHING and step % LOOKS == 0:
            spread, failed = _factor_of_spread(theta, used)
            failed = failed[:, None, None]
            factor = torch.where(failed, factor, spread)
            first = ~failed & (haste > 1)
            size = torch.where(first, BEST_SCALE / math.sqrt(int(used.sum())), size)
            haste = torch.where(failed, haste, 1.0)
    return torch.cat(kept, 1)


def _factor_of_spread(theta: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
    """Cholesky factors (k, D, D) of the covariances of points (k, n, D), and where there is none.

    Arguments:
        theta: The points.
        used: Coordinates that are in use, shape (D,); the others do not move.
    """
    x = theta[..., used].double()
    x = x - x.mean(1, keepdim=True)
    spread = x.mT @ x / (theta.shape[1] - 1)
    spread = spread + RIDGE * torch.diag_embed(spread.diagonal(dim1=1, dim2=2))
    part, failed = torch.linalg.cholesky_ex(spread)
    factor, place = theta.new_zeros(len(theta), len(used), len(used)), used.nonzero()
    factor[:, place, place.T] = part.to(factor.dtype)
    return factor, failed > 0
