"""How near maps are to posteriors, by the weights of their own draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import TRJError
from ..estimate.importance import log_mean_weight, log_weights
from ..target.target import Target
from ..transport.base import Transport

TRIED = 4000  # draws of a model that tell the effective share of its weights


class Judged(NamedTuple):
    """How near a map is to the posteriors of some models.

    Attributes:
        share: Least effective share of the weights.
        gap: Nats from bound to evidence, at most.
    """

    share: float
    gap: float


def judged(
    target: Target, transport: Transport, codes: Sequence[Tensor], generator: torch.Generator
) -> Judged:
    """How near a map is to the posteriors of models of these codes, shapes (L,).

    A density that is NaN where it draws makes it as far as can be: an answer will meet that too.
    """
    share, gap = 1.0, 0.0
    for code in codes:
        try:
            log_w = log_weights(target, transport, code, TRIED, generator)
        except TRJError:
            return Judged(0.0, math.inf)
        found = log_mean_weight(log_w)
        share = min(share, found.ess / TRIED)
        gap = max(gap, found.value - float(log_w.mean()))
    return Judged(share, gap)
