"""Block variable selection in a regression with outliers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import ShapeError
from ..space.subsets import Subsets
from .regression import Constants, RegressionTarget

PRIOR_SD = 10.0

OUTLIER_SD = 10.0

ROWS = 80


def robust_regression(x: Any = None, y: Any = None, *, seed: int = 7) -> RegressionTarget:
    """Four regressions with errors from an equal mixture of N(0, 1) and N(0, 10^2).

    Column x1 is in every model, x2 enters on its own, x3 and x4 together. Coefficients have
    N(0, 10^2) priors, the four models are equally likely.

    Arguments:
        x: Design, shape (n, 4), the first column usually ones; simulated if omitted.
        y: Response, shape (n,); simulated if ``x`` is omitted.
        seed: Seed of the simulated data.

    Returns:
        A target with models ``"x1"``, ``"x1+x2"``, ``"x1+x3+x4"``, ``"x1+x2+x3+x4"`` and
        parameter ``beta``; its truth is computed on first use, by quadrature (a second).

    Raises:
        ShapeError: x and y do not fit together.

    Source:
        Davies et al. (2023), https://arxiv.org/abs/2210.12572, section 5.3

    Example:
        >>> target = robust_regression(seed=3)
        >>> target.space.label(target.space.enumerate())
        ['x1', 'x1+x2', 'x1+x3+x4', 'x1+x2+x3+x4']
    """
    if x is None:
        x, y = _simulate(seed)
    design, response = (np.asarray(v, dtype=np.float64) for v in (x, y))
    if design.ndim != 2 or design.shape[1] != 4 or response.shape != design.shape[:1]:
        raise ShapeError(
            f"x, y: expected shapes (n, 4) and (n,), got {design.shape} and {response.shape}"
        )
    names = [f"x{j + 1}" for j in range(4)]
    space = Subsets(names, of="beta", always=names[:1], blocks=[names[2:]])
    columns, values = torch.tensor(design), torch.tensor(response)
    return RegressionTarget(space, MixtureRegression(columns, values), PRIOR_SD, columns, values)


class MixtureRegression:
    r"""Log-likelihood of a linear regression whose errors mix two centred normals.

    .. math:: \log p(y) = \sum_i \log \sum_k w_k N(y_i - x_i b; 0, s_k^2)

    Arguments:
        x: Design, shape (n, p).
        y: Response, shape (n,).
        weights: Of the two normals, above 0, summing to 1.
        sds: Their standard deviations, the narrower first.
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        weights: tuple[float, float] = (0.5, 0.5),
        sds: tuple[float, float] = (1.0, OUTLIER_SD),
    ) -> None:
        self.data = Constants(x, y)
        (narrow, wide), (w_narrow, w_wide) = sds, weights
        self.wide_precision = wide**-2
        self.gap = narrow**-2 - wide**-2
        self.floor = (w_wide / wide) / (w_narrow / narrow)
        self.constant = len(y) * math.log(w_narrow / (narrow * math.sqrt(2 * math.pi)))

    def __call__(self, params: dict[str, Tensor], active: Tensor | None = None) -> Tensor:
        beta = params["beta"]
        x, y = self.data.like(beta)
        square = (y - beta @ x.T).square()
        # the narrow over the wide density, at most 1: one exponential an observation
        ratio = torch.exp(-0.5 * self.gap * square)
        log_terms = torch.log(ratio + self.floor) - 0.5 * self.wide_precision * square
        return log_terms.sum(-1) + self.constant


def _simulate(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A design with correlated columns, moderate effects and half the errors wide."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal((ROWS, 1))
    x = np.concatenate([np.ones((ROWS, 1)), (rng.standard_normal((ROWS, 3)) + common) / 2**0.5], 1)
    wide = rng.random(ROWS) < 0.5
    errors = rng.standard_normal(ROWS) * np.where(wide, OUTLIER_SD, 1.0)
    return x, x @ np.array([0.5, 0.8, -0.9, -0.8]) + errors
