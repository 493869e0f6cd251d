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
        target: A target over :class:`~trjmcmc.graphs.Dags` whose likelihood is
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
        self._known: tuple[float, list[Tensor]] | None = None

    def at(self, node: Tensor, place: Tensor) -> Tensor:
        """Log weights of parent sets, given by nodes and columns of the table, (C, ...)."""
        return self._powered(self.scores.table[node, place]) + self.prior[node, place]

    def _powered(self, score: Tensor) -> Tensor:
        power = power_of(self.target)
        possible = torch.where(score > -math.inf, 0.0, -math.inf).to(score)
        return power * score if power else possible

    def levels(self, most: int) -> list[Tensor]:
        """Log sums over subsets of the first i candidates, at the power of the target.

        Arguments:
            most: Numbers that all levels may hold; else there are the first and the last alone.

        Returns:
            K + 1 tables, shape (d, 2^K); one where K is 0, and the first as the last then.
        """
        power = power_of(self.target)
        if self._known is None or self._known[0] != power:
            self._known = power, self._leveled(most)
        return self._known[1]

    def _leveled(self, most: int) -> list[Tensor]:
        first = self._powered(self.scores.table) + self.prior
        k = self.scores.candidates.shape[1]
        found, all_of_them = [first], (k + 1) * first.numel() <= most
        for i in range(k):
            last = found[-1].clone()
            halves = last.view(len(first), -1, 2, 2**i)
            halves[..., 1, :] = torch.logaddexp(halves[..., 1, :], halves[..., 0, :])
            found = [*found, last] if all_of_them else [first, last]
        return found

    def rows(self, node: Tensor) -> Tensor:
        """Log weights of all parent sets of a node of each chain, (C,) -> (C, 2^K)."""
        every = torch.arange(self.masks.shape[1], device=node.device)
        return self.at(node[:, None], every)

    def families(self, place: Tensor) -> Tensor:
        """Log weights of the parent sets that chains have, columns (C, d) -> (C, d)."""
        return self.at(torch.arange(self.d, device=place.device), place)
