"""The units and the arrangement that a map starts its training with."""

from __future__ import annotations

from torch import Tensor

from ..transport.base import Standardisable, Transport
from ..transport.sorted_components import SortedComponents


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
