"""Priors over acyclic graphs: a weight for each node's number of parents, and for each edge."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import TargetError
from .paths import masks_of
from .prior import log_choose


@dataclass(frozen=True)
class DagPrior:
    """Weight of an acyclic graph: a product over nodes of weights by their number of parents.

    Arguments:
        name: Shown where the prior is.
        by_parents: Log weight of a node with m parents among d nodes, a function of (m, d).

    Example:
        >>> from trjmcmc.graphs import Dags
        >>> from trjmcmc.graphs import edge_penalty
        >>> Dags(["a", "b"], prior=edge_penalty(0.5)).log_prior(torch.tensor([[0, 0]])).exp()
        tensor([0.5000], dtype=torch.float64)
    """

    name: str
    by_parents: Callable[[int, int], float]

    def table(self, d: int) -> Tensor:
        """Log weights of 0 to d - 1 parents, shape (d,), float64."""
        return torch.tensor([self.by_parents(m, d) for m in range(d)], dtype=torch.float64)


def uniform() -> DagPrior:
    """Every graph alike."""
    return DagPrior("uniform", lambda m, d: 0.0)


def fair() -> DagPrior:
    """Every number of parents alike before cycles are left out.

    Source:
        Friedman & Koller (2003), https://doi.org/10.1023/A:1020249912095
    """
    return DagPrior("fair", lambda m, d: -log_choose(d - 1, m))


def erdos_renyi(edges_a_node: float = 2.0) -> DagPrior:
    """Each of the edges that an order allows is there with the same probability.

    Arguments:
        edges_a_node: Expected number of edges over that of nodes; the probability of an edge is
            2 of these over d - 1, and has to be below 1.

    Raises:
        TargetError: It is not, for so few nodes (when the space is made).

    Source:
        As in DiBS: Lorch et al. (2021), https://arxiv.org/abs/2105.11839
    """

    def by_parents(m: int, d: int) -> float:
        p = 2 * edges_a_node / (d - 1) if d > 1 else 0.5
        if not 0 < p < 1:
            raise TargetError(
                f"prior: {edges_a_node:g} edges a node are {p:.2g} of those that an order of "
                f"{d} nodes allows; give fewer"
            )
        return m * (math.log(p) - math.log1p(-p))

    return DagPrior("Erdos-Renyi", by_parents)


def scale_free(power: float = 3.0) -> DagPrior:
    """A node with m parents weighs (1 + m) to the power of -3.

    Source:
        As in DiBS: Lorch et al. (2021), https://arxiv.org/abs/2105.11839
    """
    return DagPrior("scale-free", lambda m, d: -power * math.log1p(m))


def edge_penalty(factor: float) -> DagPrior:
    """Each edge multiplies the weight by a factor."""
    if factor <= 0:
        raise TargetError(f"edge_penalty: expected a factor above 0, got {factor}")
    return DagPrior("edge penalty", lambda m, d: m * math.log(factor))


PRIORS = {"uniform": uniform, "fair": fair, "erdos-renyi": erdos_renyi, "scale-free": scale_free}


class SizeDraws:
    r"""Sums over, and draws from, all acyclic graphs weighed by numbers of parents alone.

    Layers as in :class:`~trjmcmc.space.dag_draws.DagDraws`; here only their sizes matter, so that
    any number of nodes will do.

    Arguments:
        by_parents: Log weights of 0 to d - 1 parents, shape (d,).

    Source:
        Kuipers & Moffa (2015), https://doi.org/10.1007/s11222-013-9428-y

    Example:
        >>> round(math.exp(SizeDraws(torch.zeros(4).double()).log_total))
        543
    """

    def __init__(self, by_parents: Tensor) -> None:
        self.d, self._weight = len(by_parents), by_parents.double().cpu()
        d = self.d
        self._log_choose = torch.tensor(
            [
                [log_choose(n, m) if m <= n else -math.inf for m in range(d + 1)]
                for n in range(d + 1)
            ],
            dtype=torch.float64,
        )
        self._after = torch.full((d + 1, d + 1), -math.inf, dtype=torch.float64)
        self._after[d] = 0.0
        for placed in range(d - 1, -1, -1):
            for last in range(1, placed + 1) if placed else [0]:
                self._after[placed, last] = self._sizes(placed, last).logsumexp(0)
        self.log_total = float(self._after[0, 0])

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Parent masks, shape (n, d), on the generator's device."""
        d, device = self.d, generator.device
        order = torch.rand(n, d, generator=generator, device=device).argsort(1)
        begin = torch.zeros(n, d, dtype=torch.long, device=device)  # of the layer of each place
        before = begin.clone()  # where the layer before it begins
        placed = torch.zeros(n, dtype=torch.long, device=device)
        last = placed.clone()
        place = torch.arange(d, device=device)
        for _ in range(d):
            size = self._drawn_sizes(placed, last, generator)
            here = (place >= placed[:, None]) & (place < (placed + size)[:, None])
            begin = torch.where(here, placed[:, None], begin)
            before = torch.where(here, (placed - last)[:, None], before)
            placed, last = placed + size, torch.where(size > 0, size, last)
        parents = self._drawn_parents(begin.flatten(), before.flatten(), generator)
        edges = parents.view(n, d, d)  # of each place, the places of its parents
        back = order.argsort(1)
        edges = edges.gather(1, back[:, :, None].expand(-1, -1, d))
        edges = edges.gather(2, back[:, None].expand(-1, d, -1))
        return masks_of(edges.transpose(1, 2))

    def _sizes(self, placed: int, last: int) -> Tensor:
        """Log weights of 0 to d - placed nodes in the next layer."""
        rest = self.d - placed
        each = float(self._parents(placed, last).logsumexp((0, 1)))
        size = torch.arange(rest + 1)
        weight = self._log_choose[rest, : rest + 1] + self._after[placed + size, size]
        weight[1:] += size[1:].double() * each
        weight[0] = -math.inf
        return weight

    def _parents(self, placed: int, last: int) -> Tensor:
        """Log weights of so many parents in the last layer and before it, (last + 1, rest + 1)."""
        rest = placed - last
        a, b = torch.arange(last + 1)[:, None], torch.arange(rest + 1)
        weight = self._log_choose[last, a] + self._log_choose[rest, b]
        weight = weight + self._weight[(a + b).clamp(max=self.d - 1)]
        if placed:
            weight[0] = -math.inf
        return weight

    def _drawn_sizes(self, placed: Tensor, last: Tensor, generator: torch.Generator) -> Tensor:
        found = torch.zeros_like(placed)
        for n, k in torch.stack([placed, last], 1).unique(dim=0).tolist():
            if n < self.d:
                rows = ((placed == n) & (last == k)).nonzero()[:, 0]
                p = self._sizes(n, k).softmax(0).to(placed.device)
                found[rows] = torch.multinomial(p, len(rows), True, generator=generator)
        return found

    def _drawn_parents(self, begin: Tensor, before: Tensor, generator: torch.Generator) -> Tensor:
        """Parents of nodes at places, in places, (n, d) bool."""
        d, device = self.d, begin.device
        found = torch.zeros(len(begin), d, dtype=torch.bool, device=device)
        for n, m in torch.stack([begin, before], 1).unique(dim=0).tolist():
            if not n:
                continue
            rows = ((begin == n) & (before == m)).nonzero()[:, 0]
            weight = self._parents(n, n - m)
            p = weight.flatten().softmax(0).to(device)
            pick = torch.multinomial(p, len(rows), True, generator=generator)
            noise = torch.rand(len(rows), n, generator=generator, device=device)
            near = noise[:, m:].argsort(1).argsort(1) < (pick // weight.shape[1])[:, None]
            far = noise[:, :m].argsort(1).argsort(1) < (pick % weight.shape[1])[:, None]
            found[rows, :n] = torch.cat([far, near], 1)
        return found
