"""Random walks that spread over a part of a posterior, however narrow it is in one direction."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .. import clock
from ..target.target import Target
from .policy import WalkPolicy

BEST_SCALE = 2.4  # length of a step in standard deviations, over the root of the dimension

RIDGE = 1e-9  # on a covariance's diagonal, relative


@torch.no_grad()
def walked(
    target: Target,
    code: Tensor,
    starts: Tensor,
    scale: Tensor,
    generator: torch.Generator,
    policy: WalkPolicy,
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
        policy: How long they walk.
        deadline: Time by :func:`trjmcmc.clock.now` after which they stop.

    Returns:
        Points, shape (m, D), or (k, m, D).
    """
    if starts.dim() == 2:
        return walked(target, code, starts[None], scale, generator, policy, deadline)[0]
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
    factor = (policy.first_length * scale * used).diag().expand(len(starts), -1, -1)
    haste = torch.full_like(theta[:, :1, :1], policy.haste)
    size, kept = torch.ones_like(theta[..., :1]), []
    for step in range(policy.steps):
        if clock.now() > deadline:
            return theta
        there = theta + size * (torch.randn(theta.shape, **like) @ factor.mT)
        value = height_at(there)
        taken = torch.rand(value.shape, **like).log() < value - height
        theta = torch.where(taken[..., None], there, theta)
        height = torch.where(taken, value, height)
        size = size * torch.where(taken[..., None], policy.growth, policy.shrinkage) ** haste
        if step >= policy.steps - policy.recorded_steps:
            kept.append(theta)
        elif step >= policy.searching_steps and step % policy.steps_a_spread == 0:
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
