"""Moves by orders of the nodes: graphs from a fitted q(m), and orders anew."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...space.ordered_dags import OrderedDags
from ...target.target import Target
from ...weights.base import ModelWeights
from ..base import Info, Kernel, State, accept
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
        if not weights.space.orders:
            raise ConfigurationError(
                "LearntOrders: expected weights over OrderedDags, as fitted to "
                "trj.graphs.ordered(target)"
            )
        self.weights, self._ordered = weights, cast("OrderedDags", weights.space)
        self.space = self._ordered.dags

    def propose(self, code: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        present = self._ordered.with_random_order(code, generator)
        new = self.weights.sample(len(code), generator)
        gain = self._log_ratio(present) - self._log_ratio(new)
        return self._ordered.masks(new), gain

    def _log_ratio(self, code: Tensor) -> Tensor:
        """log q less log r of codes."""
        with torch.no_grad():
            return self.weights.log_prob(code).double() - self._ordered.log_order(code)


class OrderRefresh(Kernel):
    """Another order of the nodes for the same graph, over graphs with orders.

    Proposed by r, as there; always accepted where that is the order's probability given the graph
    (``prior="graphs"``), by the ratio where all orders of a graph count alike.

    Arguments:
        target: Over :class:`~trjmcmc.OrderedDags`.
        name: Shown in tables.

    Raises:
        ConfigurationError: Another target.

    Example:
        >>> from trjmcmc import graphs
        >>> from trjmcmc.kernel import start
        >>> x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
        >>> target = graphs.ordered(graphs.target(graphs.bge(x)))
        >>> state = start(target, torch.zeros(4, 5, dtype=torch.long), torch.zeros(4, 0))
        >>> state, (info,) = OrderRefresh(target).step(state, torch.Generator().manual_seed(0))
        >>> bool(info.accepted.all()), target.space.masks(state.code).sum().item()
        (True, 0)
    """

    between = True

    def __init__(self, target: Target, *, name: str = "orders") -> None:
        if not target.space.orders:
            raise ConfigurationError("OrderRefresh: expected a target over OrderedDags")
        self.target, self.name = target, name
        self.space = cast("OrderedDags", target.space)

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        space = self.space
        code = space.with_random_order(space.masks(state.code), generator)
        gain = space.log_prior(code) - space.log_prior(state.code)
        log_ratio = gain + space.log_order(state.code) - space.log_order(code)
        log_joint = (state.log_joint.double() + gain).to(state.log_joint)
        proposed = State(code, state.theta, log_joint)
        return accept(self.name, state, proposed, log_ratio, generator)
