"""Weighted graphs that stand for a posterior without being draws from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from ..draws import Pool
from ..errors import ConfigurationError
from ..space.dags import Dags
from ..space.paths import acyclic, adjacency
from ..target.target import Target
from .metrics import metrics
from .scores import checked
from .tables import by_pair

if TYPE_CHECKING:
    import pandas as pd


class GraphParticles:
    """Graphs, with parameters or without, and how much each counts: of DiBS, or of a bootstrap.

    Arguments:
        target: The posterior over graphs that they stand for.
        masks: Parent masks, shape (M, d); those with a cycle are dropped.
        theta: Coordinates, shape (M, D); none where the target has none.
        advice: What would help where no graph is left, for the message.

    Attributes:
        masks, theta: Of the particles that are left.
        dropped: Names of the edges of each graph that had a cycle or that the prior excludes.
        log_likelihood: Log p(data, parameters | graph) of each, (M,), nats.
        log_prior: Log p(graph) of each, (M,), nats.

    Raises:
        ConfigurationError: No particle is left.
    """

    def __init__(
        self, target: Target, masks: Tensor, theta: Tensor | None = None, *, advice: str = ""
    ) -> None:
        if not target.space.graphs:
            raise ConfigurationError("GraphParticles: expected a target over Dags")
        space = cast("Dags", target.space)
        if theta is None:
            theta = torch.zeros(len(masks), target.dim, dtype=target.dtype, device=target.device)
        fine = acyclic(masks) & (space.log_weight(masks) > -torch.inf)
        self.target, self.names = target, space.nodes
        self.dropped = space.label(masks[~fine])
        if not bool(fine.any()):
            raise ConfigurationError(
                f"all {len(masks)} graphs have a cycle or lack what the prior asks for, such as "
                f"{shortened(self.dropped[0])!r}{advice and ': '}{advice}"
            )
        self.masks, self.theta = masks[fine], theta[fine]
        self.log_prior = space.log_prior(self.masks).double()
        self._log_joint = target.log_joint(self.masks, self.theta).double()
        self.log_likelihood = self._log_joint - self.log_prior

    def weights(self, *, plus: bool = True, prior: bool = True) -> Tensor:
        """How much each particle counts, shape (M,).

        Arguments:
            plus: In proportion to its density, each different graph once where there are no
                parameters (DiBS+); else all alike (DiBS). With parameters densities of different
                dimensions are compared, as in the source.
            prior: Whether p(graph) belongs to the density; the released DiBS leaves it out.

        Source:
            Lorch et al. (2021), https://arxiv.org/abs/2105.11839, section 6.1
        """
        if not plus:
            return torch.full_like(self.log_prior, 1 / len(self.masks))
        log_weight = self.log_likelihood + (self.log_prior if prior else 0.0)
        if not self.target.dim:
            _, which, counts = self.masks.unique(dim=0, return_inverse=True, return_counts=True)
            log_weight = log_weight - counts[which].double().log()
        return log_weight.softmax(0)

    def share(
        self, of: Callable[[Tensor], Tensor], *, plus: bool = True, prior: bool = True
    ) -> float:
        """Weighted share of graphs, matrices (M, d, d), for which a function is true, (M,)."""
        return float(self.weights(plus=plus, prior=prior) @ of(adjacency(self.masks)).double())

    def edges(self, *, plus: bool = True, prior: bool = True) -> pd.DataFrame:
        """Probability of each edge, parents in rows, children in columns."""
        weight = self.weights(plus=plus, prior=prior)
        found = torch.einsum("m,mij->ij", weight, adjacency(self.masks).double())
        return by_pair(found.cpu().numpy(), self.names)

    def graphs(self, *, plus: bool = True, prior: bool = True) -> pd.Series:
        """The different graphs by weight, largest first."""
        import pandas as pd

        weight = pd.Series(self.weights(plus=plus, prior=prior).tolist(), name="weight")
        labels = pd.Index(self.target.space.label(self.masks), name="graph")
        return weight.groupby(labels).sum().sort_values(ascending=False)

    def metrics(self, truth: Any, *, plus: bool = True, prior: bool = True) -> pd.Series:
        """:func:`~trjmcmc.graphs.metrics` of the edge probabilities beside a graph, (d, d)."""
        return metrics(self.edges(plus=plus, prior=prior), truth)

    @property
    def pool(self) -> Pool:
        """All particles alike, for chains to start from: ``run(start=particles)``."""
        return Pool(self.masks, self.theta, self._log_joint)

    def __repr__(self) -> str:
        lost = f", {len(self.dropped)} dropped" if self.dropped else ""
        return f"GraphParticles({len(self.masks)} graphs on {len(self.names)} nodes{lost})"


def bootstrap(
    target: Target,
    data: Any,
    estimate: Callable[[np.ndarray], Any],
    *,
    replicates: int = 100,
    seed: int = 0,
) -> GraphParticles:
    """Graphs that an estimator finds in data drawn again with replacement.

    Weighed by their density (``plus``) they are the non-parametric bootstrap that DiBS is compared
    with. An estimate with undirected edges counts as the graph that these make with the lower node
    as the parent; give one graph of its class to be exact.

    Arguments:
        target: The posterior over graphs that weighs them.
        data: Rows of d columns.
        estimate: Function of such rows, (n, d), that gives a graph as a matrix (d, d), entry
            (i, j) not zero where i is a parent of j: of causal-learn, gCastle or others.
        replicates: How often.
        seed: Of the rows drawn.

    Raises:
        ConfigurationError: Fewer than one replicate; data with other columns than the target has
            nodes; an estimate of another shape, or NaN; no estimate without a cycle.

    Source:
        Friedman, Goldszmidt & Wyner (1999), https://arxiv.org/abs/1301.6695

    Example:
        >>> from trjmcmc import graphs
        >>> x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0)).cumsum(1)
        >>> target = graphs.target(graphs.bge(x))
        >>> def always(rows):
        ...     return [[0, 1], [0, 0]]
        >>> bootstrap(target, x, always, replicates=5).edges().to_numpy().tolist()
        [[0.0, 1.0], [0.0, 0.0]]
    """
    rows, names = checked(data, None)
    if replicates < 1:
        raise ConfigurationError(f"bootstrap: expected 1 replicate or more, got {replicates}")
    nodes = cast("Dags", target.space).nodes
    if len(names) != len(nodes) or (hasattr(data, "columns") and names != nodes):
        raise ConfigurationError(f"bootstrap: expected columns {nodes}, got {names}")
    d, x = len(names), rows.numpy()
    bit, rng = 1 << np.arange(d), np.random.default_rng(seed)
    found = []
    for _ in range(replicates):
        estimated = np.asarray(estimate(x[rng.integers(len(x), size=len(x))]), dtype=float)
        if estimated.shape != (d, d) or not np.isfinite(estimated).all():
            raise ConfigurationError(
                f"bootstrap: expected finite estimates of shape ({d}, {d}), got shape "
                f"{estimated.shape}"
            )
        edges = estimated != 0
        both = edges & edges.T
        edges &= ~np.tril(both)
        found.append((edges * bit[:, None]).sum(0))
    masks = torch.as_tensor(np.array(found)).to(target.device)
    return GraphParticles(target, masks, advice="the estimator has to give acyclic graphs")


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first of some names, and how many more there are."""
    shown = "; ".join(map(shortened, names[:most]))
    return shown + (f"; and {len(names) - most} more" if len(names) > most else "")


def shortened(label: str, most: int = 60) -> str:
    """A long label without its end."""
    return label if len(label) <= most else label[: most - 4].rsplit(",", 1)[0] + ", ..."
