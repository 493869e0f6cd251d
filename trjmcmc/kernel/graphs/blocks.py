"""The parents of some nodes anew, all together: Gibbs steps over blocks of nodes."""

from __future__ import annotations

import torch
from torch import Tensor

from ...rng import categorical
from ...space.paths import ancestors
from ...target.target import Target
from ..base import Info, Kernel, State, accept
from . import normal
from .local import LocalWeights
from .sums import ParentSums

SIZE = 9

ORDERS = 4

AWAY = 0.2  # weight of all other nodes together, beside the number of edges that a node may have


class BlockGibbs(Kernel):
    r"""New parents of a block of nodes, drawn together given those of all other nodes.

    A node that comes after the nodes S of the block may have as parents S and those other nodes of
    which no ancestors are in the rest of the block. With sums over such parents, orders of the
    block in normal form are drawn, then parents; if the order is not the normal form of what was
    drawn, and none of some others is, the graph stays as it is. How often that happens depends on
    the other nodes alone, so that nothing need be corrected.

    Blocks are nodes that may well be parents of each other.

    Arguments:
        target: A target over :class:`~trjmcmc.graphs.Dags` with local scores.
        size: Nodes of a block; fewer where there are fewer. Time grows as its square times 2^size.
        orders: Orders that are drawn for each chain.
        name: Shown in tables.

    Raises:
        ConfigurationError: Other targets.

    Source:
        Blocks of nodes: Goudie & Mukherjee (2016), http://jmlr.org/papers/v17/14-486.html; sums
        over orders: Koivisto & Sood (2004), http://jmlr.org/papers/v5/koivisto04a.html

    Example:
        >>> from trjmcmc import graphs
        >>> from trjmcmc.kernel import start
        >>> x = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
        >>> target = graphs.target(graphs.bge(x))
        >>> state = start(target, torch.zeros(4, 3, dtype=torch.long), torch.zeros(4, 0))
        >>> state, (info,) = BlockGibbs(target).step(state, torch.Generator().manual_seed(0))
        >>> bool(info.accepted.any())
        True
    """

    between = True

    def __init__(
        self, target: Target, *, size: int = SIZE, orders: int = ORDERS, name: str = "blocks"
    ) -> None:
        self._local = local = LocalWeights(target)
        self.target, self.name = target, name
        self.size, self.orders = min(size, local.d), orders
        self._near, self._parents = _nearness(local)

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        sums, code = ParentSums(self._local), state.code
        node = self._block(len(code), generator)
        new, kept = self._drawn(code, node, sums, generator)
        log_joint = self.target.log_joint(new, state.theta)
        proposed = State(new, state.theta, log_joint)
        log_ratio = torch.where(kept, 0.0, -torch.inf).double()
        return accept(self.name, state, proposed, log_ratio, generator)

    def _block(self, chains: int, generator: torch.Generator) -> Tensor:
        """Nodes of a block for each chain, (C, w): one, then neighbours of these, by rank."""
        device, d = self._near.device, self._local.d
        first = torch.randint(0, d, (chains,), generator=generator, device=device)
        found, near = [first], self._near[first]
        taken = torch.zeros(chains, d, dtype=torch.bool, device=device)
        taken.scatter_(1, first[:, None], True)
        for _ in range(self.size - 1):
            pick = categorical(near.log().masked_fill(taken, -torch.inf), generator)
            found.append(pick)
            taken.scatter_(1, pick[:, None], True)
            near = near + self._near[pick]
        node = torch.stack(found, 1)
        return node.gather(1, self._parents[node].argsort(dim=1, stable=True))

    def _drawn(
        self, code: Tensor, node: Tensor, sums: ParentSums, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Graphs with new parents of the nodes (C, w), and whether they are to be taken."""
        c, w = node.shape
        bit = 1 << torch.arange(code.shape[1], device=code.device)
        before = ancestors(code.scatter(1, node, 0)) | bit  # by way of other nodes alone
        # which of the block come before each node, itself among them, by rank
        inner = torch.zeros_like(before)
        for r in range(w):
            inner |= ((before >> node[:, r : r + 1]) & 1) << r
        allowed = _of_subsets(inner, bit.expand_as(code), w)
        columns = self._local.scores.place(node[:, :, None], bit)  # that each adds to a parent set
        column = _of_subsets(inner[:, None].expand_as(columns), columns, w)
        inside = sums.at(node[:, :, None], column).permute(1, 2, 0).contiguous()
        inside = inside.clamp_(min=normal.LEAST)
        row = torch.arange(c, device=code.device).repeat_interleave(self.orders)
        rank = normal.draw(normal.ways(inside), inside, row, generator)
        bit = 1 << rank
        before = bit.cumsum(1) - bit
        previous = torch.nn.functional.pad(rank[:, :-1], (1, 0), value=0)
        falls = previous > rank
        free, fewer = allowed[row], before & ~(1 << previous)
        free, others = free.gather(1, before), free.gather(1, fewer)
        at = node[row].gather(1, rank)
        among = torch.where(falls, free & ~others, 0)
        parents = sums.sample(at, free, generator, among)
        before = torch.zeros_like(parents)  # by an edge, or by a path that ends in one
        for i in range(code.shape[1]):
            before |= torch.where((parents >> i) & 1 == 1, inner[row, i][:, None], 0)
        kept = normal.is_normal(rank, (before[:, :, None] & bit[:, None]) != 0).view(c, -1)
        pick = row[:: self.orders] * self.orders + kept.long().argmax(1)
        return code.scatter(1, at[pick], parents[pick]), kept.any(1)


def _of_subsets(sets: Tensor, value: Tensor, w: int) -> Tensor:
    """Sums of values over those whose sets are inside each set, (..., d) -> (..., 2^w)."""
    found = value.new_zeros(*value.shape[:-1], 2**w).scatter_add_(-1, sets, value)
    for r in range(w):
        halves = found.view(*value.shape[:-1], -1, 2, 2**r)
        halves[..., 1, :] += halves[..., 0, :]
    return found


def _nearness(local: LocalWeights) -> tuple[Tensor, Tensor]:
    """Weights by which nodes share a block, (d, d), and parents that each might have, (d,).

    By the probabilities of parents if all other nodes were allowed; all have some weight.
    """
    every = torch.arange(local.d, device=local.masks.device)
    share = (local.scores.table + local.prior).softmax(1)
    member = ((local.masks[:, :, None] >> every) & 1).double()
    parents = torch.einsum("jk,jki->ji", share, member)
    near = parents + parents.T + AWAY / local.d
    return near.fill_diagonal_(0.0), parents.sum(1)
