"""Single models of known evidence: a spike beside a slab, and a narrow normal, straight or bent."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal, Uniform

from ..errors import TargetError
from ..target.model import Model, Truth
from ..target.target import Target
from .regression import Constants

LOW, HIGH = -4.0, 8.0  # of each coordinate, of the spike and the slab

CENTRES, VARIANCES = (6.0, 2.5), (0.08, 0.8)  # of the first two coordinates; of all of them

MEAN, CORRELATION = 3.0, 0.99  # of the first coordinate, of all of them

NODES = 128  # of Gauss and Hermite's rule; 256 change nothing


class SpikeBesideSlab(Target):
    """Two normals of one mass in a box, one far narrower than the other.

    Arguments:
        dim: Coordinates, two or more.

    Attributes:
        log_evidence: Of the one model, nats.
        spike_mass: Of the posterior that is the spike's.
    """

    def __init__(self, dim: int) -> None:
        mean = torch.zeros(2, dim, dtype=torch.float64)
        mean[:, :2] = torch.tensor(CENTRES, dtype=torch.float64)[:, None]
        sd = torch.tensor(VARIANCES, dtype=torch.float64).sqrt()
        self._data = Constants(mean, sd)
        inside = Normal(mean, sd[:, None])
        each = (inside.cdf(mean.new_tensor(HIGH)) - inside.cdf(mean.new_tensor(LOW))).log().sum(1)
        self.log_evidence = float(each.logsumexp(0)) - dim * math.log(HIGH - LOW)
        self.spike_mass = float(each.softmax(0)[0])
        prior = Uniform(torch.full((dim,), LOW), torch.full((dim,), HIGH))
        model = Model("spike and slab", {"x": prior}, lambda p: self._log_each(p["x"]).logsumexp(1))
        truth = Truth({model.name: 1.0}, {model.name: self.log_evidence}, "closed form")
        super().__init__([model], truth=truth)

    def _log_each(self, x: Tensor) -> Tensor:
        """Log densities of spike and slab, (n, 2), nats."""
        mean, sd = self._data.like(x)
        z = (x[:, None] - mean) / sd[:, None]
        constant = x.shape[1] * (sd.log() + 0.5 * math.log(2 * math.pi))
        return -0.5 * z.square().sum(2) - constant

    def in_spike(self, x: Tensor) -> Tensor:
        """Probability that points (n, dim) are the spike's, (n,)."""
        return self._log_each(x).softmax(1)[:, 0]


def spike_beside_slab(dim: int = 10) -> SpikeBesideSlab:
    """A narrow normal and a wide one of the same mass, apart, in a box: which is overlooked?

    The likelihood is the sum of two normal densities, variances 0.08 and 0.8, means (6, 6, 0,
    ..., 0) and (2.5, 2.5, 0, ..., 0); the prior is uniform on (-4, 8) in each coordinate.

    Arguments:
        dim: Coordinates, two or more.

    Returns:
        A target of one model with the parameter ``x`` (dim,), its ``log_evidence``, and the share
        ``spike_mass`` of the posterior; :meth:`SpikeBesideSlab.in_spike` tells whose a point is.

    Raises:
        TargetError: Fewer than two coordinates.

    Source:
        SS10 of Albert (2023), Phantom-powered nested sampling, https://arxiv.org/abs/2312.11330,
        as its program's tables of 2026 have it

    Example:
        >>> target = spike_beside_slab()
        >>> round(target.log_evidence, 6), round(target.spike_mass, 6)
        (-24.155935, 0.500008)
    """
    if dim < 2:
        raise TargetError(f"dim: expected two or more, got {dim}")
    return SpikeBesideSlab(dim)


def curved_normal(dim: int = 10, *, shear: float = 0.4) -> Target:
    """A normal of correlation 0.99 that lies three standard deviations off, straight or bent.

    The prior is N(0, I). The likelihood is the normal density of variances 1 and correlations 0.99
    about (3, 0, ..., 0), of x with shear ((x_1 - 3)^2 - 1) taken off its second coordinate.

    Arguments:
        dim: Coordinates, two or more.
        shear: 0 of a straight one.

    Returns:
        A target of one model with the parameter ``x`` (dim,), whose truth has its log evidence.

    Raises:
        TargetError: Fewer than two coordinates, or a shear that is not finite.

    Error:
        Of the log evidence below 1e-12 nats: conjugate given the first coordinate, which is
        integrated over by 128 nodes.

    Source:
        CG10, and G10 without shear, of the tables named at :func:`spike_beside_slab`

    Example:
        >>> for shear in (0.0, 0.4):
        ...     print(round(curved_normal(shear=shear).truth.log_evidence["curved normal"], 6))
        -14.480149
        -14.599683
    """
    if dim < 2 or not math.isfinite(shear):
        raise TargetError(f"dim, shear: expected two or more and a number, got {dim} and {shear}")
    covariance = torch.full((dim, dim), CORRELATION, dtype=torch.float64)
    covariance.fill_diagonal_(1.0)
    data = Constants(torch.linalg.cholesky(covariance))

    def log_likelihood(p: dict[str, Tensor]) -> Tensor:
        (factor,) = data.like(p["x"])
        first, second, *others = p["x"].T
        gap = first - MEAN
        z = torch.stack([gap, second - shear * (gap.square() - 1), *others])
        z = torch.linalg.solve_triangular(factor, z, upper=False)
        log_det = factor.diagonal().log().sum()
        return -0.5 * z.square().sum(0) - log_det - 0.5 * dim * math.log(2 * math.pi)

    node, weight = (torch.from_numpy(x) for x in np.polynomial.hermite_e.hermegauss(NODES))
    first = MEAN / 2 + node / math.sqrt(2)  # prior times likelihood of the first coordinate
    mean = CORRELATION * (first - MEAN)[:, None].repeat(1, dim - 1)
    mean[:, 0] += shear * ((first - MEAN).square() - 1)
    given = covariance[1:, 1:] - CORRELATION**2 + torch.eye(dim - 1)
    log_rest = MultivariateNormal(mean, given).log_prob(torch.zeros_like(mean[0]))
    of_first = -(MEAN**2) / 4 - 0.5 * math.log(4 * math.pi)  # log density of 3 under N(0, 2)
    value = of_first + ((weight / math.sqrt(2 * math.pi)).log() + log_rest).logsumexp(0)
    model = Model("curved normal", {"x": Normal(torch.zeros(dim), 1.0)}, log_likelihood)
    truth = Truth({model.name: 1.0}, {model.name: float(value)}, "quadrature, error below 1e-12")
    return Target([model], truth=truth)
