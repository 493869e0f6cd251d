"""The kernel of a run over graphs: exact draws where all can be summed, else moves by tables."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import cast

import torch

from ..errors import ConfigurationError
from ..kernel.base import Kernel
from ..kernel.graphs.draws import GraphDraws
from ..space.dags import Dags
from .choice import Choice
from .choose_tempered import TemperedChooser
from .loop import first_of
from .moves import graph_moves


class GraphChooser(TemperedChooser):
    """Chooses the kernel of a run over graphs whose likelihood is a table of local scores."""

    resamples = False  # layers find their way, and few chains would be the parents of all

    def _inside(self) -> list[Kernel]:
        return []  # graphs have no parameters

    def _choose(self) -> Choice:
        with suppress(ConfigurationError):  # too many nodes
            return self._draw(GraphDraws(self.target))
        tempered, bench, space = self._begin(), self.bench, cast("Dags", self.target.space)
        if self.request.fewest_chains != self.request.most_chains:
            most = self.policy.graphs.pairs_a_step // len(space.nodes) ** 2
            n = max(self.policy.chains.least_of_components, most)
            bench.move_to(first_of(bench.state, n), bench.ancestor[:n])
        moves = graph_moves(tempered, self.policy.graphs)
        passage = self._carry(tempered, moves)
        for name, move in moves.items():
            self._offer(name, move)
        # segments are too short to tell modes apart, which layers and reversals cross
        best = {"layers", "edge reversal", *self._leader()}
        moves = {n: bench.moves.get(n, move) for n, move in moves.items() if n in best}
        bench.clear()
        found = self._settle(moves, self._by(1 - self.policy.counted.ladder_share))
        # replicas cost a dozen chains each: only where it is known that modes stay apart
        known = found.steps >= self.policy.graphs.telling_steps
        if known and found.memory > found.steps and space.draws_prior:
            self._climb(moves, passage)
        return self._chosen(self._leader())

    def _draw(self, kernel: GraphDraws) -> Choice:
        """Independent draws: the chains start at some."""
        bench = self.bench
        state, _ = kernel.step(bench.state, self.generator)
        bench.move_to(state, torch.arange(len(state.code), device=self.target.device))
        self.plan = replace(self.plan, weights={kernel.name: 1.0})
        return self._choice(kernel, None)
