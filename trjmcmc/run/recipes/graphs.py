"""Graphs that are drawn from the posterior itself, by sums over all of them."""

from __future__ import annotations

from functools import cached_property
from typing import cast

import torch

from ...draws import Pool
from ...errors import ConfigurationError
from ...kernel.base import State, start
from ...kernel.graphs.draws import GraphDraws
from ...space.dags import Dags
from ...target.target import Target
from .base import Known, Moves, Recipe

MOST_SUMS = 5e8  # d^2 2^d of d nodes: twenty of these take eight seconds, and moves far longer

FIRST = 16  # steps of the first round: six thousand graphs tell every edge to .01

MOST_TRIES = 20.0  # orders for a graph, from which moves are measured instead


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
