"""Graphs by tables of local scores where all of them are too many to sum."""

from __future__ import annotations

import torch
from torch import Tensor

from ...kernel.base import Kernel
from ...kernel.compose import Cycle
from ...target.target import Target
from ..moves import graph_moves
from ..policy_of_graphs import GraphPolicy
from .base import Known, Moves
from .cooled import Cooled

NUMBERS = GraphPolicy()


class WalkedGraphs(Cooled):
    """Blocks of nodes, layers, edges turned around, and neighbours, from draws of the prior on."""

    def warm_kernel(self, target: Target) -> Kernel:
        return Cycle([*graph_moves(target, NUMBERS).values()])

    @property
    def starts(self) -> Tensor:
        """All chains cool down alike."""
        return torch.zeros(self.chains, dtype=torch.long)

    def _climbed(self, code: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        return code, theta  # no graph has a gradient

    def moves(self, known: Known, generator: torch.Generator) -> Moves:
        return Moves(graph_moves(self.target, NUMBERS), [])

    def asked(self, code: Tensor) -> Tensor:
        """Whether each edge is there."""
        return self.host.items(code.flatten(0, 1)).double().view(*code.shape[:2], -1)
