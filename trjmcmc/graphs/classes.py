"""Markov equivalence classes of acyclic graphs: which edges have a direction in all of a class."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..space.paths import adjacency, ancestors


def completed(masks: Tensor) -> Tensor:
    """The completed partially directed graphs (CPDAG) of acyclic graphs.

    Arguments:
        masks: Parent masks, shape (C, d).

    Returns:
        Shape (C, d, d), bool: True from i to j where some graph of the class has that edge; both
        ways where the class has both.

    Source:
        Verma & Pearl (1990), https://arxiv.org/abs/1304.1108; which edges are compelled:
        Chickering (1995), https://arxiv.org/abs/1302.4938

    Example:
        >>> chain, collider = torch.tensor([[0, 1, 2], [0, 5, 0]])  # 0 -> 1 -> 2, 0 -> 1 <- 2
        >>> completed(chain[None])[0].int().tolist()
        [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
        >>> completed(collider[None])[0].int().tolist()
        [[0, 1, 0], [0, 0, 0], [0, 1, 0]]
    """
    d, c = masks.shape[1], torch.arange(len(masks), device=masks.device)
    edges = adjacency(masks)
    compelled = torch.zeros_like(edges)
    node = adjacency(ancestors(masks)).sum(1).argsort(dim=1, stable=True)  # parents first
    last = torch.where(edges, node.argsort(dim=1)[:, :, None], -1).max(1).indices
    for at in range(d):
        y = node[:, at]
        x, parents = last[c, y], edges[c, :, y]  # the last parent, and all
        others = parents & ~edges[c, :, x]
        others[c, x] = False  # parents that are apart meet
        above = compelled[c, :, x] & parents.any(1)[:, None]
        every = others.any(1) | (above & ~parents).any(1)
        compelled[c, :, y] = parents & (above | every[:, None])
    return edges | (edges & ~compelled).transpose(1, 2)


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
