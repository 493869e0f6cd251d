"""Variational inference by name, fit(by="vi") and run(fit="vi"): no draws but the map's."""

import math

import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from tests import toys
from tests.battery import check
from trjmcmc.draws import Draws
from trjmcmc.errors import ConfigurationError
from trjmcmc.fit import ReverseKL
from trjmcmc.fit import trainer as trainer_module
from trjmcmc.fit.starts import keep_better, lower_bounds

QUICK = {"steps": 40, "batch": 64, "progress": False}


def sampler(target=None, make=trj.transport.RealNVP, **settings):
    target = toys.gaussians() if target is None else target
    return trj.TRJSampler(target, make, seed=1, **settings)


def refuses_draws(monkeypatch):
    def covering(*arguments):
        raise AssertionError("the map learns from draws")

    monkeypatch.setattr(trainer_module, "covering", covering)


@pytest.mark.parametrize("audit", [True, pytest.param(False, marks=pytest.mark.whole)])
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
    assert sampler(many, trj.transport.CosmicFlow).fit(audit=False, **QUICK).by == "vi"


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_a_result_through_a_map_that_nobody_audited_says_so():
    """Where models are weighed through it; with a control of one that was."""

    def jumps(target, transport):
        jump = trj.kernel.Jump(target, transport, trj.kernel.Fixed(target.space))
        return trj.kernel.Cycle([jump, trj.kernel.RandomWalk(target)])

    target = sampler().target
    made = trj.TRJSampler(target, kernel=jumps, seed=1)
    made.fit(by="vi", audit=False, **QUICK)
    result = made.run(draws=200, chains=32, progress=False)
    assert result.report.unaudited and "map not audited" in str(result.report)
    assert result.evidence(full=True)["verdict"].str.endswith("map not audited").all()
    alone = str(made.variational)
    assert "not audited" in alone and "no doubts" not in alone
    assert made.more(draws=10, progress=False).report.unaudited
    made = trj.TRJSampler(target, kernel=jumps, seed=1)
    made.fit(by="vi", **QUICK)
    assert not made.run(draws=200, chains=32, progress=False).report.unaudited


def plain():
    black = trj.BlackBox(lambda p: -0.5 * p["a"].sum(-1) ** 2)
    return trj.Target([trj.Model("m", {"a": Normal(torch.zeros(2), 1.0)}, black)])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sampler().fit(by="flow"), r"by: expected one of \('pilot', 'vi'\), got 'flow'"),
        (lambda: sampler().fit(by="vi", pilot=True), "it takes no pilot draws"),
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
        trial = trj.transport.RealNVP(target.space, layers=2, hidden=(8,))
        trial.standardise(codes, torch.full((2, 2), where), torch.full((2, 2), 0.5))
        tried.append(trial)
    bounds = torch.stack([lower_bounds(target, t, codes, generator) for t in tried])
    assert bounds.argmax(0).tolist() == [0, 1]
    kept = trj.transport.RealNVP(target.space, layers=2, hidden=(8,))
    keep_better(kept, tried, bounds)
    found = lower_bounds(target, kept, codes, generator)  # p(model) is a half, the evidence one
    assert torch.allclose(found, torch.full((2,), math.log(0.5)).double(), atol=1e-3)
    whole = trj.transport.CosmicFlow(target.space, layers=2)
    others = [trj.transport.CosmicFlow(target.space, layers=2) for _ in range(2)]
    others[1].standardise(codes, torch.ones(2, 2), torch.ones(2, 2))
    keep_better(whole, others, torch.tensor([[0.0, -math.inf], [-1.0, -1.0]]))
    assert torch.equal(whole.loc, others[1].loc)  # one for all: the sum of the bounds decides


@pytest.mark.whole
def test_a_run_by_vi_moves_through_its_map_and_says_so(clock):
    made = sampler(trj.problems.sinh_arcsinh(), trj.transport.ConditionalRealNVP)
    result = made.run(draws=300, max_seconds=60, fit="vi", progress=False)
    assert made.fit_trace.by == "vi"
    assert result.report.plan.weights["map"] > 0
    assert "map" in result.report.acceptance
    assert "by variational inference" in str(result.report)
    check(result, result.chains.truth)


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_a_run_by_vi_trains_by_vi_after_another_fit():
    made = sampler()
    made.fit(by="pilot", **QUICK)
    made.run(draws=20, chains=32, fit="vi", max_evaluations=30_000, progress=False)
    assert made.fit_trace.by == "vi"


# ---- what a fit may take ------------------------------------------------------------------------


@pytest.mark.whole
@pytest.mark.parametrize("most", [4000, 20_000])
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_few_evaluations_go_to_one_training(most):
    made = sampler()
    trace = made.fit(by="vi", max_evaluations=most, audit=False, batch=64, progress=False)
    assert trace.step and made.account.evaluations <= most
    result = sampler().run(fit="vi", max_evaluations=most, progress=False)
    assert result.report.evaluations <= most


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_short_time_goes_to_one_training(clock):
    """A likelihood of 30 ms: neither the search for places nor trainings outlive the limit."""

    def slow(p):
        clock.reading += 0.03
        return -0.5 * p["a"].square().sum(-1)

    target = trj.Target(
        [trj.Model(n, {"a": Normal(torch.zeros(k), 1.0)}, slow) for n, k in (("b", 1), ("c", 3))]
    )
    begun = clock.reading
    made = sampler(target)
    result = made.run(max_seconds=6, fit="vi", progress=False)
    assert clock.reading - begun < 7 and result.report.seconds["fit"] <= 3


@pytest.mark.whole
def test_steps_of_trials_are_no_more_than_those_of_the_fit():
    made = sampler()
    made.fit(by="vi", audit=False, steps=2, batch=16, progress=False)
    few = made.account.evaluations
    made = sampler()
    made.fit(by="vi", audit=False, steps=2, batch=1016, progress=False)
    assert made.account.evaluations - few < 5 * 2 * 1000 * 1.2


def test_an_interruption_in_a_trial_ends_the_fit(monkeypatch):
    calls = []

    def interrupted(*arguments, **options):
        calls.append(options.get("transport"))
        return trj.fit.FitTrace(step=[50], stopped="interrupted")

    made = sampler()
    monkeypatch.setattr(type(made._known.trainer), "_train", interrupted)
    trace = made.fit(by="vi", audit=False, **QUICK)
    assert trace.stopped == "interrupted" and trace.by == "vi" and len(calls) == 1


# ---- what is said of the map's own answer -------------------------------------------------------


@pytest.mark.whole
def test_a_cross_entropy_fills_spare_coordinates():
    """A map that moves them knows nothing of the zeros that are recorded there: .5 nats each."""
    target = trj.problems.sinh_arcsinh()
    made = sampler(target, trj.transport.ConditionalRealNVP)
    made.fit(by="vi", audit=False, **QUICK)
    g = torch.Generator().manual_seed(1)
    code, z = torch.zeros(4000, 1).long(), torch.randn(4000, 2, generator=g)
    theta = trj.problems.SinhArcsinhMap(target.space).push(z, code)[0]
    theta = torch.where(target.space.active(code), theta, 0.0)
    draws = Draws(code[None], theta[None], target.log_joint(code, theta)[None])
    found = made.variational.against(draws).cross_entropy.value
    with torch.no_grad():
        filled = -made.transport.log_prob(made.transport.with_spares(theta, code), code).mean()
        zeros = -made.transport.log_prob(theta, code).mean()
    chosen = -math.log(made.variational.probabilities["1d"])
    assert found == pytest.approx(float(filled) + chosen, abs=1e-3)
    assert abs(found - float(zeros) - chosen) > 0.2
