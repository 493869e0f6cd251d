"""Graphs drawn from the posterior itself, where all can be summed."""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...space.dag_draws import MOST_NODES, DagDraws
from ...target.target import Target
from ..base import Info, Kernel, Memo, State, accept
from .local import LocalWeights

AHEAD = 16


class GraphDraws(Kernel):
    """Independent draws of graphs by sums over all of them, layer by layer.

    Up to twelve nodes: then no draw owes anything to the one before. Draws of several steps are
    made at once, which is cheaper; the state's memo holds those to come.

    Arguments:
        target: A target over :class:`~trjmcmc.Dags` with local scores, not tempered.
        ahead: Steps whose draws are made at once: 512 chains of 11 nodes took 340 us a draw with
            1, 34 with 16.
        name: Shown in tables.

    Raises:
        ConfigurationError: Other targets, or more nodes.

    Source:
        Talvitie, Vuoksenmaa & Koivisto (2020), http://proceedings.mlr.press/v115/talvitie20a.html

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
        if self._local.d > MOST_NODES:
            raise ConfigurationError(
                f"graph draws: all graphs on {self._local.d} nodes are too many to sum; at most "
                f"{MOST_NODES} nodes"
            )
        self.target, self.ahead, self.name = target, ahead, name
        self._draws = DagDraws(self._local.scores.full() + self._local.space.prior_table())

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        code, rest = self._next(state, generator)
        log_joint = self.target.log_joint(code, state.theta)
        proposed = State(code, state.theta, log_joint)
        # 0 but for rounding
        log_ratio = log_joint - state.log_joint - (self._weight(code) - self._weight(state.code))
        state, infos = accept(self.name, state, proposed, log_ratio, generator)
        return state._replace(memo=Memo(self._draws, (rest,)) if rest.shape[1] else None), infos

    def _next(self, state: State, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The next draw of each chain, (C, d), and those after it, (C, k, d)."""
        (known,) = state.recall(self._draws) or (None,)
        if known is None:
            chains, d = state.code.shape
            known = self._draws.sample(self.ahead * chains, generator).view(chains, -1, d)
        return known[:, 0], known[:, 1:]

    def _weight(self, code: Tensor) -> Tensor:
        place, _ = self._local.scores.places(code)
        return self._local.families(place).sum(1)
