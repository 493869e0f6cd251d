"""Runs that go on in float64 where float32 does not resolve a posterior."""

import math

import pytest
import torch
from torch.distributions import Normal, Uniform

import trjmcmc as trj
from tests import toys
from trjmcmc.errors import PrecisionWarning

WIDTH = 9.0  # of a quadrature, standard deviations to each side


def against_null(prior, loc, sd, dtype=None):
    """A parameter far narrower than its prior, and a null of the same evidence."""
    x = loc + sd * torch.linspace(-WIDTH, WIDTH, 100_001, dtype=torch.float64)
    log_f = prior.log_prob(x).double() + Normal(loc, sd).log_prob(x)
    log_z = float(log_f.logsumexp(0)) + math.log(2 * WIDTH * sd / 100_000)
    null = trj.Model("null", {}, lambda p: torch.tensor(log_z))
    one = trj.Model("one", {"x": prior}, lambda p: Normal(loc, sd).log_prob(p["x"]))
    return trj.Target([null, one], dtype=dtype)


NARROW = {
    "a wide interval": lambda: against_null(Uniform(-1e4, 1e4), 3.2, 1e-3),
    "twelve digits": lambda: against_null(Uniform(-1e9, 1e9), 3.2, 1e-3),
    "a date": lambda: against_null(Normal(55000.0, 1e4), 55000.123, 0.01),
}


@pytest.mark.whole
@pytest.mark.planned
@pytest.mark.parametrize("name", NARROW)
def test_a_posterior_beyond_float32_is_sampled_in_float64(name):
    sampler = trj.TRJSampler(NARROW[name](), seed=1)
    result = sampler.run(draws=300, progress=False)
    row = result.model_probabilities().loc["null"]
    assert abs(row["combined"] - 0.5) < 5 * row["combined_se"] < 0.05
    assert result.raw.theta.dtype == sampler.target.dtype == torch.float64


def offset(dtype=None):
    """Log densities that float32 can't resolve."""
    models = [
        trj.Model(name, {"x": Normal(0.0, 1.0)}, lambda p, a=a: 1e6 + a * p["x"])
        for name, a in (("up", 0.5), ("down", -0.5))
    ]
    return trj.Target(models, dtype=dtype)


def test_large_log_densities_take_float64_and_the_report_says_why():
    sampler = trj.TRJSampler(offset(), seed=1)
    result = sampler.run(draws=150, chains=64, progress=False)
    row = result.model_probabilities().loc["up"]
    assert abs(row["visits"] - 0.5) < 5 * row["visits_se"]
    assert result.raw.theta.dtype == torch.float64
    assert "in float64: float32 does not resolve sums of log densities" in str(result.report)
    assert result.report.evaluations == sampler.account.evaluations  # of both precisions
    again = sampler.run(draws=20, chains=16, fit=False, warmup=5, progress=False)
    assert again.raw.theta.dtype == torch.float64


@pytest.mark.parametrize("stated", ["target", "sampler"])
def test_a_precision_that_was_stated_is_kept(stated):
    target = offset(torch.float32 if stated == "target" else None)
    dtype = torch.float32 if stated == "sampler" else None
    sampler = trj.TRJSampler(target, seed=1, dtype=dtype)
    with pytest.warns(PrecisionWarning, match="use dtype=torch.float64"):
        result = sampler.run(draws=100, chains=64, progress=False)
    assert result.raw.theta.dtype == torch.float32 and result.report.precision == ""


def test_an_ordinary_target_stays_in_float32():
    result = trj.TRJSampler(toys.gaussians(), seed=1).run(draws=100, chains=64, progress=False)
    assert result.raw.theta.dtype == torch.float32 and result.report.precision == ""
