"""Graphs whose equations have parameters: new ones for the nodes whose parents change."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...grouping import on_host
from ...rng import categorical
from ...target.nodes import Nodes
from ...target.scores import LocalScores
from ...target.target import Target
from ..base import Info, Kernel, State, accept
from ..proposal.base import IndexProposal

CELLS = 2**23  # numbers of factors that are gathered at once


class Families:
    """A mixture of normals for the equation of each node given each of its parent sets.

    Arguments:
        nodes: The equations.
        scores: Log evidences of the families; -inf of those that have no mixture.
        index: Row of each family, shape (d, 2^(d - 1)); -1 where there is none.
        gap: Difference of independent estimates of each family's evidence, nats, shape (R,); 0
            where there is one.
        weight, mean, factor: Of the mixtures: shapes (R, k), (R, k, m) and (R, k, m, m), lower
            triangular; coordinates that a family does not use have mean zero, and are apart.

    Raises:
        ConfigurationError: Shapes do not fit.
    """

    def __init__(
        self,
        nodes: Nodes,
        scores: LocalScores,
        index: Tensor,
        weight: Tensor,
        mean: Tensor,
        factor: Tensor,
        gap: Tensor | None = None,
    ) -> None:
        rows, k, m = mean.shape
        if nodes.slots.shape[1] != m or factor.shape != (rows, k, m, m):
            raise ConfigurationError("families: means and factors are not of the nodes' slots")
        self.nodes, self.scores, self.index = nodes, scores, index
        self.gap = torch.zeros_like(mean[:, 0, 0]) if gap is None else gap
        self.log_shares, self.mean, self.factor = weight.log(), mean, factor
        eye = torch.eye(m, dtype=factor.dtype, device=factor.device).expand_as(factor)
        self._inverse = torch.linalg.solve_triangular(factor, eye, upper=False)
        log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        self._constant = self.log_shares - log_det

    def active(self, node: Tensor, place: Tensor) -> Tensor:
        """Coordinates that families use, (n,) -> (n, m)."""
        space = self.nodes.targets[0].space  # all nodes have their coordinates in the same order
        return space.active(self.nodes.subsets(place))

    def rows(self, node: Tensor, place: Tensor) -> Tensor:
        """Row of each family, (n,); -1 where there is none."""
        return self.index[node, place]

    def sample(self, row: Tensor, active: Tensor, generator: torch.Generator) -> Tensor:
        """Coordinates of families, (n, m), zero where they are not in use."""
        row = row.clamp(min=0)
        pick = categorical(self.log_shares[row].double(), generator)
        shape = (len(row), self.mean.shape[2], 1)
        noise = torch.randn(shape, generator=generator, device=row.device, dtype=self.mean.dtype)
        found = self.mean[row, pick] + (self.factor[row, pick] @ noise)[..., 0]
        return torch.where(active, found, 0.0)

    def log_prob(self, row: Tensor, active: Tensor, value: Tensor) -> Tensor:
        """Log densities of coordinates (n, m), float64, (n,); -inf of families without a row."""
        known, row = row >= 0, row.clamp(min=0)
        found = torch.empty(len(row), dtype=torch.float64, device=row.device)
        for rows, which in self._alike(row):
            z = self._whitened(value[rows], row[rows] if which is None else which)
            z = torch.where(active[rows][:, None], z, 0.0)
            each = self._constant[row[rows]] - 0.5 * z.square().sum(-1)
            found[rows] = each.double().logsumexp(1)
        found -= 0.5 * math.log(2 * math.pi) * active.sum(1)
        return torch.where(known, found, -math.inf)

    def _alike(self, row: Tensor) -> Iterator[tuple[Tensor, int | None]]:
        """Rows of (n,), those of a family together where families have many normals."""
        k, m = self.mean.shape[1:]
        if k == 1 or not on_host(row):
            size = max(1, CELLS // (k * m**2))
            for rows in torch.arange(len(row), device=row.device).split(size):
                yield rows, None
            return
        order, counts = row.argsort(), torch.bincount(row, minlength=len(self.mean))
        for which, rows in enumerate(order.split(counts.tolist())):
            if len(rows):
                yield rows, which

    def _whitened(self, value: Tensor, row: Tensor | int) -> Tensor:
        """Standard coordinates under each normal, (n, k, m)."""
        if isinstance(row, int):  # by one product
            k, m = self.mean.shape[1:]
            z = (value @ self._inverse[row].flatten(0, 1).T).view(-1, k, m)
            return z - (self._inverse[row] @ self.mean[row][..., None])[..., 0]
        return (self._inverse[row] @ (value[:, None] - self.mean[row])[..., None])[..., 0]

    def log_weight(
        self,
        node: Tensor,
        place: Tensor,
        value: Tensor,
        *,
        row: Tensor | None = None,
        each: int | None = None,
    ) -> Tensor:
        """Log joint of equations given their parents over the mixtures' density, float64, (n,).

        Arguments:
            node, place: Families, shape (n,).
            value: Coordinates, shape (n, m).
            row: Of the families, where that is known.
            each: Where all nodes follow each other, again and again: each so many times.

        -inf where the log joint is not finite, +inf of families without a mixture.
        """
        row = self.rows(node, place) if row is None else row
        found = torch.empty(len(value), dtype=torch.float64, device=value.device)
        d = len(self.nodes.targets)
        for j in range(d):
            if each is None:
                rows = (node == j).nonzero()[:, 0]
            else:
                rows = torch.arange(len(node), device=node.device).view(-1, d, each)[:, j].flatten()
            if len(rows):
                found[rows] = self.nodes.log_joint(j, place[rows], value[rows]).double()
        found = torch.where(found.abs() < math.inf, found, -math.inf)
        return found - self.log_prob(row, self.active(node, place), value)

    def tried(
        self,
        node: Tensor,
        place: Tensor,
        tries: int,
        generator: torch.Generator,
        in_turn: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Draws of families and their log weights, (n, tries, m) and (n, tries).

        Where all nodes follow each other, again and again, they are ``in_turn``.
        """
        n = len(node)
        node, place = node.repeat_interleave(tries), place.repeat_interleave(tries)
        row = self.rows(node, place)
        value = self.sample(row, self.active(node, place), generator)
        each = tries if in_turn else None
        weight = self.log_weight(node, place, value, row=row, each=each)
        return value.view(n, tries, value.shape[1]), weight.view(n, tries)


class FamilyJump(Kernel):
    r"""Another graph, with new parameters for the nodes whose parents it changes.

    Parameters of a node come from a mixture of normals for its new parents: of K draws one, in
    proportion to its weight w, posterior over mixture. Those of the other nodes stay. With K - 1
    further draws for the old parents, beside the parameters that are there,

    .. math:: \frac{p(G')}{p(G)} \frac{q(G | G')}{q(G' | G)}
        \prod_{j : P_j \ne P'_j} \frac{\sum_k w_j(\theta'_{jk} | P'_j)}
        {\sum_k w_j(\theta_{jk} | P_j)}.

    Arguments:
        target: A target whose likelihood is :class:`~trjmcmc.graphs.Equations`.
        families: The mixtures.
        proposal: Proposal of the next graph.
        tries: K.
        name: Shown in tables.

    Source:
        Several tries across models: Pandolfi, Bartolucci & Friel (2014),
        https://doi.org/10.1016/j.jspi.2014.03.005
    """

    between = within = True

    def __init__(
        self,
        target: Target,
        families: Families,
        proposal: IndexProposal,
        *,
        tries: int = 1,
        name: str = "families",
    ) -> None:
        self.target, self.families, self.proposal = target, families, proposal
        self.tries, self.name = tries, name

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        families, nodes = self.families, self.families.nodes
        code, log_ratio = self.proposal.propose(state.code, generator)
        changed, in_turn = code != state.code, not on_host(code)
        if in_turn:  # a device is not asked which nodes change
            every, d = torch.arange(code.numel(), device=code.device), code.shape[1]
            row, node = every // d, every % d
        else:
            row, node = changed.nonzero().unbind(1)
        at = row[:, None], nodes.slots[node]
        before, after = (nodes.places(masks)[row, node] for masks in (state.code, code))
        here, fresh = state.theta[at], changed[row, node]
        value, new, old = _several(
            families, node, before, after, here, self.tries, generator, in_turn
        )
        theta = state.theta.clone()
        theta[at] = torch.where(fresh[:, None], value, here)
        log_joint = self.target.log_joint(code, theta)
        prior = self.target.space.log_prior
        log_ratio = log_ratio.double() + (prior(code) - prior(state.code)).double()
        # what has no mixture is neither gone to nor left
        change = (new - old).nan_to_num(-math.inf, -math.inf, -math.inf)
        change = torch.where(fresh, change, 0.0)
        log_ratio = log_ratio.index_add(0, row, change)
        return accept(self.name, state, State(code, theta, log_joint), log_ratio, generator)


class FamilyRefresh(Kernel):
    """New parameters for each node by itself, from the mixture for its parents.

    Given the graph the posterior is a product over nodes: each accepts or rejects alone, as
    :class:`FamilyJump` does.

    Arguments:
        target: A target whose likelihood is :class:`~trjmcmc.graphs.Equations`.
        families: The mixtures.
        tries: Draws of which one is taken.
        name: Shown in tables.
    """

    within = True

    def __init__(
        self, target: Target, families: Families, *, tries: int = 1, name: str = "family refresh"
    ) -> None:
        self.target, self.families, self.tries, self.name = target, families, tries, name

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        families, nodes, code = self.families, self.families.nodes, state.code
        c, d = code.shape
        node = torch.arange(d, device=code.device).repeat(c)
        place = nodes.places(code).flatten()
        rows, slots = torch.arange(c, device=code.device)[:, None], nodes.slots.flatten()
        here = state.theta[rows, slots].view(c * d, -1)
        there, new, old = _several(families, node, place, place, here, self.tries, generator, True)
        log_ratio = (new - old).nan_to_num(-math.inf, -math.inf, -math.inf)
        u = torch.rand(c * d, generator=generator, device=code.device, dtype=torch.float64)
        taken = u.log() < log_ratio
        theta = state.theta.clone()
        theta[rows, slots] = torch.where(taken[:, None], there, here).view(c, -1)
        after = State(code, theta, self.target.log_joint(code, theta))
        rate = log_ratio.view(c, d).clamp(max=0).exp().mean(1).log()  # over the nodes
        return after, [Info(self.name, state, after, taken.view(c, d).any(1), rate)]


def _several(
    families: Families,
    node: Tensor,
    before: Tensor,
    after: Tensor,
    here: Tensor,
    tries: int,
    generator: torch.Generator,
    in_turn: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """One of several draws for new parents, and log sums of the weights there and here.

    Arguments:
        families: Mixtures to draw from.
        node: Nodes, shape (n,).
        before, after: Places of their parents, shape (n,).
        here: Coordinates so far, shape (n, m).
        tries: Number of draws.
        generator: Source of randomness.
        in_turn: Whether nodes are all, again and again.
    """
    value, new = families.tried(node, after, tries, generator, in_turn)
    pick = categorical(new, generator)
    value = value[torch.arange(len(value), device=pick.device), pick]
    old = families.log_weight(node, before, here, each=1 if in_turn else None)[:, None]
    if tries > 1:
        _, others = families.tried(node, before, tries - 1, generator, in_turn)
        old = torch.cat([old, others], 1)
    return value, new.logsumexp(1), old.logsumexp(1)
