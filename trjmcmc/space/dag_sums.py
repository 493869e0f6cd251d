r"""Sums over all acyclic graphs of products of local weights, and draws by them.

A table holds log weights of parent sets, shape (d, 2^d): of node j with the parents in the bits
of P; -inf where P holds j. The weight of a graph is the product over its nodes. All is float64
and in logs, for local weights may differ by thousands of nats.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

CELLS = 2**22  # numbers that a block of a sum may hold at once


class Sums(NamedTuple):
    """What graphs weigh together.

    Attributes:
        log_total: Log of the sum over all acyclic graphs.
        edges: Share of the weight of graphs with the edge from i to j, shape (d, d).
        families: Log share of the weight of graphs in which node j has the parents P, (d, 2^d);
            None unless it was asked for.
    """

    log_total: float
    edges: Tensor
    families: Tensor | None


def sizes(d: int, device: torch.device) -> Tensor:
    """Number of nodes in each set, shape (2^d,)."""
    sets = torch.arange(2**d, device=device)
    return sum((sets >> i) & 1 for i in range(d)) + 0 * sets


def below(table: Tensor) -> Tensor:
    """Log sums over the parent sets inside each set, (d, 2^d) -> (d, 2^d)."""
    found = table.clone()
    for i in range(table.shape[0]):
        halves = found.view(table.shape[0], -1, 2, 2**i)
        halves[:, :, 1] = torch.logaddexp(halves[:, :, 1], halves[:, :, 0])
    return found


def graph_sums(table: Tensor, *, families: bool = False) -> Sums:
    r"""Sum over all acyclic graphs, and shares of edges and of parent sets.

    With :math:`F_j(B)` the sum over the parent sets of j inside B, what graphs on a set weigh is

    .. math:: R(S) = \sum_{\emptyset \ne T \subseteq S} (-1)^{|T| + 1} R(S \setminus T)
        \prod_{j \in T} F_j(S \setminus T),

    where T are nodes without children; likewise from the other end. No term exceeds the sum, so
    that signs cost no precision. Time and memory grow as 3^d: .1 s for eleven nodes.

    Arguments:
        table: Log weights of parent sets, shape (d, 2^d).
        families: Whether shares of parent sets are wanted.

    Source:
        Robinson (1973); Tian & He (2009), https://arxiv.org/abs/1205.2612

    Example:
        >>> free = torch.zeros(3, 8).double()
        >>> own = (torch.arange(8) >> torch.arange(3)[:, None]) & 1 == 1
        >>> sums = graph_sums(free.masked_fill(own, -math.inf))
        >>> round(math.exp(sums.log_total)), sums.edges[0, 1]  # 25 graphs, of which 8 have it
        (25, tensor(0.3200, dtype=torch.float64))
    """
    d, device = len(table), table.device
    table = table.double()
    inside = below(table)
    of_size = sizes(d, device)
    sets_of = [(of_size == m).nonzero()[:, 0] for m in range(d + 1)]
    nothing = torch.full((2**d,), -math.inf, dtype=torch.float64, device=device)
    # from the first nodes on: the largest term of each sum so far, and the sum in units of it
    top, value, first = nothing.clone(), torch.zeros_like(nothing), nothing.clone()
    first[0] = 0.0
    for m in range(d):
        if m:
            first[sets_of[m]] = top[sets_of[m]] + value[sets_of[m]].log()
        for base in sets_of[m].split(max(1, CELLS >> (d - m))):
            block = _block(base, inside)
            term = (block.log_product + first[base][:, None])[:, 1:].flatten()
            there = (base[:, None] | block.added)[:, 1:].flatten()
            higher = top.scatter_reduce(0, there, term, "amax")
            value *= torch.where(top > -math.inf, (top - higher).exp(), 0.0)
            term = (term - higher[there]).nan_to_num(-math.inf).exp()
            value.index_add_(0, there, term * block.sign[1:].repeat(len(base)))
            top = higher
    if d:
        first[-1] = top[-1] + value[-1].log()
    # from the last nodes back, and what both say together
    last = nothing.clone()
    last[-1] = 0.0
    edges = torch.zeros(d, d, dtype=torch.float64, device=device)
    weight = torch.full_like(table, -math.inf) if families else None
    node = torch.arange(d, device=device)
    for m in range(d - 1, -1, -1):
        for base in sets_of[m].split(max(1, CELLS >> (d - m))):
            block = _block(base, inside)
            after = last[base[:, None] | block.added]
            after[:, 0] = -math.inf  # nothing added
            term = block.log_product + after
            highest = term.amax(1).clamp(min=-1e300)
            term = (term - highest[:, None]).exp() * block.sign
            last[base] = highest + term.sum(1).clamp(min=0).log()
            scale = first[base] + highest - first[-1]
            for i in range(d - m):
                with_it = term.view(len(base), -1, 2, 2**i)[:, :, 1].sum((1, 2)).clamp(min=0)
                j = block.absent[:, i]
                log_share = with_it.log() + scale  # of graphs in which j comes right after base
                here, fewer = inside[j, base], base[:, None] & ~(1 << node)
                lost = (inside[j[:, None], fewer] - here[:, None]).nan_to_num(0.0).clamp(max=0)
                edges.index_add_(1, j, (log_share.exp()[:, None] * -torch.expm1(lost)).T)
                if weight is not None:
                    weight[j, base] = (log_share - here).nan_to_num(-math.inf)
    shares = None if weight is None else table + _above(weight)
    return Sums(float(first[-1]), edges, shares)


class _Block(NamedTuple):
    """Sets T that may be added to each of n sets of m nodes, (n, 2^(d - m)) of them.

    Attributes:
        absent: Nodes that each set lacks, (n, d - m).
        added: T.
        log_product: Log of the product over T of the sums over the parent sets inside the base.
        sign: (-1)^(|T| + 1), shape (2^(d - m),).
    """

    absent: Tensor
    added: Tensor
    log_product: Tensor
    sign: Tensor


def _block(base: Tensor, inside: Tensor) -> _Block:
    d = len(inside)
    lacks = ((base[:, None] >> torch.arange(d, device=base.device)) & 1) == 0
    absent = lacks.nonzero()[:, 1].view(len(base), -1)
    added, log_product = torch.zeros_like(base)[:, None], torch.zeros_like(inside[0, base])[:, None]
    sign = -torch.ones(1, dtype=torch.float64, device=base.device)
    for j in absent.unbind(1):
        added = torch.cat([added, added | (1 << j)[:, None]], 1)
        log_product = torch.cat([log_product, log_product + inside[j, base][:, None]], 1)
        sign = torch.cat([sign, -sign])
    return _Block(absent, added, log_product, sign)


def _above(weight: Tensor) -> Tensor:
    """Log sums over the sets that hold each set, (d, 2^d) -> (d, 2^d)."""
    found = weight.clone()
    for i in range(len(weight)):
        halves = found.view(len(weight), -1, 2, 2**i)
        halves[:, :, 0] = torch.logaddexp(halves[:, :, 0], halves[:, :, 1])
    return found


def order_sums(table: Tensor) -> Sums:
    """Sums over all orders of the nodes and the acyclic graphs that fit each.

    A graph counts once for each order of the nodes in which parents come first.

    Arguments:
        table: Log weights of parent sets, shape (d, 2^d).

    Source:
        Koivisto & Sood (2004), http://jmlr.org/papers/v5/koivisto04a.html

    Example:
        >>> own = (torch.arange(4) >> torch.arange(2)[:, None]) & 1 == 1
        >>> sums = order_sums(torch.zeros(2, 4).double().masked_fill(own, -math.inf))
        >>> round(math.exp(sums.log_total)), sums.edges[0, 1]  # the empty graph has two orders
        (4, tensor(0.2500, dtype=torch.float64))
    """
    d, device = len(table), table.device
    inside = below(table.double())
    of_size = sizes(d, device)
    node = torch.arange(d, device=device)
    before = torch.full((2**d,), -math.inf, dtype=torch.float64, device=device)
    after = before.clone()
    before[0], after[-1] = 0.0, 0.0
    for m in range(1, d + 1):
        sets = (of_size == m).nonzero()[:, 0]
        fewer = sets[:, None] & ~(1 << node)
        each = before[fewer] + inside[node, fewer]
        before[sets] = each.masked_fill(fewer == sets[:, None], -math.inf).logsumexp(1)
    edges = torch.zeros(d, d, dtype=torch.float64, device=device)
    for m in range(d - 1, -1, -1):
        sets = (of_size == m).nonzero()[:, 0]
        more = sets[:, None] | (1 << node)
        placed = more == sets[:, None]
        each = (after[more] + inside[node, sets[:, None]]).masked_fill(placed, -math.inf)
        after[sets] = each.logsumexp(1)
        mass = (each + before[sets][:, None] - before[-1]).exp()  # that j comes next, (n, d)
        fewer = sets[:, None] & ~(1 << node)  # without i
        lost = inside[:, fewer] - inside[:, sets][..., None]  # (j, n, i)
        share = -torch.expm1(lost.nan_to_num(0.0).clamp(max=0))
        edges += torch.einsum("nj,jni->ij", mass, share)
    return Sums(float(before[-1]), edges, None)
