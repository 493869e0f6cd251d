"""What graphs weigh, node by node: prior and tempered scores in one table."""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...space.dags import Dags
from ...target.target import Target
from ...target.tempered import power_of


class LocalWeights:
    """Log prior and likelihood of the parent sets of each node, as far as they depend on these.

    Arguments:
        target: A target over :class:`~trjmcmc.Dags` whose likelihood is
            :class:`~trjmcmc.graphs.LocalScores`; tempered ones count to their power.

    Raises:
        ConfigurationError: It is not such a target; the nodes have other names.
    """

    def __init__(self, target: Target) -> None:
        scores = target.scores
        space = cast("Dags", target.space)
        if scores is None or not space.graphs:
            raise ConfigurationError(
                "this move goes by tables of local scores: make the target by trj.graphs.target"
            )
        if scores.names != space.nodes:
            raise ConfigurationError(
                f"the scores are of nodes {scores.names}, the space has {space.nodes}"
            )
        self.target, self.scores, self.space = target, scores, space
        d, columns = scores.table.shape
        every = torch.arange(columns, device=scores.table.device)[:, None].expand(-1, d)
        self.masks = scores.masks(every).T.contiguous()  # of each column, (d, 2^K)
        self.prior = space.log_weights(self.masks.T).T.contiguous()
        self.d = d

    def power(self) -> float | Tensor:
        power = power_of(self.target)
        return power.double() if isinstance(power, Tensor) else power

    def at(self, node: Tensor, place: Tensor) -> Tensor:
        """Log weights of parent sets, given by nodes and columns of the table, (C, ...)."""
        score, power = self.scores.table[node, place], self.power()
        if isinstance(power, Tensor):
            power = power.view(-1, *[1] * (score.dim() - 1))
            score = torch.where(power > 0, power * score, _possible(score))
        else:
            score = power * score if power else _possible(score)
        return score + self.prior[node, place]

    def rows(self, node: Tensor) -> Tensor:
        """Log weights of all parent sets of a node of each chain, (C,) -> (C, 2^K)."""
        every = torch.arange(self.masks.shape[1], device=node.device)
        return self.at(node[:, None], every)

    def families(self, place: Tensor) -> Tensor:
        """Log weights of the parent sets that chains have, columns (C, d) -> (C, d)."""
        return self.at(torch.arange(self.d, device=place.device), place)


def _possible(score: Tensor) -> Tensor:
    return torch.where(score > -math.inf, 0.0, -math.inf).to(score)
