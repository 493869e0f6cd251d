"""What short runs of many chains tell: autocorrelation times, and drift.

Of long runs see :func:`trjmcmc.estimate.autocorrelation_time`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..space.base import Space

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


LISTED = 0.05  # share of the draws from which a model's coordinates are looked at one by one

NUMBERS = 2_000_000  # that are looked at, of all quantities together, about

WIDE = 3.0  # robust standard deviations beyond which values count as so far out

QUARTILES = 1.349  # distance of a standard normal's


def memory_of(
    space: Space,
    seen: Tensor,
    code: Tensor,
    theta: Tensor,
    log_joint: Tensor,
    *,
    exchangeable: bool = False,
) -> float:
    """Largest autocorrelation time, in steps, of indicators, log joint and coordinates.

    A coordinate counts in units of its quartiles, as its place and as its distance from the
    middle, and as zero outside its model, like in :func:`rank_rhats`.

    Arguments:
        space: The space.
        seen: Indicators, shape (step, chain, F).
        code: Shape (step, chain, L).
        theta: Coordinates, shape (step, chain, D).
        log_joint: Shape (step, chain), nats.
        exchangeable: Whether slots belong to components in no order, so that only their log
            joint is looked at.
    """
    groups = [] if exchangeable else _coordinates(space, code, theta.shape[2])
    count = 1 + seen.shape[2] + 2 * sum(len(slots) for _, slots in groups)
    some = slice(None, None, -(-count * log_joint.numel() // NUMBERS))
    everywhere = torch.ones_like(log_joint[:, some], dtype=torch.bool)
    found = [seen[:, some], _standard(log_joint[:, some, None], everywhere)]
    for inside, slots in groups:
        x = _standard(theta[:, some][..., slots], inside[:, some])
        found += [x, _standard(x.abs(), inside[:, some])]
    return max(float(times_of_means(x).max()) for x in found if x.numel())


def times_of_means(x: Tensor) -> Tensor:
    """Autocorrelation times from the spread of the chains' means, in steps.

    Of a correlation that decays exponentially with time constant t / 2 the means of n draws have
    the relative variance r = t / n - (t / n)^2 (1 - exp(-2 n / t)) / 2, which is solved for t. Its
    noise is that of a variance over chains, however many quantities and however slow.

    Arguments:
        x: Shape (step, chain, F). A single chain is cut into pieces.

    Returns:
        Shape (F,), from 1 to :data:`SLOWEST` times the length; 1 where nothing differs.

    Example:
        >>> draws = torch.randn(40, 500, 1, generator=torch.Generator().manual_seed(0))
        >>> bool(times_of_means(draws) < 1.2)
        True
    """
    pieces = math.isqrt(len(x))
    if x.shape[1] == 1 and pieces > 1:
        x = x[: pieces**2].view(pieces, pieces, x.shape[2]).transpose(0, 1)
    n = len(x)
    variance = x.double().flatten(0, 1).var(0, correction=0)
    if x.shape[1] == 1:
        return torch.ones_like(variance)
    share = x.double().mean(0).var(0) / variance.clamp(min=torch.finfo(torch.float64).tiny)
    lengths = torch.logspace(math.log10(1 / n), math.log10(SLOWEST), 400, dtype=torch.float64)
    relative = lengths - lengths.square() * -torch.expm1(-2 / lengths) / 2
    place = torch.searchsorted(relative, share.cpu()).clamp(max=len(lengths) - 1)
    found = (n * lengths[place]).to(x.device)
    return torch.where(variance > 0, found.clamp(min=1.0), 1.0)


def _coordinates(space: Space, code: Tensor, dim: int) -> list[tuple[Tensor, Tensor]]:
    """Draws of a model, shape (step, chain), and the slots that it uses; or of any, by slot."""
    if space.few:
        index = space.index(code.flatten(0, 1)).view(code.shape[:2])
        often = torch.bincount(index.flatten(), minlength=int(space.size or 0)) / index.numel()
        models = (often > LISTED).nonzero()[:, 0]
        active = space.active(space.enumerate())
        return [(index == m, active[m].nonzero()[:, 0]) for m in models]
    active = space.active(code.flatten(0, 1)).view(*code.shape[:2], dim)
    share = active.float().mean((0, 1))
    return [(active[..., d], d[None]) for d in (share > LISTED).nonzero()[:, 0]]


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


def drift_of(code: Tensor, log_joint: Tensor) -> float:
    """Change between the halves of a segment, in standard errors over chains; NaN of one chain."""
    if code.shape[1] < 2:
        return math.nan
    half = len(code) // 2
    first, second = (
        torch.cat([code[part].sum(0).double(), log_joint[part].double().sum(0)[:, None]], -1) / n
        for part, n in ((slice(half), max(half, 1)), (slice(half, None), len(code) - half))
    )
    gap = second - first
    error = gap.std(0) / len(gap) ** 0.5
    return float((gap.mean(0).abs() / error.clamp(min=1e-12)).amax())
