"""Runs in shards: the same bits whoever does them, whoever dies, and errors that stay true."""

import math
import multiprocessing
import os
import threading
import warnings
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor

import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from benchmarks.same_draws import components, pair
from tests import toys
from tests.small import small_plan
from trjmcmc.errors import (
    CheckpointError,
    ConfigurationError,
    NonFiniteError,
    PoolError,
    PoolWarning,
    TargetError,
    TRJWarning,
)
from trjmcmc.run import rounds_saved
from trjmcmc.run import shards as of_shards

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(autouse=True)
def few_together(monkeypatch):
    monkeypatch.setattr(of_shards, "TOGETHER", 20)


@pytest.fixture(scope="module")
def another_process():
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        yield pool


@pytest.fixture(scope="module")
def usual():
    """A run of four shards in a loop."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of_shards, "TOGETHER", 20)
        return run()


def births(target):
    fixed = trj.kernel.Fixed(target.space)
    return trj.kernel.Cycle([trj.kernel.BirthDeath(target, fixed), trj.kernel.RandomWalk(target)])


def walk(target):
    return trj.kernel.RandomWalk(target)


def run(target=None, shards=4, executor=None, draws=18, *, seed=3, kernel=births, **settings):
    target = pair() if target is None else target
    kernel = None if kernel is None else kernel(target)
    sampler = trj.TRJSampler(target, kernel=kernel, seed=seed, plan=small_plan())
    with warnings.catch_warnings():
        for category in ("Convergence", "Coverage", "Disagreement", "Limit"):
            warnings.simplefilter("ignore", getattr(trj.errors, f"{category}Warning"))
        settings = {"chains": 8, "progress": False} | settings
        return sampler.run(draws=draws, shards=shards, executor=executor, **settings)


def same(a, b):
    for name in ("code", "theta", "log_joint", "run"):
        assert torch.equal(getattr(a.raw, name), getattr(b.raw, name)), name
    assert a.report.acceptance == b.report.acceptance
    return True


# ---- the same bits ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "problem",
    ["list", *(pytest.param(n, marks=pytest.mark.whole) for n in ("subsets", "components"))],
)
def test_whoever_does_it_the_bits_are_the_same(problem, another_process):
    """In a loop and by a process, by moves that the run has chosen and learned."""
    make = {"list": pair, "subsets": toys.conjugate_subsets, "components": components}[problem]
    here = run(make(), 3, kernel=None)
    assert (here.raw.n_chains, here.raw.n_draws) == (24, 18)
    assert here.raw.run.tolist() == [0] * 8 + [1] * 8 + [2] * 8
    assert same(here, run(make(), 3, another_process, kernel=None))


def test_no_two_shards_share_a_stream(usual):
    theta = usual.raw.theta
    parts = theta.view(4, 8, *theta.shape[1:])
    assert not any(torch.equal(parts[i], parts[j]) for i in range(4) for j in range(i))


@pytest.mark.whole
def test_probabilities_are_those_of_all_shards():
    target = toys.gaussians()
    result = run(target, 4, kernel=None, draws=100, chains=16)
    table, exact = result.model_probabilities(full=True), target.truth.probabilities
    gap = table["visits"] - [exact[m] for m in table.index]
    assert result.raw.n_chains == 64 and bool((gap.abs() < 5 * table["visits_se"]).all())


@pytest.mark.whole
def test_shards_reach_a_precision_and_are_thinned():
    result = run(shards=3, draws=None, kernel=None, thin=3, until={"probability": 0.02})
    assert result.raw.thin == 3 and result.model_probabilities()["se"].max() <= 0.02
    assert result.raw.n_chains == 24


# ---- who dies -----------------------------------------------------------------------------------


class Dying(ThreadPoolExecutor):
    """Loses tasks of some numbers, as a worker does that is gone."""

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


def test_what_a_worker_died_of_is_done_again(usual):
    with Dying({2, 6, 7, 11}) as pool, pytest.warns(PoolWarning, match="a worker was lost with"):
        found = run(executor=pool)
    assert same(usual, found)


def test_a_task_that_kills_every_worker_is_named():
    with Dying(range(3, 1000)) as pool, pytest.warns(PoolWarning), pytest.raises(PoolError) as end:
        run(executor=pool, draws=40)
    assert "shard" in str(end.value) and "ConnectionError" in str(end.value)


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


@pytest.mark.whole
def test_a_broken_pool_is_named_or_made_anew(tmp_path):
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool, pytest.raises(PoolError) as end:
        run(fatal(tmp_path / "a"), 2, pool, kernel=walk, draws=40)
    assert "the whole pool with it" in str(end.value) and "BrokenProcessPool" in str(end.value)

    def pool():
        return ProcessPoolExecutor(1, mp_context=SPAWN)

    with pytest.warns(PoolWarning, match="BrokenProcessPool"):
        found = run(fatal(tmp_path / "b"), 2, pool, kernel=walk, draws=40)
    assert (tmp_path / "b").exists()
    assert same(found, run(fatal(tmp_path / "b"), 2, kernel=walk, draws=40))


class Fails:
    """Fails in a worker's thread, after its first calls there."""

    def __init__(self, how):
        self.how, self.calls = how, 0

    def __getstate__(self):
        return {"how": self.how, "calls": 0}

    def __call__(self, p):
        self.calls += 1
        fails = self.calls > 40 and threading.current_thread() is not threading.main_thread()
        if fails and self.how == "raises":
            raise ZeroDivisionError("no such pulse")
        return -0.5 * p["x"] ** 2 + (math.nan if fails else 0.0)


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [("raises", TargetError, "no such pulse"), ("is NaN", NonFiniteError, "one")],
)
def test_a_likelihood_that_fails_there_is_named(how, error, words):
    target = trj.Target([trj.Model("one", {"x": Normal(0.0, 1.0)}, Fails(how))])
    with ThreadPoolExecutor(1) as threads, pytest.raises(error, match=words):
        run(target, 2, threads, kernel=walk, draws=400)


class Nobody:
    """Takes tasks, and has nobody to do them."""

    def submit(self, function, *args):
        return Future()


def test_without_workers_the_time_is_kept(clock):
    """Simulated time, which looks at the clock take."""
    clock.reading, begun = 0.05, clock.seconds
    found = run(executor=Nobody(), draws=None, max_seconds=1)
    assert clock.seconds - begun < 2 and found.report.out_of_time and found.raw.n_draws == 1


def test_work_that_cannot_be_sent_is_refused_in_words():
    target = pair()
    target.cached(lambda _: threading.Lock())
    with pytest.raises(PoolError, match=r"this target can't be sent .*pickle"):
        run(target, executor=Nobody())


# ---- limits, folders, starts --------------------------------------------------------------------


def test_a_number_of_calls_is_kept():
    with ThreadPoolExecutor(2) as threads:
        for executor in (None, threads):
            found = run(executor=executor, draws=10_000, max_evaluations=5000)
            assert found.report.budget_spent and found.report.evaluations <= 5000


class Killed(BaseException):
    """What nothing catches."""


@pytest.mark.whole
def test_a_leader_that_dies_goes_on(tmp_path, monkeypatch):
    """Once while moves are learned, and twice in shards."""
    monkeypatch.setattr(rounds_saved, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(rounds_saved, "SAVE_SHARE", math.inf)
    whole, in_shards = run(draws=600), []
    keep = rounds_saved.RoundsSaver.save

    def counted(self, write, **told):
        keep(self, write, **told)
        in_shards.append(isinstance(self._chains, of_shards.Shards))
        if len(in_shards) == 2 or (in_shards[-1] and sum(in_shards) in {2, 5}):
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(rounds_saved.RoundsSaver, "save", counted)
        for shards in (False, True, True):
            with pytest.raises(Killed):
                run(draws=600, checkpoint=tmp_path)
            assert in_shards[-1] == shards
    so_far = trj.load(tmp_path)
    assert torch.equal(so_far.raw.run, whole.raw.run) and so_far.raw.n_draws < 600
    with ThreadPoolExecutor(2) as threads:
        found = run(draws=600, checkpoint=tmp_path, executor=threads)
    assert torch.equal(whole.raw.theta, found.raw.theta)
    with pytest.raises(CheckpointError, match="another shards: 4, not 3"):
        run(shards=3, draws=600, checkpoint=tmp_path)


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")  # they are short
def test_results_of_shards_give_points_to_start_at(tmp_path):
    found = run(shards=2, draws=10, warmup=20)
    again = run(shards=2, draws=10, warmup=20, start=found, seed=4)
    again.save(tmp_path / "again.trj")
    read = trj.load(tmp_path / "again.trj")
    assert torch.equal(read.raw.run, again.raw.run) and read.report.start == again.report.start
    merged = trj.merge([found, read])
    assert merged.raw.run.unique().tolist() == [0, 1, 2, 3]
    told = run(shards=None, draws=10, warmup=20, start=merged).report.start
    assert told.points == 32 * 10


@pytest.mark.whole
def test_a_shard_in_another_mode_raises_the_warning():
    """Two modes of one model that walks do not leave; with a control where all start in one."""

    def log_likelihood(p):
        return torch.logaddexp(
            Normal(-9.0, 0.5).log_prob(p["x"]), Normal(9.0, 0.5).log_prob(p["x"])
        )

    target = trj.Target([trj.Model("one", {"x": Normal(0.0, 10.0)}, log_likelihood)])
    shards, chains = 4, 32
    x = 0.5 * torch.randn(chains * shards, generator=torch.Generator().manual_seed(5)) - 9.0
    code = torch.zeros(len(x), 1, dtype=torch.long)

    def said(x):
        theta = target.unconstrain("one", {"x": x}).view(-1, 1)
        start = trj.fit.Pool(code, theta, target.log_joint(code, theta).double())
        sampler = trj.TRJSampler(target, kernel=walk(target), seed=1)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", TRJWarning)
            result = sampler.run(100, chains=chains, start=start, shards=shards, progress=False)
        return result, " ".join(str(w.message) for w in warned)

    away = x.clone()
    away[2 * chains : 3 * chains] += 18.0  # the third shard's
    result, words = said(away)
    assert "the run has not converged" in words
    assert result.chains.between_runs()["p"].min() < 1e-5
    result, words = said(x)
    assert "runs differ" not in words and result.chains.between_runs()["p"].min() > 1e-5
