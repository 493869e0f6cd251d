import concurrent.futures
import contextlib
import math
import multiprocessing
import os
import pickle
import time
import warnings

import numpy as np
import pytest
import torch
from torch.distributions import HalfNormal, Normal, Uniform

import trjmcmc as trj
from tests.battery import check, crossings
from trjmcmc.errors import (
    BlackBoxError,
    BudgetError,
    ConfigurationError,
    ConvergenceWarning,
    NonFiniteError,
    PoolError,
    TargetError,
    TRJWarning,
)
from trjmcmc.target import workers

# functions of workers must be importable


def square(p):
    return -0.5 * float(np.sum((p["x"] - 1.0) ** 2))


def dies(p):
    if p["x"] > 2.5:
        os._exit(3)
    return square(p)


def leaves(p):
    if p["x"] > 2.5:
        os._exit(0)
    return square(p)


def raises_beyond(p):
    if p["x"] > 2.0:
        raise ValueError("mesh too coarse")
    return square(p)


def slow_square(p):
    time.sleep(0.001)
    return square(p)


def robust_numpy(x, y):
    """The robust regression's likelihood of one point in plain NumPy."""

    def log_likelihood(p, active):
        assert active.dtype == bool and active.shape == (4,)
        r = y - x @ np.where(active, p["beta"], 0.0)
        each = np.logaddexp(-0.5 * r**2, math.log(0.1) - r**2 / 200)
        return float(np.sum(each) - len(y) * math.log(2 * math.sqrt(2 * math.pi)))

    return log_likelihood


def simple(function, prior=None, **options):
    box = trj.BlackBox(function, **options)
    return trj.Target([trj.Model("m", {"x": prior or Normal(0.0, 2.0)}, box)]), box


# ---- values --------------------------------------------------------------------------------


@pytest.mark.parametrize("vectorized", [False, True])
def test_values_and_calls(vectorized, generator):
    def whole(p):
        assert p["x"].dtype == np.float64
        return -0.5 * (p["x"] - 1.0) ** 2

    target, box = simple(whole if vectorized else square, vectorized=vectorized)
    torch_target = trj.Target(
        [trj.Model("m", {"x": Normal(0.0, 2.0)}, lambda p: -0.5 * (p["x"] - 1.0) ** 2)]
    )
    theta = torch.randn(50, 1, generator=generator)
    code = torch.zeros(50, 1, dtype=torch.long)
    calls, evaluations = box.calls, target.evaluations
    assert torch.allclose(target.log_joint(code, theta), torch_target.log_joint(code, theta))
    assert box.calls - calls == target.evaluations - evaluations == 50
    assert not target.differentiable and torch_target.differentiable


def test_points_outside_the_prior_are_never_passed_on():
    seen = []

    def log_likelihood(p):
        seen.append(float(p["x"]))
        return 0.0

    prior = trj.Ordered(Uniform(0.0, 1.0), 2)
    box = trj.BlackBox(lambda p: log_likelihood({"x": p["x"].min()}))
    target = trj.Target([trj.Model("m", {"x": prior}, box)])
    before = target.evaluations
    theta = torch.tensor([[0.0, 0.0], [200.0, 300.0], [math.nan, 0.0]])
    value = target.log_joint(torch.zeros(3, 1, dtype=torch.long), theta)
    assert bool(value[0].isfinite())
    assert target.evaluations - before <= 2
    assert all(0 <= x <= 1 for x in seen)


def test_no_parameters_and_a_space(generator):
    alone = trj.Target([trj.Model("m", {}, trj.BlackBox(lambda p: -1.5))])
    assert float(alone.log_joint(torch.zeros(1, 1).long(), torch.zeros(1, 0))) == -1.5
    target = trj.Target(
        trj.Subsets(["a", "b"], of="w"),
        {"w": Normal(0.0, 1.0)},
        trj.BlackBox(lambda p, active: float(-np.sum(p["w"][active] ** 2))),
    )
    theta = torch.randn(6, 2, generator=generator)
    code = torch.tensor([[0, 1], [1, 1], [0, 0], [1, 0], [1, 1], [0, 1]])
    on = code.bool()
    expected = torch.where(on, Normal(0.0, 1.0).log_prob(theta) - theta**2, 0.0).sum(-1)
    assert torch.allclose(target.log_joint(code, theta), expected + math.log(0.25), atol=1e-5)


# ---- pools ---------------------------------------------------------------------------------


class FuturesPool:
    """As a Dask client: ``map`` returns futures at once."""

    def map(self, function, tasks):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            return [pool.submit(function, t) for t in tasks]


class SerialPool:
    """As a pool of MPI: nothing but ``map``."""

    def map(self, function, tasks):
        return [function(t) for t in tasks]


def pools():
    context = multiprocessing.get_context("fork")
    yield SerialPool()
    yield FuturesPool()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        yield pool
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        yield pool
    with context.Pool(2) as pool:
        yield pool


def test_any_pool_with_a_map():
    x = torch.linspace(-2, 2, 150)[:, None]
    for pool in pools():
        box = trj.BlackBox(square, pool=pool)
        value = box({"x": x[:, 0]})
        assert torch.allclose(value, -0.5 * (x[:, 0] - 1) ** 2)
        assert box.calls == 150


def test_one_box_for_two_models_keeps_their_values_apart():
    box = trj.BlackBox(
        lambda p: sum(k * float(v) for k, v in zip((1, 10), p.values(), strict=False))
    )
    one = {"a": torch.tensor([0.5])}
    two = {"b": torch.tensor([0.5]), "c": torch.tensor([1.0])}
    assert float(box(one)) == 0.5
    assert float(box({"d": torch.tensor([0.5])})) == 0.5
    assert float(box(two)) == 10.5
    calls = box.calls
    assert (float(box(one)), float(box(two))) == (0.5, 10.5)
    assert box.calls == calls


def test_a_batch_that_is_known_asks_no_pool():
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        box = trj.BlackBox(square, pool=pool)
        x = {"x": torch.arange(3.0)}
        assert torch.equal(box(x), box(x)) and box.calls == 3


def test_a_box_is_pickled_without_its_pool():
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        box = trj.BlackBox(square, pool=pool)
        values = box({"x": torch.arange(3.0)})
        other = pickle.loads(pickle.dumps(box))
    assert other.pool is None and box.pool is pool
    assert torch.equal(other({"x": torch.arange(3.0)}), values)


@pytest.mark.parametrize("kind", ["futures", "multiprocessing", "leaving"])
def test_a_pool_that_dies_loses_nothing(kind):
    """The error comes soon, and what other workers had computed is not computed again."""
    context = multiprocessing.get_context("fork")
    if kind == "futures":
        pool = concurrent.futures.ProcessPoolExecutor(2, mp_context=context)
    else:
        pool = context.Pool(2)
    x = torch.cat([torch.linspace(-2, 2, 120), torch.tensor([3.0])])
    box = trj.BlackBox(leaves if kind == "leaving" else dies, pool=pool)
    begun = time.perf_counter()
    named = r"died at .*\(x=3\.?\).*set `\.pool` to a fresh pool"
    with pytest.raises(PoolError, match=named) as caught:
        box({"x": x})
    assert str(caught.value).count("x=") <= (2 * 2 if kind == "futures" else 1)
    assert time.perf_counter() - begun < 20
    if kind == "futures":
        pool.shutdown()
    else:
        pool.terminate()
    known = box.calls
    assert known > 60
    box.pool, box.function = None, square
    value = box({"x": x})
    assert torch.allclose(value, -0.5 * (x - 1) ** 2)
    assert box.calls == len(x)


class Submitting:
    """As an executor of MPI: nothing but ``submit``."""

    def __init__(self, pool):
        self.submit = pool.submit


class Costly:
    """A function that holds data, and counts how often it is pickled."""

    pickled = 0

    def __init__(self):
        self.data = np.zeros(1000)

    def __call__(self, p):
        return square(p) + float(self.data[0])

    def __getstate__(self):
        Costly.pickled += 1
        return self.__dict__


class Unreadable(Costly):
    def __setstate__(self, state):
        raise ModuleNotFoundError("no module of the leader's")


class Unwritable(Costly):
    def __getstate__(self):
        raise TypeError("cannot pickle 'module' object")


@contextlib.contextmanager
def started(kind, workers=2):
    """A pool whose processes are there before any box: they can't have its function."""
    context = multiprocessing.get_context("fork")
    if kind == "multiprocessing":
        with context.Pool(workers) as pool:
            yield pool
            pool.terminate()
            pool.join()
        return
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        list(pool.map(abs, range(20)))
        yield Submitting(pool) if kind == "submit" else pool


@pytest.mark.parametrize("kind", ["multiprocessing", "futures", "submit"])
def test_a_function_is_pickled_once_and_sent_to_workers_that_lack_it(kind):
    Costly.pickled, sent = 0, []
    x = torch.linspace(-2, 2, 150)
    with started(kind) as pool:
        box = trj.BlackBox(Costly(), pool=pool)
        assert torch.allclose(box({"x": x}), -0.5 * (x - 1) ** 2) and Costly.pickled == 1
        payload = box._shipped.payload
        box._shipped.payload = lambda: sent.append(shift) or payload()
        for shift in range(1, 9):
            assert torch.allclose(box({"x": x + shift}), -0.5 * (x + shift - 1) ** 2)
        assert len({*sent}) < 8 and Costly.pickled == 1  # a late worker may ask more than once
        box.function = Costly()  # another, though it looks the same
        box({"x": x + 3})
    assert Costly.pickled == 2


def test_threads_share_the_function_itself():
    Costly.pickled = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        trj.BlackBox(Costly(), pool=pool)({"x": torch.zeros(5)})
    assert not Costly.pickled


def test_functions_of_boxes_that_are_gone_are_not_kept():
    before = set(workers._HELD)
    box = trj.BlackBox(Costly(), pool=SerialPool())
    box({"x": torch.zeros(2)})
    assert len(workers._HELD) == len(before) + 1
    del box
    assert set(workers._HELD) == before


def test_a_worker_keeps_no_more_functions_than_fit(monkeypatch):
    monkeypatch.setattr(workers, "MOST_HELD", 100)
    monkeypatch.setattr(workers, "_SENT", workers._Sent())
    payload = workers.pickle.dumps(square)
    for name in "abc":
        workers.one_task((name, payload + bytes(40), [({"x": 1.0},)]))
    assert list(workers._SENT.functions) == ["c"]
    assert workers.one_task(("a", None, [({"x": 1.0},)])) is None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_client_of_dask():
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    )
    with cluster, distributed.Client(cluster) as client:
        box = trj.BlackBox(raises_beyond, pool=client)
        x = torch.linspace(-2, 2, 150)
        assert torch.allclose(box({"x": x}), -0.5 * (x - 1) ** 2)
        with pytest.raises(BlackBoxError, match=r"(?s)x=3.*mesh too coarse"):
            box({"x": torch.tensor([1.0, 3.0])})


@pytest.mark.parametrize("kind", ["multiprocessing", "futures"])
def test_what_can_not_be_sent_is_explained(kind, monkeypatch):
    refused = [
        (Unreadable(), r"can't be read by.*no module of.*top level of a module"),
        (Unwritable(), r"holds what can't be pickled.*cannot pickle 'module'"),
        (lambda p: 0.0, "top level of a module, or install cloudpickle"),
    ]
    with started(kind, 1) as pool:
        for function, message in refused:
            if not isinstance(function, Costly):
                monkeypatch.setattr(workers.importlib.util, "find_spec", lambda name: None)
            with pytest.raises(PoolError, match=message):
                trj.BlackBox(function, pool=pool)({"x": torch.zeros(3)})


def dies_once(p):
    """Kills its process at the first call beyond 2.5, as the system does where memory is short."""
    try:
        if p["x"] > 2.5:
            os.open(p["flag"].tobytes().decode(), os.O_CREAT | os.O_EXCL)
            os._exit(9)
    except FileExistsError:
        pass
    return square(p)


def test_a_point_whose_worker_died_is_tried_again(tmp_path):
    """The pool has replaced the worker: nobody needs to know."""
    flag = np.frombuffer(str(tmp_path / "died").encode(), dtype=np.uint8)
    x = torch.cat([torch.linspace(-2, 2, 120), torch.tensor([3.0])])

    class Box(trj.BlackBox):
        def _outcomes(self, points):
            return super()._outcomes([({**p, "flag": flag},) for (p,) in points])

    with started("multiprocessing") as pool:
        box = Box(dies_once, pool=pool)
        assert torch.allclose(box({"x": x}), -0.5 * (x - 1) ** 2)
    assert (tmp_path / "died").exists() and box.calls == 121


# ---- bad input -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (raises_beyond, {}, r"model 'm'.*failed at \(x=.*mesh too coarse"),
        (lambda p: np.zeros(2), {}, r"returned shape \(2,\) at \(x="),
        (lambda p: None, {}, r"returned NoneType at \(x="),
        (lambda p: "a", {}, r"returned str at \(x="),
        (lambda p: 1 / 0, {"vectorized": True}, r"batch of .* first of them \(x=.*ZeroDivision"),
        (lambda p: 0.0, {"vectorized": True}, r"returned shape \(\).*expected \(5,\)"),
    ],
)
def test_a_black_box_that_fails_names_the_point(function, options, message):
    def at_first_fine(p):  # construction looks at a few points
        return function(p) if on[0] else np.zeros(np.shape(p["x"]))

    on = [False]
    target, _ = simple(at_first_fine, **options)
    on[0] = True
    theta = torch.tensor([[0.0], [1.0], [3.0], [0.5], [0.1]])
    with pytest.raises(BlackBoxError, match="(?s)" + message):
        target.log_joint(torch.zeros(5, 1, dtype=torch.long), theta)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: trj.BlackBox(3), "expected a function"),
        (lambda: trj.BlackBox(square, pool=[1]), "pool: expected an object with `submit`"),
    ],
)
def test_wrong_settings_say_what_is_wrong(make, message):
    with pytest.raises(TargetError, match=message):
        make()


def flaky(broken):
    """Fails, or returns NaN, at points beyond 2 while ``broken``."""
    calls = {"n": 0}

    def log_likelihood(p):
        calls["n"] += 1
        if p["x"] > 2.0 and broken["how"] == "raise":
            raise ValueError("mesh too coarse")
        if p["x"] > 2.0 and broken["how"] == "nan":
            return math.nan
        return square(p)

    return log_likelihood, calls


@pytest.mark.parametrize("how", ["raise", "nan"])
def test_a_fit_that_failed_goes_on_where_it_stopped(how):
    broken = {"how": ""}
    function, calls = flaky(broken)
    target, _ = simple(function)
    sampler = trj.TRJSampler(target, seed=1)
    broken["how"] = how
    settings = {"steps": 30, "particles": 20, "moves": 5, "audit": 1, "progress": False}
    with pytest.raises((BlackBoxError, NonFiniteError), match="x=") as caught:
        sampler.fit(**settings)
    assert "m" in str(caught.value)
    broken["how"], before = "", calls["n"]
    sampler.fit(**settings)
    resumed = calls["n"] - before
    other = trj.TRJSampler(target, seed=1)
    before = calls["n"]
    other.fit(**settings)
    assert resumed < calls["n"] - before  # some of it was there already
    assert len(sampler.audit_report.models) == 1


def test_a_run_that_fails_gives_the_draws_so_far():
    broken = {"how": ""}
    function, _ = flaky(broken)
    target, _ = simple(function)
    sampler = trj.TRJSampler(target, seed=1)
    sampler.fit(steps=30, particles=20, moves=5, audit=1, progress=False)

    def fails_after_twenty_draws(draws):
        broken["how"] = "raise" if draws.n_draws >= 20 else ""
        return False

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TRJWarning)
        with pytest.raises(BlackBoxError, match="mesh too coarse") as caught:
            sampler.run(
                5000,
                chains=8,
                warmup=2,
                fit=True,
                until=fails_after_twenty_draws,
                progress=False,
            )
    result = caught.value.result
    assert result.raw.n_draws >= 20
    assert result.raw.n_chains == 8
    assert result.report.evaluations > 160


# ---- gradients from elsewhere --------------------------------------------------------------


@pytest.mark.parametrize("vectorized", [False, True])
def test_gradients_from_elsewhere_are_those_of_torch(vectorized, generator):
    def numpy_value_and_gradient(p):
        a, s = p["a"], p["s"]
        s_ = s[..., None] if vectorized else s
        value = -0.5 * np.sum((a / s_) ** 2, axis=-1) - 3 * np.log(s)
        slope = np.sum(a**2, axis=-1) / s**3 - 3 / s
        return value, {"a": -a / s_**2, "s": slope}

    def torch_value(p):
        return -0.5 * (p["a"] / p["s"][:, None]).square().sum(-1) - 3 * p["s"].log()

    priors = {"a": Normal(torch.zeros(3), 1.0), "s": HalfNormal(2.0)}
    outside = trj.with_gradient(numpy_value_and_gradient, vectorized=vectorized)
    ours, theirs = (
        trj.Target([trj.Model("m", priors, f)], dtype=torch.float64) for f in (outside, torch_value)
    )
    theta = torch.randn(20, 4, generator=generator, dtype=torch.float64)
    code = torch.zeros(20, 1, dtype=torch.long)
    got, expected = (t.log_joint_and_grad(code, theta, temper=0.7) for t in (ours, theirs))
    assert ours.differentiable
    for a, b in zip(got, expected, strict=True):
        assert torch.allclose(a, b, atol=1e-9)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda p: 1.0, "expected .value, dict of gradients"),
        (lambda p: (1.0, {"y": 2.0}), "expected a value of shape"),
        (lambda p: (1.0, {"x": np.zeros(3)}), "expected a value of shape"),
    ],
)
def test_wrong_gradients_are_explained(function, message):
    with pytest.raises(TargetError, match=message):
        trj.Target([trj.Model("m", {"x": Normal(0.0, 1.0)}, trj.with_gradient(function))])


def test_sampling_with_a_gradient_from_elsewhere():
    y = 1.3

    def value_and_gradient(p):
        return -0.5 * (y - p["x"]) ** 2, {"x": y - p["x"]}

    target = trj.Target(
        [
            trj.Model("none", {}, trj.BlackBox(lambda p: -0.5 * y**2)),
            trj.Model("one", {"x": Normal(0.0, 1.0)}, trj.with_gradient(value_and_gradient)),
        ]
    )
    assert not target.differentiable  # all or nothing
    both = trj.Target(
        [trj.Model("one", {"x": Normal(0.0, 1.0)}, trj.with_gradient(value_and_gradient))]
    )
    sampler = trj.TRJSampler(both, seed=1)
    sampler.fit(steps=60, batch=64, pilot=False, audit=False, progress=False)
    assert sampler.target.gradients > 60 * 64 / 2


# ---- whole runs without gradients ----------------------------------------------------------


@pytest.mark.slow
def test_robust_regression_in_plain_numpy():
    """No gradients anywhere: pilot, forward KL, the same posterior."""
    like = trj.problems.robust_regression()
    x, y = like.x.numpy(), like.y.numpy()
    box = trj.BlackBox(robust_numpy(x, y))
    space = trj.Subsets(["x1", "x2", "x3", "x4"], of="beta", always=["x1"], blocks=[["x3", "x4"]])
    target = trj.Target(space, {"beta": Normal(0.0, 10.0)}, box, truth=like.truth)
    sampler = trj.TRJSampler(target, seed=2)
    result = sampler.run(600, chains=32, max_evaluations=400_000, progress=False)
    check(result, like.truth, sigmas=4.0)
    assert result.report.gradients == 0
    calls = result.report.evaluations
    assert 0.99 * calls < box.calls <= calls + 16  # a few were remembered, or checked the target
    assert calls <= 400_000
    table = result.evidence(full=True)
    for label, exact in like.truth.log_evidence.items():
        row = table.loc[label]
        assert abs(row["importance"] - exact) < 4 * row["importance_se"] + 1e-3
        assert row["importance_se"] < 0.02


@pytest.mark.slow
def test_sixty_thousand_calls_are_enough_for_an_evidence():
    """The four-parameter model alone, without gradients, within 0.02 of exact."""
    like = trj.problems.robust_regression()
    x, y = like.x.numpy(), like.y.numpy()
    exact = like.truth.log_evidence["x1+x2+x3+x4"]

    def log_likelihood(p):
        r = y - p["beta"] @ x.T
        each = np.logaddexp(-0.5 * r**2, math.log(0.1) - r**2 / 200)
        return each.sum(-1) - len(y) * math.log(2 * math.sqrt(2 * math.pi))

    box = trj.BlackBox(log_likelihood, vectorized=True)
    target = trj.Target([trj.Model("m", {"beta": Normal(torch.zeros(4), 10.0)}, box)])
    sampler = trj.TRJSampler(target, seed=4)
    before = box.calls
    sampler.fit(max_evaluations=60_000, progress=False)
    assert box.calls - before <= 60_000
    assert sampler.target.gradients == 0
    (model,) = sampler.audit_report.models
    assert abs(model.map_log_evidence - exact) < 0.02
    assert model.map_std_error < 0.01


@pytest.mark.parametrize(
    "limit", [50, *(pytest.param(n, marks=pytest.mark.whole) for n in (3000, 20_000))]
)
@pytest.mark.parametrize("kind", ["black box", "gradients", "reverse KL", "large", "untrained"])
def test_a_limit_on_evaluations_is_never_exceeded(kind, limit):
    """Whatever the way of training; where it pays for nothing, that is said."""
    if kind == "large":
        target = trj.Target(
            trj.Subsets([f"x{i}" for i in range(7)], of="w"),
            {"w": Normal(0.0, 1.0)},
            lambda p, active: -p["w"].square().sum(-1),
        )
    elif kind == "black box":
        target, _ = simple(square)
    else:
        target = trj.problems.robust_regression()
    sampler = trj.TRJSampler(target, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TRJWarning)
        before = sampler.target.evaluations
        try:
            if kind == "reverse KL":
                sampler.fit(pilot=False, max_evaluations=limit // 2, progress=False)
                assert sampler.target.evaluations - before <= limit // 2
            result = sampler.run(
                50, chains=8, fit=kind != "untrained", max_evaluations=limit, progress=False
            )
        except (BudgetError, ConfigurationError):
            assert limit == 50
            result = None
    most = 1.5 * limit if kind == "reverse KL" else limit
    assert sampler.target.evaluations - before <= most
    assert math.isinf(sampler.target.limit)
    if result is not None:
        assert result.raw.n_chains <= 8
        assert result.report.evaluations == sampler.target.evaluations - before


@pytest.mark.whole
def test_pilot_draws_from_elsewhere(generator):
    target = trj.problems.sinh_arcsinh()
    codes = target.space.enumerate()
    sampler = trj.TRJSampler(target, seed=5)
    exact = trj.problems.SinhArcsinhMap(target.space)
    z = torch.randn(3000, 2, generator=generator)
    pilot = {
        label: target.constrain(code, exact.from_reference(z, code.expand(3000, -1))[0].detach())
        for label, code in zip(target.space.label(codes), codes, strict=True)
    }
    sampler.fit(pilot=pilot, steps=150, progress=False)
    assert sampler.audit_report.mended == 0
    result = sampler.run(400, chains=128, fit=False, progress=False)
    check(result, target.truth)
    assert result.report.plan.weights["map"] > 0
    assert crossings(sampler, result) > 0.8


def test_models_without_pilot_draws_are_named(generator):
    target = trj.problems.sinh_arcsinh()
    sampler = trj.TRJSampler(target, seed=5)
    with pytest.warns(ConvergenceWarning, match="pilot: no draws of 2d; the map learns nothing"):
        sampler.fit(
            pilot={"1d": {"x": torch.randn(500, 1, generator=generator)}},
            steps=5,
            audit=False,
            progress=False,
        )


@pytest.mark.whole
def test_a_model_that_no_prior_draw_makes_possible_leaves_the_others_sampled():
    """Black boxes, so that there are neither pilot draws nor gradients to train on."""
    dead = trj.Model("dead", {"a": Normal(0.0, 1.0)}, trj.BlackBox(lambda p: -math.inf))
    alive = trj.Model(
        "alive", {"a": Normal(0.0, 1.0)}, trj.BlackBox(lambda p: -0.5 * float(p["a"]) ** 2)
    )
    sampler = trj.TRJSampler(trj.Target([dead, alive]), seed=1)
    with pytest.warns(ConvergenceWarning) as record:
        result = sampler.run(100, chains=32, warmup=50, fit=True, progress=False)
    said = " ".join(str(w.message) for w in record)
    assert "model 'dead': none of" in said
    assert "the map was not trained" in said
    assert result.model_probabilities(full=True).loc["alive", "visits"] == 1
    theta = result.raw.theta[..., 0]
    assert abs(float(theta.double().std()) - 0.5**0.5) < 0.1


@pytest.mark.parametrize(
    ("pilot", "message"),
    [
        ({}, "pilot: no draws"),
        ({"1d": {"y": [1.0]}}, "params of model '1d'"),
        ({"1d": [1.0]}, "pilot: expected for model '1d' a dict of parameters by name, got list"),
        ({"1d": {"x": torch.zeros(0, 1)}}, "pilot: no draws of model '1d'"),
        ({"3d": {"x": [1.0]}}, "no model '3d'"),
        ({"1d": {"x": [[1.0, 2.0]]}}, "expected draws of shape .*one leading dimension"),
        ("stan", "pilot: expected a bool or draws"),
    ],
)
def test_wrong_pilots_say_what_is_wrong(pilot, message):
    sampler = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=1)
    with pytest.raises(trj.errors.TRJError, match=message):
        sampler.fit(pilot=pilot, steps=5, progress=False)


@pytest.mark.slow
def test_a_large_space_without_gradients():
    """More models than a pilot visits: trained on the audit's draws of some of them."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 7, generator=generator).double().numpy()
    y = x[:, 0] - 0.8 * x[:, 3] + np.random.default_rng(1).standard_normal(30)

    def log_likelihood(p, active):
        return -0.5 * ((y - p["w"] @ x.T) ** 2).sum(-1)

    target = trj.Target(
        trj.Subsets([f"x{i}" for i in range(7)], of="w"),
        {"w": Normal(0.0, 1.0)},
        trj.BlackBox(log_likelihood, vectorized=True),
    )
    sampler = trj.TRJSampler(target, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TRJWarning)
        sampler.fit(steps=60, particles=40, moves=3, progress=False)
        result = sampler.run(60, chains=64, progress=False)
    on = result.inclusion_probabilities(full=True)["probability"]
    assert on["x0"] > 0.9 and on["x3"] > 0.8
    with pytest.raises(trj.errors.ConfigurationError, match="without gradients needs draws"):
        sampler.fit(pilot=False)
