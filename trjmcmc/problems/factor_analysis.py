"""How many factors? Bayesian factor analysis with an unknown number of factors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import HalfNormal, InverseGamma, Normal

from ..errors import ShapeError, TargetError
from ..target.model import Model
from ..target.prior import PriorSpec
from ..target.target import Target

SHAPE, SCALE = 1.1, 0.05  # of the inverse-gamma prior of the uniquenesses

ROWS, COLUMNS = 143, 6  # of the simulated data


def factor_analysis(
    y: Any = None, factors: Sequence[int] = (2, 3), *, seed: int = 1
) -> FactorTarget:
    """Normal data with covariance B B' + diag(uniqueness), B lower triangular with k columns.

    Diagonal entries of B are half-normal, entries below N(0, 1), uniquenesses
    InverseGamma(1.1, 0.05); the mean is zero. Columns of B may change sign where a diagonal
    entry is near zero, so that posteriors have several modes.

    Arguments:
        y: Data, shape (n, p), usually standardised; 143 x 6 simulated with two factors if
            omitted.
        factors: Numbers of factors k to compare, each at most p, equally likely.
        seed: Seed of the simulated data.

    Returns:
        A target with models ``"1 factor"``, ``"2 factors"``, ... and parameters ``diagonal``
        (k,), ``loading`` (column by column, the entries below the diagonal; the columns that
        two models have in common share coordinates) and ``uniqueness`` (p,). See
        :func:`loading_matrix`.

    Raises:
        ShapeError: ``y`` is not a matrix.
        TargetError: A number of factors out of range or twice.

    Source:
        Lopes & West (2004), Statistica Sinica 14:41; Yin & Jiao,
        https://arxiv.org/abs/2512.12742, section 4.2

    Example:
        >>> target = factor_analysis(factors=(1, 2))
        >>> target.space.label(target.space.enumerate()), target.dim
        (['1 factor', '2 factors'], 17)
    """
    data = torch.as_tensor(_simulate(seed) if y is None else np.asarray(y, dtype=np.float64))
    if data.dim() != 2 or not bool(data.isfinite().all()):
        raise ShapeError(f"y: expected a finite matrix (n, p), got shape {tuple(data.shape)}")
    p = data.shape[1]
    if len(set(factors)) != len(factors) or not all(1 <= k <= p for k in factors):
        raise TargetError(f"factors: expected distinct numbers from 1 to {p}, got {factors}")
    models = []
    for k in factors:
        below = sum(p - 1 - j for j in range(k))
        priors: dict[str, PriorSpec] = {"diagonal": HalfNormal(torch.ones(k))}
        if below:
            priors["loading"] = Normal(torch.zeros(below), 1.0)
        priors["uniqueness"] = InverseGamma(torch.full((p,), SHAPE), torch.full((p,), SCALE))
        name = "1 factor" if k == 1 else f"{k} factors"
        models.append(Model(name, priors, FactorLikelihood(data, k)))
    return FactorTarget(models, y=data)


class FactorTarget(Target):
    """A target that holds its data.

    Arguments:
        models: The models.
        y: The data, shape (n, p), float64.
    """

    def __init__(self, models: Sequence[Model], *, y: Tensor) -> None:
        super().__init__(models)
        self.y = y


def loading_matrix(params: Mapping[str, Any], p: int) -> Tensor:
    """The matrix B of parameters of one model.

    Arguments:
        params: ``diagonal`` (n, k) and, unless p = k = 1, ``loading`` (n, entries below).
        p: Number of rows.

    Returns:
        Shape (n, p, k), zero above the diagonal.

    Example:
        >>> loading_matrix({"diagonal": [[1.0, 2.0]], "loading": [[3.0, 4.0, 5.0]]}, p=3)
        tensor([[[1., 0.],
                 [3., 2.],
                 [4., 5.]]])
    """
    diagonal = torch.as_tensor(params["diagonal"])
    loading = torch.as_tensor(params.get("loading", diagonal[:, :0]))
    k, columns, start = diagonal.shape[1], [], 0
    for j in range(k):
        below = loading[:, start : start + p - 1 - j]
        start += p - 1 - j
        columns.append(
            torch.cat([diagonal.new_zeros(len(diagonal), j), diagonal[:, [j]], below], 1)
        )
    return torch.stack(columns, -1)


class FactorLikelihood:
    """Log-likelihood of zero-mean normal data with covariance B B' + diag(uniqueness).

    Gaussian elimination on the covariance beside a square root of the data's scatter, the
    batch last so that each of the p steps is one operation on all points. Pivots are at least
    the uniquenesses, which rounding must not undo.

    Arguments:
        data: Shape (n, p).
        factors: Number of columns of B.
    """

    def __init__(self, data: Tensor, factors: int) -> None:
        self.n, self.p = data.shape
        self.factors = factors
        values, vectors = torch.linalg.eigh(data.T @ data)
        self.root = vectors * values.clamp(min=0).sqrt()  # root @ root.T is the scatter matrix

    def __call__(self, params: dict[str, Tensor]) -> Tensor:
        unique = params["uniqueness"].T
        b = loading_matrix(params, self.p).permute(2, 1, 0)
        cov = (b[:, :, None] * b[:, None]).sum(0) + torch.diag_embed(unique.T).permute(1, 2, 0)
        rest = self.root.to(unique)[..., None].expand(-1, -1, unique.shape[1])
        log_det = square = unique.new_zeros(())
        for j in range(self.p):
            pivot = torch.maximum(cov[0, 0], unique[j])
            log_det = log_det + pivot.log()
            square = square + rest[0].square().sum(0) / pivot
            factor = cov[1:, 0] / pivot
            cov = cov[1:, 1:] - factor[:, None] * cov[0, 1:]
            rest = rest[1:] - factor[:, None] * rest[0]
        return -0.5 * (self.n * (self.p * math.log(2 * math.pi) + log_det) + square)


def _simulate(seed: int) -> np.ndarray:
    """Two factors, the second barely present in its first variable, so that its sign is open."""
    rng = np.random.default_rng(seed)
    b = np.array(
        [[0.97, 0.0], [0.95, 0.06], [0.45, 0.40], [0.40, 0.85], [0.42, 0.70], [0.40, 0.72]]
    )
    unique = np.array([0.06, 0.1, 0.6, 0.06, 0.25, 0.25])
    y = rng.standard_normal((ROWS, 2)) @ b.T + rng.standard_normal((ROWS, COLUMNS)) * unique**0.5
    return (y - y.mean(0)) / y.std(0, ddof=1)
