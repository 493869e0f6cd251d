"""Time limits are kept, and Ctrl-C returns what there is, whenever it comes."""

import math
import os
import signal
import threading
import time
import warnings

import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from benchmarks.limits import many_models
from tests import toys
from trjmcmc.clock import read_from
from trjmcmc.draws import Recorder
from trjmcmc.errors import InterruptedWarning
from trjmcmc.estimate.convergence import LEAST_DRAWS
from trjmcmc.pilot.audit import Audit
from trjmcmc.pilot.policy import TemperingPolicy
from trjmcmc.pilot.smc import TemperedSMC
from trjmcmc.run.choose import Chooser
from trjmcmc.run.interrupts import import_whole, uninterrupted
from trjmcmc.run.runner import Runner
from trjmcmc.run.start import with_climbs
from trjmcmc.run.weighing import Weighing

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
    assert over < 0.5
    assert result.raw.n_draws >= LEAST_DRAWS
    table = result.model_probabilities(full=True)
    assert (table["visits_se"].notna() | (table["note"] != "")).all()


def test_climbs_to_starts_end_with_their_time(clock):
    """A climb of six models took nineteen of six seconds where a likelihood takes its time."""
    target = toys.gaussians()
    code = target.space.sample_prior(64, torch.Generator().manual_seed(0))
    theta, ancestor = torch.zeros(64, target.dim), torch.arange(64)
    took = []
    for seconds in (0.0, 0.05, math.inf):
        begun = clock.seconds
        generator = torch.Generator().manual_seed(1)
        with_climbs(target, code, theta, ancestor, generator, begun + seconds)
        took.append(clock.seconds - begun)
    assert took[0] < 0.01 and took[1] < 0.1 < took[2], took


@pytest.mark.whole
@quiet
def test_a_training_with_its_audit_keeps_its_budget(clock):
    result, over = timed(trj.problems.coal_mining(), 4.0, clock, fit=True)
    assert over < 0.5
    assert result.raw.n_draws >= 1
    assert result.report.fit is not None


@quiet
def test_time_does_not_let_a_warm_up_spend_the_calls_of_sampling():
    """Calls are few and time is ample: it was a BudgetError in the warm-up."""
    sampler = trj.TRJSampler(toys.gaussians(), seed=1)
    result = sampler.run(max_evaluations=6000, max_seconds=20.0, progress=False)
    assert result.raw.n_draws >= 20 and result.report.evaluations <= 6000


@pytest.mark.whole
@quiet
@pytest.mark.parametrize(("make", "budget"), [(toys.gaussians, 1.0), (many_models, 3.0)])
def test_a_second_is_enough_for_something(make, budget):
    """In real time, as the two tests before and after it are in simulated time."""
    result, over = timed(make(), budget)
    assert over < GRACE + 0.1 * budget and result.raw.n_draws >= 1


@quiet
def test_summing_up_is_within_the_limit(clock, monkeypatch):
    """What it takes is learnt by a rehearsal, as slow as the last one."""
    warn = trj.Result.warn

    def slow(self):
        clock.seconds += 0.4 + 2e-6 * self.raw.n_draws * self.raw.n_chains
        warn(self)

    monkeypatch.setattr(trj.Result, "warn", slow)
    result, over = timed(toys.gaussians(), 6.0, clock, chains=64)
    assert over < 0.6
    assert result.raw.n_draws >= 20


def test_a_recorder_that_is_bound_thins_evenly():
    state = torch.zeros(2, 1, dtype=torch.long), torch.zeros(2, 1)
    recorder, step = Recorder(None, *state, thin=1), 0
    for bound in (None, 200):
        if bound:
            recorder.bound(bound)
        for _ in range(401):
            step += recorder.thin
            recorder.keep(*state, torch.full((2,), float(step)))
    kept = recorder.draws().log_joint[0]
    assert len(kept) <= 200 and recorder.thin >= 4
    assert bool((kept.diff()[-50:] == recorder.thin).all())
    fixed = Recorder(300, *state, thin=1)
    fixed.bound(10)
    assert fixed.most == 300


# ---- tempered runs --------------------------------------------------------------------------


def test_a_tempered_run_is_done_in_time(generator):
    target = trj.problems.sinh_arcsinh()
    smc = TemperedSMC(target, target.space.enumerate(), particles=200, generator=generator)
    smc.deadline = time.monotonic() + 0.5
    begun = time.monotonic()
    run = smc.run()
    assert time.monotonic() - begun < 0.5 + GRACE
    assert float(run.log_evidence.abs().max()) < 1.0


def test_a_tempered_run_without_time_still_has_draws(generator):
    target = trj.problems.sinh_arcsinh()
    audit = Audit(target, target.space.enumerate(), particles=50, generator=generator)
    audit.grow(0, deadline=time.monotonic())
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


def test_stored_points_are_bounded(generator):
    target = trj.problems.sinh_arcsinh()

    def evidence(most):
        smc = TemperedSMC(
            target,
            target.space.enumerate(),
            particles=2000,
            moves=10,
            generator=generator,
            policy=TemperingPolicy(most_stored_numbers=most),
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
            raise KeyboardInterrupt
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
@pytest.mark.parametrize("at", [1, 2, 3, 9, 60, 400, pytest.param(1500, marks=pytest.mark.whole)])
def test_ctrl_c_in_a_likelihood_returns_what_there_is(at, settings):
    sampler, calls = interrupting(at)
    begun = time.process_time()
    with warnings.catch_warnings(record=True) as said, read_from(time.process_time):
        warnings.simplefilter("always")
        result = sampler.run(chains=32, progress=False, max_seconds=20, **settings)
    assert calls[0] >= at and time.process_time() - begun < 20
    assert_there_is_something(result, said)


def test_ctrl_c_between_the_weighings_of_two_models(monkeypatch):
    sampler, _ = interrupting(math.inf)
    weigh = Weighing.weigh

    def once(self, code, label, draws=None):
        if self.log_mass:
            raise KeyboardInterrupt
        weigh(self, code, label, draws)

    monkeypatch.setattr(Weighing, "weigh", once)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = sampler.run(chains=32, draws=20, fit=False, progress=False)
    assert_there_is_something(result, said)


@pytest.mark.parametrize("at", [3, 40, 300])
def test_ctrl_c_where_components_are_counted(at):
    calls = [-math.inf]

    def log_likelihood(p, active):
        calls[0] += 1
        if calls[0] == at:
            raise KeyboardInterrupt
        return Normal(torch.where(active, p["a"], 0.0).sum(-1), 0.5).log_prob(torch.tensor(2.0))

    target = trj.Target(trj.Counts(3, of="a"), {"a": Normal(0.0, 1.0)}, log_likelihood)
    sampler, calls[0] = trj.TRJSampler(target, seed=1), 0
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = sampler.run(chains=32, max_seconds=10, progress=False)
    assert_there_is_something(result, said)


def test_ctrl_c_says_where_it_came(clock):
    sampler, _ = interrupting(5)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        sampler.run(chains=32, progress=False)
    (word,) = [w for w in said if issubclass(w.category, InterruptedWarning)]
    assert "interrupted in the pilot run" in str(word.message)
    assert "hardly begun" in str(word.message) and word.filename == __file__


@pytest.mark.whole
def test_ctrl_c_while_summing_up_keeps_all_draws(monkeypatch, clock):
    def stops(*args, **settings):
        monkeypatch.undo()
        raise KeyboardInterrupt

    sampler = trj.TRJSampler(toys.gaussians(), seed=1)
    monkeypatch.setattr(trj.run.report, "through_the_map", stops)
    with pytest.warns(InterruptedWarning, match="interrupted in the summing up.* 50 draws"):
        result = sampler.run(50, chains=64, progress=False)
    assert result.raw.n_draws == 50 and result.report.interrupted


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
def test_ctrl_c_in_the_warm_up_of_more_chains_than_began(monkeypatch):
    advance, chains = Runner._advance, []

    def stops(self, state, steps, until):
        chains.append(len(state.code))
        if len(chains) == 1:
            raise KeyboardInterrupt
        return advance(self, state, steps, until)

    monkeypatch.setattr(Runner, "_advance", stops)
    monkeypatch.setattr(Chooser, "chains_for", lambda self, choice, state: 2 * len(state.code))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = trj.TRJSampler(toys.gaussians(), seed=1).run(
            until={"probability": 0.01}, progress=False
        )
    assert_there_is_something(result, said)
    assert result.raw.n_chains == len(result.raw.ancestor) == chains[0]
    assert str(result.report).startswith("interrupted") and "expected" not in str(result.report)
    result.convergence()


def test_what_must_be_whole_makes_ctrl_c_wait():
    done = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        done.append(True)
    assert done and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    import_whole()
    thread = threading.Thread(target=lambda: done.append(enter()))
    thread.start()
    thread.join()
    assert len(done) == 2


def enter():
    """No thread but the main one may touch signals."""
    with uninterrupted():
        return True


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
