"""All parents of a node anew: Gibbs steps, and the reversal of an edge with all parents."""

from __future__ import annotations

import math

import torch

from ...rng import categorical
from ...space.paths import adjacency, below
from ...target.target import Target
from ..base import Info, Kernel, State, accept
from .local import LocalWeights
from .sums import ParentSums


class ParentGibbs(Kernel):
    """New parents of a node, drawn given the rest of the graph: all sets without descendants.

    Arguments:
        target: A target over :class:`~trjmcmc.graphs.Dags` with local scores.
        name: Shown in tables.

    Raises:
        ConfigurationError: Other targets.

    Source:
        Goudie & Mukherjee (2016), http://jmlr.org/papers/v17/14-486.html

    Example:
        >>> from trjmcmc import graphs
        >>> from trjmcmc.kernel import start
        >>> x = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
        >>> target = graphs.target(graphs.bge(x))
        >>> state = start(target, torch.zeros(4, 3, dtype=torch.long), torch.zeros(4, 0))
        >>> state, (info,) = ParentGibbs(target).step(state, torch.Generator().manual_seed(0))
        >>> bool(info.accepted.all())
        True
    """

    between = True

    def __init__(self, target: Target, *, name: str = "parent sets") -> None:
        self._local = LocalWeights(target)
        self.target, self.name = target, name

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        local, code = self._local, state.code
        node = torch.randint(0, local.d, (len(code),), generator=generator, device=code.device)
        sums = ParentSums(local)
        parents = sums.sample(node, ~below(code, 1 << node), generator)
        new = code.scatter(1, node[:, None], parents[:, None])
        log_joint = self.target.log_joint(new, state.theta)
        proposed = State(new, state.theta, log_joint)
        return accept(self.name, state, proposed, torch.zeros_like(log_joint), generator)


class EdgeReversal(Kernel):
    r"""An edge turned around, with new parents for both of its nodes.

    An edge from i to j is picked, both lose all parents, i takes parents among which j is, then j
    takes others; of all sets that close no cycle, in proportion to their weights. With E edges
    and Z the sums of weights that were drawn from, there and back,

    .. math:: \frac{E}{E'} \frac{Z^*_i Z_j}{Z^*_j Z_i}.

    Arguments:
        target: A target over :class:`~trjmcmc.graphs.Dags` with local scores.
        name: Shown in tables.

    Raises:
        ConfigurationError: Other targets.

    Source:
        Grzegorczyk & Husmeier (2008), https://doi.org/10.1007/s10994-008-5057-7

    Example:
        >>> from trjmcmc import graphs
        >>> from trjmcmc.kernel import start
        >>> x = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
        >>> target = graphs.target(graphs.bge(x))
        >>> code = target.space.code_of("x0->x1, x1->x2").repeat(4, 1)
        >>> state = start(target, code, torch.zeros(4, 0))
        >>> state, (info,) = EdgeReversal(target).step(state, torch.Generator().manual_seed(0))
        >>> bool((info.proposed.code != code).any(1).all())
        True
    """

    between = True

    def __init__(self, target: Target, *, name: str = "edge reversal") -> None:
        self._local = LocalWeights(target)
        self.target, self.name = target, name

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        local, code, d = self._local, state.code, state.code.shape[1]
        edges = adjacency(code)
        number = edges.sum((1, 2))
        none = number == 0
        weight = torch.where(edges, 0.0, -math.inf).flatten(1)
        pick = categorical(weight.double(), generator)
        i, j = pick // d, pick % d
        orphaned = code.scatter(1, i[:, None], 0).scatter(1, j[:, None], 0)
        sums, bit_i, bit_j = ParentSums(local), 1 << i, 1 << j
        # there: parents of i with j among them, then of j
        free = ~below(orphaned, bit_i)
        first = sums.meeting(i, free, bit_j)
        parents = sums.sample(i, free, generator, bit_j)
        half = orphaned.scatter(1, i[:, None], parents[:, None])
        free = ~below(half, bit_j)
        second = sums.inside(j, free)
        parents = sums.sample(j, free, generator)
        new = half.scatter(1, j[:, None], parents[:, None])
        # back: parents of j with i among them, then of i
        before = sums.meeting(j, ~below(orphaned, bit_j), bit_i)
        half = orphaned.scatter(1, j[:, None], code.gather(1, j[:, None]))
        after = sums.inside(i, ~below(half, bit_i))
        log_ratio = number.double().log() - adjacency(new).sum((1, 2)).double().log()
        log_ratio = log_ratio + first + second - before - after
        stuck = none | (first == -math.inf)  # j is no candidate of i
        new = torch.where(stuck[:, None], code, new)
        log_joint = self.target.log_joint(new, state.theta)
        proposed = State(new, state.theta, log_joint)
        return accept(self.name, state, proposed, log_ratio.masked_fill(stuck, 0.0), generator)
