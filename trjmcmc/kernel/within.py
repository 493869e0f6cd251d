"""Moves inside a model."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import ConfigurationError
from ..target import Target
from ..transport import Transport
from .base import Info, Kernel, State, accept
from .jump import Jump, Rho


class CrankNicolson(Jump):
    """Preconditioned Crank-Nicolson moves in reference space, of random length by default.

    Arguments:
        target: The target.
        transport: The map.
        rho: Correlation with the current reference point; a pair is drawn from uniformly.
        fresh: Share of independent moves, rho = 0.

    Source:
        Cotter, Roberts, Stuart & White (2013), https://doi.org/10.1214/13-STS421; in the
        space of a transport map: Hoffman et al. (2019), https://arxiv.org/abs/1903.03704

    Example:
        >>> from trjmcmc import problems
        >>> target = problems.sinh_arcsinh()
        >>> move = CrankNicolson(target, problems.SinhArcsinhMap(target.space))
        >>> move.between, move.within
        (False, True)
    """

    def __init__(
        self,
        target: Target,
        transport: Transport,
        *,
        rho: Rho = (0.0, 1.0),
        fresh: float = 0.0,
        name: str = "pcn",
    ) -> None:
        super().__init__(target, transport, None, rho=rho, fresh=fresh, name=name)


class RandomWalk(Kernel):
    """Gaussian steps in the plain unconstrained coordinates, their length drawn log-uniformly.

    It owes nothing to the map, so that a poor map can't block a chain; short steps refine and
    long steps cross between modes that the map has missed.

    Arguments:
        target: The target.
        scale: Typical width of each slot, shape (D,), or one number.
        lengths: Range of the step in units of ``scale``.

    Raises:
        ConfigurationError: A scale or length that is not positive.

    Source:
        Metropolis et al. (1953), https://doi.org/10.1063/1.1699114

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.kernel import start
        >>> target = problems.robust_regression()
        >>> state = start(target, torch.zeros(5, 2, dtype=torch.long), torch.zeros(5, 4))
        >>> state, (info,) = RandomWalk(target).step(state, torch.Generator().manual_seed(0))
        >>> info.kernel, info.accepted.shape
        ('walk', torch.Size([5]))
    """

    name = "walk"
    within = True

    def __init__(
        self,
        target: Target,
        *,
        scale: Tensor | float = 1.0,
        lengths: tuple[float, float] = (0.01, 10.0),
    ) -> None:
        scale = torch.as_tensor(scale, dtype=target.dtype, device=target.device)
        if not bool((scale > 0).all()) or not 0 < lengths[0] <= lengths[1]:
            raise ConfigurationError(
                f"scale and lengths must be positive, got {scale.tolist()} and {lengths}"
            )
        self.target, self.scale = target, scale
        self.log_lengths = (math.log(lengths[0]), math.log(lengths[1]))

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        like, (low, high) = state.theta, self.log_lengths
        device, dtype = like.device, like.dtype
        u = torch.rand(len(like), 1, generator=generator, device=device, dtype=dtype)
        noise = torch.randn(like.shape, generator=generator, device=device, dtype=dtype)
        move = noise * self.scale * torch.exp(low + (high - low) * u)
        theta = torch.where(self.target.space.active(state.code), like + move, 0.0)
        log_joint = self.target.log_joint(state.code, theta)
        proposed = State(state.code, theta, log_joint)
        return accept(self.name, state, proposed, log_joint - state.log_joint, generator)
