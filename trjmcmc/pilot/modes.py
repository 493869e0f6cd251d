"""Separate modes among posterior draws, and a map that leads from one to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
import torch
from torch import Tensor

from ..space.base import Space
from ..target.resolution import resolved
from ..transport.mixture import MixtureOfMaps
from ..transport.parts import Gaussians

NEIGHBOURS = 10  # nearest draws that a draw is joined to

NEIGHBOURS_IN_A_LINE = 20  # the same in one dimension, where gaps come by chance

SMALLEST_MODE = 0.01  # share of the draws from which a group of them is a mode


@dataclass(frozen=True)
class Modes:
    """The modes of one model.

    Attributes:
        share: Share of the draws in each, shape (K,), descending.
        loc: Means, shape (K, D).
        scale_tril: Lower factors of the covariances, shape (K, D, D); the identity in spare
            slots.
    """

    share: Tensor
    loc: Tensor
    scale_tril: Tensor

    def __len__(self) -> int:
        return len(self.share)


def find_modes(theta: Tensor, active: Tensor) -> Modes:
    """Groups of draws that no nearest neighbour connects.

    Draws are joined to their nearest neighbours in standardised coordinates; modes are the
    connected parts. A gap much wider than the spacing of the draws parts two modes, a bent or
    skewed one stays whole.

    Arguments:
        theta: Independent posterior draws of one model, shape (n, D).
        active: Coordinates that the model uses, shape (D,), bool.

    Source:
        Maier, Hein & von Luxburg (2009), https://doi.org/10.1016/j.tcs.2009.01.009

    Example:
        >>> g = torch.Generator().manual_seed(0)
        >>> theta = torch.randn(400, 2, generator=g)
        >>> theta[:100, 0] += 20
        >>> find_modes(theta, torch.tensor([True, True])).share
        tensor([0.7500, 0.2500])
    """
    d = theta.shape[1]
    used = active.nonzero()[:, 0]
    if not len(used):
        one = torch.eye(d, dtype=theta.dtype, device=theta.device)[None]
        return Modes(theta.new_ones(1), theta.new_zeros(1, d), one)
    points, counts = theta[:, used].unique(dim=0, return_counts=True)
    x = points.double().cpu().numpy()
    label = _groups(x / (x.std(0) + 1e-300))
    share = np.bincount(label, weights=counts.cpu().numpy()) / len(theta)
    ranked = np.argsort(-share, kind="stable")
    order = [g for i, g in enumerate(ranked) if not i or share[g] >= SMALLEST_MODE]
    loc = theta.new_zeros(len(order), d)
    tril = torch.eye(d, dtype=theta.dtype, device=theta.device).repeat(len(order), 1, 1)
    for k, g in enumerate(order):
        mine = torch.as_tensor(label == g, device=theta.device)
        inside = points[mine].repeat_interleave(counts[mine], 0).double()
        mean = inside.mean(0)
        factor = resolved(mean, _factor(inside), theta.dtype)
        loc[k, used] = mean.to(theta.dtype)
        tril[k, used[:, None], used] = factor.to(theta.dtype)
    found = torch.as_tensor(share[order] / share[order].sum(), dtype=theta.dtype)
    return Modes(found.to(theta.device), loc, tril)


def mode_map(space: Space, modes: Sequence[Modes]) -> MixtureOfMaps:
    """One affine map a mode; a move through it that changes the choice crosses between modes.

    Arguments:
        space: A bound space of few models.
        modes: The modes of each, in the order of ``space.enumerate()``.

    Returns:
        A mixture with a component a mode, all equally probable.
    """
    k, d = max(len(m) for m in modes), space.n_slots
    like = modes[0].loc
    loc = like.new_zeros(len(modes), k, d)
    tril = torch.eye(d, dtype=like.dtype, device=like.device).repeat(len(modes), k, 1, 1)
    log_weights = like.new_full((len(modes), k), -torch.inf)
    for m, found in enumerate(modes):
        n = len(found)
        loc[m, :n], tril[m, :n] = found.loc, found.scale_tril
        # equal weights: the move to a small mode is as probable as the move back
        log_weights[m, :n] = 0.0
    return MixtureOfMaps(Gaussians(space, loc, tril), log_weights=log_weights, sticky=False)


def _groups(x: np.ndarray) -> np.ndarray:
    """Connected parts of the nearest-neighbour graph, one label a point."""
    n = len(x)
    k = min(NEIGHBOURS_IN_A_LINE if x.shape[1] == 1 else NEIGHBOURS, n - 1)
    if k < 1:
        return np.zeros(n, dtype=int)
    _, index = scipy.spatial.cKDTree(x).query(x, k + 1)
    rows = np.repeat(np.arange(n), k)
    graph = scipy.sparse.csr_matrix((np.ones(n * k), (rows, index[:, 1:].ravel())), shape=(n, n))
    label: np.ndarray = scipy.sparse.csgraph.connected_components(graph, directed=False)[1]
    return label


def _factor(x: Tensor) -> Tensor:
    """Cholesky factor of the covariance of draws, kept away from singular."""
    centred = x - x.mean(0)
    covariance = centred.T @ centred / max(len(x) - 1, 1)
    scale = covariance.diagonal().clamp(min=1e-12).sqrt()
    eye = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    correlation = covariance / scale[:, None] / scale + 1e-3 * eye
    return scale[:, None] * torch.linalg.cholesky(correlation)
