"""What a run may not have looked for: lost modes, more components than were allowed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Generator, Tensor

from ..space.base import Kind, Space
from ..space.codes import distinct
from ..target.target import Target
from ..transport.base import Transport
from .doubt import EVERY, Doubt
from .of_chains import Judged

if TYPE_CHECKING:
    import pandas as pd

WIDE, FEW = 0.005, 0.015  # share of climbs that lead to modes, from which tables name it, and
# warnings do: of mixtures from few calls a tenth have lost such a mode

LIMIT_PROBABILITY = 0.05  # p(k = max) from which counts may have run into their limit

MOVED_PROBABILITY = 0.1  # probability that data must have moved between counts, beyond chance

LIMIT_EVIDENCE = 0.25  # of the best count's evidence: with less the largest count is no limit

SEEN_PROBABILITY = 0.01  # of a count, from which its evidence means something

CHANCE_ERRORS = 3.0  # standard errors by which a probability may be off by chance

LOOKED_AFTER = 20  # models that q draws most, whose neighbours are weighed

NEIGHBOURS = 256  # of these at most

DRAWS_OF_A_NEIGHBOUR = 32

OVERLOOKED = 0.05  # share of the evidence in models that q does not draw, that is a doubt


def of_modes(space: Space, judged: Judged | None, longer: str) -> list[Doubt]:
    """That a run over a list has hardly searched for lost modes; of most runs tables alone say it.

    Arguments:
        space: The models.
        judged: How the run stands.
        longer: How the run could be made longer, in a sentence.
    """
    if judged is None or space.counts or space.has_items or space.graphs:
        return []
    if not judged.detection > WIDE:
        return []
    words = f"detection limit {judged.detection:.0%}"
    if judged.detection == math.inf:
        words = "no search for lost modes"
    kind = "search" if FEW < judged.detection < math.inf else "modes"
    return [Doubt(EVERY, words, 0.0, longer, grave=False, kind=kind)]


def of_limits(space: Space, counts: pd.DataFrame) -> list[Doubt]:
    """Counts that pile up at their largest; of chains that do not mix this says nothing.

    Arguments:
        space: One of counts.
        counts: As of :meth:`trjmcmc.Result.counts`.
    """
    found = []
    for kind in space.kinds:
        table = counts.loc[kind.name]
        if table["note"].iloc[-1] == "" and runs_into_limit(kind, table):
            words = (
                f"{table['probability'].iloc[-1]:.0%} of the draws have {kind.max} components, the "
                "largest number there may be"
            )
            remedy = (
                f"Raise max of Counts({kind.max}, of={list(kind.of)}), or choose a prior under "
                "which many are less probable; where no more can exist, it stands"
            )
            found.append(Doubt(kind.name, words, math.nan, remedy, kind="limit"))
    return found


def runs_into_limit(kind: Kind, table: pd.DataFrame) -> bool:
    """Whether the posterior piles up at the largest count by the data, and not by the prior alone.

    Posterior over prior is the evidence of a count. Where that of the largest count is not small
    against the best one, more components would do as well. Where data say nothing the posterior
    is the prior, and its limit is meant; and 0 or 1 component is a question of yes or no.

    Arguments:
        kind: The kind.
        table: Its rows of :meth:`trjmcmc.Result.counts`.
    """
    if kind.max < 2 or len(table) == 1:
        return False
    p, error, prior = (table[name].to_numpy() for name in ("probability", "se", "prior"))
    moved = (
        np.maximum(np.abs(p - prior) - np.where(p > 0, CHANCE_ERRORS * error, 0.0), 0.0).sum() / 2
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        evidence = np.where(p > SEEN_PROBABILITY, p / prior, 0.0)
    return bool(
        p[-1] > LIMIT_PROBABILITY
        and moved > MOVED_PROBABILITY
        and evidence[-1] >= LIMIT_EVIDENCE * evidence.max()
    )


def of_climbs(label: str, times: float) -> Doubt:
    """A part of the posterior of a model that climbs have found and q lacks.

    Arguments:
        label: The model.
        times: How heavy it is at least, beside what q has.
    """
    words = (
        f"local optimisations found a part of the posterior of {label!r} that q lacks, with at "
        f"least {min(times, 1e6):.2g} times the mass of what q has"
    )
    return Doubt(label, words, math.log1p(times), kind="answer")


def of_neighbours(
    target: Target,
    transport: Transport,
    drawn: Tensor,
    log_evidence: float,
    generator: Generator,
) -> list[Doubt]:
    """Models one change away from those that q draws, which are as good and were never drawn.

    Arguments:
        target, transport: As fitted.
        drawn: Models of draws of q, shape (S, L).
        log_evidence: Of all models together, nats.
        generator: Source of randomness.
    """
    space = target.space
    if space.few or not space.several or space.graphs:
        return []
    codes, which, _ = distinct(drawn)
    top = torch.bincount(which, minlength=len(codes)).argsort(descending=True)[:LOOKED_AFTER]
    near, there = space.neighbours(codes[top])
    near = distinct(near[there])[0]
    known = {tuple(row) for row in codes.tolist()}
    new = [i for i, row in enumerate(near.tolist()) if tuple(row) not in known]
    near = near[new][torch.randperm(len(new), generator=generator, device=near.device)]
    near = near[:NEIGHBOURS]
    if not len(near):
        return []
    code = near.repeat_interleave(DRAWS_OF_A_NEIGHBOUR, 0)
    z = transport.reference.sample((len(code), target.dim), generator, target.dtype)
    theta, log_q = transport.push(z, code)
    theta = torch.where(space.active(code), theta, 0.0)
    log_w = (target.log_joint(code, theta) - log_q).double()
    log_w = log_w.nan_to_num(-math.inf, -math.inf, -math.inf).view(len(near), -1)
    log_mass = log_w.logsumexp(1) - math.log(DRAWS_OF_A_NEIGHBOUR) - log_evidence
    mass = float(log_mass.logsumexp(0).clamp(max=50.0).exp())
    if not mass > OVERLOOKED:
        return []
    (label,) = space.label(near[log_mass.argmax()][None])
    words = (
        f"models that q(m) hardly draws are at least {mass:.2g} times as probable as those "
        f"that it draws, such as {label!r}"
    )
    return [Doubt(label, words, math.log1p(mass), kind="answer")]
