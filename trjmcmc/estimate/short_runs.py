"""What short runs of many chains tell of indicators: autocorrelation times, and drift.

Of long runs see :func:`trjmcmc.estimate.autocorrelation_time`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

NOISE = 0.015  # correlation that cannot be told from none

STUCK = 0.999  # correlation over half a segment from which nothing is known

SLOWEST = 20.0  # segments that an exponential tail may last: longer ones cannot be told from stuck


def indicator_times(seen: Tensor) -> Tensor:
    """Integrated autocorrelation times of indicators, in steps.

    Chains are many and short: correlations are averaged over chains at lags 1, 2, 4, ... up to
    half the length, joined by trapezoids, and the tail is taken as exponential.

    Arguments:
        seen: Shape (step, chain, F).

    Returns:
        Shape (F,), at least 1; infinite where chains differ and none changed; 1 where nothing
        differs.

    Example:
        >>> draws = torch.rand(40, 500, 1, generator=torch.Generator().manual_seed(0)).round()
        >>> bool(indicator_times(draws.double()) < 1.2)
        True
    """
    n = len(seen)
    gap = seen - seen.mean((0, 1))
    variance = gap.square().mean((0, 1))
    lags = [2**i for i in range(n.bit_length()) if 2**i <= n // 2]
    rho = [torch.ones_like(variance)]
    for lag in lags:
        rho.append((gap[: n - lag] * gap[lag:]).mean((0, 1)) / variance.clamp(min=1e-300))
    total, alive = torch.ones_like(variance), torch.ones_like(variance, dtype=torch.bool)
    for i, (lag, before) in enumerate(zip(lags, [0, *lags], strict=False)):
        alive &= rho[i + 1] > NOISE  # what follows the first loss is noise
        here, there = rho[i], torch.where(alive, rho[i + 1], 0.0)
        # twice the sum over the lags between, the first left out
        total = total + (lag - before) * (here + there) + there - here
        rho[i + 1] = there
    if len(lags) > 1:
        last, before = rho[-1], rho[-2]
        rate = (before.clamp(min=1e-9) / last.clamp(min=1e-12)).log() / (lags[-1] - lags[-2])
        total = total + torch.where(alive, 2 * last / rate.clamp(min=1 / (SLOWEST * n)), 0.0)
    stuck = (rho[-1] > STUCK) & (variance > 0)
    return torch.where(stuck, math.inf, torch.where(variance > 0, total.clamp(min=1.0), 1.0))


def drift_of(code: Tensor, log_joint: Tensor) -> float:
    """Change between the halves of a segment, in standard errors over chains; NaN of few."""
    half = len(code) // 2
    first, second = (
        torch.cat([code[part].sum(0).double(), log_joint[part].double().sum(0)[:, None]], -1) / n
        for part, n in ((slice(half), max(half, 1)), (slice(half, None), len(code) - half))
    )
    gap = second - first
    error = gap.std(0) / len(gap) ** 0.5
    return float((gap.mean(0).abs() / error.clamp(min=1e-12)).amax())
