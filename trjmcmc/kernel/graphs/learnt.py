"""Graphs proposed from a fitted q(m) over graphs with orders, whatever their present one."""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...space.ordered_dags import OrderedDags
from ...weights.base import ModelWeights
from ..proposal.walk import Walk


class LearntOrders(Walk):
    r"""A graph drawn from q over graphs with orders, for chains over :class:`~trjmcmc.Dags`.

    An order of the present graph is drawn anew from r, then another graph with an order from q:

    .. math:: \log q(G | G') - \log q(G' | G) =
              \log q(\pi, G) + \log r(\pi' | G') - \log q(\pi', G') - \log r(\pi | G)

    where r picks, time and again, one of the nodes whose parents are all there. It leaves
    p(G) r(pi | G) invariant, whose marginal is p(G). Good for some fifteen nodes; beyond, hardly
    any proposal is accepted.

    Arguments:
        weights: Fitted to a target of :func:`trjmcmc.graphs.ordered`.

    Raises:
        ConfigurationError: Weights over another space.

    Example:
        >>> from trjmcmc import Dags, Made, OrderedDags
        >>> space = Dags(["a", "b", "c"])
        >>> proposal = LearntOrders(Made(OrderedDags(space)))
        >>> code = torch.zeros(5, 3, dtype=torch.long)
        >>> new, ratio = proposal.propose(code, torch.Generator().manual_seed(0))
        >>> new.shape, ratio.shape
        (torch.Size([5, 3]), torch.Size([5]))
    """

    def __init__(self, weights: ModelWeights) -> None:
        if not isinstance(weights.space, OrderedDags):
            raise ConfigurationError(
                "LearntOrders: expected weights over OrderedDags, as fitted to "
                "trj.graphs.ordered(target)"
            )
        self.weights, self._ordered = weights, weights.space
        self.space = weights.space.dags

    def propose(self, code: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        present = self._ordered.with_random_order(code, generator)
        new = self.weights.sample(len(code), generator)
        gain = self._log_ratio(present) - self._log_ratio(new)
        return self._ordered.masks(new), gain

    def _log_ratio(self, code: Tensor) -> Tensor:
        """log q less log r of codes."""
        with torch.no_grad():
            return self.weights.log_prob(code).double() - self._ordered.log_order(code)
