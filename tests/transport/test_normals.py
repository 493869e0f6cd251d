"""Mixtures of normals fitted to draws: thin curves, few draws, draws met many times."""

import math

import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from trjmcmc.draws import Pool
from trjmcmc.problems import sinh_arcsinh
from trjmcmc.transport.normals import NormalMixture, gaussian_mixture


def on_a_curve(n, thickness, generator):
    """Draws (x, x^2 / 2 + noise), float64, and their log density."""
    x = 2 * torch.randn(n, generator=generator, dtype=torch.float64)
    y = x.square() / 2 + thickness * torch.randn(n, generator=generator, dtype=torch.float64)
    return torch.stack([x, y], 1)


def log_density(theta, thickness):
    x, y = theta.unbind(1)
    return Normal(0.0, 2.0).log_prob(x) + Normal(x.square() / 2, thickness).log_prob(y)


@pytest.mark.whole
def test_many_normals_are_as_thin_as_a_curved_ridge(generator):
    """A floor of a share of the draws' spread left them .4 nats off."""
    model = trj.Model("m", {"x": Normal(torch.zeros(2), 1.0)}, lambda p: 0 * p["x"].sum(-1))
    draws, code = on_a_curve(20_000, 0.01, generator), torch.zeros(20_000, 1).long()
    pool = Pool(code, draws, torch.zeros(len(draws)))
    space = trj.Target([model]).space
    normals = gaussian_mixture(space, pool, generator, components=64, draws=len(draws))
    fresh = on_a_curve(20_000, 0.01, generator)
    gap = log_density(fresh, 0.01) - normals.log_prob(fresh, code)
    assert float(gap.mean()) < 0.2


def test_few_draws_in_many_dimensions_stay_wide(generator):
    """What was held out keeps normals from shrinking to the draws that they were fitted to."""
    draws = torch.randn(60, 20, generator=generator, dtype=torch.float64)
    normal = NormalMixture.fitted(draws, 1, generator)
    fresh = torch.randn(5000, 20, generator=generator, dtype=torch.float64)
    exact = Normal(0.0, 1.0).log_prob(fresh).sum(1)
    assert float((exact - normal.log_prob(fresh)).mean()) < 20


def test_draws_that_were_met_many_times_do_not_judge_themselves(generator):
    """Populations are resampled: a copy that was held out says nothing of the fit."""
    draws = torch.randn(150, 3, generator=generator, dtype=torch.float64)
    once = NormalMixture.fitted(draws.repeat_interleave(10, 0), 4, generator)
    fresh = torch.randn(5000, 3, generator=generator, dtype=torch.float64)
    exact = Normal(0.0, 1.0).log_prob(fresh).sum(1)
    assert float((exact - once.log_prob(fresh)).mean()) < 0.5


def test_two_draws_and_equal_draws_make_a_map(generator):
    space = sinh_arcsinh().space
    for theta in (torch.zeros(2, 2), torch.ones(300, 2)):
        code = torch.ones(len(theta), 1).long()
        pool = Pool(code, theta, torch.zeros(len(theta)))
        normals = gaussian_mixture(space, pool, generator, components=4)
        assert math.isfinite(float(normals.log_prob(theta[:1], code[:1])))
