"""Moves inside a model in the reference of a map."""

from __future__ import annotations

from ...target.target import Target
from ...transport.base import Transport
from ..between.jump import Jump, Rho


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
