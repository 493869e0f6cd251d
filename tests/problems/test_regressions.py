"""Regressions of one model, and the conjugate toys."""

import json
import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from solved import (
    LinearPosterior,
    linear_regression,
    logistic_regression,
    normal_unknown_variance,
)
from torch.distributions import Bernoulli, Normal

from tests.places import SHARED, shared_only
from trjmcmc.errors import ConfigurationError, ShapeError, TargetError
from trjmcmc.problems import beta_bernoulli, log_evidence

LIMIT = 5.0  # standard errors

HEIGHTS = [0.3, 1.1, -0.4, 2.9, 0.7]

CELLS = [f"n{n}_p{p}" for p in (2, 20, 50, 100) for n in (50, 100, 200)]


def data(cell, kind="lin"):
    found = np.load(SHARED / "data" / "regressions" / f"{kind}_{cell}.npz")
    return {name: torch.tensor(found[name]).double() for name in found}


def reference():
    return json.loads((SHARED / "gold" / "variational.json").read_text())


@shared_only
@pytest.mark.parametrize("cell", CELLS)
def test_linear_regression_against_the_shared_reference_answers(cell):
    d, expected = data(cell), reference()["linear"]["cells"][cell]
    posterior = linear_regression(d["X"], d["y"]).posterior

    def rmse(mean):
        return float((d["y_test"] - d["X_test"] @ mean).square().mean().sqrt())

    assert posterior.log_evidence == pytest.approx(expected["log_evidence"], rel=1e-9)
    assert posterior.mean.tolist() == pytest.approx(expected["mean"], abs=6e-7)
    assert posterior.sd.tolist() == pytest.approx(expected["sd"], abs=6e-7)
    assert float(posterior.sd.mean()) == pytest.approx(expected["sd_average"], rel=1e-8)
    assert posterior.mean_sigma2 == pytest.approx(expected["mean_sigma2"], rel=1e-8)
    assert rmse(posterior.mean) == pytest.approx(expected["rmse"], rel=1e-8)
    q, expected = posterior.mean_field, expected["mean_field"]
    assert rmse(q.mean) == pytest.approx(expected["rmse"], rel=1e-8)
    assert float(q.sd.mean()) == pytest.approx(expected["sd_average"], rel=1e-8)
    assert q.rate / q.shape == pytest.approx(expected["inverse_mean_precision"], rel=1e-8)
    assert q.elbo < posterior.log_evidence


SMALL = {
    "chance": lambda: beta_bernoulli(3, 9, 0.7, 2.0),
    "normal": lambda: normal_unknown_variance(HEIGHTS, 2.0, 1.5, 0.8),
    "regression": lambda: linear_regression(n=12, rho=0.8, tau2=0.5, shape=2.0),
    "known variance": lambda: linear_regression(n=12, rho=-0.9, sigma=0.7),
    "collinear": lambda: linear_regression([[1, 2], [2, 4], [-1, -2]], [1, 3, 0]),
    "more columns than rows": lambda: linear_regression([[1.0, 0.5, -2.0]], [1.5]),
    "logistic": lambda: logistic_regression(n=12, prior_sd=1.5),
}


@pytest.mark.parametrize("name", SMALL)
def test_evidences_by_quadrature_of_the_target_itself(name, generator):
    """Likelihood, priors and Jacobian, on the coordinates that samplers see."""
    target = SMALL[name]().to(dtype=torch.float64)
    starts = torch.randn(4, target.dim, generator=generator).double()

    def log_density(theta):
        return target.log_joint(torch.zeros(len(theta), 1, dtype=torch.long), theta)

    (known,) = target.truth.log_evidence.values()
    assert log_evidence(log_density, starts, step=0.5) == pytest.approx(known, abs=1e-5)


def test_posterior_of_one_coefficient_by_a_lattice_in_the_plane():
    x, y = np.array([1.0, 1.0, -1.0, 0.5, 2.0]), np.array([2.0, 3.0, -1.0, 0.0, 4.0])
    b, u = np.meshgrid(np.linspace(-9, 12, 801), np.linspace(-4, 14, 801))
    variance = np.exp(u)
    density = stats.norm.pdf(b, 0, 1.5) * stats.invgamma.pdf(variance, 2.5, scale=1.25) * variance
    for column, response in zip(x, y, strict=True):
        density *= stats.norm.pdf(response, column * b, np.sqrt(variance))
    z = density.sum() * 21 / 800 * 18 / 800
    posterior = LinearPosterior(x[:, None], y, tau2=1.5**2, shape=2.5)
    assert posterior.log_evidence == pytest.approx(math.log(z), abs=1e-8)
    density /= density.sum()
    for value, mean, sd in (
        (b, posterior.mean.item(), posterior.sd.item()),
        (variance, posterior.mean_sigma2, posterior.sd_sigma2),
    ):
        first = (density * value).sum()
        assert mean == pytest.approx(first, rel=1e-6)
        assert sd == pytest.approx(math.sqrt((density * (value - first) ** 2).sum()), rel=1e-5)


def correlated(**settings):
    return linear_regression(n=30, rho=0.9, seed=3, **settings).posterior


def wide():
    rng = np.random.default_rng(5)
    return LinearPosterior(rng.standard_normal((4, 6)), rng.standard_normal(4), tau2=0.5)


def gaps(posterior, beta, sigma2, block):
    """Largest distance of means, products and shares below quantiles, in standard errors.

    Errors are those of means of blocks of draws.
    """
    off = beta - posterior.mean
    products = (off[:, :, None] * off[:, None]).flatten(1)
    below = [(beta < posterior.quantile(q)).double() - q for q in (0.05, 0.6)]
    columns = [off, products - posterior.covariance.flatten(), *below]
    if posterior.sigma is None:  # E[1 / sigma2]: sigma2 itself has heavy tails
        u, weight, _ = posterior._lattice
        columns.append((1 / sigma2 - weight @ (-u).exp())[:, None])
    each = torch.cat(columns, 1)
    means = each.view(-1, block, each.shape[1]).mean(1)
    return (means.mean(0) / (means.std(0) / len(means) ** 0.5)).abs().max().item()


@pytest.mark.parametrize("make", [correlated, lambda: correlated(sigma=0.7), wide])
def test_draws_of_a_linear_regression(make, generator):
    posterior = make()
    beta, sigma2 = posterior.exact_draws(40_000, generator)
    assert gaps(posterior, beta, sigma2, 1) < LIMIT
    wrong = posterior.mean + 1.05 * (beta - posterior.mean)
    assert gaps(posterior, wrong, sigma2, 1) > LIMIT
    chain = posterior.gibbs(40_000, 500)
    assert gaps(posterior, *chain, 400) < LIMIT


def test_a_known_variance_gives_a_normal_posterior():
    x, y = np.random.default_rng(1).standard_normal((20, 3)), np.arange(20.0) / 10
    posterior = LinearPosterior(x, y, tau2=2.0, sigma=0.8)
    precision = torch.tensor(x.T @ x / 0.64 + np.eye(3) / 2)
    assert torch.allclose(posterior.covariance, precision.inverse())
    assert torch.allclose(precision @ posterior.mean, torch.tensor(x.T @ y / 0.64))
    exact = stats.multivariate_normal(np.zeros(20), 0.64 * np.eye(20) + 2 * x @ x.T)
    assert posterior.log_evidence == pytest.approx(exact.logpdf(y), abs=1e-10)
    quantile = posterior.mean + posterior.sd * stats.norm.ppf(0.1)
    assert torch.allclose(posterior.quantile(0.1), quantile)
    assert (posterior.mean_sigma2, posterior.sd_sigma2) == (pytest.approx(0.64), 0.0)


def test_mean_field_of_two_coefficients_loses_the_mutual_information():
    posterior = correlated(sigma=1.0)
    (a, c), (_, b) = posterior.covariance.tolist()
    q, rho2 = posterior.mean_field, c * c / (a * b)
    assert torch.allclose(q.mean, posterior.mean) and (q.shape, q.rate) == (None, None)
    assert posterior.log_evidence - q.elbo == pytest.approx(-0.5 * math.log(1 - rho2), abs=1e-10)
    assert torch.allclose(q.sd, posterior.sd * math.sqrt(1 - rho2))


@pytest.mark.parametrize("make", [correlated, lambda: correlated(sigma=0.7), wide])
def test_the_bound_of_the_mean_field_optimum(make, generator):
    """By draws of q, and no other E[1 / sigma2] has a higher one."""
    posterior = make()
    q = posterior.mean_field
    z = torch.randn(40_000, posterior.p, generator=generator).double()
    beta, sigma2, gain = q.mean + q.sd * z, posterior.sigma, 0.0
    if sigma2 is None:
        gamma = np.random.default_rng(1).standard_gamma(q.shape, 40_000)
        sigma2 = q.rate / torch.tensor(gamma)
        prior = stats.invgamma.logpdf(sigma2, posterior.shape, scale=posterior.rate)
        gain = torch.tensor(prior - stats.invgamma.logpdf(sigma2, q.shape, scale=q.rate))
        for factor in (0.5, 0.9, 1.1, 2.0):
            other = torch.tensor([factor * q.shape / q.rate], dtype=torch.float64)
            assert posterior._factorised(other).elbo < q.elbo
    else:
        sigma2 = torch.full((40_000,), sigma2**2, dtype=torch.float64)
    fitted = beta @ posterior._basis * posterior._singular
    squares = posterior._rest + (posterior._rotated - fitted).square().sum(-1)
    log_likelihood = -0.5 * (posterior.n * (2 * math.pi * sigma2).log() + squares / sigma2)
    prior = Normal(0.0, math.sqrt(posterior.tau2)).log_prob(beta).sum(-1)
    each = log_likelihood + prior + gain - Normal(q.mean, q.sd).log_prob(beta).sum(-1) - q.elbo
    assert abs(each.mean() / (each.std() / 200)) < LIMIT
    assert q.elbo <= posterior.log_evidence + 1e-9


def test_moments_of_variances_with_heavy_tails():
    """A column of zeros leaves an inverse gamma."""
    for n, shape, accuracy in ((2, 1.25, 1e-6), (1, 1.9, 1e-6), (9, 1.25, 1e-9)):
        posterior = LinearPosterior(np.zeros((n, 1)), np.full(n, 2.0), shape=shape)
        exact = stats.invgamma(shape + n / 2, scale=1.25 + 2 * n)
        assert posterior.mean_sigma2 == pytest.approx(exact.mean(), rel=accuracy)
        assert posterior.sd_sigma2 == pytest.approx(exact.std(), rel=accuracy)
    posterior = LinearPosterior([[0.0]], [1.0], shape=1.4)
    assert posterior.mean_sigma2 < math.inf == posterior.sd_sigma2
    posterior = LinearPosterior([[0.0]], [1.0], shape=0.4)
    assert posterior.mean_sigma2 == math.inf and math.isnan(posterior.sd_sigma2)


def test_one_wide_scan_finds_narrow_posteriors():
    """A million rows, and data of another unit."""
    y = np.random.default_rng(0).standard_normal(1_000_000)
    target = normal_unknown_variance(y)
    n, squares = len(y), float((y**2).sum())
    assert target.posterior.sd_sigma2 == pytest.approx(math.sqrt(2 / n), rel=0.01)
    assert target.posterior.mean_sigma2 == pytest.approx(squares / n, rel=1e-5)
    small = LinearPosterior([[1.0], [2.0], [4.0]], [1.0, 1.0, 5.0])
    large = LinearPosterior([[1.0], [2.0], [4.0]], [1e6, 1e6, 5e6], tau2=1e12, rate=1.25e12)
    assert large.log_evidence == pytest.approx(small.log_evidence - 3 * math.log(1e6), abs=1e-8)
    assert large.mean_field.elbo == pytest.approx(
        small.mean_field.elbo - 3 * math.log(1e6), abs=1e-8
    )


def test_simulated_regressions():
    target = linear_regression(n=4000, p=20, rho=0.4, sigma=2.0, seed=1)
    on = target.beta_true != 0
    assert int(on.sum()) == 4 and 0.5 <= target.beta_true[on].min() <= target.beta_true.max() <= 2
    expected = 0.6 * torch.eye(20) + 0.4
    assert torch.allclose(torch.cov(target.x.T), expected.double(), atol=0.12)
    noise = target.y - target.x @ target.beta_true
    assert abs(float(noise.std()) - 2) < 0.12
    z = (target.posterior.mean - target.beta_true) / target.posterior.sd
    assert z.abs().max() < LIMIT
    assert not torch.equal(target.y, linear_regression(n=4000, p=20, rho=0.4, seed=2).y)
    opposed = linear_regression(n=4000, rho=-0.6, beta=[1.0, -1.0])
    assert float(torch.corrcoef(opposed.x.T)[0, 1]) == pytest.approx(-0.6, abs=0.06)
    assert opposed.beta_true.tolist() == [1.0, -1.0]
    chances = logistic_regression(n=4000, p=2, seed=4)
    p = (chances.x @ chances.beta_true).sigmoid()
    assert abs(float((chances.y - p).sum() / (p * (1 - p)).sum().sqrt())) < LIMIT


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_regression_likelihoods_against_torch_distributions(dtype, generator):
    linear, logistic = linear_regression(p=5, n=30), logistic_regression(p=5, n=30)
    code = torch.zeros(20, 1, dtype=torch.long)
    theta = torch.randn(20, 6, generator=generator).to(dtype)
    tolerance = {"rtol": 1e-5, "atol": 1e-3 if dtype == torch.float32 else 1e-9}
    beta, sigma2 = theta[:, :5].double(), theta[:, 5].double().exp()
    _, value = linear.to(dtype=dtype).log_prior_and_likelihood(code, theta)
    fitted = Normal(beta @ linear.x.T, sigma2.sqrt()[:, None])
    torch.testing.assert_close(value.double(), fitted.log_prob(linear.y).sum(-1), **tolerance)
    known = linear_regression(linear.x, linear.y, sigma=0.7).to(dtype=dtype)
    _, value = known.log_prior_and_likelihood(code, theta[:, :5])
    fitted = Normal(beta @ linear.x.T, 0.7)
    assert value.dtype == dtype
    torch.testing.assert_close(value.double(), fitted.log_prob(linear.y).sum(-1), **tolerance)
    _, value = logistic.to(dtype=dtype).log_prior_and_likelihood(code, theta[:, :5])
    chance = Bernoulli(logits=beta @ logistic.x.T)
    torch.testing.assert_close(value.double(), chance.log_prob(logistic.y).sum(-1), **tolerance)


@shared_only
@pytest.mark.parametrize("cell", ["n50_p2", "n100_p2", "n200_p2"])
def test_logistic_regression_against_the_shared_reference_answers(cell):
    """Average standard deviations, which come from HMC to about 1 %, by a lattice."""
    d = data(cell, "log")
    target = logistic_regression(d["X"], d["y"]).to(dtype=torch.float64)
    theta = torch.cartesian_prod(*2 * [torch.linspace(-4, 6, 401).double()])
    code = torch.zeros(len(theta), 1, dtype=torch.long)
    weight = target.log_joint(code, theta).softmax(0)
    sd = (weight @ theta.square() - (weight @ theta).square()).sqrt()
    expected = reference()["logistic"]["sd_average"][cell]
    assert float(sd.mean()) == pytest.approx(expected, rel=0.03)


def test_the_truth_of_a_logistic_regression_stops_at_four_columns():
    assert logistic_regression(p=5).truth is None
    (value,) = logistic_regression([[0.0]], [1]).truth.log_evidence.values()
    assert value == pytest.approx(math.log(0.5), abs=1e-6)


def test_conjugate_toys():
    target = beta_bernoulli(19, 21)
    assert target.log_evidence == pytest.approx(-29.3142, abs=5e-5)
    assert (target.posterior.concentration1, target.posterior.concentration0) == (20, 22)
    expected = integrate.quad(lambda w: w**3 * stats.beta.pdf(w, 1.7, 2.5), 0, 1)[0]
    assert beta_bernoulli(3, 0, 1.7, 2.5).log_evidence == pytest.approx(math.log(expected))
    target = normal_unknown_variance(HEIGHTS)
    regression = linear_regression(np.ones((5, 1)), HEIGHTS).posterior
    assert target.log_evidence == regression.log_evidence
    assert target.posterior.mean.shape == (1,)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: linear_regression(n=0), TargetError, "p >= 1, n >= 1 and .*, got 2, 0, 0.0"),
        (lambda: linear_regression(p=3, rho=-0.6), TargetError, "got 3, 80, -0.6"),
        (lambda: linear_regression(beta=[1.0]), TargetError, r"p = 2 coefficients, got .*\(1,\)"),
        (lambda: linear_regression(sigma=0.0), TargetError, "sigma: expected .* above 0, got 0.0"),
        (lambda: linear_regression(tau2=-1.0), TargetError, "tau2: expected a number above 0"),
        (lambda: linear_regression(rate=math.inf), TargetError, "rate: .* got inf"),
        (lambda: linear_regression(np.eye(2)), TargetError, "give both, or neither"),
        (lambda: linear_regression(np.eye(2), [1]), ShapeError, r"got \(2, 2\) and \(1,\)"),
        (lambda: correlated().quantile(1.0), TargetError, "between 0 and 1, got 1.0"),
        (lambda: correlated().gibbs(0), ConfigurationError, "at least 1 and 0, got 0 and 1000"),
        (lambda: logistic_regression(np.eye(2), [0, 2]), TargetError, "ones, got 2.0 among"),
        (lambda: logistic_regression(prior_sd=0), TargetError, "prior_sd: .* above 0, got 0"),
        (lambda: beta_bernoulli(-1, 2), TargetError, "0 or more, got -1 and 2"),
        (lambda: beta_bernoulli(a=0), TargetError, "a: expected a number above 0, got 0"),
        (lambda: normal_unknown_variance([]), ShapeError, "at least one row"),
        (lambda: normal_unknown_variance([1, math.nan]), TargetError, "y: 1 of 2 numbers are NaN"),
    ],
)
def test_regressions_say_what_is_wrong(make, error, message):
    with pytest.raises(error, match=message):
        make()
