"""One component of a target, without the cost of the others."""

from __future__ import annotations

import torch
from torch import Tensor

from ..rng import seeded
from ..space.base import Kind
from .density import Density
from .support import unchecked
from .target import Target


class Single:
    """What one exchangeable component is and adds, given what all share.

    Arguments:
        target: A target over :class:`~trjmcmc.Counts`.
        kind: The component's kind.

    Raises:
        Exception: A prior is not stated for one component alone: what it then raises.

    Example:
        >>> from trjmcmc import problems
        >>> target = problems.pulses(points=50)
        >>> single = Single(target, target.space.kinds[0])
        >>> theta = torch.zeros(2, target.dim)
        >>> single.log_prior(theta, torch.zeros(2, 3)).shape
        torch.Size([2])
    """

    def __init__(self, target: Target, kind: Kind) -> None:
        with seeded(0, target.device), torch.no_grad():
            self.density: Density = target.density_of_one(kind)
        self.additive, self.name = target.additive, kind.name
        slots, space = target.space.slots_of(kind), target.space
        shared = (space.slot_item == space.n_items).nonzero()[:, 0]
        own = iter(range(target.dim, target.dim + slots.shape[1]))
        rest = iter(shared.tolist())
        columns: list[int] = []
        self._own = [b for b in self.density.blocks if b.items is not None]
        for block in self.density.blocks:
            columns += [next(rest if block.items is None else own) for _ in range(block.prior.size)]
        self._columns = torch.tensor(columns, device=target.device)

    def _rows(self, theta: Tensor, x: Tensor) -> Tensor:
        """Slots of the one density, of points (C, D) and components (C, P)."""
        return torch.cat([theta, x], 1)[:, self._columns]

    def log_prior(self, theta: Tensor, x: Tensor) -> Tensor:
        """Log prior density of one component of each chain, (C,), nats.

        Arguments:
            theta: Points, of which the shared coordinates are taken, shape (C, D).
            x: Coordinates of a component, shape (C, P).
        """
        with unchecked():
            by_slot = self.density.prior_by_slot(self._rows(theta, x), None)
        return torch.stack([by_slot[:, b.slots].sum(1) for b in self._own]).sum(0)

    def contribution(self, theta: Tensor, x: Tensor) -> Tensor:
        """What it adds to an additive likelihood's sum, float64, (C, *data); as above."""
        assert self.additive is not None
        with unchecked():
            shown = self.density.shown(self._rows(theta, x), None)
            return self.additive.of_one(shown, self.name).double()
