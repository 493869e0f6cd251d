"""Time limits are kept, and Ctrl-C returns what there is, whenever it comes."""

import math
import os
import signal
import threading
import time
import warnings

import numpy as np
import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from benchmarks.limits import many_models
from tests import toys
from trjmcmc.clock import read_from
from trjmcmc.errors import ConvergenceWarning, CoverageWarning, InterruptedWarning
from trjmcmc.pilot import smc as tempering
from trjmcmc.pilot.audit import Audit
from trjmcmc.pilot.smc import TemperedSMC

pytestmark = pytest.mark.planned

GRACE = 1.5  # seconds: these tests share their machine
quiet = pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")


def timed(target, budget, now=time.monotonic, **settings):
    """A run that is limited, and by how much it overran its limit."""
    sampler = trj.TRJSampler(target, seed=1)
    begun = now()
    result = sampler.run(max_seconds=budget, progress=False, **settings)
    return result, now() - begun - budget


# ---- time -----------------------------------------------------------------------------------


@pytest.mark.whole
@quiet
@pytest.mark.parametrize("make", [many_models, trj.problems.coal_mining])
def test_a_small_budget_is_kept_and_brings_an_answer(make, clock):
    clock.call = 2e-3  # trials of threads cost batches, and no time
    result, over = timed(make(), 6.0, clock)
    assert over < 800 * clock.call  # what was begun is ended: a trajectory of each model, a search
    table = result.model_probabilities(full=True)
    if result.chains.truth is not None:  # by the groups, whose spread its errors count
        exact = [result.chains.truth.probabilities[m] for m in table.index]
        assert not ((table["visits"] - exact).abs() > 5 * table["visits_se"]).any()
    assert (table["visits_se"].notna() | (table["note"] != "")).all()


@pytest.mark.whole
@quiet
def test_a_training_with_its_audit_keeps_its_budget(clock):
    result, over = timed(trj.problems.coal_mining(), 4.0, clock, fit=True)
    assert over < 0.5
    assert result.raw.n_draws >= 1
    assert result.report.fit is not None


@quiet
def test_a_beginning_leaves_calls_for_chains(clock):
    """Calls are few and time is ample."""
    sampler = trj.TRJSampler(toys.gaussians(), seed=1)
    result = sampler.run(max_evaluations=6000, max_seconds=20.0, progress=False)
    assert result.raw.n_draws >= 10 and result.report.evaluations <= 6000


@pytest.mark.whole
@quiet
@pytest.mark.parametrize(("make", "budget"), [(toys.gaussians, 1.0), (many_models, 3.0)])
def test_a_second_is_enough_for_something(make, budget):
    """In real time, as the two tests before and after it are in simulated time."""
    result, over = timed(make(), budget)
    assert over < GRACE + 0.1 * budget and result.raw.n_draws >= 1


# ---- tempered runs --------------------------------------------------------------------------


def test_a_tempered_run_is_done_in_time(generator, clock):
    target = trj.problems.sinh_arcsinh()
    smc = TemperedSMC(target, target.space.enumerate(), particles=200, generator=generator)
    begun = clock.seconds
    run = smc.run(deadline=begun + 0.5)
    assert clock.seconds - begun < 0.5 + 40 * clock.call  # moves that were begun are ended
    assert float(run.log_evidence.abs().max()) < 1.0


def test_a_tempered_run_without_time_still_has_draws(generator, clock):
    target = trj.problems.sinh_arcsinh()
    audit = Audit(target, target.space.enumerate(), particles=50, generator=generator)
    audit.grow(0, deadline=clock.seconds)
    assert audit.hurried  # and so no verdict rests on it
    theta, log_joint, _ = audit.draw(torch.tensor([0, 1, 1]))
    assert bool(theta.isfinite().all() and log_joint.isfinite().all())


def test_moves_that_were_not_made_leave_the_weights_whole(generator):
    target = trj.problems.sinh_arcsinh()
    smc = TemperedSMC(
        target, target.space.enumerate(), particles=50, gradients=False, generator=generator
    )
    now = smc._next_generation(smc._prior_population())
    for _ in range(7):
        smc._move(now, "walk")
    now.cut()
    assert now.complete and now.theta.shape[1] == 50 * 8
    assert torch.allclose(now.weight.sum(1), torch.ones(2, dtype=torch.float64))


def test_stored_points_are_bounded(generator, monkeypatch):
    target = trj.problems.sinh_arcsinh()

    def evidence(most):
        monkeypatch.setattr(tempering, "STORED_NUMBERS", most)
        smc = TemperedSMC(
            target,
            target.space.enumerate(),
            particles=2000,
            moves=10,
            generator=generator,
        )
        run = smc.run()
        index = run.draw(torch.ones(2000, dtype=torch.long), generator)
        return len(run.row), run.log_evidence, run.theta[index].mean(0)

    whole, z, mean = evidence(math.inf)
    fewer, z_again, again = evidence(600_000)
    assert fewer * (target.dim + 8) <= 600_000 < whole * (target.dim + 8)
    # means of runs have a spread of .09, and their differences one of .13: five of these
    assert torch.allclose(z, z_again, atol=0.5) and torch.allclose(mean, again, atol=0.65)


# ---- Ctrl-C ---------------------------------------------------------------------------------


def interrupting(at):
    """A sampler of two normals, during whose ``at``-th likelihood the user presses Ctrl-C."""
    calls = [-math.inf]  # until it is set to 0

    def log_likelihood(p):
        calls[0] += 1
        if calls[0] == at:
            signal.raise_signal(signal.SIGINT)
        return Normal(p["mu"], 1.0).log_prob(torch.tensor(1.0))

    models = [
        trj.Model(n, {"mu": Normal(0.0, s)}, log_likelihood)
        for n, s in zip("ab", (1, 3), strict=True)
    ]
    sampler = trj.TRJSampler(trj.Target(models), seed=1)
    calls[0] = 0
    return sampler, calls


def assert_there_is_something(result, said):
    assert result.report.interrupted
    assert result.raw.n_draws >= 1
    assert float(result.model_probabilities(full=True)["visits"].sum()) == pytest.approx(1)
    assert sum(issubclass(w.category, InterruptedWarning) for w in said) in (1, 2)


@pytest.mark.whole
@pytest.mark.parametrize("settings", [{}, {"fit": True}, {"fit": False}])
@pytest.mark.parametrize("at", [1, 2, 3, 9, 60, 400, 1000])
def test_ctrl_c_in_a_likelihood_returns_what_there_is(at, settings):
    sampler, calls = interrupting(at)
    begun = time.process_time()
    with warnings.catch_warnings(record=True) as said, read_from(time.process_time):
        warnings.simplefilter("always")
        result = sampler.run(chains=32, progress=False, max_seconds=20, **settings)
    assert calls[0] >= at and time.process_time() - begun < 20
    assert_there_is_something(result, said)


def test_ctrl_c_again_ends_the_run():
    def log_likelihood(p):
        log_likelihood.calls += 1
        if log_likelihood.calls > 4:
            raise KeyboardInterrupt
        return Normal(p["mu"], 1.0).log_prob(torch.tensor(1.0))

    log_likelihood.calls = -1000
    models = [trj.Model(n, {"mu": Normal(0.0, 1.0)}, log_likelihood) for n in "ab"]
    sampler, log_likelihood.calls = trj.TRJSampler(trj.Target(models), seed=1), 0
    with pytest.raises(KeyboardInterrupt):
        sampler.run(chains=8, progress=False)


@pytest.mark.whole
@pytest.mark.parametrize("after", [0.05, 0.4, 1.1])
@pytest.mark.parametrize("fit", ["auto", True])
def test_a_signal_at_any_time_returns_what_there_is(after, fit):
    sampler = trj.TRJSampler(trj.problems.coal_mining(), seed=1)
    alarm = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        alarm.start()
        try:
            result = sampler.run(chains=32, fit=fit, progress=False)
        finally:
            alarm.cancel()
    assert_there_is_something(result, said)


@pytest.mark.whole
@quiet
def test_a_report_says_where_time_was_up_before_the_draws(clock):
    """Silent where there was time, and where the number of draws was left open."""
    short, _ = timed(toys.gaussians(), 6.0, clock, draws=10**6)
    enough, _ = timed(toys.gaussians(), 1e3, clock, draws=20)
    free, _ = timed(toys.gaussians(), 6.0, clock)
    assert "were up before 1000000 draws" in str(short.report) and short.raw.n_draws < 10**6
    assert not any("were up before" in str(r.report) for r in (enough, free))


@pytest.mark.parametrize("calls", [12_000, 40_000])
def test_few_calls_of_a_black_box_over_components_leave_steps_to_their_chains(calls):
    """Values near 1, independent, so that each component multiplies the evidence alike."""

    def near_one(p, active):
        return float(-0.5 * np.sum((p["value"][active] - 1.0) ** 2) / 0.3**2)

    space = trj.Counts(3, 0, of="value")
    target = trj.Target(space, {"value": Normal(0.0, 1.0)}, trj.BlackBox(near_one))
    width = 1 + 0.3**2
    factor = 0.3 * width**-0.5 * math.exp(-0.5 / width)
    truth = factor ** np.arange(4)
    truth /= truth.sum()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = trj.TRJSampler(target, seed=1).run(max_evaluations=calls, progress=False)
    table = result.model_probabilities()
    z = (table["probability"] - truth) / table["se"]
    assert result.report.evaluations <= calls
    assert z.abs().max() < 4.5 and table["se"].max() < 0.3 * (12_000 / calls) ** 0.5


def test_a_black_box_that_is_impossible_counts_as_nothing_and_costs_no_more():
    """It once sent a default run to two million calls, and every error was NaN."""
    data, normal = np.array([1.0, 0.5, 0.8]), Normal(0.0, 1.0)

    def mean(p):
        return float(-0.5 * np.sum((data - p["x"]) ** 2))

    target = trj.Target(
        [
            trj.Model("one", {"x": normal}, trj.BlackBox(mean)),
            trj.Model(
                "two",
                {"x": normal, "y": normal},
                trj.BlackBox(lambda p: mean(p) - float(p["y"]) ** 2),
            ),
            trj.Model("none", {"x": normal}, trj.BlackBox(lambda p: -math.inf)),
        ]
    )
    said = "no draw of 'none' has a finite likelihood"
    with warnings.catch_warnings(), pytest.warns(ConvergenceWarning, match=said):
        warnings.simplefilter("ignore", CoverageWarning)
        result = trj.TRJSampler(target, seed=1).run(max_evaluations=4000, progress=False)
    table = result.model_probabilities()
    truth = np.array([3**0.5, 1.0, 0.0]) / (1 + 3**0.5)
    z = (table["probability"] - truth) / table["se"]
    assert (
        z.abs().max() < 4.5 and (table["se"].iloc[:2] < 0.1).all() and 0 < table["se"].iloc[2] < 0.2
    )
