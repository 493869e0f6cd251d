"""Planets by radial velocities: orbits, noise, and an evidence known by quadrature."""

import math

import numpy as np
import pytest
import scipy.optimize
import torch
from torch.distributions import MultivariateNormal

import trjmcmc as trj
from tests.places import SHARED, shared_only
from trjmcmc.errors import ShapeError, TargetError
from trjmcmc.problems.radial_velocity import eccentric_anomaly, velocity_of

NAMES = ("period", "amplitude", "eccentricity", "periastron", "anomaly")


def planets(*rows):
    """Parameters by name, float64, of rows in the order of NAMES."""
    return dict(zip(NAMES, torch.tensor(rows, dtype=torch.float64).T, strict=True))


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-9), (torch.float32, 2e-6)])
def test_keplers_equation_is_solved(dtype, close):
    """At all phases up to eccentricities that a prior of planets ever draws."""
    mean = torch.linspace(-math.pi, math.pi, 2001, dtype=torch.float64).to(dtype)
    e = torch.tensor([0.0, 0.1, 0.5, 0.9, 0.97], dtype=dtype)[:, None]
    x = eccentric_anomaly(mean, e)
    assert float((x - e * x.sin() - mean).abs().max()) < close * 10
    turned = eccentric_anomaly(mean[500] + 6 * math.pi, e)
    assert torch.allclose(turned, eccentric_anomaly(mean[500], e), atol=1e-4)


def test_a_solution_has_the_slope_of_the_equation():
    mean = torch.tensor([0.3, -2.0, 1.5], dtype=torch.float64, requires_grad=True)
    e = torch.tensor([0.4, 0.8, 0.05], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(eccentric_anomaly, (mean, e))


def left_over(x, e, mean):
    """What Kepler's equation leaves."""
    return x - e * math.sin(x) - mean


def test_velocities_are_those_of_an_orbit():
    """Against the true anomaly by a root finder; the sum over planets is what they add up to."""
    rows = [(10.0, 3.0, 0.6, 1.2, 0.7), (37.0, 8.0, 0.0, 5.0, 2.0)]
    time = torch.linspace(-40.0, 90.0, 57, dtype=torch.float64)
    found = velocity_of(planets(*rows), time)
    for (period, k, e, w, m), row in zip(rows, found, strict=True):
        for t, v in zip(time.tolist(), row.tolist(), strict=True):
            mean = (m + 2 * math.pi * t / period) % (2 * math.pi)
            x = scipy.optimize.brentq(left_over, -1.0, 8.0, args=(e, mean), xtol=1e-13)
            true = 2 * math.atan2(
                math.sqrt(1 + e) * math.sin(x / 2), math.sqrt(1 - e) * math.cos(x / 2)
            )
            assert v == pytest.approx(k * (math.cos(w + true) + e * math.cos(w)), abs=1e-7)


@pytest.mark.parametrize("correlated", [None, trj.problems.QuasiPeriodic()])
def test_the_likelihood_is_that_of_the_whole_covariance(correlated):
    rng = np.random.default_rng(1)
    time, error = np.sort(rng.uniform(0, 300, 40)), rng.uniform(0.5, 2.0, 40)
    velocity = rng.normal(0, 5, 40)
    target = trj.problems.radial_velocity(time, velocity, error, correlated=correlated)
    target = target.to(dtype=torch.float64)
    code = torch.tensor([[2]])
    theta = target.sample_prior(code, torch.Generator().manual_seed(2))
    p = target.constrain(code[0], theta)
    t = target.time
    noise = torch.diag(target.error.square() + p["jitter"][0] ** 2)
    noise = noise if correlated is None else noise + correlated.covariance(t)
    mean = velocity_of({k: p[k][0] for k in NAMES}, t).sum(0) + p["offset"][0]
    exact = MultivariateNormal(mean, noise).log_prob(torch.tensor(velocity))
    _, found = target.log_prior_and_likelihood(code, theta)
    assert float(found[0]) == pytest.approx(float(exact), rel=1e-9)
    single = trj.problems.radial_velocity(time, velocity, error, correlated=correlated)
    _, rounded = single.log_prior_and_likelihood(code, theta.float())
    assert float(rounded[0]) == pytest.approx(float(exact), rel=1e-4)


def log_evidence_without_planets(target, correlated):
    """By quadrature over the jitter, with the offset integrated out: its prior is flat there."""
    s = (np.expm1(np.linspace(0, math.log1p(99.0), 3000))).tolist()
    t, v = target.time, target.velocity
    spread, turn = torch.linalg.eigh(torch.diag(target.error.square()) + correlated.covariance(t))
    seen, one = v @ turn, turn.sum(0)
    log_l = []
    for jitter in s:
        w = 1 / (spread + jitter**2)
        a, b, c = (one**2 * w).sum(), (one * seen * w).sum(), (seen**2 * w).sum()
        flat = 0.5 * math.log(2 * math.pi) - 0.5 * a.log() - math.log(2000.0)
        log_l.append(-0.5 * (c - b * b / a) + 0.5 * (w / (2 * math.pi)).log().sum() + flat)
    return float(torch.stack(log_l).logsumexp(0)) - math.log(len(s))  # even in the prior's log


@shared_only
def test_the_prior_is_that_of_the_challenge():
    """The evidence without planets is known; offset and jitter are those of our target's prior."""
    folder = SHARED / "data" / "eprv3"
    for number, known in (("0001", -211.97739), ("0002", -197.10976), ("0003", -169.64447)):
        data = np.loadtxt(folder / f"rvs_{number}.txt")
        noise = trj.problems.QuasiPeriodic()
        target = trj.problems.radial_velocity(*data.T, correlated=noise).to(dtype=torch.float64)
        exact = log_evidence_without_planets(target, noise)
        assert exact / math.log(10) == pytest.approx(known, abs=0.002)
        # the same by our density, over both, near its mode
        offset = torch.linspace(-6, 6, 601, dtype=torch.float64) + float(target.velocity.mean())
        jitter = torch.as_tensor(np.expm1(np.linspace(0.002, math.log(30.0), 300)))
        grid = torch.cartesian_prod(offset, jitter)
        none = torch.zeros(len(grid), 0, dtype=torch.float64)
        params = dict.fromkeys(NAMES, none) | {"offset": grid[:, 0], "jitter": grid[:, 1]}
        theta = target.unconstrain(0, params)
        code = torch.zeros(len(grid), 1, dtype=torch.long)
        _, log_l = target.log_prior_and_likelihood(code, theta)
        cell = torch.log1p(grid[:, 1]).diff()[0] / math.log(100.0) * (offset[1] - offset[0]) / 2000
        assert float(log_l.logsumexp(0) + cell.log()) == pytest.approx(exact, abs=0.02)


def test_simulated_data_and_refusals():
    target = trj.problems.radial_velocity(most=2, epochs=30, seed=3)
    assert target.velocity.shape == (30,) and abs(float(target.time.mean())) < 1e-9
    again = trj.problems.radial_velocity(most=2, epochs=30, seed=3)
    assert torch.equal(target.velocity, again.velocity)
    many = trj.problems.radial_velocity(true=3, epochs=4000, seed=3)
    found = velocity_of(dict(zip(NAMES, many.planets_true.T, strict=True)), many.time).sum(0)
    assert float((many.velocity - found).std()) == pytest.approx(2.0, abs=0.1)  # their error
    assert float(many.velocity.std()) > 4.0  # the least amplitude is 4
    assert trj.problems.radial_velocity(true=0, seed=3).planets_true.shape == (0, 5)
    ones = np.ones(4)
    assert trj.problems.radial_velocity(np.arange(4), ones, 2.0).error.tolist() == [2.0] * 4
    for wrong in ((ones, ones[:3], ones), (ones, ones, None), (None, ones, ones)):
        with pytest.raises(ShapeError):
            trj.problems.radial_velocity(*wrong)
    for wrong in ({"most": 0}, {"period": (3.0, 1.0)}, {"epochs": 0}, {"true": -1}):
        with pytest.raises(TargetError, match="expected at least 1"):
            trj.problems.radial_velocity(**wrong)
    with pytest.raises(TargetError, match="positive errors"):
        trj.problems.radial_velocity(ones, ones, 0 * ones)


def test_gradients_are_those_of_the_density():
    target = trj.problems.radial_velocity(epochs=20).to(dtype=torch.float64)
    code = torch.tensor([[2]])
    theta = target.sample_prior(code, torch.Generator().manual_seed(5))
    theta = theta.clone().requires_grad_(True)
    assert torch.autograd.gradcheck(
        lambda x: target.log_joint(code, x), (theta,), eps=1e-7, rtol=1e-3
    )
