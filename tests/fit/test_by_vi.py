"""Variational inference by name, fit(by="vi") and run(fit="vi"): no draws but the map's."""

import math

import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from tests import toys
from tests.battery import check
from trjmcmc.errors import ConfigurationError
from trjmcmc.fit import ReverseKL
from trjmcmc.fit import trainer as trainer_module
from trjmcmc.fit.starts import keep_better, lower_bounds

QUICK = {"steps": 40, "batch": 64, "progress": False}


def sampler(target=None, make=trj.RealNVP, **settings):
    target = toys.gaussians() if target is None else target
    return trj.TRJSampler(target, make, seed=1, **settings)


def refuses_draws(monkeypatch):
    def covering(*arguments):
        raise AssertionError("the map learns from draws")

    monkeypatch.setattr(trainer_module, "covering", covering)


@pytest.mark.parametrize("audit", [True, False])
def test_a_map_trained_by_vi_sees_no_draws(audit, monkeypatch):
    refuses_draws(monkeypatch)
    made = sampler()
    assert made.fit(by="vi", audit=audit, **QUICK).by == "vi"
    assert (made.audit_report is not None) is audit  # it judges, and teaches nothing


def test_a_fit_says_what_it_was_by():
    assert sampler().fit(**QUICK).by == "pilot"
    assert sampler().fit(by="pilot", **QUICK).by == "pilot"
    assert sampler().fit(pilot=False, audit=False, **QUICK).by == "vi"
    draws = {m: {"a": torch.full((500, n), 0.5)} for m, n in (("one", 1), ("three", 3))}
    assert sampler().fit(pilot=draws | {"none": {}}, audit=False, **QUICK).by == "draws"
    made = sampler()
    assert made.fit(objective=ReverseKL(made.target), audit=False, **QUICK).by == "objective"
    many = trj.problems.variable_selection(8)
    assert sampler(many, trj.CosmicFlow).fit(audit=False, **QUICK).by == "vi"


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_a_result_through_a_map_that_nobody_audited_says_so():
    made = sampler()
    made.fit(by="vi", audit=False, **QUICK)
    result = made.run(draws=50, chains=32, fit=True, progress=False)
    assert result.report.unaudited and "map not audited" in str(result.report)
    assert result.evidence()["verdict"].str.endswith("map not audited").all()
    made = sampler()
    made.fit(by="vi", **QUICK)
    result = made.run(draws=50, chains=32, fit=True, progress=False)
    assert not result.report.unaudited
    assert not result.evidence()["verdict"].str.contains("audited").any()


def plain():
    black = trj.BlackBox(lambda p: -0.5 * p["a"].sum(-1) ** 2)
    return trj.Target([trj.Model("m", {"a": Normal(torch.zeros(2), 1.0)}, black)])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sampler().fit(by="flow"), r"by: expected one of \('pilot', 'vi'\), got 'flow'"),
        (lambda: sampler().fit(by="vi", pilot="emcee"), "it takes no pilot draws"),
        (lambda: sampler().fit(by="pilot", pilot=False), "it needs pilot draws"),
        (lambda: sampler().fit(by="vi", objective=object()), "by, objective: give one"),
        (lambda: sampler(plain(), None).fit(by="vi"), "needs the gradient of the likelihood"),
        (lambda: sampler().run(10, fit="flow"), 'fit: expected "auto", "vi", True or False'),
    ],
)
def test_what_contradicts_itself_is_refused(call, message):
    with pytest.raises(ConfigurationError, match=message):
        call()


def test_each_model_goes_on_from_its_better_start(generator):
    """Two far apart: one start reaches the first model, the other one the second."""
    target = trj.Target(
        [
            trj.Model(name, {"x": Normal(torch.full((2,), where), 0.5)}, lambda p: 0 * p["x"][:, 0])
            for name, where in (("left", -30.0), ("right", 30.0))
        ]
    )
    codes, tried = target.space.enumerate(), []
    for where in (-30.0, 30.0):
        trial = trj.RealNVP(target.space, layers=2, hidden=(8,))
        trial.standardise(codes, torch.full((2, 2), where), torch.full((2, 2), 0.5))
        tried.append(trial)
    bounds = torch.stack([lower_bounds(target, t, codes, generator) for t in tried])
    assert bounds.argmax(0).tolist() == [0, 1]
    kept = trj.RealNVP(target.space, layers=2, hidden=(8,))
    keep_better(kept, tried, bounds)
    found = lower_bounds(target, kept, codes, generator)  # p(model) is a half, the evidence one
    assert torch.allclose(found, torch.full((2,), math.log(0.5)).double(), atol=1e-3)
    whole = trj.CosmicFlow(target.space, layers=2)
    others = [trj.CosmicFlow(target.space, layers=2) for _ in range(2)]
    others[1].standardise(codes, torch.ones(2, 2), torch.ones(2, 2))
    keep_better(whole, others, torch.tensor([[0.0, -math.inf], [-1.0, -1.0]]))
    assert torch.equal(whole.loc, others[1].loc)  # one for all: the sum of the bounds decides


def test_a_run_by_vi_moves_through_its_map_and_says_so(clock):
    made = sampler(trj.problems.sinh_arcsinh(), trj.ConditionalRealNVP)
    result = made.run(draws=300, max_seconds=60, fit="vi", progress=False)
    assert made.fit_trace.by == "vi"
    assert result.report.plan.weights["jump"] > 0.1
    moved, trained = str(result.report).splitlines()[:2]
    assert moved.startswith("moved by ") and "jump in" in moved
    assert trained.endswith("variational inference, without draws")
    check(result, result.truth)
