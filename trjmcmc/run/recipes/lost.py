"""Parts of a model that climbs from prior draws meet and that neither normals nor groups know."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...draws import Pool
from ...pilot.parts import Part
from ...pilot.screening import PARTS, STEPS, WALKERS, search_modes
from ...transport.base import Transport
from .base import Known, Recipe, masses

SHOWN, LEAST_SHOWN = 5000, 200  # draws of a model that a search is told of

VISITED = 0.5  # draws in a part, over its share of the mass, from which it is not lost

SURE = 2.0  # standard errors by which a part's mass may be less

UNDERSTATED = 1.0  # nats by which a part's mass alone exceeds what populations say of all

LARGEST = 300.0  # of a log ratio of masses

MOST_TAKEN = 0.9  # of the draws of a model that a part takes the place of, at most

LEAST_TAKEN = 200  # draws of a part

A_CLIMB = 9  # evaluations


def affordable_parts(climbs: int) -> int:
    """Parts that a search by so many climbs weighs: walks cost no more than climbs, or one.

    Example:
        >>> [affordable_parts(n) for n in (300, 5000, 40_000)]
        [1, 4, 8]
    """
    return max(1, min(PARTS, A_CLIMB * climbs // (WALKERS * STEPS)))


def lost_parts(
    recipe: Recipe,
    known: Known,
    m: int,
    through: Transport,
    seen: Pool,
    n: int,
) -> list[Part]:
    """Parts of a model that climbs from n prior draws meet, and that are not known.

    Arguments:
        recipe: Of a list of models.
        known: What is known.
        m: The model's place in the list.
        through: Normals made of what is known.
        seen: Draws: where these are nothing is lost.
        n: Prior draws.
    """
    target = recipe.target
    assert known.log_mass is not None
    code, level = recipe.codes[m], float(masses(known)[m])
    pools = [known.draws] if seen is known.draws else [known.draws, seen]
    shown = max(LEAST_SHOWN, int(recipe.share * SHOWN))
    drawn = [pool.theta[is_of(pool, code)][:shown] for pool in pools]
    parts = search_modes(
        target,
        code,
        level - float(target.space.log_prior(code[None])[0]),
        through,
        torch.cat(drawn),
        n,
        recipe.generator,
        recipe.limit.deadline,
        parts=affordable_parts(n),
    )
    # a map that fits poorly may not know a part in which many draws are, if evidences do
    error = error_of(known.log_mass[:, m])
    return [part for part in parts if not any(_is_known(part, x, level, error) for x in drawn)]


def with_part(recipe: Recipe, known: Known, m: int, part: Part) -> Known:
    """What is known with a part of a model: its mass, and draws by its share."""
    assert known.log_mass is not None
    code = recipe.codes[m]
    share = 1 / (1 + math.exp(min(float(masses(known)[m]) - part.log_mass, LARGEST)))
    rows = part.draw(max(LEAST_TAKEN, int(recipe.plan.taught * share)), recipe.generator)
    mine = is_of(known.draws, code)
    kept = ~mine
    kept[mine.nonzero()[int(mine.sum() * min(share, MOST_TAKEN)) :, 0]] = True
    theta, log_joint = part.theta[rows].to(known.draws.theta), part.log_joint[rows].double()
    log_mass = known.log_mass.clone()
    log_mass[:, m] = torch.logaddexp(log_mass[:, m], log_mass.new_tensor(part.log_mass))
    return known._replace(
        draws=known.draws.at(kept).joined(Pool(code.expand(len(rows), -1), theta, log_joint)),
        log_mass=log_mass,
        log_evidence=log_mass.logsumexp(1),
    )


def error_of(log_mass: Tensor) -> float:
    """Relative standard error of the mean of the groups' masses, at most 1; 0 of one group.

    Arguments:
        log_mass: By group, shape (K,), nats.

    Example:
        >>> round(error_of(torch.zeros(8)), 3), round(error_of(-40 * torch.arange(8.0)), 3)
        (0.0, 1.0)
    """
    mass = log_mass.softmax(0)
    if len(mass) == 1:
        return 0.0
    return float(mass.std() / mass.mean()) / len(mass) ** 0.5


def _is_known(part: Part, draws: Tensor, level: float, error: float) -> bool:
    """Whether draws of a model have visited a part as its mass says, beside all that is known.

    Arguments:
        part: Its mass counts as far as it is sure.
        draws: Of the model.
        level, error: Log of p(model) times its evidence as known, nats.
    """
    surely = part.log_mass - SURE * math.hypot(part.error, error) - level
    share = 1 / (1 + math.exp(min(-surely, LARGEST)))
    held = int(part.place.holds(draws).sum()) / max(1, len(draws))
    return held >= VISITED * share and surely < UNDERSTATED


def is_of(draws: Pool, code: Tensor) -> Tensor:
    """Which draws are of a model, shape (N,)."""
    return (draws.code == code).all(-1)
