"""Stopping rules, in simulated time."""

import math
import warnings

import pytest
import torch

import trjmcmc as trj
from tests import toys
from tests.clock import simulated
from trjmcmc.draws import Recorder
from trjmcmc.errors import TRJWarning
from trjmcmc.run.choose import Chooser
from trjmcmc.run.policy import Policy, RoundPolicy, StoppingPolicy
from trjmcmc.run.stop import Stop, Verdict


@pytest.fixture
def time():
    with simulated() as found:
        yield found


def recorded(draws, chains=200, seed=0):
    """Independent draws of a fair model indicator."""
    generator = torch.Generator().manual_seed(seed)
    code = torch.randint(2, (draws, chains, 1), generator=generator)
    theta = torch.randn(draws, chains, toys.gaussians().dim, generator=generator)
    recorder = Recorder(draws, code[0], theta[0], 1)
    for here, there in zip(code, theta, strict=True):
        recorder.keep(here, there, torch.randn(chains, generator=generator))
    return recorder


def test_a_run_stops_by_precision_or_by_time(time):
    space = toys.gaussians().space
    assert Stop(space, {"probability": 0.1}).error == 0.1
    stop = Stop(space, {"probability": 0.01}, deadline=10.0)
    assert stop(recorded(10)) is Verdict.GO_ON  # too short to say
    stop = Stop(space, {"probability": 0.01}, deadline=10.0)
    assert stop(recorded(100)) is Verdict.PRECISE and stop.reached  # .5 / sqrt(20 000) = .0035
    stop = Stop(space, {"probability": 0.001}, deadline=10.0)
    assert stop(recorded(100)) is Verdict.GO_ON and not stop.reached
    slow = recorded(100)
    slow._theta += 0.3 * torch.randn(1, 200, 1, generator=torch.Generator().manual_seed(1))
    stop = Stop(space, {"probability": 0.01}, deadline=10.0)
    assert stop(slow) is Verdict.GO_ON  # what a parameter has not seen may matter to it
    assert Stop(space, {"probability": 0.01, "rhat": math.inf}, deadline=10.0)(slow)
    time.seconds = 10.0
    assert stop(recorded(100)) is Verdict.LATE


def test_a_rule_of_the_user_is_a_function_of_the_record(time):
    space = toys.gaussians().space
    for rule in (
        lambda r: r.kept >= 100,
        lambda r: torch.tensor(r.kept >= 100),
    ):
        stop = Stop(space, rule, deadline=10.0)
        assert stop(recorded(99)) is Verdict.GO_ON and stop(recorded(100)) is Verdict.PRECISE
        time.seconds = 10.0
        assert stop(recorded(99)) is Verdict.LATE and stop.missed(torch.zeros(99, 200, 1)) == ""
        time.seconds = 0.0
    for until in ("soon", 3):
        with pytest.raises(trj.errors.ConfigurationError, match="a function of the recorder"):
            Stop(space, until)


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")  # a short run
def test_a_run_ends_by_a_rule_of_the_user():
    sampler = trj.TRJSampler(toys.gaussians(), seed=1)
    result = sampler.run(until=lambda r: r.kept >= 33, chains=16, fit=False, progress=False)
    assert result.raw.n_draws == 33 and result.report.missed == ""


@pytest.mark.parametrize(("now", "verdict"), [(19.9, Verdict.GO_ON), (20.1, Verdict.RETHINK)])
def test_a_run_looks_back_once_in_twice_the_time_it_hoped_for(now, verdict, time):
    stop = Stop(toys.gaussians().space, {"probability": 0.001})
    stop.look_back(10.0, 0.001)
    time.seconds = now
    assert stop(recorded(100)) is verdict
    if verdict is Verdict.RETHINK:  # .0035 is 3.5 times too large: 12.5 times as long
        assert stop.seconds_to_go == pytest.approx(20.1 * 11.5, rel=0.2)
        assert stop(recorded(100)) is Verdict.GO_ON


def test_what_passes_while_nothing_is_recorded_is_left_out(time):
    stop = Stop(toys.gaussians().space, {"probability": 0.001})
    stop.look_back(10.0, 0.001)
    time.seconds = 5.0
    stop.set_aside(4.0)
    time.seconds = 23.9
    assert stop(recorded(100)) is Verdict.GO_ON
    time.seconds = 24.1
    assert stop(recorded(100)) is Verdict.RETHINK
    assert stop.seconds_to_go == pytest.approx(20.1 * 11.5, rel=0.2)


@pytest.mark.parametrize(("hoped", "after"), [(1.0, 10.0), (1000.0, 30.0)])
def test_it_looks_back_neither_too_early_nor_too_late(hoped, after, time):
    """Not within ten seconds, and within a tenth of the time left."""
    stop = Stop(toys.gaussians().space, None, deadline=300.0)
    stop.look_back(hoped, 0.01)
    time.seconds = after - 0.1
    assert stop(recorded(30)) is Verdict.GO_ON
    time.seconds = after + 0.1
    assert stop(recorded(30)) is Verdict.RETHINK


def test_messages_say_how_far_a_run_is(time):
    stop = Stop(
        toys.gaussians().space, {"probability": 0.001}, policy=StoppingPolicy(message_seconds=0)
    )
    time.seconds = 10.0
    stop(recorded(100))
    assert "probability ±" in stop.progress and "s left" in stop.progress
    stop = Stop(toys.gaussians().space, None, deadline=25.0)
    stop(recorded(100))
    assert stop.progress == "about 15 s left"
    assert Stop(toys.gaussians().space, None).so_far() is Verdict.GO_ON
    assert math.isinf(Stop(toys.gaussians().space, None).deadline)


@pytest.mark.whole
@pytest.mark.parametrize("price", [1.0, math.inf])
def test_a_run_further_off_than_hoped_trains_if_that_is_sooner(price, monkeypatch):
    """Sampling shows that the precision is far off: the map is trained, and jumps are measured."""
    policy = Policy(
        training=RoundPolicy(first_round_steps=20, rounds=1),
        stopping=StoppingPolicy(look_back_seconds=0.2, look_back_share=1e-4),
    )
    monkeypatch.setattr(Chooser, "_train", lambda self, best, steps=None: best)
    monkeypatch.setattr(Chooser, "training_price", lambda self: price)
    sampler = trj.TRJSampler(toys.gaussians(), seed=1, policy=policy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TRJWarning)
        until = {"probability": 1e-5}
        result = sampler.run(400, chains=32, until=until, max_seconds=600)
    trained = price < math.inf
    assert result.report.plan.rounds == ([20] if trained else [])
    assert ("jump" in result.report.plan.efficiency) is trained
    assert result.raw.n_draws == 400
