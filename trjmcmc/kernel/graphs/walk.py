"""Edges added, deleted and turned around, weighed by tables of local scores."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...rng import categorical
from ...space.paths import adjacency, changes, reaches
from ...target.target import Target
from ..base import Info, Kernel, State, accept
from .local import LocalWeights

MOVES = 4  # edges that change one after the other, a step


class _Near(NamedTuple):
    """Neighbours of graphs, weighed.

    Attributes:
        log_weight: Of g(ratio) for flips and turns of each pair, (C, 2 d d); -inf where there is
            none.
        gain: Log ratio of each neighbour to the graph itself, (C, 2 d d).
    """

    log_weight: Tensor
    gain: Tensor


class GraphWalk(Kernel):
    r"""A neighbour of a graph (an edge more, less, or around), chosen by how probable it is.

    Neighbours are proposed in proportion to g(t), t their posterior probability over that of the
    graph, where g(t) = t / (1 + t): what is proposed is accepted nearly always, with the ratio of
    the sums of g around both.

    Arguments:
        target: A target over :class:`~trjmcmc.graphs.Dags` with local scores.
        moves: Neighbours one after the other, a step.
        name: Shown in tables.

    Raises:
        ConfigurationError: Other targets; no moves.

    Source:
        Zanella (2020), https://doi.org/10.1080/01621459.2019.1585255; neighbours: Madigan & York
        (1995), https://doi.org/10.2307/1403615

    Example:
        >>> from trjmcmc import graphs
        >>> from trjmcmc.kernel import start
        >>> x = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
        >>> target = graphs.target(graphs.bge(x))
        >>> state = start(target, torch.zeros(4, 3, dtype=torch.long), torch.zeros(4, 0))
        >>> state, infos = GraphWalk(target).step(state, torch.Generator().manual_seed(0))
        >>> len(infos)
        4
    """

    between = True

    def __init__(self, target: Target, *, moves: int = MOVES, name: str = "graph walk") -> None:
        if moves < 1:
            raise ConfigurationError(f"moves: expected 1 or more, got {moves}")
        self._local = LocalWeights(target)
        self.target, self.moves, self.name = target, moves, name
        d, k = self._local.scores.candidates.shape
        bit = torch.full((d, d), -1, dtype=torch.long, device=target.device)
        node = torch.arange(d, device=target.device)[:, None]
        bit[self._local.scores.candidates, node] = torch.arange(k, device=target.device)
        self._bit = bit  # of parent i among the candidates of j, (d, d); -1 if it is none

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        infos, near = list[Info](), self._near(state.code)
        for _ in range(self.moves):
            pick = categorical(near.log_weight, generator)
            code = self._moved(state.code, pick)
            there = self._near(code)
            log_ratio = near.log_weight.logsumexp(1) - there.log_weight.logsumexp(1)
            gain = near.gain.gather(1, pick[:, None])[:, 0]
            stuck = near.log_weight.amax(1) == -math.inf  # a single node, or all edges certain
            code = torch.where(stuck[:, None], state.code, code)
            log_joint = torch.where(stuck, state.log_joint, state.log_joint + gain)
            proposed = State(code, state.theta, log_joint.to(state.log_joint))
            state, (info,) = accept(
                self.name, state, proposed, torch.where(stuck, 0.0, log_ratio), generator
            )
            infos.append(info)
            moved = info.accepted[:, None]
            near = _Near(*(torch.where(moved, b, a) for a, b in zip(near, there, strict=True)))
        # sums of many gains would drift
        exact = self.target.log_joint(state.code, state.theta).to(state.log_joint)
        return state._replace(log_joint=exact), infos

    def _near(self, code: Tensor) -> _Near:
        d = code.shape[1]
        edges = adjacency(code)
        flip, turn = changes(edges, reaches(edges))
        place, _ = self._local.scores.places(code)
        node = torch.arange(d, device=code.device)
        known = self._bit >= 0
        flipped = place[:, None] ^ (known.long() << self._bit.clamp(min=0))  # (C, i, j)
        here = self._local.families(place)
        change = self._local.at(node[None, None].expand(1, d, d), flipped) - here[:, None]
        change = torch.where(known & ~change.isnan(), change, -math.inf)
        turned = change + change.transpose(1, 2)  # j loses i, i gains j
        gain = torch.cat([change.flatten(1), turned.flatten(1)], 1)
        real = torch.cat([flip.flatten(1), turn.flatten(1)], 1)
        log_weight = torch.nn.functional.logsigmoid(gain)
        return _Near(torch.where(real, log_weight, -math.inf), gain)

    def _moved(self, code: Tensor, pick: Tensor) -> Tensor:
        d, row = code.shape[1], torch.arange(len(code), device=code.device)
        turns, pair = pick >= d * d, pick % (d * d)
        i, j = pair // d, pair % d
        new = code.clone()
        new[row, j] ^= 1 << i
        new[row, i] ^= torch.where(turns, 1 << j, 0)
        return new
