"""Likelihoods of structural equations: each node is distributed given its parents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import TargetError
from ..space.base import check_names
from .prior import PriorSpec
from .scores import LocalScores

NodeDensity = Callable[[int, dict[str, Tensor], Tensor], Tensor]


class Equations:
    """Log likelihood of a graph with parameters: a sum over nodes of densities given parents.

    It is a likelihood as :class:`~trjmcmc.Target` takes them, over :class:`~trjmcmc.graphs.Dags`
    with the same nodes in the same order. Runs know it when they see it, and go node by node: given
    the graph, what one node's equation has learned says nothing of another's.

    Arguments:
        names: One name a node.
        density: Function of a node j, parameters and parents that gives the log density of its
            data, (C,), nats. Parameters of edges, (C, d, ...), are those of the edges into j, by
            parent, zero where there is none; parameters of nodes, (C, ...), are those of j.
            ``parents`` is (C, d), bool.
        edges: Prior of each parameter of an edge, by name.
        nodes: Prior of each parameter of a node; it is called ``"a.sigma"`` of node "a".
        scores: Local scores of a cheaper model of the same data, such as
            :func:`~trjmcmc.graphs.bge`: where families are too many to be learned one by one,
            births of edges go by these.

    Raises:
        TargetError: No parameter of edges, names that repeat.

    Example:
        >>> from torch.distributions import Normal
        >>> x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
        >>> def density(j, params, parents):
        ...     return Normal(params["w"] @ x.T, 1.0).log_prob(x[:, j]).sum(1)
        >>> equations = Equations(["a", "b"], density, edges={"w": Normal(0.0, 1.0)})
        >>> w, active = torch.tensor([[0.5, 0.0]]), torch.tensor([[True, False]])
        >>> equations({"w": w}, active).shape  # b -> a
        torch.Size([1])
    """

    def __init__(
        self,
        names: Sequence[str],
        density: NodeDensity,
        *,
        edges: Mapping[str, PriorSpec],
        nodes: Mapping[str, PriorSpec] | None = None,
        scores: LocalScores | None = None,
    ) -> None:
        self.names = [str(name) for name in names]
        self.density, self.edges, self.nodes = density, dict(edges), dict(nodes or {})
        check_names(self.names, "names of Equations")
        if not self.edges:
            raise TargetError("Equations: edges: expected the prior of at least one parameter")
        check_names([*self.edges, *self.nodes], "parameters of Equations")
        self.scores = scores
        if scores is not None and scores.names != self.names:
            raise TargetError(f"Equations: the scores are of {scores.names}, not of {self.names}")

    def __repr__(self) -> str:
        return f"Equations({len(self.names)} nodes, of {', '.join([*self.edges, *self.nodes])})"

    def priors(self) -> dict[str, PriorSpec]:
        """Priors of all parameters, as :class:`~trjmcmc.Target` takes them."""
        of_nodes = {
            f"{node}.{name}": prior for name, prior in self.nodes.items() for node in self.names
        }
        return {**self.edges, **of_nodes}

    def __call__(self, params: dict[str, Tensor], active: Tensor) -> Tensor:
        """Sum over the nodes, edges (C, d (d - 1), ...) as Dags orders them -> (C,), nats."""
        d, total = len(self.names), None
        by_child = {name: _by_child(params[name], d) for name in self.edges}
        parents = _by_child(active, d)
        for j, node in enumerate(self.names):
            own = {name: value[:, j] for name, value in by_child.items()}
            own |= {name: params[f"{node}.{name}"] for name in self.nodes}
            value = self.of(j, own, parents[:, j])
            total = value if total is None else total + value
        assert total is not None
        return total

    def of(self, j: int, params: dict[str, Tensor], parents: Tensor) -> Tensor:
        """Log density of a node's data, edges from the other nodes (C, d - 1, ...) -> (C,)."""
        full = {n: _with_own(v, j) if n in self.edges else v for n, v in params.items()}
        return self.density(j, full, _with_own(parents, j))

    def node(self, j: int) -> dict[str, Any]:
        """Priors and likelihood of a node's equation, over subsets of the other nodes.

        Arguments of :class:`~trjmcmc.Target` by name.
        """

        def log_likelihood(params: dict[str, Tensor], active: Tensor) -> Tensor:
            return self.of(j, params, active)

        return {"priors": {**self.edges, **self.nodes}, "log_likelihood": log_likelihood}


def _with_own(value: Tensor, j: int) -> Tensor:
    """With a zero for the node itself, (C, d - 1, ...) -> (C, d, ...)."""
    own = value.new_zeros(len(value), 1, *value.shape[2:])
    return torch.cat([value[:, :j], own, value[:, j:]], 1)


def _by_child(value: Tensor, d: int) -> Tensor:
    """Edges by child and other node, (C, d (d - 1), ...) -> (C, d, d - 1, ...)."""
    return value.reshape(len(value), d, d - 1, *value.shape[2:])
