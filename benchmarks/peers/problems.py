"""The problems of the peers, with likelihoods and priors in NumPy, checked against ours."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
import torch
from numpy.typing import NDArray
from scipy.special import gammainccinv, logsumexp, ndtri
from torch.distributions import Normal

import trjmcmc as trj
from trjmcmc.problems.factor_analysis import SCALE, SHAPE
from trjmcmc.problems.robust_regression import OUTLIER_SD, PRIOR_SD, MixtureRegression

Array = NDArray[np.float64]

IMPOSSIBLE = -1e300  # a log-likelihood; some peers refuse -inf
LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Data:
    """Published data sets, and what is known of them."""

    factors: Path | None = None
    factor_truth: tuple[float, float] | None = None
    robust: Path | None = None

    def factor_matrix(self) -> Array | None:
        return None if self.factors is None else table(self.factors)

    def regression(self) -> tuple[Array, Array]:
        if self.robust is None:
            target = trj.problems.robust_regression()
            return target.x.numpy(), target.y.numpy()
        columns = table(self.robust)
        return columns[:, 2:6], columns[:, 1]


def table(path: Path) -> Array:
    return np.genfromtxt(path, delimiter=",", skip_header=1)


class FactorLikelihood:
    """Zero-mean normal data with covariance B B' + diag(uniqueness), batches of (n, d).

    Coordinates are the diagonal of B, its columns below the diagonal, and the uniquenesses.
    """

    def __init__(self, data: Array, factors: int) -> None:
        self.n, self.p = data.shape
        self.scatter = data.T @ data
        self.factors = factors
        cells = [(i, j) for j in range(factors) for i in range(j + 1, self.p)]
        self.row = np.array([*range(factors), *(i for i, _ in cells)])
        self.column = np.array([*range(factors), *(j for _, j in cells)])

    def __call__(self, x: Array) -> Array:
        free = len(self.row)
        b = np.zeros((len(x), self.p, self.factors))
        b[:, self.row, self.column] = x[:, :free]
        cov = b @ b.transpose(0, 2, 1)
        cov[:, range(self.p), range(self.p)] += x[:, free:]
        sign, log_det = np.linalg.slogdet(cov)
        square = np.linalg.solve(cov, self.scatter).trace(axis1=1, axis2=2)
        value = -0.5 * (self.n * (self.p * LOG_2PI + log_det) + square)
        return np.where((sign > 0) & np.isfinite(value), value, IMPOSSIBLE)


class RobustLikelihood:
    """A regression with errors from an equal mixture of N(0, 1) and N(0, 10^2)."""

    def __init__(self, x: Array, y: Array) -> None:
        self.x, self.y = x, y

    def __call__(self, beta: Array) -> Array:
        square = (self.y - beta @ self.x.T) ** 2
        ratio = np.exp(-0.5 * square * (1 - OUTLIER_SD**-2))
        terms = np.log(ratio + 1 / OUTLIER_SD) - square / (2 * OUTLIER_SD**2)
        return terms.sum(-1) - len(self.y) * (math.log(2) + LOG_2PI / 2)


MODE_DIM, MODE_CENTRE, MODE_PRIOR_SD = 10, 4.0, 10.0
MODE_WEIGHTS, MODE_WIDTHS = (1 / 3, 2 / 3), (0.9, 1.1)


def two_modes(x: Array) -> Array:
    """Likelihood of a posterior with two modes, the mixture over the density of the prior."""
    parts = [
        math.log(w) - (0.5 * ((x - centre) / s) ** 2 + math.log(s)).sum(-1)
        for w, s, centre in zip(MODE_WEIGHTS, MODE_WIDTHS, (-MODE_CENTRE, MODE_CENTRE), strict=True)
    ]
    prior = -(0.5 * (x / MODE_PRIOR_SD) ** 2 + math.log(MODE_PRIOR_SD)).sum(-1)
    return logsumexp(parts, axis=0) - prior


def two_modes_target() -> trj.Target:
    kept = {"dtype": torch.float64}
    centre = torch.tensor([-MODE_CENTRE, MODE_CENTRE], **kept)[:, None].expand(2, MODE_DIM)
    width, weight = torch.tensor(MODE_WIDTHS, **kept)[:, None], torch.tensor(MODE_WEIGHTS, **kept)
    prior = Normal(torch.zeros(MODE_DIM), MODE_PRIOR_SD)

    def log_likelihood(params: dict[str, torch.Tensor]) -> torch.Tensor:
        x = params["x"]
        each = Normal(centre.to(x), width.to(x)).log_prob(x[:, None]).sum(-1)
        return (weight.to(x).log() + each).logsumexp(-1) - prior.log_prob(x).sum(-1)

    truth = trj.problems.Truth({"two modes": 1.0}, {"two modes": 0.0}, "by construction")
    return trj.Target([trj.Model("two modes", {"x": prior}, log_likelihood)], truth=truth)


@dataclass(frozen=True)
class Problem:
    """One model for everybody.

    Attributes:
        target: For us.
        log_likelihood: For the peers: (n, d) to (n,).
        transform: From the unit cube to the prior, (n, d).
        priors: The same as distributions, one a coordinate.
        names: Parameters of the target, and their numbers of coordinates (0 of a scalar), in
            the peers' order.
        truth: Log evidence, NaN if unknown.
    """

    target: trj.Target
    log_likelihood: Callable[[Array], Array]
    transform: Callable[[Array], Array]
    priors: list[Any]
    names: dict[str, int]
    truth: float

    def check(self) -> None:
        """The likelihood of peers and ours must agree, and transform and priors too."""
        cube = np.random.default_rng(0).uniform(0.05, 0.95, (64, len(self.priors)))
        x = self.transform(cube)
        direct = np.stack([d.ppf(u) for d, u in zip(self.priors, cube.T, strict=True)], 1)
        np.testing.assert_allclose(x, direct, rtol=1e-9)
        ends = np.cumsum([max(n, 1) for n in self.names.values()])
        split = zip(np.split(x, ends[:-1], axis=1), self.names.values(), strict=True)
        parts = [part if n else part[:, 0] for part, n in split]
        target = self.target.to(dtype=torch.float64)
        code = target.space.enumerate()
        label = target.space.label(code)[0]
        theta = target.unconstrain(label, dict(zip(self.names, parts, strict=True)))
        _, ours = target.log_prior_and_likelihood(code.expand(len(x), -1), theta)
        np.testing.assert_allclose(self.log_likelihood(x), ours.numpy(), rtol=1e-8, atol=1e-8)


def inside(u: Array) -> Array:
    """Away from the faces of the cube, where quantiles are infinite."""
    return np.clip(u, 1e-16, 1 - 1e-16)


def factor_problem(data: Data) -> Problem:
    target = trj.problems.factor_analysis(data.factor_matrix(), factors=(2,))
    y = target.y.numpy()
    p = y.shape[1]
    below = 2 * p - 3

    def transform(u: Array) -> Array:
        u = inside(u)
        diagonal, loading = ndtri(0.5 + u[:, :2] / 2), ndtri(u[:, 2 : 2 + below])
        return np.concatenate(
            [diagonal, loading, SCALE / gammainccinv(SHAPE, u[:, 2 + below :])], 1
        )

    normal, half = scipy.stats.norm(), scipy.stats.halfnorm()
    unique = scipy.stats.invgamma(SHAPE, scale=SCALE)
    truth = math.nan if data.factor_truth is None else data.factor_truth[0]
    return Problem(
        target,
        FactorLikelihood(y, 2),
        transform,
        [half] * 2 + [normal] * below + [unique] * p,
        {"diagonal": 2, "loading": below, "uniqueness": p},
        truth,
    )


def robust_problem(data: Data) -> Problem:
    x, y = data.regression()
    prior = Normal(torch.zeros(4), PRIOR_SD)
    model = trj.Model("full", {"beta": prior}, MixtureRegression(torch.tensor(x), torch.tensor(y)))
    exact = trj.problems.robust_regression(x, y).truth
    return Problem(
        trj.Target([model]),
        RobustLikelihood(x, y),
        lambda u: PRIOR_SD * ndtri(inside(u)),
        [scipy.stats.norm(scale=PRIOR_SD)] * 4,
        {"beta": 4},
        math.nan if exact is None else exact.log_evidence["x1+x2+x3+x4"],
    )


def modes_problem(data: Data) -> Problem:
    return Problem(
        two_modes_target(),
        two_modes,
        lambda u: MODE_PRIOR_SD * ndtri(inside(u)),
        [scipy.stats.norm(scale=MODE_PRIOR_SD)] * MODE_DIM,
        {"x": MODE_DIM},
        0.0,
    )
