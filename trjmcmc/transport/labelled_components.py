"""Exchangeable components in the places that they fit best: a map that learns one labelling."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .base import Transport
from .sorted_components import SortedComponents

ABSENT = 1e9  # nats that a component which is not there costs in a place, and the other way round


class LabelledComponents(SortedComponents):
    r"""A map of the components in the places that they fit best, and a random order after it.

    Where components lie near each other in every coordinate no key puts them in one order. Here
    each model has k places, with a mean and a variance each. Components are given to places so
    that the sum of their normal log densities is largest, which makes one labelling of each k!.
    Draws of the base in another one have no density,

    .. math:: q(\theta | k) = \frac{1}{k!} \, q_{base}(\theta | k) \, [\theta \in R_k],

    R_k all that are in their own places. The density integrates to the share of base draws in
    R_k; importance weights of all draws are right all the same, and so are bounds.

    Arguments:
        base: A map over a space of :class:`~trjmcmc.Counts` that can be listed.
        mean: Of each place, in unconstrained coordinates, shape (M, K, P), models as in
            ``space.enumerate()``.
        variance: The same, positive.
        kind: Name or position of the kind of components, where there are several.

    Raises:
        ConfigurationError: Another space, or one without components.

    Example:
        >>> import trjmcmc as trj
        >>> space = trj.problems.pulses(most=2).space
        >>> mean = torch.tensor([0.0, 3.0])[None, :, None].expand(3, 2, 3)
        >>> flow = LabelledComponents(trj.transport.Identity(space), mean, torch.ones(3, 2, 3))
        >>> theta = torch.tensor([[3.0, 0.0, 3.0, 0.0, 3.0, 0.0]])  # the first is in place two
        >>> code = torch.tensor([[2]])
        >>> bool(flow.log_prob(theta, code) == flow.log_prob(theta[:, [1, 0, 3, 2, 5, 4]], code))
        True
    """

    mean: Tensor
    variance: Tensor

    def __init__(
        self, base: Transport, mean: Tensor, variance: Tensor, *, kind: int | str | None = None
    ) -> None:
        super().__init__(base, 0, kind=kind)
        self.register_buffer("mean", mean)
        self.register_buffer("variance", variance)

    def around(self, base: Transport) -> LabelledComponents:
        """The same places around another map."""
        return LabelledComponents(base, self.mean, self.variance, kind=self.place)

    def places(self, theta: Tensor, code: Tensor) -> Tensor:
        """Which component stands in each place, (C, K); absent ones stay behind."""
        from scipy.optimize import linear_sum_assignment

        theta, m = theta.detach(), self.space.index(code)
        mean, variance = self.mean[m][:, None], self.variance[m][:, None]
        gap = theta[:, self.slots][:, :, None] - mean
        cost = (gap.square() / variance + variance.log()).sum(-1) / 2  # (C, component, place)
        on = self._items(code)
        cost = torch.where(on[:, :, None] == on[:, None], cost, ABSENT)
        cost = torch.where(on[:, :, None], cost, ABSENT * (1 - torch.eye(len(self.slots)).to(cost)))
        own = torch.arange(len(self.slots), device=code.device)
        order = own.repeat(len(code), 1)
        # where each component fits its own place best no other labelling is better
        for i in (cost.argmin(2) != own).any(1).nonzero()[:, 0].tolist():
            matrix = cost[i].mT.nan_to_num(ABSENT).clamp(max=ABSENT).cpu().numpy()
            order[i] = torch.from_numpy(linear_sum_assignment(matrix)[1]).to(order)
        return order

    def _ordered(self, theta: Tensor, code: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        order = self.places(theta, code)
        return self._arranged(theta, order), theta.new_zeros(len(theta)), order

    def push(self, z: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        theta, log_q = self.base.push(z[:, : self._inner], code)
        own = torch.arange(len(self.slots), device=code.device)
        here = (self.places(theta, code) == own).all(1)
        log_q = torch.where(here, log_q - self._log_orders(code, z), math.inf)
        place = self._order(z[:, self._inner :], code).argsort(dim=1)
        return self._arranged(theta, place), log_q

    @torch.no_grad()
    def arrange(self, code: Tensor, theta: Tensor) -> tuple[Transport, Tensor]:
        return self.base, self._ordered(theta, code)[0]
