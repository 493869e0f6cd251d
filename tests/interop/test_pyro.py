"""Models in Pyro: the densities of torch, the answer of a conjugate pair, and what is refused."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.distributions import (
    Dirichlet,
    Distribution,
    Gamma,
    HalfCauchy,
    HalfNormal,
    LKJCholesky,
    MultivariateNormal,
    Normal,
    Uniform,
)

import trjmcmc as trj
from tests.interop.conjugate import agrees
from tests.interop.languages import PAIRS
from trjmcmc.errors import ConfigurationError, TargetError
from trjmcmc.interop.pyro_program import load_pyro

pytest.importorskip("pyro")
pyro = load_pyro()
dist = pyro.distributions

DOUBLE = torch.float64

EFFECTS = torch.tensor([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0], dtype=DOUBLE)

ERRORS = torch.tensor([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0], dtype=DOUBLE)


def schools(y):
    mu = pyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = pyro.sample("tau", dist.HalfCauchy(5.0))
    with pyro.plate("school", 8):
        theta = pyro.sample("theta", dist.Normal(mu, tau))
        pyro.sample("y", dist.Normal(theta, ERRORS), obs=y)


def native_schools():
    zero = torch.zeros((), dtype=DOUBLE)
    priors = {
        "mu": Normal(zero, 5.0),
        "tau": HalfCauchy(zero + 5.0),
        "theta": lambda p: Normal(p["mu"][:, None], p["tau"][:, None].expand(-1, 8)),
    }
    return priors, lambda p: Normal(p["theta"], ERRORS).log_prob(EFFECTS).sum(-1)


def shares(counts):
    p = pyro.sample("p", dist.Dirichlet(torch.tensor([0.5, 1.0, 3.0])))
    pyro.sample("n", dist.Multinomial(10, p), obs=counts)


COUNTS = torch.tensor([2.0, 3.0, 5.0], dtype=DOUBLE)


def native_shares():
    alpha = torch.tensor([0.5, 1.0, 3.0], dtype=DOUBLE)
    constant = math.lgamma(11) - float(torch.lgamma(COUNTS + 1).sum())
    return {"p": Dirichlet(alpha)}, lambda p: (COUNTS * p["p"].log()).sum(-1) + constant


POINTS = torch.tensor([[0.3, -0.5], [1.0, 0.9], [-1.5, -1.0]], dtype=DOUBLE)


def correlated(y):
    scale = pyro.sample("scale", dist.HalfNormal(torch.ones(2)).to_event(1))
    tril = pyro.sample("corr", dist.LKJCholesky(2, 1.5))
    with pyro.plate("row", len(y)):
        whole = scale[:, None] * tril
        pyro.sample("y", dist.MultivariateNormal(torch.zeros(2), scale_tril=whole), obs=y)


def native_correlated():
    one = torch.ones((), dtype=DOUBLE)

    def log_likelihood(p):
        tril = (p["scale"][:, :, None] * p["corr"])[:, None]
        zero = torch.zeros(2, dtype=DOUBLE)
        return MultivariateNormal(zero, scale_tril=tril).log_prob(POINTS).sum(-1)

    return {"scale": HalfNormal(torch.ones(2, dtype=DOUBLE)), "corr": LKJCholesky(2, 1.5 * one)}, (
        log_likelihood
    )


def bounded(y):
    high = pyro.sample("high", dist.Gamma(2.0, 1.0))
    x = pyro.sample("x", dist.Uniform(0.0, high))
    rate = pyro.sample("rate", dist.Gamma(1.0 + x, 2.0))
    pyro.factor("more", -x.square())
    with pyro.plate("n", len(y)), pyro.poutine.mask(mask=y > 0):
        pyro.sample("y", dist.Exponential(rate), obs=y)


TIMES = torch.tensor([0.3, 2.0, -1.0], dtype=DOUBLE)


def native_bounded():
    one = torch.ones((), dtype=DOUBLE)
    priors = {
        "high": Gamma(2 * one, 1.0),
        "x": lambda p: Uniform(0 * p["high"], p["high"]),
        "rate": lambda p: Gamma(1.0 + p["x"], 2.0 * one),
    }

    def log_likelihood(p):
        return -p["x"].square() + 2 * p["rate"].log() - 2.3 * p["rate"]

    return priors, log_likelihood


def mixture(y):
    weight = pyro.sample("weight", dist.Beta(2.0, 2.0))
    scale = pyro.sample("scale", dist.Gamma(3.0, 3.0))
    which = dist.Categorical(torch.stack([weight, 1 - weight]))
    x = pyro.sample(
        "x", dist.MixtureSameFamily(which, dist.Normal(torch.tensor([0.0, 3.0]), scale))
    )
    pyro.sample("y", dist.StudentT(4.0, x, scale), obs=y)


def native_mixture():
    one = torch.ones((), dtype=DOUBLE)

    def mixed(p):
        which = torch.distributions.Categorical(torch.stack([p["weight"], 1 - p["weight"]], -1))
        parts = Normal(torch.tensor([0.0, 3.0], dtype=DOUBLE), p["scale"][:, None])
        return torch.distributions.MixtureSameFamily(which, parts)

    priors = {"weight": torch.distributions.Beta(2 * one, 2 * one), "scale": Gamma(3 * one, 3.0)}
    y = torch.tensor(1.2, dtype=DOUBLE)
    return {**priors, "x": mixed}, lambda p: torch.distributions.StudentT(
        4 * one, p["x"], p["scale"]
    ).log_prob(y)


CASES = {
    "hierarchy": (schools, EFFECTS, native_schools),
    "simplex": (shares, COUNTS, native_shares),
    "LKJ": (correlated, POINTS, native_correlated),
    "moving bounds": (bounded, TIMES, native_bounded),
    "mixture": (mixture, torch.tensor(1.2, dtype=DOUBLE), native_mixture),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_densities_gradients_and_draws_are_those_of_torch(case):
    f, data, native = case
    priors, log_likelihood = native()
    models = [trj.from_pyro("pyro", f, data, dtype=DOUBLE)]
    models.append(trj.Model("torch", priors, log_likelihood))
    target = trj.Target(models, dtype=DOUBLE)
    theta = torch.randn(20, target.dim, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    zero = torch.zeros(20, 1, dtype=torch.long)
    for temper in (1.0, 0.3):
        here = target.log_joint_and_grad(zero, theta, temper=temper)
        there = target.log_joint_and_grad(zero + 1, theta, temper=temper)
        for a, b in zip(here, there, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)
    parts = (target.log_prior_and_likelihood(zero + i, theta) for i in range(2))
    for a, b in zip(*parts, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)
    by_slot = [target.prior_by_slot(zero + i, theta).sum(1) for i in range(2)]
    torch.testing.assert_close(*by_slot, rtol=1e-8, atol=1e-8)
    code = torch.zeros(3000, 1, dtype=torch.long)
    draws = [target.sample_prior(code + i, torch.Generator().manual_seed(i)) for i in range(2)]
    again = target.sample_prior(code, torch.Generator().manual_seed(0))
    assert torch.equal(draws[0], again)
    a, b = (x.clamp(-10, 10) for x in draws)  # means of heavy tails have no error
    error = (a.var(0) / 3000 + b.var(0) / 3000).sqrt()
    assert bool(((a.mean(0) - b.mean(0)).abs() < 5 * error).all())


def ordered(y):
    base = dist.Normal(torch.zeros(2), 1.0).to_event(1)
    transform = dist.transforms.OrderedTransform()
    x = pyro.sample("x", dist.TransformedDistribution(base, [transform]))
    pyro.sample("y", dist.Normal(x.sum(), 1.0), obs=y)


def test_ordered_vectors_are_normalised():
    """By quadrature: the prior integrates to 1, where density of n free draws would lack n!."""
    target = trj.Target([trj.from_pyro("ordered", ordered, torch.tensor(0.5, dtype=DOUBLE))])
    grid = torch.linspace(-9.0, 9.0, 400, dtype=DOUBLE)
    theta = torch.cartesian_prod(grid, grid)
    code = torch.zeros(len(theta), 1, dtype=torch.long)
    log_prior, _ = target.log_prior_and_likelihood(code, theta)
    mass = float(log_prior.exp().sum() * (grid[1] - grid[0]) ** 2)
    assert abs(mass - 1) < 1e-8
    x = target.constrain(code[0], theta)["x"]
    assert bool((x[:, 1] > x[:, 0]).all())


def test_conjugate_pair():
    result = trj.TRJSampler(trj.Target(PAIRS["from_pyro"]()), seed=1).run(
        draws=200, chains=128, progress=False
    )
    agrees(result)


def branching(y):
    x = pyro.sample("x", dist.Normal(0.0, 1.0))
    if x > 0:
        scale = pyro.sample("scale", dist.Gamma(2.0, 2.0))
    else:
        scale = pyro.sample("scale", dist.Gamma(3.0, 1.0))
    pyro.sample("y", dist.Normal(x, scale), obs=y)


@pytest.mark.whole
def test_branches_on_values_need_one_point_at_a_time():
    y = torch.tensor(0.4, dtype=DOUBLE)
    with pytest.raises(TargetError, match=r"data-dependent control flow.*vectorized=False"):
        trj.from_pyro("branching", branching, y)
    model = trj.from_pyro("branching", branching, y, vectorized=False)
    target = trj.Target([model])
    theta = torch.tensor([[0.5, 0.2], [-0.5, 0.2]], dtype=DOUBLE)
    got = target.log_joint(torch.zeros(2, 1, dtype=torch.long), theta)
    for i, (a, b) in enumerate([(2.0, 2.0), (3.0, 1.0)]):
        x, scale = theta[i, 0], theta[i, 1].exp()
        gamma = Gamma(torch.tensor(a, dtype=DOUBLE), b)
        expected = Normal(0.0, 1.0).log_prob(x) + gamma.log_prob(scale) + theta[i, 1]
        torch.testing.assert_close(got[i], expected + Normal(x, scale).log_prob(y))


def chosen(y):
    """A prior that depends on another through a comparison alone, without a gradient."""
    x = pyro.sample("x", dist.Normal(0.0, 1.0))
    z = pyro.sample("z", dist.Normal(torch.where(x > 3, 5.0, 0.0), 1.0))
    pyro.sample("y", dist.Normal(z, 1.0), obs=y)


def test_dependence_without_a_gradient_is_seen():
    target = trj.Target([trj.from_pyro("chosen", chosen, torch.tensor(0.0, dtype=DOUBLE))])
    theta = torch.tensor([[4.0, 1.0], [0.0, 1.0]], dtype=DOUBLE)
    by_slot = target.prior_by_slot(torch.zeros(2, 1, dtype=torch.long), theta)
    assert abs(float(by_slot[0, 1] - by_slot[1, 1]) + 7.5) < 1e-9


def path(y):
    """A prior that keeps what it depends on in objects of its own."""
    start = pyro.sample("start", dist.Normal(0.0, 1.0))
    one, step = torch.ones(1, 1), dist.MultivariateNormal(torch.zeros(1), torch.ones(1, 1))
    first = dist.MultivariateNormal(start.expand(1), one)
    x = pyro.sample("x", dist.GaussianHMM(first, one, step, one, step, duration=1))
    pyro.sample("y", dist.Normal(x.sum(), 1.0), obs=y)


@pytest.mark.whole
def test_dependence_through_objects_of_a_distribution_is_seen():
    """It was taken for none, and the model refused as one with other terms than its sites."""
    target = trj.Target([trj.from_pyro("path", path, torch.tensor(0.0, dtype=DOUBLE))])
    theta = torch.tensor([[4.0, 1.0], [0.0, 1.0]], dtype=DOUBLE)
    by_slot = target.prior_by_slot(torch.zeros(2, 1, dtype=torch.long), theta)
    expected = Normal(theta[:, 0], 3**0.5).log_prob(theta[:, 1])
    torch.testing.assert_close(by_slot[:, 1], expected)


def latent(fn):
    def model(y=None):
        pyro.sample("x", fn)
        pyro.sample("z", dist.Normal(0.0, 1.0), obs=torch.zeros(()))

    return model


def scaled(y):
    x = pyro.sample("x", dist.Normal(0.0, 1.0))
    with pyro.poutine.scale(scale=10.0):
        pyro.sample("y", dist.Normal(x, 1.0), obs=y)


def mini_batch(y):
    x = pyro.sample("x", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", 8, subsample_size=4) as rows:
        pyro.sample("y", dist.Normal(x, 1.0), obs=y[rows])


def whole_plate(y):
    x = pyro.sample("x", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", 8, subsample_size=8) as rows:
        pyro.sample("y", dist.Normal(x, 1.0), obs=y[rows])


def with_param(y):
    scale = pyro.param("a_scale_of_no_prior", torch.tensor(1.0))
    pyro.sample("x", dist.Normal(0.0, scale))


def partly_observed(y):
    with pyro.plate("rows", 8):
        pyro.sample("y", dist.Normal(0.0, 1.0), obs=y, obs_mask=y > 0)


def changing(y):
    x = pyro.sample("x", dist.Normal(0.0, 1.0))
    if x > 0:
        pyro.sample("more", dist.Normal(0.0, 1.0))


def hidden_noise(y):
    x = pyro.sample("x", dist.Normal(0.0, 1.0))
    pyro.sample("y", dist.Normal(x + torch.randn(8), 1.0), obs=y)


def nan_data(y):
    x = pyro.sample("x", dist.Normal(0.0, 1.0))
    pyro.sample("y", dist.Normal(x, 1.0), obs=torch.tensor([0.0, math.nan]))


def fails(y):
    raise KeyError("nothing")


TRAPS = {
    "discrete": (latent(dist.Poisson(3.0)), r"site 'x' of Pyro model 'm' is discrete: sum it out"),
    "enumerated": (
        lambda y: pyro.sample(
            "k", dist.Categorical(torch.ones(3)), infer={"enumerate": "parallel"}
        ),
        "'k' .* is discrete",
    ),
    "scale": (scaled, r"site 'y' .* is scaled by 10.0"),
    "mini-batch": (mini_batch, "plate 'rows' .* mini-batch of 4 of 8"),
    "improper": (
        latent(dist.ImproperUniform(dist.constraints.real, (), ())),
        "'x' .* improper prior",
    ),
    "improper by a mask": (latent(dist.Normal(0.0, 1.0).mask(False)), "'x' .* improper prior"),
    "Delta": (latent(dist.Delta(torch.tensor(1.0))), "all its mass at one point"),
    "atoms": (
        latent(
            dist.MixtureSameFamily(
                dist.Categorical(torch.tensor([0.6, 0.4])), dist.Delta(torch.tensor([0.0, 1.0]))
            )
        ),
        "'x' .* has atoms",
    ),
    "param": (with_param, "pyro.param 'a_scale_of_no_prior' is neither a prior nor data"),
    "obs_mask": (partly_observed, "'y_unobserved' .* is masked"),
    "structure": (changing, r"other sites.*\(more\)"),
    "noise": (hidden_noise, "draws random numbers beside its sites"),
    "NaN": (nan_data, "'y' .* observed with 1 NaN"),
    "no data": (lambda y: pyro.sample("x", dist.Normal(0.0, 1.0)), ": it has no observed sites"),
    "failure": (fails, "failed at a prior draw, KeyError"),
    "sphere": (latent(dist.ProjectedNormal(torch.ones(3))), "no continuous support"),
}


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_what_is_no_normalised_prior_of_numbers_is_refused(trap):
    f, words = trap
    with pytest.raises(TargetError, match=words):
        trj.from_pyro("m", f, torch.linspace(-1, 1, 8))
    assert "a_scale_of_no_prior" not in pyro.get_param_store().keys()  # noqa: SIM118
    with pytest.raises(TargetError, match="expected a Pyro model"):
        trj.from_pyro("m", None)


def test_a_plate_that_takes_all_rows_is_no_mini_batch():
    trj.from_pyro("m", whole_plate, torch.zeros(8))


def test_data_that_change_later_change_nothing():
    y = EFFECTS.clone()
    target = trj.Target([trj.from_pyro("schools", schools, y)])
    theta = torch.zeros(2, target.dim, dtype=DOUBLE)
    code = torch.zeros(2, 1, dtype=torch.long)
    before = target.log_joint(code, theta)
    y.mul_(100.0)
    assert torch.equal(target.log_joint(code, theta), before)


@pytest.mark.whole
def test_importing_pyro_leaves_checks_of_arguments_as_they_were():
    words = (
        "from torch.distributions import Distribution as D\n"
        "from trjmcmc.interop.pyro_program import load_pyro\n"
        "D.set_default_validate_args(False); load_pyro(); assert D._validate_args is False\n"
    )
    subprocess.run([sys.executable, "-c", words], check=True)


@pytest.mark.parametrize("checks", [False, True])
def test_global_settings_are_left_alone(checks):
    before = Distribution._validate_args
    try:
        Distribution.set_default_validate_args(checks)
        model = trj.from_pyro("m", whole_plate, torch.zeros(8, dtype=DOUBLE))
        model.pilot(5, warmup=5)
        assert Distribution._validate_args is checks
        assert torch.get_default_dtype() == torch.float32 and model.dtype == DOUBLE
    finally:
        Distribution.set_default_validate_args(before)


def test_without_parameters():
    def none(y):
        pyro.sample("y", dist.Normal(torch.zeros(8), 1.0).to_event(1), obs=y)

    model = trj.from_pyro("none", none, EFFECTS)
    target = trj.Target([model, trj.from_pyro("schools", schools, EFFECTS)])
    got = target.log_joint(torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, target.dim).double())
    expected = Normal(0.0, 1.0).log_prob(EFFECTS).sum() - math.log(2)
    torch.testing.assert_close(got[0], expected)


def test_single_precision():
    model = trj.from_pyro("m", whole_plate, torch.zeros(8))
    assert model.dtype == torch.float32
    target = trj.Target([model])
    x = torch.tensor([[0.5]])
    expected = Normal(0.0, 1.0).log_prob(x[0, 0]) + 8 * Normal(0.5, 1.0).log_prob(torch.tensor(0.0))
    got = target.log_joint(torch.zeros(1, 1, dtype=torch.long), x)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got[0], expected)
    double = trj.Target([model], dtype=DOUBLE)  # what was recorded is in another precision
    got = double.log_joint(torch.zeros(1, 1, dtype=torch.long), x.double())
    torch.testing.assert_close(got[0], expected.double(), rtol=1e-6, atol=1e-6)


@pytest.fixture(scope="module")
def model():
    return trj.from_pyro("schools", schools, EFFECTS, rename={"mu": "mean"})


def test_names_axes_and_pilot_draws(model):
    assert list(model.priors) == ["mean", "tau", "theta"]
    assert model.dims == {"theta": ("school",)}
    found = model.pilot(4, seed=1, warmup=4)["schools"]
    assert {k: v.shape for k, v in found.items()} == {"mean": (4,), "tau": (4,), "theta": (4, 8)}


def test_pilot_draws_are_posterior_draws_that_repeat():
    model = trj.from_pyro("m", whole_plate, torch.full((8,), 0.9))
    x = model.pilot(150, seed=1, warmup=40)["m"]["x"]
    mean, sd = 0.8, 1 / 3  # and a third as many independent ones, at least
    assert abs(x.mean() - mean) < 5 * sd / math.sqrt(150 / 3)
    few = [model.pilot(5, seed=1, warmup=5)["m"]["x"] for _ in range(2)]
    assert np.array_equal(*few)


class Fake:
    """Draws of a run."""

    def draws(self, label):
        n = 4000
        return {
            "mean": np.full(n, 3.0),
            "tau": np.ones(n),
            "theta": np.tile(np.arange(8.0), (n, 1)),
        }


def test_predictions_observe_nothing(model):
    whole = model.predict(Fake(), draws=400, seed=1).posterior_predictive["y"]
    assert whole.dims == ("chain", "draw", "school") and whole.shape == (1, 400, 8)
    found = whole.values[0]
    error = ERRORS.numpy() / math.sqrt(400)
    assert (np.abs(found.mean(0) - np.arange(8.0)) < 5 * error).all()
    assert (np.abs(found.std(0) / ERRORS.numpy() - 1) < 5 / math.sqrt(800)).all()
    few = model.predict(Fake(), draws=5, kwargs={}, args=(None,))
    assert few.posterior_predictive["y"].shape == (1, 5, 8)


def test_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyro", None)
    with pytest.raises(ConfigurationError, match=r"trjmcmc\[pyro\]"):
        trj.from_pyro("m", schools, EFFECTS)
