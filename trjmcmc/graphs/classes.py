"""Markov equivalence classes of acyclic graphs: which edges have a direction in all of a class."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..space.paths import adjacency


def completed(masks: Tensor) -> Tensor:
    """The completed partially directed graphs (CPDAG) of acyclic graphs.

    Arguments:
        masks: Parent masks, shape (C, d).

    Returns:
        Shape (C, d, d), bool: True from i to j where some graph of the class has that edge; both
        ways where the class has both.

    Source:
        Verma & Pearl (1990), https://arxiv.org/abs/1304.1108; Meek (1995),
        https://arxiv.org/abs/1302.4972

    Example:
        >>> chain, collider = torch.tensor([[0, 1, 2], [0, 5, 0]])  # 0 -> 1 -> 2, 0 -> 1 <- 2
        >>> completed(chain[None])[0].int().tolist()
        [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
        >>> completed(collider[None])[0].int().tolist()
        [[0, 1, 0], [0, 0, 0], [0, 1, 0]]
    """
    edges = adjacency(masks)
    d = edges.shape[1]
    near = edges | edges.transpose(1, 2)
    apart = ~near & ~torch.eye(d, dtype=torch.bool, device=edges.device)
    # an edge is directed where it meets another at a child whose parents are apart
    directed = edges & _any(apart, edges)
    while True:
        free = near & ~directed & ~directed.transpose(1, 2)
        # else it would make such a meeting, or close a cycle
        forced = _any(directed.transpose(1, 2), apart).transpose(1, 2)
        away = free & forced.transpose(1, 2)
        around = free & _any(directed, directed)
        half = free[:, :, :, None] & directed[:, None]  # i - j -> l, by (i, j, l)
        meets = torch.einsum("cijl,cjk,cikl->cil", half.float(), apart.float(), half.float()) > 0
        new = away | around | (free & meets)
        new &= edges  # the graph itself is one of its class
        if not bool((new & ~directed).any()):
            return directed | free
        directed = directed | new


def _any(a: Tensor, b: Tensor) -> Tensor:
    """Whether some k has a from i to k and b from k to j, (C, d, d)."""
    return a.float() @ b.float() > 0


def labels(graphs: Tensor, names: Sequence[str]) -> list[str]:
    """Names of partially directed graphs (C, d, d): "a -> b, b - c"."""
    found = []
    for graph in graphs.tolist():
        parts = []
        for i in range(len(names)):
            for j in range(len(names)):
                if graph[i][j] and not graph[j][i]:
                    parts.append(f"{names[i]}->{names[j]}")
                elif graph[i][j] and i < j:
                    parts.append(f"{names[i]}-{names[j]}")
        found.append(", ".join(parts) or "(empty)")
    return found
