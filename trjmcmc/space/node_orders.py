"""Orders of the nodes of acyclic graphs: codes of them, and random ones that fit a graph."""

from __future__ import annotations

import torch
from torch import Tensor

from .paths import adjacency


def order_of_lehmer(lehmer: Tensor) -> Tensor:
    """Orders (C, d) from Lehmer codes (C, d - 1): which of the nodes left comes next.

    Source:
        Davies et al., "Variational transdimensional inference", appendix G.6

    Example:
        >>> order_of_lehmer(torch.tensor([[2, 1]])).tolist()
        [[2, 1, 0]]
    """
    d = lehmer.shape[1] + 1
    left = torch.ones(len(lehmer), d, dtype=torch.bool, device=lehmer.device)
    found = lehmer.new_zeros(len(lehmer), d)
    for t in range(d):
        k = lehmer[:, t] if t < d - 1 else lehmer.new_zeros(len(lehmer))
        node = (left & (left.cumsum(1) == k[:, None] + 1)).long().argmax(1)
        found[:, t] = node
        left = left.scatter(1, node[:, None], False)
    return found


def lehmer_of_order(order: Tensor) -> Tensor:
    """The Lehmer code of orders, (C, d) -> (C, d - 1): how many later nodes have smaller numbers.

    Example:
        >>> lehmer_of_order(torch.tensor([[2, 1, 0]])).tolist()
        [[2, 1]]
    """
    d = order.shape[1]
    smaller = order[:, None, :] < order[:, :, None]  # (C, t, later)
    return smaller.triu(1).sum(2)[:, : max(0, d - 1)]


def upper_pairs(d: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Pairs of places s < t in the order in which triangles are coded, (d (d - 1) / 2,) each."""
    s, t = torch.triu_indices(d, d, 1, device=device)
    return s, t


def masks_of_triangle(order: Tensor, bits: Tensor) -> Tensor:
    """Parent masks (C, d) of graphs by an order and a bit for each pair of places.

    Example:
        >>> masks_of_triangle(torch.tensor([[1, 0]]), torch.tensor([[1]])).tolist()  # 1 -> 0
        [[2, 0]]
    """
    d = order.shape[1]
    s, t = upper_pairs(d, order.device)
    by_place = order.new_zeros(order.shape)
    by_place.index_add_(1, t, bits << order[:, s])
    return by_place.new_zeros(order.shape).scatter(1, order, by_place)


def triangle_of(order: Tensor, masks: Tensor) -> Tensor:
    """The bits of graphs whose parents come first in an order, (C, d (d - 1) / 2)."""
    s, t = upper_pairs(order.shape[1], order.device)
    return (masks.gather(1, order[:, t]) >> order[:, s]) & 1


def log_order(masks: Tensor, order: Tensor) -> Tensor:
    r"""Log probability of an order given a graph, as :func:`random_order` draws it, (C,), nats.

    .. math:: r(\pi | G) = \prod_t 1 / n_t

    where n_t nodes have all their parents among the first t - 1; -inf where parents come later.
    """
    edges = adjacency(masks)
    place = order.argsort(1)
    wrong = edges & (place[:, :, None] > place[:, None])
    # after t nodes, one may come next whose last parent stands at t or before, and that is not out
    last = torch.where(edges, place[:, :, None] + 1, 0).amax(1)
    step = torch.arange(order.shape[1], device=order.device)
    may = (last[:, None] <= step[:, None]) & (place[:, None] >= step[:, None])
    found = -may.sum(2).clamp(min=1).double().log().sum(1)
    return torch.where(wrong.flatten(1).any(1), -torch.inf, found)


def random_order(masks: Tensor, generator: torch.Generator) -> Tensor:
    """An order in which parents come first: time and again one of the nodes that may come next.

    Arguments:
        masks: Parent masks of acyclic graphs, shape (C, d).
        generator: Source of randomness.

    Returns:
        Nodes by place, shape (C, d).

    Example:
        >>> chain = torch.tensor([[2, 4, 0]])  # 2 -> 1 -> 0
        >>> random_order(chain, torch.Generator()).tolist()
        [[2, 1, 0]]
    """
    c, d = masks.shape
    device = masks.device
    node = torch.arange(d, device=device)
    done = torch.zeros(c, dtype=torch.long, device=device)
    found = torch.zeros_like(masks)
    for t in range(d):
        out = ((done[:, None] >> node) & 1) == 1
        ready = ((masks & ~done[:, None]) == 0) & ~out
        noise = torch.rand(c, d, generator=generator, device=device)
        found[:, t] = torch.where(ready, noise, -1.0).argmax(1)
        done = done | (1 << found[:, t])
    return found
