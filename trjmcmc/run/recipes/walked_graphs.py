"""Graphs by tables of local scores where all of them are too many to sum."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...kernel.base import Kernel
from ...kernel.compose import Cycle
from ...target.target import Target
from ..moves import graph_moves
from ..plan import Plan
from .base import Known, Moves
from .cooled import CooledRecipe

WARM = 1  # steps of all moves at each power: on Sachs's 7466 rows three were no better

FEWER = 2  # a step is dear: with 256 chains ten times tau are an error of .01


class WalkedGraphsRecipe(CooledRecipe):
    """Blocks of nodes, layers, edges turned around, and neighbours, from draws of the prior on."""

    def __init__(
        self, target: Target, plan: Plan, generator: torch.Generator, **settings: Any
    ) -> None:
        super().__init__(target, replace(plan, warm=min(plan.warm, WARM)), generator, **settings)

    @cached_property
    def numbers(self) -> float:
        return max(1.0, float(self.target.space.n_items))  # scores are looked up

    @property
    def chains(self) -> int:
        planned = self.plan.groups * max(1, super().chains // FEWER // self.plan.groups)
        return max(planned, -(-(self.stated.chains or 0) // self.plan.groups) * self.plan.groups)

    def warm_kernel(self, target: Target) -> Kernel:
        return Cycle([*graph_moves(target).values()])

    @property
    def kinds(self) -> Tensor:
        """All chains cool down alike."""
        return torch.zeros(self.chains, dtype=torch.long)

    def moves(self, known: Known, generator: torch.Generator) -> Moves:
        return Moves(graph_moves(self.target), [])
