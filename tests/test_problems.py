import csv
import json
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch.distributions import Gamma, Normal

import trjmcmc as trj
from trjmcmc import kernel
from trjmcmc.errors import ShapeError, TargetError
from trjmcmc.problems import log_evidence
from trjmcmc.problems.coal_mining import DAYS, LENGTH, _log_evidence, _StepRate
from trjmcmc.problems.variable_selection import _simulated

SHARED = Path(__file__).parents[2] / "shared"
shared_only = pytest.mark.skipif(not SHARED.is_dir(), reason="reference answers are not here")


def test_quadrature_on_a_skewed_bimodal_density():
    def log_density(x):
        left = Normal(-2.0, 0.5).log_prob(x[:, 0]) + math.log(0.3)
        right = Normal(2.0, 1.0).log_prob(x[:, 0]) + math.log(0.7)
        return torch.logaddexp(left, right) + Normal(x[:, 0], 0.2).log_prob(x[:, 1]) + 3.5

    starts = torch.tensor([[-2.0, -2.0], [2.0, 2.0]])
    assert log_evidence(log_density, starts, step=0.5) == pytest.approx(3.5, abs=1e-5)


def test_coal_mining_days():
    assert len(DAYS) == 191
    assert list(DAYS) == sorted(DAYS)
    assert (DAYS[0], DAYS[-1], sum(DAYS)) == (73, 40622, 2_653_407)


def test_coal_mining_truth_against_direct_integration():
    """k = 0 in closed form, k = 1 by adaptive quadrature between events."""
    target = trj.problems.coal_mining(0, 2)
    n = len(DAYS)
    closed = math.log(200) + math.lgamma(n + 1) - (n + 1) * math.log(200 + LENGTH)
    assert target.truth.log_evidence["k=0"] == pytest.approx(closed, abs=1e-9)

    def log_g(length, m):
        return math.log(200) + math.lgamma(m + 1) - (m + 1) * math.log(200 + length)

    def integrand(s):
        m = np.searchsorted(DAYS, s, side="right")
        spacing = s / LENGTH * (LENGTH - s) / LENGTH
        return 6 * spacing / LENGTH * math.exp(log_g(s, m) + log_g(LENGTH - s, n - m) + 1188)

    edges = np.unique([0.0, *DAYS, LENGTH])
    pieces = [integrate.quad(integrand, a, b)[0] for a, b in pairwise(edges)]
    assert target.truth.log_evidence["k=1"] == pytest.approx(math.log(sum(pieces)) - 1188, abs=1e-6)


def test_coal_mining_truth_does_not_depend_on_the_number_of_nodes():
    assert np.allclose(_log_evidence(6), _log_evidence(6, 9, 200.0), atol=1e-7)


def test_coal_mining_probabilities_are_the_published_ones():
    found = trj.problems.coal_mining().truth.probabilities
    expected = [0.0578, 0.2501, 0.2958, 0.2335, 0.1179, 0.0449]
    assert np.allclose(list(found.values()), expected, atol=6e-5)


def test_the_step_rate_likelihood_by_hand():
    exact, smooth = _StepRate(smooth=False), _StepRate(smooth=True)
    spacing = torch.tensor([[0.25, 0.75]], dtype=torch.float64)
    height = torch.tensor([[0.01, 0.002]], dtype=torch.float64)
    m = int(np.searchsorted(DAYS, 0.25 * LENGTH, side="right"))
    expected = (
        m * math.log(0.01) + (191 - m) * math.log(0.002) - LENGTH * (0.25 * 0.01 + 0.75 * 0.002)
    )
    params = {"spacing": spacing, "height": height}
    assert float(exact(params)) == pytest.approx(expected, abs=1e-9)
    assert abs(float(smooth(params)) - expected) < 1.0 * math.log(5)
    alone = exact({"height": torch.tensor([[0.005]])})
    assert float(alone) == pytest.approx(191 * math.log(0.005) - 0.005 * LENGTH, abs=1e-3)


def test_heights_integrate_to_the_collapsed_evidence():
    """The likelihood times the height priors, integrated on a grid, against the closed form."""
    spacing = torch.tensor([0.35, 0.65], dtype=torch.float64)
    m = int(np.searchsorted(DAYS, 0.35 * LENGTH, side="right"))
    exact = sum(
        math.log(200) + math.lgamma(n + 1) - (n + 1) * math.log(200 + share * LENGTH)
        for share, n in ((0.35, m), (0.65, 191 - m))
    )
    one = torch.linspace(1e-5, 0.02, 1200, dtype=torch.float64)
    height = torch.cartesian_prod(one, one)
    likelihood = _StepRate(smooth=False)(
        {"spacing": spacing.expand(len(height), 2), "height": height}
    )
    log_terms = likelihood + Gamma(1.0, 200.0).log_prob(height).sum(-1)
    total = float(log_terms.logsumexp(0) + 2 * (one[1] - one[0]).log())
    assert total == pytest.approx(exact, abs=1e-4)


def test_robust_regression_truth_by_nested_quadrature():
    """The two-coefficient model again, by SciPy's adaptive rule along lines."""
    target = trj.problems.robust_regression()
    x, y = target.x.numpy(), target.y.numpy()

    def integrand(b, a):
        r = y - a * x[:, 0] - b * x[:, 1]
        terms = np.logaddexp(stats.norm.logpdf(r), stats.norm.logpdf(r, scale=10)) - math.log(2)
        return math.exp(terms.sum() + stats.norm.logpdf([a, b], scale=10).sum() + 255)

    value, _ = integrate.dblquad(integrand, -2.5, 2.5, -4, 4, epsabs=1e-7, epsrel=1e-5)
    expected = target.truth.log_evidence["x1+x2"]
    assert math.log(value) - 255 == pytest.approx(expected, abs=1e-3)


def test_simulated_data_come_from_the_seed():
    a, b, c = (trj.problems.robust_regression(seed=s) for s in (3, 3, 4))
    assert torch.equal(a.x, b.x)
    assert torch.equal(a.y, b.y)
    assert not torch.equal(a.y, c.y)


@shared_only
def test_against_the_shared_reference_answers():
    gold = json.loads((SHARED / "gold" / "coal.json").read_text())["values"]["n191"]
    coal = trj.problems.coal_mining(0, 10).truth
    assert np.allclose(list(coal.log_evidence.values()), gold["logZ_k"][:11], atol=1e-6)
    assert np.allclose(list(coal.probabilities.values()), gold["p_k_kmax10"], atol=1e-7)
    with (SHARED / "data" / "six_dim_rr.csv").open() as file:
        rows = list(csv.reader(file))[1:]
    data = np.array([[float(v) for v in row[1:]] for row in rows])
    robust = trj.problems.robust_regression(data[:, 1:5], data[:, 0]).truth
    gold = json.loads((SHARED / "gold" / "robust_regression_4.json").read_text())
    assert np.allclose(
        list(robust.log_evidence.values()),
        list(gold["log_evidence_normalised"].values()),
        atol=2e-5,
    )


def test_factor_likelihood_against_the_normal_density(generator):
    single = trj.problems.factor_analysis(factors=(1, 2, 3), seed=5)
    target, y = single.to(dtype=torch.float64), single.y
    assert y.shape == (143, 6) and torch.allclose(y.std(0), torch.ones(6).double())
    for m, label in enumerate(["1 factor", "2 factors", "3 factors"]):
        code = torch.full((20, 1), m)
        theta = torch.randn(20, target.dim, generator=generator, dtype=torch.float64)
        theta = torch.where(target.space.active(code), theta, 0.0)
        params = target.constrain(code[0], theta)
        b = trj.problems.loading_matrix(params, 6)
        assert b.shape == (20, 6, m + 1)
        assert torch.equal(b.tril(), b)
        covariance = b @ b.mT + torch.diag_embed(params["uniqueness"])
        normal = torch.distributions.MultivariateNormal(torch.zeros(6).double(), covariance)
        expected = normal.log_prob(y[:, None]).sum(0)
        _, got = target.log_prior_and_likelihood(code, theta)
        assert torch.allclose(got, expected, atol=1e-8), label
    # 6 (k + 1) - k (k - 1) / 2 parameters
    sizes = target.space.active(target.space.enumerate()).sum(-1).tolist()
    assert sizes == [12, 17, 21]


def test_factor_priors_are_those_of_the_model():
    target = trj.problems.factor_analysis(factors=(2,)).to(dtype=torch.float64)
    params = {
        "diagonal": [[0.7, 0.2]],
        "loading": [[0.1 * i for i in range(9)]],
        "uniqueness": [[0.3, 0.1, 0.5, 0.05, 0.2, 0.25]],
    }
    theta = target.unconstrain("2 factors", params)
    log_prior, _ = target.log_prior_and_likelihood(torch.zeros(1, 1).long(), theta)
    diagonal, loading, unique = (np.array(params[k][0]) for k in params)
    expected = (
        stats.halfnorm.logpdf(diagonal).sum()
        + stats.norm.logpdf(loading).sum()
        + stats.invgamma(a=1.1, scale=0.05).logpdf(unique).sum()
        + np.log(diagonal).sum() + np.log(unique).sum()  # all positive ones are logs
    )  # fmt: skip
    assert float(log_prior[0]) == pytest.approx(expected, abs=1e-5)  # constants are float32


def test_rounding_does_not_break_the_factor_likelihood(generator):
    """Tiny uniquenesses: single precision agrees with double, and nothing explodes."""
    single = trj.problems.factor_analysis()
    double = single.to(dtype=torch.float64)
    code = torch.ones(4000, 1, dtype=torch.long)
    theta = single.sample_prior(code, generator)
    theta[:2000, -6:] -= 8  # uniquenesses e^-8 times as large
    a, b = single.log_joint(code, theta).double(), double.log_joint(code, theta.double())
    likely = b > b.max() - 1e4
    assert bool(((a - b).abs()[likely] < 0.02 + 1e-4 * b[likely].abs()).all())
    assert bool((a[:2000] < 0).all())


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: trj.problems.coal_mining(3, 2), TargetError, "0 <= k_min <= k_max, got 3, 2"),
        (
            lambda: trj.problems.robust_regression(np.ones((5, 3)), np.ones(5)),
            ShapeError,
            r"got \(5, 3\) and \(5,\)",
        ),
        (lambda: trj.problems.factor_analysis(np.ones(4)), ShapeError, r"got shape \(4,\)"),
        (
            lambda: trj.problems.factor_analysis(factors=(2, 2)),
            TargetError,
            r"distinct numbers from 1 to 6, got \(2, 2\)",
        ),
    ],
)
def test_wrong_input_says_what_is_wrong(make, error, message):
    with pytest.raises(error, match=message):
        make()


def rough_subset_maps(target, x, y):
    """A map for each subset: the exact posterior of its coefficients, a little too wide."""
    codes = target.space.enumerate()
    on = codes.bool()
    both = on[:, :, None] & on[:, None, :]
    precision = torch.where(both, x.T @ x, 0.0) + torch.eye(x.shape[1], dtype=x.dtype)
    covariance = torch.linalg.inv(precision)
    loc = (covariance @ torch.where(on, x.T @ y, 0.0)[..., None])[..., 0]
    tril = torch.linalg.cholesky(covariance)
    return trj.Affine(target.space, (loc * on).float(), 1.2 * tril.float())


def columns(data):
    if data == "shared":
        (path,) = (SHARED / "data").glob("linreg_p10*.csv")
        table = torch.tensor(np.loadtxt(path, delimiter=",", skiprows=1))
        return table[:, 1:], table[:, 0]
    return _simulated(10, 0)


@pytest.mark.parametrize("data", ["simulated", pytest.param("shared", marks=shared_only)])
@pytest.mark.parametrize("name", ["neighbours", "informed", "independence"])
def test_selection_among_ten_columns_by_each_proposal(name, data):
    x, y = columns(data)
    target = trj.problems.variable_selection(x=x, y=y)
    p = torch.tensor(list(target.truth.probabilities.values()), dtype=torch.float64)
    exact = (p[:, None] * target.space.enumerate()).sum(0).numpy()
    if data == "shared":
        results = json.loads((SHARED / "gold" / "linreg.json").read_text())["results"]
        (gold,) = [r for r in results if r["p"] == 10 and r["variant"] == "known"]
        assert np.allclose(exact, gold["inclusion"], atol=1e-9)
    make = {
        "neighbours": lambda s: kernel.Neighbours(s, swap=0.3),
        "informed": lambda s: kernel.Informed(s),
        "independence": lambda s: kernel.Fixed(s, (p + 1e-4).log()),
    }[name]
    sampler = trj.TRJSampler(
        target,
        rough_subset_maps(target, x, y),
        lambda t, m: kernel.Cycle(
            [kernel.Jump(t, m, make(t.space), rho=0.9), kernel.RandomWalk(t)]
        ),
        seed=1,
    )
    result = sampler.run(draws=600, chains=256, fit=False, progress=False)
    found = result.inclusion_probabilities()
    gap = np.abs(found["probability"].to_numpy() - exact)
    assert gap.max() < 0.01
    assert (gap <= 4.5 * found["se"].to_numpy() + 1e-9).all()
    if name == "informed":  # warm-up has learnt a score, and the plan says which
        (settings,) = result.report.plan.settings.values()
        assert len(settings["score"]) == 10
