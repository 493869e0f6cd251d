"""Two models with sinh-arcsinh densities in one and two dimensions, and their exact map."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Normal

from ..space.base import Space
from ..target.model import Model, Truth
from ..target.target import Target
from ..transport.base import Bijection

# Skewness and tail weight by coordinate, correlation of the second model, weights of the models:
# the illustrative example of Davies et al. (2023), section 5.1
EPSILON = ((-2.0,), (1.5, -2.0))

DELTA = ((1.0,), (1.0, 1.5))

CORRELATION = 0.99

PROBABILITIES = (0.25, 0.75)

PRIOR_SD = 10.0  # cancels: the likelihood is the density over the prior


def sinh_arcsinh() -> Target:
    """A one- and a two-dimensional model, skewed and heavy-tailed, weights 1/4 and 3/4.

    Returns:
        A target whose models ``"1d"`` and ``"2d"`` have the parameter ``x`` (one coordinate,
        two coordinates); both log evidences are 0, exactly. ``SinhArcsinhMap`` is its exact
        transport.

    Source:
        Davies et al. (2023), https://arxiv.org/abs/2210.12572, section 5.1; the distribution:
        Jones & Pewsey (2009), https://doi.org/10.1093/biomet/asp053

    Example:
        >>> target = sinh_arcsinh()
        >>> target.dim, target.truth.probabilities
        (2, {'1d': 0.25, '2d': 0.75})
    """
    names = ("1d", "2d")
    models = []
    for m, name in enumerate(names):
        prior = Normal(torch.zeros(m + 1), PRIOR_SD)

        def log_likelihood(p: dict[str, Tensor], m: int = m) -> Tensor:
            z, ladj = _to_normal(p["x"], m)
            log_density = Normal(0.0, 1.0).log_prob(z).sum(-1) + ladj
            return log_density - Normal(0.0, PRIOR_SD).log_prob(p["x"]).sum(-1)

        models.append(Model(name, {"x": prior}, log_likelihood))
    truth = Truth(
        probabilities=dict(zip(names, PROBABILITIES, strict=True)),
        log_evidence=dict.fromkeys(names, 0.0),
        source="the densities are normalised and the weights are the model prior: exact",
    )
    return Target(models, model_prior=PROBABILITIES, truth=truth)


class SinhArcsinhMap(Bijection):
    """The exact transport of :func:`sinh_arcsinh`: x = S(L z), elementwise sinh-arcsinh S.

    Arguments:
        space: The space of the target.
    """

    def __init__(self, space: Space) -> None:
        super().__init__(space)

    def to_reference(self, theta: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        one, ladj_one = _to_normal(theta[:, :1], 0)
        two, ladj_two = _to_normal(theta, 1)
        small = code == 0
        z = torch.where(small, torch.cat([one, theta[:, 1:]], -1), two)
        return z, torch.where(small[:, 0], ladj_one, ladj_two)

    def from_reference(self, z: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        one = torch.cat([_from_normal(z[:, :1], 0), z[:, 1:]], -1)
        theta = torch.where(code == 0, one, _from_normal(z, 1))
        return theta, -self.to_reference(theta, code)[1]


def _constants(m: int, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    epsilon, delta = (like.new_tensor(v[m]) for v in (EPSILON, DELTA))
    rho = CORRELATION
    factor = [[1.0]] if m == 0 else [[1.0, 0.0], [rho, (1 - rho * rho) ** 0.5]]
    return epsilon, delta, like.new_tensor(factor)


def _from_normal(z: Tensor, m: int) -> Tensor:
    epsilon, delta, factor = _constants(m, z)
    return torch.sinh((torch.asinh(z @ factor.T) + epsilon) / delta)


def _to_normal(x: Tensor, m: int) -> tuple[Tensor, Tensor]:
    epsilon, delta, factor = _constants(m, x)
    inner = delta * torch.asinh(x) - epsilon
    w = torch.sinh(inner)
    z = torch.linalg.solve_triangular(factor, w.T, upper=False).T
    ladj = (delta.log() + torch.log(torch.cosh(inner)) - 0.5 * torch.log1p(x * x)).sum(-1)
    return z, ladj - factor.diagonal().log().sum()
