"""Whether a number of components has run into the largest that was allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..space.base import Kind

if TYPE_CHECKING:
    import pandas as pd

LIMIT_PROBABILITY = 0.05  # p(k = max) from which counts may have run into their limit

MOVED_PROBABILITY = 0.1  # probability that data must have moved between counts, beyond chance

LIMIT_EVIDENCE = 0.25  # of the best count's evidence: with less the largest count is no limit

SEEN_PROBABILITY = 0.01  # of a count, from which its evidence means something

CHANCE_ERRORS = 3.0  # standard errors by which a probability may be off by chance


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
