"""Acyclic graphs with an order of their nodes, whose codes are drawn place by place."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from ..errors import TargetError, UnknownModelError
from ..rng import categorical
from .base import Space, check_enumerable
from .dag_sums import below, order_sums, sizes
from .dags import MOST_SUMMED, Dags
from .node_orders import (
    lehmer_of_order,
    log_order,
    masks_of_triangle,
    order_of_lehmer,
    random_order,
    triangle_of,
    upper_pairs,
)

CELLS = 2**22  # numbers that a block of parent sets may hold at once


class OrderedDags(Space):
    r"""All acyclic graphs, each with an order of its nodes in which parents come first.

    A model is a row of (d - 1) + d (d - 1) / 2 integers: the Lehmer code of the order, then a bit
    for each pair of places, whether the earlier node is a parent of the later. All such rows are
    graphs, so that a network can draw them place by place (:class:`~trjmcmc.weights.Made`): it is
    the space of variational inference over graphs.

    A graph has as many codes as its partial order has linear extensions. With
    ``prior="graphs"`` the prior of a code is that of the graph times the probability of the order
    given the graph,

    .. math:: p(\pi, G) = p(G) \prod_t 1 / n_t,

    where n_t nodes may come t-th after those before: graphs have the probabilities of ``dags``,
    and so does their posterior. With ``prior="orders"`` every code has the weight of its graph:
    graphs count once for each of their orders, as in the source.

    Arguments:
        dags: The graphs, their parameters and their prior.
        prior: ``"graphs"`` or ``"orders"``.

    Raises:
        TargetError: Another prior; by orders more than 15 nodes, where edges are required,
            forbidden or have odds.

    Source:
        Davies et al., "Variational transdimensional inference", section 5.2 and appendix G

    Example:
        >>> space = OrderedDags(Dags(["a", "b"]))
        >>> space.label(space.enumerate())
        ['(empty) [a, b]', 'a->b [a, b]', '(empty) [b, a]', 'b->a [b, a]']
        >>> (3 * space.log_prior(space.enumerate()).exp()).tolist()
        [0.5, 1.0, 0.5, 1.0]
    """

    orders = True
    size: int
    _levels: Tensor

    def __init__(self, dags: Dags, *, prior: str = "graphs") -> None:
        super().__init__()
        if prior not in ("graphs", "orders"):
            raise TargetError(f'prior of OrderedDags: expected "graphs" or "orders", got {prior!r}')
        d = len(dags.nodes)
        if prior == "orders" and not dags.symmetric and d > MOST_SUMMED:
            raise TargetError(
                f'OrderedDags: prior="orders" knows up to {MOST_SUMMED} nodes where edges are '
                'treated differently; use prior="graphs"'
            )
        self.dags, self.prior = dags, prior
        self.names, self.kinds, self.n_items = dags.names, dags.kinds, dags.n_items
        self.context_width = dags.context_width
        self.code_width = max(0, d - 1) + d * (d - 1) // 2
        self.size = math.factorial(d) * 2 ** (d * (d - 1) // 2)
        levels = [*range(d, 1, -1), *[2] * (d * (d - 1) // 2)]
        self.register_buffer("_levels", torch.tensor(levels, dtype=torch.long))
        if hasattr(dags, "slot_item"):
            self.register_buffer("slot_item", dags.slot_item)

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes."""
        return self.dags.nodes

    @property
    def few(self) -> bool:
        """Never: codes of one graph are not worth an answer each."""
        return False

    # ---- codes --------------------------------------------------------------------------------

    def order(self, code: Tensor) -> Tensor:
        """Nodes by place, (C, L) -> (C, d)."""
        return order_of_lehmer(code[:, : len(self.nodes) - 1])

    def masks(self, code: Tensor) -> Tensor:
        """Parent masks of the graphs, (C, L) -> (C, d): their codes in ``dags``."""
        return self._graph(code, self.order(code))

    def _graph(self, code: Tensor, order: Tensor) -> Tensor:
        return masks_of_triangle(order, code[:, len(self.nodes) - 1 :])

    def log_order(self, code: Tensor) -> Tensor:
        """Log probability of the order given the graph, (C, L) -> (C,), nats."""
        order = self.order(code)
        return log_order(self._graph(code, order), order)

    def code(self, masks: Tensor, order: Tensor) -> Tensor:
        """Codes (C, L) of graphs, parent masks (C, d), with orders (C, d) in which parents come
        first."""
        return torch.cat([lehmer_of_order(order), triangle_of(order, masks)], 1)

    def with_random_order(self, masks: Tensor, generator: torch.Generator) -> Tensor:
        """Codes of graphs, parent masks (C, d), with orders drawn given these."""
        return self.code(masks, random_order(masks, generator))

    # ---- what every space answers ---------------------------------------------------------------

    def items(self, code: Tensor) -> Tensor:
        return self.dags.items(self.masks(code))

    def context(self, code: Tensor) -> Tensor:
        return self.dags.context(self.masks(code))

    def log_prior(self, code: Tensor) -> Tensor:
        order = self.order(code)
        masks = self._graph(code, order)
        weight = self.dags.log_weight(masks).double()
        if self.prior == "orders":
            return weight - self._log_total
        return weight + log_order(masks, order) - self.dags.log_total

    @cached_property
    def _log_total(self) -> float:
        """Log of what all codes weigh together, by orders."""
        d = len(self.nodes)
        if not self.dags.symmetric:
            return order_sums(self.dags.prior_table()).log_total
        of_place = [float(self._by_number[: t + 1, t].logsumexp(0)) for t in range(d)]
        return math.lgamma(d + 1) + sum(of_place)

    @cached_property
    def _by_number(self) -> Tensor:
        """Log weight of k parents among t nodes before, all choices together, (d, d) by k, t."""
        d = len(self.nodes)
        k, t = torch.meshgrid(torch.arange(d), torch.arange(d), indexing="ij")
        k, t = k.double(), t.double()
        ways = torch.lgamma(t + 1) - torch.lgamma(k + 1) - torch.lgamma((t - k).clamp(0) + 1)
        found = ways + self.dags.by_parents.cpu().double()[:d, None]
        return torch.where(k <= t, found, -math.inf)

    def sample_prior(self, n: int, generator: torch.Generator) -> Tensor:
        if self.prior == "graphs":
            return self.with_random_order(self.dags.sample_prior(n, generator), generator)
        if not self.dags.symmetric:
            return self._by_sums(n, generator)
        d, device = len(self.nodes), self._levels.device
        order = torch.rand(n, d, generator=generator, device=device).argsort(1)
        log_p = self._by_number.to(device).T[None].expand(n, -1, -1)
        number = categorical(log_p.flatten(0, 1), generator).view(n, d)
        noise = torch.rand(n, d, d, generator=generator, device=device)  # (place, earlier place)
        earlier = torch.ones(d, d, dtype=torch.bool, device=device).tril(-1)
        rank = torch.where(earlier, noise, 2.0).argsort(2).argsort(2)
        bits = (earlier & (rank < number[..., None])).long()
        s, t = upper_pairs(d, device)
        return torch.cat([lehmer_of_order(order), bits[:, t, s]], 1)

    def _by_sums(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws where edges are treated differently: the last node first, then its parents."""
        d, device = len(self.nodes), self._levels.device
        table = self.dags.prior_table()
        inside, node = below(table), torch.arange(d, device=device)
        before = inside.new_full((2**d,), -math.inf)
        before[0] = 0.0
        of_size = sizes(d, device)
        for m in range(1, d + 1):
            sets = (of_size == m).nonzero()[:, 0]
            before[sets] = self._last(sets, before, inside).logsumexp(1)
        left = torch.full((n,), 2**d - 1, device=device)
        order, masks = left.new_zeros(n, d), left.new_zeros(n, d)
        every = torch.arange(2**d, device=device)
        for t in range(d - 1, -1, -1):
            j = categorical(self._last(left, before, inside), generator)
            left, order[:, t] = left & ~(1 << node[j]), j
            for part in torch.arange(n, device=device).split(max(1, CELLS >> d)):
                fits = (every & ~left[part, None]) == 0
                log_p = torch.where(fits, table[j[part]], -math.inf)
                masks[part, j[part]] = categorical(log_p, generator)
        return self.code(masks, order)

    def _last(self, sets: Tensor, before: Tensor, inside: Tensor) -> Tensor:
        """Log weight of each node being the last of a set, (n, d)."""
        node = torch.arange(len(self.nodes), device=sets.device)
        fewer = sets[:, None] & ~(1 << node)
        return (before[fewer] + inside[node, fewer]).masked_fill(fewer == sets[:, None], -math.inf)

    def largest(self, n: int, generator: torch.Generator) -> Tensor:
        """Random orders with all the edges that are allowed."""
        d, device = len(self.nodes), self._levels.device
        order = torch.rand(n, d, generator=generator, device=device).argsort(1)
        place = order.argsort(1)
        edges = (place[:, :, None] < place[:, None]).long()  # from earlier to later nodes
        node = torch.arange(d, device=device)
        return self.code((edges << node[:, None]).sum(1) & self.dags.may, order)

    def label(self, code: Tensor) -> list[str]:
        order = self.order(code)
        orders = [", ".join(self.nodes[i] for i in row) for row in order.tolist()]
        graphs = self.dags.label(self._graph(code, order))
        return [f"{graph} [{nodes}]" for graph, nodes in zip(graphs, orders, strict=True)]

    def code_of(self, model: Any) -> Tensor:
        """The code of a label, "a->b [a, b]", or of a graph as :class:`~trjmcmc.graphs.Dags` takes
        it and a sequence of names."""
        graph, order = model, None
        if isinstance(model, str) and model.rstrip().endswith("]"):
            graph, _, names = model.rstrip()[:-1].rpartition("[")
            order = [name.strip() for name in names.split(",")]
        elif isinstance(model, tuple) and len(model) == 2 and not isinstance(model[1], str):
            graph, order = model
        every = Dags(self.nodes)  # those that the prior excludes have codes too
        masks = every.code_of(graph)[None].to(self._levels.device)
        if order is None or sorted(order) != sorted(self.nodes):
            raise UnknownModelError(
                f"no graph with an order {model!r}: expected a label such as 'a->b [a, b]', or a "
                f"graph and a sequence of the names {self.nodes}"
            )
        places = torch.tensor([[self.nodes.index(name) for name in order]]).to(masks)
        if bool(log_order(masks, places)[0] == -math.inf):
            raise UnknownModelError(f"no graph with an order {model!r}: parents have to come first")
        return self.code(masks, places)[0]

    def enumerate(self) -> Tensor:
        check_enumerable(self)
        number = torch.arange(self.size, device=self._levels.device)
        return (number[:, None] // self._radix) % self._levels

    def index(self, code: Tensor) -> Tensor:
        return (code * self._radix).sum(1)

    @property
    def _radix(self) -> Tensor:
        return self._levels.flip(0).cumprod(0).flip(0) // self._levels

    def neighbours(self, code: Tensor) -> tuple[Tensor, Tensor]:
        """One edge of the order more or less, or two nodes next to each other change places.

        An edge between these turns around.
        """
        c, n = len(code), self.code_width
        every = torch.arange(n, device=code.device).repeat(c)
        near = self._changed(code.repeat_interleave(n, 0), every)
        return near.view(c, n, n), torch.ones(c, n, dtype=torch.bool, device=code.device)

    def random_neighbour(
        self, code: Tensor, generator: torch.Generator, *, swap: float = 0.0
    ) -> Tensor:
        n, shape = self.code_width, (len(code),)
        if not n:
            return code
        which = torch.randint(n, shape, generator=generator, device=code.device)
        return self._changed(code, which)

    def _changed(self, code: Tensor, which: Tensor) -> Tensor:
        """Codes after the change of that number each: first the swaps, then the bits."""
        d, row = len(self.nodes), torch.arange(len(code), device=code.device)
        if not self.code_width:
            return code
        swaps = which < d - 1
        bit = torch.where(swaps, d - 1, which)
        flipped = code.scatter(1, bit[:, None], 1 - code.gather(1, bit[:, None]))
        place = torch.where(swaps, which, 0)
        order = self.order(code)
        turned = order.clone()
        turned[row, place], turned[row, place + 1] = order[row, place + 1], order[row, place]
        # edges belong to nodes, but for the one between the two, which stays with their places
        s, t = upper_pairs(d, code.device)
        square = code.new_zeros(len(code), d, d)
        square[:, s, t] = code[:, d - 1 :]
        moved = torch.arange(d, device=code.device).expand(len(code), d).clone()
        moved[row, place], moved[row, place + 1] = place + 1, place
        other = square[row[:, None, None], moved[:, :, None], moved[:, None]]
        other[row, place, place + 1] = square[row, place, place + 1]
        swapped = torch.cat([lehmer_of_order(turned), other[:, s, t]], 1)
        return torch.where(swaps[:, None], swapped, flipped)

    def levels(self) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(self._levels), self._levels

    def certain(self) -> tuple[Tensor, Tensor]:
        return self.dags.certain()

    def bind(self, slot_item: Tensor) -> Space:
        return OrderedDags(cast("Dags", self.dags.bind(slot_item)), prior=self.prior)

    def spec(self) -> dict[str, Any]:
        return {"kind": "OrderedDags", "dags": self.dags.spec(), "prior": self.prior}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Space:
        return cls(cast("Dags", Dags.from_spec(spec["dags"])), prior=spec["prior"])
