r"""Orders of nodes in normal form, of which each acyclic graph has one: sums over them, and draws.

The normal form of a graph takes, time after time, the first of the nodes whose parents have all
been taken. In it a node after one of a higher rank is a child of that one. Orders with this
property are summed over and drawn; those that are not the normal form of their graph are few and
are found out afterwards.

Nodes go by ranks 0 .. w - 1, sets of them by masks; sums are of n problems at once.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from ...rng import categorical
from ...space.dag_sums import sizes

LEAST = -1e300  # in place of -inf, of which differences are no numbers


def ways(inside: Tensor, *, normal: bool = True) -> Tensor:
    r"""Log sums over the orders of each set with each of its nodes last, (w, 2^w, n).

    .. math:: A(S \cup \{j\}, j) = \sum_{l \in S} A(S, l)
        \begin{cases} F_j(S) & l < j \\ F_j(S) - F_j(S \setminus \{l\}) & l > j. \end{cases}

    Arguments:
        inside: Log of F_j(S), sums over what parents node j may have after the nodes in S, shape
            (w, 2^w, n), no less than ``LEAST``.
        normal: Whether a node after one of a higher rank is to be a child of that one; else the
            second case is as the first.
    """
    w = len(inside)
    found = torch.full_like(inside, LEAST)
    for j in range(w):
        found[j, 1 << j] = inside[j, 0]
    for m in range(1, w):
        sets, without = _sets(w, m, inside.device)
        each = found[:, sets]
        top = each.amax(0)
        each = each.sub_(top).exp_()
        for j in range(w):
            absent = without[j]
            base, weight = sets[absent], each[:, absent]
            here = inside[j, base]
            if normal and j + 1 < w:
                higher = 1 << torch.arange(j + 1, w, device=base.device)[:, None]
                weight[j + 1 :] *= share(inside[j, base & ~higher], here)
            found[j, base | 1 << j] = top[absent] + weight.sum(0).log_() + here
    return found.clamp_(min=LEAST)


@lru_cache(maxsize=256)
def _sets(w: int, m: int, device: torch.device) -> tuple[Tensor, list[Tensor]]:
    """Sets of m of w nodes, and for each node which of them are without it."""
    sets = (sizes(w, torch.device("cpu")) == m).nonzero()[:, 0]
    without = [((sets >> j) & 1 == 0).nonzero()[:, 0] for j in range(w)]
    return sets.to(device), [rows.to(device) for rows in without]


def share(fewer: Tensor, every: Tensor) -> Tensor:
    """Which share of sums is missing from others that are part of them, logs both.

    To 1e-16 of the sums: what is less than that is no matter.
    """
    return 1 - (fewer - every).clamp_(max=0.0).exp_()


def draw(
    ways: Tensor, inside: Tensor, row: Tensor, generator: torch.Generator, *, normal: bool = True
) -> Tensor:
    """Orders in proportion to what they weigh, ranks (r, w), first nodes first.

    Arguments:
        ways: What :func:`ways` says of ``inside``.
        inside: Its argument.
        row: The problem of each order, (r,).
        generator: Source of randomness.
        normal: As of :func:`ways`.
    """
    w = len(ways)
    every = torch.arange(w, device=row.device)
    sets = torch.full_like(row, 2**w - 1)
    last = categorical(ways[:, sets, row].T, generator)
    order = [last]
    for _ in range(w - 1):
        sets = sets & ~(1 << last)
        weight = ways[:, sets, row].T
        if normal:
            fewer = inside[last[:, None], sets[:, None] & ~(1 << every), row[:, None]]
            some = share(fewer, inside[last, sets, row][:, None])
            weight = weight + torch.where(every > last[:, None], some.log(), 0.0)
        last = categorical(weight, generator)
        order.append(last)
    return torch.stack(order[::-1], 1)


def is_normal(rank: Tensor, parents: Tensor) -> Tensor:
    """Whether orders are the normal forms of their graphs, (r,).

    In a normal form every node has a parent that comes no earlier than the last node of a higher
    rank before it.

    Arguments:
        rank: Of the nodes in their order, (r, w).
        parents: Whether the node at a place has as a parent that at another, (r, w, w).

    Example:
        >>> rank, edge = torch.tensor([[1, 0]]), torch.tensor([[[0, 0], [1, 0]]]).bool()
        >>> bool(is_normal(rank, edge)), bool(is_normal(rank, edge & False))
        (True, False)
    """
    place = torch.arange(1, rank.shape[1] + 1, device=rank.device)
    higher = (rank[:, None] > rank[:, :, None]) & (place[:, None] > place)
    return ((higher * place).amax(2) <= (parents * place).amax(2)).all(1)
