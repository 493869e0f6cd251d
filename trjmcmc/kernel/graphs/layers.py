"""Graphs by their layers: nodes move between layers, parents are drawn afresh."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...grouping import on_host
from ...rng import categorical
from ...target.target import Target
from ..base import Info, Kernel, State, accept
from .local import LocalWeights
from .sums import ParentSums

LEAST_SHARE = 1e-11  # of the parent sets of a node that reach its layer: less is rounding


class LayerGibbs(Kernel):
    r"""Nodes drawn to other layers one after the other, then all parents given the layers.

    The first layer of a graph are nodes without parents; those of a later one have all parents in
    layers before it, and one at least in the last of them. Every graph has one such partition, so
    that a partition weighs the product over nodes of :math:`F_j(U) - F_j(U \setminus T)`, with U
    the nodes before j's layer, T the last layer of them, and F_j(U) the sum over j's parent sets
    inside U. A node goes to a layer, or one of its own between two, in proportion to what the
    partitions weigh: nothing is rejected.

    Arguments:
        target: A target over :class:`~trjmcmc.graphs.Dags` with local scores.
        moves: Nodes that move, a step; as many as there are if omitted.
        name: Shown in tables.

    Raises:
        ConfigurationError: Other targets.

    Source:
        Partitions: Kuipers & Moffa (2017), https://doi.org/10.1080/01621459.2015.1133426

    Example:
        >>> from trjmcmc import graphs
        >>> from trjmcmc.kernel import start
        >>> x = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
        >>> target = graphs.target(graphs.bge(x))
        >>> state = start(target, torch.zeros(4, 3, dtype=torch.long), torch.zeros(4, 0))
        >>> state, (info,) = LayerGibbs(target).step(state, torch.Generator().manual_seed(0))
        >>> bool(info.accepted.all())
        True
    """

    between = True

    def __init__(self, target: Target, *, moves: int | None = None, name: str = "layers") -> None:
        self._local = local = LocalWeights(target)
        self.target, self.name = target, name
        self.moves = local.d if moves is None else moves
        self._node = torch.arange(local.d, device=target.device)

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        sums, layers = ParentSums(self._local), layers_of(state.code)
        for _ in range(self.moves):
            layers = self._moved(layers, sums, generator)
        code = self._graphs(layers, sums, generator)
        log_joint = self.target.log_joint(code, state.theta)
        proposed = State(code, state.theta, log_joint)
        return accept(self.name, state, proposed, torch.zeros_like(log_joint).double(), generator)

    # ---- weights ------------------------------------------------------------------------------

    def _weight(self, before: Tensor, every: Tensor, others: Tensor) -> Tensor:
        """Log weights of nodes: log sums over their parent sets, less those of a farther layer.

        Arguments:
            before: Whether there are nodes before their layers.
            every: Log sums inside these nodes.
            others: Inside those that are not in the last layer.
        """
        gap = (others - every).nan_to_num(0.0, -math.inf, -math.inf).clamp(max=0.0)
        share = -torch.expm1(gap)
        share = torch.where(share > LEAST_SHARE, share, 0.0)
        return torch.where(before, every + share.log(), every)

    # ---- moves --------------------------------------------------------------------------------

    def _moved(self, layers: Tensor, sums: ParentSums, generator: torch.Generator) -> Tensor:
        """A node of each chain in another layer, masks (C, d) -> (C, d)."""
        (c, d), device = layers.shape, layers.device
        node = torch.randint(0, d, (c, 1), generator=generator, device=device)
        rest, weight = self._options(layers, node, sums)
        stuck = weight.amax(1, keepdim=True) == -math.inf
        pick = categorical(weight, generator)[:, None]
        return torch.where(stuck, layers, self._placed(rest, node, pick))

    def _placed(self, rest: Tensor, node: Tensor, pick: Tensor) -> Tensor:
        """Layers with nodes (C, 1) at their options."""
        d, bit = rest.shape[1], 1 << node
        place, apart, at = pick % (d + 1), pick > d, torch.arange(d, device=rest.device)
        joined = rest | torch.where(at == place, bit, 0)
        shifted = torch.nn.functional.pad(rest[:, :-1], (1, 0))
        inserted = torch.where(at < place, rest, torch.where(at == place, bit, shifted))
        return torch.where(apart, inserted, joined)

    def _options(self, layers: Tensor, node: Tensor, sums: ParentSums) -> tuple[Tensor, Tensor]:
        """Layers without a node, (C, 1), and log weights of them with it, (C, 2 d + 2).

        In each of the layers, d + 1, then in one of its own before each.
        """
        bit = 1 << node
        rest = layers & ~bit
        rest = rest.gather(1, (rest == 0).long().argsort(dim=1, stable=True))
        c, d = rest.shape
        number = (rest != 0).sum(1, keepdim=True)
        most = int(number.max()) + 1 if on_host(number) else d  # layers that may be with the node
        rest_of = rest[:, :most]
        before = torch.nn.functional.pad(rest_of.cumsum(1), (1, 0))  # each layer, (C, most + 1)
        last = torch.nn.functional.pad(rest_of, (1, 0))
        at = torch.arange(most + 1, device=rest.device)
        level = (((rest_of[:, :, None] >> self._node) & 1) * at[:most, None]).sum(1)
        every, there = self._node.expand_as(rest), self._node != node
        place = self._local.scores.place
        u, t = place(every, before.gather(1, level)), place(every, last.gather(1, level))
        x = place(every, bit.expand_as(rest))
        here, far = sums.at(every, u), sums.at(every, u - t)
        more, beyond = sums.at(every, u + x), sums.at(every, u + x - t)

        def by_layer(weight: Tensor) -> Tensor:
            weight = torch.where(there, weight, 0.0)
            found = torch.zeros(c, most + 3, dtype=weight.dtype, device=weight.device)
            return found.scatter_add(1, level, weight)

        some = level > 0
        as_it_is = by_layer(self._weight(some, here, far))
        further = by_layer(self._weight(some, more, beyond))  # before, not in the last layer
        beside = by_layer(self._weight(some, more, far))  # in the last layer, with others
        behind = by_layer(self._weight(torch.ones_like(some), more, here))  # by itself
        first = torch.nn.functional.pad(as_it_is.cumsum(1), (1, 0))  # of layers before
        later = further.flip(1).cumsum(1).flip(1)  # of this and later ones
        own = node.expand_as(before)
        sums_of = (sums.inside(own, masks) for masks in (before, before & ~last))
        own = self._weight(before != 0, *sums_of)
        joined = first[:, 1 : most + 2] + beside[:, 1 : most + 2] + later[:, 2 : most + 3] + own
        inserted = first[:, : most + 1] + behind[:, : most + 1] + later[:, 1 : most + 2] + own
        weight = torch.full((c, 2, d + 1), -math.inf, dtype=own.dtype, device=own.device)
        weight[:, 0, : most + 1] = torch.where(at < number, joined, -math.inf)
        weight[:, 1, : most + 1] = torch.where(at <= number, inserted, -math.inf)
        return rest, weight.nan_to_num(-math.inf, -math.inf, -math.inf).flatten(1)

    def _graphs(self, layers: Tensor, sums: ParentSums, generator: torch.Generator) -> Tensor:
        """Parents of all nodes given the layers, masks (C, d)."""
        before = torch.nn.functional.pad(layers.cumsum(1), (1, 0))
        last = torch.nn.functional.pad(layers, (1, 0))
        level = ((layers[:, :, None] >> self._node) & 1).argmax(1)
        u, t = before.gather(1, level), last.gather(1, level)
        return sums.sample(self._node.expand_as(layers), u, generator, t)


def layers_of(code: Tensor) -> Tensor:
    """Masks of the layers of graphs, parent masks (C, d) -> (C, d), 0 beyond the last one.

    Example:
        >>> layers_of(torch.tensor([[0, 1, 0]])).tolist()  # 0 -> 1, and 2
        [[5, 2, 0]]
    """
    node = torch.arange(code.shape[1], device=code.device)
    placed, found = torch.zeros_like(code[:, :1]), []
    for _ in range(code.shape[1]):
        ready = ((code & ~placed) == 0) & (((placed >> node) & 1) == 0)
        layer = (ready.long() << node).sum(1, keepdim=True)
        found.append(layer)
        placed = placed | layer
    return torch.cat(found, 1)
