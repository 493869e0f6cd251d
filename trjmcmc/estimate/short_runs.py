"""What short runs of many chains tell: autocorrelation times, and drift.

Of long runs see :func:`trjmcmc.estimate.autocorrelation_time`.
"""

from __future__ import annotations

import torch
from torch import Tensor

NOISE = 0.015  # correlation that cannot be told from none

STUCK = 0.999  # correlation over half a segment from which nothing is known

SLOWEST = 20.0  # segments that an exponential tail may last: longer ones cannot be told from stuck


LISTED = 0.05  # share of the draws from which a model's coordinates are looked at one by one

NUMBERS = 2_000_000  # that are looked at, of all quantities together, about

WIDE = 3.0  # robust standard deviations beyond which values count as so far out

QUARTILES = 1.349  # distance of a standard normal's


def _standard(x: Tensor, inside: Tensor) -> Tensor:
    """Quantities (step, chain, Q) about their median, in robust units; zero outside."""
    here = x[inside]
    if len(here) < 2:
        return torch.zeros_like(x)
    ordered = here.sort(0).values
    low, middle, high = (ordered[round(q * (len(here) - 1))] for q in (0.25, 0.5, 0.75))
    unit = ((high - low) / QUARTILES).clamp(min=torch.finfo(x.dtype).tiny)
    found = ((x - middle) / unit).clamp(-WIDE, WIDE)
    return torch.where(inside[..., None], found, 0.0)
