"""Which model predicts best what it has not seen, beside which is most probable."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .. import arviz_bridge
from ..errors import ConfigurationError
from ..result.result import Result
from ..space.codes import distinct
from ..target.observed import Observed
from ..target.target import Target

if TYPE_CHECKING:
    import pandas as pd

FEWEST = 100  # draws in a model from which it is judged

MOST = 2000  # draws of a model that are used, evenly spaced, so that they count as independent

Pointwise = Callable[..., Any]


def leave_one_out(
    result: Result,
    pointwise: Pointwise | Mapping[str, Pointwise] | None = None,
    *,
    target: Target | None = None,
) -> pd.DataFrame:
    """Leave-one-out predictive densities and stacking weights beside posterior probabilities.

    By ArviZ: Pareto-smoothed importance sampling, and stacking of predictive distributions.
    Probabilities ask which model the data came from, if from one of these; stacking asks which
    mixture predicts the next datum best, wherever that comes from.

    Arguments:
        result: Of a run.
        pointwise: Log density of each datum: a function that is called as the likelihood is and
            returns (n, data), or one for each model by label. Not needed where likelihoods are
            ``trj.Observed``.
        target: Of a result that was loaded.

    Returns:
        By model with a hundred draws or more, the best first: ``elpd_loo``, nats, its standard
        error ``se`` over data, ``p_loo`` the effective number of parameters, ``pareto_k`` the
        largest Pareto shape (above .7 the figures of that model are not to be trusted),
        ``stacking``, its weight, and ``probability`` with ``probability_se``.

    Raises:
        ConfigurationError: No likelihood by datum; no target; no model with enough draws.

    Source:
        Vehtari, Gelman & Gabry (2017), https://doi.org/10.1007/s11222-016-9696-4; Yao et al.
        (2018), https://doi.org/10.1214/17-BA1091

    Example:
        >>> import trjmcmc as trj
        >>> from torch.distributions import Normal
        >>> y = torch.linspace(-1.0, 2.0, 20)
        >>> models = [
        ...     trj.Model("zero", {}, trj.Observed(lambda p: Normal(torch.zeros(20), 1.0), y)),
        ...     trj.Model("mean", {"mu": Normal(0.0, 1.0)},
        ...               trj.Observed(lambda p: Normal(p["mu"][:, None].expand(-1, 20), 1.0), y)),
        ... ]
        >>> run = {"draws": 50, "chains": 64, "fit": False, "progress": False}
        >>> table = leave_one_out(trj.TRJSampler(trj.Target(models), seed=1).run(**run))
        >>> table.index[0], round(float(table["stacking"].sum()), 6)
        ('mean', 1.0)
    """
    target = target or result.target
    if target is None:
        raise ConfigurationError("target: a loaded result has none; pass target=")
    if pointwise is None and not target.is_observed:
        raise ConfigurationError(
            "pointwise: the likelihood is a function that tells only the sum: give "
            "pointwise(params) -> (n, data), or state it as trj.Observed(distribution, data)"
        )
    code, theta = result.raw.flat()
    codes, which, _ = distinct(code)
    each = {}
    for m, label in enumerate(target.space.label(codes)):
        rows = (which == m).nonzero()[:, 0]
        if len(rows) < FEWEST:
            continue
        rows = rows[torch.linspace(0, len(rows) - 1, min(MOST, len(rows))).round().long()]
        function = _of(target, pointwise, label, codes[m])
        at = theta[rows].to(target.device, target.dtype)
        found = target.apply(function, codes[m].to(target.device), at)
        if found.ndim < 2:
            raise ConfigurationError(
                f"pointwise of model {label!r}: expected (n, data), got {found.shape}; do not sum"
            )
        each[label] = np.array(found).reshape(len(rows), math.prod(found.shape[1:]))
    if not each:
        raise ConfigurationError(
            f"leave_one_out: no model has {FEWEST} draws among {len(code)}; run longer"
        )
    table = arviz_bridge.leave_one_out(each)
    shares = {label: result.chains.visits(label) for label in each}
    table["probability"] = [shares[label].value for label in table.index]
    table["probability_se"] = [shares[label].std_error for label in table.index]
    return table.sort_values("elpd_loo", ascending=False)


def _of(target: Target, pointwise: Any, label: str, code: torch.Tensor) -> Pointwise:
    if isinstance(pointwise, Mapping):
        if label not in pointwise:
            raise ConfigurationError(f"pointwise: no function for {label!r}, which was visited")
        return pointwise[label]
    if pointwise is not None:
        return pointwise
    known = target.densities.of(code).likelihood.function
    assert isinstance(known, Observed)
    return known.pointwise
