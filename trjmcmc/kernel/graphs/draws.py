"""Graphs drawn from the posterior itself, where all can be summed."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...space.dag_draws import MOST_NODES, DagDraws
from ...target.target import Target
from ..base import Info, Kernel, Memo, State, accept
from .local import LocalWeights
from .orders import AT_ONCE, OrderDraws

AHEAD = 16

MOST_TRIES = 500  # orders for a graph, from which moves are better


class GraphDraws(Kernel):
    """Independent draws of graphs by sums over all of them.

    Each draw is independent of the one before. Up to twelve nodes they go layer by layer, up to
    twenty by orders of the nodes in normal form. Draws of several steps are made at once, which is
    cheaper; the state's memo holds those to come.

    Arguments:
        target: A target over :class:`~trjmcmc.graphs.Dags` with local scores, not tempered.
        ahead: Steps whose draws are made at once, at most: 512 chains of 11 nodes took 340 us a
            draw with 1, 34 with 16.
        name: Shown in tables.

    Attributes:
        draws: What they are drawn by.
        tries: Orders that a graph takes in the mean; 1 by layers.

    Raises:
        ConfigurationError: Other targets; more nodes; too many tries, as where edges are few.

    Source:
        Layers: Talvitie, Vuoksenmaa & Koivisto (2020),
        http://proceedings.mlr.press/v115/talvitie20a.html

    Example:
        >>> from trjmcmc import graphs
        >>> from trjmcmc.kernel import start
        >>> x = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
        >>> target = graphs.target(graphs.bge(x))
        >>> state = start(target, torch.zeros(4, 3, dtype=torch.long), torch.zeros(4, 0))
        >>> state, (info,) = GraphDraws(target).step(state, torch.Generator().manual_seed(0))
        >>> bool(info.accepted.all())
        True
    """

    between = True

    def __init__(self, target: Target, *, ahead: int = AHEAD, name: str = "graph draws") -> None:
        self._local = LocalWeights(target)
        self.target, self.ahead, self.name = target, ahead, name
        self.draws: DagDraws | OrderDraws
        if self._local.d <= MOST_NODES:
            self.draws = DagDraws(self._local.scores.full() + self._local.space.prior_table())
            self.tries = 1.0
            return
        self.draws = OrderDraws(self._local)
        self.tries = 1 / self.draws.rate if self.draws.rate else math.inf
        if self.tries > MOST_TRIES:
            raise ConfigurationError(
                f"graph draws: one draw in {self.tries:.0f} would be accepted, less than one in "
                f"{MOST_TRIES}; take LayerGibbs and EdgeReversal"
            )

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        code, memo = self._next(state, generator)
        log_joint = self.target.log_joint(code, state.theta)
        proposed = State(code, state.theta, log_joint)
        # 0 but for rounding
        log_ratio = log_joint - state.log_joint - (self._weight(code) - self._weight(state.code))
        state, infos = accept(self.name, state, proposed, log_ratio, generator)
        return state._replace(memo=memo), infos

    def _next(self, state: State, generator: torch.Generator) -> tuple[Tensor, Memo | None]:
        """The next draw of each chain, (C, d), and those after it."""
        (known,) = state.recall(self.draws) or (None,)
        if known is None:
            chains, d = state.code.shape
            ahead = max(1, min(self.ahead, int(AT_ONCE / (self.tries * chains))))
            known = self.draws.sample(ahead * chains, generator).view(chains, ahead, d)
        rest = known[:, 1:]
        return known[:, 0], Memo(self.draws, (rest,)) if rest.shape[1] else None

    def _weight(self, code: Tensor) -> Tensor:
        place, _ = self._local.scores.places(code)
        return self._local.families(place).sum(1)
