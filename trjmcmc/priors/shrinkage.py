"""Priors of scales, and of coefficients most of which are small."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributions import (
    AbsTransform,
    Distribution,
    HalfCauchy,
    Normal,
    StudentT,
    TransformedDistribution,
    constraints,
)

from ..errors import TargetError


class HalfStudent(TransformedDistribution):
    """The absolute value of a Student-t variable about zero: a prior of standard deviations.

    Arguments:
        df: Degrees of freedom; 1 is the half-Cauchy distribution.
        scale: Scale, in the unit of the parameter.

    Source:
        Gelman (2006), https://doi.org/10.1214/06-BA117A

    Example:
        >>> round(float(HalfStudent(4.0, 2.0).log_prob(torch.tensor(0.0)).exp()), 4)
        0.375
    """

    arg_constraints: dict[str, Any] = {  # noqa: RUF012 - torch's own convention
        "df": constraints.positive,
        "scale": constraints.positive,
    }
    support = constraints.nonnegative
    has_rsample = True
    base_dist: StudentT

    def __init__(self, df: Any, scale: Any = 1.0) -> None:
        base = StudentT(df, 0.0, scale, validate_args=False)
        if not bool(((base.df > 0) & (base.scale > 0)).all()):
            raise TargetError(f"HalfStudent: expected positive df and scale, got {df} and {scale}")
        super().__init__(base, AbsTransform(), validate_args=False)

    @property
    def df(self) -> Tensor:
        return self.base_dist.df

    @property
    def scale(self) -> Tensor:
        return self.base_dist.scale

    def expand(self, batch_shape: Any, _instance: Any = None) -> HalfStudent:
        new = self._get_checked_instance(HalfStudent, _instance)
        found: HalfStudent = super().expand(batch_shape, _instance=new)
        return found

    def log_prob(self, value: Tensor) -> Tensor:
        found = self.base_dist.log_prob(value) + math.log(2)
        return torch.where(value >= 0, found, -math.inf)


def horseshoe(name: str, n: int, scale: float = 1.0) -> dict[str, Any]:
    r"""Priors of n coefficients most of which are small and some are not.

    .. math:: \beta_j \sim N(0, \tau^2 \lambda_j^2), \quad \lambda_j \sim C^+(0, 1), \quad
        \tau \sim C^+(0, s)

    Arguments:
        name: Of the coefficients; the others are ``name_global`` and ``name_local``.
        n: How many.
        scale: s, in the unit of a coefficient; smaller where fewer are expected to matter.

    Returns:
        Priors by name, to go among those of a model.

    Source:
        Carvalho, Polson & Scott (2010), https://doi.org/10.1093/biomet/asq017

    Example:
        >>> list(horseshoe("beta", 20, scale=0.1))
        ['beta_global', 'beta_local', 'beta']
    """
    tau, local = f"{name}_global", f"{name}_local"

    def coefficients(values: Mapping[str, Tensor]) -> Distribution:
        return Normal(0.0, values[tau][:, None] * values[local])

    return {
        tau: HalfCauchy(scale),
        local: HalfCauchy(torch.ones(n)),
        name: coefficients,
    }
