"""Priors of fields and of SciPy: densities, quantiles, supports, and whole targets with them."""

import math
import warnings

import numpy as np
import pytest
import scipy.stats
import torch
from torch.distributions import HalfNormal, Independent, LKJCholesky, Normal, Uniform

import trjmcmc as trj
from trjmcmc import priors
from trjmcmc.errors import TargetError
from trjmcmc.priors.foreign import from_scipy
from trjmcmc.rng import seeded

JEFFREYS = 1 / math.log(1 + 999.0)

# ours, and its density and distribution function in SciPy or by hand
EXACT = {
    "log-uniform": (priors.LogUniform(1.25, 1e4), scipy.stats.loguniform(1.25, 1e4)),
    "normal, both ends": (
        priors.TruncatedNormal(1.0, 2.0, -0.5, 4.0),
        scipy.stats.truncnorm(-0.75, 1.5, 1.0, 2.0),
    ),
    "normal, upper tail": (
        priors.TruncatedNormal(0.0, 1.0, low=6.0),
        scipy.stats.truncnorm(6.0, np.inf),
    ),
    "normal, lower tail": (
        priors.TruncatedNormal(3.0, 0.5, high=-1.0),
        scipy.stats.truncnorm(-np.inf, -8.0, 3.0, 0.5),
    ),
    "Rayleigh": (priors.Rayleigh(0.2), scipy.stats.rayleigh(scale=0.2)),
    "Kipping": (priors.kipping_beta(), scipy.stats.beta(0.867, 3.03)),
}

BY_HAND = {
    "modified Jeffreys": (
        priors.ModifiedJeffreys(1.0, 999.0),
        lambda x: JEFFREYS / (x + 1),
        lambda x: JEFFREYS * np.log1p(x),
    ),
    "Rayleigh, cut": (
        priors.Rayleigh(0.2, high=1.0),
        lambda x: scipy.stats.rayleigh.pdf(x, 0, 0.2) / scipy.stats.rayleigh.cdf(1, 0, 0.2),
        lambda x: scipy.stats.rayleigh.cdf(x, 0, 0.2) / scipy.stats.rayleigh.cdf(1, 0, 0.2),
    ),
    "half-Student": (
        priors.HalfStudent(4.0, 1.5),
        lambda x: 2 * scipy.stats.t.pdf(x, 4.0, 0.0, 1.5),
        lambda x: 2 * scipy.stats.t.cdf(x, 4.0, 0.0, 1.5) - 1,
    ),
    "polar angle": (priors.PolarAngle(), lambda x: np.sin(x) / 2, lambda x: (1 - np.cos(x)) / 2),
    "latitude": (priors.Latitude(), lambda x: np.cos(x) / 2, lambda x: (1 + np.sin(x)) / 2),
}

ALL = {name: (ours, s.pdf, s.cdf) for name, (ours, s) in EXACT.items()} | BY_HAND


class ByMean(scipy.stats.rv_continuous):
    """An exponential distribution by its mean."""

    def _pdf(self, x, mean):
        return np.exp(-x / mean) / mean

    def _ppf(self, q, mean):
        return -mean * np.log1p(-q)


FROZEN = {
    "norm": scipy.stats.norm(1.0, 2.0),
    "uniform": scipy.stats.uniform(-1.0, 3.0),
    "cauchy": scipy.stats.cauchy(0.5, 2.0),
    "laplace": scipy.stats.laplace(0.5, 2.0),
    "t": scipy.stats.t(3.0, 1.0, 0.5),
    "truncnorm": scipy.stats.truncnorm(-1.0, 2.0, 0.5, 0.7),
    "beta": scipy.stats.beta(2.0, 3.0),
    "beta, moved": scipy.stats.beta(2.0, 3.0, 1.0, 4.0),
    "loguniform": scipy.stats.loguniform(0.1, 10.0),
    "expon": scipy.stats.expon(scale=2.0),
    "expon, moved": scipy.stats.expon(3.0, 2.0),
    "gamma": scipy.stats.gamma(2.0, scale=0.5),
    "halfnorm": scipy.stats.halfnorm(scale=2.0),
    "halfcauchy": scipy.stats.halfcauchy(scale=2.0),
    "rayleigh": scipy.stats.rayleigh(scale=2.0),
    "lognorm": scipy.stats.lognorm(0.5, scale=2.0),
    "weibull_min": scipy.stats.weibull_min(1.5, scale=2.0),
    "gumbel_r": scipy.stats.gumbel_r(1.0, 2.0),
    "invgamma": scipy.stats.invgamma(3.0, scale=2.0),
    "triang": scipy.stats.triang(0.3, -1.0, 4.0),
    "gumbel_l, a mirror": scipy.stats.weibull_max(1.5, 2.0),
    "vonmises": scipy.stats.vonmises(2.0),
    "one of the user's by the name of another": ByMean(a=0.0, name="lognorm")(2.0),
}


def sampled(dist, n=20_000):
    with seeded(3, torch.device("cpu")):
        return dist.sample((n,)).double().numpy()


@pytest.mark.parametrize("name", ALL)
def test_densities_and_draws_are_those_of_the_distribution(name):
    dist, pdf, cdf = ALL[name]
    x = sampled(dist)
    assert np.isfinite(x).all() and bool(dist.support.check(torch.as_tensor(x).float()).all())
    assert scipy.stats.kstest(x, cdf).pvalue > 1e-5
    some = torch.as_tensor(x[:200])
    assert dist.log_prob(some).exp().numpy() == pytest.approx(pdf(x[:200]), rel=2e-4)
    assert scipy.stats.kstest(0.5 * x, cdf).pvalue < 1e-5  # the control


@pytest.mark.parametrize("name", ALL)
def test_they_expand_and_take_the_precision_of_the_target(name):
    dist = ALL[name][0]
    many = dist.expand((3,))
    assert many.batch_shape == (3,) and sampled(many, 5).shape == (5, 3)
    x = sampled(dist, 30)
    there = many.log_prob(torch.as_tensor(x).float()[:, None].expand(-1, 3))
    here = dist.log_prob(torch.as_tensor(x).float())
    assert torch.allclose(there, here[:, None].expand(-1, 3))
    for dtype in (torch.float32, torch.float64):
        target = trj.Target([trj.Model("m", {"x": dist}, lambda p: 0 * p["x"])], dtype=dtype)
        theta = target.sample_prior(torch.zeros(400, 1).long(), torch.Generator().manual_seed(1))
        value = target.constrain(torch.zeros(1).long(), theta)["x"]
        assert value.dtype == dtype
        again = target.unconstrain("m", {"x": value})
        assert torch.allclose(again, theta, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("name", FROZEN)
def test_frozen_distributions_of_scipy_are_priors(name):
    frozen = FROZEN[name]
    dist = from_scipy(frozen)
    x = frozen.rvs(300, random_state=1)
    value = torch.tensor(x, requires_grad=True)
    log_p = dist.log_prob(value)
    assert log_p.detach().numpy() == pytest.approx(frozen.logpdf(x), abs=1e-5)
    (slope,) = torch.autograd.grad(log_p.sum() + 0 * value.sum(), value)
    h = 1e-6
    expected = (frozen.logpdf(x + h) - frozen.logpdf(x - h)) / (2 * h)
    near = np.isfinite(expected) & (abs(expected) < 1e3)
    assert slope.numpy()[near] == pytest.approx(expected[near], rel=2e-2, abs=2e-2)
    assert scipy.stats.kstest(sampled(dist), frozen.cdf).pvalue > 1e-5
    target = trj.Target([trj.Model("m", {"x": frozen}, lambda p: 0 * p["x"])])
    code = torch.zeros(4000, 1).long()
    theta = target.sample_prior(code, torch.Generator().manual_seed(2))
    drawn = target.constrain(code[0], theta)["x"].double().numpy()
    assert scipy.stats.kstest(drawn, frozen.cdf).pvalue > 1e-5


def test_angles_of_scipy_lie_on_one_circle():
    """SciPy's density of them goes on over the whole line, where its integral is infinite."""
    frozen = scipy.stats.vonmises(2.0, 1.0)
    target = trj.Target([trj.Model("m", {"x": frozen}, lambda p: 0 * p["x"])], dtype=torch.float64)
    walked = torch.linspace(-60.0, 60.0, 20_001, dtype=torch.float64)[:, None]
    density = target.log_joint(torch.zeros(len(walked), 1).long(), walked).exp()
    assert float(torch.trapezoid(density, walked[:, 0])) == pytest.approx(1.0, abs=1e-6)
    assert target.turns
    x = sampled(from_scipy(frozen))
    turned = np.mod(x - 1.0 + np.pi, 2 * np.pi) + 1.0 - np.pi
    assert scipy.stats.kstest(turned, frozen.cdf).pvalue > 1e-5
    assert scipy.stats.kstest(turned + 0.1, frozen.cdf).pvalue < 1e-5  # the control


def test_vectors_of_scipy_are_priors_and_other_things_are_refused():
    both = {
        "x": scipy.stats.multivariate_normal([0.0, 1.0], [[2.0, 0.5], [0.5, 1.0]]),
        "share": scipy.stats.dirichlet([1.0, 2.0, 3.0]),
    }
    target = trj.Target([trj.Model("m", both, lambda p: 0 * p["x"][:, 0])])
    assert target.dim == 4
    for wrong in (
        scipy.stats.poisson(3.0),
        scipy.stats.wishart(3, np.eye(2)),
        scipy.stats.multinomial(3, [0.5, 0.5]),
        scipy.stats.rv_histogram(np.histogram([0.0, 1.0, 3.0])),
    ):
        with pytest.raises(TargetError, match=r"scipy\.stats: expected a frozen continuous"):
            trj.Target([trj.Model("m", {"x": wrong}, lambda p: 0 * p["x"])])
    with pytest.raises(TargetError, match=r"scale=1, an angle in radians"):
        from_scipy(scipy.stats.vonmises(2.0, scale=2.0))
    with pytest.raises(TargetError, match=r"a frozen one of scipy\.stats"):
        trj.Target([trj.Model("m", {"x": 3.0}, lambda p: 0 * p["x"])])


@pytest.mark.parametrize(
    "make",
    [
        lambda: priors.LogUniform(0.0, 1.0),
        lambda: priors.LogUniform(2.0, 1.0),
        lambda: priors.ModifiedJeffreys(0.0, 1.0),
        lambda: priors.TruncatedNormal(0.0, 1.0, 2.0, 1.0),
        lambda: priors.TruncatedNormal(0.0, -1.0),
        lambda: priors.Rayleigh(0.2, high=0.0),
    ],
)
def test_settings_out_of_range_are_refused(make):
    with pytest.raises(TargetError, match="expected"):
        make()


def test_a_prior_may_depend_on_others_and_belong_to_items():
    def later(p):
        return scipy.stats.norm(p["scale"].numpy(), 1.0)

    target = trj.Target(
        [
            trj.Model(
                "m",
                {"scale": HalfNormal(1.0), "x": lambda p: priors.Rayleigh(p["scale"], high=9.0)},
                lambda p: 0 * p["x"],
            ),
            trj.Model("n", {"scale": HalfNormal(1.0), "x": later}, lambda p: 0 * p["x"]),
        ]
    )
    generator = torch.Generator().manual_seed(0)
    theta = target.sample_prior(torch.tensor([[0], [1]]), generator)
    assert bool(target.log_joint(torch.tensor([[0], [1]]), theta).isfinite().all())
    counts = trj.Target(
        trj.Counts(3, of=("period", "phase")),
        {"period": scipy.stats.loguniform(1.0, 100.0), "phase": Uniform(0.0, 2 * math.pi)},
        lambda p, active: torch.where(active, p["phase"], 0.0).sum(-1),
    )
    code = counts.space.sample_prior(50, generator)
    assert bool(counts.log_joint(code, counts.sample_prior(code, generator)).isfinite().all())


def test_far_tails_of_a_cut_normal_are_exact():
    """Forty standard deviations out SciPy and torch alone are left with nothing."""
    dist = priors.TruncatedNormal(*(torch.tensor(x).double() for x in (0.0, 1.0, 40.0, math.inf)))
    x = sampled(dist)
    assert (
        scipy.stats.kstest((x - 40) * 40, lambda u: -np.expm1(-u - (u / 40) ** 2 / 2)).pvalue > 1e-5
    )
    log_p = dist.log_prob(torch.tensor(40.0).double())
    assert float(log_p) == pytest.approx(math.log(40.025), abs=1e-3)


@pytest.mark.whole
def test_a_run_with_such_priors_is_right():
    """Evidences by quadrature, for a truncated and a log-uniform prior of one mean."""
    data = torch.tensor([1.2, 0.4, 2.1])
    models = {
        "cut": scipy.stats.truncnorm(-1.0, 3.0, 0.5, 1.0),
        "log": priors.LogUniform(0.05, 20.0),
    }

    def log_likelihood(p):
        return Normal(p["x"][:, None], 1.0).log_prob(data.to(p["x"])).sum(-1)

    target = trj.Target([trj.Model(m, {"x": d}, log_likelihood) for m, d in models.items()])
    exact = {}
    for m, cdf in (("cut", models["cut"]), ("log", scipy.stats.loguniform(0.05, 20.0))):
        x = cdf.ppf((np.arange(20_000) + 0.5) / 20_000)
        log_l = scipy.stats.norm.logpdf(data.numpy()[:, None], x).sum(0)
        exact[m] = float(np.exp(log_l).mean())
    truth = exact["cut"] / sum(exact.values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trj.errors.ConvergenceWarning)
        result = trj.TRJSampler(target, seed=1).run(
            draws=200, chains=128, fit=False, warmup=100, progress=False
        )
    row = result.model_probabilities(full=True).loc["cut"]
    assert abs(row["visits"] - truth) < 4.5 * row["visits_se"]


@pytest.mark.parametrize("wrapped", [False, True])
def test_draws_of_correlations_have_the_density_of_lkj(wrapped):
    """Each has variance 1 / (2 eta + d - 1); torch's own draws have it in the first row alone."""
    prior = LKJCholesky(4, torch.tensor([2.0, 2.0], dtype=torch.float64))
    stated = Independent(prior, 1) if wrapped else prior
    target = trj.Target([trj.Model("m", {"l": stated}, lambda p: 0 * p["l"].sum((-1, -2, -3)))])
    code = torch.zeros(20_000, 1, dtype=torch.long)
    theta = target.sample_prior(code, torch.Generator().manual_seed(1))
    with seeded(0):
        raw = prior.sample((20_000,))
    for tril, right in ((target.constrain(code[0], theta)["l"], True), (raw, False)):
        row, column = torch.tril_indices(4, 4, -1)
        x = (tril @ tril.mT)[..., row, column].double().square().flatten(1)
        gap = (x.mean(0) - 1 / 7).abs() / (x.std(0) / math.sqrt(20_000))
        assert bool((gap < 4.5).all()) is right


def test_a_horseshoe_is_normal_given_its_scales():
    model = trj.Model("h", priors.horseshoe("beta", 3, scale=0.1), lambda p: 0.0 * p["beta_global"])
    target = trj.Target([model], dtype=torch.float64)
    values = {
        "beta_global": torch.tensor([0.2, 1.5]),
        "beta_local": torch.tensor([[1.0, 0.3, 4.0], [0.5, 2.0, 1.0]]),
        "beta": torch.tensor([[0.1, -0.2, 3.0], [0.0, 1.0, -2.0]]),
    }
    values = {name: x.double() for name, x in values.items()}
    theta = target.unconstrain("h", values)
    tau, local, beta = (x.numpy() for x in values.values())
    exact = scipy.stats.halfcauchy.logpdf(tau, 0, 0.1) + np.log(tau)  # of the logarithm
    exact = exact + (scipy.stats.halfcauchy.logpdf(local) + np.log(local)).sum(1)
    exact = exact + scipy.stats.norm.logpdf(beta, 0, tau[:, None] * local).sum(1)
    got = target.log_joint(torch.zeros(2, 1, dtype=torch.long), theta)
    assert np.allclose(got.numpy(), exact, atol=1e-8)
