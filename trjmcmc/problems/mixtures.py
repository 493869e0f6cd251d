"""How many components has a mixture? Univariate, in the plane, and with full covariances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy.special import gammaln, logsumexp, multigammaln
from torch import Tensor
from torch.distributions import Chi2, Exponential, Gamma, Independent, Normal, Poisson, Uniform

from ..errors import ShapeError, TargetError
from ..space.counts import Counts
from ..space.prior import LogWeights
from ..target.additive import Additive
from ..target.model import Truth
from ..target.target import Target
from .regression import Constants

LIFT = 600.0  # nats that densities are lifted by, so that far points are not lost: to 50 sigma

MARGIN = 0.2  # of the data's range, on each side of the box

FREEDOM, CENTRED, SPREAD = 3.0, 0.3, 0.5  # nu - d, kappa and s of the conjugate prior

EXACT = 12  # most points whose assignments are summed up: 3^12 pairs of sets

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
        truth: Known answers.
    """

    def __init__(
        self,
        *model: Any,
        y: Tensor,
        means_true: Tensor | None = None,
        dtype: torch.dtype | None = None,
        truth: Truth | None = None,
    ) -> None:
        super().__init__(*model, dtype=dtype, truth=truth)
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


def normal_mixture(
    y: Any = None,
    *,
    most: int = 6,
    mean: float = 2.0,
    true: int = 2,
    points: int = 12,
    dim: int = 2,
    seed: int = 0,
) -> MixtureTarget:
    """A mixture of normals with means and full covariances of their own, 1 to ``most`` of them.

    Precisions are A A' / 0.5, with A lower triangular, standard normal below its diagonal, whose
    squares are chi-squared with d + 3, d + 2, ... degrees of freedom: covariances are
    inverse-Wishart. Means given those are N(0, covariance / 0.3), weights Dirichlet(1, ..., 1), and
    the number of components is Poisson, cut at 1 and ``most``.

    Arguments:
        y: Data, shape (n, d), about standardised; simulated if omitted, and standardised.
        most: Largest number of components.
        mean: Of the Poisson prior.
        true: Components of simulated data, drawn from the prior, with as many points each.
        points: n, of simulated data.
        dim: d, of simulated data.
        seed: Of the simulated data.

    Returns:
        A target over ``Counts`` with parameters ``mass`` (weights are masses over their sum),
        ``diagonal`` (d,), the squares of that of A, ``below`` (d (d - 1) / 2,), row by row, and
        ``centre`` (d,), of which the mean is sqrt(0.5 / 0.3) A'^-1 ``centre``. The likelihood is
        :class:`trjmcmc.Additive`. Up to 12 points its truth is the sum over all assignments.

    Raises:
        ShapeError: y is not of shape (n, d).
        TargetError: A number in y is not finite; a setting out of range.

    Error:
        Of the truth rounding only.

    Source:
        Normals with conjugate priors: Murphy (2007), Conjugate Bayesian analysis of the Gaussian
        distribution, section 9

    Example:
        >>> target = normal_mixture(seed=1)
        >>> target.y.shape, target.dim, round(sum(target.truth.probabilities.values()), 6)
        (torch.Size([12, 2]), 36, 1.0)
    """
    if min(most, true, dim) < 1 or points < 2 * true or mean <= 0:
        raise TargetError(
            "most, true, dim, points, mean: expected 1 or more, two points per component, and "
            f"above 0, got {most}, {true}, {dim}, {points} and {mean}"
        )
    values = _drawn_normals(true, points, dim, seed) if y is None else np.asarray(y, dtype=float)
    if values.ndim != 2 or not values.size:
        raise ShapeError(f"y: expected shape (n, d), got {values.shape}")
    if not np.isfinite(values).all():
        raise TargetError("y: expected finite numbers")
    dim = values.shape[1]
    data, rows = Constants(torch.tensor(values)), torch.tril_indices(dim, dim, -1)

    def contribution(p: dict[str, Tensor]) -> Tensor:
        root = p["diagonal"].double().sqrt()
        (seen,) = data.like(root)
        a = torch.diag_embed(root)
        if dim > 1:
            a = a.index_put((torch.arange(len(a))[:, None], *rows), p["below"].double())
        gap = seen @ a / SPREAD**0.5 - p["centre"].double()[:, None] / CENTRED**0.5
        log_density = LIFT - 0.5 * gap.square().sum(2) + root.log().sum(1, keepdim=True)
        each = torch.cat([log_density.exp(), torch.ones_like(root[:, :1])], 1)
        return p["mass"].double()[:, None] * each

    freedom = dim + FREEDOM - torch.arange(dim)
    normal = Independent(Normal(torch.zeros(dim), 1.0), 1)
    lower = Independent(Normal(torch.zeros(len(rows[0])), 1.0), 1)
    below = {"below": lower} if dim > 1 else {}
    space = Counts(most, 1, of=("mass", "diagonal", *below, "centre"), prior=Poisson(mean))
    truth = None
    if len(values) <= EXACT:
        log_evidence = _of_assignments(values, most)
        log_mass = log_evidence + space.log_prior(space.enumerate()).double().numpy()
        p = np.exp(log_mass - logsumexp(log_mass))
        names = space.label(space.enumerate())
        shares, evidences = (dict(zip(names, x.tolist(), strict=True)) for x in (p, log_evidence))
        truth = Truth(shares, evidences, "sum over all assignments")
    return MixtureTarget(
        space,
        {
            "mass": Exponential(1.0),
            "diagonal": Independent(Chi2(freedom), 1),
            **below,
            "centre": normal,
        },
        Additive(contribution, _of_weighted(0.5 * dim * math.log(2 * math.pi * SPREAD))),  # type: ignore[arg-type]
        y=torch.tensor(values),
        truth=truth,
    )


def _of_assignments(y: np.ndarray, most: int) -> np.ndarray:
    """Log evidences of 1 to ``most`` normals, by all assignments of few points, nats."""
    n, d = y.shape
    freedom, size = d + FREEDOM, 2**n
    member = (np.arange(size)[:, None] >> np.arange(n)) & 1
    m, sums = member.sum(1), member @ y
    scatter = np.einsum("sn,ni,nj->sij", member, y, y) + SPREAD * np.eye(d)
    scatter -= sums[:, :, None] * sums[:, None] / (CENTRED + m)[:, None, None]
    log_f = gammaln(1 + m) - 0.5 * d * (m * math.log(math.pi) + np.log1p(m / CENTRED))
    log_f += multigammaln(0.5 * (freedom + m), d) - multigammaln(0.5 * freedom, d)
    log_f += 0.5 * freedom * d * math.log(SPREAD)
    log_f -= 0.5 * (freedom + m) * np.linalg.slogdet(scatter)[1]
    whole = part = np.zeros(1, dtype=int)  # all pairs of a set and a part of it
    for i in range(n):
        bit = 1 << i
        whole = np.concatenate([whole, whole | bit, whole | bit])
        part = np.concatenate([part, part, part | bit])
    f = np.exp(log_f)
    found = [f]
    while len(found) < most:
        found.append(np.bincount(whole, f[part] * found[-1][whole ^ part], size))
    k = np.arange(1, most + 1)
    return np.log([x[-1] for x in found]) + gammaln(k) - gammaln(k + n)


def _drawn_normals(true: int, points: int, dim: int, seed: int) -> np.ndarray:
    """Standardised draws of components from the prior, of each as many."""
    rng = np.random.default_rng(seed)
    of, y = np.arange(points) % true, np.empty((points, dim))
    for j in range(true):
        a = np.tril(rng.standard_normal((dim, dim)), -1)
        a += np.diag(rng.chisquare(dim + FREEDOM - np.arange(dim)) ** 0.5)
        z = rng.standard_normal(((of == j).sum(), dim)) + rng.standard_normal(dim) / CENTRED**0.5
        y[of == j] = SPREAD**0.5 * np.linalg.solve(a.T, z.T).T
    return (y - y.mean(0)) / y.std(0)


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
