"""Mean fields by draws that stay the same."""

import math

import pytest
import torch
from solved import linear_regression
from torch.distributions import MultivariateNormal, Normal

import trjmcmc as trj
from trjmcmc.approximate import ApproximationPolicy
from trjmcmc.approximate.families import Start, map_of
from trjmcmc.approximate.fixed_draws import climbed, matched

POLICY = ApproximationPolicy()


def mean_field(target, loc, scale):
    d = target.dim
    loc = torch.full((1, d), loc, dtype=torch.float64)
    factor = scale * torch.eye(d, dtype=torch.float64)[None]
    return map_of("mean-field", Start(target, loc, factor, 0, POLICY), {})


def climb(target, *maps, draws=512, seed=0):
    return climbed(
        target,
        maps,
        target.space.enumerate(),
        torch.Generator().manual_seed(seed),
        draws=draws,
        steps=150,
    )


def correlated(rho, d=3):
    prior = Normal(torch.zeros(d, dtype=torch.float64), 3.0)
    covariance = (1 - rho) * torch.eye(d, dtype=torch.float64) + rho
    exact = MultivariateNormal(torch.arange(d).double(), covariance)

    def log_likelihood(params):
        x = params["x"].double()
        return exact.log_prob(x) - prior.log_prob(x).sum(-1)

    target = trj.Target([trj.Model("normal", {"x": prior}, log_likelihood)])
    return target.to(dtype=torch.float64), exact


def test_the_best_product_of_a_normal_to_rounding():
    """Fewer draws than would tell a standard deviation to a percent."""
    target, exact = correlated(0.8)
    found = climb(target, mean_field(target, 0.0, 1.0), draws=64)
    code, z = target.space.enumerate().expand(3, -1), torch.eye(3, dtype=torch.float64)
    with torch.no_grad():
        centre, _ = found.push(torch.zeros_like(z), code)
        moved, _ = found.push(z, code)
    best = exact.precision_matrix.diagonal().rsqrt()
    assert torch.allclose(centre[0], exact.loc, atol=1e-4)
    assert torch.allclose((moved - centre).diagonal(), best, rtol=1e-4)


def bound(target, transport):
    """Of fresh draws, with its standard error, nats."""
    code = target.space.enumerate().expand(10_000, -1)
    z = torch.randn(10_000, target.dim, generator=torch.Generator().manual_seed(9)).double()
    with torch.no_grad():
        theta, log_q = transport.push(z, code)
        gap = target.log_joint(code, theta) - log_q
    return float(gap.mean()), float(gap.std()) / len(gap) ** 0.5


def test_of_two_tops_the_higher_one():
    prior = Normal(torch.zeros(1, dtype=torch.float64), 9.0)

    def log_likelihood(params):
        x = params["x"].double()
        light = math.log(0.3) + Normal(-5.0, 0.5).log_prob(x).sum(-1)
        heavy = math.log(0.7) + Normal(5.0, 1.0).log_prob(x).sum(-1)
        return torch.logaddexp(light, heavy) - prior.log_prob(x).sum(-1)

    target = trj.Target([trj.Model("two", {"x": prior}, log_likelihood)]).to(dtype=torch.float64)
    lower, both = (
        climb(target, mean_field(target, -5.0, 0.5)),
        climb(target, mean_field(target, -5.0, 0.5), mean_field(target, 5.0, 0.5)),
    )
    assert bound(target, lower)[0] == pytest.approx(math.log(0.3), abs=0.01)
    assert bound(target, both)[0] == pytest.approx(math.log(0.7), abs=0.01)


def test_the_mean_field_of_more_columns_than_rows():
    """Whose optimum is known; a climb cut short is not there (negative control)."""
    target = linear_regression(n=20, p=50, seed=1).to(dtype=torch.float64)
    best, codes = target.posterior.mean_field, target.space.enumerate()
    value, error = bound(target, climb(target, mean_field(target, 0.0, 1.0)))
    assert abs(value - best.elbo) < 0.05 + 5 * error
    generator = torch.Generator().manual_seed(0)
    short = climbed(target, [mean_field(target, 0.0, 1.0)], codes, generator, draws=512, steps=3)
    assert bound(target, short)[0] < best.elbo - 0.5


def test_no_top_where_draws_have_no_density():
    prior = torch.distributions.Exponential(torch.tensor(1.0, dtype=torch.float64))

    def log_likelihood(params):
        return torch.where(params["x"] < 1.5, 0.0, -math.inf)

    target = trj.Target([trj.Model("m", {"x": prior}, log_likelihood)]).to(dtype=torch.float64)
    assert climb(target, mean_field(target, 0.0, 1.0)) is None


def test_matched_draws():
    target, _ = correlated(0.0)
    flow = mean_field(target, 0.0, 1.0)
    z = matched(flow.reference, 100, target, torch.Generator().manual_seed(0))
    eye = torch.eye(3, dtype=torch.float64)
    assert z.shape == (100, 3) and torch.allclose(z.mean(0), torch.zeros(3).double(), atol=1e-12)
    assert torch.allclose(z.mT @ z / 100, eye, atol=1e-12)
    few = matched(flow.reference, 4, target, torch.Generator().manual_seed(0))
    assert few.shape == (4, 3)
