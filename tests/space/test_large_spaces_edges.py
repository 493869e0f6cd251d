"""Large spaces at their edges: impossible models, sparse priors, sizes nobody knows, short runs."""

import math
import time

import numpy as np
import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from benchmarks.robust_gibbs import gibbs_robust_selection
from tests import toys
from tests.battery import limit
from tests.logistic_selection import logistic_selection
from trjmcmc.errors import ConfigurationError, TRJError
from trjmcmc.kernel import Cycle, RandomWalk
from trjmcmc.result.answer import variational
from trjmcmc.run.moves import birth_death
from trjmcmc.target.units import prior_units


def small_models(units=4, value=-75.0):
    """Models of two items at most, alike."""
    names = [f"x{i}" for i in range(units)]
    space = trj.Subsets(names, of="beta", prior=lambda size: float(size <= 2))
    return trj.Target(
        space, {"beta": Normal(0.0, 1.0)}, lambda p, active: value + 0.0 * p["beta"].sum(-1)
    )


def test_surrogates_keep_to_possible_models(generator):
    space = small_models().space
    weights = trj.weights.GaussianSurrogateWeights(space)
    for _ in range(5):
        code = weights.explore(64, generator)
        assert int(code.sum(1).max()) <= 2
        weights.learn(code, torch.full((64,), 75.0))
    assert float(weights.log_prob(space.enumerate()).double().exp().sum()) == pytest.approx(1)
    assert int(weights.sample(500, generator).sum(1).max()) <= 2


def test_a_batch_without_a_finite_loss_is_worse_than_all_before():
    weights = trj.weights.CategoricalWeights(toys.conjugate_subsets().space)
    assert float(weights.sound(torch.tensor([75.0, math.inf])).max()) > 75
    assert float(weights.sound(torch.tensor([math.inf, math.nan])).min()) > 75


def test_straight_through_draws_are_zeros_and_ones(generator):
    bits = trj.weights.MeanField(
        toys.conjugate_subsets().space, gradient="straight-through"
    ).relaxed(10_000, generator)
    assert torch.equal(bits.detach(), bits.detach().round())
    assert abs(float(bits.detach().long().double().mean()) - 0.5) < 5 * 0.5 / 30_000**0.5


def test_the_bound_is_one_where_q_reaches_impossible_models(generator):
    target = small_models(8, -10.0)
    answer = variational(
        target,
        trj.weights.UniformWeights(target.space),
        trj.transport.Affine(target.space),
        generator,
    )
    # where it is not zero, q is the posterior: the bound is the log evidence
    assert abs(answer.elbo.value + 10.0) < 4.5 * answer.elbo.std_error < 0.2


@pytest.mark.slow
def test_the_error_of_the_cross_entropy_knows_that_draws_are_correlated():
    target = toys.conjugate_subsets()
    sampler = trj.TRJSampler(target, models=trj.weights.CategoricalWeights, seed=3)
    sampler.fit(steps=20, pilot=False, audit=False, progress=False)
    result = sampler.run(draws=300, chains=16, progress=False)
    found = result.report.variational.cross_entropy
    every = max(1, -(-result.raw.n_chains * result.raw.n_draws // 8192))
    code, theta = result.raw.code[:, ::every], result.raw.theta[:, ::every]
    with torch.no_grad():
        log_q = sampler.transport.log_prob(theta.flatten(0, 1), code.flatten(0, 1))
        log_q = (log_q + sampler.models.log_prob(code.flatten(0, 1))).view(16, -1)
    between = float(log_q.mean(1).std()) / 4
    assert found.value == pytest.approx(float(-log_q.mean()), abs=1e-4)
    assert 0.4 * between < found.std_error < 2.5 * between


def test_units_of_the_prior_where_items_are_rare():
    space = trj.Subsets(["a", "b"], of="beta", prior=1e-4)
    target = trj.Target(space, {"beta": Normal(0.0, 1000.0)}, lambda p, active: p["beta"].sum(-1))
    assert torch.allclose(prior_units(target)[1], torch.tensor(1000.0), rtol=0.2)


@pytest.mark.slow
def test_a_space_of_unknown_size():
    target = trj.problems.robust_selection("mid", p=7, seed=1)
    known = trj.TRJSampler(target, seed=2).run(200, chains=128, progress=False)
    target.space.size = None
    result = trj.TRJSampler(target, seed=2).run(200, chains=128, progress=False)
    tables = [r.inclusion_probabilities(full=True) for r in (known, result)]
    gap = tables[0]["probability"].to_numpy() - tables[1]["probability"].to_numpy()
    error = np.hypot(*(t["se"].to_numpy() for t in tables))
    assert np.nanmax(np.abs(gap[1:] / error[1:])) < limit(7)
    sampler = trj.TRJSampler(target, models=trj.weights.Made, seed=2)
    sampler.fit(steps=5, audit=False, progress=False)
    assert len(sampler.variational.probabilities)


def test_nothing_to_choose():
    space = trj.Subsets(["a"], of="beta", always=["a"])
    target = trj.Target(space, {"beta": Normal(0.0, 1.0)}, lambda p, active: -p["beta"].sum(-1))
    sampler = trj.TRJSampler(target, models=trj.weights.Made, seed=0)
    sampler.fit(steps=3, audit=False, progress=False)
    assert not sampler.variational.kind  # no q(m) of one model


def test_data_augmentation_takes_the_prior_of_the_target():
    tight, wide = (
        gibbs_robust_selection(
            trj.problems.robust_selection("mid", prior, p=4, seed=0), draws=300, burn_in=50
        ).mean(0)
        for prior in ("focused", "wide")
    )
    assert (wide[:2] < tight[:2]).all()  # a wide prior asks more of a column
    with pytest.raises(ConfigurationError, match="robust_selection"):
        gibbs_robust_selection(logistic_selection(3))


@pytest.mark.whole
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: logistic_selection(60), marks=pytest.mark.slow),
        lambda: trj.problems.conjugate_selection(100),
    ],
    ids=["60 columns", "100 columns"],
)
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")  # it is a short run
def test_a_time_limit_holds_where_models_are_dear(make):
    target = make()
    begun = time.monotonic()
    result = trj.TRJSampler(target, seed=1).run(max_seconds=6, progress=False)
    assert result.raw.n_draws >= 1
    assert time.monotonic() - begun < 15  # twice, and more, for a busy machine


def alike(prior, units=4):
    names = [f"x{i}" for i in range(units)]
    return trj.Target(
        trj.Subsets(names, of="beta", prior=prior),
        {"beta": Normal(0.0, 1.0)},
        lambda p, active: 0.3 * active.sum(-1) + 0.0 * p["beta"].sum(-1),
    )


@pytest.mark.whole
@pytest.mark.parametrize(
    ("prior", "always", "never"),
    [
        (0.0, "0000", "1111"),
        (1.0, "1111", "0000"),
        ([0.5, 0.2, 0.0, 1.0], "0001", "0010"),
        (lambda size: float(size == 4), "1111", "0000"),
        (lambda size: float(size == 0), "0000", "1111"),
        (lambda size: float(size in {1, 3}), "0000", "0000"),
    ],
)
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")  # they are short runs
def test_what_the_prior_says_for_certain_has_no_error(prior, always, never):
    target = alike(prior)
    for known, said in zip(target.space.certain(), (always, never), strict=True):
        assert known.tolist() == [c == "1" for c in said]
    table = (
        trj.TRJSampler(target, seed=1)
        .run(draws=60, progress=False)
        .inclusion_probabilities(full=True)
    )
    sure = np.array([a == "1" or n == "1" for a, n in zip(always, never, strict=True)])
    assert (table["probability"][sure] == np.array([c == "1" for c in always])[sure]).all()
    assert (table["se"][sure] == 0).all() and (table["se"][~sure] > 0).all()


def test_every_space_says_what_its_prior_leaves_open():
    counts = trj.Counts(4, 1, of="a", prior=[0.0, 0.5, 0.5, 0.0]) + trj.Counts(2, of="b")
    target = trj.Target(
        counts,
        {"a": Normal(0.0, 1.0), "b": Normal(0.0, 1.0)},
        lambda p, active: 0.0 * p["a"].sum(-1),
    )
    always, never = target.space.certain()
    assert always.tolist() == [True, True, False, False, False, False]
    assert never.tolist() == [False, False, False, True, False, False]
    always, never = trj.problems.sinh_arcsinh().space.certain()
    assert always.tolist() == [True, False] and not never.any()


@pytest.mark.whole
@pytest.mark.parametrize("units", [4, 20])  # all models can be looked at, or not
def test_reweighting_refuses_models_that_had_no_prior(units):
    target = alike([0.5] * (units - 1) + [0.0], units)
    kernel = Cycle([birth_death(target, None), RandomWalk(target)])
    result = trj.TRJSampler(target, kernel=kernel, seed=1).run(400, fit=False, progress=False)
    with pytest.raises(TRJError, match=r"no prior probability, the new prior does; run again"):
        result.reweight(lambda code: 0.5 * code.double().sum(-1))
    found = result.reweight(
        lambda code: torch.where(code[:, -1] == 0, 0.5 * code.double().sum(-1), -math.inf)
    )
    table = found.inclusion_probabilities()
    z = (table["probability"] - 1 / (1 + math.exp(-0.8)))[:-1] / table["se"][:-1]
    assert float(z.abs().max()) < limit(units) and float(table["probability"].iloc[-1]) == 0


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")  # 30 draws of 64 chains
def test_shares_of_weighed_models_carry_the_error_of_what_they_share():
    target = trj.problems.conjugate_selection(p=8, seed=1)
    sampler = trj.TRJSampler(
        target, trj.transport.LaplaceMap(target), seed=1
    )  # models are weighed by a map
    result = sampler.run(draws=30, chains=64, progress=False)
    table = result.model_probabilities(full=True)
    weighed = table["combined"].notna()
    assert 2 < weighed.sum() < len(table)
    whole = result._evidences.whole
    assert 0 < whole.value < 1 and whole.std_error > 0
    for route in ("combined", "importance"):
        assert table[route][weighed].sum() == pytest.approx(whole.value, rel=0.05)
        relative = (table[f"{route}_se"] / table[route])[weighed]
        assert (relative >= 0.999 * whole.std_error / whole.value).all()


@pytest.mark.whole
def test_results_print_in_few_lines(clock):
    sampler = trj.TRJSampler(trj.problems.conjugate_selection(p=10), seed=1)
    sampler.fit(steps=20, progress=False)
    assert "approximate" in str(sampler.variational) and "x5 " in str(sampler.variational)
    assert "run() measures how far off" in str(sampler.variational)
    result = sampler.run(max_seconds=3, progress=False)
    report = str(result.report)
    assert "run() measures how far off" not in report and "largest inclusion error" in report
    assert "likelihoods" in report and "% between models" in report and len(report) < 2000
    assert len(repr(result.predict(lambda p, active: p["beta"].sum(-1)))) < 120
    assert repr(result.predict(lambda p, active: p["beta"])).startswith("Prediction of shape (10,)")
    ax = result.plot_inclusion()
    assert [t.get_text() for t in ax.get_yticklabels()] == [f"x{i}" for i in range(1, 11)]
    bars = [bar.get_width() for bar in ax.patches]
    assert bars == pytest.approx(result.inclusion_probabilities()["probability"].tolist())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: trj.Subsets(["a"], of="b", prior=lambda a: a.sum()), "gets how many units are on"),
        (lambda: trj.Subsets(["a"], of="b", prior="a"), "expected one number"),
        (lambda: trj.Subsets(["a"], of="b", prior=None), "expected one number"),
        (lambda: trj.Subsets(4, of="b"), "expected one name an item, got 4"),
        (lambda: trj.TRJSampler(alike(0.5), models="made"), "got 'made'"),
    ],
)
def test_spaces_that_are_stated_wrongly_are_refused_by_name(make, message):
    with pytest.raises(TRJError, match=message):
        make()
