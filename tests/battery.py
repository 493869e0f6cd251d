"""Does a kernel leave its target as it is? Draws that are exact, a few steps, exact still?

Each check starts independent chains from exact draws, makes a few steps and compares what the
chains then show with exact values, in standard errors. It is group-sequential: a quarter of the
chains first. The kernel passes there where the largest |z| is what four in five right kernels
stay below; otherwise fresh chains in full number decide, at level ``ALPHA``. A right kernel
fails with probability ``ALPHA`` at most. A wrong one, whose largest z would be d with all chains,
shows d / 2 at the first stage: negative controls must exceed twice the limit *there*, so that
what is as wrong as they are is never let pass.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.stats import norm
from torch import Generator, Tensor

import trjmcmc as trj
from trjmcmc.kernel import Fixed, Info, Jump, Kernel, State, start

ALPHA = 1e-5  # probability that a right kernel fails one check
CLEAR = 0.8  # share of right kernels that pass at the first stage
FIRST = 4  # all chains, over those of the first stage


def limit(scores: int, alpha: float = ALPHA) -> float:
    """What the largest of so many |z| exceeds with probability ``alpha`` at most (Bonferroni)."""
    return float(norm.isf(alpha / 2 / scores))


def clear(scores: int) -> float:
    """What the largest of so many independent |z| stays below with probability ``CLEAR``."""
    return float(norm.isf((1 - CLEAR ** (1 / scores)) / 2))


class Case(NamedTuple):
    """A target that is known, and how to tell.

    Arguments:
        target: The target.
        draw: So many independent exact draws, as a state of chains.
        scores: z scores of such draws, (S,): standard normal if the state is still exact.
        atol: By how much the log joint that a state carries may differ from a fresh one, nats.
    """

    target: trj.Target
    draw: Callable[[int, Generator], State]
    scores: Callable[[State], Tensor]
    atol: float = 1e-3


class Seen(NamedTuple):
    """The largest |z|, how many there were, the last step's account, and the chains' end."""

    worst: float
    scores: int
    infos: list[Info]
    state: State


def moved(kernel: Kernel, state: State, generator: Generator, steps: int) -> tuple[State, list]:
    """Where chains are after some steps, and what the last one tells."""
    infos: list[Info] = []
    with torch.no_grad():
        for _ in range(steps):
            state, infos = kernel.step(state, generator)
    return state, infos


def look(
    kernel: Kernel, case: Case, generator: Generator, chains: int, steps: int, batch: int | None
) -> Seen:
    """One stage: exact draws, steps, scores."""
    ends, infos = [], []
    for n in [batch or chains] * (chains // (batch or chains)):
        end, infos = moved(kernel, case.draw(n, generator), generator, steps)
        ends.append(State(end.code, end.theta, end.log_joint))
    state = State(*(torch.cat(x) for x in zip(*(end[:3] for end in ends), strict=True)))
    z = case.scores(state)
    return Seen(float(z.abs().max()), len(z), infos, state)


def stays_exact(
    kernel: Kernel,
    case: Case,
    generator: Generator,
    *,
    chains: int = 40_000,
    steps: int = 3,
    batch: int | None = None,
) -> Seen:
    """Asserts that exact draws stay exact.

    Arguments:
        kernel: The kernel under test; it must not adapt.
        case: Its target.
        generator: Source of randomness.
        chains: Number of chains at the second stage, a multiple of :data:`FIRST`.
        steps: Steps of each chain.
        batch: Chains that move together, all of a stage if omitted. A kernel may be exact only
            on average over what a batch shares, as walks are over the order of their scan; the
            chains of a batch are then no independent draws.

    Returns:
        The stage that decided.
    """
    seen = look(kernel, case, generator, chains // FIRST, steps, batch)
    if not seen.worst < clear(seen.scores):
        seen = look(kernel, case, generator, chains, steps, batch)
        assert seen.worst < limit(seen.scores), f"{seen.worst:.1f} standard errors"
    state = seen.state
    fresh = case.target.log_joint(state.code, state.theta)
    assert torch.allclose(state.log_joint, fresh, atol=case.atol)
    assert not bool(state.theta[~case.target.space.active(state.code)].any())
    return seen


def is_caught(
    kernel: Kernel,
    case: Case,
    generator: Generator,
    *,
    chains: int = 40_000,
    steps: int = 3,
    batch: int | None = None,
) -> Seen:
    """Asserts that a wrong kernel is found out at the first stage, and by far."""
    seen = look(kernel, case, generator, chains // FIRST, steps, batch)
    assert seen.worst > 2 * limit(seen.scores), f"only {seen.worst:.1f} standard errors"
    return seen


def assert_calibrated(z, repeats):
    """Mean zero and spread one, as far as so many repeats can tell."""
    z = np.asarray(z)
    assert abs(z.mean()) < 4.5 / math.sqrt(repeats)
    assert 1 - 4.5 / math.sqrt(2 * repeats) < z.std() < 1 + 4.5 / math.sqrt(2 * repeats) + 0.03


def check(result, truth, *, sigmas=5.0, largest_error=None):
    """Every probability within its own standard errors of the truth."""
    table = result.model_probabilities(full=True)
    exact = pd.Series(dict(truth.probabilities))
    z = (table["visits"] - exact) / table["visits_se"]
    assert bool((z.abs() < sigmas).all()), table.assign(exact=exact, z=z).to_string()
    if largest_error is not None:
        assert bool((table["visits_se"] <= largest_error).all()), table.to_string()
    return table


def crossings(sampler, result):
    """Mean acceptance of jumps of two models through a sampler's map, at all draws of a run.

    Over what it is where the map is exact and the rarer model always proposes the other one.
    """
    target, raw = sampler.target, result.raw
    code, theta = raw.code.flatten(0, 1), raw.theta.flatten(0, 1)
    jump = Jump(target, sampler.transport, Fixed(target.space, other=True))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        _, (info, *_) = jump.step(start(target, code, theta), generator)
    return float(info.chance.mean()) / (2 * min(target.truth.probabilities.values()))
