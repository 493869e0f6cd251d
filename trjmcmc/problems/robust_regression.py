"""Block variable selection in a regression with outliers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Normal

from ..errors import ShapeError
from ..space import Subsets
from ..target import Target, Truth
from .quadrature import log_evidence

PRIOR_SD = 10.0
OUTLIER_SD = 10.0
ROWS = 80


def robust_regression(x: Any = None, y: Any = None, *, seed: int = 7) -> Target:
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
    log_likelihood = MixtureRegression(torch.tensor(design), torch.tensor(response))
    target = _RobustRegression(space, {"beta": Normal(0.0, PRIOR_SD)}, log_likelihood)
    target.x, target.y = log_likelihood.x, log_likelihood.y
    return target


class MixtureRegression:
    """Log-likelihood of a linear regression with equal-mixture errors N(0, 1), N(0, 10^2).

    Arguments:
        x: Design, shape (n, p).
        y: Response, shape (n,).
    """

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y
        self._cast: dict[Any, tuple[Tensor, Tensor]] = {}

    def __call__(self, params: dict[str, Tensor], active: Tensor | None = None) -> Tensor:
        beta = params["beta"]
        key = (beta.dtype, beta.device)
        if key not in self._cast:
            self._cast[key] = (self.x.to(beta), self.y.to(beta))
        x, y = self._cast[key]
        square = (y - beta @ x.T).square()
        # log(.5 N(r; 0, 1) + .5 N(r; 0, 10^2)) with one exponential an observation
        ratio = torch.exp(-0.5 * square * (1 - OUTLIER_SD**-2))
        log_terms = torch.log(ratio + 1 / OUTLIER_SD) - square / (2 * OUTLIER_SD**2)
        return log_terms.sum(-1) - len(y) * math.log(2 * math.sqrt(2 * math.pi))


class _RobustRegression(Target):
    x: Tensor
    y: Tensor
    _truth: Truth | None = None

    @property
    def truth(self) -> Truth | None:
        if self._truth is None:
            try:
                self._truth = _truth(self.x, self.y)
            except RuntimeError:  # data whose posterior is too wide for a lattice
                return None
        return self._truth

    @truth.setter
    def truth(self, value: Truth | None) -> None:
        self._truth = value


def _simulate(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A design with correlated columns, moderate effects and half the errors wide."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal((ROWS, 1))
    x = np.concatenate([np.ones((ROWS, 1)), (rng.standard_normal((ROWS, 3)) + common) / 2**0.5], 1)
    wide = rng.random(ROWS) < 0.5
    errors = rng.standard_normal(ROWS) * np.where(wide, OUTLIER_SD, 1.0)
    return x, x @ np.array([0.5, 0.8, -0.9, -0.8]) + errors


def _truth(x: Tensor, y: Tensor) -> Truth:
    """Evidences of the four models by quadrature."""
    columns = {"x1": [0], "x1+x2": [0, 1], "x1+x3+x4": [0, 2, 3], "x1+x2+x3+x4": [0, 1, 2, 3]}
    evidence = {}
    for label, keep in columns.items():
        likelihood = MixtureRegression(x[:, keep], y)

        def log_joint(beta: Tensor, likelihood: MixtureRegression = likelihood) -> Tensor:
            return likelihood({"beta": beta}) + Normal(0.0, PRIOR_SD).log_prob(beta).sum(-1)

        generator = torch.Generator().manual_seed(0)
        starts = 3 * torch.randn(8, len(keep), generator=generator, dtype=torch.float64)
        evidence[label] = log_evidence(log_joint, starts)
    log_z = torch.tensor(list(evidence.values()), dtype=torch.float64)
    probabilities = dict(zip(columns, log_z.softmax(0).tolist(), strict=True))
    return Truth(probabilities, evidence, "trapezoid rule on a lattice, error below 1e-5 nats")
