"""Independent draws of graphs by orders of their nodes, of which each graph has one normal form."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...errors import ConfigurationError
from .local import LocalWeights
from .normal import LEAST, draw, is_normal, ways
from .sums import ParentSums

MOST_NODES = 20  # whose sums over orders, d 2^d, fit into memory

AT_ONCE = 2**14  # graphs that are proposed at once

SOUNDINGS = 2**10  # draws by which nodes are ranked

PILOTS = 2**12  # proposals by which the share of those that are kept is known


class OrderDraws:
    r"""Draws from all acyclic graphs in proportion to the product of their local weights.

    Orders are drawn in proportion to the graphs that they allow, as far as they may be the normal
    form of these (:mod:`trjmcmc.kernel.graphs.normal`), then parents; what is not in normal form is
    left out, so that every graph counts once. Of fifteen nodes of linear networks with two edges a
    node half or more are kept, of twenty one in ten to two hundred.

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
        self._inside = self._sums_inside()
        code, _ = self._drawn(ways(self._inside, normal=False), SOUNDINGS, generator, False)
        number = ((code[..., None] >> self._node) & 1).sum((0, 2))
        self._node = number.argsort(stable=True)
        self._inside = self._sums_inside()
        self._ways = ways(self._inside)
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
        return self._drawn(self._ways, n, generator, True)

    def _sums_inside(self) -> Tensor:
        """Log sums over the parent sets of each node inside each set, (d, 2^d, 1), by rank."""
        bit = 1 << self._node
        place = torch.zeros_like(bit)[:, None]
        for each in bit:  # what a node in a set adds to columns of the table
            more = self._local.scores.place(self._node, each)[:, None]
            place = torch.cat([place, place + more], 1)
        return self._sums.at(self._node[:, None], place)[..., None].clamp(min=LEAST)

    def _drawn(
        self, weight: Tensor, n: int, generator: torch.Generator, normal: bool
    ) -> tuple[Tensor, Tensor]:
        """Orders by the sums over them, then parents: as of :meth:`propose`."""
        row = torch.zeros(n, dtype=torch.long, device=self._node.device)
        rank = draw(weight, self._inside, row, generator, normal=normal)
        node = self._node[rank]
        bit = 1 << node
        before = bit.cumsum(1) - bit
        previous = torch.nn.functional.pad(rank[:, :-1], (1, 0), value=-1)
        among = torch.where(previous > rank, 1 << self._node[previous], 0)
        parents = self._sums.sample(node, before, generator, among if normal else None)
        code = torch.empty_like(parents).scatter_(1, node, parents)
        return code, is_normal(rank, (parents[:, :, None] & bit[:, None]) != 0)
