"""Parameters given data and data given parameters, drawn in turn: the prior must stay.

Chains start at draws of the prior with data of their own. A few steps of a kernel that leaves the
posterior invariant, then new data at the new parameters, and so on: models and parameters remain
draws of the prior if prior, likelihood and simulator are of one joint distribution. Where they are
not, errors add up from turn to turn. No chain needs to converge.

Source:
    Geweke (2004), https://doi.org/10.1198/016214504000001132
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..doubts.doubt import Doubt
from ..kernel.base import Kernel, start
from ..kernel.between.birth_death import BirthDeath
from ..kernel.compose import Cycle
from ..kernel.inside.random_walk import RandomWalk
from ..kernel.proposal.fixed import Fixed
from ..kernel.proposal.neighbours import Neighbours
from ..simulate.prior import drawn_from_prior
from ..target.target import Target
from .asked import Skipped, by_chance
from .remake import Simulation

CHAINS = 24

TURNS = 6  # of each chain

STEPS = 3  # of the kernel a turn

WALKS = 3  # of a step

AGAINST = 4000  # draws of the prior that chains are compared with

MOST_QUANTITIES = 40

CAREFUL = 10  # what p-values by normal tails of few chains are multiplied by


def check_joint(by: Simulation) -> list[Doubt]:
    """Where chains end that draw parameters and data in turn, against the prior."""
    target, simulator, make, generator, over = by
    code, theta = drawn_from_prior(target, CHAINS, generator)
    turns = 0
    for _ in range(TURNS):
        data = simulator.draw(code, theta, generator)
        moved = []
        for i, one in enumerate(data):
            if over():
                break
            moved.append(_turn(make(one), code[i : i + 1], theta[i : i + 1], generator))
        if len(moved) < len(data):
            break
        code = torch.cat([c for c, _ in moved])
        theta = torch.cat([t.to(theta) for _, t in moved])
        turns += 1
    if not turns:
        raise Skipped("no time was left")
    prior_code, prior_theta = drawn_from_prior(target, AGAINST, generator)
    names, before = _quantities(target, prior_code, prior_theta)
    _, after = _quantities(target, code, theta)
    p = {name: _compared(before[name], after[name]) for name in names}
    worst = min(p, key=lambda name: p[name][0])
    chance = min(1.0, p[worst][0] * len(p))
    words = (
        f"where parameters and data are drawn in turn, {worst} drifts "
        f"{'up' if p[worst][1] > 0 else 'down'} from its prior: its mean is {p[worst][1]:+.2g} of "
        f"the prior's standard deviations off after {turns} turns of {CHAINS} chains. Prior, "
        "likelihood and simulator are not of one joint distribution: a prior used twice, a "
        "missing Jacobian or constant, other noise"
    )
    return by_chance(worst, words, CAREFUL * chance)


def _turn(
    target: Target, code: Tensor, theta: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    state = start(target, code, theta.to(target.dtype))
    if not bool(state.log_joint.isfinite().all()):
        return code, theta  # impossible data: likelihood ratios say so
    kernel = _kernel(target)
    with torch.no_grad():
        for _ in range(STEPS):
            state, _infos = kernel.step(state, generator)
    return state.code, state.theta


def _kernel(target: Target) -> Kernel:
    space = target.space
    moves: list[Any] = [(RandomWalk(target), WALKS)] if target.dim else []
    if space.several:
        proposal = Neighbours(space) if space.has_items else Fixed(space, other=True)
        moves.insert(0, BirthDeath(target, proposal))
    return Cycle(moves)


def _quantities(target: Target, code: Tensor, theta: Tensor) -> tuple[list[str], dict[str, Any]]:
    """Indicators of models or items, and unconstrained coordinates where a model has them."""
    space = target.space
    found: dict[str, Any] = {}
    if space.few and space.several:
        place = space.index(code)
        for i, label in enumerate(space.label(space.enumerate())):
            found[f"model {label!r}"] = (place == i).double().numpy()
    elif space.has_items:
        found["size"] = space.items(code).sum(1).double().numpy()
    active = space.active(code)
    for j, name in enumerate(target.slot_names[:MOST_QUANTITIES]):
        x = torch.where(active[:, j], theta[:, j].double(), math.nan)
        found[name] = x.numpy()
    return list(found), found


def _compared(before: Any, after: Any) -> tuple[float, float]:
    """p-value of equal ranks of both, and the shift in sd; 1 without any."""
    from scipy.stats import mannwhitneyu  # seconds to import

    before, after = before[~np.isnan(before)], after[~np.isnan(after)]
    if len(after) < 10 or len(before) < 100 or before.std() == 0:
        return 1.0, 0.0
    chance = mannwhitneyu(after, before, method="asymptotic").pvalue
    return float(chance), float((after.mean() - before.mean()) / before.std())
