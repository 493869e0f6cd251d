"""Random graphs, and data of structural equations over them, as studies of graphs simulate them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import ConfigurationError
from ..space.paths import acyclic, masks_of, order_of

ATTACHED = 2  # edges of each new node of a scale-free graph


@dataclass(frozen=True)
class SimulatedNetwork:
    """A network with weights, from which rows of data can be drawn.

    Attributes:
        graph: Edges from i to j, shape (d, d), bool.
        weights: Of edges, (d, d) without hidden units; else of the first layer, (d, d, H).
        output: Of the hidden units of each node, (d, H); None without.
        biases: Of the hidden units, (d, H), and of the nodes, (d,); None without.
        noise: Variance of the noise.
    """

    graph: Tensor
    weights: Tensor
    noise: float
    output: Tensor | None = None
    biases: tuple[Tensor, Tensor] | None = None

    def draw(self, n: int, seed: int = 2, *, set_to_zero: Tensor | None = None) -> Tensor:
        """Rows of data, shape (n, d), float64.

        Arguments:
            n: How many.
            seed: Of the noise; one of its own, for the same numbers lie behind all draws of a seed.
            set_to_zero: Nodes that are clamped to zero from outside, (d,), bool.

        Example:
            >>> network = simulate(random_graph(5, seed=1), seed=2)
            >>> network.draw(5, set_to_zero=torch.arange(5) == 0)[:, 0].tolist()
            [0.0, 0.0, 0.0, 0.0, 0.0]
        """
        generator = torch.Generator().manual_seed(seed)
        d = len(self.graph)
        x = math.sqrt(self.noise) * torch.randn(n, d, generator=generator, dtype=torch.float64)
        for j in order_of(self.graph).tolist():
            if set_to_zero is not None and bool(set_to_zero[j]):
                x[:, j] = 0.0
            elif bool(self.graph[:, j].any()) or self.biases is not None:
                x[:, j] += self._mean(j, x * self.graph[:, j])
        return x

    def _mean(self, j: int, parents: Tensor) -> Tensor:
        units = torch.einsum("ni,i...->n...", parents, self.weights[:, j])
        if self.output is None:
            return units
        if self.biases is None:
            return units.relu() @ self.output[j]
        inside, outside = self.biases
        return (units + inside[j]).relu() @ self.output[j] + outside[j]


def random_graph(
    nodes: int, law: str = "erdos-renyi", *, edges_a_node: float = 2.0, seed: int = 0
) -> Tensor:
    """A random acyclic graph, shape (d, d), bool.

    Arguments:
        nodes: d.
        law: ``"erdos-renyi"``: the edges of a random order, each with the same probability;
            ``"scale-free"``: each node in turn points to two earlier ones, preferably to those
            with many edges.
        edges_a_node: Expected number, of the first.
        seed: Any integer.

    Raises:
        ConfigurationError: Another law; more edges than an order has.

    Source:
        Lorch et al. (2021), https://arxiv.org/abs/2105.11839, section 6; Barabasi & Albert (1999),
        https://doi.org/10.1126/science.286.5439.509

    Example:
        >>> random_graph(20, seed=3).sum().item()
        44
    """
    generator = torch.Generator().manual_seed(seed)
    place = torch.rand(nodes, generator=generator).argsort()
    if law == "erdos-renyi":
        p = 2 * edges_a_node / max(1, nodes - 1)
        if not 0 <= p <= 1:
            raise ConfigurationError(
                f"random_graph: {edges_a_node} edges a node do not fit {nodes} nodes"
            )
        found = torch.rand(nodes, nodes, generator=generator).lt(p).triu(1)
    elif law == "scale-free":
        found = torch.zeros(nodes, nodes, dtype=torch.bool)
        for new in range(1, nodes):
            degree = found.sum(0) + found.sum(1) + 1.0
            number = min(ATTACHED, new)
            old = torch.multinomial(degree[:new], number, generator=generator)
            found[new, old] = True
    else:
        raise ConfigurationError(
            f'random_graph: law: expected "erdos-renyi" or "scale-free", got {law!r}'
        )
    return found[place[:, None], place]


def simulate(
    graph: Tensor,
    *,
    hidden: int = 0,
    bias: bool = True,
    noise: float = 0.1,
    weights: tuple[float, float] | None = None,
    seed: int = 1,
) -> SimulatedNetwork:
    """Weights of linear equations, or of networks of one layer of rectified units, for a graph.

    Every edge of the graph enters the data.

    Arguments:
        graph: Edges from i to j, shape (d, d).
        hidden: Units of the hidden layer.
        bias: Whether such networks have biases.
        noise: Variance.
        weights: Least and largest size of weights of either sign; standard normal if omitted.
        seed: Of the weights.

    Raises:
        ConfigurationError: A cycle; sizes that are negative or out of order.

    Source:
        Normal weights: Lorch et al. (2021), https://arxiv.org/abs/2105.11839, appendix E; weights
        away from zero: Thompson, Bonilla & Kohn (2025), https://arxiv.org/abs/2405.15167

    Example:
        >>> simulate(random_graph(4, edges_a_node=1), hidden=3).weights.shape
        torch.Size([4, 4, 3])
    """
    graph = torch.as_tensor(graph).bool()
    if graph.dim() != 2 or graph.shape[0] != graph.shape[1]:
        raise ConfigurationError(f"simulate: expected a graph (d, d), got {tuple(graph.shape)}")
    if not bool(acyclic(masks_of(graph[None]))[0]):
        raise ConfigurationError("simulate: the graph has a cycle")
    low, high = (0.0, 1.0) if weights is None else weights
    if hidden < 0 or not noise >= 0 or not 0 <= low <= high:
        raise ConfigurationError(
            "simulate: expected hidden, noise >= 0 and weights (low, high) with 0 <= low <= high, "
            f"got {hidden}, {noise}, {weights}"
        )
    generator = torch.Generator().manual_seed(seed)
    d = len(graph)

    def draw(*shape: int) -> Tensor:
        if weights is None:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)
        size = low + (high - low) * torch.rand(*shape, generator=generator, dtype=torch.float64)
        sign = torch.rand(*shape, generator=generator) < 0.5
        return torch.where(sign, -size, size)

    if not hidden:
        return SimulatedNetwork(graph, draw(d, d) * graph, noise)
    first = draw(d, d, hidden) * graph[..., None]
    biases = (draw(d, hidden), draw(d)) if bias else None
    return SimulatedNetwork(graph, first, noise, draw(d, hidden), biases)
