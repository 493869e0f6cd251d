"""Graphs as random functions of embeddings of their nodes, and gradients by their log odds.

Matrices of many graphs stand as (parent, particle, sample, child), so that one product serves all.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .relaxed import Workspace, by_parent, over_samples


def draw_graphs(
    logits: Tensor, samples: int, generator: torch.Generator, room: Workspace
) -> Tensor:
    """Log odds with logistic noise: edges are independent, and there where it is positive.

    Arguments:
        logits: Log odds of each edge, (M, d, d), -inf where none may be.
        samples: S graphs of each, in antithetic pairs.
        generator: Source of randomness.
        room: Where they are written.

    Returns:
        Shape (d, M, S, d).
    """
    m, d, _ = logits.shape
    half = samples - samples // 2
    mean = by_parent(logits)
    noise = room("noise", mean.expand(d, m, half, d))
    torch.rand(noise.shape, generator=generator, out=noise)
    noise.logit_(torch.finfo(noise.dtype).eps)
    field = room("field", mean.expand(d, m, samples, d))
    torch.add(mean, noise, out=field[:, :, :half])
    torch.sub(mean, noise[:, :, : samples - half], out=field[:, :, half:])
    return field


def hard_edges(field: Tensor, room: Workspace) -> Tensor:
    """Edges, 0 or 1, by log odds with noise, (d, M, S, d)."""
    return torch.gt(field, 0.0, out=room("hard", field))


def soft_edges(field: Tensor, room: Workspace) -> Tensor:
    """Edges by degrees, (d, M, S, d): the Gumbel-softmax relaxation."""
    return torch.sigmoid(field, out=room("soft", field))


def cyclicity(edges: Tensor) -> tuple[Tensor, Tensor]:
    r"""How far matrices, (..., d, d), are from acyclic ones, and its gradient by them.

    .. math:: h(G) = \mathrm{tr}\,(I + G / d)^d - d

    Zero where there is no cycle.

    Source:
        Yu et al. (2019), https://arxiv.org/abs/1904.10098

    Example:
        >>> value, _ = cyclicity(torch.tensor([[[0.0, 1.0], [0.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]]))
        >>> value.tolist()
        [0.0, 0.5]
    """
    d = edges.shape[-1]
    base = torch.eye(d, dtype=edges.dtype, device=edges.device) + edges / d
    power = torch.linalg.matrix_power(base, d - 1)
    value = (power * base.transpose(-1, -2)).sum((-1, -2)) - d
    return value, power.transpose(-1, -2)


def score_gradient(logits: Tensor, edges: Tensor, value: Tensor) -> Tensor:
    r"""Gradient of log E[f(G)] by the log odds of edges, by the score function, (M, d, d).

    .. math:: \sum_s w_s (G_s - p), \qquad w = \mathrm{softmax}\, \ln f(G_s)

    Arguments:
        logits: Log odds, (M, d, d).
        edges: Graphs drawn by them, (d, M, S, d).
        value: Log f of each, (M, S).

    Source:
        Lorch et al. (2021), https://arxiv.org/abs/2105.11839, eq. 14 and appendix B.2
    """
    share = value.softmax(1).to(edges)
    return over_samples(edges, share).transpose(0, 1) - torch.sigmoid(logits)


def relaxed_gradient(soft: Tensor, value: Tensor, slope: Tensor) -> Tensor:
    """The same by graphs by degrees (Gumbel-softmax), with some bias, (M, d, d).

    Arguments:
        soft: The graphs, (d, M, S, d).
        value: Log f of each, (M, S).
        slope: Its gradient by the edges, (d, M, S, d); written over.

    Source:
        Lorch et al. (2021), https://arxiv.org/abs/2105.11839, eq. 12 and appendix B.1
    """
    change = slope.mul_(soft).mul_(1 - soft)
    return over_samples(change, value.softmax(1)).transpose(0, 1)


def cyclicity_gradient(soft: Tensor) -> Tensor:
    """Gradient of E[h(G)] by the log odds of edges, by graphs by degrees, (M, d, d)."""
    _, slope = cyclicity(soft.permute(1, 2, 0, 3))
    by_sample = slope.permute(2, 0, 1, 3) * soft * (1 - soft)
    return by_sample.mean(2).transpose(0, 1)
