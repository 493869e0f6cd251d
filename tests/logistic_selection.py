"""Variable selection in a logistic regression."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
import torch
from solved import LogisticRegression, yes_and_no

from trjmcmc import Subsets
from trjmcmc.problems.regression import (
    RegressionTarget,
    alternating,
    correlated_columns,
    regression_data,
)

# a coefficient of two standard deviations takes the chances from 1/2 to 0.993 over one
# standard deviation of its column: hardly any real effect is larger
PRIOR_SD = 2.5

INTERCEPT = -0.5

EFFECTS = (1.0, -0.8, 0.5)  # of the simulated columns 1, 3, 5; the others have none


def logistic_selection(
    p: int = 8,
    n: int = 200,
    rho: float = 0.5,
    seed: int = 0,
    *,
    x: Any = None,
    y: Any = None,
) -> RegressionTarget:
    """All subsets of p columns beside an intercept in a regression of yes and no.

    y_i ~ Bernoulli(1 / (1 + exp(-eta_i))), eta = b_0 + X_g b_g, all b_j ~ N(0, 2.5^2), each
    column in with probability 1/2. The prior is weakly informative for columns of mean 0 and
    standard deviation 1. It is proper, so that data which a plane separates do no harm.

    Simulated rows are N(0, R), R_ij = rho^|i - j|, the columns centred and scaled to mean square
    1; the intercept is -0.5, columns 1, 3 and 5 have the effects 1, -0.8 and 0.5, the others none.

    Arguments:
        p: Columns, where data are simulated.
        n: Rows, where data are simulated.
        rho: Correlation of neighbouring columns, where data are simulated.
        seed: Of the simulated data.
        x: Columns of your own without the intercept, shape (n, p), used as they are:
            standardise them first, or the prior says something else.
        y: Response of your own, zeros and ones or booleans, shape (n,).

    Returns:
        A target with models ``"x0"`` (the intercept alone), ``"x0+x1"``, ... and parameter
        ``beta``, the intercept first. It has the data as ``x`` (n, p) and ``y`` (n,), and of
        simulated ones ``gamma_true`` (p,), bool, and ``beta_true`` (p + 1,), else None. Up to 3
        columns its truth is computed on first use, by quadrature (seconds); beyond it is None
        and may be set.

    Raises:
        ShapeError: x and y do not fit together, or there is no column.
        TargetError: Only one of x and y, a number in x is not finite or one in y neither 0 nor
            1, or p, n or rho is out of range.

    Source:
        Normal priors of scale 2.5 on standardised columns, after the Cauchy ones of Gelman,
        Jakulin, Pittau & Su (2008), https://doi.org/10.1214/08-AOAS191

    Example:
        >>> target = logistic_selection(3)
        >>> target.space.size, target.x.shape, target.y.unique().tolist()
        (8, torch.Size([200, 3]), [0.0, 1.0])
    """
    beta = None
    if x is None and y is None:
        rng = np.random.default_rng(seed)
        x = correlated_columns(rng, n, p, rho)
        beta = torch.tensor(np.concatenate([[INTERCEPT], alternating(EFFECTS, p)]))
        y = rng.random(n) < scipy.special.expit(INTERCEPT + x @ beta[1:].numpy())
    columns, response = regression_data(x, y)
    yes_and_no(response)
    design = torch.cat([torch.ones(len(columns), 1, dtype=columns.dtype), columns], 1)
    names = [f"x{j}" for j in range(design.shape[1])]
    return RegressionTarget(
        Subsets(names, of="beta", always=names[:1], prior=0.5),
        LogisticRegression(design, response),
        PRIOR_SD,
        columns,
        response,
        beta,
        None if beta is None else beta[1:] != 0,
    )
