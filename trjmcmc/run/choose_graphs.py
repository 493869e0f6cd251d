"""The kernel of a run over graphs: exact draws where all can be summed, else moves by tables."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import cast

import torch

from ..errors import ConfigurationError
from ..kernel.base import Kernel
from ..kernel.compose import Cycle
from ..kernel.graphs.draws import GraphDraws
from ..space.dags import Dags
from .choice import Choice
from .choose_tempered import TemperedChooser
from .loop import first_of
from .moves import graph_moves

CROSSING = ("blocks", "layers")  # moves between far modes, for many edges and for few


class GraphChooser(TemperedChooser):
    """Chooses the kernel of a run over graphs whose likelihood is a table of local scores."""

    # blocks and layers find their way, and few chains would be the parents of all
    resamples = False

    def _inside(self) -> list[Kernel]:
        return []  # graphs have no parameters

    def _choose(self) -> Choice:
        space = cast("Dags", self.target.space)
        sums = len(space.nodes) ** 2 * 2.0 ** len(space.nodes) / self.policy.graphs.sums_a_second
        if sums < self.policy.graphs.sums_share * self.request.left():
            with suppress(ConfigurationError):  # too many nodes, or too few edges
                return self._draw(GraphDraws(self.target))
        return self._temper(space)

    def _temper(self, space: Dags) -> Choice:
        """Moves, from draws of the prior through powers of the likelihood."""
        tempered, bench = self._begin(), self.bench
        if self.request.fewest_chains != self.request.most_chains:
            most = self.policy.graphs.pairs_a_step // len(space.nodes) ** 2
            n = max(self.policy.chains.least_of_components, most)
            bench.move_to(first_of(bench.state, n), bench.ancestor[:n])
        moves = graph_moves(tempered, self.policy.graphs)
        passage = self._carry(tempered, moves)
        for name, move in moves.items():
            self._offer(name, move)
        # segments are too short to tell modes apart
        best = {*CROSSING, *self._leader()}
        moves = {n: bench.moves.get(n, move) for n, move in moves.items() if n in best}
        bench.clear()
        found = self._settle(moves, self._by(1 - self.policy.counted.ladder_share))
        # replicas cost a dozen chains each: only where it is known that modes stay apart
        known = found.steps >= self.policy.graphs.telling_steps
        if known and found.memory > found.steps and space.draws_prior:
            self._climb(moves, passage)
        return self._chosen(self._leader())

    def _draw(self, kernel: GraphDraws) -> Choice:
        """Independent draws; beside moves where they are rare, and the chains start at some."""
        bench, policy = self.bench, self.policy.graphs
        alone = kernel.tries <= policy.tries_alone
        if self.request.fewest_chains != self.request.most_chains:
            orders = policy.orders_a_step if alone else policy.orders_to_start
            n = max(policy.least_chains, int(orders / kernel.tries))
            bench.move_to(first_of(bench.state, n), bench.ancestor[:n])
        state, _ = kernel.step(bench.state, self.generator)
        bench.move_to(state, torch.arange(len(state.code), device=self.target.device))
        moves: dict[str, Kernel] = {}
        if not alone:
            every = graph_moves(self.target, policy)
            moves = {name: every[name] for name in CROSSING}
            kernel = kernel.with_orders(policy.orders_beside)
        moves[kernel.name] = kernel
        self.plan = replace(self.plan, weights={" + ".join(moves): 1.0})
        return self._choice(kernel if alone else Cycle(list(moves.values())), None)
