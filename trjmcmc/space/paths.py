"""Directed graphs as parent masks: adjacency, paths and cycles, of many at once.

A graph on d nodes is a row of d integers: bit i of entry j says that node i is a parent of j.
``A[c, i, j]`` is True where graph c has the edge from i to j.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..grouping import on_host

MOST_NODES = 63  # bits of a mask that keep its sign


def adjacency(masks: Tensor) -> Tensor:
    """Parent masks (C, d) as matrices (C, d, d), bool.

    Example:
        >>> adjacency(torch.tensor([[0, 1]])).int().tolist()  # 0 is a parent of 1
        [[[0, 1], [0, 0]]]
    """
    bit = torch.arange(masks.shape[-1], device=masks.device)
    return ((masks[..., None, :] >> bit[:, None]) & 1).bool()


def masks_of(edges: Tensor) -> Tensor:
    """Matrices (C, d, d), bool, as parent masks (C, d)."""
    bit = torch.arange(edges.shape[-1], device=edges.device)
    return (edges.long() << bit[:, None]).sum(-2)


def reaches(edges: Tensor) -> Tensor:
    """Which nodes each can come to along edges, itself among them, (C, d, d) -> (C, d, d), bool.

    Example:
        >>> chain = torch.tensor([[[0, 1, 0], [0, 0, 1], [0, 0, 0]]]).bool()
        >>> reaches(chain).int().tolist()
        [[[1, 1, 1], [0, 1, 1], [0, 0, 1]]]
    """
    d = edges.shape[-1]
    found = (edges | torch.eye(d, dtype=torch.bool, device=edges.device)).float()
    for _ in range(max(1, math.ceil(math.log2(max(2, d - 1))))):  # paths of up to d - 1 edges
        found = (found @ found > 0).float()
    return found > 0


def below(masks: Tensor, start: Tensor) -> Tensor:
    """Nodes that start from some nodes along edges, these among them.

    Arguments:
        masks: Parent masks, shape (C, d).
        start: Masks of nodes, shape (C,).

    Example:
        >>> below(torch.tensor([[0, 1, 2, 0]]), torch.tensor([2])).tolist()  # of 0 -> 1 -> 2, 3
        [6]
    """
    node = torch.arange(masks.shape[1], device=masks.device)
    for _ in range(masks.shape[1]):  # at most, and on a device, which is not asked
        more = start | (((masks & start[:, None]) != 0).long() << node).sum(1)
        if on_host(start) and bool((more == start).all()):
            return start
        start = more
    return start


def ancestors(masks: Tensor) -> Tensor:
    """Nodes from which paths lead to each, as masks, (C, d) -> (C, d).

    Source:
        Warshall (1962), https://doi.org/10.1145/321105.321107

    Example:
        >>> ancestors(torch.tensor([[0, 1, 2]])).tolist()  # 0 -> 1 -> 2
        [[0, 1, 3]]
    """
    found = masks.clone()
    for k in range(masks.shape[-1]):
        found |= torch.where((found >> k) & 1 > 0, found[..., k, None], 0)
    return found


def acyclic(masks: Tensor) -> Tensor:
    """Whether graphs, parent masks (C, d), have no directed cycle, (C,) bool."""
    edges = adjacency(masks)
    back = reaches(edges).transpose(-1, -2)
    return ~(edges & back).flatten(-2).any(-1)


def changes(edges: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs of nodes at which an acyclic graph stays so, (C, d, d) bool each.

    Arguments:
        edges: Matrices of graphs without cycles, shape (C, d, d), bool.
        reach: What :func:`reaches` says of them.

    Returns:
        Where an edge from i to j may be added or is there to be deleted; where the edge from i
        to j may be turned around, which it may if it is the only path from i to j.
    """
    flip = edges | ~(edges | reach.transpose(-1, -2))
    detours = edges.float() @ reach.float()  # children of i that come to j, j among them
    return flip, edges & (detours < 1.5)


def order_of(edges: Tensor) -> Tensor:
    """Nodes of acyclic graphs so that parents come first, (C, d, d) -> (C, d)."""
    return reaches(edges).sum(-2).argsort(dim=-1, stable=True)
