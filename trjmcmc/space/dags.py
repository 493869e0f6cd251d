"""Acyclic directed graphs: each model says which nodes are parents of which."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from ..errors import TargetError, UnknownModelError
from .base import Kind, Space, check_enumerable, check_names, listing
from .dag_draws import MOST_NODES as MOST_DRAWN
from .dag_draws import DagDraws
from .dag_gibbs import gibbs_draws
from .dag_prior import PRIORS, DagPrior, SizeDraws
from .dag_sums import graph_sums, sizes
from .paths import MOST_NODES, acyclic, adjacency, changes, masks_of, reaches

MOST_LISTED = 5  # nodes of which all graphs, 29 281, are listed

MOST_SUMMED = 15  # nodes of which all graphs are summed, where a prior treats edges differently

Edge = tuple[str, str]


class Dags(Space):
    """All acyclic directed graphs on some nodes: Bayesian networks, structural equations.

    A model is a row of d integers: bit i of entry j says that node i is a parent of node j. The
    items are the edges, d (d - 1) of them, in the order of the child, then of the parent.

    Arguments:
        names: One name a node, at most 63.
        of: The parameter, or parameters, of which each edge has its own entry; none where a score
            has integrated them out.
        prior: ``"uniform"``, ``"fair"``, ``"erdos-renyi"``, ``"scale-free"``, or what
            :mod:`trjmcmc.graphs` makes of its settings.
        edge_odds: Prior odds that multiply the weight of a graph for each edge from i to j that
            it has, shape (d, d); 1 is neutral.
        required, forbidden: Edges that every graph has, or none, as pairs of names.
        max_parents: Most parents of a node.

    Attributes:
        nodes: Names of the nodes.
        normalised: Whether :meth:`log_prior` is. Where edges are treated differently and nodes
            are many it is not: evidences of single graphs are then up to a constant.

    Raises:
        TargetError: Names repeat, hold ``->`` or a comma, or are too many; the required edges
            close a cycle, are forbidden, or are too many parents.

    Example:
        >>> space = Dags(["rain", "sprinkler", "wet"], required=[("rain", "wet")])
        >>> space.size, space.label(space.code_of("rain->wet, sprinkler->wet")[None])
        (8, ['rain->wet, sprinkler->wet'])
    """

    graphs = True
    by_parents: Tensor
    edge_log_odds: Tensor
    must: Tensor
    may: Tensor
    parent_of: Tensor
    child_of: Tensor

    def __init__(
        self,
        names: Sequence[str],
        of: str | Sequence[str] = (),
        *,
        prior: str | DagPrior = "uniform",
        edge_odds: Any = None,
        required: Iterable[Edge] = (),
        forbidden: Iterable[Edge] = (),
        max_parents: int | None = None,
    ) -> None:
        super().__init__()
        if isinstance(names, str | int):
            raise TargetError(f"names of Dags: expected one name a node, got {names!r}")
        self.nodes = [str(name) for name in names]
        check_names(self.nodes, "names of Dags")
        if bad := [name for name in self.nodes if "->" in name or "," in name]:
            raise TargetError(f"names of Dags: {bad} hold '->' or ',', which stand in labels")
        d = len(self.nodes)
        if d > MOST_NODES:
            raise TargetError(
                f"names of Dags: {d} nodes; at most {MOST_NODES} fit into the bits of a code"
            )
        pairs = [(i, j) for j in range(d) for i in range(d) if i != j]
        self.names = [f"{self.nodes[i]}->{self.nodes[j]}" for i, j in pairs]
        self.code_width, self.n_items = d, len(pairs)
        own = (of,) if isinstance(of, str) else tuple(of)
        self.kinds = (Kind("edges", 0, self.n_items, own),)
        self.context_width = max(1, self.n_items)
        place = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)
        self.register_buffer("parent_of", place[:, 0].clone())
        self.register_buffer("child_of", place[:, 1].clone())
        if isinstance(prior, str) and prior not in PRIORS:
            raise TargetError(f"prior of Dags: expected one of {sorted(PRIORS)}, got {prior!r}")
        law = PRIORS[prior]() if isinstance(prior, str) else prior
        if not isinstance(law, DagPrior):
            raise TargetError(f"prior of Dags: expected a name or a DagPrior, got {prior!r}")
        weight = law.table(d)
        most = d - 1 if max_parents is None else int(max_parents)
        if most < 0:
            raise TargetError(f"max_parents of Dags: expected 0 or more, got {max_parents}")
        weight[most + 1 :] = -math.inf
        self.prior_name = law.name
        self.register_buffer("by_parents", weight)
        self.register_buffer("edge_log_odds", self._log_odds(edge_odds))
        self._uneven = bool(self.edge_log_odds.any())
        must, never = self._edges(required, "required"), self._edges(forbidden, "forbidden")
        never |= self.edge_log_odds == -math.inf
        self._check(must, never, most)
        self.register_buffer("must", masks_of(must[None])[0])
        self.register_buffer("may", masks_of(~(never | torch.eye(d, dtype=torch.bool))[None])[0])
        self.size = self._counted()

    # ---- what is given ------------------------------------------------------------------------

    def _log_odds(self, odds: Any) -> Tensor:
        d = len(self.nodes)
        if odds is None:
            return torch.zeros(d, d, dtype=torch.float64)
        found = torch.as_tensor(odds, dtype=torch.float64)
        if found.shape != (d, d) or not bool((found >= 0).all()) or bool(found.isinf().any()):
            raise TargetError(
                f"edge_odds of Dags: expected ({d}, {d}) finite numbers, none below 0, got "
                f"{tuple(found.shape)}"
            )
        return found.log().fill_diagonal_(0.0)

    def _edges(self, pairs: Iterable[Edge], argument: str) -> Tensor:
        found = torch.zeros(len(self.nodes), len(self.nodes), dtype=torch.bool)
        for pair in pairs:
            if isinstance(pair, str) or len(tuple(pair)) != 2:
                raise TargetError(f"{argument} of Dags: expected pairs of names, got {pair!r}")
            i, j = (str(name) for name in pair)
            if unknown := [name for name in (i, j) if name not in self.nodes]:
                raise TargetError(f"{argument} of Dags: {unknown} are not among the names")
            if i == j:
                raise TargetError(f"{argument} of Dags: {i!r} can't be its own parent")
            found[self.nodes.index(i), self.nodes.index(j)] = True
        return found

    def _check(self, must: Tensor, never: Tensor, most: int) -> None:
        def named(edges: Tensor) -> str:
            return ", ".join(f"{self.nodes[i]}->{self.nodes[j]}" for i, j in edges.nonzero())

        if bool((must & never).any()):
            raise TargetError(f"required of Dags: {named(must & never)} are forbidden too")
        closed = must & reaches(must).T
        if bool(closed.any()):
            raise TargetError(f"required of Dags: {named(closed)} close a cycle")
        if bool((must.sum(0) > most).any()):
            crowded = [self.nodes[int(j)] for j in (must.sum(0) > most).nonzero()[:, 0]]
            raise TargetError(f"required of Dags: {crowded} have more than {most} parents")

    @property
    def symmetric(self) -> bool:
        """Whether the prior asks for numbers of parents alone."""
        d = len(self.nodes)
        every = masks_of(~torch.eye(d, dtype=torch.bool)[None])[0].to(self.may.device)
        free = bool((self.must == 0).all()) and bool((self.may == every).all())
        return free and not self._uneven

    def _counted(self) -> int | None:
        d = len(self.nodes)
        if self.symmetric and bool((self.by_parents > -math.inf).all()):
            count = [1]  # Robinson (1973)
            for n in range(1, d + 1):
                count.append(
                    sum(
                        (-1) ** (k + 1) * math.comb(n, k) * 2 ** (k * (n - k)) * count[n - k]
                        for k in range(1, n + 1)
                    )
                )
            return count[d]
        if d > MOST_SUMMED:
            return None
        table = self.prior_table()
        log_number = graph_sums(torch.where(table > -math.inf, 0.0, table)).log_total
        return round(math.exp(log_number)) if log_number < 34 else None  # while float64 is exact

    def prior_table(self) -> Tensor:
        """Log weights that the prior gives each node's parent sets, shape (d, 2^d), float64."""
        d, device = len(self.nodes), self.must.device
        sets = torch.arange(2**d, device=device)
        table = self.by_parents.double()[sizes(d, device).clamp(max=d - 1)].expand(d, -1).clone()
        odds = torch.where(self.edge_log_odds > -math.inf, self.edge_log_odds, 0.0)
        for i in range(d):
            table += ((sets >> i) & 1) * odds[i, :, None]
        fits = ((sets & ~self.may[:, None]) == 0) & ((~sets & self.must[:, None]) == 0)
        return table.masked_fill(~fits, -math.inf)

    @cached_property
    def log_total(self) -> float:
        """Log of what all graphs weigh together; 0 where it is not known."""
        if self.symmetric:
            return self._size_draws.log_total
        return graph_sums(self.prior_table()).log_total if self.normalised else 0.0

    @cached_property
    def _size_draws(self) -> SizeDraws:
        return SizeDraws(self.by_parents)

    @cached_property
    def _draws(self) -> DagDraws:
        return DagDraws(self.prior_table())

    @property
    def normalised(self) -> bool:
        """Whether the constant of the prior is known."""
        return self.symmetric or len(self.nodes) <= MOST_SUMMED

    def bare(self) -> Dags:
        """The same graphs with the same prior, without parameters."""
        found = Dags.from_spec(self.spec() | {"of": [], "slot_item": torch.zeros(0).long()})
        return cast("Dags", found)

    # ---- models -------------------------------------------------------------------------------

    def items(self, code: Tensor) -> Tensor:
        return ((code[:, self.child_of] >> self.parent_of) & 1).bool()

    def matrix(self, values: Tensor) -> Tensor:
        """Numbers of the edges as matrices, (C, items, ...) -> (C, d, d, ...), zero elsewhere.

        Example:
            >>> Dags(["a", "b"], of="weight").matrix(torch.tensor([[2.0, 3.0]])).tolist()
            [[[0.0, 3.0], [2.0, 0.0]]]
        """
        d = len(self.nodes)
        found = values.new_zeros(len(values), d, d, *values.shape[2:])
        found[:, self.parent_of, self.child_of] = values
        return found

    def context(self, code: Tensor) -> Tensor:
        signs = 2 * self.items(code).to(self.by_parents.dtype) - 1
        return signs if self.n_items else signs.new_ones(len(code), 1)

    def log_prior(self, code: Tensor) -> Tensor:
        return torch.where(acyclic(code), self.log_weight(code), -math.inf) - self.log_total

    def log_weight(self, code: Tensor) -> Tensor:
        """Log prior of graphs that are known to have no cycle, up to its constant, (C,)."""
        return self.log_weights(code).sum(1)

    def log_weights(self, masks: Tensor) -> Tensor:
        """Log prior of each node's parents, masks (..., d) -> (..., d), up to a constant."""
        edges = adjacency(masks)
        weight = self.by_parents[edges.sum(-2).clamp(max=len(self.nodes) - 1)]
        if self._uneven:
            odds = torch.where(self.edge_log_odds > -math.inf, self.edge_log_odds, 0.0)
            weight = weight + torch.where(edges, odds, 0.0).sum(-2)
        fits = ((masks & ~self.may) == 0) & ((~masks & self.must) == 0)
        return torch.where(fits, weight, -math.inf)

    def sample_prior(self, n: int, generator: torch.Generator) -> Tensor:
        device = self.must.device
        if self.symmetric:
            return self._size_draws.sample(n, generator).to(device)
        if len(self.nodes) <= MOST_DRAWN:
            return self._draws.sample(n, generator)
        law = self.by_parents, self.edge_log_odds
        return gibbs_draws(n, self.must, self.may, *law, generator)

    def largest(self, n: int, generator: torch.Generator) -> Tensor:
        """Graphs with all the edges that some order of the nodes allows."""
        d, device = len(self.nodes), self.must.device
        order = torch.rand(n, d, generator=generator, device=device).argsort(1)
        return masks_of(order[:, :, None] < order[:, None]) & self.may

    def label(self, code: Tensor) -> list[str]:
        row, edge = self.items(code).nonzero().unbind(1)
        names = [self.names[e] for e in edge.tolist()]
        ends = [0, *torch.bincount(row, minlength=len(code)).cumsum(0).tolist()]
        return [", ".join(names[i:j]) or "(empty)" for i, j in itertools.pairwise(ends)]

    def code_of(self, model: Any) -> Tensor:
        """The code of a graph: a label, pairs of names, or a matrix."""
        if isinstance(model, str):
            parts = [part.strip() for part in model.split(",")]
            model = [part.split("->") for part in parts if part and part != "(empty)"]
            model = [[name.strip() for name in pair] for pair in model]
        try:
            matrix = torch.as_tensor(model) if len(model) else None
        except (TypeError, ValueError):
            matrix = None
        try:
            if matrix is not None and matrix.shape == (len(self.nodes),) * 2:
                edges = matrix != 0
            else:
                edges = self._edges(model, "edges")
        except (TargetError, TypeError) as error:
            raise UnknownModelError(
                f"no graph {model!r}: expected a label such as 'a->b, c->b', pairs of names, or "
                f"a matrix over {listing(self.nodes)} ({error})"
            ) from error
        code = masks_of(edges[None]).to(self.must.device)
        if not bool(acyclic(code)[0]):
            raise UnknownModelError(f"no graph {model!r}: it has a cycle")
        if not bool((self.log_weight(code) > -math.inf)[0]):
            raise UnknownModelError(
                f"no graph {model!r}: it lacks required edges, has forbidden ones, or a node has "
                "too many parents"
            )
        return code[0]

    def enumerate(self) -> Tensor:
        check_enumerable(self)
        return self._listed[0]

    def index(self, code: Tensor) -> Tensor:
        _, keys = self._listed
        return torch.searchsorted(keys, self._key(code))

    @property
    def enumerable(self) -> bool:
        """Whether tables over all models are affordable: up to five nodes."""
        return len(self.nodes) <= MOST_LISTED

    @cached_property
    def _listed(self) -> tuple[Tensor, Tensor]:
        d, device = len(self.nodes), self.must.device
        table = self.prior_table() > -math.inf
        rows = [table[j].nonzero()[:, 0] for j in range(d)]
        code = torch.cartesian_prod(*rows).reshape(-1, d)
        code = torch.cat([part[acyclic(part)] for part in code.split(2**16)])
        keys, order = self._key(code).sort()
        return code[order].to(device), keys.to(device)

    def _key(self, code: Tensor) -> Tensor:
        d = len(self.nodes)
        return (code << (d * torch.arange(d, device=code.device))).sum(-1)

    # ---- neighbours ---------------------------------------------------------------------------

    def neighbours(self, code: Tensor) -> tuple[Tensor, Tensor]:
        """Graphs with one edge more, one less, or one turned around: N = 2 d (d - 1)."""
        flip, turn = self._changes(code)
        i, j = self.parent_of, self.child_of
        one = torch.ones((), dtype=torch.long, device=code.device)
        bit_i = torch.zeros(len(i), code.shape[1], dtype=torch.long, device=code.device)
        bit_i[torch.arange(len(i), device=code.device), j] = one << i
        bit_j = torch.zeros_like(bit_i)
        bit_j[torch.arange(len(i), device=code.device), i] = one << j
        flipped = code[:, None] ^ bit_i
        turned = flipped ^ bit_j
        return torch.cat([flipped, turned], 1), torch.cat([flip[:, i, j], turn[:, i, j]], 1)

    def random_neighbour(
        self, code: Tensor, generator: torch.Generator, *, swap: float = 0.0
    ) -> Tensor:
        if not self.n_items:
            return code
        flip, turn = self._changes(code)
        c, device = len(code), code.device
        pick = torch.randint(0, 2 * self.n_items, (c,), generator=generator, device=device)
        pair, turns = pick % self.n_items, pick >= self.n_items
        i, j, row = self.parent_of[pair], self.child_of[pair], torch.arange(c, device=device)
        real = torch.where(turns, turn[row, i, j], flip[row, i, j])
        new = code.clone()
        new[row, j] ^= torch.where(real, 1 << i, 0)
        new[row, i] ^= torch.where(real & turns, 1 << j, 0)
        return new

    def _changes(self, code: Tensor) -> tuple[Tensor, Tensor]:
        edges = adjacency(code)
        return changes(edges, reaches(edges))

    def together(self) -> Tensor:
        d, device = len(self.nodes), self.must.device
        return masks_of(~torch.eye(d, dtype=torch.bool, device=device)[None])

    def graded_log_prior(self, bits: Tensor) -> Tensor:
        """Log prior, up to its constant, of edges that are there by degrees, (C, items) -> (C,).

        Between whole numbers of parents it is linear; where a number can't be it is as at the
        nearest that can.
        """
        d = len(self.nodes)
        number = self.matrix(bits).sum(1)  # of parents, (C, d)
        table = self.by_parents[:d].to(bits)
        fine = (table > -math.inf).nonzero()[:, 0]
        nearest = (torch.arange(d, device=bits.device)[:, None] - fine).abs().argmin(1)
        table = table[fine[nearest]]
        low = number.detach().floor().long().clamp(0, max(0, d - 2))
        high = (low + 1).clamp(max=d - 1)
        weight = table[low] + (number - low) * (table[high] - table[low])
        odds = torch.where(self.edge_log_odds > -math.inf, self.edge_log_odds, 0.0).to(bits)
        return weight.sum(1) + bits @ odds[self.parent_of, self.child_of]

    def levels(self) -> tuple[Tensor, Tensor]:
        low = torch.zeros(self.code_width, dtype=torch.long, device=self.must.device)
        return low, low + 2 ** min(self.code_width, MOST_NODES - 1)

    def certain(self) -> tuple[Tensor, Tensor]:
        must, may = (adjacency(x[None])[0] for x in (self.must, self.may))
        behind = reaches(must[None])[0].T  # an edge that would close a cycle of required ones
        no_room = (must.sum(0) >= (self.by_parents > -math.inf).nonzero().max()) & ~must
        on, off = must, ~may | behind | no_room
        return on[self.parent_of, self.child_of], off[self.parent_of, self.child_of]

    def spec(self) -> dict[str, Any]:
        return {
            "kind": "Dags",
            "nodes": self.nodes,
            "of": list(self.of),
            "prior": self.prior_name,
            "by_parents": self.by_parents.cpu(),
            "edge_log_odds": self.edge_log_odds.cpu(),
            "must": self.must.cpu(),
            "may": self.may.cpu(),
            "slot_item": self.slot_item.cpu(),
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Space:
        space = cls(spec["nodes"], spec["of"])
        space.prior_name = spec["prior"]
        space.by_parents, space.edge_log_odds = spec["by_parents"], spec["edge_log_odds"]
        space.must, space.may = spec["must"], spec["may"]
        space._uneven = bool(space.edge_log_odds.any())
        space.size = space._counted()
        return space.bind(spec["slot_item"])
