"""What the benchmarks compare with must be the same problems; the examples must run."""

import importlib
import math
import sys
import warnings

import numpy as np
import pytest
import torch
from scipy.special import gammaln
from torch.distributions import Dirichlet, Gamma

import trjmcmc as trj
from tests.places import ROOT, SHARED, shared_only
from trjmcmc.errors import TRJWarning
from trjmcmc.pilot.audit import Audit
from trjmcmc.problems.coal_mining import GAMMA_RATE

sys.path.insert(0, str(ROOT))  # benchmarks are not installed
from benchmarks import __main__ as benchmark
from benchmarks import growth, plan, yin_jiao
from benchmarks.peers import ensemble, problems, pulses

EXAMPLES = {
    "sinh_arcsinh": ["transport", "running", "spread", "depth"],
    "factor_analysis": ["running", "violins", "proposals", "depth"],
    "robust_regression": ["running", "violins"],
}


@pytest.mark.parametrize("make", ["factor_problem", "robust_problem", "modes_problem"])
def test_peers_have_the_same_likelihood_and_prior(make):
    check_tells(getattr(problems, make)(problems.Data()))


@pytest.mark.parametrize("curve", growth.CURVES)
def test_growth_curves_are_the_same_for_peers_and_solve_their_equations(curve):
    check_tells(growth.problem(0, curve))
    exact = {
        "logistic": lambda n, t: 1 / (1 + (1 / n - 1) * np.exp(-t)),
        "gompertz": lambda n, t: n ** np.exp(-t),
        "theta": lambda n, t: (1 + (n**-2 - 1) * np.exp(-2 * t)) ** -0.5,
    }[curve]
    r, k, n0 = np.array([0.4, 1.2]), np.array([9.0, 12.0]), np.array([0.3, 14.0])
    found = growth.solve(curve, r, k, n0)
    wanted = k[:, None] * exact((n0 / k)[:, None], r[:, None] * growth.TIMES)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_importance_sampling_finds_the_log_evidences_of_growth_curves():
    value, error = growth.importance(1, "gompertz", draws=40_000)
    assert error < 0.01 and abs(value - growth.TRUTH[1]["gompertz"]) < 4 * error


def check_tells(problem):
    problem.check()
    wrong = problems.Problem(**{**vars(problem), "log_likelihood": lambda x: np.zeros(len(x))})
    with pytest.raises(AssertionError):
        wrong.check()


def test_pulses_as_leaves_have_the_same_likelihood():
    target = trj.problems.pulses().to(dtype=torch.float64)
    rng = np.random.default_rng(0)
    count = np.array([1, 4, 8])
    owner = np.repeat(np.arange(3), count)
    leaves = np.stack([rng.uniform(*ends, len(owner)) for ends in pulses.RANGES], 1)
    likelihood = pulses.PulsesLikelihood(target)
    found = likelihood(leaves, owner)
    assert likelihood.calls == 3
    for k, value in enumerate(found):
        mine = leaves[owner == k]
        assert likelihood.one(mine) == pytest.approx(value)
        params = dict(zip(["amplitude", "centre", "width"], mine.T[:, None], strict=True))
        theta = target.unconstrain(str(count[k]), params)
        _, expected = target.log_prior_and_likelihood(torch.tensor([[count[k]]]), theta)
        assert value == pytest.approx(float(expected), rel=1e-9)
    none = torch.zeros(1, 1, dtype=torch.long)
    _, expected = target.log_prior_and_likelihood(none, torch.zeros(1, target.dim).double())
    assert likelihood.of_none == pytest.approx(float(expected))


@pytest.mark.parametrize("k", [1, 3, 6])
def test_change_points_as_leaves_have_the_same_density(k):
    """Labelled leaves with log heights: order statistics over k!, a Jacobian a height."""
    rng = np.random.default_rng(k)
    n, most = 20, 6
    target = trj.problems.coal_mining(1, most).to(dtype=torch.float64)
    place, log_height = rng.uniform(0.01, 0.99, (n, k)), rng.normal(-4.5, 0.5, (n, k + 1))
    order = np.argsort(place, 1)
    spacing = np.diff(np.concatenate([np.zeros((n, 1)), np.sort(place), np.ones((n, 1))], 1))
    height = np.exp(
        np.concatenate([log_height[:, :1], np.take_along_axis(log_height[:, 1:], order, 1)], 1)
    )
    theta = target.unconstrain(f"k={k}", {"spacing": spacing, "height": height})
    code = target.space.code_of(f"k={k}").expand(n, -1)
    _, expected = target.log_prior_and_likelihood(code, theta)

    likelihood = ensemble.CoalLikelihood(most)
    leaves = np.stack([place.ravel(), log_height[:, 1:].ravel()], 1)
    found = likelihood([leaves, log_height[:, :1]], [np.repeat(np.arange(n), k), np.arange(n)])
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-9)

    model_prior = target.space.log_prior(target.space.enumerate()).double().exp().numpy()
    height_prior = ensemble.LogExponential(GAMMA_RATE, 0)
    prior = ensemble.CoalPrior(model_prior, height_prior, height_prior)
    coords = np.zeros((1, n, most, 2))
    coords[0, :, :k, 0], coords[0, :, :k, 1] = place, log_height[:, 1:]
    on = np.broadcast_to(np.arange(most) < k, (1, n, most))
    value = prior.logpdf({"change": coords, "base": log_height[None, :, :1, None]}, {"change": on})[
        0
    ]
    exact = (
        np.log(model_prior[k - 1])
        + Dirichlet(torch.full((k + 1,), 2.0, dtype=torch.float64))
        .log_prob(torch.tensor(spacing))
        .numpy()
        - gammaln(k + 1)
        + (Gamma(1.0, GAMMA_RATE).log_prob(torch.tensor(height)).numpy() + np.log(height)).sum(1)
    )
    np.testing.assert_allclose(value, exact, rtol=1e-6)


def test_a_third_column_as_a_leaf_has_the_same_likelihood(generator):
    target = trj.problems.factor_analysis().to(dtype=torch.float64)
    n, p = 10, 6
    code = target.space.code_of("3 factors").expand(n, -1)
    theta = 0.3 * torch.randn(n, target.dim, dtype=torch.float64, generator=generator)
    values = {k: v.numpy() for k, v in target.constrain(code[0], theta).items()}
    _, expected = target.log_prior_and_likelihood(code, theta)
    first, below = values["diagonal"], values["loading"]
    split = 2 * p - 3
    shared = np.concatenate([first[:, :2], below[:, :split], values["uniqueness"]], 1)
    column = np.concatenate([first[:, 2:], below[:, split:]], 1)
    found = ensemble.FactorLeaves(target.y.numpy())([shared, column], [np.arange(n), np.arange(n)])
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-8)


@pytest.mark.slow
@shared_only
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_factors_after_a_hundred_thousand_chain_steps(seed):
    """The exchange rates; the papers' lines are at .88, long runs of several kinds at .8947."""
    y = np.genfromtxt(SHARED / "data" / "exchange_rates.csv", delimiter=",", skip_header=1)
    sampler = trj.TRJSampler(trj.problems.factor_analysis(y), seed=seed)
    sampler.fit(progress=False)
    result = sampler.run(draws=196, chains=512, warmup=200, fit=True, progress=False)
    assert result.raw.n_draws * result.raw.n_chains < 1.01e5
    found = result.model_probabilities(full=True).loc["2 factors"]
    assert abs(found["visits"] - 0.8947) < 0.01
    assert found["visits_se"] < 0.003


def test_figures_are_rounded_to_what_counts(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    experiments = importlib.import_module("experiments")
    numbers = (0.01334, 3e-9, 532.3, float("nan"))
    assert [experiments.two_digits(x) for x in numbers] == ["0.013", "0", "532", "-"]
    assert experiments.couplings(1) == "1 coupling" and experiments.couplings(4) == "4 couplings"


def test_the_cost_of_a_jump_has_a_legend():
    about = {"machine": "m", "threads": 1, "seed": 0, "budget_s": 1.0, "versions": {}}
    row = {"case": "overhead", "bare_ms": 1.0, "cold_over_bare": 1.05, "warm_over_bare": 0.6}
    text = benchmark.markdown({"environment": about, "cases": {"overhead": [row]}})
    assert all(f"`{name}`" in text for name in row if name != "case")


def rough_draws(target, particles, generator):
    """Tempered draws after two moves at each temperature."""
    codes = target.space.enumerate()
    audit = Audit(target, codes, particles=particles, moves=2, generator=generator)
    audit.grow(0)
    return audit.pool()


@pytest.mark.whole
@pytest.mark.parametrize("name", yin_jiao.PROBLEMS)
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_figures_of_yin_and_jiao_stand_beside_ours(name, monkeypatch, clock):
    monkeypatch.setattr(yin_jiao, "tempered_draws", rough_draws)
    tiny = yin_jiao.Size(2, 2, 2, 60, 20, 60, (500,), 2, (1,), 40, 1.0)
    rows = yin_jiao.PROBLEMS[name](tiny, torch.Generator().manual_seed(1), 1)
    assert any(row["theirs"] is not None for row in rows) or not yin_jiao.DATA.exists()
    found = [row for row in rows if row["measure"].startswith("p(") and row["map"] != "run()"]
    assert all(math.isfinite(row["ours"]) for row in found)


@pytest.mark.parametrize("name", EXAMPLES)
def test_published_experiments_run(name, tmp_path, capsys, monkeypatch, clock):
    """With all samplers of the papers, and two steps of every training."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.setattr(sys, "argv", [name, "--quick", "--output", str(tmp_path)])
    script = importlib.import_module(name)
    fit = {"particles": 20, "moves": 2, "audit": 1000}
    tiny = script.Size(20, 60, 2, 3, (20,), 2, (1,), fit, seconds=2)
    monkeypatch.setattr(script, "QUICK", tiny)
    monkeypatch.setattr(script, "tempered_draws", rough_draws, raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TRJWarning)  # short runs say that they are short
        script.main()
    assert {p.stem for p in tmp_path.glob("*.png")} == set(EXAMPLES[name])
    assert "TRJSampler(target).run()" in capsys.readouterr().out


def test_the_plan_says_what_a_run_costs_without_its_search(monkeypatch, capsys):
    options = [
        "--problem",
        "sinh-arcsinh",
        "--seeds",
        "1",
        "--set",
        "climbs=4000",
        "particles=1600",
    ]
    monkeypatch.setattr(sys, "argv", ["plan", *options, "--without", "search"])
    threads = torch.get_num_threads()
    try:
        plan.main()
    finally:
        torch.set_num_threads(threads)
    lines = capsys.readouterr().out.splitlines()
    whole, without = lines[1].split(), lines[2].split()
    assert whole[1:3] == ["sinh-arcsinh", "default"] and without[2:4] == ["without", "search"]
    assert int(whole[5]) > int(without[6]) and whole[-1] == without[-1] == "True"
