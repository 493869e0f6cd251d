"""Exact answers, Gibbs draws and the mean-field optimum of a normal linear regression."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from trjmcmc.errors import ConfigurationError, TargetError
from trjmcmc.problems.regression import check_scales, regression_data

NODES = 1001  # of the lattice in log sigma2, some 50 a standard deviation

CUT = 40.0  # nodes further than this below the mode are left out, nats

BISECTIONS = 60

STARTS = 41  # of the coordinate ascent: where p >= n it can have several ends

SWEEPS, TOLERANCE = 10_000, 1e-13  # most of an ascent; and of log E[1 / sigma2], where it ends


class FactorisedNormal(NamedTuple):
    """The product of normals and an inverse gamma that is nearest by KL(q || p).

    Attributes:
        mean, sd: Of the coefficients, shape (p,).
        shape, rate: Of sigma2; None where it is known.
        elbo: E_q[log p(y, b, sigma2) - log q], nats: at most the log evidence.
    """

    mean: Tensor
    sd: Tensor
    shape: float | None
    rate: float | None
    elbo: float


class LinearPosterior:
    """y ~ N(X b, sigma2 I), b ~ N(0, tau2 I), sigma2 ~ InverseGamma(shape, rate) or known.

    Given sigma2 all is normal, with a diagonal covariance in the basis of the singular vectors;
    what is left is one integral over log sigma2, by the trapezoid rule on a lattice that is
    laid over the posterior.

    Arguments:
        x: Columns, shape (n, p); any rank, and p above n.
        y: Response, shape (n,).
        tau2: Prior variance of the coefficients.
        shape, rate: Of the inverse gamma prior of sigma2.
        sigma: Standard deviation of the errors, if it is known.

    Attributes:
        log_evidence: Log p(y), nats.
        mean, sd: Of the coefficients, shape (p,), float64.
        covariance: Of the coefficients, shape (p, p).
        mean_sigma2, sd_sigma2: Of sigma2; infinite, or NaN, where n / 2 + shape is at most 1
            (the mean) or 2.
        mean_field: The mean-field optimum.

    Raises:
        ShapeError: x and y do not fit together, or there is no column.
        TargetError: A number in them is not finite, or tau2, shape, rate or sigma is not above
            0.

    Error:
        Of the numbers about 1e-10, relative; see :meth:`exact_draws` for that of draws.

    Source:
        Premchandar (2024), Normalizing flows aided variational inference, thesis, Michigan
        State University, section 2.6.3; coordinate ascent: Blei, Kucukelbir & McAuliffe (2017),
        https://doi.org/10.1080/01621459.2017.1285773

    Example:
        >>> posterior = LinearPosterior([[1.0], [1.0], [-1.0]], [2.0, 3.0, -1.0])
        >>> posterior.mean.round(decimals=3).tolist(), round(posterior.log_evidence, 3)
        ([1.319], -6.191)
        >>> bool(posterior.mean_field.elbo < posterior.log_evidence)
        True
    """

    def __init__(
        self,
        x: Any,
        y: Any,
        *,
        tau2: float = 1.0,
        shape: float = 1.25,
        rate: float = 1.25,
        sigma: float | None = None,
    ) -> None:
        check_scales(tau2=tau2, shape=shape, rate=rate, sigma=1.0 if sigma is None else sigma)
        self.tau2, self.shape, self.rate, self.sigma = tau2, shape, rate, sigma
        x, y = regression_data(x, y)
        self.n, self.p = x.shape
        u, self._singular, vh = torch.linalg.svd(x, full_matrices=False)
        self._basis = vh.T
        self._rotated = u.T @ y
        self._rest = float((y - u @ self._rotated).square().sum())
        self._weight = x.square().sum(0)

    # ---- given sigma2: tensors of some sigma2 (k,), in the singular basis (k, r) --------------

    def _given(self, sigma2: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of the coefficients along the singular vectors."""
        precision = self._singular.square() + sigma2[:, None] / self.tau2
        return self._singular * self._rotated / precision, sigma2[:, None] / precision

    def _log_likelihood(self, sigma2: Tensor) -> Tensor:
        """Log p(y | sigma2), coefficients integrated out."""
        marginal = sigma2[:, None] + self.tau2 * self._singular.square()
        others = self.n - len(self._singular)
        squares = (self._rotated.square() / marginal).sum(-1) + self._rest / sigma2
        log_det = marginal.log().sum(-1) + others * sigma2.log()
        return -0.5 * (self.n * math.log(2 * math.pi) + log_det + squares)

    @property
    def _log_scale(self) -> float:
        """Log sigma2 about which lattice and ascent look for it: all of y is noise."""
        squares = self._rest + float(self._rotated.square().sum())
        return math.log((self.rate + 0.5 * squares) / (self.shape + 0.5 * self.n))

    @cached_property
    def _lattice(self) -> tuple[Tensor, Tensor, float]:
        """Log sigma2 at the nodes, their posterior weights, and the log evidence."""
        if self.sigma is not None:
            sigma2 = torch.tensor([self.sigma**2], dtype=torch.float64)
            return sigma2.log(), torch.ones_like(sigma2), float(self._log_likelihood(sigma2))
        low, high = self._log_scale - 50, self._log_scale + 50
        constant = self.shape * math.log(self.rate) - math.lgamma(self.shape)
        while True:
            u = torch.linspace(low, high, NODES, dtype=torch.float64)
            log_prior = constant - self.shape * u - self.rate * (-u).exp()
            log_density = self._log_likelihood(u.exp()) + log_prior
            alive = u[log_density > log_density.max() - CUT]
            step = (high - low) / (NODES - 1)
            new_low, new_high = float(alive[0]) - step, float(alive[-1]) + step
            if new_high - new_low > 0.9 * (high - low):
                break
            low, high = new_low, new_high
        total = log_density.logsumexp(0)
        return u, (log_density - total).exp(), float(total) + math.log(step)

    @property
    def log_evidence(self) -> float:
        return self._lattice[2]

    # ---- moments ----------------------------------------------------------------------------

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        """Mean and covariance along the singular vectors."""
        u, weight, _ = self._lattice
        mean, variance = self._given(u.exp())
        centre = weight @ mean
        off = mean - centre
        return centre, (off.T * weight) @ off + torch.diag(weight @ variance)

    def _spread(self, variance: Tensor) -> Tensor:
        """Variances of coefficients from those along the singular vectors, (k, r) -> (k, p)."""
        squares = self._basis.square()
        return variance @ squares.T + self.tau2 * (1 - squares.sum(1)).clamp(min=0)

    @property
    def mean(self) -> Tensor:
        return self._basis @ self._moments[0]

    @cached_property
    def covariance(self) -> Tensor:
        silent = torch.eye(self.p, dtype=torch.float64) - self._basis @ self._basis.T
        return self._basis @ self._moments[1] @ self._basis.T + self.tau2 * silent

    @property
    def sd(self) -> Tensor:
        return self.covariance.diagonal().sqrt()

    @property
    def mean_sigma2(self) -> float:
        u, weight, _ = self._lattice
        return float(weight @ u.exp()) + self._tail(1)

    @property
    def sd_sigma2(self) -> float:
        if self.mean_sigma2 == math.inf:
            return math.nan
        u, weight, _ = self._lattice
        squares = float(weight @ (u.exp() - self.mean_sigma2).square())
        return math.sqrt(squares + self._tail(2))

    def _tail(self, power: int) -> float:
        """What nodes to the right of the lattice add to a moment of sigma2.

        There the density of log sigma2 falls exponentially, with rate shape + n / 2.
        """
        if self.sigma is not None:
            return 0.0
        u, weight, _ = self._lattice
        rate = self.shape + 0.5 * self.n - power
        if rate <= 0:
            return math.inf
        return float(weight[-1] * (power * u[-1]).exp() / torch.expm1(rate * (u[-1] - u[-2])))

    def quantile(self, q: float | Tensor) -> Tensor:
        """Quantiles of every coefficient, whose posterior is a mixture of normals.

        Arguments:
            q: Probabilities between 0 and 1, one number or shape (k,).

        Returns:
            Shape (p,) or (k, p).

        Raises:
            TargetError: A probability is not between 0 and 1.

        Example:
            >>> posterior = LinearPosterior(torch.eye(2), [1.0, 0.0], sigma=1.0)
            >>> posterior.quantile(torch.tensor([0.05, 0.5])).round(decimals=3).tolist()
            [[-0.663, -1.163], [0.5, 0.0]]
        """
        levels = torch.as_tensor(q, dtype=torch.float64)
        if not bool(((levels > 0) & (levels < 1)).all()):
            raise TargetError(f"q: expected probabilities between 0 and 1, got {q}")
        u, weight, _ = self._lattice
        heavy = weight > 1e-15
        mean, variance = self._given(u[heavy].exp())
        centre, sd = mean @ self._basis.T, self._spread(variance).sqrt()
        found = [
            self._quantile(float(level), weight[heavy], centre, sd) for level in levels.view(-1)
        ]
        return torch.stack(found).view(*levels.shape, self.p)

    def _quantile(self, level: float, weight: Tensor, centre: Tensor, sd: Tensor) -> Tensor:
        """By bisection between the smallest and the largest quantile of the normals."""
        ends = centre + sd * torch.special.ndtri(torch.tensor(level, dtype=torch.float64))
        low, high = ends.amin(0), ends.amax(0)
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            below = weight @ torch.special.ndtr((middle - centre) / sd) < level * weight.sum()
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return 0.5 * (low + high)

    # ---- draws ------------------------------------------------------------------------------

    def exact_draws(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Independent draws of the coefficients and of sigma2.

        Arguments:
            n: How many.
            generator: Of the draws, on the CPU.

        Returns:
            Coefficients, shape (n, p), and sigma2, shape (n,), float64.

        Error:
            The density of log sigma2 is taken as linear between nodes, so that its variance
            comes out too large by 2e-4 of itself at most.

        Example:
            >>> posterior = LinearPosterior(torch.eye(2), [1.0, 0.0])
            >>> beta, sigma2 = posterior.exact_draws(5, torch.Generator().manual_seed(0))
            >>> beta.shape, sigma2.shape
            (torch.Size([5, 2]), torch.Size([5]))
        """
        u, weight, _ = self._lattice
        cumulative = weight.cumsum(0)
        uniform = torch.rand(n, 3, generator=generator, dtype=torch.float64)
        node = torch.searchsorted(cumulative, uniform[:, 0] * cumulative[-1], right=True)
        log_sigma2 = u[node]
        if self.sigma is None:
            log_sigma2 = log_sigma2 + (u[1] - u[0]) * (uniform[:, 1] + uniform[:, 2] - 1)
        sigma2 = log_sigma2.exp()
        mean, variance = self._given(sigma2)
        z = torch.randn(n, self.p, generator=generator, dtype=torch.float64)
        along = mean + variance.sqrt() * (z @ self._basis)
        return self._coefficients(along, z), sigma2

    def _coefficients(self, along: Tensor, z: Tensor) -> Tensor:
        """Coefficients with given parts along the singular vectors, and elsewhere the prior's.

        Arguments:
            along: Parts, shape (n, r).
            z: Standard normals, shape (n, p), of which what is off the singular vectors is used.
        """
        silent = z - z @ self._basis @ self._basis.T
        return along @ self._basis.T + math.sqrt(self.tau2) * silent

    def gibbs(
        self, draws: int = 10_000, burn_in: int = 1_000, *, seed: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Draws of one chain that updates all coefficients at once and sigma2 in turn.

        In the singular basis a sweep costs one normal and one gamma variate a dimension.

        Arguments:
            draws: Sweeps that are kept.
            burn_in: Sweeps before them, from sigma2 as if all y were noise.
            seed: Of the chain.

        Returns:
            Coefficients, shape (draws, p), and sigma2, shape (draws,), float64.

        Error:
            Monte Carlo, of autocorrelated draws; where p >= n sigma2 moves slowly.

        Raises:
            ConfigurationError: draws is below 1 or burn_in below 0.

        Example:
            >>> posterior = LinearPosterior(torch.eye(2), [1.0, 0.0])
            >>> beta, sigma2 = posterior.gibbs(50)
            >>> beta.shape, bool((sigma2 > 0).all())
            (torch.Size([50, 2]), True)
        """
        if draws < 1 or burn_in < 0:
            raise ConfigurationError(
                f"draws, burn_in: expected at least 1 and 0, got {draws} and {burn_in}"
            )
        rng = np.random.default_rng(seed)
        z = torch.from_numpy(rng.standard_normal((draws + burn_in, self.p)))
        gamma = rng.standard_gamma(self.shape + 0.5 * self.n, draws + burn_in)
        singular, rotated = self._singular.numpy(), self._rotated.numpy()
        along, chain = (z @ self._basis).numpy(), np.empty(draws + burn_in)
        sigma2 = math.exp(self._log_scale) if self.sigma is None else self.sigma**2
        for t, noise in enumerate(along):
            precision = singular**2 + sigma2 / self.tau2
            noise *= np.sqrt(sigma2 / precision)
            noise += singular * rotated / precision  # now the coefficients of this sweep
            if self.sigma is None:
                squares = self._rest + np.square(rotated - singular * noise).sum()
                sigma2 = (self.rate + 0.5 * squares) / gamma[t]
            chain[t] = sigma2
        beta = self._coefficients(torch.from_numpy(along), z)
        return beta[burn_in:], torch.from_numpy(chain[burn_in:])

    # ---- mean field -------------------------------------------------------------------------

    @cached_property
    def mean_field(self) -> FactorisedNormal:
        if self.sigma is not None:
            return self._factorised(torch.tensor([self.sigma**-2], dtype=torch.float64))
        ends = -self._log_scale - 5.0, -self._log_scale + 30.0
        precision = torch.linspace(*ends, STARTS, dtype=torch.float64).exp()
        for _ in range(SWEEPS):
            new = (self.shape + 0.5 * self.n) / (self.rate + 0.5 * self._squares(precision))
            if bool(((new / precision).log().abs() < TOLERANCE).all()):
                break
            precision = new
        each = [self._factorised(one) for one in precision[:, None]]
        return max(each, key=lambda q: q.elbo)

    def _squares(self, precision: Tensor) -> Tensor:
        """E_q |y - X b|^2 under the best normals at some E[1 / sigma2], (k,) -> (k,)."""
        shrunk = self._rotated / (1 + precision[:, None] * self.tau2 * self._singular.square())
        variance = 1 / (precision[:, None] * self._weight + 1 / self.tau2)
        return self._rest + shrunk.square().sum(-1) + variance @ self._weight

    def _factorised(self, precision: Tensor) -> FactorisedNormal:
        """The best normals at one E[1 / sigma2] (1,), and the inverse gamma that goes with them."""
        mean = self._basis @ self._given(1 / precision)[0][0]
        variance = 1 / (precision * self._weight + 1 / self.tau2)
        squares = float(self._squares(precision))
        second = (mean.square() + variance) / self.tau2
        normals = 0.5 * float((second - 1 - (variance / self.tau2).log()).sum())  # KL to the prior
        if self.sigma is not None:
            log_sigma2, inverse = 2 * math.log(self.sigma), self.sigma**-2
            shape = rate = None
            gap = 0.0
        else:
            shape, rate = self.shape + 0.5 * self.n, self.rate + 0.5 * squares
            digamma = float(torch.special.digamma(torch.tensor(shape, dtype=torch.float64)))
            log_sigma2, inverse = math.log(rate) - digamma, shape / rate
            gap = (
                self.shape * math.log(rate / self.rate)
                + math.lgamma(self.shape)
                - math.lgamma(shape)
                + (shape - self.shape) * digamma
                + shape * (self.rate - rate) / rate
            )
        fit = -0.5 * (self.n * (math.log(2 * math.pi) + log_sigma2) + inverse * squares)
        return FactorisedNormal(mean, variance.sqrt(), shape, rate, fit - normals - gap)
