"""Whether each row of a batch has the likelihood that it has alone."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..doubts.doubt import Doubt
from ..target.support import unchecked
from .places import Points

SAME = {torch.float64: 1e-5, torch.float32: 1e-3}  # relative, of log likelihoods


def check_rows(place: Points) -> list[Doubt]:
    """Compare a batch with its rows alone and among others."""
    density, theta, items = place.density, place.theta, place.items
    if density.likelihood.foreign:
        return []  # which gets its points one by one
    n = len(theta)

    def at(rows: Tensor) -> Tensor:
        with torch.no_grad(), unchecked():
            some = None if items is None else items[rows]
            return density.evaluate(theta[rows], some, False).log_likelihood

    everyone = torch.arange(n)
    with torch.no_grad(), unchecked():
        possible = density.evaluate(theta, items, False).log_prior > -math.inf
    batch = at(everyone)
    alone = torch.cat([at(everyone[i : i + 1]) for i in range(n)])
    turned = at(everyone.flip(0)).flip(0)
    some = torch.cat([at(part) for part in everyone.split(max(2, n // 3))])
    for other, how in ((alone, "alone"), (turned, "in reversed order"), (some, "beside fewer")):
        gap = torch.where(possible & (batch != other), (batch - other).abs(), 0.0)
        gap = gap.nan_to_num(math.inf, math.inf)
        if bool((gap > SAME[theta.dtype] * (1 + batch.abs().nan_to_num(0.0, 0.0, 0.0))).any()):
            row = int(gap.argmax())
            words = (
                f"the likelihood of row {row} depends on other rows of the batch: rows leak. In "
                f"{place.label} it is {float(batch[row]):.8g} in a batch of {n} and "
                f"{float(other[row]):.8g} {how}"
            )
            remedy = (
                "Sum and normalise over data (dim=-1), never over the first axis; keep nothing "
                "from call to call"
            )
            return [Doubt(place.label, words, remedy=remedy)]
    return []
