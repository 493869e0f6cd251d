"""Posteriors over graphs from local scores."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import TargetError
from ..space.dag_prior import DagPrior
from ..space.dags import Dags
from ..target.scores import LocalScores
from ..target.target import Target


def target(
    scores: LocalScores, prior: str | DagPrior = "uniform", *, device: Any = None, **space: Any
) -> Target:
    """The posterior over graphs.

    Arguments:
        scores: Log likelihood of each node's parents.
        prior: As for :class:`~trjmcmc.graphs.Dags`.
        device: Where it is evaluated; where the scores are if omitted.
        space: Further arguments of :class:`~trjmcmc.graphs.Dags`: edge_odds, required, forbidden,
            max_parents. Edges that the scores leave out are forbidden.

    Raises:
        TargetError: As of :class:`~trjmcmc.graphs.Dags`; no local scores.

    Example:
        >>> x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
        >>> from trjmcmc.graphs import bge
        >>> target(bge(x, names=["a", "b"]), required=[("a", "b")]).space.size
        1
    """
    if not isinstance(scores, LocalScores):
        raise TargetError(
            f"scores: expected local scores, got {type(scores).__name__}; of a table of data make "
            "them first: trj.graphs.bge(data), linear(data, noise=...) or bdeu(data)"
        )
    forbidden = [*space.pop("forbidden", ()), *scores.left_out]
    dags = Dags(scores.names, prior=prior, forbidden=forbidden, **space)
    device = scores.table.device if device is None else device
    return Target(dags, {}, scores.to(device), dtype=torch.float64, device=device)
