"""Angles: von Mises priors of torch and of each language are one density on one circle."""

import math

import pytest
import torch
from torch.distributions import HalfNormal, MixtureSameFamily, Normal, VonMises

import trjmcmc as trj

SEEN = 0.4

ONE = torch.ones((), dtype=torch.float64)

SHIFT, TIGHT = 0.5, 2.0  # of the prior


def log_likelihood(p):
    return Normal(p["angle"].cos(), 0.3 * ONE).log_prob(SEEN * ONE)


def in_torch(name="torch"):
    prior = VonMises(SHIFT * ONE, TIGHT * ONE)
    return trj.Model(name, {"angle": prior}, log_likelihood, dtype=torch.float64)


def in_pymc():
    pm = pytest.importorskip("pymc")
    with pm.Model() as model:
        angle = pm.VonMises("angle", SHIFT, TIGHT)
        pm.Normal("y", pm.math.cos(angle), 0.3, observed=SEEN)
    return trj.from_pymc("PyMC", model, backend="numpy")


def in_numpyro():
    numpyro = pytest.importorskip("numpyro")
    import jax
    from numpyro import distributions as dist

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)

    def function():
        angle = numpyro.sample("angle", dist.VonMises(SHIFT, TIGHT))
        numpyro.sample("y", dist.Normal(jax.numpy.cos(angle), 0.3), obs=SEEN)

    try:
        return trj.from_numpyro("NumPyro", function)
    finally:
        jax.config.update("jax_enable_x64", before)


def in_pyro():
    pyro = pytest.importorskip("pyro")
    from pyro import distributions as dist

    def function(y):
        angle = pyro.sample("angle", dist.VonMises(SHIFT, TIGHT))
        pyro.sample("y", dist.Normal(angle.cos(), 0.3), obs=y)

    return trj.from_pyro("Pyro", function, SEEN * ONE)


LANGUAGES = {"torch": in_torch, "PyMC": in_pymc, "NumPyro": in_numpyro, "Pyro": in_pyro}


@pytest.mark.parametrize("language", LANGUAGES)
def test_von_mises_priors_lie_on_one_circle(language):
    target = trj.Target([LANGUAGES[language](), in_torch("native")])
    assert target.slot_names == ["angle"] and target.periodic_slots.tolist() == [True]
    angle = torch.linspace(-3.1, 3.1, 41, dtype=torch.float64)
    theta = target.unconstrain("native", {"angle": angle})
    code = torch.zeros(41, 1, dtype=torch.long)
    pairs = (target.log_joint_and_grad(code + i, theta) for i in range(2))
    for a, b in zip(*pairs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)

    # by quadrature over the circle: the prior has mass 1
    grid = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000 * 2 * math.pi - math.pi
    theta = target.unconstrain("native", {"angle": grid})
    log_prior, _ = target.log_prior_and_likelihood(torch.zeros(2000, 1).long(), theta)
    slope = torch.log(2 * math.pi * theta.sigmoid() * (1 - theta.sigmoid()))[:, 0]
    mass = float((log_prior + math.log(2) - slope).exp().mean()) * 2 * math.pi
    assert abs(mass - 1) < 1e-7  # by each language's own Bessel function

    draws = target.sample_prior(
        torch.zeros(4000, 1).long(), torch.Generator().manual_seed(1)
    ).sigmoid()
    cosine = (2 * math.pi * draws[:, 0] - math.pi - SHIFT).cos()
    exact = float(torch.special.i1(TIGHT * ONE) / torch.special.i0(TIGHT * ONE))
    assert abs(float(cosine.mean()) - exact) < 5 * float(cosine.std()) / 4000**0.5


@pytest.mark.whole
def test_a_run_goes_around():
    """Two bumps, at the seam and opposite: their shares by quadrature."""
    prior = VonMises(math.pi * ONE, 1.0 * ONE)
    model = trj.Model("m", {"angle": prior}, lambda p: 4.0 * p["angle"].cos().square())
    none = trj.Model("none", {}, lambda p: 1.0 * ONE)
    target = trj.Target([model, none], dtype=torch.float64)
    result = trj.TRJSampler(target, seed=1).run(draws=100, chains=64, progress=False)
    grid = torch.linspace(-math.pi, math.pi, 4001, dtype=torch.float64)[:-1]
    mass = (prior.log_prob(grid) + 4.0 * grid.cos().square()).exp() * 2 * math.pi / 4000
    value, se = result.evidence(full=True).loc["m", ["combined", "combined_se"]]
    assert abs(value - float(mass.sum().log())) < 5 * se and se < 0.05


@pytest.mark.parametrize("independent", [False, True])
def test_angles_that_depend_on_others_and_mixtures(independent):
    centres = torch.tensor([-2.0, 1.0], dtype=torch.float64)
    which = torch.distributions.Categorical(torch.ones(2, dtype=torch.float64))
    priors = {
        "tight": HalfNormal(ONE),
        "angle": (lambda p: VonMises(0.3 * ONE, p["tight"] + 0.1))
        if independent
        else MixtureSameFamily(which, VonMises(centres, 2 * ONE)),
    }
    target = trj.Target([trj.Model("m", priors, log_likelihood)], dtype=torch.float64)
    theta = torch.randn(9, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert target.log_joint(torch.zeros(9, 1).long(), theta).isfinite().all()
    assert target.periodic_slots.tolist() == [False, not independent]
