"""Which model predicts best what it has not seen, beside which is most probable."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .. import arviz_bridge
from ..errors import ConfigurationError
from ..target.target import Target
from .chains import Chains

if TYPE_CHECKING:
    import pandas as pd

FEWEST = 100  # draws in a model from which it is judged

MOST = 2000  # draws of a model that are used, evenly spaced, so that they count as independent

MOST_VALUES = 20_000_000  # log densities of data at the draws in one model, at most

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
    table = arviz_bridge.leave_one_out(each).sort_values("elpd_loo", ascending=False)
    few = {m: int(chains.inside(m).sum()) for m in chains.models if m not in each}
    table = table.reindex([*table.index, *few])
    shares = [chains.visits(label) for label in table.index]
    table["probability"] = [e.value for e in shares]
    table["probability_se"] = [e.std_error for e in shares]
    table["note"] = [
        f"{few[m]} draws, fewer than {FEWEST}" if m in few else "" for m in table.index
    ]
    return table


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
