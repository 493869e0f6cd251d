"""Scores of edge probabilities against a graph that is held to be true, in the field's dialects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import NDArray

from ..errors import ConfigurationError

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]


def metrics(edges: Any, truth: Any) -> pd.Series:
    """How near edge probabilities are to a graph.

    Expectations are over the posterior from which the probabilities come, exact where these are.

    Arguments:
        edges: Probability of each edge from i to j, shape (d, d); a DataFrame as of
            :class:`~trjmcmc.graphs.ExactGraphs`, or draws of graphs as 0/1 (C, d, d).
        truth: 0/1, shape (d, d), in the same order of nodes.

    Returns:
        ``expected_edges``; ``expected_shd``, pairs of nodes that differ, a reversal counted once,
        between the graphs themselves (DiBS takes their classes, its package the graphs);
        ``expected_shd_by_entries``, a reversal counted twice (VTI); ``auroc`` of the edge
        probabilities without the diagonal; ``auroc_with_diagonal``, as DiBS has it, which is
        higher; ``auroc_by_draws``, the mean of the AUROC of graphs one by one, and with the
        diagonal ``auroc_by_draws_with_diagonal`` (VTI); ``brier``, the sum of squared differences,
        and ``brier_mean``; ``f1`` of edges more probable than not; of draws alone
        ``f1_by_draws``, the mean over graphs one by one (VTI).

    Raises:
        ConfigurationError: Shapes that differ.

    Source:
        Lorch et al. (2021), https://arxiv.org/abs/2105.11839, section 6

    Example:
        >>> found = metrics([[0, 0.9], [0.1, 0]], [[0, 1], [0, 0]])
        >>> found[["expected_shd", "auroc"]].round(3).tolist()
        [0.1, 1.0]
    """
    import pandas as pd

    a, p = np.asarray(truth, dtype=float), np.asarray(edges, dtype=float)
    draws = p if p.ndim == 3 else None
    p = p.mean(0) if draws is not None else p
    if a.shape != p.shape or a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ConfigurationError(
            f"metrics: expected edges and truth of the same shape (d, d), got {p.shape}, {a.shape}"
        )
    off = ~np.eye(len(a), dtype=bool)
    found = {
        "expected_edges": p[off].sum(),
        "expected_shd": _shd(p, a),
        "expected_shd_by_entries": (a * (1 - p) + (1 - a) * p)[off].sum(),
        "auroc": auroc(p[off], a[off]),
        "auroc_with_diagonal": auroc(np.where(off, p, 0.0).ravel(), a.ravel()),
        "auroc_by_draws": _by_draws(p[off], a[off]),
        "auroc_by_draws_with_diagonal": _by_draws(np.where(off, p, 0.0).ravel(), a.ravel()),
        "brier": ((p - a) ** 2)[off].sum(),
        "brier_mean": ((p - a) ** 2)[off].mean() if off.any() else np.nan,
        "f1": _f1((p > 0.5)[off].astype(float), a[off]),
    }
    if draws is not None:
        found["f1_by_draws"] = np.mean([_f1(draw[off], a[off]) for draw in draws])
    return pd.Series(found, dtype=float)


def auroc(score: Array, truth: Array) -> float:
    """Probability that a true edge scores more than one that is not, ties half; NaN without both.

    Source:
        Mann & Whitney (1947), https://doi.org/10.1214/aoms/1177730491
    """
    n, m = int(truth.sum()), int((1 - truth).sum())
    if not n or not m:
        return float("nan")
    return float((scipy.stats.rankdata(score)[truth > 0].sum() - n * (n + 1) / 2) / (n * m))


def _by_draws(p: Array, truth: Array) -> float:
    """Mean AUROC of single graphs: half of one more edge found than invented, as shares."""
    n, m = truth.sum(), (1 - truth).sum()
    if not n or not m:
        return float("nan")
    return float((1 + (p * truth).sum() / n - (p * (1 - truth)).sum() / m) / 2)


def _shd(p: Array, a: Array) -> float:
    """Expected number of pairs that differ; a true pair with both directions fits either."""
    pairs = np.triu_indices(len(a), 1)
    forth, back, there, here = p[pairs], p.T[pairs], a[pairs], a.T[pairs]
    right = np.where(
        there + here == 0,
        1 - forth - back,
        np.where(there > 0, forth, 0) + np.where(here > 0, back, 0),
    )
    return float((1 - right).sum())


def _f1(found: Array, truth: Array) -> float:
    total = found.sum() + truth.sum()
    return float(2 * (found * truth).sum() / total) if total else 1.0
