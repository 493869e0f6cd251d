"""Pilot segments: stretches of warm-up by one kernel, and what they say of its efficiency."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .. import clock
from ..estimate.precision import features
from ..estimate.short_runs import drift_of, indicator_times, memory_of
from ..kernel.base import Kernel, State
from ..target.exchangeable import components_of
from ..target.target import Target
from .count import Tally


@dataclass(frozen=True)
class Segment:
    """A stretch of warm-up by one kernel.

    Attributes:
        efficiency: Effective draws a second over all chains, of the model indicator that needs
            most: 0.25 times draws over seconds times its variance and autocorrelation time, so
            that indicators of a probability of one half count in full.
        time: Autocorrelation time of that indicator, in steps.
        step: Seconds a step.
        varied: Whether any indicator differed between draws.
        steps: Its length.
        cut_short: Whether it ran out of time so early that nothing is known.
        drift: Change between its halves, in standard errors over chains, of the log joint or of
            the code, whichever changed more.
        memory: Autocorrelation time of what is slowest of indicators, log joint and coordinates,
            in steps, by the spread of the chains' means.
        chains: How many there were.
    """

    efficiency: float
    time: float
    step: float
    varied: bool
    steps: int
    cut_short: bool = False
    drift: float = 0.0
    memory: float = 1.0
    chains: int = 1


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
    codes, thetas, log_joints, states = [], [], [], []
    every = max(1, steps // states_kept)
    with torch.no_grad():
        begun = clock.now()
        for i in range(steps):
            kernel, state, infos = kernel.adapt(state, generator)
            tally.add(infos)
            codes.append(state.code)
            thetas.append(state.theta)
            log_joints.append(state.log_joint)
            if i % every == 0:
                states.append(State(state.code, state.theta, state.log_joint))
            if clock.now() - begun > most_seconds:
                break
        stacked = torch.stack(codes)
        seen = features(target.space, stacked)
        exchangeable = bool(components_of(target))
        height = torch.stack(log_joints)
        memory = memory_of(
            target.space, seen, stacked, torch.stack(thetas), height, exchangeable=exchangeable
        )
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
        drift=drift_of(stacked, height),
        memory=memory,
        chains=len(state.code),
    )
    return found, kernel.frozen(), state, states[len(states) // 2 :]
