"""Which model predicts best what it has not seen, beside which is most probable."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import ConfigurationError
from ..estimate.pareto import pareto_smooth
from ..target.target import Target
from .chains import Chains

if TYPE_CHECKING:
    import pandas as pd

FEWEST = 100  # draws in a model from which it is judged

MOST = 2000  # draws of a model that are used, evenly spaced, so that they count as independent

MOST_VALUES = 20_000_000  # log densities of data at the draws in one model, at most

ROUNDS = 5000  # of the iteration for weights of stacking

BATCH = 1000  # draws at which data are evaluated at once

Pointwise = Callable[..., Any]


def compared(
    chains: Chains,
    target: Target | None,
    pointwise: Pointwise | Mapping[str, Pointwise] | None = None,
) -> pd.DataFrame:
    """Leave-one-out and stacking; see :meth:`trjmcmc.Result.compare`."""
    if target is None:
        raise ConfigurationError("target: a loaded result has none; pass target=")
    if pointwise is None and not target.is_observed:
        raise ConfigurationError(
            "pointwise: the likelihood is a function that gives only the sum: give "
            "pointwise(params) -> (n, data), or state it as trj.Observed(distribution, data)"
        )
    each, theta = {}, chains.draws.theta
    for label in chains.indicator.visited:
        chain, draw = np.nonzero(chains.inside(label))
        if len(chain) < FEWEST:
            break
        some = np.linspace(0, len(chain) - 1, min(MOST, len(chain))).round().astype(int)
        if isinstance(pointwise, Mapping) and label not in pointwise:
            raise ConfigurationError(f"pointwise: no function for {label!r}, which was visited")
        function = pointwise[label] if isinstance(pointwise, Mapping) else pointwise
        found = by_datum(target, label, theta[chain[some], draw[some]], function)
        each[label] = found.reshape(len(some), math.prod(found.shape[1:]))
    if not each:
        raise ConfigurationError(f"compare: no model has {FEWEST} draws; run longer")
    table = leave_one_out(each).sort_values("elpd_loo", ascending=False)
    few = {m: int(chains.inside(m).sum()) for m in chains.models if m not in each}
    table = table.reindex([*table.index, *few])
    shares = [chains.visits(label) for label in table.index]
    table["probability"] = [e.value for e in shares]
    table["probability_se"] = [e.std_error for e in shares]
    table["note"] = [
        f"{few[m]} draws, fewer than {FEWEST}" if m in few else "" for m in table.index
    ]
    return table


def leave_one_out(pointwise: Mapping[str, NDArray[np.floating]]) -> pd.DataFrame:
    """Pareto-smoothed leave-one-out of each model, and the weights of stacking.

    Arguments:
        pointwise: By model, log density of each observation at independent draws, shape
            (draw, observation), nats.

    Returns:
        By model ``elpd_loo``, ``se``, ``p_loo``, the largest Pareto shape ``pareto_k``, and the
        weight ``stacking``.

    Source:
        Vehtari, Gelman & Gabry (2017), https://doi.org/10.1007/s11222-016-9696-4; Yao, Vehtari,
        Simpson & Gelman (2018), https://doi.org/10.1214/17-BA1091
    """
    import pandas as pd

    rows, left_out = {}, []
    for name, given in pointwise.items():
        each = np.asarray(given, dtype=float)
        found = [_without(column) for column in each.T]
        elpd = np.array([value for value, _ in found])
        inside = np.logaddexp.reduce(each, 0) - math.log(len(each))
        rows[name] = {
            "elpd_loo": elpd.sum(),
            "se": (elpd.size * elpd.var()) ** 0.5,
            "p_loo": (inside - elpd).sum(),
            "pareto_k": max(shape for _, shape in found),
        }
        left_out.append(elpd)
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")
    return table.assign(stacking=_stacked(np.stack(left_out, 1)))


def _without(log_density: NDArray[np.float64]) -> tuple[float, float]:
    """Log predictive density of one observation from draws that know it, and the Pareto shape."""
    if np.ptp(log_density) == 0:  # a model without parameters
        return float(log_density[0]), 0.0
    with np.errstate(all="ignore"):
        log_w, shape = pareto_smooth(-log_density)
    return float(np.logaddexp.reduce(log_w + log_density)), shape


def _stacked(elpd: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of the mixture of models, shape (models,), that predicts (observation, models) best.

    The sum of logs is concave, and each round raises it (expectation and maximisation).
    """
    density = np.exp(elpd - elpd.max(1, keepdims=True))
    weights = np.full(elpd.shape[1], 1 / elpd.shape[1])
    for _ in range(ROUNDS):
        shares = density * weights
        weights = (shares / shares.sum(1, keepdims=True)).mean(0)
    return weights


def by_datum(
    target: Target, label: str, theta: Tensor, function: Pointwise | None = None
) -> NDArray[np.float64]:
    """Log density of each datum at points of one model, shape (n, data), nats.

    Arguments:
        target: Its likelihood is ``trj.Observed`` where there is no function.
        label: The model.
        theta: Padded coordinates, shape (n, D).
        function: Called as the likelihood is, gives (n, data).

    Raises:
        ConfigurationError: It gives one number a point.
    """
    code = target.space.code_of(label)
    known: Any = target.densities.of(code).likelihood.function
    points = theta.to(target.device, target.dtype).split(BATCH)
    found = [target.apply(function or known.pointwise, code, some) for some in points]
    if found[0].ndim < 2:
        shape = found[0].shape
        raise ConfigurationError(
            f"pointwise of model {label!r}: expected (n, data), got {shape}; do not sum"
        )
    return np.concatenate(found)


def log_likelihood_of(
    target: Target | None, chains: Chains, label: str
) -> NDArray[np.float64] | None:
    """Log density of each datum at the draws in a model; None where that is not known, or large."""
    inside = torch.as_tensor(chains.inside(label))
    if target is None or not target.is_observed:
        return None
    theta = chains.draws.theta[inside]
    each = by_datum(target, label, theta[:1]).size
    return by_datum(target, label, theta) if each * len(theta) <= MOST_VALUES else None
