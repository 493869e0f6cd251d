"""What the sampler makes of a run in rounds."""

import math
import os
import signal
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from tests import toys
from tests.result.said import said_by
from tests.run.test_rounds import sums
from trjmcmc import clock
from trjmcmc.errors import (
    ConfigurationError,
    ConvergenceWarning,
    InterruptedWarning,
    LimitWarning,
    NonFiniteError,
    TRJError,
    TRJWarning,
)
from trjmcmc.run.plan import Plan
from trjmcmc.run.recipes.counts import CountsRecipe

QUICK = Plan(particles=1600, moves=6, climbs=2000)


def sampled(target, seed=1, **settings):
    sampler = trj.TRJSampler(target, seed=seed, plan=QUICK)
    return sampler, sampler.run(progress=False, **settings)


@pytest.fixture(scope="module")
def whole():
    """A run that is done, and its sampler."""
    return sampled(trj.problems.sinh_arcsinh())


@pytest.fixture(scope="module")
def other():
    """The same by another seed."""
    return sampled(trj.problems.sinh_arcsinh(), seed=2)[1]


@pytest.fixture(scope="module")
def whole_of_counts():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LimitWarning)  # and rightly
        return sampled(counted()[0])


def test_a_seed_has_one_answer(whole, other):
    _, first = whole
    _, again = sampled(trj.problems.sinh_arcsinh())
    assert torch.equal(first.raw.theta, again.raw.theta)
    assert first.model_probabilities(full=True).equals(again.model_probabilities(full=True))
    assert not torch.equal(first.raw.code, other.raw.code)


def test_probabilities_and_evidences_are_right(whole):
    _, result = whole
    table, exact = result.model_probabilities(full=True), result.chains.truth.probabilities
    for route in ("visits", "importance", "combined"):
        gap = table[route] - [exact[m] for m in table.index]
        assert bool((gap.abs() < 4.4 * table[f"{route}_se"]).all())
    assert float(table["combined_se"].max()) <= 0.01 and (table["note"] == "").all()
    evidence = result.evidence(full=True)
    assert {"importance", "bridge", "combined"} <= set(evidence)
    gap = evidence["combined"] - [result.chains.truth.log_evidence[m] for m in evidence.index]
    assert bool((gap.abs() < 4.4 * evidence["combined_se"]).all())
    assert result.report.judged.doubt == "" and not said_by(result)
    assert "was found with probability 0.95" in str(result.report)


def test_a_limit_gives_the_beginning_of_the_run(whole):
    """By a clock that jumps at the second look: the first one's draws, and errors that cover."""
    _, result = whole
    sampler = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=1, plan=QUICK)
    ticks = iter(range(10**9))
    with clock.read_from(lambda: float(next(ticks))), pytest.warns(ConvergenceWarning) as said:
        early = sampler.run(max_seconds=1.0, progress=False)
    assert early.report.out_of_time and early.raw.n_draws < result.raw.n_draws
    assert len(said) == 1
    table, exact = early.model_probabilities(full=True), early.chains.truth.probabilities
    gap = table["visits"] - [exact[m] for m in table.index]
    assert bool((gap.abs() < 5 * table["visits_se"]).all())


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")  # one look of many
def test_a_run_goes_on():
    """As the run would have that asked for as much at once, bit for bit."""
    sampler, first = sampled(toys.gaussians())
    asked = {"until": lambda draws: draws.n_draws > first.raw.n_draws}
    more = sampler.more(**asked, progress=False)
    _, at_once = sampled(toys.gaussians(), **asked)
    assert torch.equal(more.raw.theta, at_once.raw.theta)
    assert more.raw.n_draws > first.raw.n_draws
    most = sampler.more(draws=20, progress=False)
    assert most.raw.n_draws >= more.raw.n_draws + 20
    assert most.report.evaluations > 0
    limited = sampler.more(max_evaluations=2000, draws=10**6, progress=False)
    assert limited.report.budget_spent and limited.report.evaluations <= 2000
    longer = sampler.more(draws=10, progress=False)  # from the last look
    assert longer.raw.n_draws >= limited.raw.n_draws + 10
    with pytest.raises(ConfigurationError, match="asked of run"):
        sampler.more(until={"detection": 1e-5}, progress=False)


def constant(name):
    return trj.Model(name, {"x": Normal(0.0, 1.0)}, lambda p: 0 * p["x"])


@pytest.mark.parametrize(  # of one group, fewer than groups, more
    "chains", [5, *(pytest.param(n, marks=pytest.mark.whole) for n in (1, 300))]
)
def test_chains_and_draws_are_those_that_are_stated(chains):
    _, result = sampled(trj.problems.sinh_arcsinh(), draws=70, chains=chains)
    assert (result.raw.n_chains, result.raw.n_draws) == (chains, 70)
    table, exact = result.model_probabilities(), result.chains.truth.probabilities
    gap = table["probability"] - [exact[m] for m in table.index]
    assert bool((gap.abs() < 5 * table["se"]).all())
    assert set(result.report.acceptance) >= {"normals", "walk"}


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")  # by chance
def test_draws_are_thinned():
    target = toys.gaussians()
    made = trj.TRJSampler(target, kernel=gaussian_kernel(target), seed=1)
    kept = made.run(draws=20, chains=16, thin=4, warmup=30, progress=False).raw
    assert kept.thin == 4 and kept.n_draws == 20
    with pytest.raises(ConfigurationError, match="thin >= 1"):
        sampled(toys.gaussians(), thin=0)


def test_an_end_by_draws_is_the_beginning_of_a_longer_run():
    sampler, first = sampled(toys.gaussians(), draws=20, chains=32)
    more = sampler.more(draws=30, progress=False)
    _, at_once = sampled(toys.gaussians(), draws=50, chains=32)
    assert more.raw.n_draws == 50 and torch.equal(more.raw.theta, at_once.raw.theta)
    assert first.raw.n_draws == 20


@pytest.mark.parametrize(
    ("until", "reached"),
    [
        ({"log_bayes_factor": 0.05}, lambda r: r.model_probabilities()["se"].max() < 0.02),
        ({"rhat": 1.05}, lambda r: r.convergence()["rhat"].max() < 1.06),
        pytest.param(
            lambda draws: draws.n_draws > 36,
            lambda r: r.raw.n_draws > 36,
            marks=pytest.mark.whole,
        ),
    ],
)
def test_every_aim_is_reached(until, reached):
    _, result = sampled(toys.gaussians(), until=until)
    assert reached(result) and not result.report.missed


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_what_was_missed_is_said():
    until = {"log_bayes_factor": 1e-6, "rhat": 1.000001, "probability": 1e-7}
    _, result = sampled(toys.gaussians(), draws=20, chains=64, until=until)
    assert result.raw.n_draws == 20
    assert all(w in result.report.missed for w in ("log Bayes factors", "R-hat", "standard error"))


@pytest.mark.parametrize(
    "until", [{}, {"time": 3}, {"rhat": 0.9}, {"probability": 0}, {"detection": 2}, 0.01]
)
def test_other_aims_are_refused(until):
    with pytest.raises(ConfigurationError, match="until: expected"):
        sampled(toys.gaussians(), until=until)


def test_bayes_factors_of_many_models_are_refused():
    with pytest.raises(ConfigurationError, match="2 to 64 models"):
        sampled(trj.problems.variable_selection(7), until={"log_bayes_factor": 0.1})


def gaussian_kernel(target):
    births = trj.kernel.BirthDeath(target, trj.kernel.Fixed(target.space))
    return trj.kernel.Cycle([births, trj.kernel.RandomWalk(target)])


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_a_kernel_of_the_user_samples_alone():
    target = trj.problems.variable_selection(6)

    def made():
        return trj.TRJSampler(target, kernel=gaussian_kernel(target), seed=2)

    short = [made().run(20, chains=8, progress=False).raw.theta for _ in range(2)]
    assert torch.equal(*short)
    sampler = made()
    found = sampler.run(200, chains=64, progress=False)
    assert set(found.report.acceptance) == {"birth-death", "walk"}
    labels, p = zip(*target.truth.probabilities.items(), strict=True)
    on = target.space.items(torch.stack([target.space.code_of(m) for m in labels])).numpy()
    table = found.inclusion_probabilities(full=True)
    gap = table["probability"] - np.array(p) @ on
    assert bool((gap.abs() < 4.4 * table["se"]).all())
    more = sampler.more(draws=50, progress=False)
    assert more.raw.n_draws == 250


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_a_kernel_starts_where_it_is_told_to():
    """With a control: from the prior the chains are elsewhere after one step."""
    target = trj.problems.variable_selection(6)
    code = torch.ones(5, 6, dtype=torch.long)
    points = trj.fit.Pool(code, torch.zeros(5, target.dim), torch.zeros(5).double())
    sampler = trj.TRJSampler(target, kernel=trj.kernel.Cycle([Stays(), Stays()]), seed=2)
    result = sampler.run(10, chains=20, start=points, progress=False)
    assert bool((result.raw.code == 1).all()) and result.report.start is not None
    assert not bool((sampler.run(10, chains=20, progress=False).raw.code == 1).all())


class Stays(trj.kernel.Kernel):
    name, between, within = "stays", True, True

    def step(self, state, generator):
        return state, []


def test_impossible_models_have_probability_0():
    models = [constant(name) for name in "abc"]
    _, result = sampled(trj.Target(models, model_prior=[0.5, 0.5, 0.0]))
    assert result.model_probabilities()["probability"]["c"] == 0
    table = result.model_probabilities(full=True)
    assert abs(table["importance"]["a"] - 0.5) < 0.05 and table["combined_se"]["a"] < 0.02


def test_points_that_are_none_are_refused_before_anything_is_evaluated():
    target = trj.problems.sinh_arcsinh()
    sampler, before = trj.TRJSampler(target, seed=1), target.evaluations
    with pytest.raises(ConfigurationError, match="start: expected particles"):
        sampler.run(5, start={"1d": {"x": torch.zeros(3)}}, progress=False)
    assert sampler.target.evaluations - before < 10


@pytest.mark.whole
def test_a_list_of_many_models_is_sampled():
    """Two hundred models, their probabilities by hand."""
    sd = 1 + torch.arange(200.0) / 10

    def model(k):
        def log_likelihood(p):
            return Normal(p["x"], 1.0).log_prob(torch.tensor(1.0))

        return trj.Model(f"m{k}", {"x": Normal(0.0, float(sd[k]))}, log_likelihood)

    _, result = sampled(trj.Target([model(k) for k in range(200)]))
    exact = Normal(0.0, (1 + sd**2).sqrt()).log_prob(torch.tensor(1.0)).double().softmax(0)
    visits = torch.bincount(result.raw.code.flatten(), minlength=200).double()
    gap = (visits / visits.sum() - exact).abs()
    assert float(gap.max()) < 4.4 * max(0.003, float(result.model_probabilities()["se"].max()))


def test_items_are_right():
    target = trj.problems.variable_selection(10)
    _, result = sampled(target)
    labels, p = zip(*target.truth.probabilities.items(), strict=True)
    on = target.space.items(torch.stack([target.space.code_of(m) for m in labels])).numpy()
    table = result.inclusion_probabilities(full=True)
    gap = table["probability"] - np.array(p) @ on
    assert bool((gap.abs() < 4.4 * table["se"]).all()) and result.report.judged.doubt == ""


def test_counts_are_right(whole_of_counts):
    _, result = whole_of_counts
    table = result.counts(full=True).droplevel("kind")
    gap = table["probability"] - sums(seen=0.2)[1].numpy()
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
@pytest.mark.parametrize(
    "make", [counted, pytest.param(counted_from_two, marks=pytest.mark.whole), chosen]
)
def test_counts_and_few_subsets_have_evidences(make, request):
    target, exact = make()
    known = make is counted
    _, result = request.getfixturevalue("whole_of_counts") if known else sampled(target)
    labels, table = target.space.label(target.space.enumerate()), result.evidence(full=True)
    gap = table["combined"] - [float(exact[labels.index(m)]) for m in table.index]
    assert len(table) > 2 and bool((gap.abs() < 4.4 * table["combined_se"] + 1e-5).all())
    shares = result.model_probabilities(full=True)
    assert abs(shares["combined"].sum() - 1) < 0.01  # by visits where they were not weighed


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_components_go_on_for_so_many_calls(whole_of_counts):
    sampler, first = whole_of_counts
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
    usual = CountsRecipe.route

    def other(self, through, codes, generator):
        found = usual(self, through, codes, generator)
        return found._replace(log_weights=[w + m for m, w in enumerate(found.log_weights)])

    monkeypatch.setattr(CountsRecipe, "route", other)
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
    sampler, calls[0] = trj.TRJSampler(trj.Target(models), seed=1, plan=QUICK), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TRJWarning)
        with pytest.raises(NonFiniteError) as failed:
            sampler.run(until={"probability": 1e-5}, progress=False)
    found = getattr(failed.value, "result", None)
    assert (found is None) == (after == 10)
    if found is not None:
        assert found.raw.n_draws > 10


# ---- results ------------------------------------------------------------------------------------


def test_results_are_saved_and_merged(whole, other, tmp_path):
    _, result = whole
    result.save(tmp_path / "run.trj")
    loaded = trj.load(tmp_path / "run.trj")
    assert loaded.report.judged == result.report.judged
    assert loaded.model_probabilities(full=True).equals(result.model_probabilities(full=True))
    both = trj.merge([result, other])
    assert both.report.judged.tau == max(r.report.judged.tau for r in (result, other))
    assert both.raw.n_chains == 1024 and not said_by(both)
    assert both.report.judged.doubt == ""


def test_rare_models_have_a_bound(whole):
    """Of a model that no draw has: three over the effective draws, not zero."""
    far = trj.Model("far", {"x": Normal(0.0, 1.0)}, lambda p: 0 * p["x"] - 40.0)
    _, result = sampled(trj.Target([constant("near"), far]))
    table = result.model_probabilities(full=True)
    assert table.loc["far", "visits"] == 0 and 0 < table.loc["far", "visits_se"] < 0.01
    assert np.isclose(table.loc["far", "combined"], math.exp(-40), rtol=0.1)


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_a_kernel_through_a_given_map_has_both_routes():
    """Of a list: visits, and weights through the map; with a control of another answer."""

    def jumps(target, transport):
        jump = trj.kernel.Jump(target, transport, trj.kernel.Fixed(target.space))
        return trj.kernel.Cycle([jump, trj.kernel.RandomWalk(target)])

    target = toys.gaussians()
    made = trj.TRJSampler(
        target, partial(trj.transport.RealNVP, layers=2, hidden=(16,)), kernel=jumps, seed=1
    )
    made.fit(by="vi", steps=100, batch=64, audit=False, progress=False)
    result = made.run(draws=300, chains=64, progress=False)
    table = result.model_probabilities(full=True)
    assert {"visits", "importance", "combined"} <= set(table) and "jump" in result.report.acceptance
    gap = (table["visits"] - table["combined"]).abs()
    assert bool((gap < 5 * table["visits_se"] + 0.02).all())
    assert float((table["visits"] - 1 / 3).abs().max()) > 0.02
