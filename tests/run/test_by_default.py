"""Which runs take rounds though nobody asked for them."""

import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import Exponential, Gamma, Normal

import trjmcmc as trj
from tests.result.said import said_by
from tests.run.test_rounds import FAR, sums
from trjmcmc import clock
from trjmcmc.errors import ConfigurationError, InterruptedWarning, LimitWarning
from trjmcmc.estimate.mean import mean_error
from trjmcmc.pilot.smc import TemperedSMC
from trjmcmc.run.knowledge import Knowledge
from trjmcmc.run.numbers import price
from trjmcmc.run.plan import Plan
from trjmcmc.run.recipes import by_importance, lists
from trjmcmc.run.recipes.base import Known
from trjmcmc.run.recipes.choose import recipe_of
from trjmcmc.run.recipes.graphs import graph_draws


def pair(rows=1, wrap=lambda f: f):
    """A constant and a normal mean, of as many rows."""
    y = torch.linspace(-1.0, 2.0, rows)

    def log_likelihood(p):
        return Normal(p["x"][:, None], 3.0 * rows**0.5).log_prob(y).sum(-1)

    model = trj.Model("mean", {"x": Normal(0.0, 1.0)}, wrap(log_likelihood))
    return trj.Target([trj.Model("none", {}, lambda p: torch.tensor(0.0)), model])


def boxed(function):
    """The same of one point, in NumPy's hands."""
    return trj.BlackBox(lambda p: float(function({"x": torch.tensor([p["x"]])})))


class Outside(torch.autograd.Function):
    """A function that autograd can't look into."""

    @staticmethod
    def forward(ctx, x):
        return -(x**2)

    @staticmethod
    def backward(ctx, outer):
        return outer


@pytest.mark.parametrize("vectorized", [True, False])
def test_a_price_counts_numbers(vectorized):
    y = torch.zeros(1000)

    def log_likelihood(p):
        return Normal(p["x"][..., None], 1.0).log_prob(y).sum(-1)

    model = trj.Model("a", {"x": Normal(0.0, 1.0)}, log_likelihood, vectorized=vectorized)
    few, many = price(pair(10)), price(trj.Target([model]))
    assert few < 1000 < 5000 < many < 50_000
    assert math.isclose(price(pair(2000)) / price(pair(1000)), 2, rel_tol=0.1)


def test_a_likelihood_without_a_gradient_has_a_price():
    model = trj.Model("a", {"x": Normal(0.0, 1.0)}, lambda p: -(p["x"].detach().floor().abs()))
    assert 0 < price(trj.Target([model])) < 1000


@pytest.mark.parametrize(
    "likelihood",
    [
        trj.BlackBox(lambda p: -(p["x"] ** 2)),
        lambda p: Outside.apply(p["x"]),
        lambda p: torch.as_tensor(-(p["x"].detach().numpy() ** 2)),
        lambda p: torch.tensor([-(x**2) for x in p["x"].tolist()]),
    ],
)
def test_what_is_not_of_torch_has_no_price(likelihood):
    model = trj.Model("a", {"x": Normal(0.0, 1.0)}, likelihood)
    assert price(trj.Target([model])) == math.inf


def judged(target, **settings):
    """Whether a run took rounds."""
    result = trj.TRJSampler(target, seed=1).run(progress=False, **settings)
    return result.report.judged is not None


@pytest.fixture(scope="module")
def of_a_pair():
    """A sampler that nobody has told anything, and its run."""
    sampler = trj.TRJSampler(pair(), seed=1)
    return sampler, sampler.run(progress=False)


def test_cheap_lists_take_rounds_and_a_seed_has_one_answer(of_a_pair):
    _, first = of_a_pair
    again = trj.TRJSampler(pair(), seed=1).run(progress=False)
    assert first.report.judged is not None
    assert torch.equal(first.raw.theta, again.raw.theta)
    assert first.model_probabilities(full=True).equals(again.model_probabilities(full=True))


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")  # they are short
@pytest.mark.parametrize(
    "make", [lambda: trj.problems.variable_selection(10), lambda: sums(seen=0.2)[0]]
)
def test_subsets_and_components_take_rounds(make):
    assert judged(make(), draws=10, chains=64)


def test_how_small_a_basin_is_searched_for_can_be_asked_for(of_a_pair):
    sampler, result = of_a_pair
    usual = result.report.judged.detection
    result = trj.TRJSampler(pair(), seed=1).run(until={"detection": usual / 3}, progress=False)
    assert 0 < result.report.judged.detection <= usual / 3
    with pytest.raises(ConfigurationError, match="for lists of models alone"):
        trj.TRJSampler(trj.problems.variable_selection(10)).run(until={"detection": 1e-4})
    with pytest.raises(ConfigurationError, match="asked of run"):
        sampler.more(until={"detection": usual / 9})
    for wrong in ({"detection": 2.0}, {"detection": 1e-4, "probability": 0}):
        with pytest.raises(ConfigurationError, match="between 0 and 1"):
            sampler.run(until=wrong)


def by_name(p, active):
    """Components that are not exchangeable: p(k) is as exp(sum of the squares up to k over 2)."""
    return (p["a"] * torch.arange(1.0, 4.0) * active).sum(-1)


def test_components_that_are_not_exchangeable_move_like_items(clock):
    target = trj.Target(trj.Counts(3, of="a"), {"a": Normal(0.0, 1.0)}, by_name)
    with pytest.warns((LimitWarning, trj.errors.ConvergenceWarning)):
        result = trj.TRJSampler(target, seed=1).run(max_seconds=8.0, progress=False)
    table, exact = result.counts(), torch.tensor([0.0, 0.5, 2.5, 7.0]).softmax(0).numpy()
    assert ((table["probability"] - exact).abs() < 4.9 * table["se"]).all()


def two_kinds():
    """A sum of normal and of exponential components is 2.5 +- .3; p of numbers by quadrature."""
    space = trj.Counts(3, of="a", name="A") + trj.Counts(3, of="b", name="B")
    target = trj.Target(
        space,
        {"a": Normal(0.0, 1.0), "b": Exponential(1.0)},
        trj.Additive(
            {"A": lambda p: p["a"][:, None], "B": lambda p: p["b"][:, None]},
            lambda total, p: Normal(total[:, 0], 0.3).log_prob(torch.tensor(2.5)),
        ),
    )
    grid = torch.linspace(0.0, 40.0, 40_001, dtype=torch.float64)[1:]
    weight = torch.zeros(4, 4, dtype=torch.float64)
    for a in range(4):
        seen = Normal(0.0, math.sqrt(a + 0.09)).log_prob(2.5 - grid).exp()
        weight[a, 0] = Normal(0.0, math.sqrt(a + 0.09)).log_prob(torch.tensor(2.5)).exp()
        for b in range(1, 4):
            weight[a, b] = (seen * Gamma(float(b), 1.0).log_prob(grid).exp()).sum() * 1e-3
    return target, weight / weight.sum()


@pytest.mark.whole
def test_components_of_several_kinds():
    """Normals of all kinds in order: tau 82 -> 6 steps, an answer in 10 s that was NaN after 30."""
    target, p = two_kinds()
    with pytest.warns(LimitWarning):
        result = trj.TRJSampler(target, seed=1).run(progress=False)
    table = result.counts()
    exact = torch.cat([p.sum(1), p.sum(0)]).numpy()
    assert ((table["probability"] - exact).abs() < 4.9 * table["se"]).all()
    assert table["se"].max() < 0.011 and result.report.judged.tau < 30
    evidence = result.evidence(full=True)["combined"]
    apart = evidence["A=1 B=1"] - evidence["A=0 B=1"]
    assert apart == pytest.approx(math.log(p[1, 1] / p[0, 1]), abs=0.1)


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_dear_subsets_black_boxes_and_limited_targets_have_an_answer(clock):
    clock.call = 0.02
    x = torch.zeros(100_000, 3)
    dear = trj.Target(
        trj.Subsets([*"abcdef"], of="b"),
        {"b": Normal(0.0, 1.0)},
        lambda p, active: Normal(p["b"][:, :3] @ x.T, 1.0).log_prob(x[:, 0]).sum(-1),
    )
    assert price(dear) > 300_000
    assert judged(dear, max_seconds=1.0)
    assert judged(pair(wrap=boxed), max_seconds=1.0)
    many = [trj.Model(str(i), {}, lambda p: torch.tensor(0.0)) for i in range(70)]
    assert judged(trj.Target(many), max_seconds=1.0)
    assert judged(trj.Target(many, model_prior=[0.0] + [1 / 69] * 69), max_seconds=1.0)
    uneven = trj.Target(trj.Counts(3, of="a"), {"a": Normal(0.0, 1.0)}, by_name)
    assert judged(uneven, max_seconds=1.0)
    limited = pair()
    limited.limit = 10**7
    assert judged(limited, max_seconds=1.0)


@pytest.mark.planned
def test_dear_evaluations_are_fewer():
    cheap, dear = (
        recipe_of(pair(rows), Plan(), torch.Generator().manual_seed(0)) for rows in (1, 10_000)
    )
    known = Known(draws=None, log_mass=None, log_evidence=torch.zeros(8))
    assert cheap.chains == 512 and cheap.climbs(known) == 40_000
    assert 64 <= dear.chains < 200 and 100 < dear.climbs(known) < 4000
    cheap.begin(), dear.begin()
    assert dear.evaluations < cheap.evaluations / 4


def regressions_of_many_rows(rows):
    """Two conjugate regressions, and the probability of the first."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows, 2, generator=generator)
    y = 0.2 * x[:, 0] + 4.5 / rows**0.5 * 0.6 * x[:, 1] + torch.randn(rows, generator=generator)

    def on(k):
        def log_likelihood(p):
            return Normal(p["b"].view(-1, k) @ x[:, :k].T, 1.0).log_prob(y).sum(-1)

        return trj.Model(str(k), {"b": Normal(torch.zeros(k), 1.0)}, log_likelihood)

    z = x.double()
    precision = z.T @ z + torch.eye(2, dtype=torch.float64)
    moment = z.T @ y.double()
    both = (moment @ torch.linalg.solve(precision, moment) - precision.logdet()) / 2
    one = (moment[0] ** 2 / precision[0, 0] - precision[0, 0].log()) / 2
    return trj.Target([on(1), on(2)]), float(torch.sigmoid(one - both))


@pytest.mark.whole
def test_dear_lists_begin_with_proposals(generator):
    """A list of 20 000 rows takes a tenth of the evaluations, and is right."""
    target, p = regressions_of_many_rows(20_000)
    recipe = recipe_of(target, Plan(), generator)
    known, _ = recipe.begin()
    assert known.proposed and not recipe.climbs(known._replace(poor=True))
    result = trj.TRJSampler(target, seed=1).run(progress=False, max_seconds=60.0)
    row = result.model_probabilities().loc["1"]
    assert result.report.judged is not None and not result.report.judged.doubt
    assert 0.0 < row["se"] < 0.01 and abs(row["probability"] - p) < 4.4 * row["se"] + 0.003
    assert result.report.evaluations < 60_000 and math.isfinite(result.report.judged.detection)


@pytest.mark.whole
def test_a_poor_proposal_leaves_populations(generator, monkeypatch):
    """Of a posterior that a few normals do not reach nothing is taken from them."""
    target, _ = regressions_of_many_rows(20_000)
    monkeypatch.setattr(by_importance, "SURE", 0.0)
    recipe = recipe_of(target, Plan(), generator)
    known, _ = recipe.begin()
    assert len(known.draws.code) == 2 * recipe.plan.taught
    assert not known.poor and not known.proposed


def test_tempering_that_is_ended_takes_the_shortest_way(generator):
    target = trj.problems.sinh_arcsinh()
    asked = [0]

    def ended():
        asked[0] += 1
        return asked[0] > 3

    settings = {"particles": 200, "generator": generator}
    smc = TemperedSMC(target, target.space.enumerate(), ended=ended, **settings)
    run = smc.run()
    whole = TemperedSMC(target, target.space.enumerate(), **settings)
    whole.run()
    assert smc.temperatures <= 2 < whole.temperatures
    assert bool(run.log_evidence.isfinite().all())


def test_a_run_that_ends_in_its_beginning_is_quiet_where_groups_and_routes_agree():
    """By a clock that jumps at each look at it."""
    ticks = iter(range(10**9))
    with clock.read_from(lambda: float(next(ticks))):
        result = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=1).run(
            max_seconds=150.0, progress=False
        )
    assert result.report.out_of_time and result.raw.n_draws == 1
    table, exact = result.model_probabilities(full=True), result.chains.truth.probabilities
    gap = table["combined"] - [exact[m] for m in table.index]
    assert bool((gap.abs() < 4.4 * table["combined_se"]).all())
    assert result.report.judged.short and not said_by(result)
    assert "detection limit unknown" in str(result.report)


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
@pytest.mark.parametrize("times", [1, 9, math.inf])
@pytest.mark.parametrize(("climbs", "factor"), [(1, 4), (2, 2)])
def test_searches_that_always_meet_something_leave_no_error(times, climbs, factor, monkeypatch):
    """After a mode was met as many climbs follow, or three times as many if by one climb alone.

    Where eight of a model are not enough they go on once chains have drawn, and it is said.
    """
    made, endless = [0], times == math.inf

    def lost(recipe, known, m, through, seen, n):
        if m != recipe.with_places[0]:
            return []
        made[0] += 1
        return [SimpleNamespace(met=climbs, log_mass=0.0)] if made[0] <= times else []

    def with_part(recipe, known, m, part):
        draws = known.draws.at(slice(None))
        return known._replace(draws=draws, log_mass=known.log_mass + 0.1)

    monkeypatch.setattr(lists, "lost_parts", lost)
    monkeypatch.setattr(lists, "with_part", with_part)
    result = trj.TRJSampler(pair(), seed=1).run(progress=False, max_seconds=5.0)
    assert bool(result.model_probabilities(full=True)["visits_se"].isna().all()) == endless
    assert ("kept finding" in result.report.judged.doubt) == endless
    assert made[0] >= (8 if endless else factor * times)


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_what_a_search_met_when_time_was_up_is_said(monkeypatch):
    """By a clock that stands still until a search has met something."""
    now = [0.0]

    def lost(recipe, known, m, through, seen, n):
        now[0] = 100.0
        return [SimpleNamespace(met=2, log_mass=0.0)]

    def with_part(recipe, known, m, part):
        return known._replace(log_mass=known.log_mass + 0.1)

    monkeypatch.setattr(lists, "lost_parts", lost)
    monkeypatch.setattr(lists, "with_part", with_part)
    with clock.read_from(lambda: now[0]):
        result = trj.TRJSampler(pair(), seed=1).run(max_seconds=50.0, progress=False)
    assert "kept finding" in result.report.judged.doubt
    assert bool(result.model_probabilities(full=True)["visits_se"].isna().all())
    assert "detection limit unknown" in str(result.report)


def test_errors_of_what_hardly_ever_happens(generator):
    """Their squares are below the smallest number."""
    x = 2e-161 * torch.randn(64, 10, generator=generator, dtype=torch.float64).numpy()
    error, draws = mean_error(x)
    assert 0 < error < 1e-161 and draws > 0


# ---- a trained map ------------------------------------------------------------------------------


def off(result):
    """How far the probability of the mean of one row is from the exact one, in its errors."""
    evidence = Normal(0.0, 10**0.5).log_prob(torch.tensor(-1.0)).exp()
    row = result.model_probabilities().loc["mean"]
    return abs(row["probability"] - float(evidence / (1 + evidence))) / row["se"]


@pytest.mark.parametrize("fit", [pytest.param("vi", marks=pytest.mark.whole), True])
def test_a_trained_map_is_a_move_like_others(fit, monkeypatch):
    """It is measured beside the others, weighs models where it is closer, and is told of."""
    fitted = Knowledge.fit
    monkeypatch.setattr(Knowledge, "fit", lambda *a, **k: fitted(*a, **k, steps=30, batch=64))
    sampler = trj.TRJSampler(pair(), seed=1)
    result = sampler.run(fit=fit, progress=False)
    assert result.report.judged is not None and sampler.fit_trace is not None
    assert sampler.fit_trace.by == ("vi" if fit == "vi" else "pilot")
    weights = result.report.plan.weights
    assert set(weights) == {"normals", "births", "map"} and weights["map"] > 0.01
    assert result.report.fit is sampler.fit_trace and result.report.seconds["fit"] > 0
    assert "map " in str(result.report).splitlines()[0]
    assert off(result) < FAR


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")
def test_ctrl_c_in_a_training_gives_the_draws_of_a_second(monkeypatch):
    made = trj.TRJSampler(pair(), seed=1)
    broken = trj.fit.FitTrace(step=[50], stopped="interrupted")
    monkeypatch.setattr(type(made._known.trainer), "_train", lambda *a, **k: broken)
    with pytest.warns(InterruptedWarning, match="interrupted after"):
        result = made.run(fit="vi", progress=False)
    assert result.report.interrupted and result.raw.n_draws >= 1
    assert "map" not in result.report.plan.weights
    assert made.more(draws=5, progress=False).raw.n_draws > result.raw.n_draws


@pytest.mark.whole
def test_seconds_of_a_training_are_told_once():
    made = trj.TRJSampler(pair(), seed=1)
    made.fit(by="vi", steps=20, batch=32, audit=False, progress=False)
    first = made.run(draws=10, chains=32, progress=False)
    more = made.more(draws=5, progress=False)
    again = made.run(draws=10, chains=32, progress=False)
    assert first.report.seconds["fit"] > 0 and first.report.fit is made.fit_trace
    for later in (more, again):
        assert "fit" not in later.report.seconds and later.report.fit is None


@pytest.mark.whole
def test_what_learnt_q_of_the_models_is_sampled_through_it():
    made = trj.TRJSampler(pair(), models=trj.weights.CategoricalWeights, seed=1)
    made.fit(by="vi", steps=20, batch=32, audit=False, progress=False)
    result = made.run(draws=10, chains=16, progress=False)
    assert made.models is not None and result.report.variational is not None
    assert "map" in result.report.plan.weights


def test_a_map_of_the_user_is_a_move():
    flow = partial(trj.transport.RealNVP, layers=2, hidden=(16,))
    sampler = trj.TRJSampler(pair(), flow, seed=1)
    result = sampler.run(progress=False)
    assert "map" in result.report.plan.weights and result.report.fit is None
    again = trj.TRJSampler(pair(), flow, seed=1).run(progress=False)
    assert torch.equal(result.raw.theta, again.raw.theta)
    assert off(result) < FAR


@pytest.mark.whole
@pytest.mark.parametrize("name", ["variable_selection", "pulses"])
def test_a_trained_map_moves_subsets_and_components(name):
    target = (
        trj.problems.variable_selection(5)
        if name == "variable_selection"
        else trj.problems.pulses(points=20, true=1, most=2, seed=1)
    )
    settings = {"progress": False, "until": {"probability": 0.02}}
    few = Plan(chains=128, particles=400, moves=3, climbs=400)
    sampler = trj.TRJSampler(target, seed=1, plan=few)
    sampler.fit(by="vi", steps=10, batch=64, audit=False, progress=False)
    result = sampler.run(**settings)
    plain = trj.TRJSampler(target, seed=2, plan=few).run(**settings)
    assert "map" in result.report.plan.weights
    ours, others = result.model_probabilities(), plain.model_probabilities()
    gap = (ours["probability"] - others["probability"]).dropna().abs()
    assert gap.max() < FAR * np.hypot(ours["se"].max(), others["se"].max())


# ---- graphs -------------------------------------------------------------------------------------


def network(nodes, weight=0.6, seed=0):
    """A chain of normal variables, and the scores of its graphs."""
    x = torch.randn(200, nodes, generator=torch.Generator().manual_seed(seed))
    for j in range(1, nodes):
        x[:, j] += weight * x[:, j - 1]
    scores = trj.graphs.bge(x)
    return scores, trj.graphs.target(scores)


@pytest.mark.parametrize("nodes", [3, 5, pytest.param(13, marks=pytest.mark.whole)])
def test_graphs_are_drawn_anew_in_rounds(nodes):
    """By layers, and by orders from thirteen nodes on."""
    scores, target = network(nodes)
    first, again = (trj.TRJSampler(target, seed=1).run(progress=False) for _ in range(2))
    assert first.report.judged.detection == 0
    assert "no mode can be lost" in str(first.report) and "graph draws 100%" in str(first.report)
    assert torch.equal(first.raw.code, again.raw.code)
    table, exact = first.inclusion_probabilities(), trj.graphs.exact(scores)
    truth = pd.Series({n: exact.edges.loc[tuple(n.split("->"))] for n in table.index})
    z = (table["probability"] - truth) / table["se"]
    assert z.abs().max() < FAR and table["se"].max() <= 0.01
    other = trj.graphs.exact(network(nodes, seed=1)[0])  # of other data: the control
    apart = pd.Series({n: other.edges.loc[tuple(n.split("->"))] for n in table.index})
    assert ((table["probability"] - apart) / table["se"]).abs().max() > FAR


def test_graphs_that_take_long_to_draw_are_not():
    assert judged(network(2)[1])  # though one of four codes is a cycle
    assert graph_draws(network(21)[1]) is None  # half a minute of sums
    assert graph_draws(network(14, weight=0.0)[1]) is None  # few orders tell so few edges apart
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    assert graph_draws(trj.graphs.network(x, hidden=2)) is None  # parameters
    assert graph_draws(pair()) is None
