"""Every point of a tempered run, weighed to the posterior; nothing is thrown away."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..grouping import group_logsumexp
from .generation import Population, systematic

BESIDE = 8  # float32 numbers that are stored of a point beside its coordinates

ROW = 2**32  # distance between the numbers of two rows' ancestors: more than a row has


@dataclass(frozen=True)
class Particles:
    """Weighted draws from the posteriors of several models, every evaluated point among them.

    Points of all temperatures are weighted to the posterior by the mixture of all tempered
    densities; a rejected proposal counts by the probability that it had.

    Attributes:
        code: Models, shape (M, L). The same model may stand in several rows.
        row: Row of ``code`` that each point belongs to, ascending, shape (S,).
        theta: Padded coordinates, shape (S, D).
        log_joint: Log joint density, shape (S,), nats.
        log_weight: Log weight, normalised within each row, shape (S,).
        ancestor: The prior draw, of those of its row, that each point descends from, shape (S,).
        log_evidence: Log evidence of each row (p(model) not included), shape (M,), nats. A
            single run's own error bar is too small, so none is given; repeat rows instead.
        evaluations: Evaluations of the likelihood, gradients included.
    """

    code: Tensor
    row: Tensor
    theta: Tensor
    log_joint: Tensor
    log_weight: Tensor
    ancestor: Tensor
    log_evidence: Tensor
    evaluations: int

    def draw(self, row: Tensor, generator: torch.Generator) -> Tensor:
        """Indices of points drawn by weight from the given rows, (n,) -> (n,)."""
        edges = self.log_weight.exp().cumsum(0)
        ends = torch.bincount(self.row, minlength=len(self.code)).cumsum(0)
        starts = torch.cat([edges.new_zeros(1), edges[ends[:-1] - 1]])
        u = torch.rand(len(row), generator=generator, dtype=edges.dtype, device=edges.device)
        place = starts[row] + u * (edges[ends - 1] - starts)[row]
        found = torch.searchsorted(edges, place)
        first = torch.cat([ends.new_zeros(1), ends[:-1]])
        return torch.minimum(torch.maximum(found, first[row]), ends[row] - 1)

    @property
    def origin(self) -> Tensor:
        """The prior draw that each point descends from, as a number of its own, shape (S,)."""
        return self.row * ROW + self.ancestor


class Store:
    """The points of all temperatures, until they are weighed.

    Arguments:
        each: Most points that are kept of each row at a temperature.
        most_numbers: Numbers of all kept points beyond which every other point is dropped.
    """

    def __init__(self, each: int, most_numbers: float) -> None:
        self._each, self._most_numbers = each, most_numbers
        self._parts: list[_Stored] = []

    def put(self, now: Population, log_evidence: Tensor, generator: torch.Generator) -> None:
        """Put the points of a temperature aside, thinned where there are very many.

        Arguments:
            now: The points.
            log_evidence: Of each row at that temperature, shape (M,), nats.
            generator: Source of randomness.
        """
        weight, n = now.weight, now.weight.shape[1]
        index = torch.arange(n, device=weight.device).expand(len(weight), -1)
        share = weight
        if n > self._each:
            index = systematic(weight, self._each, generator)
            share = torch.full_like(index, 1 / self._each, dtype=weight.dtype)
        rows = torch.arange(len(weight), device=weight.device)[:, None].expand_as(index)
        used = (share > 0) & (now.log_likelihood.gather(1, index) > -math.inf)
        flat = now.theta.flatten(0, 1)
        where = (index + n * torch.arange(len(weight), device=index.device)[:, None])[used]
        self._parts.append(
            _Stored(
                rows[used],
                flat[where],
                now.log_prior.flatten()[where],
                now.log_likelihood.flatten()[where],
                share[used].log() + math.log(n),
                now.ancestor.gather(1, index)[used],
                now.temper[:, 0],
                log_evidence.clone(),
                n,
            )
        )
        numbers = flat.shape[1] + BESIDE
        if sum(len(s.row) for s in self._parts) * numbers > self._most_numbers:
            self._parts = [s.halved() for s in self._parts]
            self._each = max(1, self._each // 2)

    def weighed(
        self, code: Tensor, log_model: Tensor, log_evidence: Tensor, evaluations: int
    ) -> Particles:
        """The points of all temperatures, weighed to the posterior row by row.

        Arguments:
            code: Models, shape (M, L).
            log_model: Their log p(model), shape (M,), nats.
            log_evidence: Their log evidences, shape (M,), nats.
            evaluations: Of the likelihood, that it took.
        """
        row, theta, log_prior, log_likelihood, log_count, ancestor = (
            torch.cat([getattr(s, name) for s in self._parts])
            for name in ("row", "theta", "log_prior", "log_likelihood", "log_count", "ancestor")
        )
        mixture = torch.full_like(log_likelihood, -math.inf)
        for s in self._parts:  # log sum over temperatures of n L^beta / Z_beta
            offset = math.log(s.size) - s.log_evidence
            mixture = torch.logaddexp(mixture, s.temper[row] * log_likelihood + offset[row])
        log_weight = log_count + log_likelihood - mixture
        order = torch.argsort(row, stable=True)
        row, log_weight = row[order], log_weight[order]
        log_weight = log_weight - group_logsumexp(log_weight, row, len(code))[row]
        return Particles(
            code,
            row,
            theta[order],
            (log_prior + log_likelihood)[order] + log_model[row],
            log_weight,
            ancestor[order],
            log_evidence.clone(),
            evaluations,
        )


@dataclass(frozen=True)
class _Stored:
    """Points of one temperature: flat, with the number of draws that each stands for."""

    row: Tensor
    theta: Tensor
    log_prior: Tensor
    log_likelihood: Tensor
    log_count: Tensor
    ancestor: Tensor
    temper: Tensor
    log_evidence: Tensor
    size: int

    def halved(self) -> _Stored:
        """Every other point, each for two."""
        some = slice(None, None, 2)
        columns = self.row, self.theta, self.log_prior, self.log_likelihood
        row, theta, log_prior, log_likelihood = (x[some].clone() for x in columns)
        return replace(
            self,
            row=row,
            theta=theta,
            log_prior=log_prior,
            log_likelihood=log_likelihood,
            log_count=self.log_count[some] + math.log(2),
            ancestor=self.ancestor[some].clone(),
        )
