"""Whether the numbers of a run resolve its posterior."""

from __future__ import annotations

import torch
from torch import Tensor

from ..kernel.base import State
from ..pilot.audit import Audit
from ..promises import ROUNDING_ERROR
from ..space.codes import distinct
from ..target.resolution import EXAMINED, resolution_doubts
from ..target.target import Target

EACH = 500  # draws of a pilot run that each model is examined by


class TooCoarse(Exception):
    """Working numbers that do not resolve a posterior; the message says which and why."""


def coarse_numbers(target: Target, state: State, audit: Audit | None) -> str:
    """What the working numbers do not resolve, in words; empty if they will do.

    Chains tell it of the models that they are in, a pilot run of all others: where numbers are
    much too few, a model that should have the mass has none.

    Arguments:
        target: The target.
        state: Chains after their warm-up.
        audit: The pilot run, or None.
    """
    eps = torch.finfo(target.dtype).eps
    size = float(state.log_joint.abs().median())
    if eps * size > ROUNDING_ERROR:
        return f"sums of log densities of size {size:.3g}"
    found = _doubts(target, state.code, state.theta)
    if audit is not None:
        model = torch.arange(len(audit.code), device=target.device).repeat_interleave(EACH)
        theta, *_ = audit.draw(model)
        found = _doubts(target, audit.code[model], theta) | found
    return "; ".join(f"{label}: {why}" for label, why in found.items())


def _doubts(target: Target, code: Tensor, theta: Tensor) -> dict[str, str]:
    """By model what independent draws, codes (n, L) and coordinates (n, D), say of its numbers."""
    codes, which, counts = distinct(code)
    order = counts.argsort(descending=True)[:EXAMINED]
    place = torch.full((len(codes),), -1, device=order.device)
    place[order] = torch.arange(len(order), device=order.device)
    return resolution_doubts(target, codes[order], place[which][:, None], theta[:, None])
