"""The kernel of a run over graphs: exact draws where all can be summed, else moves by tables."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import torch

from ..errors import ConfigurationError
from ..kernel.base import Kernel
from ..kernel.graphs.draws import GraphDraws
from .choice import Choice
from .choose_tempered import TemperedChooser
from .moves import graph_moves


class GraphChooser(TemperedChooser):
    """Chooses the kernel of a run over graphs whose likelihood is a table of local scores."""

    def _inside(self) -> list[Kernel]:
        return []  # graphs have no parameters

    def _choose(self) -> Choice:
        with suppress(ConfigurationError):  # too many nodes
            return self._draw(GraphDraws(self.target))
        tempered, bench = self._begin(), self.bench
        moves = graph_moves(tempered, self.policy.graphs)
        passage = self._carry(tempered, moves)
        for name, move in moves.items():
            self._offer(name, move)
        # segments are too short to tell modes apart, which layers cross
        best = {"layers", *self._leader()}
        moves = {name: bench.moves[name] for name in moves if name in best}
        bench.clear()
        found = self._settle(moves, self._by(1 - self.policy.counted.ladder_share))
        if not self._forgets_soon(found):
            self._climb(moves, passage)
        return self._chosen(self._leader())

    def _draw(self, kernel: GraphDraws) -> Choice:
        """Independent draws: the chains start at some."""
        bench = self.bench
        state, _ = kernel.step(bench.state, self.generator)
        bench.move_to(state, torch.arange(len(state.code), device=self.target.device))
        self.plan = replace(self.plan, weights={kernel.name: 1.0})
        return self._choice(kernel, None)
