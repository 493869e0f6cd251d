"""Likelihoods of graphs that are a sum over nodes of a score of its parents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..errors import TargetError
from ..space.base import check_names

CHUNK = 10  # nodes whose part of a mask is looked up at once

MOST_FULL = 20  # nodes of which a table holds all parent sets


class LocalScores:
    r"""Log likelihood of a graph: a sum over its nodes of a score of the node's parents.

    It is a likelihood as :class:`~trjmcmc.Target` takes them, over :class:`~trjmcmc.graphs.Dags`
    with the same nodes in the same order. Runs know it when they see it, and move by its tables.

    Arguments:
        names: One name a node.
        table: Scores, shape (d, 2^K), nats: of node j with the parents in the bits of P, where
            bit k stands for its k-th candidate; -inf where that can't be.
        candidates: Nodes that may be parents of each, shape (d, K); all others, K = d - 1, in
            their order, if omitted.
        std_error: Of scores that are estimates, shape (d, 2^K), nats; None of those that are not.
        origin: What they were made of, where functions of :mod:`trjmcmc.graphs` made them; for
            :class:`~trjmcmc.graphs.GraphPosterior`.

    Attributes:
        left_out: Edges that no graph has, for their parents are no candidates, as pairs of names.

    Raises:
        TargetError: Shapes do not fit; a score is NaN or +inf; a node without parents has none.

    Example:
        >>> scores = LocalScores(["a", "b"], torch.tensor([[0.0, 1.0], [0.0, 2.0]]))
        >>> scores.of(torch.tensor([[0, 1]])).tolist()  # a -> b
        [2.0]
    """

    def __init__(
        self,
        names: Sequence[str],
        table: Any,
        candidates: Any = None,
        *,
        std_error: Any = None,
        origin: Any = None,
    ) -> None:
        self.names = [str(name) for name in names]
        check_names(self.names, "names of LocalScores")
        d = len(self.names)
        self.table, self.origin = torch.as_tensor(table).double(), origin
        if candidates is None:
            others = [[i for i in range(d) if i != j] for j in range(d)]
            self.candidates = torch.tensor(others, dtype=torch.long).reshape(d, d - 1)
        else:
            self.candidates = torch.as_tensor(candidates, dtype=torch.long)
        self.candidates = self.candidates.to(self.table.device)
        k = self.candidates.shape[1]
        if self.candidates.shape != (d, k) or self.table.shape != (d, 2**k):
            raise TargetError(
                f"LocalScores: expected a table of shape ({d}, 2^K) for K candidates of each of "
                f"{d} nodes, here K = {k}; got {tuple(self.table.shape)}"
            )
        self.std_error: Tensor | None = None
        if std_error is not None:
            self.std_error = torch.as_tensor(std_error).double()
            if self.std_error.shape != self.table.shape or not bool((self.std_error >= 0).all()):
                raise TargetError(
                    f"LocalScores: std_error: expected {tuple(self.table.shape)} numbers, none "
                    "negative"
                )
        own = self.candidates == torch.arange(d, device=self.candidates.device)[:, None]
        ranked = self.candidates.sort(1).values
        twice = (ranked[:, 1:] == ranked[:, :-1]).any() if k else False
        if bool(own.any()) or bool(twice) or bool(((ranked < 0) | (ranked >= d)).any()):
            raise TargetError(
                "LocalScores: candidates: expected other nodes for each node, each of them once"
            )
        if bool((self.table.isnan() | (self.table == math.inf)).any()):
            raise TargetError("LocalScores: table: NaN or +inf; -inf says that it can't be")
        if bool((self.table[:, 0] == -math.inf).any()):
            raise TargetError("LocalScores: table: a node without parents has to be possible")

    def __repr__(self) -> str:
        return f"LocalScores({len(self.names)} nodes, {self.candidates.shape[1]} candidates each)"

    @property
    def left_out(self) -> list[tuple[str, str]]:
        d = len(self.names)
        allowed = torch.eye(d, dtype=torch.bool)
        allowed[torch.arange(d)[:, None], self.candidates.cpu()] = True
        return [(self.names[i], self.names[j]) for j, i in (~allowed).nonzero().tolist()]

    def to(self, device: Any) -> LocalScores:
        """The same on another device; itself where it is there."""
        if torch.device(device) == self.table.device:
            return self
        error = None if self.std_error is None else self.std_error.to(device)
        moved = self.table.to(device), self.candidates.to(device)
        return LocalScores(self.names, *moved, std_error=error, origin=self.origin)

    def drawn(self, generator: torch.Generator) -> LocalScores:
        """Scores that could as well have been found, by their errors."""
        if self.std_error is None:
            return self
        noise = torch.randn(self.table.shape, generator=generator, dtype=torch.float64)
        table = self.table + self.std_error * noise.to(self.table.device)
        return LocalScores(self.names, table, self.candidates)

    # ---- evaluation ---------------------------------------------------------------------------

    def __call__(self, params: dict[str, Tensor], active: Tensor) -> Tensor:
        """Scores of graphs, edges (C, d (d - 1)) in the order of ``trj.graphs.Dags`` -> (C,)."""
        masks = (active.long() * self._parent_bits).view(len(active), len(self.names), -1).sum(2)
        return self.of(masks)

    def of(self, masks: Tensor) -> Tensor:
        """Scores of graphs, parent masks (C, d) -> (C,), float64; -inf with other parents."""
        return self.by_node(masks).sum(1)

    def by_node(self, masks: Tensor) -> Tensor:
        """Scores of the nodes, parent masks (C, d) -> (C, d), float64."""
        place, known = self.places(masks)
        node = torch.arange(len(self.names), device=masks.device)
        return torch.where(known, self.table[node, place], -math.inf)

    def places(self, masks: Tensor) -> tuple[Tensor, Tensor]:
        """Columns of the table for parent masks (C, d), and whether there are such, (C, d) each."""
        node = torch.arange(len(self.names), device=masks.device)
        return self.place(node, masks), (masks & ~self._known) == 0

    def place(self, node: Tensor, masks: Tensor) -> Tensor:
        """Columns of the candidates of nodes in masks, which broadcast; the others are left out."""
        found = self._packed[0][node, masks & (2**CHUNK - 1)]
        for c, table in enumerate(self._packed[1:], 1):
            found = found + table[node, (masks >> (c * CHUNK)) & (2**CHUNK - 1)]
        return found

    @cached_property
    def _parent_bits(self) -> Tensor:
        """The bit of the parent of each edge, in the order of :class:`~trjmcmc.graphs.Dags`."""
        d = len(self.names)
        others = [i for j in range(d) for i in range(d) if i != j]
        return 1 << torch.tensor(others, dtype=torch.long, device=self.table.device)

    @cached_property
    def _known(self) -> Tensor:
        """Masks of the candidates, (d,)."""
        return (1 << self.candidates).sum(1)

    @cached_property
    def _packed(self) -> Tensor:
        """What each part of a mask adds to a column, (chunks, d, 2^CHUNK)."""
        d, k = self.candidates.shape
        chunks, device = -(-d // CHUNK), self.candidates.device
        bits = torch.zeros(d, chunks * CHUNK, dtype=torch.long, device=device)
        bits.scatter_(1, self.candidates, (1 << torch.arange(k, device=device)).expand(d, -1))
        found = torch.zeros(chunks, d, 2**CHUNK, dtype=torch.long, device=device)
        part = torch.arange(2**CHUNK, device=device)
        for b in range(CHUNK):
            found += ((part >> b) & 1) * bits.view(d, chunks, CHUNK)[:, :, b].T[..., None]
        return found

    def masks(self, places: Tensor) -> Tensor:
        """Parent masks of columns of the table, (C, d) -> (C, d)."""
        k = torch.arange(self.candidates.shape[1], device=places.device)
        return (((places[..., None] >> k) & 1) << self.candidates).sum(-1)

    def full(self) -> Tensor:
        """Scores by masks of all nodes, shape (d, 2^d), -inf where there is none.

        Raises:
            TargetError: There are more than 20 nodes.
        """
        d = len(self.names)
        if d > MOST_FULL:
            raise TargetError(f"LocalScores: a table of all parent sets of {d} nodes is too large")
        found = self.table.new_full((d, 2**d), -math.inf)
        every = torch.arange(self.table.shape[1], device=self.table.device)
        for j in range(d):
            found[j, self.masks(every[:, None].expand(-1, d))[:, j]] = self.table[j]
        return found
