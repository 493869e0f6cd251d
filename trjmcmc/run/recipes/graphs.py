"""Graphs by tables of local scores: drawn from the posterior, or walked where all are too many."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from ...draws import Pool
from ...errors import ConfigurationError
from ...kernel.base import Kernel, State, start
from ...kernel.compose import Cycle
from ...kernel.graphs.draws import GraphDraws
from ...space.dags import Dags
from ...target.target import Target
from ..moves import graph_moves
from ..plan import Plan
from .base import Known, Moves, Recipe
from .cooled import CooledRecipe

MOST_SUMS = 5e8  # d^2 2^d of d nodes: twenty of these take eight seconds, and moves far longer

FIRST = 16  # steps of the first round: six thousand graphs tell every edge to .01

MOST_TRIES = 20.0  # orders for a graph, from which moves are measured instead

WARM = 1  # steps of all moves at each power: on Sachs's 7466 rows three were no better

FEWER = 2  # a step is dear: with 256 chains ten times tau are an error of .01


class GraphsRecipe(Recipe):
    """Each step draws anew: no graph owes anything to the one before."""

    exact = True

    def first(self, known: Known) -> int:
        return min(FIRST, self.plan.first)

    @cached_property
    def numbers(self) -> float:
        return max(1.0, float(self.target.space.n_items))  # scores are looked up

    @property
    def drawn(self) -> GraphDraws:
        """What draws the graphs; without one the target has another recipe."""
        found = self.target.cached(graph_draws)
        assert found is not None
        return found

    def begin(self) -> tuple[Known, State]:
        code = self.drawn.draws.sample(self.chains, self.generator)
        state = start(self.target, code, code.new_empty(len(code), 0).to(self.target.dtype))
        pool = Pool(state.code, state.theta, state.log_joint.double())
        return Known(pool, None, torch.zeros(self.plan.groups, dtype=torch.float64)), state

    def moves(self, known: Known, generator: torch.Generator) -> Moves:
        return Moves({self.drawn.name: self.drawn}, [])


def graph_draws(target: Target) -> GraphDraws | None:
    """Independent draws of graphs; None of other targets, and where they take long."""
    if target.scores is None or target.dim:
        return None
    nodes = len(cast("Dags", target.space).nodes)
    if nodes**2 * 2.0**nodes > MOST_SUMS:
        return None
    try:
        found = GraphDraws(target)
    except ConfigurationError:
        return None
    return found if found.tries <= MOST_TRIES else None


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
