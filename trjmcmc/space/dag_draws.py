r"""Independent draws of acyclic graphs, by tables of local weights.

A graph falls into layers: nodes without parents, then nodes whose parents are all in layers before
and one at least in the last of them, and so on. There is one way to do so, so that sums over layers
are sums over graphs, without signs, and layers can be drawn one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .dag_sums import below, sizes

MOST_NODES = 12  # whose sums over layers, 4^d, fit into memory

CELLS = 2**22  # numbers that a block of a sum may hold at once

CASES = 2**10  # places of which sets are drawn at once


Weigh = Callable[[Tensor], tuple[Tensor, Tensor]]  # states to log weights of sets, and these


class DagDraws:
    r"""Draws from all acyclic graphs in proportion to the product of their local weights.

    What may follow a set U of nodes, the last layer of which is R, weighs

    .. math:: W(U, R) = \sum_{\emptyset \ne T \subseteq V \setminus U} W(U \cup T, T)
        \prod_{j \in T} [F_j(U) - F_j(U \setminus R)],

    with F_j(U) the sum over the parent sets of j inside U.

    Arguments:
        table: Log weights of parent sets, shape (d, 2^d), float64; at most 12 nodes.

    Attributes:
        log_total: Log of the sum over all acyclic graphs.

    Source:
        Layers: Kuipers & Moffa (2017), https://doi.org/10.1080/01621459.2015.1133426; exact draws:
        Talvitie, Vuoksenmaa & Koivisto (2020), http://proceedings.mlr.press/v115/talvitie20a.html

    Example:
        >>> own = (torch.arange(8) >> torch.arange(3)[:, None]) & 1 == 1
        >>> draws = DagDraws(torch.zeros(3, 8).double().masked_fill(own, -math.inf))
        >>> round(math.exp(draws.log_total))
        25
        >>> draws.sample(1000, torch.Generator().manual_seed(0)).unique(dim=0).shape
        torch.Size([25, 3])
    """

    def __init__(self, table: Tensor) -> None:
        d, device = len(table), table.device
        self.table, self._inside = table.double(), below(table.double())
        self._after = torch.full((2**d, 2**d), -math.inf, dtype=torch.float64, device=device)
        self._after[-1] = 0.0
        of_size = sizes(d, device)
        for m in range(d - 1, 0, -1):
            for base in (of_size == m).nonzero()[:, 0].split(max(1, CELLS >> d)):
                last = _subsets(_bits(base, d, True))  # every set that may be the last layer
                rows = base[:, None].expand_as(last).flatten()
                weight, _ = self._next(rows, last.flatten())
                self._after[rows, last.flatten()] = weight.logsumexp(1)
        empty = torch.zeros(1, dtype=torch.long, device=device)
        self.log_total = float(self._next(empty, empty)[0].logsumexp(1)) if d else 0.0

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Parent masks, shape (n, d)."""
        d, device = len(self.table), self.table.device
        placed = torch.zeros(n, dtype=torch.long, device=device)
        last, masks = placed.clone(), torch.zeros(n, d, dtype=torch.long, device=device)
        for _ in range(d):
            going = (placed < 2**d - 1).nonzero()[:, 0]
            if not len(going):
                break
            layer = self._drawn_layer(placed[going], last[going], generator)
            member = (layer[:, None] >> torch.arange(d, device=device)) & 1
            row, node = member.nonzero().unbind(1)
            draw = going[row]
            masks[draw, node] = self._drawn_parents(node, placed[draw], last[draw], generator)
            placed[going] |= layer
            last[going] = layer
        return masks

    def _next(self, base: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """Log weights of the layers that may follow, (n, 2^(d - m)), and these."""
        absent = _bits(base, len(self.table), False)
        layer = torch.zeros_like(base)[:, None]
        weight = torch.zeros_like(layer, dtype=torch.float64)
        for j in absent.unbind(1):
            meets = self._meets(j, base, last)[:, None]
            layer = torch.cat([layer, layer | (1 << j)[:, None]], 1)
            weight = torch.cat([weight, weight + meets], 1)
        weight = weight + self._after[base[:, None] | layer, layer]
        weight[:, 0] = -math.inf  # a layer has nodes
        return weight, layer

    def _meets(self, node: Tensor, base: Tensor, last: Tensor) -> Tensor:
        """Log sum over the parent sets inside ``base`` that hold one of ``last``, (n,)."""
        every, others = self._inside[node, base], self._inside[node, base & ~last]
        # rounding of what is left out by far is harmless: the same graph has another layer for it
        share = -torch.expm1((others - every).nan_to_num(0.0).clamp(max=0))
        return torch.where(base == 0, every, every + share.log())

    def _drawn_parents(
        self, node: Tensor, base: Tensor, last: Tensor, generator: torch.Generator
    ) -> Tensor:
        def weigh(some: Tensor) -> tuple[Tensor, Tensor]:
            j, base, last = some.unbind(1)
            sets = _subsets(_bits(base, len(self.table), True))
            fits = ((sets & last[:, None]) != 0) | (base == 0)[:, None]
            return self.table[j[:, None], sets].masked_fill(~fits, -math.inf), sets

        return self._by_size(torch.stack([node, base, last], 1), base, weigh, generator)

    def _drawn_layer(self, base: Tensor, last: Tensor, generator: torch.Generator) -> Tensor:
        def weigh(some: Tensor) -> tuple[Tensor, Tensor]:
            return self._next(*some.unbind(1))

        return self._by_size(torch.stack([base, last], 1), base, weigh, generator)

    def _by_size(
        self, states: Tensor, base: Tensor, weigh: Weigh, generator: torch.Generator
    ) -> Tensor:
        """One set for each state (n, S), those with as many nodes in ``base`` together."""
        found, d = torch.zeros_like(base), len(self.table)
        of_size = sizes(d, base.device)[base]
        for m in of_size.unique().tolist():
            rows = (of_size == m).nonzero()[:, 0]
            found[rows] = _drawn(states[rows], d, weigh, generator)
        return found


def _drawn(states: Tensor, d: int, weigh: Weigh, generator: torch.Generator) -> Tensor:
    """One set for each state (n, S), by the weights of the different ones among them."""
    key = torch.zeros_like(states[:, 0])
    for column in states.unbind(1):
        key = (key << d) | column
    _, which = key.unique(return_inverse=True)
    order = which.argsort()
    first = torch.searchsorted(which[order], torch.arange(int(which.max()) + 1).to(which))
    cases = states[order[first]]
    u = torch.rand(len(which), generator=generator, device=which.device, dtype=torch.float64)
    found = torch.zeros_like(which)
    ends = torch.cat([first, first.new_tensor([len(which)])])
    for begin in range(0, len(cases), CASES):
        weight, sets = weigh(cases[begin : begin + CASES])
        rows = order[int(ends[begin]) : int(ends[begin + len(weight)])]
        total = weight.softmax(1).cumsum(1)
        row, width = which[rows] - begin, total.shape[1]
        steps = torch.arange(len(total), device=total.device)[:, None] + total.clamp(max=1)
        steps[:, -1] = torch.arange(1, len(total) + 1, device=total.device)
        place = torch.searchsorted(steps.flatten(), row + u[rows], right=True) - row * width
        found[rows] = sets[row, place.clamp(0, width - 1)]
    return found


def _bits(sets: Tensor, d: int, inside: bool) -> Tensor:
    """Nodes in sets of as many nodes, or not in them, (n,) -> (n, m)."""
    here = ((sets[:, None] >> torch.arange(d, device=sets.device)) & 1) == int(inside)
    return here.nonzero()[:, 1].view(len(sets), -1)


def _subsets(bits: Tensor) -> Tensor:
    """All sets of some nodes, (n, m) -> (n, 2^m)."""
    found = torch.zeros_like(bits[:, :1]) if bits.shape[1] else bits.new_zeros(len(bits), 1)
    for j in bits.unbind(1):
        found = torch.cat([found, found | (1 << j)[:, None]], 1)
    return found
