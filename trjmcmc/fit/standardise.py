"""Location and scale of each model's draws, and maps that start from them."""

from __future__ import annotations

import torch
from torch import Tensor

from ..draws import Pool
from ..grouping import same_rows
from ..target.resolution import WIDE, spacing
from ..transport.base import Standardisable, Transport
from ..transport.sorted_components import SortedComponents

FEWEST_DISTINCT = 20  # draws of a model from which they tell its scale

SMALLEST_SCALE = 1e-6


def moments(
    pool: Pool, codes: Tensor, active: Tensor, *, smallest: float = SMALLEST_SCALE
) -> tuple[Tensor, Tensor]:
    """Means and standard deviations of the draws of each model.

    Arguments:
        pool: Draws.
        codes: Models, shape (M, L).
        active: Coordinates that each uses, shape (M, D), bool.
        smallest: Least standard deviation.

    Returns:
        Location and scale, each of shape (M, D): 0 and 1 in spare slots, and where there are too
        few draws to tell.

    Example:
        >>> theta = 3.0 + 2.0 * torch.randn(4000, 1, generator=torch.Generator().manual_seed(0))
        >>> code = torch.zeros(4000, 1, dtype=torch.long)
        >>> pool = Pool(code, theta, torch.zeros(4000))
        >>> loc, scale = moments(pool, code[:1], torch.ones(1, 1, dtype=torch.bool))
        >>> round(loc.item()), round(scale.item())
        (3, 2)
    """
    loc = pool.theta.new_zeros(active.shape)
    scale = torch.ones_like(loc)
    for m, code in enumerate(codes):
        mine = pool.theta[(pool.code == code).all(-1)]
        if len(mine):
            loc[m] = mine.mean(0)
        if len(same_rows(mine).unique()) >= FEWEST_DISTINCT:
            least = (WIDE * spacing(loc[m])).clamp(min=smallest)
            scale[m] = torch.maximum(mine.std(0), least)
    return torch.where(active, loc, 0.0), torch.where(active, scale, 1.0)


def typical_scale(scale: Tensor, active: Tensor) -> Tensor:
    """Geometric mean, over the models that use a slot, of its scale, (M, D) -> (D,)."""
    count = active.sum(0).clamp(min=1)
    return (torch.where(active, scale.log(), 0.0).sum(0) / count).exp()


def standardise(
    transport: Transport,
    codes: Tensor,
    loc: Tensor,
    scale: Tensor,
    pool: Pool | None = None,
) -> None:
    """Let a map start from the location and scale of each model.

    A map that puts components in order chooses its order by the draws; the map inside it is then
    standardised by the draws in that order.

    Arguments:
        transport: The map, changed in place.
        codes: Models, shape (M, L).
        loc: Location of each, shape (M, D).
        scale: Scale of each, shape (M, D).
        pool: Draws that these are moments of, or None.
    """
    inner = transport
    if pool is not None:
        inner, theta = unwrap(transport, pool.code, pool.theta)
        if inner is not transport:
            carried = Pool(pool.code, theta, pool.log_joint)
            loc, scale = moments(carried, codes, transport.space.active(codes))
    calibrate(inner, codes, loc, scale)


def calibrate(transport: Transport, code: Tensor, loc: Tensor, scale: Tensor) -> None:
    """Give a map a first guess of location and scale of the models' coordinates, if it takes one.

    Arguments:
        transport: The map; changed where it is :class:`~trjmcmc.transport.base.Standardisable`.
        code: Models, shape (M, L).
        loc: Locations, shape (M, D), unconstrained coordinates.
        scale: Positive scales, shape (M, D).

    Example:
        >>> import torch
        >>> from trjmcmc import problems
        >>> from trjmcmc.transport import CosmicFlow
        >>> flow = CosmicFlow(problems.sinh_arcsinh().space, layers=2, hidden=(8,))
        >>> code = torch.tensor([[1]])
        >>> calibrate(flow, code, torch.full((1, 2), 3.0), torch.full((1, 2), 0.5))
        >>> flow.push(torch.zeros(1, 2), code)[0].tolist()
        [[3.0, 3.0]]
    """
    if isinstance(transport, Standardisable):
        transport.standardise(code, loc, scale)


def unwrap(transport: Transport, code: Tensor, theta: Tensor) -> tuple[Transport, Tensor]:
    """What to :func:`calibrate` where there are posterior draws, and in which coordinates.

    Arguments:
        transport: The map; one that puts components in order chooses its order by the draws.
        code: Models of the draws, shape (N, L).
        theta: The draws, shape (N, D).

    Returns:
        The map inside and the draws in its coordinates, shape (N, D): ``transport`` and ``theta``
        themselves, except where components are put in order before a map sees them.

    Example:
        >>> import torch
        >>> from trjmcmc import problems
        >>> from trjmcmc.transport import Identity
        >>> flow = Identity(problems.sinh_arcsinh().space)
        >>> inner, u = unwrap(flow, torch.tensor([[1]]), torch.ones(1, 2))
        >>> inner is flow, u.tolist()
        (True, [[1.0, 1.0]])
    """
    if isinstance(transport, SortedComponents):
        return transport.arrange(code, theta)
    return transport, theta
