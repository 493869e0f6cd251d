"""Pathfinder: against normals, evidences that are known, and targets that are hard to climb."""

import math

import pytest
import torch
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

import trjmcmc as trj
from tests.logistic_selection import logistic_selection
from trjmcmc.errors import ConfigurationError
from trjmcmc.estimate.importance import log_mean_weight, log_weights
from trjmcmc.fit import pathfinder
from trjmcmc.fit.climbs import inverse_hessian, updated_diagonal
from trjmcmc.fit.pathfinder import pathfinder_map
from trjmcmc.transport.laplace import LaplaceMap
from trjmcmc.transport.normals import NormalMixture

ONE = torch.zeros(1, dtype=torch.long)  # the code of the only model


def target_of(log_density, d, dtype=torch.float64, sd=4.0):
    """One model with a given density: the wide prior is divided out."""
    prior = Independent(Normal(torch.zeros(d, dtype=dtype), torch.tensor(sd, dtype=dtype)), 1)

    def log_likelihood(params):
        return log_density(params["x"]) - prior.log_prob(params["x"])

    return trj.Target([trj.Model("m", {"x": prior}, log_likelihood)], dtype=dtype)


def normal(d, condition, generator, dtype=torch.float64):
    """A normal target, its mean and its covariance, in axes of its own."""
    variance = torch.logspace(0, math.log10(condition), d, dtype=torch.float64)
    axes = torch.linalg.qr(torch.randn(d, d, generator=generator).double())[0]
    covariance = axes * (variance / variance.mean()) @ axes.T
    mean = torch.randn(d, generator=generator).double()
    m, precision = mean.to(dtype), torch.linalg.inv(covariance).to(dtype)
    shift = 0.5 * d * math.log(2 * math.pi) + 0.5 * float(torch.logdet(covariance))

    def log_density(x):
        return -0.5 * ((x - m) @ precision * (x - m)).sum(-1) - shift

    return target_of(log_density, d, dtype), mean, covariance


def divergences(found, mean, covariance):
    """Of each normal from the target, nats."""
    exact = torch.distributions.MultivariateNormal(mean, covariance)
    fitted = torch.distributions.MultivariateNormal(
        found.loc.double(), scale_tril=found.scale_tril.double()
    )
    return torch.distributions.kl_divergence(fitted, exact)


def modes(x):
    """A third at -2, the rest at 2, in both coordinates."""
    each = -0.5 * ((x[:, None] - torch.tensor([[-2.0], [2.0]]).to(x)) / 0.5).square().sum(-1)
    weight = torch.tensor([1 / 3, 2 / 3]).to(x).log()
    return (each + weight).logsumexp(1) - math.log(2 * math.pi * 0.25)


def funnel(x):
    """Normal of variance 9, and nine of the log variance that it says."""
    v, rest = x[:, 0], x[:, 1:]
    return -v.square() / 18 - 0.5 * (rest.square() * torch.exp(-v)[:, None] + v[:, None]).sum(1)


def evidence(target, found, generator, n=2000):
    flow = pathfinder_map(target.space, [found])
    return log_mean_weight(log_weights(target, flow, found.code, n, generator))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_ill_conditioned_normal(generator, dtype):
    """Condition 1e4 in fifty dimensions; quasi-Newton steps alone know too little of it."""
    target, mean, covariance = normal(50, 1e4, generator, dtype)
    found = pathfinder(target, ONE, generator, paths=5, max_iterations=80)
    assert found.loc.dtype == found.scale_tril.dtype == dtype
    assert float(divergences(found, mean, covariance).median()) < 0.1
    assert float(found.elbo.abs().median()) < 0.1
    published = pathfinder(target, ONE, generator, paths=3, max_iterations=80, refine=0)
    assert float(divergences(published, mean, covariance).min()) > 5
    assert float(published.elbo.max()) < -5


def test_a_few_steps_suffice_in_two_dimensions(generator):
    """Without refinements."""
    target, mean, covariance = normal(2, 100, generator)
    found = pathfinder(target, ONE, generator, refine=0)
    assert float(divergences(found, mean, covariance).median()) < 0.1


def test_a_logistic_regression_of_twenty_columns(generator):
    """Importance sampling through the normals agrees with that through Laplace's."""
    target = logistic_selection(20)
    code = torch.ones(20, dtype=torch.long)
    found = pathfinder(target, code, generator)
    normals = NormalMixture(torch.full((8,), 1 / 8), found.loc, found.scale_tril)
    x = normals.sample(4000, generator)
    mine = log_mean_weight(target.log_joint(code.expand(4000, -1), x) - normals.log_prob(x))
    assert mine.ess > 2000
    theirs = log_mean_weight(log_weights(target, LaplaceMap(target), code, 20_000, generator))
    assert abs(mine.value - theirs.value) < 5 * math.hypot(mine.std_error, theirs.std_error)
    published = pathfinder(target, code, generator, refine=0)
    assert float(published.elbo.mean()) < float(found.elbo.mean()) - 1 < mine.value


def test_two_modes(generator):
    target = target_of(modes, 2)
    found = pathfinder(target, ONE, generator, paths=20)
    left = found.loc[:, 0] < 0
    assert 0 < int(left.sum()) < 20
    near = torch.where(left[:, None], found.loc + 2, found.loc - 2)
    assert float(near.abs().max()) < 0.1
    e = evidence(target, found, generator)
    assert abs(e.value) < 5 * e.std_error + 1e-3
    alone = evidence(target, pathfinder(target, ONE, generator, paths=1), generator)
    assert alone.value < -0.3  # what one path can't know


def test_the_bulk_of_a_funnel_and_not_its_mode(generator):
    target = target_of(funnel, 10, sd=10.0)
    found = pathfinder(target, ONE, generator, max_iterations=100)
    assert float(found.loc[:, 0].min()) > -9  # three standard deviations
    mode, _ = LaplaceMap(target).normals(ONE[None])
    assert float(mode[0, 0]) < -20


def test_regions_without_density_or_gradient(generator):
    """Half of the prior; beyond it gradients are NaN."""

    def log_density(x):
        rooted = -0.5 * ((x[:, 0].sqrt() - 2) / 0.1).square()
        return torch.where(x[:, 0] > 0, rooted, -math.inf)

    target = target_of(log_density, 1)
    code, theta = ONE[None], torch.tensor([[-1.0]], dtype=torch.float64)
    value, gradient = target.log_joint_and_grad(code, theta)
    assert value == -math.inf and bool(gradient.isnan().all())
    found = pathfinder(target, ONE, generator)
    assert not found.failures
    assert float((found.loc - 4).abs().max()) < 0.2
    assert float((found.scale_tril - 0.4).abs().max()) < 0.1


def test_paths_that_fail_are_dropped_and_told(generator):
    """On the right half of the points has no density, wherever one looks."""
    prior = MixtureSameFamily(
        Categorical(torch.ones(2)), Normal(torch.tensor([-3.0, 3.0]), torch.tensor(0.5))
    )

    def log_likelihood(params):
        x = params["x"]
        return torch.where((x > 0) & ((x * 1e5).frac() < 0.5), -math.inf, -x.square())

    target = trj.Target([trj.Model("m", {"x": prior}, log_likelihood)])
    found = pathfinder(target, ONE, generator, paths=40)
    assert len(found) + len(found.failures) == 40
    assert 0 < len(found.failures) < 40
    assert all("density is zero at draws" in message for message in found.failures)
    assert int((found.loc < 0).sum()) > 5


def test_no_path_succeeds(generator):
    def log_likelihood(params):
        x = params["x"]
        return torch.where(x.abs() >= 0, 0 * x, (-1 - x.square()).sqrt())

    target = trj.Target([trj.Model("m", {"x": Normal(0.0, 1.0)}, log_likelihood)])
    with pytest.raises(ConfigurationError, match=r"none of 3 paths .* no draw of a start"):
        pathfinder(target, ONE, generator, paths=3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_models_of_no_and_of_one_parameter(generator, dtype):
    """One map of both; their evidences are exact."""
    y = torch.tensor(1.3, dtype=dtype)
    unit = Normal(torch.zeros((), dtype=dtype), 1.0)
    models = [
        trj.Model("none", {}, lambda p: unit.log_prob(y)),
        trj.Model("mean", {"mu": unit}, lambda p: Normal(p["mu"], 1.0).log_prob(y)),
    ]
    target = trj.Target(models, dtype=dtype)
    codes = target.space.enumerate()
    found = [pathfinder(target, code, generator, paths=4) for code in codes]
    assert [len(f) for f in found] == [1, 4]
    exact = [float(Normal(0.0, s).log_prob(y)) - math.log(2) for s in (1.0, math.sqrt(2.0))]
    for f, truth in zip(found, exact, strict=True):
        assert torch.allclose(f.elbo, torch.tensor(truth).double(), atol=1e-3)
    flow = pathfinder_map(target.space, found)
    for code, truth in zip(codes, exact, strict=True):
        log_w = log_weights(target, flow, code, 100, generator)
        assert log_w.allclose(torch.tensor(truth).double(), atol=1e-2)


def test_flat_directions_are_as_wide_as_the_prior(generator):
    prior = Independent(Normal(torch.zeros(5), 3.0), 1)
    likelihood = Normal(0.0, 0.1)
    target = trj.Target(
        [trj.Model("m", {"x": prior}, lambda p: likelihood.log_prob(p["x"][:, 0] - 1))]
    )
    found = pathfinder(target, ONE, generator)
    variance = torch.tensor([1 / (100 + 1 / 9), 9.0, 9.0, 9.0, 9.0]).double()
    mean = torch.tensor([100 * float(variance[0]), 0.0, 0.0, 0.0, 0.0]).double()
    assert float(divergences(found, mean, variance.diag()).median()) < 0.01


@pytest.mark.parametrize("scale", [1e-7, 1e5])
def test_units_do_not_matter(scale, generator):
    exact = Normal(torch.tensor([0.5, -2.0]).double(), torch.tensor([1.0, 3.0]).double() * scale)
    target = target_of(lambda x: exact.log_prob(x).sum(-1), 2, sd=max(4.0, 4 * scale))
    found = pathfinder(target, ONE, generator, refine=0)
    kl = divergences(found, exact.mean, exact.variance.diag())
    assert float(kl.median()) < 0.2


def test_paths_share_calls(generator):
    calls = []

    def log_likelihood(params):
        calls.append(len(params["x"]))
        return -params["x"].square()

    target = trj.Target([trj.Model("m", {"x": Normal(0.0, 1.0)}, log_likelihood)])
    calls.clear()
    found = pathfinder(target, ONE, generator, paths=16)
    assert sum(calls) == found.evaluations
    assert 50 * len(calls) < found.evaluations


def test_curvature_is_that_of_updates_one_by_one(generator):
    n, j, d = 2, 3, 6
    factor = torch.randn(n, d, d, generator=generator).double()
    hessian = factor @ factor.mT + torch.eye(d)
    s = torch.randn(n, j, d, generator=generator).double()
    y = s @ hessian
    diagonal = torch.rand(n, d, generator=generator).double() + 0.5
    found = inverse_hessian(diagonal, s, y)
    for i in range(n):
        slow = diagonal[i].diag()
        for a, b in zip(s[i], y[i], strict=True):
            other = torch.eye(d) - torch.outer(a, b) / (a @ b)
            slow = other @ slow @ other.T + torch.outer(a, a) / (a @ b)
        torch.testing.assert_close(found[i], slow)
    torch.testing.assert_close((found @ y[:, -1, :, None])[..., 0], s[:, -1])  # secant equation
    padded = [torch.cat([torch.zeros(n, 2, d).double(), x], 1) for x in (s, y)]
    torch.testing.assert_close(inverse_hessian(diagonal, *padded), found)


def test_the_diagonal_is_that_of_an_update_of_the_scaled_hessian(generator):
    diagonal = torch.rand(6, generator=generator).double() + 0.5
    s = torch.randn(6, generator=generator).double()
    y = s * (torch.rand(6, generator=generator).double() + 0.1)

    def updated(scale):
        b = (scale / diagonal).diag()
        b = b - torch.outer(b @ s, b @ s) / (s @ b @ s) + torch.outer(y, y) / (s @ y)
        return 1 / b.diagonal()

    found = updated_diagonal(diagonal[None], s[None], y[None])[0]
    torch.testing.assert_close(found, updated((diagonal * y.square()).sum() / (s @ y)))
    assert not torch.allclose(found, updated(1.0))


@pytest.mark.parametrize(
    "settings",
    [
        {"paths": 0},
        {"draws": 5},
        {"draws": 0},
        {"max_iterations": 0},
        {"history": 0},
        {"refine": -1},
    ],
)
def test_settings_out_of_range(settings, generator):
    target = target_of(modes, 2)
    with pytest.raises(ConfigurationError, match="pathfinder: expected"):
        pathfinder(target, ONE, generator, **settings)
