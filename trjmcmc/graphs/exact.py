"""Posteriors over graphs by sums over all of them, without sampling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from ..errors import ConfigurationError
from ..kernel.graphs.draws import GraphDraws
from ..kernel.graphs.orders import OrderDraws
from ..space.dag_draws import DagDraws
from ..space.dag_prior import DagPrior
from ..space.dag_sums import graph_sums, order_sums
from ..space.dags import Dags
from ..target.scores import LocalScores
from ..target.target import Target
from .posterior import GraphPosterior
from .tables import by_pair
from .target import target

if TYPE_CHECKING:
    import pandas as pd

MOST_NODES = 20  # 3^20 terms take minutes and gigabytes less than a table of them would

REDRAWN = 100  # tables of scores that are estimates, by which errors of what they say are found


@dataclass
class ExactGraphs:
    """What all acyclic graphs together say.

    Attributes:
        names: Of the nodes.
        log_evidence: Log p(data), nats, all graphs together.
        edges: Probability of each edge, parents in rows, children in columns.
        table: Log weights of parent sets, prior and score, (d, 2^d).
        target: The posterior, for runs.
        orders: Whether graphs count once for each order of the nodes that they allow.
        edges_se, log_evidence_se: Standard errors, where scores are estimates; else 0.
    """

    names: list[str]
    log_evidence: float
    edges: pd.DataFrame
    table: Tensor
    target: Target
    orders: bool = False
    edges_se: pd.DataFrame | float = 0.0
    log_evidence_se: float = 0.0

    @property
    def expected_edges(self) -> float:
        """Posterior mean of the number of edges."""
        return float(self.edges.to_numpy().sum())

    def parents(self, node: str, *, least: float = 1e-3) -> pd.Series:
        """Probabilities of the parent sets of a node, most probable first.

        Arguments:
            node: Its name.
            least: Sets below it are left out.
        """
        import pandas as pd

        j, p = self.names.index(node), self._families[self.names.index(node)].exp()
        found = {
            ", ".join(n for i, n in enumerate(self.names) if place >> i & 1) or "(none)": value
            for place, value in enumerate(p.tolist())
            if value >= least
        }
        return pd.Series(found, name=self.names[j], dtype=float).sort_values(ascending=False)

    def sample(self, n: int, seed: int = 0) -> Tensor:
        """Independent draws of graphs, parent masks (n, d).

        Raises:
            ConfigurationError: Graphs that count by orders; as of
                :class:`~trjmcmc.kernel.GraphDraws`, where draws cost too much.
        """
        if self.orders:
            raise ConfigurationError("sample: of graphs, each of which counts once")
        return self._draws.sample(n, torch.Generator(self.table.device).manual_seed(seed))

    def posterior(self, n: int = 10_000, seed: int = 0) -> GraphPosterior:
        """What independent draws say of paths, classes, effects, and data to come.

        Raises:
            ConfigurationError: As of :meth:`sample`.
        """
        return GraphPosterior.of(self.sample(n, seed), self.names, scores=self.target.scores)

    @cached_property
    def _draws(self) -> DagDraws | OrderDraws:
        return GraphDraws(self.target).draws

    @cached_property
    def _families(self) -> Tensor:
        if self.orders:
            raise ConfigurationError("parents: of graphs, each of which counts once")
        families = graph_sums(self.table, families=True).families
        assert families is not None
        return families


def exact(
    scores: LocalScores, prior: str | DagPrior = "uniform", *, orders: bool = False, **space: Any
) -> ExactGraphs:
    """Edge probabilities and evidence by dynamic programming, for some twenty nodes at most.

    Eleven nodes take a twentieth of a second, fifteen two, and each further one three times as
    long.

    Arguments:
        scores: Log likelihood of each node's parents.
        prior: As for :class:`~trjmcmc.graphs.Dags`.
        orders: Count each graph once for each order of the nodes that it allows, as samplers of
            orders do, and of permutations with triangles.
        space: Further arguments of :class:`~trjmcmc.graphs.Dags`: edge_odds, required, forbidden,
            max_parents.

    Raises:
        ConfigurationError: More nodes.
        TargetError: As of :class:`~trjmcmc.graphs.Dags`.

    Source:
        Tian & He (2009), https://arxiv.org/abs/1205.2612; orders: Koivisto & Sood (2004),
        http://jmlr.org/papers/v5/koivisto04a.html

    Example:
        >>> from trjmcmc.graphs import bge
        >>> x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0)).cumsum(1)
        >>> exact(bge(x, names=["a", "b"])).edges.round(2).to_numpy().tolist()
        [[0.0, 0.5], [0.5, 0.0]]
    """
    posterior = target(scores, prior, **space)
    d = len(scores.names)
    if d > MOST_NODES:
        raise ConfigurationError(
            f"exact: all graphs on {d} nodes are too many to sum, at most {MOST_NODES} nodes; "
            "sample them: trj.TRJSampler(trj.graphs.target(scores)).run()"
        )
    log_prior = cast("Dags", posterior.space).prior_table().to(scores.table.device)
    table, summed = scores.full() + log_prior, order_sums if orders else graph_sums
    found, norm = summed(table), summed(log_prior).log_total
    edges = by_pair(found.edges.cpu().numpy(), scores.names)
    evidence = found.log_total - norm if math.isfinite(norm) else math.nan
    if scores.std_error is None:
        return ExactGraphs(scores.names, evidence, edges, table, posterior, orders)
    generator = torch.Generator().manual_seed(0)
    others = [summed(scores.drawn(generator).full() + log_prior) for _ in range(REDRAWN)]
    spread = torch.stack([other.edges for other in others]).std(0).cpu().numpy()
    error = float(torch.tensor([other.log_total for other in others]).std())
    of_edges = by_pair(spread, scores.names)
    return ExactGraphs(scores.names, evidence, edges, table, posterior, orders, of_edges, error)
