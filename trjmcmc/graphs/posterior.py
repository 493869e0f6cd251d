"""What draws of graphs say: edges, paths, classes, whole graphs, each with its error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import ConfigurationError
from ..estimate.convergence import split_rhats
from ..estimate.visits import visit_probability
from ..result.result import Result
from ..space.codes import distinct
from ..space.dags import Dags
from ..space.paths import adjacency, reaches
from .classes import completed, labels
from .exact import by_pair
from .metrics import metrics

MOST_SHOWN = 20  # graphs or classes of a table, unless more are asked for

BATCH = 20_000  # graphs whose matrices are in memory at once


class GraphPosterior:
    """Posterior probabilities of what graphs have, from draws.

    Every table has ``probability``, ``se``, ``ess``, ``rhat`` and ``note``, what makes a row
    doubtful; errors are widened, or NaN, by what chains remember of their start.

    Arguments:
        result: Of a run over :class:`~trjmcmc.Dags`.

    Attributes:
        names: Of the nodes.
        masks: Parent masks of the draws, shape (chain, draw, d).

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

    def __init__(self, result: Result) -> None:
        space = cast("Dags", result.space)
        if not space.graphs:
            raise ConfigurationError("GraphPosterior: expected a run over Dags")
        self.space, self.names = space, space.nodes
        self.masks: Tensor = torch.as_tensor(result.raw.code)
        ancestor = result.raw.ancestor
        self._ancestor = None if ancestor is None else ancestor.cpu().numpy()
        self._ess = float(result.mixing()["ess"])

    # ---- tables -------------------------------------------------------------------------------

    def edges(self) -> pd.DataFrame:
        """Probability of each edge, by parent and child."""
        return self._pairs(adjacency, ("parent", "child"))

    def paths(self) -> pd.DataFrame:
        """Probability that a directed path leads from one node to another."""
        return self._pairs(lambda masks: reaches(adjacency(masks)), ("from", "to"))

    def graphs(self, most: int = MOST_SHOWN) -> pd.DataFrame:
        """The graphs that occur most often."""
        return self._whole(lambda code: (code, self.space.label(code)), "graph", most)

    def classes(self, most: int = MOST_SHOWN) -> pd.DataFrame:
        """The Markov equivalence classes that occur most often, "a->b, b-c"."""

        def of(code: Tensor) -> tuple[Tensor, list[str]]:
            partial = completed(code)
            return partial.flatten(1).long(), labels(partial, self.names)

        return self._whole(of, "class", most)

    def matrix(self) -> pd.DataFrame:
        """Edge probabilities, parents in rows, children in columns."""
        return by_pair(self._mean(adjacency), self.names)

    def metrics(self, truth: Any, *, most: int = 2000) -> pd.Series:
        """:func:`~trjmcmc.graphs.metrics` of the draws beside a graph held to be true, (d, d)."""
        flat = self.masks.flatten(0, 1)
        step = max(1, len(flat) // most)
        found = metrics(adjacency(flat[::step]).numpy(), truth)
        every = metrics(self.matrix(), truth)
        found[every.index] = every
        return found

    def log_predictive(self, score: Callable[[Tensor], Tensor], *, most: int = 2000) -> float:
        """Log of the posterior mean of a likelihood of other data, nats.

        Arguments:
            score: Log p(other data | data, graph) of parent masks (C, d), shape (C,); with
                scores of both together and of the data alone, ``lambda m: both.of(m) -
                one.of(m)``.
            most: Draws to take.
        """
        flat = self.masks.flatten(0, 1)
        code, which, _ = distinct(flat[:: max(1, len(flat) // most)])
        value = score(code)[which]
        return float(value.logsumexp(0)) - float(np.log(len(value)))

    # ---- shares -------------------------------------------------------------------------------

    def _row(self, has: NDArray[np.bool_]) -> dict[str, Any]:
        found = visit_probability(has, self._ess, ancestor=self._ancestor)
        rhat = float(split_rhats(has[..., None].astype(float))[0])
        return {
            "probability": found.value,
            "se": found.std_error,
            "ess": found.ess,
            "rhat": rhat,
            "note": found.warning,
        }

    def _pairs(self, of: Callable[[Tensor], Tensor], index: tuple[str, str]) -> pd.DataFrame:
        chains, draws, d = self.masks.shape
        code, which, _ = distinct(self.masks.flatten(0, 1))
        found = torch.cat([of(part) for part in code.split(BATCH)]).numpy()
        of_draw = which.view(chains, draws).numpy()
        pairs = [(i, j) for j in range(d) for i in range(d) if i != j]
        rows = [self._row(found[:, i, j][of_draw]) for i, j in pairs]
        names = [(self.names[i], self.names[j]) for i, j in pairs]
        return pd.DataFrame(rows, index=pd.MultiIndex.from_tuples(names, names=index))

    def _whole(
        self, of: Callable[[Tensor], tuple[Tensor, list[str]]], name: str, most: int
    ) -> pd.DataFrame:
        code, which, counts = distinct(self.masks.flatten(0, 1))
        key, _ = of(code)
        _, group, number = distinct(key)
        total = torch.zeros(len(number), dtype=torch.long).index_add_(0, group, counts)
        best = total.argsort(descending=True)[:most].tolist()
        first = {int(g): int(i) for i, g in reversed(list(enumerate(group.tolist())))}
        of_draw = group[which].view(self.masks.shape[:2]).numpy()
        rows = [self._row(of_draw == g) for g in best]
        _, text = of(code[[first[g] for g in best]])
        return pd.DataFrame(rows, index=pd.Index(text, name=name))

    def _mean(self, of: Callable[[Tensor], Tensor]) -> NDArray[np.float64]:
        code, _, counts = distinct(self.masks.flatten(0, 1))
        weight = counts.double() / counts.sum()
        parts = zip(code.split(BATCH), weight.split(BATCH), strict=True)
        total = [torch.einsum("c,cij->ij", w, of(part).double()) for part, w in parts]
        return cast("NDArray[np.float64]", torch.stack(total).sum(0).numpy())
