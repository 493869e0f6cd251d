"""What draws of graphs say: edges, paths, classes, whole graphs, each with its error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from ..errors import ConfigurationError
from ..estimate.estimate import Estimate
from ..plot.graphs import plot_edges, plot_graph
from ..result.result import Result
from ..space.codes import distinct
from ..space.dags import Dags
from ..space.ordered_dags import OrderedDags
from ..space.paths import adjacency, ancestors, masks_of
from ..target.scores import LocalScores
from .classes import completed, labels
from .effects import total_effects, weights
from .laws import Origin
from .metrics import metrics
from .scores import checked, free_rows
from .tables import (
    Errors,
    IndependentTables,
    OfRun,
    by_pair,
    log_mean,
    mean,
    pairs_of,
    thinned,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MOST_SHOWN = 20  # graphs or classes of a table, unless more are asked for

BATCH = 20_000  # graphs whose matrices are in memory at once

NUMBERS = 2**25  # numbers that matrices of effects may hold


class GraphPosterior:
    """Posterior probabilities of what graphs have, from draws.

    Every table has ``probability``, ``se``, ``ess``, ``rhat`` and ``note``, what makes a row
    doubtful; errors are widened, or NaN, by what chains remember of their start.

    Arguments:
        result: Of a run over :class:`~trjmcmc.graphs.Dags` or :class:`~trjmcmc.graphs.OrderedDags`.
        scores: Those that it sampled from, where the result was loaded from a file; for effects
            and data to come.

    Attributes:
        names: Of the nodes.
        masks: Parent masks of the draws, shape (chain, draw, d).
        scores: Local scores, or None.

    Raises:
        ConfigurationError: The run was over another space.

    Example:
        >>> import trjmcmc as trj
        >>> from trjmcmc import graphs
        >>> x = torch.randn(50, 1, generator=torch.Generator().manual_seed(0))
        >>> scores = graphs.bge(torch.cat([x, x, -x], 1), names=["a", "b", "c"])
        >>> sampler = trj.TRJSampler(graphs.target(scores), seed=0)
        >>> found = GraphPosterior(sampler.run(draws=50, progress=False))
        >>> found.paths().index.names, found.classes().index[0]
        (FrozenList(['from', 'to']), 'a-b, a-c, b-c')
    """

    def __init__(self, result: Result, *, scores: LocalScores | None = None) -> None:
        space, masks = result.space, torch.as_tensor(result.raw.code)
        if space.orders:
            masks = cast("OrderedDags", space).masks(masks.flatten(0, 1)).view(*masks.shape[:2], -1)
        elif not space.graphs:
            raise ConfigurationError("GraphPosterior: expected a run over Dags")
        if scores is None and result.target is not None:
            scores = result.target.scores
        self._hold(masks, cast("Dags", space).nodes, scores, OfRun(result), result)

    @classmethod
    def of(
        cls, masks: Tensor, names: Sequence[str], *, scores: LocalScores | None = None
    ) -> GraphPosterior:
        """Of independent draws, as of :meth:`~trjmcmc.graphs.ExactGraphs.sample`.

        Arguments:
            masks: Parent masks, shape (n, d).
            names: Of the nodes.
            scores: Local scores, for effects and data to come.

        Example:
            >>> found = GraphPosterior.of(torch.tensor([[0, 1], [0, 0]]), ["a", "b"])
            >>> found.edges().loc[("a", "b"), ["probability", "rhat"]].tolist()
            [0.5, 1.0]
        """
        if masks.dim() != 2 or masks.shape[1] != len(names) or not len(masks):
            raise ConfigurationError(
                f"GraphPosterior: expected parent masks (n, {len(names)}), got {tuple(masks.shape)}"
            )
        found = cls.__new__(cls)
        found._hold(masks.cpu()[None], list(names), scores, IndependentTables(), None)
        return found

    def _hold(
        self,
        masks: Tensor,
        names: list[str],
        scores: LocalScores | None,
        errors: Errors,
        result: Result | None,
    ) -> None:
        self.masks, self.names, self.scores = masks, names, scores
        self._errors, self._result = errors, result

    @cached_property
    def _graphs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Different graphs, which of them each draw is (chain, draw), and how often they occur."""
        code, which, counts = distinct(self.masks.flatten(0, 1))
        return code, which.view(self.masks.shape[:2]), counts

    # ---- tables -------------------------------------------------------------------------------

    def edges(self) -> pd.DataFrame:
        """Probability of each edge, by parent and child."""
        return self._pairs(adjacency, ("parent", "child"))

    def paths(self) -> pd.DataFrame:
        """Probability that a directed path leads from one node to another."""
        return self._pairs(lambda masks: adjacency(ancestors(masks)), ("from", "to"))

    def graphs(self, most: int = MOST_SHOWN) -> pd.DataFrame:
        """The graphs that occur most often."""
        return self._whole(lambda code: code, Dags(self.names).label, "graph", most)

    def classes(self, most: int = MOST_SHOWN) -> pd.DataFrame:
        """The Markov equivalence classes that occur most often, "a->b, b-c"."""

        def of(code: Tensor) -> Tensor:
            parts = (completed(part) for part in code.split(BATCH))
            return torch.cat([masks_of(part) for part in parts])

        def label(code: Tensor) -> list[str]:
            return labels(completed(code), self.names)

        return self._whole(of, label, "class", most)

    def matrix(self) -> pd.DataFrame:
        """Edge probabilities, parents in rows, children in columns."""
        code, _, counts = self._graphs
        weight = counts.double() / counts.sum()
        parts = zip(code.split(BATCH), weight.split(BATCH), strict=True)
        total = [torch.einsum("c,cij->ij", w, adjacency(part).double()) for part, w in parts]
        return by_pair(torch.stack(total).sum(0).numpy(), self.names)

    def metrics(self, truth: Any, *, most: int = 2000) -> pd.Series:
        """:func:`~trjmcmc.graphs.metrics` of the draws beside a graph held to be true, (d, d)."""
        flat = self.masks.flatten(0, 1)
        step = max(1, len(flat) // most)
        found = metrics(adjacency(flat[::step]).numpy(), truth)
        every = metrics(self.matrix(), truth)
        found[every.index] = every
        return found

    # ---- data to come -------------------------------------------------------------------------

    def log_predictive(self, data: Any, interventions: Any = None) -> Estimate:
        r"""Log posterior predictive density of other data, averaged over graphs, nats.

        :math:`\ln \sum_G p(G \mid D)\, p(D' \mid D, G)`, all rows together, in units of the data.

        Arguments:
            data: Rows of d columns, as those that were scored.
            interventions: Where nodes were set from outside, shape of the data, bool: these
                factors are left out.

        Returns:
            With its standard error, by the spread over draws.

        Raises:
            ConfigurationError: There are no scores made from data.
            TargetError: Data that do not fit.

        Example:
            >>> from trjmcmc import graphs
            >>> x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0)).cumsum(1)
            >>> found = graphs.exact(graphs.bge(x[:50], names=["a", "b"])).posterior(1000)
            >>> found.log_predictive(x[50:]).value > found.log_predictive(x[50:] + 5).value + 10
            True
        """
        return log_mean(self._log_densities(data, interventions, True), self._errors)

    def log_likelihood(
        self, data: Any, interventions: Any = None, *, given: bool = True
    ) -> Estimate:
        r"""Posterior mean of the log density of other data given a graph, nats.

        :math:`\sum_G p(G \mid D) \ln p(D' \mid D, G)`, which is below :meth:`log_predictive`.

        Arguments:
            data, interventions: As there.
            given: Whether parameters know the data D; if not, :math:`\ln p(D' \mid G)` is averaged,
                as DiBS does.
        """
        return mean(self._log_densities(data, interventions, given), self._errors)

    def _log_densities(self, data: Any, interventions: Any, given: bool) -> Tensor:
        """Log density of other rows by the graph of each draw, (chain, draw)."""
        if self.scores is None or not isinstance(self.scores.origin, Origin):
            raise ConfigurationError(
                "log_predictive: expected scores made by graphs.bge, graphs.linear or graphs.bdeu; "
                "of a loaded result give them: GraphPosterior(result, scores=scores)"
            )
        rows, _ = checked(data, self.names)
        free = free_rows(rows, interventions)
        new = self.scores.origin.scores_of(self.scores, rows, free, given=given)
        code, which, _ = self._graphs
        return new.of(code)[which]

    # ---- effects ------------------------------------------------------------------------------

    def effects(self, *, most: int = BATCH, seed: int = 0) -> pd.DataFrame:
        """What a unit of one node, set from outside, adds to another: total causal effects.

        Weights are drawn from their posterior given each graph. Linear Gaussian scores only.

        Arguments:
            most: Draws to take, about.
            seed: Of the weights.

        Returns:
            By cause and effect; ``mean`` with its standard error ``se``, ``sd``, ``q5``,
            ``median``, ``q95``, in units of the data; ``probability`` that it is not zero;
            ``ess``, ``rhat`` and ``note`` of the mean.

        Raises:
            ConfigurationError: There are no such scores.

        Example:
            >>> from trjmcmc import graphs
            >>> x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0)).cumsum(1)
            >>> found = graphs.exact(graphs.bge(x, names=["a", "b"]), required=[("a", "b")])
            >>> print(found.posterior(1000).effects().loc[("a", "b"), "mean"].round(1))
            1.0
        """
        if self.scores is None:
            raise ConfigurationError(
                "effects: expected scores made by graphs.bge or graphs.linear; of a loaded result "
                "give them: GraphPosterior(result, scores=scores)"
            )
        chains, draws, d = self.masks.shape
        masks = self.masks[thinned(chains, draws, min(most, max(1, NUMBERS // d**2)))]
        weight = weights(self.scores, masks.flatten(0, 1), np.random.default_rng(seed))
        found = torch.cat([total_effects(part) for part in weight.split(BATCH)])
        i, j = pairs_of(d)
        pairs = found.view(*masks.shape[:2], d, d).numpy()[:, :, i, j]
        table = self._errors.means(pairs)
        table.insert(1, "sd", pairs.std((0, 1)))
        for place, (name, q) in enumerate((("q5", 0.05), ("median", 0.5), ("q95", 0.95))):
            table.insert(3 + place, name, np.quantile(pairs, q, axis=(0, 1)))
        table.insert(6, "probability", (pairs != 0).mean((0, 1)))
        return table.set_index(self._index(("cause", "effect")))

    # ---- pictures -----------------------------------------------------------------------------

    def plot_edges(self, ax: Axes | None = None) -> Axes:
        """Heat map of the edge probabilities, parents in rows."""
        return plot_edges(self.matrix(), ax)

    def plot_graph(self, ax: Axes | None = None, *, least: float = 0.1) -> Axes:
        """The probable edges, as wide as they are probable.

        Arguments:
            ax: Where to draw.
            least: Probability of an edge, or of two nodes being neighbours, that is drawn.
        """
        return plot_graph(self.matrix(), ax, least=least)

    # ---- shares -------------------------------------------------------------------------------

    def _index(self, names: tuple[str, str]) -> pd.MultiIndex:
        import pandas as pd

        i, j = pairs_of(len(self.names))
        pairs = [(self.names[a], self.names[b]) for a, b in zip(i, j, strict=True)]
        return pd.MultiIndex.from_tuples(pairs, names=names)

    def _pairs(self, of: Callable[[Tensor], Tensor], index: tuple[str, str]) -> pd.DataFrame:
        code, which, _ = self._graphs
        i, j = pairs_of(len(self.names))
        has = torch.cat([of(part)[:, i, j] for part in code.split(BATCH)])
        return self._errors.shares(has[which].numpy()).set_index(self._index(index))

    def _whole(
        self,
        key: Callable[[Tensor], Tensor],
        label: Callable[[Tensor], list[str]],
        name: str,
        most: int,
    ) -> pd.DataFrame:
        """The most frequent of what graphs with the same key are, by its label."""
        import pandas as pd

        code, which, counts = self._graphs
        _, group, number = distinct(key(code))
        total = torch.zeros(len(number), dtype=torch.long).index_add_(0, group, counts)
        best = total.argsort(descending=True, stable=True)[:most]
        first = torch.full((len(number),), len(group))
        first.scatter_reduce_(0, group, torch.arange(len(group)), "amin")
        found = self._errors.shares((group[which][..., None] == best).numpy())
        return found.set_index(pd.Index(label(code[first[best]]), name=name))

    def __repr__(self) -> str:
        _, draws, d = self.masks.shape
        of = f"{draws} independent draws" if self._result is None else repr(self._result)
        return f"GraphPosterior({d} nodes, {len(self._graphs[0])} graphs; {of})"
