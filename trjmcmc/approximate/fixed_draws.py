"""The bound by draws that stay the same: a smooth function, which a quasi-Newton method climbs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..fit.reverse import reverse_kl
from ..target.target import Target
from ..transport.base import Transport
from ..transport.reference import Reference

HISTORY = 20  # steps that a climb remembers

CLIMBED, FEWEST = 40, 50  # evaluations of each draw in a climb, about, and the fewest draws

SETTLED = 1e-7  # nats of the bound, or of its slope, that end a climb


def climbed(
    target: Target,
    maps: Sequence[Transport],
    codes: Tensor,
    generator: torch.Generator,
    *,
    draws: int,
    steps: int,
    most: float = math.inf,
) -> Transport | None:
    """The map of the highest evidence lower bound, after each has climbed it; None if none has one.

    The draws are the same all the way, so that nothing but the bound's own shape decides where a
    climb ends: noisy steps leave a mean field percents of a standard deviation away, and nats where
    its bound has several tops. For few parameters: a map of more than there are draws would learn
    the draws.

    Arguments:
        target: A target with gradients.
        maps: Where climbs start; they are changed.
        codes: All models, shape (M, L).
        generator: Source of randomness.
        draws: Fixed draws of each model.
        steps: Of each climb, at most.
        most: Evaluations of all climbs, about; too few for any and there is no map.

    Source:
        Giordano, Ingram & Broderick (2024), https://www.jmlr.org/papers/v25/23-1015.html
    """
    each = most / (len(maps) * len(codes))
    draws = int(min(draws, each / CLIMBED)) // 2 * 2
    if draws < FEWEST:
        return None
    steps = int(min(steps, each / draws))
    code = codes.repeat_interleave(draws, 0)
    best, lowest = None, math.inf
    for transport in maps:
        z = matched(transport.reference, draws, target, generator).repeat(len(codes), 1)
        loss = _climb(target, transport, code, z, steps)
        if loss < lowest:
            best, lowest = transport, loss
    return best


def _climb(target: Target, transport: Transport, code: Tensor, z: Tensor, steps: int) -> float:
    """Climb the bound by fixed draws; minus the bound where it ended, nats, or infinity."""
    parameters = [p for p in transport.parameters() if p.requires_grad]
    descent = torch.optim.LBFGS(
        parameters,
        max_iter=steps,
        history_size=HISTORY,
        tolerance_grad=SETTLED,
        tolerance_change=SETTLED,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        descent.zero_grad()
        losses = reverse_kl(target, transport, code, z)
        value = losses.value.mean()
        if not bool(losses.finite.all()):  # a step too far: the line search comes back
            value = value + math.inf
        value.backward()
        return value

    descent.step(loss)
    with torch.no_grad():
        losses = reverse_kl(target, transport, code, z)
    value = float(losses.value.mean())
    return value if bool(losses.finite.all()) and math.isfinite(value) else math.inf


def matched(reference: Reference, n: int, target: Target, generator: torch.Generator) -> Tensor:
    """Reference draws in opposite pairs, of unit covariance if there are enough, (n, D).

    The bound of a normal posterior is exact by these.
    """
    half = reference.sample((max(1, n // 2), target.dim), generator, target.dtype)
    z = torch.cat([half, -half])
    d = target.dim
    if z.shape[1] > d or len(half) <= d:  # auxiliary coordinates, or too few
        return z
    factor = torch.linalg.cholesky(z.mT @ z / len(z))
    return torch.linalg.solve_triangular(factor, z.mT, upper=False).mT
