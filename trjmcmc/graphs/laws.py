"""What data say of the parents of a node: Gaussian with and without known noise, discrete."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..target.scores import LocalScores


class Law(ABC):
    """Marginal likelihood of a node given its parents."""

    @abstractmethod
    def table(
        self, rows: Tensor, free: Tensor, candidates: Tensor, max_parents: int | None
    ) -> Tensor:
        """Scores of all parent sets of all nodes, shape (d, 2^K), nats.

        Arguments:
            rows: Data, shape (n, d).
            free: Where nodes were not set from outside, shape (n, d), bool.
            candidates: Nodes that may be parents of each, shape (d, K).
            max_parents: Most parents of a node; all if None.
        """


class LinearGaussian(Law):
    """Linear equations with normal noise: scores by determinants of a matrix of all columns."""

    @abstractmethod
    def scatter(self, rows: Tensor) -> Tensor:
        """What rows and prior say of products of columns, (n, d) -> (d, d)."""

    @abstractmethod
    def score(self, n: int, parents: Tensor, log_det: Tensor, with_node: Tensor) -> Tensor:
        """Scores by numbers of parents, and log determinants of parents, and of these and node."""

    @abstractmethod
    def variance(self, n: int, parents: int, rest: Tensor, rng: np.random.Generator) -> Tensor:
        """Draws of the noise variance of a node.

        Arguments:
            n: Rows that tell of it.
            parents: How many it has.
            rest: What of its own entry of :meth:`scatter` parents leave, shape (m,).
            rng: Random numbers.
        """

    def table(
        self, rows: Tensor, free: Tensor, candidates: Tensor, max_parents: int | None
    ) -> Tensor:
        k, same = candidates.shape[1], bool(free.all())
        whole = self.scatter(rows)
        table = torch.empty(len(candidates), 2**k, dtype=torch.float64)
        parents = log_dets(torch.eye(k, dtype=torch.float64) * math.e) if k else torch.zeros(1)
        parents = parents.round().double()  # log determinants of e I: how many there are
        for j, chosen in enumerate(candidates.tolist()):
            matrix = whole if same else self.scatter(rows[free[:, j]])
            order = torch.tensor([*chosen, j])
            log_det = log_dets(matrix[order][:, order])  # the node is the last bit
            n = len(rows) if same else int(free[:, j].sum())
            table[j] = self.score(n, parents, log_det[: 2**k], log_det[2**k :])
        if max_parents is not None:
            table[:, parents > max_parents] = -math.inf
        return table


@dataclass(frozen=True)
class Bge(LinearGaussian):
    """Normal-Wishart priors of all means and precisions; see :func:`~trjmcmc.graphs.bge`."""

    d: int
    alpha_mu: float
    alpha_w: float

    @property
    def t(self) -> float:
        """Scale of the Wishart prior."""
        return self.alpha_mu * (self.alpha_w - self.d - 1) / (self.alpha_mu + 1)

    def scatter(self, rows: Tensor) -> Tensor:
        n, mean = len(rows), rows.mean(0) if len(rows) else rows.new_zeros(self.d)
        gap = rows - mean
        return (
            self.t * torch.eye(self.d, dtype=torch.float64)
            + gap.T @ gap
            + n * self.alpha_mu / (n + self.alpha_mu) * mean[:, None] * mean
        )

    def score(self, n: int, parents: Tensor, log_det: Tensor, with_node: Tensor) -> Tensor:
        if not n:
            return torch.zeros_like(log_det)
        a = self.alpha_w - self.d + parents
        constant = 0.5 * math.log(self.alpha_mu / (n + self.alpha_mu)) - 0.5 * n * math.log(math.pi)
        found = constant + torch.lgamma((n + a + 1) / 2) - torch.lgamma((a + 1) / 2)
        found = found + (a + parents + 1) / 2 * math.log(self.t)
        return found + (n + a) / 2 * log_det - (n + a + 1) / 2 * with_node

    def variance(self, n: int, parents: int, rest: Tensor, rng: np.random.Generator) -> Tensor:
        """Inverse gamma draws: the covariance of node and parents is inverse Wishart."""
        shape = (n + self.alpha_w - self.d + parents + 1) / 2
        return rest / 2 / torch.from_numpy(rng.standard_gamma(shape, rest.shape))


@dataclass(frozen=True)
class Linear(LinearGaussian):
    """Normal weights, noise of known variance; see :func:`~trjmcmc.graphs.linear`."""

    noise: float
    weight_sd: float

    @property
    def ridge(self) -> float:
        """Rows of noise that the prior of a weight is worth."""
        return self.noise / self.weight_sd**2

    def scatter(self, rows: Tensor) -> Tensor:
        return rows.T @ rows + self.ridge * torch.eye(rows.shape[1], dtype=torch.float64)

    def score(self, n: int, parents: Tensor, log_det: Tensor, with_node: Tensor) -> Tensor:
        residual = (with_node - log_det).exp() - self.ridge
        log_volume = log_det - parents * math.log(self.ridge)
        constant = -0.5 * n * math.log(2 * math.pi * self.noise)
        return constant - 0.5 * log_volume - residual.clamp(min=0) / (2 * self.noise)

    def variance(self, n: int, parents: int, rest: Tensor, rng: np.random.Generator) -> Tensor:
        return torch.full_like(rest, self.noise)


@dataclass(frozen=True)
class Bdeu(Law):
    """Dirichlet priors of each row of a table; see :func:`~trjmcmc.graphs.bdeu`."""

    sample_size: float
    levels: tuple[int, ...]

    def table(
        self, rows: Tensor, free: Tensor, candidates: Tensor, max_parents: int | None
    ) -> Tensor:
        d, k = candidates.shape
        found = torch.full((d, 2**k), -math.inf, dtype=torch.float64)
        for j, others in enumerate(candidates.tolist()):
            mine = rows[free[:, j]].long()
            for place in range(2**k):
                parents = [i for b, i in enumerate(others) if place >> b & 1]
                if max_parents is None or len(parents) <= max_parents:
                    found[j, place] = self._dirichlet(mine, j, parents)
        return found

    def _dirichlet(self, rows: Tensor, j: int, parents: list[int]) -> Tensor:
        cell, levels = torch.zeros(len(rows), dtype=torch.long), self.levels
        configurations = 1
        for i in parents:
            cell, configurations = cell * levels[i] + rows[:, i], configurations * levels[i]
        _, cell = cell.unique(return_inverse=True)  # those without rows add nothing
        n = int(cell.max()) + 1 if len(cell) else 0
        counts = torch.bincount(cell * levels[j] + rows[:, j], minlength=n * levels[j])
        counts = counts.view(n, levels[j]).double()
        a = torch.tensor(self.sample_size / configurations, dtype=torch.float64)
        each = a / levels[j]
        found = torch.lgamma(a) - torch.lgamma(a + counts.sum(1))
        return found.sum() + (torch.lgamma(each + counts) - torch.lgamma(each)).sum()


@dataclass(frozen=True)
class Origin:
    """The data behind local scores, for scores of more of them and for weights of edges.

    Attributes:
        law: What scored them.
        rows: In the units in which they were scored, shape (n, d).
        free: Where nodes were not set from outside, shape (n, d), bool.
        centre, scale: What the user's columns were centred and divided by, shape (d,) each.
        max_parents: Most parents of a node.
    """

    law: Law
    rows: Tensor
    free: Tensor
    centre: Tensor
    scale: Tensor
    max_parents: int | None = None

    def scored(self, names: Sequence[str], candidates: Tensor) -> LocalScores:
        """The scores of these rows."""
        table = self.law.table(self.rows, self.free, candidates, self.max_parents)
        return LocalScores(names, table, candidates, origin=self)

    def scores_of(
        self, scores: LocalScores, rows: Tensor, free: Tensor, *, given: bool
    ) -> LocalScores:
        """Log densities of other rows in the user's units, (n, d), by parents as in ``scores``.

        Arguments:
            scores: Those made of these rows.
            rows: Other ones, in the user's units.
            free: Where their nodes were not set, shape (n, d), bool.
            given: Whether these rows are known, or only the prior is.
        """
        candidates, table = scores.candidates.cpu(), scores.table.cpu()
        new = (rows - self.centre) / self.scale
        if given:
            both = torch.cat([self.rows, new]), torch.cat([self.free, free])
            found = self.law.table(*both, candidates, self.max_parents)
            found = torch.where(table > -math.inf, found - table, -math.inf)
        else:
            found = self.law.table(new, free, candidates, self.max_parents)
        units = (free.double() * self.scale.log()).sum(0)
        return LocalScores(scores.names, found - units[:, None], candidates)


def log_dets(matrix: Tensor) -> Tensor:
    """Log determinants of all principal submatrices of (m, m), by bits of their rows, (2^m,)."""
    rest, found = matrix[None], torch.zeros(1, dtype=torch.float64)
    for _ in range(len(matrix)):
        pivot = rest[:, 0, 0].clamp(min=torch.finfo(torch.float64).tiny)
        row = rest[:, 0, 1:]
        with_it = rest[:, 1:, 1:] - row[:, :, None] * row[:, None] / pivot[:, None, None]
        found = torch.cat([found, found + pivot.log()])
        rest = torch.cat([rest[:, 1:, 1:], with_it])
    return found
