import csv
import json
import math
import warnings
from itertools import pairwise

import arviz
import numpy as np
import pytest
import torch
from scipy import integrate, stats
from solved import gibbs_spike_and_slab, spike_and_slab
from torch.distributions import Gamma, Normal

import trjmcmc as trj
from benchmarks.robust_gibbs import gibbs_robust_selection
from tests.battery import limit
from tests.logistic_selection import logistic_selection
from tests.maps import rough_subset_maps
from tests.places import SHARED, shared_only
from trjmcmc import kernel
from trjmcmc.errors import ConfigurationError, ShapeError, TargetError
from trjmcmc.problems import log_evidence
from trjmcmc.problems.coal_mining import DAYS, LENGTH, _log_evidence, _StepRate
from trjmcmc.problems.robust_selection import LEVELS
from trjmcmc.problems.variable_selection import _simulated


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


def test_coal_mining_counts_whole_and_other_days_alike(generator):
    days = torch.tensor(DAYS, dtype=torch.float64)
    time = torch.cat([days, days - 1e-6, LENGTH * torch.rand(500, generator=generator).double()])
    time = torch.cat([time, torch.tensor([0.0, LENGTH, LENGTH + 0.1])])
    for shift in (0.0, 0.25):  # the second is searched for, not looked up
        rate = _StepRate(days + shift, smooth=False)
        assert len(rate.heights) == (LENGTH + 1 if shift == 0 else len(days.unique()) + 1)
        stated = (days + shift <= time[:, None]).sum(1).double()
        assert torch.equal(rate._count(time[None])[0], stated)


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


@pytest.mark.whole
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


@pytest.mark.whole
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


def columns(data):
    if data == "shared":
        (path,) = (SHARED / "data").glob("linreg_p10*.csv")
        table = torch.tensor(np.loadtxt(path, delimiter=",", skiprows=1))
        return table[:, 1:], table[:, 0]
    return _simulated(10, 0)


@pytest.mark.whole
@pytest.mark.parametrize(
    "data", ["simulated", pytest.param("shared", marks=[shared_only, pytest.mark.slow])]
)
@pytest.mark.parametrize("name", ["neighbours", "independence"])
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
    result = sampler.run(draws=600, chains=1024, fit=False, progress=False)
    found = result.inclusion_probabilities(full=True)
    gap = np.abs(found["probability"].to_numpy() - exact)
    assert gap.max() < 0.01
    often = np.minimum(exact, 1 - exact) > 0.005  # errors of what is seldom seen are not normal
    assert (gap <= 4.5 * found["se"].to_numpy() + 1e-9)[often].all()


def shared_table(pattern):
    (path,) = (SHARED / "data").glob(pattern)
    return np.loadtxt(path, delimiter=",", skiprows=1)


def awkward_columns(kind):
    """Five columns that are harder than they look, and a response."""
    rng = np.random.default_rng(11)
    n = 3 if kind == "more columns than rows" else 25
    x = rng.standard_normal((n, 5))
    if kind == "collinear":
        x[:, 3], x[:, 4] = x[:, 0] - x[:, 1], 100 * x[:, 2]
    if kind == "zero column":
        x[:, 2] = 0
    return x, x[:, 0] + rng.standard_normal(n)


@pytest.mark.parametrize("kind", ["plain", "more columns than rows", "collinear", "zero column"])
@pytest.mark.parametrize(("slab_sd", "weight"), [(1.0, 0.5), (0.4, 0.2), (5.0, 0.7)])
def test_conjugate_selection_against_the_dense_normal_density(kind, slab_sd, weight):
    x, y = awkward_columns(kind)
    target = spike_and_slab(x, y, slab_sd=slab_sd, weight=weight)
    codes = target.space.enumerate()
    on = codes.numpy().astype(bool)
    dense = np.array(
        [
            stats.multivariate_normal.logpdf(
                y, cov=np.eye(len(y)) + slab_sd**2 * x[:, g] @ x[:, g].T
            )
            for g in on
        ]
    )
    tolerance = 1e-8 if kind == "collinear" else 1e-10  # a column of size 100 costs digits
    assert np.allclose(target.log_evidences, dense, rtol=0, atol=tolerance)
    assert np.allclose(target.log_evidence(codes), dense, rtol=0, atol=tolerance)
    assert target.log_evidences.dtype == torch.float64
    k = on.sum(1)
    joint = dense + k * math.log(weight) + (5 - k) * math.log(1 - weight)
    total = np.logaddexp.reduce(joint)
    assert target.log_evidence_total == pytest.approx(total, abs=tolerance)
    assert np.allclose(target.inclusion, np.exp(joint - total) @ on, atol=tolerance)
    labels = target.space.label(codes)
    assert np.allclose([target.truth.probabilities[m] for m in labels], np.exp(joint - total))
    assert np.allclose([target.truth.log_evidence[m] for m in labels], dense)
    if kind == "zero column":
        assert float(target.inclusion[2]) == pytest.approx(weight, abs=1e-12)


def test_variable_selection_is_conjugate_selection():
    x, y = _simulated(6, 3)
    old = trj.problems.variable_selection(6, seed=3)
    new = trj.problems.conjugate_selection(x=x, y=y)
    assert old.truth.log_evidence == new.truth.log_evidence
    assert torch.equal(old.x, x) and torch.equal(old.y, y)


@shared_only
@pytest.mark.parametrize(("p", "n", "rho"), [(4, 50, 0.5), (10, 60, 0.7)])
def test_conjugate_selection_against_the_shared_reference_answers(p, n, rho):
    results = json.loads((SHARED / "gold" / "linreg.json").read_text())["results"]
    (gold,) = [r for r in results if r["p"] == p and r["variant"] == "known"]
    table = shared_table(f"linreg_p{p}_*.csv")
    given = trj.problems.conjugate_selection(x=table[:, 1:], y=table[:, 0])
    drawn = trj.problems.conjugate_selection(p, n, rho, gold["seed"])
    assert np.allclose(drawn.x, given.x, rtol=0, atol=1e-12)
    assert np.allclose(drawn.y, given.y, rtol=0, atol=1e-12)
    assert drawn.beta_true.tolist() == gold["true_beta"]
    for target in (given, drawn):
        assert target.log_evidence_total == pytest.approx(gold["log_evidence_total"], abs=1e-10)
        assert np.allclose(target.inclusion, gold["inclusion"], rtol=0, atol=1e-10)
        for best in gold["top10"]:
            found = float(target.log_evidences[best["index"]])
            assert found == pytest.approx(best["logZ"], abs=1e-10)
            assert target.space.enumerate()[best["index"]].tolist() == best["model"]
    if p == 4:
        assert np.allclose(given.log_evidences, gold["logZ_all"], rtol=0, atol=1e-10)


def test_conjugate_selection_lists_a_million_models(generator):
    target = trj.problems.conjugate_selection(20)
    assert target.truth is None and target.log_evidences.shape == (2**20,)
    codes = torch.randint(0, 2, (300, 20), generator=generator)
    picked = target.log_evidences[target.space.index(codes)]
    assert torch.allclose(target.log_evidence(codes), picked, rtol=0, atol=1e-11)
    x, y = target.x.numpy(), target.y.numpy()
    for g, value in zip(codes[:5].numpy().astype(bool), picked, strict=False):
        dense = stats.multivariate_normal.logpdf(y, cov=np.eye(60) + x[:, g] @ x[:, g].T)
        assert float(value) == pytest.approx(dense, abs=1e-10)
    # without the last ten columns the first thousand models are all there are
    few = trj.problems.conjugate_selection(x=x[:, :10], y=y)
    assert torch.allclose(target.log_evidences[:1024], few.log_evidences, rtol=0, atol=1e-11)
    # the chance of a column, from the evidences of the models with it and without it
    half = target.log_evidences.reshape(2, -1).logsumexp(1)  # the last column out, in
    assert float(target.inclusion[19]) == pytest.approx(float(half.softmax(0)[1]), abs=1e-12)
    total = float(target.log_evidences.logsumexp(0)) - 20 * math.log(2)
    assert target.log_evidence_total == pytest.approx(total, abs=1e-10)


def test_conjugate_selection_among_sixty_columns_has_single_answers(generator):
    target = trj.problems.conjugate_selection(60, 40)
    assert target.space.size == 2**60 and target.truth is None
    for name in ("log_evidences", "log_evidence_total", "inclusion"):
        with pytest.raises(TargetError, match="too many to list"):
            getattr(target, name)
    on = torch.zeros(1, 60, dtype=torch.long)
    on[0, [0, 59]] = 1
    x = target.x[:, [0, 59]]
    covariance = torch.eye(40).double() + x @ x.T
    dense = torch.distributions.MultivariateNormal(torch.zeros(40).double(), covariance)
    expected = float(dense.log_prob(target.y))
    assert float(target.log_evidence(on)[0]) == pytest.approx(expected, abs=1e-10)
    with pytest.raises(ShapeError, match=r"expected shape \(C, 60\), got \(60,\)"):
        target.log_evidence(on[0])


def selection_targets():
    separable = torch.linspace(-1, 1, 20)[:, None]
    return {
        "conjugate": trj.problems.conjugate_selection(5),
        "conjugate, more columns than rows": trj.problems.conjugate_selection(9, 4),
        "spike and slab": spike_and_slab(slab_sd=2.0),
        "robust": trj.problems.robust_selection(p=5),
        "robust, wide": trj.problems.robust_selection("high", "wide", p=24),
        "logistic": logistic_selection(5),
        "logistic, separable": logistic_selection(x=separable, y=separable[:, 0] > 0),
    }


def textbook_log_likelihood(name, target, beta):
    """The same likelihood, an observation at a time, from torch.distributions."""
    x, y = target.x, target.y
    if "conj" in name or "spike" in name:
        return Normal(beta @ x.T, 1.0).log_prob(y).sum(-1)
    eta = beta[:, :1] + beta[:, 1:] @ x.T
    if "logistic" in name:
        return torch.distributions.Bernoulli(logits=eta).log_prob(y).sum(-1)
    kinds = torch.distributions.Categorical(torch.tensor([0.9, 0.1], dtype=torch.float64))
    errors = Normal(torch.zeros(2).double(), torch.tensor([1.0, 10.0]).double())
    mixture = torch.distributions.MixtureSameFamily(kinds, errors)
    return mixture.log_prob(y - eta).sum(-1)


@pytest.mark.parametrize("name", selection_targets())
def test_selection_likelihoods_against_torch_distributions(name, generator):
    single = selection_targets()[name]
    double = single.to(dtype=torch.float64)
    code = double.space.sample_prior(50, generator)
    theta = torch.randn(50, double.dim, generator=generator, dtype=torch.float64)
    theta = torch.where(double.space.active(code), theta, 0.0)
    log_prior, log_likelihood = double.log_prior_and_likelihood(code, theta)
    expected = textbook_log_likelihood(name, single, theta)
    assert log_likelihood.dtype == torch.float64 and log_likelihood.shape == (50,)
    assert torch.allclose(log_likelihood, expected, rtol=1e-12, atol=1e-9)
    normal = Normal(0.0, single.prior_sd).log_prob(theta)
    expected = torch.where(double.space.active(code), normal, 0.0).sum(-1)
    expected = expected - code.shape[1] * math.log(2)
    assert torch.allclose(log_prior, expected, atol=1e-5)  # constants are float32
    rounded = single.log_prior_and_likelihood(code, theta.float())[1].double()
    assert torch.allclose(rounded, log_likelihood, rtol=1e-5, atol=1e-3)
    value, gradient = double.log_joint_and_grad(code, 1e3 * theta)
    assert bool(value.isfinite().all()) and bool(gradient.isfinite().all())


@shared_only
def test_robust_selection_against_the_shared_reference_answers():
    gold = json.loads((SHARED / "gold" / "robust7_mid.json").read_text())["values"]["mid"]
    table = shared_table("robust7_mid_seed701.csv")
    target = trj.problems.robust_selection("mid", seed=701)
    assert np.allclose(target.y, table[:, 0], rtol=0, atol=1e-12)
    assert np.allclose(target.x, table[:, 2:], rtol=0, atol=1e-12)
    assert target.gamma_true.tolist() == [bool(g) for g in gold["gamma_true"]]
    assert target.beta_true.tolist() == gold["beta_true"]
    assert target.truth is None and target.space.size == 128

    def integrand(b):
        likelihood = target.log_likelihood({"beta": torch.tensor([[b] + 7 * [0.0]]).double()})
        return math.exp(float(likelihood) + stats.norm.logpdf(b, scale=1.5) + 146)

    value, _ = integrate.quad(integrand, -4, 4, points=[0.0, 1.0], epsabs=1e-10)
    assert math.log(value) - 146 == pytest.approx(gold["logZ"][0], abs=1e-6)
    # the eight models of the first three columns
    three = trj.problems.robust_selection(x=table[:, 2:5], y=table[:, 0])
    found = np.array(list(three.truth.log_evidence.values()))
    gap = np.abs(found - gold["logZ"][:8])
    assert (gap < 1e-5 + 5 * np.array(gold["se"][:8])).all() and three.beta_true is None


def test_robust_selection_data_by_level():
    make = trj.problems.robust_selection
    none, mid, high = (make(level, p=30, seed=4) for level in LEVELS)
    assert torch.equal(none.x, mid.x)
    on = high.gamma_true
    assert torch.equal(on, mid.gamma_true) and torch.equal(on, high.beta_true[1:] != 0)
    assert torch.equal(high.x[:, on], mid.x[:, on]) and 4 < int(on.sum()) < 20
    follow = torch.linalg.lstsq(mid.x[:, on], (high.x - mid.x)[:, ~on]).solution
    assert torch.allclose(mid.x[:, on] @ follow, (high.x - mid.x)[:, ~on])
    assert torch.allclose(follow.sum(1), torch.tensor(0.1).double())  # each shares 0.1
    assert 0.2 < float((follow.abs() > 1e-6).double().mean()) < 0.6
    a, b, c = ((t.y - t.beta_true[0] - t.x @ t.beta_true[1:]).numpy() for t in (none, mid, high))
    outlier = np.isclose(b / a, 0.5)  # 5 / 10
    assert np.allclose((b / a)[~outlier], 2.0) and 0 < outlier.sum() < 15
    assert np.allclose(b / c, np.where(outlier, 1.25, 0.5))
    values = {float(make(s, p=1, seed=i).beta_true[0]) for i in range(12) for s in ("mid", "high")}
    assert values == {0.5, 1.5}
    assert {float(make("none", p=1, seed=i).beta_true[0]) for i in range(12)} == {0.5}
    assert (make().prior_sd, make(prior="wide").prior_sd) == (1.5, 10.0)


def test_logistic_selection_truth_by_nested_quadrature():
    target = logistic_selection(1, 30, seed=2)
    x, y = target.x[:, 0].numpy(), target.y.numpy()

    def integrand(b, a):
        eta = a + b * x
        value = (y * eta - np.logaddexp(0, eta)).sum()
        return math.exp(value + stats.norm.logpdf([a, b], scale=2.5).sum() + 18)

    value, _ = integrate.dblquad(integrand, -6, 6, -6, 8, epsabs=1e-9, epsrel=1e-7)
    found = target.truth.log_evidence
    assert found["x0+x1"] == pytest.approx(math.log(value) - 18, abs=1e-5)
    value, _ = integrate.quad(lambda a: integrand(0.0, a), -8, 8)
    zero = stats.norm.logpdf(0.0, scale=2.5)
    assert found["x0"] == pytest.approx(math.log(value) - 18 - zero, abs=1e-5)


def test_logistic_selection_likelihood_far_out():
    """A billion standard deviations: neither overflow nor zero gradients where data disagree."""
    x, y = torch.tensor([[1.0], [-1.0], [2.0]]), torch.tensor([True, False, False])
    target = logistic_selection(x=x, y=y)
    code, theta = torch.ones(1, 1).long(), torch.tensor([[0.0, 1e9]])
    value, gradient = target.log_joint_and_grad(code, theta)
    prior = -0.5 * (1e9 / 2.5) ** 2
    assert float(value) == pytest.approx(prior - 2e9, rel=1e-6)
    likelihood = target.log_likelihood({"beta": theta.double()})
    assert float(likelihood) == pytest.approx(-2e9, rel=1e-12)
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize(("rho", "slab_sd", "weight"), [(0.6, 1.0, 0.5), (0.0, 0.3, 0.2)])
def test_gibbs_draws_agree_with_exact_spike_and_slab_selection(rho, slab_sd, weight):
    settings = {"slab_sd": slab_sd, "weight": weight}
    # ten rows and small effects, so that no column is certain
    target = spike_and_slab(n=10, rho=rho, effects=0, seed=5, **settings)
    x, y = target.x, target.y + 0.5 * target.x[:, 0]
    target = spike_and_slab(x, y, **settings)
    beta = gibbs_spike_and_slab(x, y, draws=8000, burn_in=200, seed=1, **settings)
    assert beta.shape == (8000, 3) and beta.dtype == np.float64
    mean = torch.zeros(3).double()
    for code in target.space.enumerate():
        on = code.bool()
        some = x[:, on]
        precision = some.T @ some + torch.eye(int(on.sum())).double() / slab_sd**2
        (label,) = target.space.label(code[None])
        mean[on] += target.truth.probabilities[label] * torch.linalg.solve(precision, some.T @ y)
    inclusion = target.inclusion.numpy()
    assert (np.abs(inclusion - weight) > 0.02).any() and (
        (inclusion > 0.05) & (inclusion < 0.95)
    ).all()
    for draws, exact in (((beta != 0).astype(float), inclusion), (beta, mean.numpy())):
        for j in range(3):
            se = draws[:, j].std() / math.sqrt(arviz.ess(draws[None, :, j], method="mean"))
            assert abs(draws[:, j].mean() - exact[j]) < 4.5 * se < 0.1
    again = gibbs_spike_and_slab(x, y, draws=50, burn_in=0, seed=1, **settings)
    assert np.array_equal(
        again, gibbs_spike_and_slab(x, y, draws=50, burn_in=0, seed=1, **settings)
    )


def test_spike_and_slab_selection_data():
    target = spike_and_slab(p=4, n=5000, rho=0.8, effects=3, seed=1)
    assert target.beta_true.tolist() == 3 * [math.log(5000)] + [0.0]
    assert target.gamma_true.tolist() == [True, True, True, False]
    covariance = torch.cov(target.x.T)
    expected = 0.2 * torch.eye(4) + 0.8
    assert torch.allclose(covariance, expected.double(), atol=0.1)  # 5 standard errors
    errors = target.y - target.x @ target.beta_true
    assert abs(float(errors.var()) - 1) < 0.1


def test_spike_and_slab_effects_in_any_columns():
    settings = {"p": 6, "rho": 0.3, "seed": 2}
    target = spike_and_slab(effects=np.array([5, 0]), **settings)
    assert target.gamma_true.tolist() == [True, False, False, False, False, True]
    other = spike_and_slab(effects=(0, 5), **settings)
    assert torch.equal(target.y, other.y)
    assert not spike_and_slab(effects=[], **settings).gamma_true.any()
    first = [spike_and_slab(effects=e, **settings).y for e in (2, [1, 0])]
    assert torch.equal(*first)


@pytest.mark.parametrize("p", [3, 20])
def test_exact_draws_of_a_selection(p, generator):
    """Shares of models and moments, in standard errors, against dense normal densities."""
    whole = spike_and_slab(p=p, n=15, rho=0.7)  # a third of whose effect is in doubt
    target = spike_and_slab(whole.x, whole.y / 3, slab_sd=0.6, weight=0.3)
    code, beta = target.exact_draws(20_000, generator)
    assert torch.equal(beta != 0, code == 1) and code.dtype == torch.int64

    def gap(each):
        each = each.double()
        return (each.mean(0) / (each.std(0) / len(each) ** 0.5)).abs().max()

    assert gap(code - target.inclusion) < 5
    assert gap(code - (0.9 * target.inclusion + 0.1)) > 5
    if p > 3:
        return
    first = second = 0.0
    probabilities = target.truth.probabilities.values()
    for on, weight in zip(target.space.enumerate().bool(), probabilities, strict=True):
        x = target.x[:, on]
        covariance = torch.linalg.inv(x.T @ x + torch.eye(int(on.sum())) / 0.6**2)
        mean = covariance @ x.T @ target.y
        both = on[:, None] & on
        square = torch.zeros(p, p, dtype=torch.float64)
        square[both] = (covariance + mean[:, None] * mean).flatten()
        first = first + weight * torch.zeros(p, dtype=torch.float64).masked_scatter(on, mean)
        second = second + weight * square
    assert gap(beta - first) < 5
    assert gap((beta[:, :, None] * beta[:, None] - second).flatten(1)) < 5
    assert gap((1.1 * beta[:, :, None] * beta[:, None] - second).flatten(1)) > 5


def test_exact_draws_stop_at_twenty_two_columns(generator):
    with pytest.raises(TargetError, match="2\\^30 models of 30 columns are too many"):
        spike_and_slab(p=30).exact_draws(5, generator)
    code, beta = spike_and_slab().exact_draws(0, generator)
    assert code.shape == beta.shape == (0, 3)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda p: p.conjugate_selection(0), TargetError, "p >= 1, n >= 2"),
        (lambda p: p.variable_selection(0), TargetError, "at least one column, got 0"),
        (lambda p: p.conjugate_selection(rho=1.0), TargetError, "-1 < rho < 1, got 10, 60, 1.0"),
        (lambda p: p.conjugate_selection(x=np.eye(3)), TargetError, "give both, or neither"),
        (lambda p: p.variable_selection(y=np.ones(3)), TargetError, "give both, or neither"),
        (
            lambda p: p.conjugate_selection(x=np.eye(3), y=np.ones(4)),
            ShapeError,
            r"shapes \(n, p\) and \(n,\), got \(3, 3\) and \(4,\)",
        ),
        (lambda p: p.robust_selection(x=np.ones(3), y=np.ones(3)), ShapeError, r"got \(3,\) and"),
        (
            lambda p: logistic_selection(x=np.ones((3, 0)), y=np.ones(3)),
            ShapeError,
            r"at least one row and one column to select, got \(3, 0\); .*trj.Model",
        ),
        (
            lambda p: p.conjugate_selection(x=[[1.0], [math.nan]], y=[1, 2]),
            TargetError,
            "x: 1 of 2 numbers are NaN or infinite; drop",
        ),
        (
            lambda p: p.robust_selection(x=np.eye(2), y=[1, math.inf]),
            TargetError,
            "y: 1 of 2 numbers are NaN or infinite",
        ),
        (lambda p: p.conjugate_selection(x=[["a"]], y=[1]), ShapeError, "x: expected an array of"),
        (lambda p: p.robust_selection("low"), TargetError, "level: expected one of .*got 'low'"),
        (lambda p: p.robust_selection(prior="flat"), TargetError, "prior: expected one of"),
        (lambda p: p.robust_selection(p=0), TargetError, "at least one column to select, got 0"),
        (lambda p: logistic_selection(x=np.eye(2), y=[0, 2]), TargetError, "ones, got 2.0"),
        (lambda p: spike_and_slab(weight=1.0), TargetError, "between 0 and 1, got 1.0"),
        (lambda p: spike_and_slab(slab_sd=0.0), TargetError, "above 0, got 0.0"),
        (lambda p: spike_and_slab(rho=2), TargetError, "got 3, 100, 2"),
        (lambda p: spike_and_slab(effects=4), TargetError, "0 to p = 3, or .*got 4"),
        (lambda p: spike_and_slab(effects=10**15), TargetError, "got 1000000000000000"),
        (lambda p: spike_and_slab(effects=-1), TargetError, "0 to p = 3, or .*got -1"),
        (lambda p: spike_and_slab(effects=[0, 3]), TargetError, r"0 to 2, got \[0, 3\]"),
        (lambda p: spike_and_slab(effects=[-1]), TargetError, r"0 to 2, got \[-1\]"),
        (lambda p: spike_and_slab(effects=[1, 1]), TargetError, r"different .*got \[1, 1\]"),
        (lambda p: spike_and_slab(effects=[0.5]), TargetError, r"indices .*got \[0.5\]"),
        (lambda p: spike_and_slab(effects="x1"), TargetError, "indices .*got 'x1'"),
        (lambda p: gibbs_spike_and_slab(np.eye(2), [1]), ShapeError, r"got \(2, 2\) and \(1,\)"),
        (
            lambda p: gibbs_spike_and_slab(np.eye(2), [1, 2], draws=0),
            ConfigurationError,
            "at least 1 and 0, got 0 and 1000",
        ),
    ],
)
def test_selection_says_what_is_wrong(make, error, message):
    with pytest.raises(error, match=message):
        make(trj.problems)


def test_selection_data_are_copied_at_the_door():
    x, y = np.eye(4), torch.arange(4.0, dtype=torch.float64)
    target = trj.problems.conjugate_selection(x=x, y=y)
    before = target.log_evidence(torch.ones(1, 4).long())
    x[:], y[:] = 7.0, 7.0
    assert torch.equal(target.x, torch.eye(4).double()) and float(target.y[2]) == 2.0
    assert torch.equal(before, target.log_evidence(torch.ones(1, 4).long()))


@pytest.mark.whole
@pytest.mark.parametrize(
    "make",
    [
        lambda p: p.conjugate_selection(3, seed=1),
        lambda p: spike_and_slab(n=10, rho=0.6, seed=2),
        lambda p: p.robust_selection(p=2, seed=5),
        lambda p: logistic_selection(2, 60, seed=1),
    ],
    ids=["conjugate", "spike and slab", "robust", "logistic"],
)
def test_selection_by_the_sampler(make):
    target = make(trj.problems)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trj.errors.TRJWarning)  # a short run may warn
        result = trj.TRJSampler(target, seed=3).run(draws=200, progress=False)
    table = result.model_probabilities(full=True)
    exact = np.array([target.truth.probabilities[m] for m in table.index])
    z = (table["visits"] - exact) / table["visits_se"]
    assert (z.abs() < 4.5).all(), table.assign(exact=exact, z=z).to_string()
    assert (table["visits_se"] < 0.01).all() and (exact > 0.01).sum() > 1


@pytest.mark.slow
def test_robust_selection_of_65_536_models_by_default():
    """Against data augmentation, which knows this problem and shares nothing with the sampler."""
    target = trj.problems.robust_selection("mid", p=16, seed=0)
    chains = gibbs_robust_selection(target, chains=200, draws=1000, burn_in=300)
    result = trj.TRJSampler(target, seed=5).run(400, progress=False)
    found = result.inclusion_probabilities(full=True)
    gap = found["probability"].to_numpy()[1:] - chains.mean(0)
    error = np.hypot(found["se"].to_numpy()[1:], chains.std(0, ddof=1) / len(chains) ** 0.5)
    assert np.abs(gap).max() < 0.03
    assert np.abs(gap / error).max() < limit(len(gap)) + 1  # errors are estimates themselves


def test_data_augmentation_agrees_with_quadrature():
    target = trj.problems.robust_selection("high", p=2, seed=4)
    chains = gibbs_robust_selection(target, draws=1000, burn_in=100)
    p = torch.tensor([target.truth.probabilities[m] for m in ("x0", "x0+x1", "x0+x2", "x0+x1+x2")])
    exact = torch.stack([p[1] + p[3], p[2] + p[3]]).numpy()
    z = (chains.mean(0) - exact) / (chains.std(0, ddof=1) / len(chains) ** 0.5)
    assert np.abs(z).max() < limit(2)
    with pytest.raises(ConfigurationError, match="chains, draws, burn_in"):
        gibbs_robust_selection(target, draws=0)
