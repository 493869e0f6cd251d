"""The default run: moves chosen by measurement, training only while it pays."""

import math
import time
import warnings

import emcee
import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from tests import toys
from trjmcmc.compare.classical import METHODS
from trjmcmc.compare.compare import _row
from trjmcmc.errors import ConfigurationError, CoverageWarning, TRJWarning
from trjmcmc.estimate import progress_of
from trjmcmc.estimate.short_runs import indicator_times
from trjmcmc.kernel import HMC, Informed, Jump, start
from trjmcmc.run.policy import ChoicePolicy, Policy
from trjmcmc.transport import Identity


def check(result, sigmas=5.0):
    """Visits against the truth."""
    p = result.model_probabilities(full=True)
    for label, truth in result.truth.probabilities.items():
        error = np.fmax(p.loc[label, "visits_se"], 1e-4)
        if math.isnan(p.loc[label, "visits_se"]):  # no error is given of chains that mix badly
            assert "R-hat" in p.loc[label, "note"]
            error = 0.02
        assert abs(p.loc[label, "visits"] - truth) < sigmas * error, label


# ---- measuring ------------------------------------------------------------------------------


@pytest.mark.parametrize("flip", [0.5, 0.1, 0.03])
def test_the_memory_of_a_flipping_indicator_is_known(flip):
    """A two-state chain that flips with probability q: autocorrelation time (1 - q) / q."""
    rng = np.random.default_rng(1)
    start_at = rng.random((1, 2000)) < 0.5
    flips = np.cumsum(rng.random((60, 2000)) < flip, 0)
    seen = torch.as_tensor((start_at + flips) % 2).double()[..., None]
    assert float(indicator_times(seen)) == pytest.approx((1 - flip) / flip, rel=0.25)


def test_what_never_changes_has_an_infinite_memory_and_what_is_constant_none():
    stuck = torch.arange(40).double()[None, :, None].expand(30, -1, -1) % 2
    assert math.isinf(float(indicator_times(stuck)))
    assert float(indicator_times(torch.ones(30, 40, 1).double())) == 1


def test_progress_counts_models_or_units():
    space = trj.Subsets(["a", "b"], of="w")
    generator = torch.Generator().manual_seed(0)
    code = space.sample_prior(50 * 100, generator).view(50, 100, 2)
    found = progress_of(space, code)
    assert found.error == pytest.approx(math.sqrt(0.25 * 0.75 / 5000), rel=0.3)
    assert found.time == pytest.approx(1, abs=0.5)
    assert progress_of(space, code[:1, :1].expand(500, 40, -1)).error == 3 * 20 / (500 * 40)
    many = trj.Subsets([f"x{i}" for i in range(30)], of="w")
    code = many.sample_prior(20 * 64, generator).view(20, 64, 30)
    assert progress_of(many, code).error < 0.05
    long = trj.Counts(80, of="w")
    code = long.sample_prior(30 * 64, generator).view(30, 64, 1)
    rest = 18 / 81  # 63 counts on their own, the others together
    assert progress_of(long, code).error == pytest.approx(
        math.sqrt(rest * (1 - rest) / 1920), rel=0.4
    )


@pytest.mark.whole
def test_a_model_that_has_all_the_mass_ends_the_run(clock):
    target = trj.Target(
        [
            trj.Model("a", {"x": Normal(0.0, 1.0)}, lambda p: 0 * p["x"]),
            trj.Model("b", {"x": Normal(0.0, 1.0)}, lambda p: 0 * p["x"] - 1000.0),
        ]
    )
    begun = clock.seconds
    result = trj.TRJSampler(target, seed=1).run(
        until={"probability": 0.01}, max_seconds=60, progress=False
    )
    assert clock.seconds - begun < 40
    assert result.model_probabilities(full=True).loc["a", "visits"] == 1


# ---- choosing -------------------------------------------------------------------------------


@pytest.mark.whole
def test_an_easy_target_is_sampled_without_training():
    begun = time.monotonic()
    sampler = trj.TRJSampler(toys.gaussians(), seed=3)
    result = sampler.run(200, chains=128, progress=False)
    assert time.monotonic() - begun < 60
    plan = result.report.plan
    assert plan.rounds == [] and result.report.fit is None and sampler.fit_trace is None
    assert sum(plan.weights.values()) == pytest.approx(1)
    assert {"birth-death", "normals"} <= set(plan.efficiency)
    assert result.audit() is not None
    check(result)
    again = sampler.run(200, chains=64, progress=False)  # the survey is kept
    check(again)


@pytest.mark.whole
@pytest.mark.parametrize("chains", [1, 2, 7])
def test_few_chains_are_planned_with_many(chains):
    result = trj.TRJSampler(toys.gaussians(), seed=1).run(300, chains=chains, progress=False)
    assert result.raw.n_chains == chains
    assert abs(float(result.model_probabilities(full=True)["visits"].sum()) - 1) < 1e-6


@pytest.mark.whole
def test_a_large_space_starts_at_once():
    target = trj.problems.variable_selection(10)
    result = trj.TRJSampler(target, seed=2).run(
        until={"probability": 0.01}, max_seconds=60, progress=False
    )
    codes = target.space.enumerate()
    p = torch.tensor([target.truth.probabilities[x] for x in target.space.label(codes)])
    exact = (p[:, None] * codes).sum(0)
    found = result.inclusion_probabilities(full=True)["probability"].to_numpy()
    assert float(np.abs(found - exact.numpy()).max()) < 0.05


@pytest.mark.whole
@pytest.mark.planned
def test_one_model_and_models_without_parameters():
    one = trj.Target([trj.Model("m", {"x": Normal(0.0, 2.0)}, lambda p: -0.5 * p["x"] ** 2)])
    result = trj.TRJSampler(one, seed=1).run(500, chains=64, progress=False)
    assert abs(float(result.raw.theta.double().std()) - (0.8**0.5)) < 0.05
    assert trj.TRJSampler(one, seed=1).run(1000, chains=1, progress=False).raw.n_chains == 1
    none = trj.Target(
        [trj.Model("a", {}, lambda p: 0.0), trj.Model("b", {}, lambda p: math.log(3.0))]
    )
    result = trj.TRJSampler(none, seed=1).run(500, chains=64, progress=False)
    assert abs(result.model_probabilities(full=True).loc["b", "visits"] - 0.75) < 0.03


def test_a_dear_likelihood_gets_a_small_survey(monkeypatch):
    sampler = trj.TRJSampler(toys.gaussians(), seed=1)
    monkeypatch.setattr(sampler._known.trainer.pilot, "price", lambda codes: 0.1)
    sampler._known.trainer.survey()
    assert sampler.target.evaluations < 5000


@pytest.mark.whole
def test_models_whose_pilot_run_contradicts_itself_get_a_larger_one():
    policy = Policy(choice=ChoicePolicy(contradiction_nats=1e-9))
    sampler = trj.TRJSampler(toys.gaussians(), seed=1, policy=policy)
    sampler.fit(steps=20, progress=False)
    rounds = len(sampler._known.trainer.fitted.audit.rounds)
    check(sampler.run(300, chains=128, progress=False))
    assert len(sampler._known.trainer.fitted.audit.rounds) > rounds


@pytest.mark.whole
def test_a_space_of_hundreds_of_items_starts(clock):
    clock.call = 0.02
    target = trj.Target(
        trj.Subsets([f"x{i}" for i in range(150)], of="w", prior=0.1),
        {"w": Normal(0.0, 1.0)},
        lambda p, active: -0.5 * (p["w"].sum(-1) - 1).square(),
    )
    begun = clock.seconds
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TRJWarning)
        result = trj.TRJSampler(target, seed=1).run(20, chains=32, max_seconds=5, progress=False)
    assert result.raw.n_draws >= 1 and clock.seconds - begun < 6


def test_the_plan_is_saved(tmp_path):
    result = trj.TRJSampler(toys.gaussians(), seed=3).run(50, chains=64, progress=False)
    result.save(tmp_path / "r.pt")
    assert trj.load(tmp_path / "r.pt").report.plan == result.report.plan


# ---- stopping -------------------------------------------------------------------------------


def test_a_run_stops_when_it_is_precise_enough():
    sampler = trj.TRJSampler(toys.gaussians(), seed=4)
    result = sampler.run(until={"probability": 0.005}, progress=False)
    assert float(result.model_probabilities(full=True)["visits_se"].max()) <= 0.005
    assert result.raw.n_draws < 5000
    check(result)


@pytest.mark.filterwarnings("ignore:the run has not converged")  # nor has it, in four seconds
def test_a_run_stops_when_its_time_is_up(clock):
    begun = clock.seconds
    with pytest.warns(TRJWarning, match="until was not reached"):
        result = trj.TRJSampler(toys.gaussians(), seed=4).run(
            until={"probability": 1e-6, "rhat": math.inf}, max_seconds=4, progress=False
        )
    assert 3 < clock.seconds - begun < 4.2
    assert result.raw.n_draws > 10


@pytest.mark.whole
def test_memory_is_bounded_where_the_number_of_draws_is_open(clock, monkeypatch):
    clock.call = 2e-3
    monkeypatch.setattr(trj.draws, "STORED", 1000)
    result = trj.TRJSampler(toys.gaussians(), seed=4).run(max_seconds=8, chains=32, progress=False)
    assert result.raw.n_draws <= 200 and result.raw.thin > 1
    assert result.report.steps == result.raw.n_draws * result.raw.thin
    check(result)


@pytest.mark.whole
def test_thinning_costs_no_precision_of_the_models(tmp_path):
    """Steps between kept draws count: the same run, thinned or not, gives the same answer."""

    def run(thin, draws):
        sampler = trj.TRJSampler(toys.gaussians(), seed=4)
        return sampler.run(draws, thin=thin, chains=64, warmup=20, fit=False, progress=False)

    all_kept, few_kept = run(1, 400), run(5, 80)  # long enough that no tail is slow
    few_kept.save(tmp_path / "r.pt")
    expected = all_kept.model_probabilities(full=True)
    for result in (few_kept, trj.load(tmp_path / "r.pt")):
        found = result.model_probabilities(full=True)
        for column in ("visits", "visits_se", "visits_ess"):
            np.testing.assert_allclose(found[column], expected[column], rtol=1e-9)
    ess = [_row(r, 1.0)["ess"] for r in (all_kept, few_kept)]
    assert ess[0] == pytest.approx(ess[1], rel=0.05)  # but for the variance of what was kept
    a, b = expected.index[:2]
    odds = [r.bayes_factor(a, b, log=True, route="visits") for r in (all_kept, few_kept)]
    assert odds[0].value == pytest.approx(odds[1].value, rel=1e-9)
    assert odds[0].std_error == pytest.approx(odds[1].std_error, rel=1e-9)
    kept = np.array([few_kept.visited(m).mean() for m in expected.index])
    assert (np.abs(kept - expected["visits"]) > 1e-4).any()  # the kept draws alone say else


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"until": {"ess": 100}}, "until: expected"),
        ({"until": {"probability": 0.0}}, "between 0 and 1"),
        ({"fit": "always"}, 'fit: expected "auto"'),
        ({"max_seconds": -1.0}, "max_seconds"),
    ],
)
def test_wrong_settings_of_a_run_say_what_is_wrong(options, message):
    with pytest.raises(ConfigurationError, match=message):
        trj.TRJSampler(toys.gaussians(), seed=1).run(10, progress=False, **options)


# ---- adaptation -----------------------------------------------------------------------------


def test_kernels_adapt_in_warm_up_and_nowhere_else(generator):
    target = toys.conjugate_subsets()
    hmc = HMC(target, step_size=3.0)
    jump = Jump(target, Identity(target.space), Informed(target.space), rho=0.9)
    code = target.space.sample_prior(400, generator)
    state = start(target, code, target.sample_prior(code, generator))
    kernel = trj.kernel.Cycle([hmc, jump])

    def steps(n):
        here = state
        with torch.no_grad():
            for _ in range(n):
                here, infos = kernel.step(here, generator)
        return infos

    before = [part.adapted() for part in kernel.parts()]
    steps(3)
    first, (kernel, _) = kernel, toys.warmed(kernel, state, generator, 80)
    assert [part.adapted() for part in first.parts()] == before
    after = [part.adapted() for part in kernel.parts()]
    assert after[0] != before[0] and after[1] != before[1]
    rates = steps(30)[0].accepted.double().mean()
    assert 0.6 < float(rates) < 0.97  # aims at 0.8
    assert [part.adapted() for part in kernel.parts()] == after


@pytest.mark.whole
def test_what_was_adapted_is_reported():
    target = toys.conjugate_subsets()

    def kernel(target, transport):
        return trj.kernel.Cycle(
            [HMC(target), Jump(target, transport, Informed(target.space), rho=0.9)]
        )

    sampler = trj.TRJSampler(target, kernel=kernel, seed=1)
    result = sampler.run(400, chains=64, warmup=60, fit=False, progress=False)
    assert {"hmc", "jump"} <= set(result.report.plan.settings)
    assert len(result.report.plan.settings["hmc"]["step size"]) == 8
    check(result)


# ---- comparison -----------------------------------------------------------------------------


@pytest.mark.whole
@pytest.mark.parametrize("method", METHODS)
def test_every_classical_sampler_is_right(method, monkeypatch):
    monkeypatch.setattr(trj.compare.classical, "DEPTH", 2)
    sampler = trj.ClassicalSampler(toys.gaussians(), method, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trj.errors.ConvergenceWarning)  # the switch mixes slowly
        result = sampler.run(80, chains=256, progress=False)
    check(result)


def test_samplers_are_compared(clock):
    clock.call = 0.01
    found = trj.compare_samplers(
        toys.gaussians(),
        {"ours": "default", "classic": "birth-death", "own": lambda t: trj.TRJSampler(t, seed=8)},
        budget=4.0,
        chains=64,
        progress=False,
    )
    table = found.table
    assert list(table.index) == ["ours", "classic", "own"]
    assert bool((table["ess"] > 100).all()) and bool((table["error"] < 0.05).all())
    assert bool((table["total_s"] < 20).all()) and set(found.results) == set(table.index)
    ax = found.plot()
    assert "per second" in ax.get_xlabel()
    assert isinstance(table, pd.DataFrame)


def test_a_stuck_sampler_has_no_effective_draws(clock):
    def stuck(target):
        sampler = trj.TRJSampler(
            target,
            kernel=lambda t, m: trj.kernel.Cycle(
                [
                    trj.kernel.saturated_switch(t, trj.kernel.Fixed(t.space), scale=1e4),
                    trj.kernel.RandomWalk(t),
                ]
            ),
            seed=1,
        )
        sampler.fit(steps=0, pilot=False, audit=False, progress=False)
        return sampler

    target = toys.gaussians(scale=1.0)
    found = trj.compare_samplers(target, {"stuck": stuck}, budget=3.0, chains=64, progress=False)
    assert float(found.table.loc["stuck", "ess"]) < 64


def test_samplers_refuse_what_they_can_not_fit():
    many = trj.problems.variable_selection(7)
    for method in ("automix", "VI TRJ"):
        with pytest.raises(ConfigurationError, match="too many models"):
            trj.ClassicalSampler(many, method)
    trj.ClassicalSampler(many, "VI CTP")
    dark = trj.Target(
        [
            trj.Model(name, {"x": Normal(0.0, 1.0)}, trj.BlackBox(lambda p: -0.5 * p["x"] ** 2))
            for name in ("a", "b")
        ]
    )
    with pytest.raises(ConfigurationError, match="gradient"):
        trj.ClassicalSampler(dark, "VI CTP")


def test_samplers_that_do_not_apply_are_named():
    found = trj.compare_samplers(
        trj.problems.variable_selection(7), ["automix"], budget=1.0, progress=False
    )
    assert "too many models" in found.table.loc["automix", "note"]
    assert found.results["automix"] is None
    with pytest.raises(ConfigurationError, match="'default' or one of"):
        trj.compare_samplers(toys.gaussians(), ["nuts"])
    with pytest.raises(ConfigurationError, match="budget"):
        trj.compare_samplers(toys.gaussians(), budget=0)


@pytest.mark.slow
def test_coal_mining_to_a_hundredth():
    """And until R-hat is 1.02: what it costs is counted in calls, which other jobs don't change."""
    target = trj.problems.coal_mining()
    exact = np.array(list(target.truth.probabilities.values()))
    with warnings.catch_warnings():
        warnings.simplefilter("error", CoverageWarning)
        result = trj.TRJSampler(target, seed=30).run(until={"probability": 0.01}, progress=False)
    table = result.model_probabilities(full=True)
    assert (table["visits_se"] <= 0.01).all()
    assert (np.abs(table["visits"] - exact) < 4.5 * table["visits_se"]).all()
    assert result.report.evaluations < 25_000_000


@pytest.mark.slow
@pytest.mark.planned
def test_the_memory_of_k_after_a_fit():
    """Coal mining: AutoMix 38, Green's automatic sampler 118, his problem-specific one 68."""
    sampler = trj.TRJSampler(trj.problems.coal_mining(), seed=1)
    begun = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TRJWarning)
        sampler.fit(steps=1000, progress=False)
        assert time.monotonic() - begun <= 120
        result = sampler.run(draws=1500, fit=True, progress=False)
    index = result.model_index().T[:, :, None].astype(float)
    assert emcee.autocorr.integrated_time(index, tol=0, quiet=True).item() <= 10
    assert result.autocorrelation_time() <= 20  # by the spread of the chains' means


@pytest.mark.whole
def test_moves_between_modes_are_one_in_four_inside_a_model():
    """They are dearer than a walk; both modes, and both models, still get their weights."""
    wide, narrow = Normal(0.0, 5.0), Normal(0.0, 0.3)

    def two_modes(p):
        right, left = narrow.log_prob(p["x"] - 4), narrow.log_prob(p["x"] + 4)
        return torch.logaddexp(right + math.log(0.3), left + math.log(0.7))

    ratio = math.exp(-(4**2) / (2 * (5.0**2 + 0.3**2)))  # of the evidences
    target = trj.Target(
        [
            trj.Model("two modes", {"x": wide}, two_modes),
            trj.Model("one mode", {"y": wide}, lambda p: narrow.log_prob(p["y"])),
        ],
        truth=trj.Truth({"two modes": ratio / (1 + ratio), "one mode": 1 / (1 + ratio)}),
    )
    result = trj.TRJSampler(target, seed=6).run(draws=400, chains=64, progress=False)
    rates, steps = result.report.acceptance, result.report.steps
    crossings = rates["modes"]["proposals"] / 64  # of a step that has one or a walk
    assert abs(crossings / steps - 0.25) < 5 * (0.25 * 0.75 / steps) ** 0.5
    assert rates["walk"]["proposals"] / 64 == steps - crossings
    check(result)
    x = result.draws("two modes")["x"]
    assert abs((x > 0).mean() - 0.3) < 0.05 and set(np.sign(x)) == {-1.0, 1.0}


@pytest.mark.whole
def test_a_precision_that_was_missed_is_said(tmp_path):
    sampler = trj.TRJSampler(toys.gaussians(), seed=1)
    with pytest.warns(trj.errors.ConvergenceWarning, match=r"until was not reached: probability ±"):
        result = sampler.run(200, until={"probability": 1e-6}, progress=False)
    assert "of 1e-06; some" in result.report.missed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TRJWarning)
        few = sampler.run(5, chains=3, until={"probability": 0.01}, progress=False)
    assert few.report.missed == "5 draws a chain"
    result.save(tmp_path / "run.pt")
    assert trj.load(tmp_path / "run.pt").report.missed == result.report.missed
    assert sampler.run(200, until={"probability": 0.2}, progress=False).report.missed == ""


@pytest.mark.whole
@pytest.mark.planned
def test_a_comparison_keeps_to_its_budget(monkeypatch):
    """Maps that would train for longer are left half trained, and the note says so."""
    traces, train = [], trj.compare.classical.train
    monkeypatch.setattr(
        trj.compare.classical, "train", lambda *a, **k: traces.append(train(*a, **k))
    )
    found = trj.compare_samplers(
        trj.problems.robust_regression(), ["spline TRJ"], budget=2.0, progress=False
    )
    (trace,) = traces
    assert trace.stopped == "out of time" and trace.step[-1] <= Policy().fit.training.steps / 2
    assert "left time for" in found.table.loc["spline TRJ", "note"]
