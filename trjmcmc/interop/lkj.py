"""The constant of the LKJ distribution of correlation matrices."""

from __future__ import annotations

import math
from typing import Any

from ..errors import TargetError
from .pymc_refuse import evaluated


def log_integral(eta: float, n: int) -> float:
    """Log of the integral of det(R)^(eta - 1) over correlation matrices R, n by n.

    Source:
        Lewandowski, Kurowicka & Joe (2009), https://doi.org/10.1016/j.jmva.2009.04.008, eq. 16

    Example:
        >>> round(math.exp(log_integral(2.0, 2)), 6)  # of 1 - r^2 from -1 to 1
        1.333333
    """
    total = 0.0
    for k in range(1, n):
        a = eta + 0.5 * (n - k - 1)
        total += (n - k) * (
            (2 * eta - 2 + n - k) * math.log(2) + 2 * math.lgamma(a) - math.lgamma(2 * a)
        )
    return total


def missing_constant(rv: Any) -> float:
    """What PyMC's log density of a variable lacks to be normalised, nats: 0 but for LKJ priors.

    PyMC 5 adds the log of the integral where it must be subtracted.

    Raises:
        TargetError: Its constant can't be found out.
    """
    if "LKJ" not in type(rv.owner.op).__name__:
        return 0.0
    try:
        from pymc.distributions.multivariate import _lkj_normalizing_constant

        n, eta = (evaluated(x) for x in rv.owner.op.dist_params(rv.owner)[:2])
        added = evaluated(_lkj_normalizing_constant(float(eta), int(n)))
    except Exception as error:
        raise TargetError(
            f"{rv.name!r}: this PyMC does not show the constant of its LKJ density "
            f"({type(error).__name__}: {error}), and it has been wrong"
        ) from error
    return -log_integral(float(eta), int(n)) - float(added)
