"""Maps that learn from draws what there is to cover."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch

from ..draws import Pool
from ..fit.objective import ForwardKL
from ..fit.trace import FitTrace
from ..fit.train import train
from ..pilot.audit import Audit
from ..pilot.generation import systematic
from ..target.target import Target
from ..transport.base import Transport
from ..transport.whitened import Whitened
from .policy import ApproximationPolicy
from .population import PopulationMonteCarlo


class Near(NamedTuple):
    """How near a map is to the posteriors of some models, by the weights of its own draws.

    Attributes:
        share: Least effective share of the weights.
        gap: Nats from bound to evidence, at most.
    """

    share: float
    gap: float


def nearly_exact(
    target: Target,
    audit: Audit,
    generator: torch.Generator,
    policy: ApproximationPolicy,
    most: float,
) -> tuple[Pool, bool]:
    """Draws of all models that maps may learn from, and whether they are nearly the posterior's.

    In few coordinates they are those of :class:`PopulationMonteCarlo`, brought to equal weights: a
    hundred times as many as a pilot run has, and without its errors in the masses of modes. A
    model whose weights are too uneven for that keeps the draws of the pilot run.

    Arguments:
        target: The target; no gradients are asked for.
        audit: The pilot run.
        generator: Source of randomness.
        policy: Coordinates, rounds and draws.
        most: Evaluations at most.
    """
    rough = audit.pool()
    few = int(target.space.active(audit.code).sum(-1).max()) <= policy.most_normal_coordinates
    if not few or most < policy.first_round * len(audit.code):
        return rough, False
    population = PopulationMonteCarlo(target, audit, generator, policy)
    population.run(most)
    parts: list[Pool] = []
    better = True
    for m, code in enumerate(population.codes):
        found = population.weighted(m)
        if found is not None:
            x, log_w, log_joint = found
            weight = log_w.softmax(0)
            if float(1 / weight.square().sum()) >= policy.fewest_effective:
                rows = systematic(weight[None], len(weight), generator)[0]
                theta = rough.theta.new_zeros(len(rows), target.dim)
                theta[:, population.slots[m]] = x[rows].to(theta)
                parts.append(Pool(code.expand(len(rows), -1), theta, log_joint[rows].to(theta)))
                continue
        mine = (rough.code == code).all(-1)
        parts.append(Pool(rough.code[mine], rough.theta[mine], rough.log_joint[mine]))
        better = better and not (bool(audit.matters[m]) and len(population.slots[m]))
    return functools.reduce(Pool.joined, parts), better


def cover(
    transport: Transport,
    pool: Pool,
    generator: torch.Generator,
    *,
    steps: int,
    batch: int,
    rate: float,
    patience: int,
    progress: bool,
) -> FitTrace:
    """Train a map on draws by maximum likelihood, in place: it then covers what they show.

    The target is not asked. In coordinates of unit covariance single precision is enough, at half
    of the time; whatever is lost by it, reverse KL mends.

    Arguments:
        transport: The map.
        pool: Draws of the posteriors.
        generator: Source of randomness.
        steps, batch, rate, patience: Of the training.
        progress: Show a bar.
    """
    theta, learner, precision = pool.theta, transport, None
    if isinstance(transport, Whitened):
        learner, precision = transport.flow, pool.theta.dtype
        theta = transport.whiten(pool.theta, pool.code).float()
        learner.float()
    trace = train(
        learner,
        ForwardKL(pool.code, theta, order=1.0, generator=generator),
        steps=steps,
        batch=batch,
        learning_rate=rate,
        patience=patience,
        generator=generator,
        progress=progress,
        label="cover",
    )
    if precision is not None:
        learner.to(precision)
    return trace
