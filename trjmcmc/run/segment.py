"""Pilot segments: stretches of warm-up by one kernel, and what they say of its efficiency."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .. import clock
from ..estimate.precision import features
from ..kernel.base import Kernel, State
from ..target.target import Target
from .count import Tally

NOISE = 0.015  # correlation that cannot be told from none

STUCK = 0.999  # correlation over half a segment from which nothing is known

SLOWEST = 20.0  # segments that an exponential tail may last: longer ones cannot be told from stuck


@dataclass(frozen=True)
class Segment:
    """A stretch of warm-up by one kernel.

    Attributes:
        efficiency: Effective draws a second, over all chains, of the model indicator whose error
            falls slowest, in draws of a probability of one half.
        time: Autocorrelation time of that indicator, in steps.
        step: Seconds a step.
        varied: Whether any indicator differed between draws.
        steps: Its length.
        cut_short: Whether it ran out of time so early that nothing is known.
        drift: Change between its halves, in standard errors over chains, of the log joint or of
            the code, whichever changed more.
    """

    efficiency: float
    time: float
    step: float
    varied: bool
    steps: int
    cut_short: bool = False
    drift: float = 0.0


def run_segment(
    kernel: Kernel,
    state: State,
    steps: int,
    *,
    target: Target,
    generator: torch.Generator,
    tally: Tally,
    most_seconds: float,
    least_completed: float,
    states_kept: int,
) -> tuple[Segment, Kernel, State, list[State]]:
    """Advance chains by a kernel that learns, and measure the indicators' autocorrelation time.

    Arguments:
        kernel: The kernel.
        state: Where the chains are.
        steps: Steps to make.
        target: The target.
        generator: Source of randomness.
        tally: Counts what is accepted.
        most_seconds: Seconds after which it ends early.
        least_completed: Share of the steps below which a segment that ended early says nothing.
        states_kept: States to keep on the way, evenly spaced.

    Returns:
        What was measured, the kernel that has learned, where the chains are, and the later half
        of the states kept.

    Raises:
        NonFiniteError: A density was NaN or +inf.
    """
    codes, log_joints, states = [], [], []
    every = max(1, steps // states_kept)
    with torch.no_grad():
        begun = clock.now()
        for i in range(steps):
            kernel, state, infos = kernel.adapt(state, generator)
            tally.add(infos)
            codes.append(state.code)
            log_joints.append(state.log_joint)
            if i % every == 0:
                states.append(State(state.code, state.theta, state.log_joint))
            if clock.now() - begun > most_seconds:
                break
        stacked = torch.stack(codes)
        seen = features(target.space, stacked)
        seconds = clock.now() - begun
    cut_short, steps = len(codes) < least_completed * steps, len(codes)
    tally.check()
    times = indicator_times(seen)
    variance = seen.flatten(0, 1).var(0, correction=0)
    need = torch.where(variance > 0, variance * times, 0.0)
    slowest = int(need.argmax()) if need.numel() else 0
    varied = bool((variance > 0).any())
    rate = 0.25 * len(state.code) * steps / max(seconds, 1e-9)
    found = Segment(
        efficiency=rate / float(need[slowest]) if varied and not cut_short else 0.0,
        time=float(times[slowest]) if varied else 1.0,
        step=seconds / steps,
        varied=varied,
        steps=steps,
        cut_short=cut_short,
        drift=drift_of(stacked, torch.stack(log_joints)),
    )
    return found, kernel.frozen(), state, states[len(states) // 2 :]


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
