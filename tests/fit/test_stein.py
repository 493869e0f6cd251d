"""Stein variational gradient descent: exact draws beside it, and the collapse it warns of."""

import math

import pytest
import torch
from torch.distributions import Independent, Normal

import trjmcmc as trj
from tests.graphs.small import data
from trjmcmc import graphs
from trjmcmc.errors import ConfigurationError, ConvergenceWarning
from trjmcmc.fit import SquaredExponential, svgd
from trjmcmc.fit.stein import stein_direction


def target_of(log_density, d):
    """One model with a given density: the wide prior is divided out."""
    prior = Independent(Normal(torch.zeros(d), 4.0), 1)

    def log_likelihood(params):
        return log_density(params["x"]) - prior.log_prob(params["x"])

    return trj.Target([trj.Model("m", {"x": prior}, log_likelihood)])


def normal(x):
    """Variances 1 and 4, correlation .5, means 1 and -2."""
    a, b = x[:, 0] - 1, (x[:, 1] + 2) / 2
    return -(a**2 - a * b + b**2) / (2 * 0.75)


def banana(x):
    return -0.5 * x[:, 0] ** 2 - 0.5 * ((x[:, 1] - x[:, 0] ** 2 + 1) / 0.5) ** 2


def modes(x):
    """A third at -2, the rest at 2."""
    each = -0.5 * ((x[:, :1] - torch.tensor([-2.0, 2.0])) / 0.5) ** 2
    return (each + torch.tensor([1 / 3, 2 / 3]).log()).logsumexp(1)


def values(log_density, d, **settings):
    settings = {"particles": 200, "steps": 800, **settings}
    found = svgd(target_of(log_density, d), "m", progress=False, **settings)
    return found.values["m"]["x"], found


def test_a_normal():
    x, found = values(normal, 2)
    assert torch.allclose(x.mean(0), torch.tensor([1.0, -2.0]), atol=0.15)
    assert torch.allclose(x.var(0), torch.tensor([1.0, 4.0]), rtol=0.2)
    assert found.spread["m"] == pytest.approx(1.0, abs=0.15)


def test_a_banana(generator):
    x, _ = values(banana, 2)
    a = torch.randn(20_000, generator=generator)
    exact = torch.stack([a, a**2 - 1 + 0.5 * torch.randn(20_000, generator=generator)], 1)
    assert torch.allclose(x.mean(0), exact.mean(0), atol=0.2)
    assert torch.allclose(x.var(0), exact.var(0), rtol=0.35)
    assert float(torch.corrcoef(torch.stack([x[:, 0] ** 2, x[:, 1]]))[0, 1]) > 0.8


def test_two_modes():
    """Both are found from a wide start; their shares are those of the start, not .33 and .67."""
    x, _ = values(modes, 1)
    left = float((x[:, 0] < 0).double().mean())
    assert 0.2 < left < 0.65
    near = torch.where(x[:, 0] < 0, x[:, 0] + 2, x[:, 0] - 2)
    assert float(near.abs().max()) < 2.5


def test_a_collapse_in_many_dimensions_is_told():
    """Fifty dimensions, thirty particles: variances of a tenth."""

    def log_density(x):
        return -0.5 * x.square().sum(1)

    with pytest.warns(ConvergenceWarning, match="particles have collapsed"):
        x, found = values(log_density, 50, particles=30)
    assert float(x.var(0).mean()) < 0.5
    assert found.spread["m"] == pytest.approx(float(x.var(0).mean()), rel=0.5)


def test_the_direction_is_that_of_the_source(generator):
    """By a loop over pairs; without the repulsion it is another."""
    x = torch.randn(4, 3, generator=generator)
    g = torch.randn(4, 3, generator=generator)
    kernel = SquaredExponential(1.7)
    (found,) = stein_direction([x], [g], kernel)
    slow, pull = torch.zeros(4, 3), torch.zeros(4, 3)
    for i in range(4):
        for m in range(4):
            y = x[m].clone().requires_grad_()
            value = (-(y - x[i]).square().sum() / 1.7).exp()
            (slope,) = torch.autograd.grad(value, y)
            slow[i] += (value.detach() * g[m] + slope) / 4
            pull[i] += value.detach() * g[m] / 4
    torch.testing.assert_close(found, slow)
    assert not torch.allclose(found, pull, atol=1e-2)


def test_blocks_have_kernels_of_their_own(generator):
    a, b = (torch.randn(5, n, generator=generator) for n in (2, 3))
    zero = [torch.zeros_like(a), torch.zeros_like(b)]
    both = stein_direction([a, b], zero, SquaredExponential((1.0, 3.0)))
    (alone,) = stein_direction([b], zero[1:], SquaredExponential(3.0))
    torch.testing.assert_close(both[1], alone)


@pytest.mark.filterwarnings("ignore:svgd. the particles have collapsed")  # a dozen a model
def test_particles_of_graphs_with_parameters():
    target = graphs.network(data(2, n=30), noise=1.0)
    found = svgd(target, particles=30, steps=300, progress=False)
    active = target.space.active(found.pool.code)
    assert not found.pool.theta[~active].any()
    known = graphs.linear(data(2, n=30), noise=1.0)
    assert len(found.values) == 3 and known.names == target.space.nodes


@pytest.mark.whole
def test_particles_train_a_map_and_start_chains():
    target = trj.problems.sinh_arcsinh()
    found = svgd(target, "2d", particles=60, steps=1500, progress=False)
    sampler = trj.TRJSampler(target, seed=0)
    result = sampler.run(draws=400, chains=64, start=found, progress=False)
    told = result.report.start
    assert told.there == pytest.approx(1.0 if told.item == "2d" else 0.0)
    assert abs(result.model_probabilities(full=True).loc["2d", "visits"] - 0.75) < 0.05


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"particles": 1}, "2 particles or more"),
        ({"steps": 0}, "steps >= 1"),
        ({"learning_rate": -1.0}, "learning_rate > 0"),
        ({"anneal": 1.0}, "anneal"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ConfigurationError, match=message):
        svgd(target_of(normal, 2), "m", progress=False, **settings)


@pytest.mark.filterwarnings("ignore:svgd. the particles have collapsed")
def test_particles_that_have_not_arrived_or_can_not_are_told():
    """A likelihood far away after five steps, and one without gradient where it is zero."""

    def far(params):
        return -0.5 * ((params["x"] - 10) / 0.5) ** 2

    target = trj.Target([trj.Model("m", {"x": Normal(0.0, 1.0)}, far)])
    with pytest.warns(ConvergenceWarning, match="still on their way in m"):
        svgd(target, "m", steps=5, particles=50, progress=False)

    def bounded(params):
        return torch.where(params["x"] > 0, 0.0 * params["x"], -math.inf)

    target = trj.Target([trj.Model("m", {"x": Normal(0.0, 1.0)}, bounded)])
    with pytest.warns(ConvergenceWarning, match="where the density is zero"):
        found = svgd(target, "m", particles=50, progress=False)
    assert bool((found.pool.theta > 0).all()) and found.pool.log_joint.isfinite().all()


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")
def test_a_particle_alone_in_its_model_has_no_spread():
    target = graphs.network(data(4, n=20), noise=1.0)
    found = svgd(target, particles=6, steps=50, progress=False)
    alone = [name for name, v in found.values.items() if len(v["w"]) == 1 and name != "(empty)"]
    assert alone and all(found.spread[name] == 0.0 for name in alone)


def test_kernels_and_targets_that_do_not_fit_are_refused():
    for bad in (0.0, (1.0, -1.0)):
        with pytest.raises(ConfigurationError, match="bandwidth > 0"):
            SquaredExponential(bad)
    with pytest.raises(ConfigurationError, match="parameters and gradients"):
        svgd(graphs.target(graphs.bge(data(2))), progress=False)
