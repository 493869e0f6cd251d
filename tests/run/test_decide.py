"""Decisions of a warm-up: of measurements, prices and seconds, without a chain or a clock."""

import math
import warnings
from dataclasses import replace

import pytest
import torch

import trjmcmc as trj
from tests import toys
from tests.clock import simulated
from trjmcmc import clock
from trjmcmc.errors import TRJWarning
from trjmcmc.kernel import Cycle, RandomWalk, State
from trjmcmc.result.report import Plan
from trjmcmc.run import decide
from trjmcmc.run.bench import Bench
from trjmcmc.run.choice import Choice
from trjmcmc.run.choose import Chooser
from trjmcmc.run.policy import ChainPolicy, ChoicePolicy, Policy, RoundPolicy, SegmentPolicy
from trjmcmc.run.request import Request
from trjmcmc.run.runner import Runner
from trjmcmc.run.segment import Segment


def segment(efficiency, time=10.0, step=0.01, steps=40, **settings):
    return Segment(efficiency, time, step, True, steps, **settings)


def request(*, room=math.inf, **settings):
    usual = Request(
        draws=None,
        chains=512,
        fewest_chains=512,
        most_chains=8192,
        thin=1,
        warmup=None,
        fit="auto",
        until={},
        error=0.01,
        begun=clock.now(),
        deadline=clock.now() + room,
        max_evaluations=None,
        progress=False,
    )
    return replace(usual, **settings)


@pytest.fixture
def time():
    with simulated() as found:
        yield found


@pytest.fixture(scope="module")
def sampler():
    return trj.TRJSampler(toys.gaussians(), seed=1)


def chooser(sampler, asked, chains=512):
    """A chooser of chains at prior draws, which has measured nothing yet."""
    known = sampler._known
    code = known.target.space.sample_prior(chains, known.generator)
    state = trj.kernel.start(known.target, code, known.target.sample_prior(code, known.generator))
    return Chooser(asked, known, state, torch.arange(chains))


# ---- pure decisions -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "time", "best"),
    [(100.0, 10.0, True), (100.0, 30.0, False), (8.0, 10.0, False)],
)
def test_moves_far_ahead_need_no_longer_segment(rate, time, best):
    """Of 40 steps: two autocorrelation times long, and three times ahead of the others."""
    rates = {("a",): 4.0, ("b",): 3.0, ("a", "b"): rate, ("c",): 5.0}
    found = {names: segment(e, time) for names, e in rates.items()}
    assert decide.clearly_best(found, ("a", "b"), ("a", "b"), SegmentPolicy()) is best
    assert not decide.clearly_best(found, ("a",), ("a", "b"), SegmentPolicy())


def test_a_segment_that_told_nothing_saves_nothing():
    """Neither what is there nor what is hoped for has any efficiency: time was too short."""
    assert decide.seconds_saved(segment(0.0), 0.0, math.inf) == 0.0
    assert decide.seconds_saved(segment(1.0), 0.0, 10.0) == 0.0
    assert decide.seconds_saved(segment(1.0), 4.0, 10.0) == 7.5
    assert decide.seconds_saved(replace(segment(1.0), varied=False), 4.0, 10.0) == 0.0


def test_useful_moves_join_and_lead_unless_clearly_worse():
    found = {("a",): segment(100.0), ("b",): segment(11.0), ("c",): segment(9.0)}
    assert decide.useful_moves(found, ["a", "b", "c"], ChoicePolicy()) == ("a", "b")
    found["a", "b"] = segment(81.0)
    assert decide.leader(found, ("a", "b"), ChoicePolicy()) == ("a", "b")
    found["a", "b"] = segment(79.0)
    assert decide.leader(found, ("a", "b"), ChoicePolicy()) == ("a",)


def test_burn_in_takes_autocorrelation_times_within_the_time_left():
    settings = {"times": 3.0, "moves": ChoicePolicy(), "segments": SegmentPolicy()}
    assert decide.burn_in(segment(1.0, time=30.0), room=1e6, **settings) == 90
    assert decide.burn_in(segment(1.0, time=7.0), room=1e6, **settings) == 0  # made already
    assert decide.burn_in(segment(1.0, time=30.0), room=1.0, **settings) == 20  # a fifth of it
    assert decide.burn_in(segment(1.0, time=math.inf), room=math.inf, **settings) == 2000


def test_longer_segments_end_where_they_are_known_or_cost_too_much():
    asked = {"ahead": math.inf, "error": 0.01, "policy": Policy()}
    assert decide.longer_segment(segment(10.0), room=1e3, **asked) == 80
    assert decide.longer_segment(segment(10.0, time=7.0), room=1e3, **asked) is None
    assert decide.longer_segment(segment(10.0), room=1.0, **asked) is None
    slow = segment(10.0, steps=1001, time=1e3)
    assert decide.longer_segment(slow, room=1e6, **asked) is None  # long enough as it is


def test_training_is_not_priced_where_there_is_no_time_for_it():
    training = RoundPolicy(first_round_steps=500, least_step_seconds=0.005, pricing_seconds=3.0)
    assert decide.no_time_to_train(10.9, False, training)
    assert not decide.no_time_to_train(11.1, False, training)
    assert not decide.no_time_to_train(5.1, True, training)
    assert decide.sampling_ends_first(2.4, training) and not decide.sampling_ends_first(
        2.6, training
    )
    assert decide.hope_after_a_round(10.0, 8.0) == 12.5
    assert decide.hope_after_a_round(10.0, 1.0) == decide.hope_after_a_round(10.0, 0.0) == 20.0


def test_chains_are_as_few_as_end_nearly_soonest():
    assert decide.number_of_chains(512, {512: 10.0, 1024: 9.5, 2048: 9.1}, ChainPolicy()) == 512
    assert decide.number_of_chains(512, {512: 10.0, 1024: 5.0, 2048: 4.9}, ChainPolicy()) == 1024
    known = segment(1.0, time=2.0)
    assert decide.may_have_more_chains(known, ChainPolicy(), SegmentPolicy())
    for doubtful in (None, replace(known, varied=False), replace(known, step=0.03)):
        assert not decide.may_have_more_chains(doubtful, ChainPolicy(), SegmentPolicy())
    assert not decide.may_have_more_chains(segment(1.0, time=10.0), ChainPolicy(), SegmentPolicy())


def test_shares_of_the_steps_sum_to_one():
    assert decide.step_shares(3, ChoicePolicy(least_share=0.02)) == pytest.approx(
        [0.94, 0.02, 0.02, 0.02]
    )


# ---- the chooser, with prices that are given ------------------------------------------------


@pytest.mark.parametrize(("price", "decided"), [(6.0, True), (4.0, False)])
def test_no_segment_decides_where_nothing_else_is_to_be_had(
    price, decided, sampler, time, monkeypatch
):
    """Ten seconds left for the choice, of which a round of training may take half."""
    found = chooser(sampler, request(room=10.0 / 0.65, error=0.5))
    found._step_price = 1e-3  # no optimiser has to be imported
    monkeypatch.setattr(found, "training_price", lambda: price)
    slow = segment(1.0, time=1e4)
    found.bench.found = dict.fromkeys([("a",), ("b",), ("a", "b")], slow)
    found.bench.combined = ("a", "b")
    assert found._stands_if_overstated(("a", "b")) is decided


@pytest.mark.parametrize(
    ("quick", "other", "room", "made"),
    [
        ((10.0, 200.0), 5.0, 30.0, ["quick", "fine"]),
        ((10.0, 200.0), 50.0, 30.0, ["quick", "quick"]),  # another move is better than they become
        ((10.0, 200.0), 5.0, 0.15, ["quick", "quick"]),  # no time
        ((10.0, 200.0), 5.0, 0.001, ["quick"]),  # not even for a second quick fit
        ((10.0, 1.0), 5.0, 30.0, ["quick", "quick"]),  # they forget at once already
    ],
)
def test_normals_are_fitted_finely_where_that_may_pay(
    quick, other, room, made, sampler, time, monkeypatch
):
    """Efficiency and autocorrelation time of normals fitted quickly, efficiency of another move."""
    found = chooser(sampler, request(room=room / 0.65))
    found.uses_all_time = True
    found.bench.found = {("other",): segment(other), ("normals",): segment(*quick)}
    fits = []

    def fitted(**sizes):
        fits.append(sizes["components"])
        time.seconds += 5e-3

    monkeypatch.setattr(found.normals, "fitted", fitted)
    monkeypatch.setattr(found.normals, "_offer_better", lambda *_, **__: segment(*quick))
    found._offer_normals()
    normals = Policy().normals
    quickly = dict.fromkeys(normals.quick_components, "quick")
    assert [{**quickly, normals.fine_components: "fine"}[k] for k in fits] == made


@pytest.mark.parametrize(("pace", "priced"), [(0.001, True), (0.05, False)])
def test_a_training_step_is_priced_only_where_the_cheapest_could_save_time(
    pace, priced, sampler, time, monkeypatch
):
    """Twenty seconds ahead until chains forget; through a map .5 s of them at best, or 25 s."""
    found = chooser(sampler, request(until={"probability": 0.01}, times=50.0), chains=32)
    found.bench.found = {("a",): segment(1e5, memory=40.0)}
    asked = []
    monkeypatch.setattr(found, "_step_with_map", lambda: pace)
    monkeypatch.setattr(found, "_round_price", lambda steps: asked.append(steps) or 1e9)
    assert found._train(("a",)) == ("a",)
    assert bool(asked) is priced


def test_the_pace_through_a_map_is_measured_once_for_so_many_chains(sampler, time, monkeypatch):
    found = chooser(sampler, request(), chains=32)
    asked = []
    monkeypatch.setattr(found.bench, "pace", lambda kernel, state, left: asked.append(state) or 2.0)
    assert [found._step_with_map() for _ in range(3)] == [2.0] * 3 and len(asked) == 1
    found.bench.move_to(State(*(x[:16] for x in found.bench.state[:3])))
    assert found._step_with_map() == 2.0 and len(asked) == 2


def test_an_expensive_newcomer_does_not_drive_out_what_was_better_without_it(monkeypatch):
    rates = {("a",): 4.0, ("b",): 3.0, ("a", "b"): 6.0, ("jump",): 2.0, ("a", "b", "jump"): 4.0}
    settings = {"generator": None, "policy": Policy(), "states_kept": 12}
    bench = Bench(toys.gaussians(), None, None, lambda: [], **settings)

    def measured(moves, *_):
        return segment(rates[tuple(m.split()[-1] for m in moves)]), moves

    monkeypatch.setattr(bench, "measure_moves", measured)
    for name in ("a", "b"):
        bench.offer(name, name, 40, 1.0)
    assert bench.leader(40, 1.0) == ("a", "b")
    bench.offer("jump", "jump", 40, 1.0)
    assert bench.leader(40, 1.0) == ("a", "b") and ("a", "b", "jump") in bench.found
    rates["a", "b", "jump"] = 8.0
    bench.offer("b", "better b", 40, 1.0)  # what was measured with the old one is forgotten
    assert ("a", "b") not in bench.found and bench.leader(40, 1.0) == ("a", "b", "jump")


CROWD = State(torch.zeros(512, 1), torch.zeros(512, 2), torch.zeros(512))
OVERHEAD = lambda kernel, state: 1e-3 * (1 + len(state.code) / 4096)  # noqa: E731
WORK = lambda kernel, state: 1e-5 * len(state.code)  # noqa: E731


def chosen(found):
    """A choice of a kernel of which a segment was measured."""
    return Choice(
        kernel=None,
        state=CROWD,
        ancestor=None,
        plan=Plan(),
        steps=400,
        burn_in=0,
        segment=found,
        map=None,
        seen=None,
        hoped_seconds=1.0,
        trainable=True,
    )


def full(kernel, state):
    """The memory of a device, not more than 1024 chains large."""
    if len(state.code) > 1024:
        raise torch.OutOfMemoryError
    return OVERHEAD(kernel, state)


def never(kernel, state):
    raise AssertionError("a step was made")


@pytest.mark.parametrize(
    ("pace", "memory", "most", "room", "expected"),
    [
        (OVERHEAD, 2.0, 8192, 20.0, {4096, 8192}),
        (OVERHEAD, 2.0, 1024, 20.0, {1024}),
        (OVERHEAD, 2.0, 8192, 0.5, {512}),  # new chains would only burn in
        (OVERHEAD, math.inf, 8192, 20.0, {512}),  # stuck
        (OVERHEAD, 100.0, 8192, 20.0, {512}),  # four times as long a segment: not trusted
        (WORK, 2.0, 8192, 20.0, {512}),
        (full, 2.0, 8192, 20.0, {1024}),
        (never, 2.0, 8192, 20.0, {512}),  # steps known to be expensive
    ],
)
def test_more_chains_where_a_step_of_many_costs_hardly_more(
    pace, memory, most, room, expected, sampler, time, monkeypatch
):
    found = chooser(sampler, request(room=room, most_chains=most))
    found.uses_all_time = True
    monkeypatch.setattr(found, "_pace", pace)
    step = 1.0 if pace is never else pace(None, CROWD)
    choice = chosen(Segment(1e3, memory, step, True, 400))
    assert found.chains_for(choice, CROWD) in expected


def test_a_run_that_has_to_be_long_goes_on_with_few_chains(sampler, time, monkeypatch):
    """Each chain must forget its start many times over: the price of a step decides."""
    asked = request(room=600.0, until={"probability": 0.01, "rhat": 1.01}, times=100.0)
    asked = replace(asked, fewest_chains=128, chains=128, most_chains=128)
    found = chooser(sampler, asked, chains=128)
    for pace, chains in ((WORK, 32), (OVERHEAD, 128)):
        monkeypatch.setattr(found, "_pace", pace)
        slow = segment(1e6, 20.0, pace(None, CROWD), 400, memory=20.0)
        choice = chosen(slow)
        wide = State(*(x[:128] for x in CROWD[:3]))
        assert found.chains_for(choice, wide) == chains
    quick = segment(1e3, 1.0, 0.01, 400, memory=1.0)  # wide rather than long
    monkeypatch.setattr(found, "_pace", WORK)
    assert found.chains_for(chosen(quick), wide) == 128


def test_a_run_goes_on_unless_other_moves_end_sooner(sampler, time):
    """They must be other ones, and promise it clearly: promises are kept by half."""
    asked = request(until={"probability": 0.01}, times=20.0)
    mine = Cycle([RandomWalk(sampler.target)])
    other = Cycle([RandomWalk(sampler.target), RandomWalk(sampler.target, name="other")])
    found = replace(chosen(segment(1e3, memory=50.0)), kernel=other)  # 10 s to forget the start
    policy = Policy(choice=ChoicePolicy(broken_promise=1.5))
    assert found.ends_sooner(mine, 15.1, asked, policy)
    assert not found.ends_sooner(mine, 14.9, asked, policy)
    assert not found.ends_sooner(other, 1e9, asked, policy)
    assert not replace(found, segment=None).ends_sooner(mine, 1e9, asked, policy)


# ---- whole runs by a policy -----------------------------------------------------------------


@pytest.mark.whole
@pytest.mark.parametrize(
    ("price", "error", "rounds"), [(0.0, 1e-5, [50]), (math.inf, 1e-5, []), (0.1, 0.05, [])]
)
def test_training_goes_on_only_while_it_saves_time(price, error, rounds, monkeypatch):
    """A precision so high that training pays, and training that costs too much."""
    training = RoundPolicy(first_round_steps=50, rounds=1, hoped_efficiency=1e3)
    monkeypatch.setattr(Chooser, "_round_price", lambda self, steps: price)
    policy = Policy(training=training)
    sampler = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=1, policy=policy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TRJWarning)
        result = sampler.run(draws=50, chains=64, until={"probability": error}, progress=False)
    assert result.report.plan.rounds == rounds


@pytest.mark.whole
@pytest.mark.planned
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")  # short runs
def test_a_run_goes_on_with_more_chains(clock, monkeypatch):
    steps, advance = [], Runner._advance
    choices, settle = [], Runner._warm_up_chosen

    def warmed(self, state, n, until):
        steps.append(n)
        return advance(self, state, n, until)

    def settled(self, choice, warmup):
        choices.append(choice)
        return settle(self, choice, warmup)

    monkeypatch.setattr(Runner, "_advance", warmed)
    monkeypatch.setattr(Runner, "_warm_up_chosen", settled)
    monkeypatch.setattr(Chooser, "chains_for", lambda self, choice, state: 2048)
    sampler = trj.TRJSampler(toys.gaussians(), seed=4)
    result = sampler.run(until={"rhat": 1.0001}, max_seconds=4, progress=False)
    assert result.raw.n_chains == 2048
    # new chains make the steps that others have made
    assert steps[-1] >= choices[-1].steps >= SegmentPolicy().least_steps
    sampler.run(max_seconds=2, warmup=300, progress=False)
    assert steps[-1] >= 300
    # a number that is given is kept, and so is one of so many draws
    assert sampler.run(max_seconds=2, chains=100, progress=False).raw.n_chains == 100
    assert sampler.run(50, progress=False).raw.n_chains == 256


def test_training_leaves_time_to_sample(monkeypatch):
    sampler, seen = trj.TRJSampler(toys.gaussians()), {}
    monkeypatch.setattr(sampler._known, "fit", lambda **limits: seen.update(limits) or 1 / 0)
    with simulated(5.0), pytest.raises(ZeroDivisionError):
        sampler.run(fit=True, max_seconds=100, progress=False)
    assert seen["deadline"] == seen["mend_until"] == 5.0 + 75.0
