"""Runs in shards: the same bits whoever does them, whoever dies, and errors that stay true."""

import math
import multiprocessing
import os
import signal
import threading
import time
import warnings
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from benchmarks.same_draws import components, pair
from tests import toys
from tests.small import small_policy
from trjmcmc.draws import Recorder
from trjmcmc.errors import (
    CheckpointError,
    ConfigurationError,
    InterruptedWarning,
    NonFiniteError,
    PoolError,
    PoolWarning,
    TargetError,
)
from trjmcmc.run import shard_rounds, writing
from trjmcmc.run.shard_rounds import block_draws
from trjmcmc.run.team import told_apart
from trjmcmc.transport.base import Identity

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    monkeypatch.setattr(shard_rounds, "LEAST", 5)


@pytest.fixture(scope="module")
def two_processes():
    with ProcessPoolExecutor(2, mp_context=SPAWN) as pool:
        yield pool


def bimodal():
    """Two modes of one model that walks do not leave."""

    def log_likelihood(p):
        return torch.logaddexp(
            Normal(-9.0, 0.5).log_prob(p["x"]), Normal(9.0, 0.5).log_prob(p["x"])
        )

    return trj.Target([trj.Model("one", {"x": Normal(0.0, 10.0)}, log_likelihood)])


def quick_policy():
    """Evidences by few draws: nothing here asks for them."""
    usual = small_policy()
    return replace(usual, weighing=replace(usual.weighing, most_draws=64, most_of_many=64))


def through_laplace(target):
    """Jumps through maps that remember what they have computed."""
    flow = trj.Laplace(target)
    jump = trj.kernel.Jump(target, flow, trj.kernel.SweepWalk(flow), rho=0.7)
    return trj.kernel.Cycle([jump, trj.kernel.RandomWalk(target)])


def births(target):
    """Births and walks, through nothing that is fitted."""
    fixed = trj.kernel.Fixed(target.space)
    return trj.kernel.Cycle([trj.kernel.BirthDeath(target, fixed), trj.kernel.RandomWalk(target)])


def places(target, n):
    """Points to start at, so that no pilot run is needed."""
    g = torch.Generator().manual_seed(1)
    code = target.space.sample_prior(n, g)
    theta = 0.3 * torch.randn(n, target.dim, generator=g)
    theta = torch.where(target.space.active(code), theta, 0.0)
    return trj.fit.Pool(code, theta, target.log_joint(code, theta).double())


def run(target=None, shards=4, executor=None, draws=18, *, seed=3, kernel=None, **settings):
    target = pair() if target is None else target
    if kernel is None and not target.space.kinds:
        kernel = births
    sampler = trj.TRJSampler(
        target,
        Identity,
        kernel=(lambda t, _: kernel(t)) if kernel else None,
        seed=seed,
        policy=quick_policy(),
    )
    usual = {"chains": 8, "warmup": 5, "fit": False, "progress": False}
    if "start" not in settings and kernel is not None:
        usual["start"] = places(target, 16)
    with warnings.catch_warnings():
        for category in ("Convergence", "Coverage", "Disagreement", "Limit"):
            warnings.simplefilter("ignore", getattr(trj.errors, f"{category}Warning"))
        return sampler.run(draws=draws, shards=shards, executor=executor, **(usual | settings))


def same(a, b):
    for name in ("code", "theta", "log_joint", "run", "ancestor"):
        assert torch.equal(getattr(a.raw, name), getattr(b.raw, name)), name
    for x, y in zip(a.crossings or (), b.crossings or (), strict=True):
        assert torch.equal(x, y)
    assert a.report.acceptance == b.report.acceptance
    return True


# ---- the same bits ------------------------------------------------------------------------------


@pytest.mark.whole
@pytest.mark.parametrize("problem", ["list", "subsets", "components"])
def test_whoever_does_it_the_bits_are_the_same(problem, two_processes):
    """In a loop, by threads, by processes: subsets jump through Laplace's maps, with a memory."""
    make = {
        "list": lambda: (pair(), births),
        "subsets": lambda: (toys.conjugate_subsets(), through_laplace),
        "components": lambda: (components(), None),
    }[problem]

    def found(executor):
        target, kernel = make()
        return run(target, 3, executor, kernel=kernel, start=places(target, 16))

    here = found(None)
    assert here.raw.theta.shape[:2] == (24, 18) and len(here.raw.run.unique()) == 3
    with ThreadPoolExecutor(2) as threads:
        assert same(here, found(threads))
    assert same(here, found(two_processes))


def test_no_two_shards_share_a_stream_and_more_do_not_change_those_before():
    few, more = run(shards=2), run(shards=4)
    first, second = few.raw.theta[:8], few.raw.theta[8:]
    assert not (first == second).all(-1).any()
    seeds = [run(shards=1, seed=seed).raw.theta for seed in (3, 4)]
    assert not torch.equal(*seeds) and more.raw.n_chains == 32


class Backwards:
    """Does the last task first."""

    def __init__(self):
        self.tasks = []

    def submit(self, function, *args):
        self.tasks.append((future := Future(), function, args))
        future.done = lambda: self.work() or Future.done(future)
        return future

    def work(self):
        if self.tasks:
            future, function, args = self.tasks.pop()
            future.set_result(function(*args))


@pytest.mark.whole
def test_the_order_of_blocks_does_not_matter(monkeypatch):
    assert same(run(), run(executor=Backwards()))
    monkeypatch.setattr(shard_rounds, "AHEAD", 0)
    assert same(run(), run(executor=Backwards()))


def test_blocks_are_as_long_as_what_there_is_says():
    kept, lengths = 0, []
    while kept < 2000:
        lengths.append(block_draws(kept, 100))
        kept += lengths[-1]
    assert lengths[0] == shard_rounds.LEAST and lengths == sorted(lengths)
    assert lengths[-1] <= 2000 / shard_rounds.GROWTH < 2000 and block_draws(10**6, 10**6) == 4


def test_starts_are_told_apart_where_they_are():
    own = [torch.tensor([2, -1, -7]), torch.tensor([2, -1, 0])]
    assert told_apart(own, common=False).tolist() == [2, -2, -1, 2, -3, 0]
    assert told_apart(own, common=True).tolist() == [2, -1, -7, 2, -1, 0]


# ---- workers that die, fail, or are not there ---------------------------------------------------


class Dying(ThreadPoolExecutor):
    """Tasks of some numbers never come back."""

    def __init__(self, deaths, error=ConnectionError):
        super().__init__(1)
        self.deaths, self.error, self.sent = set(deaths), error, 0

    def submit(self, function, *args):
        self.sent += 1
        if self.sent in self.deaths:
            future = Future()
            future.set_exception(self.error("the worker is gone"))
            return future
        return super().submit(function, *args)


def test_a_block_whose_worker_dies_is_done_again():
    with Dying({2, 6, 7, 11}) as pool, pytest.warns(PoolWarning, match="a worker was lost with"):
        found = run(executor=pool)
    assert same(run(), found)


def test_a_block_that_kills_every_worker_is_named_and_nothing_is_lost():
    with Dying(range(14, 1000)) as pool, pytest.warns(PoolWarning), pytest.raises(PoolError) as end:
        run(executor=pool, draws=40)
    assert "block 3 of shard" in str(end.value) and "ConnectionError" in str(end.value)
    kept = end.value.result.raw
    assert kept.n_draws in {5, 10} and torch.equal(kept.theta, run(draws=kept.n_draws).raw.theta)


class Broken:
    def submit(self, function, *args):
        raise RuntimeError("cannot schedule new futures after shutdown")


def test_an_executor_that_raises_is_named():
    with pytest.raises(PoolError, match=r"takes no more tasks .*after shutdown"):
        run(executor=Broken())
    for wrong in (3, "dask", ThreadPoolExecutor):
        with pytest.raises((ConfigurationError, TypeError, PoolError)):
            run(executor=wrong)
    with pytest.raises(ConfigurationError, match="shards=16"):
        run(shards=None, executor=Broken())
    with pytest.raises(ConfigurationError, match="integer of 1 or more"):
        run(shards=0)


class EndsItsProcess:
    """A likelihood that ends the worker at its so many-th call there, once in all."""

    def __init__(self, mark, leader):
        self.mark, self.leader, self.calls = mark, leader, 0

    def __call__(self, p):
        self.calls += 1
        if os.getpid() != self.leader and self.calls > 30 and not os.path.exists(self.mark):
            open(self.mark, "w").close()
            os._exit(1)
        return -0.5 * (p["x"] - 1.0) ** 2


def fatal(mark):
    ends = EndsItsProcess(str(mark), os.getpid())
    return trj.Target([trj.Model("one", {"x": Normal(0.0, 1.0)}, ends)])


def walk(target):
    return trj.kernel.RandomWalk(target)


@pytest.mark.whole
def test_a_broken_pool_is_named_or_made_anew(tmp_path):
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool, pytest.raises(PoolError) as end:
        run(fatal(tmp_path / "a"), 2, pool, kernel=walk, draws=40)
    assert "the whole pool with it" in str(end.value) and "BrokenProcessPool" in str(end.value)
    with pytest.warns(PoolWarning, match="BrokenProcessPool"):
        found = run(
            fatal(tmp_path / "b"),
            2,
            lambda: ProcessPoolExecutor(1, mp_context=SPAWN),
            kernel=walk,
            draws=40,
        )
    assert (tmp_path / "b").exists()
    assert same(found, run(fatal(tmp_path / "b"), 2, kernel=walk, draws=40))


def failing(p):
    x = p["x"]
    return torch.where(x > 0.9, math.nan, -0.5 * x**2)


class Raises:
    """Fails in a worker's thread, after its first calls there."""

    def __init__(self):
        self.calls = 0

    def __getstate__(self):
        return {"calls": 0}

    def __call__(self, p):
        self.calls += 1
        if self.calls > 40 and threading.current_thread() is not threading.main_thread():
            raise ZeroDivisionError("no such pulse")
        return -0.5 * p["x"] ** 2


def test_a_likelihood_that_fails_is_named_and_draws_are_kept(two_processes):
    target = trj.Target([trj.Model("one", {"x": Normal(0.0, 1.0)}, failing)])
    pool = trj.fit.Pool(torch.zeros(8, 1, dtype=torch.long), torch.zeros(8, 1), torch.zeros(8))
    for executor in (None, two_processes):
        with pytest.raises(NonFiniteError, match="one"):
            run(target, 2, executor, kernel=walk, start=pool, draws=400, warmup=0)
    target = trj.Target([trj.Model("one", {"x": Normal(0.0, 1.0)}, Raises())])
    with ThreadPoolExecutor(1) as threads, pytest.raises(TargetError, match="no such pulse") as end:
        run(target, 2, threads, kernel=walk, draws=400)
    assert end.value.result.raw.n_draws >= 5


class Nobody:
    """Takes tasks, and has nobody to do them."""

    def submit(self, function, *args):
        return Future()


def test_without_workers_the_time_is_kept():
    begun = time.monotonic()
    with pytest.raises(PoolError, match="not all shards had started"):
        run(executor=Nobody(), draws=None, max_seconds=1)
    assert time.monotonic() - begun < 20


def test_work_that_cannot_be_sent_is_refused_in_words():
    target = pair()
    target.once(lambda _: threading.Lock())
    with pytest.raises(ConfigurationError, match=r"can't be sent to workers .*pickle"):
        run(target, executor=Nobody())


# ---- limits -------------------------------------------------------------------------------------


def test_all_shards_end_together():
    """At a deadline, at a precision, at a number of calls; what some have begun is dropped."""
    late = run(shards=2, draws=None, max_seconds=2.0)
    assert late.report.out_of_time and late.raw.n_draws >= 1

    def seen(record):
        return int((record.code == 1).sum()) >= 200

    enough = run(draws=400, until=seen)
    assert 10 <= enough.raw.n_draws < 100 and enough.raw.n_draws % 5 == 0
    with ThreadPoolExecutor(2) as threads:
        assert same(enough, run(executor=threads, draws=400, until=seen))


@pytest.mark.whole
def test_a_number_of_calls_is_kept():
    with ThreadPoolExecutor(2) as threads:
        for executor in (None, threads):
            found = run(executor=executor, draws=10_000, max_evaluations=6000)
            assert found.report.budget_spent and found.report.evaluations <= 6000
            assert found.raw.n_draws > 10


def test_a_record_that_is_thinned_on_the_way(monkeypatch):
    monkeypatch.setattr("trjmcmc.draws.STORED", 1)
    monkeypatch.setattr("trjmcmc.draws.LEAST_DRAWS_STORED", 8)
    found = run(draws=None, until=lambda record: record.kept * record.thin >= 40)
    assert found.raw.thin == 8 and found.raw.n_draws == 8 and found.raw.shares is not None
    assert found.raw.shares.sum(1).allclose(torch.ones(32).double())


def test_a_record_that_is_cut_down_on_the_way_is_thinned_evenly(monkeypatch):
    """So that it can be summed up in time, while shards are a round ahead."""
    monkeypatch.setattr("trjmcmc.draws.LEAST_DRAWS_STORED", 8)

    def rule(record):
        if record.kept * record.thin == 20:
            record.bound(10)
        return record.kept * record.thin >= 60

    found, whole = run(shards=2, draws=None, until=rule).raw, run(shards=2, draws=80).raw
    assert found.thin > 1 and found.n_draws < 20
    every = whole.theta[:, found.thin - 1 :: found.thin]
    assert torch.equal(found.theta, every[:, : found.n_draws])


def test_ctrl_c_in_the_middle_of_a_round_waits_for_its_end(tmp_path, monkeypatch):
    keep, pressed = Recorder.keep, []

    def presses(record, *state):
        keep(record, *state)
        if record.kept == 7 and not pressed:
            pressed.append(1)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Recorder, "keep", presses)
    with pytest.warns(InterruptedWarning, match="after 10 draws"):
        found = run(shards=2, checkpoint=tmp_path)
    assert torch.equal(found.raw.theta, run(shards=2, draws=10).raw.theta)
    assert torch.equal(run(shards=2, checkpoint=tmp_path).raw.theta, run(shards=2).raw.theta)


def test_ctrl_c_keeps_the_rounds_that_are_done():
    def rule(record):
        if record.kept >= 10:
            raise KeyboardInterrupt
        return False

    with pytest.warns(InterruptedWarning, match="after 10 draws"):
        found = run(until=rule)
    assert found.report.interrupted and torch.equal(found.raw.theta, run(draws=10).raw.theta)


# ---- folders ------------------------------------------------------------------------------------


class Killed(BaseException):
    """What nothing catches."""


def killed_at(kept):
    def rule(record):
        if record.kept >= kept:
            raise Killed
        return False

    return rule


@pytest.mark.whole
def test_a_leader_that_dies_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(writing, "SAVE_SHARE", math.inf)
    monkeypatch.setattr(writing, "WHOLE_SEGMENT", 3000)
    whole = run(draws=32)
    for kept in (10, 20):
        with pytest.raises(Killed):
            run(draws=32, checkpoint=tmp_path, until=killed_at(kept))
        so_far = trj.load(tmp_path)
        assert so_far.raw.n_draws == kept - 5 and torch.equal(so_far.raw.run, whole.raw.run)
    with ThreadPoolExecutor(2) as threads:
        found = run(draws=32, checkpoint=tmp_path, executor=threads)
    for name in ("code", "theta", "log_joint", "run"):
        assert torch.equal(getattr(whole.raw, name), getattr(found.raw, name))
    assert all(torch.equal(x, y) for x, y in zip(whole.crossings, found.crossings, strict=True))
    assert whole.report.acceptance == found.report.acceptance
    with pytest.raises(CheckpointError, match="another shards: 4, not 3"):
        run(shards=3, draws=32, checkpoint=tmp_path)
    assert run(draws=40, checkpoint=tmp_path).raw.n_draws == 40


# ---- what begins from shards, and what they share with other ways -------------------------------


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")
def test_results_of_shards_and_merged_ones_give_points_to_start_at(tmp_path):
    found = run(shards=2, draws=10)
    again = run(shards=2, draws=10, start=found, seed=4)
    again.save(tmp_path / "again.trj")
    read = trj.load(tmp_path / "again.trj")
    assert torch.equal(read.raw.run, again.raw.run) and read.report.start == again.report.start
    merged = trj.merge([found, read])
    assert merged.raw.run.unique().tolist() == [0, 1, 2, 3]
    assert run(shards=None, draws=10, start=merged).report.start.points == 32 * 10


def mean_of(p):
    return -0.5 * float(p["x"] ** 2)


@pytest.mark.whole
def test_a_black_box_leaves_its_pool_at_home():
    def boxed(pool=None):
        box = trj.BlackBox(mean_of, pool=pool)
        models = [trj.Model(name, {"x": Normal(0.0, sd)}, box) for name, sd in (("a", 1), ("b", 2))]
        return trj.Target(models)

    with ThreadPoolExecutor(2) as pool, ThreadPoolExecutor(2) as threads:
        whole = run(boxed(), 2)
        assert same(whole, run(boxed(pool), 2)) and same(whole, run(boxed(pool), 2, threads))
        found = run(boxed(pool), 2, threads, draws=10_000, max_evaluations=2000)
    assert found.report.budget_spent and found.report.evaluations <= 2000


# ---- what shards see of each other --------------------------------------------------------------


@pytest.mark.whole
def test_a_shard_in_another_mode_raises_the_warning():
    target = bimodal()
    shards, chains = 4, 32
    x = 0.5 * torch.randn(chains * shards, generator=torch.Generator().manual_seed(5)) - 9.0
    code = torch.zeros(len(x), 1, dtype=torch.long)

    def said(x):
        theta = target.unconstrain("one", {"x": x}).view(-1, 1)
        start = trj.fit.Pool(code, theta, target.log_joint(code, theta).double())
        sampler = trj.TRJSampler(target, kernel=walk(target), seed=1, policy=quick_policy())
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            result = sampler.run(
                60, chains=chains, warmup=10, fit=False, start=start, shards=shards, progress=False
            )
        return result, " ".join(str(w.message) for w in warned)

    away = x.clone()
    away[2::shards] += 18.0  # every fourth point, which is the third shard's
    result, words = said(away)
    assert "the run has not converged" in words and "R-hat" in words
    assert result.between_runs()["p"].min() < 1e-5
    result, words = said(x)
    assert "runs differ" not in words and result.between_runs()["p"].min() > 1e-5
