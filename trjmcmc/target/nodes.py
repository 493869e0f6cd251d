"""The equations of a graph one by one, each of them a target over subsets of parents."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from ..errors import ConfigurationError
from ..space.dags import Dags
from ..space.subsets import Subsets
from .target import Target


class Nodes:
    """Targets of the nodes of a target whose likelihood is :class:`~trjmcmc.graphs.Equations`.

    Given the graph the posterior is a product over nodes, and evidences are too.

    Arguments:
        target: Over :class:`~trjmcmc.graphs.Dags`.

    Attributes:
        targets: One a node, over :class:`~trjmcmc.Subsets` of the others.
        slots: Coordinates of each node's equation in those of the target, shape (d, m).

    Raises:
        ConfigurationError: Another target; a single node.
    """

    def __init__(self, target: Target) -> None:
        equations = target.equations
        if equations is None or not target.space.graphs:
            raise ConfigurationError(
                "nodes: expected a target over Dags whose likelihood is trj.graphs.Equations"
            )
        self.target, self.space = target, cast("Dags", target.space)
        d = len(self.space.nodes)
        if equations.names != self.space.nodes or d < 2:
            raise ConfigurationError(
                f"nodes: the equations are of {equations.names}, the space has {self.space.nodes}"
                if d > 1
                else "nodes: a single node has no parents to choose"
            )
        self.targets = []
        for j in range(d):
            others = [name for name in self.space.nodes if name != self.space.nodes[j]]
            self.targets.append(
                Target(
                    Subsets(others, of=list(equations.edges)),
                    dtype=target.dtype,
                    device=target.device,
                    **equations.node(j),
                )
            )
        self.slots = torch.stack([self._slots(j) for j in range(d)]).to(target.device)

    def _slots(self, j: int) -> Tensor:
        """Where the target has the coordinates of a node's equation, (m,)."""
        own, item = self.targets[j], self.targets[j].space.slot_item.cpu()
        there, k = self.target.space.slot_item.cpu(), len(self.targets) - 1
        place = {name: i for i, name in enumerate(self.target.slot_names)}
        node = self.space.nodes[j]
        found = torch.tensor([place.get(f"{node}.{name}", -1) for name in own.slot_names])
        for i in range(k):  # the parameters of an edge are in the same order
            found[item == i] = (there == j * k + i).nonzero()[:, 0]
        return found

    def places(self, code: Tensor) -> Tensor:
        """Which parents each node has among the others, as bits, (C, d) -> (C, d)."""
        low = (1 << torch.arange(code.shape[1], device=code.device)) - 1
        return (code & low) | ((code >> 1) & ~low)

    def subsets(self, place: Tensor) -> Tensor:
        """Codes of a node's target, (n,) -> (n, d - 1)."""
        return (place[:, None] >> torch.arange(self.slots.shape[0] - 1, device=place.device)) & 1

    def log_joint(self, j: int, place: Tensor, theta: Tensor) -> Tensor:
        """Of a node given its parents and coordinates (n, m), without p(parents), (n,)."""
        target, code = self.targets[j], self.subsets(place)
        return target.log_joint(code, theta) - target.space.log_prior(code)
