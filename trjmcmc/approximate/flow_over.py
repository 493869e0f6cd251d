"""A flow over normals, in coordinates of unit covariance."""

from __future__ import annotations

import torch
from torch import Tensor

from ..transport.base import Bijection, Transport
from ..transport.labelled_components import LabelledComponents
from ..transport.mixture import MixtureOfMaps
from ..transport.parts import Gaussians
from ..transport.whitened import Whitened


def flow_over(normals: Transport, flow: Bijection, active: Tensor) -> Transport:
    """Normals in coordinates in which each model has unit covariance, and a flow over them.

    Arguments:
        normals: Of each model, a mixture, or one of like components in their places; weights stay.
        flow: One that is the identity so far.
        active: Coordinates that each model uses, shape (M, D), bool.
    """
    if isinstance(normals, LabelledComponents):
        return normals.around(flow_over(normals.base, flow, active))
    assert isinstance(normals, MixtureOfMaps)
    parts, log_weights = normals.components, normals.log_weights.detach()
    assert isinstance(parts, Gaussians)
    if parts.number == 1:
        return Whitened(flow, parts.loc[:, 0], parts.tril[:, 0])
    weight = log_weights.softmax(-1)[..., None]
    loc = (weight * parts.loc).sum(1)
    gap = parts.loc - loc[:, None]
    inner = parts.tril @ parts.tril.mT + gap[..., None] * gap[..., None, :]
    covariance = (weight[..., None] * inner).sum(1)
    eye = torch.eye(loc.shape[1], dtype=loc.dtype, device=loc.device)
    used = active[:, :, None] & active[:, None, :]
    outer = Whitened(flow, loc, torch.linalg.cholesky(torch.where(used, covariance, eye)))
    inverse = outer.inverse[:, None]
    made = MixtureOfMaps(
        Gaussians(normals.space, (inverse @ gap[..., None])[..., 0], inverse @ parts.tril),
        outer,
        log_weights=log_weights,
    )
    made.log_weights.requires_grad_(False)
    return made
