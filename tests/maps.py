"""Transport maps that are poor, or wrong, on purpose."""

import math

import torch

import trjmcmc as trj
from tests import toys
from trjmcmc.transport import Bijection


def shaken(flow, by=0.15, seed=8):
    """The same map, every parameter moved by normal noise of standard deviation ``by``."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in flow.parameters():
            p.add_(by * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return flow


def shaken_mixture(space, outer=True, reference=None):
    """Components apart from each other, unequal weights, every parameter moved."""
    options = {"layers": 2, "hidden": (8,), "reference": reference}
    if outer:
        mixture = trj.transport.mixture_flow(space, components=3, **options)
    else:
        mixture = trj.transport.MixtureOfMaps(
            [trj.transport.CosmicFlow(space, seed=i, **options) for i in range(2)]
        )
    return shaken(mixture, 0.2, seed=5)


def rough_flow(target, by=0.15, **options):
    """An untrained flow whose weights were shaken: as poor as a map can be."""
    return shaken(trj.transport.CosmicFlow(target.space, layers=3, hidden=(16,), **options), by)


def rough_affine(target, width=1.3):
    """The exact map of :func:`tests.toys.gaussians`, shifted and not as wide as it should be."""
    exact = toys.gaussian_map(target)
    with torch.no_grad():
        exact.loc += 0.3
        exact.scale_tril *= width
    return exact


def rough_subset_maps(target, x, y):
    """A map for each subset: the exact posterior of its coefficients, a little too wide."""
    codes = target.space.enumerate()
    on = codes.bool()
    both = on[:, :, None] & on[:, None, :]
    precision = torch.where(both, x.T @ x, 0.0) + torch.eye(x.shape[1], dtype=x.dtype)
    covariance = torch.linalg.inv(precision)
    loc = (covariance @ torch.where(on, x.T @ y, 0.0)[..., None])[..., 0]
    tril = torch.linalg.cholesky(covariance)
    return trj.transport.Affine(target.space, (loc * on).float(), 1.2 * tril.float())


class MovesSpares(Bijection):
    """A vanilla conditional map: every coordinate moves, whatever the model."""

    spares_pass = False

    def __init__(self, space):
        super().__init__(space)
        self.shift = torch.nn.Parameter(torch.full((space.context_width, space.n_slots), 0.3))

    def to_reference(self, theta, code):
        z, ladj = self.from_reference(torch.zeros_like(theta), code)
        return (theta - z) / 1.7, -ladj

    def from_reference(self, z, code):
        loc = self.space.context(code).to(z) @ self.shift
        return loc + 1.7 * z, z.new_full((len(z),), z.shape[1] * math.log(1.7))


class NoJacobian(Bijection):
    """A broken map for negative controls: it forgets its log-determinant."""

    def __init__(self, inner):
        super().__init__(inner.space)
        self.inner = inner

    def to_reference(self, theta, code):
        z, ladj = self.inner.to_reference(theta, code)
        return z, 0 * ladj

    def from_reference(self, z, code):
        theta, ladj = self.inner.from_reference(z, code)
        return theta, 0 * ladj
