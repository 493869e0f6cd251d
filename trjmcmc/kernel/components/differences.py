"""Differences of components that look alike in the data: steps along what data leave open."""

from __future__ import annotations

import torch
from torch import Tensor

from ...target.exchangeable import Components
from ..steps import TURN

MOST = 1500  # components that are compared

NEIGHBOURS = 4  # of each whose difference is taken

POINTS = 512  # of the data at which they are compared

CHUNK = 100  # components whose signals are held at once


def differences(parts: Components, theta: Tensor, x: Tensor, unit: Tensor) -> Tensor:
    """Steps from components to those whose signals are nearest, shape (N, P).

    Of a periodic coordinate it is the shorter way around, as :class:`~trjmcmc.kernel.steps.Around`
    counts it.

    Arguments:
        parts: The components' kind.
        theta: Points that hold the shared parameters of each, shape (n, D).
        x: Components, shape (n, P).
        unit: Units of their coordinates, in which those whose signal is not known are compared,
            shape (P,).

    Source:
        Differences as steps: ter Braak (2006), https://doi.org/10.1007/s11222-006-8769-1
    """
    x, where = x.unique(dim=0, return_inverse=True)
    first = torch.full((len(x),), len(where), device=x.device)
    first = first.scatter_reduce(0, where, torch.arange(len(where), device=x.device), "amin")
    theta = theta[first]
    pick = torch.linspace(0, len(x) - 1, min(MOST, len(x)), device=x.device).long()
    x, theta = x[pick], theta[pick]
    if len(x) <= NEIGHBOURS:
        return x[:0]
    if parts.additive:
        with torch.no_grad():  # a few at once: data may be long
            signals = [
                _some(parts.contribution(t, y).reshape(len(y), -1))
                for t, y in zip(theta.split(CHUNK), x.split(CHUNK), strict=True)
            ]
        signal = torch.cat(signals)
    else:
        signal = (x / unit).double()
    far = torch.cdist(signal, signal)
    far.fill_diagonal_(torch.inf)
    near = far.nan_to_num(torch.inf).topk(NEIGHBOURS, largest=False).indices
    step = x[near] - x[:, None]
    share = x.sigmoid()
    turn = share[near] - share[:, None]
    turn = (turn - turn.round()) / TURN
    periodic = parts.target.periodic_slots[parts.slots[0]]
    step = torch.where(periodic, turn, step).flatten(0, 1)
    return step[step.isfinite().all(1)]


def _some(signal: Tensor) -> Tensor:
    return signal[:, :: max(1, signal.shape[1] // POINTS)]
