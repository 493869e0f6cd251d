"""Orders of the nodes anew, for the same graph."""

from __future__ import annotations

from typing import cast

import torch

from ...errors import ConfigurationError
from ...space.ordered_dags import OrderedDags
from ...target.target import Target
from ..base import Info, Kernel, State, accept


class OrderRefresh(Kernel):
    """Another order of the nodes for the same graph, over graphs with orders.

    Proposed by r, which picks, time and again, one of the nodes whose parents are all there;
    always accepted where that is the order's probability given the graph
    (``prior="graphs"``), by the ratio where all orders of a graph count alike.

    Arguments:
        target: Over :class:`~trjmcmc.graphs.OrderedDags`.
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
