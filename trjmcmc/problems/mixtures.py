"""How many components has a mixture? Univariate, and in the plane."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Exponential, Gamma, Normal, Uniform

from ..errors import ShapeError, TargetError
from ..space.counts import Counts
from ..space.prior import LogWeights
from ..target.additive import Additive
from ..target.target import Target
from .regression import Constants

LIFT = 600.0  # nats that densities are lifted by, so that far points are not lost: to 50 sigma

MARGIN = 0.2  # of the data's range, on each side of the box

SHAPE, RATE_SHAPE, RATE_FACTOR = 2.0, 0.2, 10.0  # alpha, g, h R^2 of Richardson & Green

# velocities of 82 galaxies in the Corona Borealis region, 1000 km/s, Roeder (1990), table 1
GALAXIES = [
    *(9.172, 9.350, 9.483, 9.558, 9.775, 10.227, 10.406, 16.084, 16.170, 18.419, 18.552, 18.600),
    *(18.927, 19.052, 19.070, 19.330, 19.343, 19.349, 19.440, 19.473, 19.529, 19.541, 19.547),
    *(19.663, 19.846, 19.856, 19.863, 19.914, 19.918, 19.973, 19.989, 20.166, 20.175, 20.179),
    *(20.196, 20.215, 20.221, 20.415, 20.629, 20.795, 20.821, 20.846, 20.875, 20.986, 21.137),
    *(21.492, 21.701, 21.814, 21.921, 21.960, 22.185, 22.209, 22.242, 22.249, 22.314, 22.374),
    *(22.495, 22.746, 22.747, 22.888, 22.914, 23.206, 23.241, 23.263, 23.484, 23.538, 23.542),
    *(23.666, 23.706, 23.711, 24.129, 24.285, 24.289, 24.366, 24.717, 24.990, 25.633, 26.960),
    *(26.995, 32.065, 32.789, 34.279),
]


class MixtureTarget(Target):
    """A target that holds its data.

    Arguments:
        model: What a target is made of.
        y: The data, shape (n, ...).
        means_true: Means that the data were simulated with, if they were, shape (k, ...).
        dtype: Precision.
    """

    def __init__(
        self,
        *model: Any,
        y: Tensor,
        means_true: Tensor | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(*model, dtype=dtype)
        self.y, self.means_true = y, means_true


def mixture_1d(y: Any = None, *, most: int = 30) -> MixtureTarget:
    """A univariate normal mixture, its number of components, means, variances, weights unknown.

    With R the range of the data and c its middle: means N(c, R^2), precisions Gamma(2, b),
    b ~ Gamma(0.2, 10 / R^2), weights Dirichlet(1, ..., 1), 1 to ``most`` components, equally
    likely. Weights are masses, each Exponential(1), over their sum.

    Arguments:
        y: Data, shape (n,); the velocities of 82 galaxies, in 1000 km/s, if omitted.
        most: Largest number of components.

    Returns:
        A target over ``Counts`` with parameters ``rate`` (b, shared), ``mass``, ``mean`` and
        ``precision``, whose likelihood is :class:`trjmcmc.Additive`. Its truth is None.

    Raises:
        ShapeError: y is not a vector of two numbers or more.
        TargetError: A number in y is not finite, or all are equal; ``most`` below 1.

    Error:
        A datum further than 50 standard deviations from every component counts as impossible.

    Source:
        Richardson & Green (1997), https://doi.org/10.1111/1467-9868.00095, sections 2.4 and 4.1

    Example:
        >>> target = mixture_1d()
        >>> target.y.shape, target.space.size, target.dim
        (torch.Size([82]), 30, 91)
    """
    values = np.asarray(GALAXIES if y is None else y, dtype=float)
    if values.ndim != 1 or len(values) < 2:
        raise ShapeError(f"y: expected a vector of two numbers or more, got shape {values.shape}")
    spread = float(values.max() - values.min())
    if not math.isfinite(spread) or spread == 0 or most < 1:
        raise TargetError(
            "y, most: expected finite numbers that are not all equal, and 1 component or more"
        )
    data = Constants(torch.tensor(values))

    def contribution(p: dict[str, Tensor]) -> Tensor:
        (seen,) = data.like(p["mean"].double())
        precision = p["precision"].double()[:, None]
        gap = precision * (seen - p["mean"].double()[:, None]).square()
        log_density = 0.5 * (precision.log() - gap) + LIFT
        each = torch.cat([log_density.exp(), torch.ones_like(gap[:, :1])], 1)
        return p["mass"].double()[:, None] * each

    return MixtureTarget(
        Counts(most, 1, of=("mass", "mean", "precision")),
        {
            "rate": Gamma(RATE_SHAPE, RATE_FACTOR / spread**2),
            "mass": Exponential(1.0),
            "mean": Normal(0.5 * float(values.max() + values.min()), spread),
            "precision": lambda p: Gamma(SHAPE, p["rate"][:, None]),
        },
        Additive(contribution, _of_weighted(0.5 * math.log(2 * math.pi))),  # type: ignore[arg-type]
        y=torch.tensor(values),
    )


def gaussian_mixture_2d(
    y: Any = None,
    *,
    sigma: float = 0.5,
    most: int = 100,
    penalty: float = 2.0,
    true: int = 10,
    points: int = 4000,
    side: float = 20.0,
    seed: int = 0,
    dtype: torch.dtype | None = None,
) -> MixtureTarget:
    """An equal mixture of round normals of known width in the plane, 1 to ``most`` of them.

    Means are uniform on the data's bounding box, widened by a fifth of it on each side. Each
    component beyond the first costs penalty / 2 log(n) nats of the prior.

    Arguments:
        y: Data, shape (n, 2); simulated if omitted.
        sigma: Standard deviation of each component in each direction.
        most: Largest number of components.
        penalty: Of each component, in units of log(n) / 2.
        true: Components of simulated data, on a square of size ``side``, 6 sigma apart at least.
        points: n, of simulated data.
        side: Of that square.
        seed: Of the simulated data.
        dtype: Precision of the coordinates; densities are summed in double precision anyway.

    Returns:
        A target over ``Counts`` with parameters ``x`` and ``y``, the means' coordinates, whose
        likelihood is :class:`trjmcmc.Additive`. Its truth is None.

    Raises:
        ShapeError: y is not of shape (n, 2).
        TargetError: A number in y is not finite; a setting out of range; means that far apart
            do not fit.

    Error:
        A datum further than 50 sigma from every component counts as impossible.

    Source:
        Problem and sizes: the walkthrough of Davies et al. (2025),
        https://arxiv.org/abs/2506.04749

    Example:
        >>> target = gaussian_mixture_2d(true=3, points=200, most=10)
        >>> target.y.shape, target.means_true.shape, target.dim
        (torch.Size([200, 2]), torch.Size([3, 2]), 20)
    """
    if min(sigma, side) <= 0 or min(most, true, points) < 1 or penalty < 0:
        raise TargetError(
            "sigma, side, most, true, points, penalty: expected above 0, 1 or more, and 0 or "
            f"more, got {sigma}, {side}, {most}, {true}, {points} and {penalty}"
        )
    means = None
    if y is None:
        means, y = _simulate(true, points, side, sigma, seed)
    values = np.asarray(y, dtype=float)
    if values.ndim != 2 or values.shape[1] != 2 or not len(values):
        raise ShapeError(f"y: expected shape (n, 2), got {values.shape}")
    low, high = values.min(0), values.max(0)
    if not np.isfinite(high - low).all() or (high == low).any():
        raise TargetError("y: expected finite numbers that are not all equal")
    low, high = low - MARGIN * (high - low), high + MARGIN * (high - low)
    data = Constants(torch.tensor(values))

    def contribution(p: dict[str, Tensor]) -> Tensor:
        (seen,) = data.like(p["x"].double())
        gap = (seen[:, 0] - p["x"].double()[:, None]).square()
        gap = gap + (seen[:, 1] - p["y"].double()[:, None]).square()
        density = (LIFT - 0.5 * gap / sigma**2).exp()
        return torch.cat([density, torch.ones_like(gap[:, :1])], 1)

    step = 0.5 * penalty * math.log(len(values))
    return MixtureTarget(
        Counts(most, 1, of=("x", "y"), prior=LogWeights([-step * k for k in range(most)])),
        {
            name: Uniform(float(a), float(b))
            for name, a, b in zip(("x", "y"), low, high, strict=True)
        },
        Additive(contribution, _of_weighted(math.log(2 * math.pi * sigma**2))),  # type: ignore[arg-type]
        y=torch.tensor(values),
        means_true=None if means is None else torch.tensor(means),
        dtype=dtype,
    )


def _of_weighted(constant: float) -> Any:
    """The log-likelihood of sums whose last column is that of the weights."""

    def combine(total: Tensor, p: dict[str, Tensor]) -> Tensor:
        density, weight = total[:, :-1].clamp(min=0), total[:, -1:].clamp(min=1e-300)
        n = density.shape[1]
        value = density.log().sum(-1) - n * (weight[:, 0].log() + LIFT + constant)
        return torch.where((density > 0).all(-1), value, -math.inf)

    return combine


def _simulate(
    true: int, points: int, side: float, sigma: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    means = rng.uniform(0, side, (1, 2))
    for _ in range(1000 * true):
        if len(means) == true:
            break
        new = rng.uniform(0, side, 2)
        if np.linalg.norm(means - new, axis=1).min() > 6 * sigma:
            means = np.vstack([means, new])
    if len(means) < true:
        raise TargetError(f"true: {true} means 6 sigma apart do not fit into a square of {side}")
    of = rng.integers(true, size=points)
    return means, means[of] + sigma * rng.standard_normal((points, 2))
