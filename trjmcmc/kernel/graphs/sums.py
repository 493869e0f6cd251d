"""Sums over the parent sets of a node inside a set of nodes, and draws of such parents."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...grouping import on_host
from ...rng import categorical
from .local import LocalWeights

SMALL_SHARE = 1e-6  # of a sum: less is added up anew, for a difference would be rounding

CELLS = 2**22  # weights that are looked at at once

MOST_NUMBERS = 2**26  # of the tables by which parents are drawn; else all sets are weighed


class ParentSums:
    r"""Parent sets by tables: of node j with P inside a set U, perhaps with one of T among them.

    Level i of a table holds the log sums over all subsets of the first i candidates in a set,
    while later ones are there or not as in the set. The last level is the sum; a draw goes back
    from it, candidate by candidate.

    Arguments:
        local: The weights.

    Attributes:
        by_tables: Whether parents are drawn by tables; where these would be too large, all sets are
            weighed each time.
    """

    def __init__(self, local: LocalWeights) -> None:
        self.local, self._levels = local, local.levels(MOST_NUMBERS)
        k = local.scores.candidates.shape[1]
        self.by_tables = len(self._levels) == 1 + k > 1

    def inside(self, node: Tensor, masks: Tensor) -> Tensor:
        """Log sums over the parent sets inside masks, nodes and masks (C, ...), float64."""
        return self.at(node, self.local.scores.place(node, masks))

    def at(self, node: Tensor, place: Tensor) -> Tensor:
        """:meth:`inside` by columns of the table."""
        return self._levels[-1][node, place]

    def share(self, node: Tensor, masks: Tensor, among: Tensor) -> tuple[Tensor, Tensor]:
        """:meth:`inside`, and which share of it has one of ``among``."""
        every, others = self.inside(node, masks), self.inside(node, masks & ~among)
        gap = (others - every).nan_to_num(0.0, -math.inf, -math.inf)
        return every, -torch.expm1(gap.clamp(max=0.0))

    def meeting(self, node: Tensor, masks: Tensor, among: Tensor) -> Tensor:
        """Log sums over the parent sets inside masks that have one of ``among``, (C,)."""
        every, share = self.share(node, masks, among)
        found = every + share.log()
        rows = ((share < SMALL_SHARE) & (every > -math.inf)).nonzero()[:, 0]
        if len(rows):
            weight = self._weighed(node[rows], masks[rows], among[rows])
            found[rows] = weight.logsumexp(1)
        return found

    def sample(
        self, node: Tensor, masks: Tensor, generator: torch.Generator, among: Tensor | None = None
    ) -> Tensor:
        """Parents inside masks, with one of ``among`` where that is given and not empty.

        All of shape (C, ...); masks of parents. Arguments as of :meth:`inside`.
        """
        if not self.by_tables:
            everywhere = torch.ones_like(masks, dtype=torch.bool)
            found = self._by_weight(everywhere, node, masks, among, generator)[1]
            return found.view_as(masks)
        place = self.local.scores.place(node, masks)
        none = torch.zeros_like(place)
        need = none if among is None else self.local.scores.place(node, among & masks)
        still = none.bool() if among is None else among != 0  # without one of them so far
        k = len(self._levels) - 1
        u = torch.rand(
            (k, *place.shape), generator=generator, device=place.device, dtype=torch.float64
        )
        for i in reversed(range(k)):
            on, off = place, place & ~(1 << i)
            needed, low = (need >> i) & 1 == 1, need & ((1 << i) - 1)
            log_on = self._open(i, node, on, low, still & ~needed)
            log_off = self._open(i, node, off, low, still)
            taken = (on != off) & (u[i].log() < log_on - torch.logaddexp(log_on, log_off))
            place, still = torch.where(taken, on, off), still & ~(taken & needed)
        found = self.local.masks[node, place]
        if bool(still.any()):  # rounding has kept them apart: all sets are weighed
            at, found_anew = self._by_weight(still, node, masks, among, generator)
            found[at] = found_anew
        return found

    def _open(self, i: int, node: Tensor, place: Tensor, need: Tensor, still: Tensor) -> Tensor:
        """Log sums of a level, less those without any of ``need`` where one is still needed."""
        every = self._levels[i][node, place]
        if on_host(still) and not bool(still.any()):
            return every
        others = self._levels[i][node, place & ~need]
        gap = (others - every).nan_to_num(0.0, -math.inf, -math.inf).clamp(max=0.0)
        return torch.where(still, every + (-torch.expm1(gap)).log(), every)

    def _weighed(self, node: Tensor, masks: Tensor, among: Tensor | None) -> Tensor:
        """Log weights of all parent sets of nodes, (r,) -> (r, 2^K), -inf if unfit."""
        sets = self.local.masks[node]
        fits = (sets & ~masks[:, None]) == 0
        if among is not None:
            fits &= ((sets & among[:, None]) != 0) | (among == 0)[:, None]
        return self._levels[0][node].masked_fill(~fits, -math.inf)

    def _by_weight(
        self,
        where: Tensor,
        node: Tensor,
        masks: Tensor,
        among: Tensor | None,
        generator: torch.Generator,
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """Where (C, ...) parents are drawn among all sets, and what is drawn there."""
        at = where.nonzero().unbind(1)
        node, masks = node[at], masks[at]
        among = None if among is None else among[at]
        found = torch.empty_like(masks)
        size = max(1, CELLS // self.local.masks.shape[1])
        for rows in torch.arange(len(node), device=node.device).split(size):
            some = None if among is None else among[rows]
            weight = self._weighed(node[rows], masks[rows], some)
            found[rows] = self.local.masks[node[rows], categorical(weight, generator)]
        return at, found
