"""Random walks with a step size a model."""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...target.target import Target
from ...transport.base import Transport
from ..base import Info, Kernel, State, accept
from ..steps import Around, LogUniformSteps
from .frame import Frame


class RandomWalk(Kernel):
    """Gaussian steps of log-uniform length, in plain coordinates or in reference space.

    In plain coordinates it does not use the map, so that a poor map can't block a chain;
    short steps refine and long steps cross between modes that the map has missed. There periodic
    parameters go around.

    Arguments:
        target: The target.
        transport: The map in whose reference space it moves; None for plain coordinates.
        scale: Typical width of each slot, shape (D,), or one number.
        lengths: Range of the step in units of ``scale``.
        name: Shown in tables.

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

    within = True

    def __init__(
        self,
        target: Target,
        transport: Transport | None = None,
        *,
        scale: Tensor | float = 1.0,
        lengths: tuple[float, float] = (0.01, 10.0),
        name: str = "walk",
    ) -> None:
        scale = torch.as_tensor(scale, dtype=target.dtype, device=target.device)
        if not bool((scale > 0).all()):
            raise ConfigurationError(f"scale: must be positive, got {scale.tolist()}")
        self.frame, self.name = Frame(target, transport), name
        self.steps = LogUniformSteps(scale, lengths)
        plain = target.periodic_slots if transport is None else torch.zeros(target.dim) > 0
        self.around = Around(plain.to(target.device))

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        state, x, log_density = self.frame.here(state, generator)
        step = torch.where(self.frame.active(state.code), self.steps.draw(x, generator), 0.0)
        to, log_around = self.around(x, step)
        proposed, there = self.frame.there(state, to)
        log_ratio = there - log_density + log_around
        after, info = accept(self.name, state, proposed, log_ratio, generator)
        return after, info
