"""Climbs to modes that chains lose while they cool."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ...rng import host_number
from ...target.exchangeable import Components

LONGER, SHORTER = 2.5, 0.75  # steps, after one uphill and another: a quarter leads uphill

STEPS = 50  # of a climb of one component

DRAWS = 128  # of it from the prior, for each chain that takes the best

AT_ONCE = 2048  # of them

LOWER = 10.0  # nats by which what a chain takes may be under what it has


@torch.no_grad()
def uphill(
    height: Callable[[Tensor], Tensor],
    point: Tensor,
    scale: Tensor,
    steps: int,
    generator: torch.Generator,
    late: Callable[[], bool],
) -> tuple[Tensor, Tensor]:
    """Where random steps lead of which those uphill are taken, (n, d), and how high, (n,), nats.

    Arguments:
        height: Log density of points (n, d), shape (n,).
        point: Where they begin.
        scale: Of the first step, of a shape that broadcasts to that of the points.
        steps: How many.
        generator: Source of randomness.
        late: Whether they have to end.

    Source:
        As the one-fifth rule, Rechenberg (1973), Evolutionsstrategie

    Example:
        >>> g = torch.Generator().manual_seed(0)
        >>> start = torch.full((4, 2), 5.0)
        >>> _, top = uphill(lambda x: -x.square().sum(1), start, torch.ones(2), 60, g, bool)
        >>> bool(top.min() > -0.1)
        True
    """
    length, top = torch.ones_like(point[:, :1]), height(point)
    for _ in range(steps):
        if late():
            break
        noise = torch.randn(
            point.shape, generator=generator, device=point.device, dtype=point.dtype
        )
        there = point + length * scale * noise
        value = height(there)
        up = value > top
        point, top = torch.where(up[:, None], there, point), torch.where(up, value, top)
        length = length * torch.where(up[:, None], LONGER, SHORTER)
    return point, top


@torch.no_grad()
def with_another(
    parts: Components,
    code: Tensor,
    theta: Tensor,
    draws: int,
    generator: torch.Generator,
    late: Callable[[], bool],
) -> tuple[Tensor, Tensor]:
    """Models and points with one component more, or another for one: the highest of many climbs.

    They begin at prior draws of the component and leave the others as they are: climbs of all at
    once hardly ever meet what is narrow in each.

    Arguments:
        parts: Components of one of the target's kinds.
        code, theta: Models and points of chains, shapes (C, L) and (C, D).
        draws: From the prior, for each of them.
        generator: Source of randomness.
        late: Whether climbs have to end.

    Returns:
        The same where no climb of a chain ends within 10 nats of where it is.
    """
    chains, height = len(code), parts.target.log_joint(code, theta) - LOWER
    times = min(draws, max(1, AT_ONCE // chains))
    every_code, every_theta = code.repeat(times, 1), theta.repeat(times, 1)
    for _ in range(math.ceil(draws / times)):
        if late():
            break
        new, moved, top = _climbed(parts, every_code, every_theta, generator, late)
        best = top.view(times, -1).max(0)
        rows = best.indices * chains + torch.arange(chains, device=code.device)
        up = (best.values > height)[:, None]
        height = best.values.maximum(height)
        code, theta = torch.where(up, new[rows], code), torch.where(up, moved[rows], theta)
    return code, theta


def _climbed(
    parts: Components,
    code: Tensor,
    theta: Tensor,
    generator: torch.Generator,
    late: Callable[[], bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """Models, points and log joints where one climb of each chain's new component ends."""
    theta = parts.shuffled(code, theta, generator)
    k = parts.count(code)
    more = torch.rand(k.shape, generator=generator, device=k.device) < 0.5
    more = ((k == 0) | more) & (k < parts.kind.max)
    place = torch.where(more, k, k - 1)
    new, rest = parts.counted(code, place + 1), parts.counted(code, place)
    theta = torch.where(parts.space.active(rest), theta, 0.0)
    total = parts.total(rest, theta)
    others = None if total is None else parts.sum_in(total)

    def height(x: Tensor) -> Tensor:
        every = None if others is None else others + parts.contribution(theta, x)
        return parts.target.log_joint(new, parts.put(theta, place, x), every)

    x = parts.sample_prior(theta, host_number(generator))
    x, top = uphill(height, x, x.std(0).nan_to_num(1.0, 1.0), STEPS, generator, late)
    return new, parts.put(theta, place, x), top
