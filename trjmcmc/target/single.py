"""One component of a target, without the cost of the others."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
        self._width = slots.shape[1]
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

    def sample_prior(self, theta: Tensor, seed: int) -> Tensor:
        """A component of each chain from its prior, given what all share, (C, P)."""
        rows = self._rows(theta, theta.new_zeros(len(theta), self._width))
        keep = torch.zeros_like(rows, dtype=torch.bool)
        for block in self.density.blocks:
            keep[:, block.slots] = block.items is None
        with seeded(seed, theta.device), unchecked():
            rows = self.density.sample_missing(rows, keep, None)
        return torch.cat([rows[:, b.slots] for b in self._own], 1)

    def log_prior_by_slot(self, theta: Tensor, x: Tensor) -> Tensor:
        """Log prior of each entry of each parameter of its own, on its first slot, (C, P)."""
        with unchecked():
            by_slot = self.density.prior_by_slot(self._rows(theta, x), None)
        return torch.cat([by_slot[:, b.slots] for b in self._own], 1)

    @property
    def places(self) -> dict[str, slice]:
        """Where each parameter of its own lies in the coordinates (C, P) of a component."""
        found, start = {}, 0
        for block in self._own:
            found[block.prior.name] = slice(start, start + block.prior.size)
            start += block.prior.size
        return found

    @property
    def linear(self) -> Sequence[str] | None:
        """Parameters that signals are linear in, as the user has stated; None if nothing was."""
        return None if self.additive is None else self.additive.linear

    def turn(self, name: str) -> tuple[float, float] | None:
        """Where the circle of a periodic parameter of its own begins and ends."""
        (block,) = (b for b in self._own if b.prior.name == name)
        return block.prior.turn

    def values(self, theta: Tensor, x: Tensor) -> dict[str, Tensor]:
        """Its own and the shared parameters, (C, 1, *shape of one) and (C, *shape) by name."""
        with unchecked():
            return self.density.shown(self._rows(theta, x), None)

    def coordinates(self, values: dict[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
        """Coordinates of one of its parameters, (C, p), and log |d value / d coordinate|, (C,).

        Arguments:
            values: As of :meth:`values`; values outside the prior's support have no coordinates:
                NaN.
            name: Of the parameter.
        """
        (block,) = (b for b in self._own if b.prior.name == name)
        with unchecked():
            x = block.prior.unconstrain(values[name], values)
            inside = block.prior.inside(values[name], values)
            return torch.where(inside[:, None], x, math.nan), block.prior.log_slope(x, values)

    def added(self, values: dict[str, Tensor]) -> Tensor:
        """What it adds to the sum at any values, of the support or not, float64, (C, *data)."""
        assert self.additive is not None
        return self.additive.of_one(values, self.name).double()

    def log_likelihood(self, total: Tensor, values: dict[str, Tensor]) -> Tensor:
        """Log likelihood of sums (C, *data) and the shared of some values, (C,), nats."""
        with unchecked():
            return self.density.likelihood.of_total(total, values, len(total))

    def contribution(self, theta: Tensor, x: Tensor) -> Tensor:
        """What it adds to an additive likelihood's sum, float64, (C, *data); as above."""
        assert self.additive is not None
        with unchecked():
            shown = self.density.shown(self._rows(theta, x), None)
            return self.additive.of_one(shown, self.name).double()
