"""Independent draws of graphs by orders of their nodes, of which each graph has one normal form."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...rng import categorical
from ...space.dag_sums import sizes
from .local import LocalWeights
from .sums import ParentSums

MOST_NODES = 20  # whose sums over orders, d 2^d, fit into memory

AT_ONCE = 2**14  # graphs that are proposed at once

SOUNDINGS = 2**10  # draws by which nodes are ranked

PILOTS = 2**12  # proposals by which the share of those that are kept is known

LEAST_SHARE = 1e-11  # of the parent sets of a node that hold the node before: less is rounding


class OrderDraws:
    r"""Draws from all acyclic graphs in proportion to the product of their local weights.

    Of the orders of its nodes that a graph allows, its normal form is the one that takes the first
    of the nodes whose parents have all been taken, time after time. In a normal form, a node after
    one of a later name is a child of that one. What orders with this property weigh,

    .. math:: A(S \cup \{j\}, j) = \sum_{l \in S} A(S, l)
        \begin{cases} F_j(S) & l < j \\ F_j(S) - F_j(S \setminus \{l\}) & l > j, \end{cases}

    with F_j(S) the sum over the parent sets of j inside S and l the last node, takes a table of
    d 2^d numbers. Orders and then parents are drawn from it and kept if the order is the graph's
    normal form, so that every graph counts once. Fifteen nodes of linear networks with two edges
    a node keep one draw in four, twenty one in thirty to four hundred.

    Arguments:
        local: The weights, all at one power; at most 20 nodes.

    Attributes:
        log_total: Log of the sum over the orders of all graphs.
        rate: Share of proposals that are kept, estimated; 0 where none was.

    Source:
        Sums over orders: Koivisto & Sood (2004), http://jmlr.org/papers/v5/koivisto04a.html;
        normal forms: Anisimov & Knuth (1979), https://doi.org/10.1007/BF00993053

    Example:
        >>> from trjmcmc import graphs
        >>> x = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
        >>> draws = OrderDraws(LocalWeights(graphs.target(graphs.bge(x))))
        >>> draws.sample(1000, torch.Generator().manual_seed(0)).unique(dim=0).shape
        torch.Size([25, 3])
    """

    def __init__(self, local: LocalWeights) -> None:
        if local.d > MOST_NODES:
            raise ConfigurationError(
                f"order draws: all orders of {local.d} nodes are too many to sum; at most "
                f"{MOST_NODES} nodes"
            )
        self._local, self._sums = local, ParentSums(local)
        if local.masks.shape[1] > 1 and not self._sums.by_tables:
            raise ConfigurationError(
                f"order draws: parents of {local.d} nodes with {local.scores.candidates.shape[1]} "
                "candidates each need too large tables; make scores with fewer candidates"
            )
        device = local.masks.device
        generator = torch.Generator(device).manual_seed(0)
        # nodes by rank; those with few parents first keep up to three times as many draws
        self._node = torch.arange(local.d, device=device)
        plain, _ = self._drawn(_ways(self._inside(), False), False, SOUNDINGS, generator)
        number = sum((plain >> i) & 1 for i in range(local.d)) + torch.zeros_like(plain)
        self._node = number.double().mean(0).argsort(stable=True)
        self._ways = _ways(self._inside(), True)
        self.log_total = float(self._ways[:, -1].logsumexp(0))
        self.rate = float(self.propose(PILOTS, generator)[1].double().mean())

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Parent masks, shape (n, d); in time that grows with 1 / ``rate``."""
        found, missing = [], n
        while missing > 0:
            some = math.ceil(1.05 * missing / max(self.rate, 1 / PILOTS)) + 8
            code, kept = self.propose(min(some, AT_ONCE), generator)
            found.append(code[kept][:missing])
            missing -= len(found[-1])
        return torch.cat(found)

    def propose(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Graphs by their orders, parent masks (n, d), and whether each is kept, (n,)."""
        return self._drawn(self._ways, True, n, generator)

    def _inside(self) -> Tensor:
        """Log sums over the parent sets of each node inside each set, (d, 2^d), all by rank."""
        bit = 1 << self._node
        place = torch.zeros_like(bit)[:, None]
        for each in bit:  # what a node in a set adds to columns of the table
            more = self._local.scores.place(self._node, each)[:, None]
            place = torch.cat([place, place + more], 1)
        return self._sums.at(self._node[:, None], place)

    def _drawn(
        self, ways: Tensor, normal: bool, n: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Orders by their sums, from the last node on, then parents: as of :meth:`propose`."""
        d, sums, node = len(ways), self._sums, self._node
        every = torch.arange(d, device=node.device)
        sets = torch.full((n,), 2**d - 1, device=node.device)  # by rank
        masks = (1 << node).sum().expand(n)  # the same nodes
        last, order = categorical(ways[:, sets].T, generator), []
        for _ in range(d - 1):
            order.append(last)
            sets, masks = sets & ~(1 << last), masks & ~(1 << node[last])
            weight = ways[:, sets].T
            if normal:
                _, share = sums.share(node[last][:, None], masks[:, None], 1 << node)
                weight = weight + torch.where(every > last[:, None], _log(share), 0.0)
            last = categorical(weight, generator)
        rank = torch.stack([last, *reversed(order)], 1)
        of_rank = node[rank]
        bit = 1 << of_rank
        before = bit.cumsum(1) - bit
        previous = torch.nn.functional.pad(rank[:, :-1], (1, 0), value=-1)
        child = previous > rank if normal else torch.zeros_like(rank, dtype=torch.bool)
        among = torch.where(child, 1 << node[previous], 0)
        parents = sums.sample(of_rank, before, generator, among)
        code = torch.empty_like(parents).scatter_(1, of_rank, parents)
        return code, _in_normal_form(rank, (parents[:, :, None] & bit[:, None]) != 0)


def _log(share: Tensor) -> Tensor:
    return torch.where(share > LEAST_SHARE, share, 0.0).log()


def _ways(inside: Tensor, normal: bool) -> Tensor:
    """Log sums over orders of each set with each of its nodes last, (d, 2^d) -> (d, 2^d).

    Arguments:
        inside: Log sums over the parent sets of each node inside each set.
        normal: Whether a node after one of a higher rank is to be a child of that one.
    """
    d = len(inside)
    of_size = sizes(d, inside.device)
    found = torch.full_like(inside, -math.inf)
    for j in range(d):
        found[j, 1 << j] = inside[j, 0]
    for m in range(1, d):
        sets = (of_size == m).nonzero()[:, 0]
        each = found[:, sets]
        top = each.amax(0).clamp(min=-1e300)
        each = (each - top).exp()
        for j in range(d):
            absent = ((sets >> j) & 1 == 0).nonzero()[:, 0]
            base, weight = sets[absent], each[:, absent]
            here = inside[j, base]
            if normal:
                higher = 1 << torch.arange(j + 1, d, device=base.device)[:, None]
                gap = (inside[j, base & ~higher] - here).nan_to_num(0.0, -math.inf, -math.inf)
                share = -torch.expm1(gap.clamp(max=0.0))
                share = torch.where(share > LEAST_SHARE, share, 0.0)
                weight = torch.cat([weight[: j + 1], weight[j + 1 :] * share])
            found[j, base | 1 << j] = top[absent] + weight.sum(0).log() + here
    return found


def _in_normal_form(rank: Tensor, parents: Tensor) -> Tensor:
    """Whether orders are the normal forms of their graphs.

    Every node has a parent that comes no earlier than the last node of a higher rank before it.

    Arguments:
        rank: Of the nodes in their order, (n, d).
        parents: Whether the node at a place, (n, d, .), has as a parent that at another, (., d).
    """
    place = torch.arange(1, rank.shape[1] + 1, device=rank.device)
    earlier = place[:, None] > place
    higher = (rank[:, None] > rank[:, :, None]) & earlier
    return ((higher * place).amax(2) <= (parents * place).amax(2)).all(1)
