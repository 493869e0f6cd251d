"""The parts of a result alone: none knows the whole."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from tests import toys
from trjmcmc.doubts.convergence import Convergence
from trjmcmc.doubts.doubt import EVERY, warn_of
from trjmcmc.draws import Draws
from trjmcmc.errors import ConfigurationError, TRJError
from trjmcmc.estimate import Estimate
from trjmcmc.estimate.indicator import ModelIndicator
from trjmcmc.result.catalogue import Catalogue
from trjmcmc.result.chains import Chains
from trjmcmc.result.checks import doubted
from trjmcmc.result.evidences import Evidences
from trjmcmc.result.files import Contents, read, write
from trjmcmc.result.parameters import Parameters
from trjmcmc.result.predict import predict
from trjmcmc.result.probabilities import Probabilities
from trjmcmc.result.report import RunReport
from trjmcmc.result.reweight import reweighted


@pytest.fixture(scope="module")
def target():
    return toys.gaussians()


@pytest.fixture(scope="module")
def draws(target):
    """64 chains x 200 draws from p(model) of one, two and three quarters of a unit, x normal."""
    g = torch.Generator().manual_seed(3)
    code = torch.multinomial(torch.tensor([0.5, 0.3, 0.2]), 64 * 200, True, generator=g)
    code = code.view(64, 200, 1)
    active = target.space.active(code.flatten(0, 1)).view(64, 200, -1)
    theta = torch.randn(64, 200, target.dim, generator=g) * active
    return Draws(code, theta, torch.randn(64, 200, generator=g))


@pytest.fixture(scope="module")
def indicator(target, draws):
    return ModelIndicator(target.space, draws)


@pytest.fixture(scope="module")
def convergence(target, indicator):
    return Convergence(indicator, target.slot_names)


@pytest.fixture(scope="module")
def doubts(convergence):
    return doubted(convergence, RunReport(), {"importance": ROUTE}, {})


@pytest.fixture(scope="module")
def evidences(convergence, doubts):
    return Evidences(Chains(convergence, doubts), RunReport(), {"importance": ROUTE}, {"one": 0.1})


ROUTE = {
    m: Estimate(math.log(p) - 7.0, 0.02, 2500.0)
    for m, p in (("none", 0.5), ("one", 0.3), ("three", 0.2))
}


def test_the_indicator_knows_models_and_memory(indicator):
    assert indicator.visited == ["none", "one", "three"] == indicator.models
    assert sum(indicator.inside(m).mean() for m in indicator.visited) == pytest.approx(1)
    assert not indicator.inside("never").any()
    assert (indicator.inside_any(["one", "three"]) == ~indicator.inside("none")).all()
    assert indicator.ess > 5000 and indicator.autocorrelation_time() == pytest.approx(1, abs=0.3)
    with pytest.raises(TRJError, match="no items"):
        indicator.items()


def test_draws_that_forget_raise_no_doubt(doubts, indicator, rng):
    assert not doubts.found and not doubts.tails
    error, note = doubts.widened(0.01, rng.normal(size=(64, 200)))
    assert (error, note) == (0.01, "")
    assert doubts.about("one") == []


def test_chains_that_remember_are_flagged_everywhere(target, draws, rng):
    moved = draws.theta + 9.0 * (torch.arange(64) % 2)[:, None, None]
    stuck = ModelIndicator(target.space, Draws(draws.code, moved, draws.log_joint))
    convergence = Convergence(stuck, target.slot_names)
    found = doubted(convergence, RunReport(), {}, {})
    assert {d.subject for d in found.about("one")} <= {"one", EVERY} and found.about("one")
    e = Chains(convergence, found).visits("one")
    assert e.warning and not e.std_error < 0.05


def test_evidences_and_visits_meet_in_a_table(evidences):
    table = Probabilities(evidences).of_models()
    assert (abs(table["combined"] - [0.5, 0.3, 0.2]) < 5 * table["combined_se"]).all()
    found = evidences.table()
    assert set(found["verdict"]) == {"agree"} and evidences.all_weighed and not evidences.flagged
    assert found.loc["one", "pareto_k"] == 0.1
    factor = evidences.bayes_factor("none", "one", route="combined")
    prior = np.subtract(*evidences.indicator.log_prior(["none", "one"]))
    assert factor.value == pytest.approx(math.exp(math.log(5 / 3) - prior), rel=0.1)


def test_parameters_of_a_model_leave_out_what_it_does_not_use(indicator, doubts, draws):
    padded = draws.theta.clone()
    padded[~indicator.space.active(draws.code.flatten(0, 1)).view_as(padded)] = math.nan
    parameters = Parameters(indicator, doubts, lambda: {"a": padded})
    assert parameters.draws("one")["a"].shape == (int(indicator.inside("one").sum()), 1)
    assert parameters.draws("none") == {}
    assert list(parameters.summary(indicator.models).index) == [
        ("one", "a[0]"),
        *(("three", f"a[{i}]") for i in range(3)),
    ]
    with pytest.raises(TRJError, match="unknown number of components"):
        Catalogue(parameters).table(None, 0.9, 0.05)


def test_other_priors_and_averages_take_parts(target, evidences, doubts):
    other = reweighted(evidences, [0.2, 0.4, 0.4])
    table, old = other.model_probabilities(), evidences.indicator.log_prior(list(ROUTE))
    odds = np.array([0.5, 0.3, 0.2]) * [0.2, 0.4, 0.4] / np.exp(old)
    assert table["probability"].to_numpy() == pytest.approx(odds / odds.sum(), abs=0.02)
    found = predict(doubts, target, lambda p: float("nan") if "a" not in p else p["a"][:, 0])
    assert set(found.by_model) == set(ROUTE) and "NaN" in found.warning
    with pytest.raises(TRJError, match="has no target"):
        predict(doubts, None, lambda p: 0.0)
    with pytest.raises(ConfigurationError, match=r"for NumPy code take p\[\"x\"\]\.numpy\(\)"):
        predict(doubts, target, lambda p: np.ones(2) * p["a"][:, :1] if "a" in p else np.ones(2))


def test_contents_go_to_a_file_and_back(target, draws, tmp_path):
    routes, turns = {"importance": ROUTE}, {"u": (0.0, 1.0)}
    contents = Contents(
        target.space, draws, {}, routes, RunReport(), None, None, {}, ["u"], {}, turns
    )
    write(tmp_path / "run.trj", contents)
    again = read(tmp_path / "run.trj")
    assert torch.equal(again.draws.code, draws.code) and again.routes == contents.routes
    assert again.report == contents.report and again.coarse == {}
    assert again.turns == contents.turns


def test_copies_have_parts_of_their_own(target, draws):
    result = trj.Result(target.space, draws, {}, {"importance": ROUTE}, RunReport(), target=target)
    before = result.model_probabilities(full=True)
    other = copy.copy(result)
    other.report = RunReport(out_of_time=True)
    assert other.target is target and not result.report.out_of_time
    assert other.model_probabilities(full=True).equals(before)
    again = pickle.loads(pickle.dumps(result))
    assert again.target is None and again.model_probabilities(full=True).equals(before)


ROOMS = ("trjmcmc.result", "trjmcmc.doubts", "trjmcmc.estimate")


def test_no_part_holds_the_result(target, draws):
    result = trj.Result(target.space, draws, {}, {"importance": ROUTE}, RunReport())
    warn_of(result.doubts)
    result.summary()
    parts = [x for x in vars(result).values() if type(x).__module__.startswith(ROOMS)]
    assert len(parts) >= 7
    assert not any(y is result for x in parts for y in vars(x).values())


def test_a_parameter_tells_its_kind():
    space = trj.Counts(2, of="x", name="lines") + trj.Counts(2, of="y[nm]", name="bands")
    priors = {"x": Normal(0.0, 1.0), "y[nm]": Normal(0.0, 1.0)}
    target = trj.Target(space, priors, lambda p, active: 0.0 * p["x"].sum(-1))
    code = torch.ones(8, 10, 2, dtype=torch.long)
    draws = Draws(code, torch.zeros(8, 10, 4), torch.zeros(8, 10))
    indicator = ModelIndicator(target.space, draws)
    values = {name: torch.zeros(8, 10, 2) for name in priors}
    convergence = Convergence(indicator, target.slot_names)
    parameters = Parameters(indicator, doubted(convergence, RunReport(), {}, {}), values)
    catalogue = Catalogue(parameters)
    assert catalogue.kind_of("y[nm]") == "bands" and catalogue.kind_of("x") == "lines"


@pytest.fixture
def rng():
    return np.random.default_rng(3)
