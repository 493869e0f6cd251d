"""The exact answers of benchmarks/honesty.py, each by a second method, and its verdicts."""

import functools
import math
import sys

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import multivariate_normal

from tests.places import ROOT
from trjmcmc.doubts.doubt import EVERY, Doubt

sys.path.insert(0, str(ROOT))  # benchmarks are not installed
from benchmarks import alarms, honesty, short_runs
from benchmarks import honest_problems as hard

pytestmark = pytest.mark.planned

ONE = [
    "modes/5 dimensions",
    "modes/10 dimensions",
    "alone/two bananas",
    "fresh/alone, 2 dimensions",
    "fresh/alone, 12 dimensions",
    "fresh/spike in a bump, 1 dimension",
]


def posterior(stated, label, params):
    """Log prior times likelihood of points in a model, p(model) left out, in double precision."""
    target = stated.target.to(dtype=torch.float64)
    space = target.space
    code = space.code_of(label)
    n = len(next(iter(params.values())))
    theta = target.unconstrain(label, {k: torch.as_tensor(v) for k, v in params.items()})
    prior, likelihood = target.log_prior_and_likelihood(code.expand(n, -1), theta)
    return (prior - space.log_prior(code[None]) + likelihood).double().numpy()


@pytest.fixture(scope="module")
def stated():
    made, known = hard.problems(), {}

    def of(name):
        if name not in known:
            known[name] = made[name]()
        return known[name]

    return of


@pytest.mark.parametrize("name", ONE)
def test_weights_of_modes_by_importance_sampling_from_wider_ones(stated, name):
    m = stated(name).mixture
    wide = hard.Mixture(m.weights, m.centres, 1.2 * np.asarray(m.sds), m.bend)
    x = wide.draw(40_000, np.random.default_rng(1))
    w = np.exp(posterior(stated(name), "modes", {"x": x}) - wide.log_density(x).numpy())
    first = m.in_part(0)({"x": x}).numpy()
    for value, exact in ((w, 1.0), (w * first, m.weights[0])):
        assert abs(value.mean() - exact) < max(5 * value.std() / 200, 1e-5)
        assert value.std() / 200 < 0.02


def test_ridge_and_rings_by_quadrature_in_other_coordinates(stated):
    def of_a(a, noise=0.02, product=3.0, sd=10.0):  # b integrated in closed form
        wide = a * a * sd * sd + noise * noise
        return math.exp(-0.5 * a * a / sd**2 - 0.5 * product**2 / wide) / math.sqrt(wide)

    inner = quad(of_a, 0, 0.5, points=[0.2, 0.35], limit=200)[0]
    exact = inner / (inner + quad(of_a, 0.5, 60, points=[1, 5, 20], limit=200)[0])
    assert stated("alone/ridge").questions[0].exact == pytest.approx(exact, rel=1e-4)

    r = torch.linspace(0.5, 5, 90_001, dtype=torch.float64)
    x = torch.stack([0.6 * r, -0.8 * r], 1)
    mass = 2 * math.pi * r.numpy() * np.exp(posterior(stated("fresh/rings"), "rings", {"x": x}))
    assert mass.sum() * 5e-5 == pytest.approx(1, rel=1e-4)
    assert mass[r < 2.5].sum() / mass.sum() == pytest.approx(0.3, rel=1e-4)


def test_independent_items_by_quadrature(stated):
    x = torch.linspace(-12, 12, 48_001, dtype=torch.float64)[:, None]
    for question in stated("fresh/5 spiky subsets").questions:
        item = question.what.split()[0].removeprefix("p(")
        log_joint = posterior(stated("fresh/5 spiky subsets"), item, {"beta": x})
        z = np.exp(log_joint).sum() * 5e-4
        assert question.exact == pytest.approx(z / (1 + z), rel=1e-5)
    z = np.exp(posterior(stated("fresh/spiky counts"), "1", {"x": x})).sum() * 5e-4
    exact = [q.exact for q in stated("fresh/spiky counts").questions]
    assert np.array(exact[1:]) / exact[:-1] == pytest.approx(z, rel=1e-5)


def test_far_subsets_by_enumeration(stated):
    far = stated("fresh/far subsets of 10")
    target = far.target.to(dtype=torch.float64)
    code = target.space.enumerate()
    on = target.space.items(code)
    beta = torch.distributions.Normal(1.0, 0.3), torch.distributions.Normal(0.0, 2.0)
    gain = float(beta[0].log_prob(torch.tensor(1.0)) - beta[1].log_prob(torch.tensor(1.0)))
    _, likelihood = target.log_prior_and_likelihood(code, on.double())
    mass = (likelihood - gain * on.sum(-1)).softmax(0)
    assert float((likelihood - gain * on.sum(-1)).exp().mean()) == pytest.approx(1, rel=1e-5)
    for question in far.questions:
        item = target.space.names.index(question.what.split()[0].removeprefix("p("))
        assert question.exact == pytest.approx(float(mass[on[:, item]].sum()), rel=1e-5)


def test_period_searches_by_dense_algebra_and_another_grid(stated):
    data = hard.velocities(((2.0, 0.3170),), 40, 60, 0.01, 1)
    f = np.array([0.31, 0.3168, 0.68, 0.9])
    pairs = data.gain(f)[:, None] + data.gain_of_pairs(f, f + 0.05)
    for i, one in enumerate(f):
        for j, two in enumerate(f + 0.05):
            phi = data.basis(np.array([one, two])).reshape(4, -1)
            for some, found in ((phi[[0, 2]], data.gain(f)[i]), (phi, pairs[i, j])):
                cover = np.eye(40) + data.amplitude_sd**2 * some.T @ some
                exact = multivariate_normal(np.zeros(40), cover).logpdf(data.y)
                assert data.log_null + found == pytest.approx(exact, abs=1e-8)
    windows = [(0.3, 0.33)]
    fine, coarse = (hard.exact_periods(data, cells, windows) for cells in (1000, 800))
    assert fine.log_z == pytest.approx(coarse.log_z, abs=1e-4)
    assert fine.near[0] == pytest.approx(coarse.near[0], abs=1e-4)


def test_period_searches_have_the_likelihood_that_was_integrated(stated):
    """Evidence = likelihood times prior over posterior, at any amplitudes."""
    data = hard.velocities(((2.0, 0.3170),), 40, 60, 0.01, 1)
    target = stated("periods/one planet")
    for f in (np.array([0.317]), np.array([0.317, 0.43])):
        k = len(f)
        phi = data.basis(f).transpose(1, 0, 2).reshape(2 * k, -1)  # cosine, sine, cosine, sine
        precision = phi @ phi.T + np.eye(2 * k) / data.amplitude_sd**2
        mean = np.linalg.solve(precision, phi @ data.y)
        x = torch.tensor(mean.reshape(k, 2))
        params = {
            "cosine": x[None, :, 0],
            "sine": x[None, :, 1],
            "frequency": torch.tensor(f)[None],
        }
        target64 = target.target.to(dtype=torch.float64)
        theta = target64.unconstrain(str(k), params)
        _, likelihood = target64.log_prior_and_likelihood(torch.tensor([[k]]), theta)
        prior = multivariate_normal(np.zeros(2 * k), data.amplitude_sd**2 * np.eye(2 * k))
        at_mean = 0.5 * np.linalg.slogdet(precision)[1] - k * math.log(2 * math.pi)
        found = float(likelihood) + prior.logpdf(mean) - at_mean - data.log_null
        exact = data.gain(f[:1])[0] + (data.gain_of_pairs(f[:1], f[1:])[0, 0] if k == 2 else 0)
        assert found == pytest.approx(exact, abs=1e-6)


def test_pulses_by_gauss_legendre_quadrature_of_the_target(stated):
    node, weight = np.polynomial.legendre.leggauss(120)
    one = torch.tensor(node)
    pair = torch.cartesian_prod(one, one)
    target = stated("fresh/pulses").target.to(dtype=torch.float64)
    theta = [torch.zeros(1, target.dim).double()]
    theta += [target.unconstrain(str(c.shape[1]), {"centre": c}) for c in (one[:, None], pair)]
    weights = [np.ones(1), weight / 2, np.outer(weight, weight).ravel() / 4]
    z = []
    for k in range(3):
        code = torch.full((len(theta[k]), 1), k)
        _, likelihood = target.log_prior_and_likelihood(code, theta[k])
        z.append(float(weights[k] @ np.exp(likelihood.numpy())))
    exact = [q.exact for q in stated("fresh/pulses").questions]
    assert np.array(z[1:]) / z[:-1] == pytest.approx(np.array(exact[1:3]) / exact[:2], rel=1e-5)


@pytest.mark.parametrize(
    "name, place, sd",
    [
        ("resolution/uniform 1e4", 3.2, 0.001),
        ("resolution/date", 55000.123, 0.01),
        ("resolution/normal 1e4", 5000.3, 0.0005),
        ("fresh/lognormal", 3.0, 2e-6),
        ("fresh/days since 1", 2.4573e6, 0.05),
    ],
)
def test_narrow_posteriors_by_quadrature(stated, name, place, sd):
    x = place + sd * torch.linspace(-9, 9, 2001, dtype=torch.float64)
    prior = {
        "resolution/uniform 1e4": lambda: torch.full_like(x, -math.log(2e4)),
        "resolution/date": lambda: torch.full_like(x, -math.log(6e4)),
        "resolution/normal 1e4": lambda: torch.distributions.Normal(0.0, 1e4).log_prob(x),
        "fresh/lognormal": lambda: torch.distributions.LogNormal(0.0, 1.0).log_prob(x),
        "fresh/days since 1": lambda: torch.full_like(x, -math.log(1e4)),
    }[name]()
    log_z = float((prior + torch.distributions.Normal(place, sd).log_prob(x)).logsumexp(0))
    log_z += math.log(float(x[1] - x[0]))
    assert stated(name).questions[1].exact == pytest.approx(log_z, abs=1e-4)


def test_evidences_at_the_bound(stated):
    for name, a, b, yes, no in (
        ("resolution/beta .05", 0.05, 0.05, 3, 0),
        ("resolution/beta .1", 0.1, 0.1, 5, 0),
        ("fresh/beta .02", 0.02, 0.5, 2, 0),
    ):

        def mass(u, a=0.0, b=0.0):
            return math.exp(-a * np.logaddexp(0, -u) - b * np.logaddexp(0, u))

        ends = {"points": [0.0], "limit": 2000}
        of_data = quad(mass, -2000, 2000, (a + yes, b + no), **ends)[0]
        exact = math.log(of_data / quad(mass, -2000, 2000, (a, b), **ends)[0])
        assert stated(name).questions[1].exact == pytest.approx(exact, abs=1e-6)
    urn, seen = 0.0, []  # one draw after the other
    for category in np.repeat(range(4), (5, 3, 2, 0)):
        urn += math.log((0.05 + seen.count(category)) / (0.2 + len(seen)))
        seen.append(category)
    assert stated("resolution/dirichlet .05").questions[1].exact == pytest.approx(urn, abs=1e-9)


def test_the_black_box_is_normalised_and_the_box_is_small(stated):
    rng = np.random.default_rng(3)
    skewed = hard.SkewedNormal.random(rng)
    x = skewed.draw(4000, rng)
    wide = multivariate_normal(x.mean(0), 2 * np.cov(x.T), seed=4)
    y = wide.rvs(100_000)
    w = np.exp(skewed.log_density(y) - wide.logpdf(y))
    assert abs(w.mean() - 1) < 5 * w.std() / math.sqrt(len(w)) < 0.05
    box = stated("support/1e-4")
    x = torch.rand(200_000, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    inside = np.isfinite(posterior(box, "box", {"x": x}))
    assert inside.mean() == pytest.approx(1e-4, abs=1.2e-4)


def test_verdicts():
    warned, note = (True, ""), (False, "few draws")
    assert honesty.verdict(0.02, 0.01, 0.005, False, "") == honesty.RIGHT
    assert honesty.verdict(0.02, 0.01, 0.005, *warned) == honesty.RIGHT_WARNED
    assert honesty.verdict(0.06, 0.01, 0.005, *warned) == honesty.WRONG_WARNED
    assert honesty.verdict(0.06, 0.01, 0.005, *note) == honesty.SILENT
    assert honesty.verdict(0.004, 0.0, 0.005, False, "") == honesty.RIGHT
    for error in (math.nan, math.inf):
        assert honesty.verdict(0.4, error, 0.005, *warned) == honesty.NO_NUMBER
        assert honesty.verdict(0.4, error, 0.005, *note) == honesty.NO_NUMBER
        assert honesty.verdict(0.4, error, 0.005, False, "") == honesty.SILENT
    assert honesty.verdict(math.nan, math.nan, 0.005, False, "") == honesty.SILENT


@pytest.mark.whole
def test_a_run_of_an_easy_problem_is_right(monkeypatch):
    easy = hard.Mixture([0.4, 0.6], [[-1.0], [1.0]], [0.5, 0.7])
    monkeypatch.setattr(
        honesty, "problems", lambda draw=0: {"easy/modes": lambda: hard.against_null(easy, 3.0)}
    )
    rows = honesty.run("easy/modes", seed=1, max_seconds=3.0)
    assert {r["verdict"] for r in rows} <= {honesty.RIGHT, honesty.RIGHT_WARNED}
    assert {"visits", "combined", "predict"} == {r["column"] for r in rows}
    assert "Silently wrong: 0" in honesty.markdown(rows)
    wrong = [row | {"verdict": honesty.SILENT} for row in rows]
    assert f"Silently wrong: {len(rows)}" in honesty.summary(wrong)
    assert "for 0.5" in honesty.summary(wrong)
    late = [row | {"seconds": 4.2, "max_seconds": 3.0} for row in rows]
    assert "10 %: 1 runs" in honesty.summary(late) and "4.2 s of 3" in honesty.summary(late)


@pytest.mark.whole
def test_alarms_are_counted_and_timed(monkeypatch):
    doubts = functools.cached_property(lambda self: [Doubt(EVERY, "no good", kind="chains")])
    doubts.__set_name__(alarms.trj.Result, "doubts")
    monkeypatch.setattr(alarms.trj.Result, "doubts", doubts)
    short = functools.partialmethod(alarms.trj.TRJSampler.run, 60, chains=64, fit=False)
    monkeypatch.setattr(alarms.trj.TRJSampler, "run", short)
    row = alarms.run("two modes", 1)
    assert alarms.trj.Result.doubts is doubts
    assert len(row["said"]) == 1 and "no good" in row["said"][0]
    assert row["warned"] and 0 < row["alarm_s"] < row["seconds"]
    table = alarms.summary([row, row | {"warned": False, "said": []}])
    assert table.loc["two modes", "warned"] == table.loc["all", "warned"] == 0.5
    assert table.loc["all", "visits_n"] == 2
    assert "1 x ConvergenceWarning" in alarms.markdown([row])


def test_short_runs_count_what_has_no_error_and_draws_beside_a_bad_rhat():
    known = {"column": "visits", "label": "a", "exact": 0.5, "value": 0.6, "note": ""}
    row = {"case": "c", "seed": 1, "rhat": 1.3, "ess": math.nan, "said": ["R-hat"]}
    rows = [row | {"answers": [known | {"se": se}]} for se in (0.1, 0.05, math.nan, math.inf)]
    rows[1] |= {"ess": 40.0, "rhat": 1.2}
    rows[2] |= {"ess": 9000.0, "rhat": 1.05, "said": []}
    found = short_runs.summary(rows).loc["c, visits"]
    assert (found["asked"], found["NaN"], found["warned"]) == (4, 0.5, 0.75)
    assert (found["mean"], found["worst"]) == pytest.approx((1.5, 2.0))
    assert (found["most ESS there"], found["its R-hat"]) == (40.0, 1.2)
    assert math.isinf(short_runs.scored(known | {"se": 0.0}))
