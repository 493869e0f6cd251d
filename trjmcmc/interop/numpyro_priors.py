"""Distributions of NumPyro alone, as priors of models whose likelihood is in torch or JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch import distributions as td
from torch.distributions import Distribution

from ..errors import TargetError
from ..priors.fields import LogUniform, TruncatedNormal
from .check import checked_alone
from .numpyro_compiled import Compiled
from .numpyro_trace import NumPyroProgram

Made = Callable[..., Distribution]

IN_TORCH: Mapping[str, tuple[Made, tuple[str, ...]]] = {  # by NumPyro's name; its parameters
    "Beta": (td.Beta, ("concentration1", "concentration0")),
    "Cauchy": (td.Cauchy, ("loc", "scale")),
    "Dirichlet": (td.Dirichlet, ("concentration",)),
    "Exponential": (td.Exponential, ("rate",)),
    "Gamma": (td.Gamma, ("concentration", "rate")),
    "HalfCauchy": (td.HalfCauchy, ("scale",)),
    "HalfNormal": (td.HalfNormal, ("scale",)),
    "InverseGamma": (td.InverseGamma, ("concentration", "rate")),
    "Laplace": (td.Laplace, ("loc", "scale")),
    "LeftTruncatedDistribution": (TruncatedNormal, ("loc", "scale", "low")),
    "LogNormal": (td.LogNormal, ("loc", "scale")),
    "LogUniform": (LogUniform, ("low", "high")),
    "Normal": (td.Normal, ("loc", "scale")),
    "StudentT": (td.StudentT, ("df", "loc", "scale")),
    "TwoSidedTruncatedDistribution": (TruncatedNormal, ("loc", "scale", "low", "high")),
    "Uniform": (td.Uniform, ("low", "high")),
    "Weibull": (td.Weibull, ("scale", "concentration")),
}


def is_numpyro(spec: Any) -> bool:
    """Whether something is a distribution of NumPyro, or the class of one."""
    kind = spec if isinstance(spec, type) else type(spec)
    return any(base.__module__.startswith("numpyro.distributions") for base in kind.__mro__)


def of_numpyro(given: Any) -> Distribution:
    """A distribution of NumPyro as one of torch; priors are passed through it.

    Those that torch has become torch's. JAX evaluates the others, in float64 whatever it is set
    to.

    Arguments:
        given: Continuous.

    Raises:
        TargetError: It lacks its parameters or its constant, is discrete, improper, has atoms, or
            lies where no bijection of torch leads.

    Example:
        >>> import numpyro.distributions as dist
        >>> of_numpyro(dist.Normal(0.0, 2.0))
        Normal(loc: 0.0, scale: 2.0)
        >>> of_numpyro(dist.Logistic(0.0, 1.0).expand([3]))
        Site(batch_shape=(3,), event_shape=())
    """
    if isinstance(given, type):
        raise TargetError(f"a prior in NumPyro: give it parameters: {given.__name__}(...)")
    found = _in_torch(given)
    if found is not None:
        return found
    import numpyro

    name = type(given).__name__
    program = NumPyroProgram("a prior in NumPyro", lambda: numpyro.sample(name, given), (), {})
    return checked_alone(Compiled(program, x64=True).priors()[name], "NumPyro")


def _in_torch(given: Any) -> Distribution | None:
    """The distribution that torch or this package has of it, or None."""
    name = type(given).__name__
    if name in {"ExpandedDistribution", "Independent"}:
        inner = _in_torch(given.base_dist)
        if inner is None:
            return None
        if name == "ExpandedDistribution":
            return inner.expand(torch.Size(given.batch_shape))
        return td.Independent(inner, given.reinterpreted_batch_ndims)
    if name not in IN_TORCH or not type(given).__module__.startswith("numpyro."):
        return None
    if "Truncated" in name:  # of any symmetric distribution
        if type(given.base_dist).__name__ != "Normal":
            return None
        given = _Flat(given)
    made, parameters = IN_TORCH[name]
    values = [_tensor(getattr(given, k)) for k in parameters]
    return made(*values)


class _Flat:
    """A truncated normal with its parameters side by side."""

    def __init__(self, given: Any) -> None:
        self.loc, self.scale = given.base_dist.loc, given.base_dist.scale
        self.low, self.high = given.low, getattr(given, "high", np.inf)


def _tensor(x: Any) -> Tensor:
    return torch.as_tensor(np.array(x, dtype=np.float64))
