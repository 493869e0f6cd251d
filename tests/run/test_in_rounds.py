"""What the sampler makes of a run in rounds."""

import math
import os
import signal
import warnings

import numpy as np
import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from tests import toys
from tests.run.test_rounds import sums
from trjmcmc import clock
from trjmcmc.errors import (
    ConfigurationError,
    ConvergenceWarning,
    InterruptedWarning,
    NonFiniteError,
    TRJError,
    TRJWarning,
)
from trjmcmc.run.plan import Plan
from trjmcmc.run.recipes.counts import Components

QUICK = Plan(particles=1600, moves=6, climbs=2000)


def sampled(target, seed=1, **settings):
    sampler = trj.TRJSampler(target, seed=seed, policy=QUICK)
    return sampler, sampler.run(progress=False, **settings)


@pytest.fixture(scope="module")
def whole():
    """A run that is done, and its sampler."""
    return sampled(trj.problems.sinh_arcsinh())


def test_a_seed_has_one_answer(whole):
    _, first = whole
    _, again = sampled(trj.problems.sinh_arcsinh())
    _, other = sampled(trj.problems.sinh_arcsinh(), seed=2)
    assert torch.equal(first.raw.theta, again.raw.theta)
    assert first.model_probabilities(full=True).equals(again.model_probabilities(full=True))
    assert not torch.equal(first.raw.code, other.raw.code)


def test_probabilities_and_evidences_are_right(whole):
    _, result = whole
    table, exact = result.model_probabilities(full=True), result.truth.probabilities
    for route in ("visits", "importance", "combined"):
        gap = table[route] - [exact[m] for m in table.index]
        assert bool((gap.abs() < 4.4 * table[f"{route}_se"]).all())
    assert float(table["combined_se"].max()) <= 0.01 and (table["note"] == "").all()
    evidence = result.evidence(full=True)
    assert {"importance", "bridge", "combined"} <= set(evidence)
    gap = evidence["combined"] - [result.truth.log_evidence[m] for m in evidence.index]
    assert bool((gap.abs() < 4.4 * evidence["combined_se"]).all())
    assert result.report.judged.doubt == "" and all(d.said for d in result.doubts)
    assert "would have been met with 95 %" in str(result.report)


def test_a_limit_gives_the_beginning_of_the_run(whole):
    """By a clock that jumps at the second look: the first one's draws, and errors that cover."""
    _, result = whole
    sampler = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=1, policy=QUICK)
    ticks = iter(range(10**9))
    with clock.read_from(lambda: float(next(ticks))), pytest.warns(ConvergenceWarning) as said:
        early = sampler.run(max_seconds=1.0, progress=False)
    assert early.report.out_of_time and early.raw.n_draws < result.raw.n_draws
    assert len(said) == 1
    table, exact = early.model_probabilities(full=True), early.truth.probabilities
    gap = table["visits"] - [exact[m] for m in table.index]
    assert bool((gap.abs() < 5 * table["visits_se"]).all())


def test_a_run_goes_on():
    """As the run would have that asked for as much at once, bit for bit."""
    sampler, first = sampled(trj.problems.sinh_arcsinh())
    asked = {"until": {"probability": 0.9 * first.report.reached_error}}
    more = sampler.more(**asked, progress=False)
    _, at_once = sampled(trj.problems.sinh_arcsinh(), **asked)
    assert torch.equal(more.raw.theta, at_once.raw.theta)
    assert more.raw.n_draws > first.raw.n_draws
    most = sampler.more(draws=50, progress=False)
    assert most.raw.n_draws >= more.raw.n_draws + 50
    assert most.report.evaluations > 0
    limited = sampler.more(max_evaluations=2000, draws=10**6, progress=False)
    assert limited.report.budget_spent and limited.report.evaluations <= 2000
    longer = sampler.more(draws=10, progress=False)  # from the last look
    assert longer.raw.n_draws >= limited.raw.n_draws + 10
    with pytest.raises(ConfigurationError, match="probability"):
        sampled(toys.gaussians())[0].more(until={"rhat": 1.01}, progress=False)


def constant(name):
    return trj.Model(name, {"x": Normal(0.0, 1.0)}, lambda p: 0 * p["x"])


@pytest.mark.parametrize(
    "asked",
    [{"draws": 20}, {"chains": 8}, {"thin": 2}, {"until": {"rhat": 1.01}}, {"until": len}],
)
def test_what_rounds_do_not_take_is_refused(asked):
    with pytest.raises(ConfigurationError, match="in rounds"):
        sampled(toys.gaussians(), **asked)


def test_a_kernel_is_refused():
    target = toys.gaussians()
    kernel = trj.kernel.BirthDeath(target, trj.kernel.Fixed(target.space))
    kernel = trj.kernel.Cycle([kernel, trj.kernel.RandomWalk(target)])
    sampler = trj.TRJSampler(target, kernel=kernel, policy=QUICK)
    with pytest.raises(ConfigurationError, match="no kernel"):
        sampler.run(progress=False)


def test_an_impossible_model_is_refused():
    models = [constant(name) for name in "abc"]
    with pytest.raises(ConfigurationError, match="prior above 0"):
        sampled(trj.Target(models, model_prior=[0.5, 0.5, 0.0]))


def test_items_are_right():
    target = trj.problems.variable_selection(10)
    _, result = sampled(target)
    labels, p = zip(*target.truth.probabilities.items(), strict=True)
    on = target.space.items(torch.stack([target.space.code_of(m) for m in labels])).numpy()
    table = result.inclusion_probabilities(full=True)
    gap = table["probability"] - np.array(p) @ on
    assert bool((gap.abs() < 4.4 * table["se"]).all()) and result.report.judged.doubt == ""


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.LimitWarning")  # and rightly
def test_counts_are_right():
    target, exact = sums(seen=0.2)
    _, result = sampled(target)
    table = result.counts(full=True).droplevel("kind")
    gap = table["probability"] - exact.numpy()
    assert bool((gap.abs() < 4.4 * table["se"]).all())


def counted(least=0):
    sd = (0.25 + torch.arange(float(least), 5.0)).sqrt()
    return sums(seen=0.2, least=least)[0], Normal(0.0, sd).log_prob(torch.tensor(0.2))


def counted_from_two():
    return counted(least=2)


def chosen():
    target = trj.problems.variable_selection(5)
    labels = target.space.label(target.space.enumerate())
    return target, torch.tensor([target.truth.log_evidence[m] for m in labels])


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.LimitWarning")
@pytest.mark.parametrize("make", [counted, counted_from_two, chosen])
def test_counts_and_few_subsets_have_evidences(make):
    target, exact = make()
    _, result = sampled(target)
    labels, table = target.space.label(target.space.enumerate()), result.evidence(full=True)
    gap = table["combined"] - [float(exact[labels.index(m)]) for m in table.index]
    assert len(table) > 2 and bool((gap.abs() < 4.4 * table["combined_se"] + 1e-5).all())
    shares = result.model_probabilities(full=True)
    assert abs(shares["combined"].sum() - 1) < 0.01  # by visits where they were not weighed


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_components_go_on_for_so_many_calls():
    sampler, first = sampled(counted()[0])
    more = sampler.more(max_evaluations=40_000, progress=False)
    assert more.report.budget_spent and 0 < more.report.evaluations <= 40_000
    assert more.raw.n_draws >= first.raw.n_draws
    gap = more.counts(full=True)["probability"].to_numpy() - sums(seen=0.2)[1].numpy()
    assert (np.abs(gap) < 4.4 * more.counts(full=True)["se"].to_numpy()).all()


@pytest.mark.whole
def test_a_bridge_weighs_counts_whose_normals_fit_poorly():
    """Weights of two pulses have no error: the most probable count had no evidence."""
    target = trj.problems.pulses(points=100, true=2, most=4, seed=1)
    result = trj.TRJSampler(target, seed=1).run(progress=False)
    table = result.evidence(full=True)
    assert bool(table["importance_se"].isna().any()) and list(table.index) == ["1", "2", "3", "4"]
    means = torch.nn.functional.one_hot(result.raw.code[..., 0], 5).double().mean(1)[:, 1:]
    visits, error = means.mean(0), means.std(0) / len(means) ** 0.5
    ratio, wide = (visits / visits[1]).log().numpy(), (error / visits).numpy()
    gap = table["combined"].to_numpy() - table.loc["2", "combined"] - ratio
    assert (np.abs(gap) < 4.4 * np.hypot(wide, 2 * table["combined_se"].to_numpy())).all()


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.LimitWarning")
def test_components_whose_normals_say_something_else_are_not_weighed(monkeypatch):
    usual = Components.route

    def other(self, through, codes, generator):
        found = usual(self, through, codes, generator)
        return found._replace(log_weights=[w + m for m, w in enumerate(found.log_weights)])

    monkeypatch.setattr(Components, "route", other)
    _, result = sampled(counted()[0])
    with pytest.raises(TRJError, match="evidence"):
        result.evidence(full=True)
    assert bool(result.model_probabilities(full=True)["visits_se"].notna().all())


# ---- what ends a run before it is done ----------------------------------------------------------


def pressing(after, times=1):
    """A target whose likelihood presses Ctrl-C after so many calls."""
    calls = [0]

    def log_likelihood(p):
        calls[0] += 1
        if after <= calls[0] < after + times:
            os.kill(os.getpid(), signal.SIGINT)
        return Normal(p["x"], 1.0).log_prob(torch.tensor(1.0))

    models = [
        trj.Model(n, {"x": Normal(0.0, s)}, log_likelihood) for n, s in (("a", 1.0), ("b", 3.0))
    ]
    target, calls[0] = trj.Target(models), 0
    return target


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")
def test_ctrl_c_returns_what_there_is():
    with pytest.warns(InterruptedWarning, match="the result holds them"):
        _, result = sampled(pressing(after=700), until={"probability": 0.001})
    assert result.report.interrupted and result.raw.n_draws >= 1
    exact = Normal(0.0, 10**0.5).log_prob(torch.tensor(1.0)) - Normal(0.0, 2**0.5).log_prob(
        torch.tensor(1.0)
    )
    table = result.model_probabilities(full=True).loc["b"]
    assert abs(table["visits"] - torch.sigmoid(exact)) < 5 * table["visits_se"]


def test_ctrl_c_again_ends_the_call():
    with pytest.raises(KeyboardInterrupt):
        sampled(pressing(after=50, times=2))


@pytest.mark.parametrize("after", [10, 1700])
def test_a_density_that_fails_brings_the_draws_so_far(after):
    calls = [-(10**6)]

    def log_likelihood(p):
        calls[0] += 1
        value = Normal(p["x"], 1.0).log_prob(torch.tensor(1.0))
        return value * math.nan if calls[0] > after else value

    models = [trj.Model(n, {"x": Normal(0.0, s)}, log_likelihood) for n, s in (("a", 1), ("b", 3))]
    sampler, calls[0] = trj.TRJSampler(trj.Target(models), seed=1, policy=QUICK), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TRJWarning)
        with pytest.raises(NonFiniteError) as failed:
            sampler.run(until={"probability": 1e-5}, progress=False)
    found = getattr(failed.value, "result", None)
    assert (found is None) == (after == 10)
    if found is not None:
        assert found.raw.n_draws > 10


# ---- results ------------------------------------------------------------------------------------


def test_results_are_saved_and_merged(whole, tmp_path):
    _, result = whole
    result.save(tmp_path / "run.trj")
    loaded = trj.load(tmp_path / "run.trj")
    assert loaded.report.judged == result.report.judged
    assert loaded.model_probabilities(full=True).equals(result.model_probabilities(full=True))
    _, other = sampled(trj.problems.sinh_arcsinh(), seed=5)
    both = trj.merge([result, other])
    assert both.report.judged.tau == max(r.report.judged.tau for r in (result, other))
    assert both.raw.n_chains == 1024 and all(d.said for d in both.doubts)
    assert both.report.judged.doubt == ""


def test_rare_models_have_a_bound(whole):
    """Of a model that no draw has: three over the effective draws, not zero."""
    far = trj.Model("far", {"x": Normal(0.0, 1.0)}, lambda p: 0 * p["x"] - 40.0)
    _, result = sampled(trj.Target([constant("near"), far]))
    table = result.model_probabilities(full=True)
    assert table.loc["far", "visits"] == 0 and 0 < table.loc["far", "visits_se"] < 0.01
    assert np.isclose(table.loc["far", "combined"], math.exp(-40), rtol=0.1)
