"""Variable selection in a regression with outliers, under a likelihood that may be wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import TargetError
from ..space.subsets import Subsets
from .regression import RegressionTarget, regression_data
from .robust_regression import MixtureRegression

ROWS = 50

WEIGHTS, SDS = (0.9, 0.1), (1.0, 10.0)  # of the errors, as the likelihood has them

LEVELS = {"none": (1.0, 10.0), "mid": (2.0, 5.0), "high": (4.0, 4.0)}  # as the data have them

PRIOR_SDS = {"focused": 1.5, "wide": 10.0}

INCLUSION = 0.4  # of a column in the simulated data

LINK, LINKED = 0.4, 0.1  # level high: chance that a column without effect follows one; how much


def robust_selection(
    level: str = "mid",
    prior: str = "focused",
    p: int = 7,
    seed: int = 0,
    *,
    x: Any = None,
    y: Any = None,
) -> RegressionTarget:
    """All subsets of p columns beside an intercept, errors 0.9 N(0, 1) + 0.1 N(0, 10^2).

    Coefficients, the intercept's too, are N(0, 1.5^2) or N(0, 10^2); each column is in with
    probability 1/2. The data have other errors than the likelihood: a tenth of them from the
    second of N(0, s1^2) and N(0, s2^2) with (s1, s2) = (1, 10), (2, 5) or (4, 4) at level
    ``"none"``, ``"mid"`` or ``"high"``.

    The table that describes the data is read as follows. Each column has an
    effect with probability 0.4. The intercept and all effects have one value, 0.5, or with
    probability 1/2 in the whole data set 1.5 (0.5 at level ``"none"``). The 50 rows of columns
    are N(0, I), except that at level ``"high"`` each column i with an effect is followed by each
    one without with probability 0.4, the followers sharing a factor 0.1: x_j += 0.1 / m x_i for
    m of them.

    Arguments:
        level: How far the data are from the likelihood: ``"none"``, ``"mid"``, ``"high"``.
        prior: ``"focused"`` (sd 1.5) or ``"wide"`` (sd 10).
        p: Columns to select from, where data are simulated; any number.
        seed: Of the simulated data.
        x: Columns of your own without the intercept, shape (n, p).
        y: Response of your own, shape (n,).

    Returns:
        A target with models ``"x0"`` (the intercept alone), ``"x0+x1"``, ... and parameter
        ``beta``, the intercept first. It has the data as ``x`` (n, p) and ``y`` (n,), and of
        simulated ones ``gamma_true`` (p,), bool, and ``beta_true`` (p + 1,), else None. Up to 3
        columns its truth is computed on first use, by quadrature (seconds); beyond it is None
        and may be set.

    Raises:
        ShapeError: x and y do not fit together, or there is no column.
        TargetError: An unknown level or prior, no columns, only one of x and y, or a number in
            them is not finite.

    Source:
        Davies, Mackinlay, Oliveira & Sisson (2025), https://arxiv.org/abs/2506.04749,
        equations 16 and 54, appendix F, table 2

    Example:
        >>> target = robust_selection("high", p=24, seed=3)
        >>> target.space.size == 2**24, target.x.shape, target.beta_true.shape
        (True, torch.Size([50, 24]), torch.Size([25]))
    """
    for name, value, known in (("level", level, LEVELS), ("prior", prior, PRIOR_SDS)):
        if value not in known:
            raise TargetError(f"{name}: expected one of {list(known)}, got {value!r}")
    beta = None
    if x is None and y is None:
        if p < 1:
            raise TargetError(f"p: expected at least one column to select, got {p}")
        x, y, beta = _simulate(level, p, seed)
    columns, response = regression_data(x, y)
    design = torch.cat([torch.ones(len(columns), 1, dtype=columns.dtype), columns], 1)
    names = [f"x{j}" for j in range(design.shape[1])]
    coefficients = None if beta is None else torch.tensor(beta)
    return RegressionTarget(
        Subsets(names, of="beta", always=names[:1], prior=0.5),
        MixtureRegression(design, response, WEIGHTS, SDS),
        PRIOR_SDS[prior],
        columns,
        response,
        coefficients,
        None if coefficients is None else coefficients[1:] != 0,
    )


def _simulate(
    level: str, p: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Columns (n, p), response (n,) and coefficients (p + 1,); the order of draws is fixed."""
    rng = np.random.default_rng(seed)
    gamma = rng.random(p) < INCLUSION
    value = 0.5 if rng.random() < 0.5 or level == "none" else 1.5
    z = rng.standard_normal((ROWS, p))
    link = (rng.random((p, p)) < LINK) & gamma[:, None] & ~gamma
    outlier = rng.random(ROWS) < WEIGHTS[1]
    sds = np.where(outlier, LEVELS[level][1], LEVELS[level][0])
    errors = sds * rng.standard_normal(ROWS)
    x = z.copy()
    if level == "high":
        x += z @ (LINKED * link / link.sum(1, keepdims=True).clip(min=1))
    beta = value * np.concatenate([[1.0], gamma])
    return x, beta[0] + x @ beta[1:] + errors, beta
