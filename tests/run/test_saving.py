"""A run that cannot be lost: killed, cut off, full disks, two writers, and other targets."""

import copy
import errno
import itertools
import json
import math
import os
import pickle
import random
import signal
import socket
import string
import subprocess
import sys
import threading
import time
import warnings
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from benchmarks.same_draws import components, pair
from tests.small import small_policy
from trjmcmc import atomic, clock
from trjmcmc.checkpoint.events import EVENTS, read_events
from trjmcmc.checkpoint.folder import BEFORE, HEAD, read_folder
from trjmcmc.checkpoint.frozen import Roots, freeze, thaw
from trjmcmc.checkpoint.lock import FOREIGN_SECONDS, Lock
from trjmcmc.errors import CheckpointError, CheckpointWarning, InterruptedWarning, TRJError
from trjmcmc.fit.train import Training
from trjmcmc.result import packed
from trjmcmc.run import saving, writing

ROOT = Path(__file__).parents[2]
LONG = pytest.mark.whole


class Killed(BaseException):
    """What nothing catches."""


@pytest.fixture(autouse=True)
def at_each_draw(monkeypatch):
    """A head after every draw."""
    monkeypatch.setattr(writing, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(writing, "SAVE_SHARE", math.inf)
    monkeypatch.setattr(writing, "WHOLE_SEGMENT", 3000)  # so that there are several
    monkeypatch.setattr(saving.Saver, "passing", lambda *_: None)  # trainings where tests say so


def sampler_of(problem="list", seed=3, **settings):
    targets = {
        "list": pair,
        "components": components,
        "subsets": lambda: trj.problems.variable_selection(8),
        "trained": pair,
    }
    target = targets[problem]() if isinstance(problem, str) else problem
    return trj.TRJSampler(target, seed=seed, policy=small_policy(), **settings)


def run(sampler, folder=None, draws=16, **settings):
    settings = {"chains": 16, "warmup": 10, "fit": False, "progress": False} | settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trj.errors.ConvergenceWarning)
        warnings.simplefilter("ignore", trj.errors.CoverageWarning)
        warnings.simplefilter("ignore", trj.errors.DisagreementWarning)
        return sampler.run(draws=draws, checkpoint=folder, **settings)


def killed_at(kept, kind=Killed):
    """A rule that kills the run once so many draws are kept."""

    def rule(recorder):
        if recorder.kept == kept:
            if kind is KeyboardInterrupt:
                signal.raise_signal(signal.SIGINT)
                return False
            raise kind
        return False

    return rule


def killed(folder, kept=7, sampler=None, **settings):
    with pytest.raises(Killed):
        run(sampler or sampler_of(), folder, until=killed_at(kept), **settings)


def same(a, b):
    pairs = [(getattr(a.raw, n), getattr(b.raw, n)) for n in ("code", "theta", "log_joint")]
    assert all(torch.equal(x, y) for x, y in pairs)
    for x, y in zip(a.crossings or (), b.crossings or (), strict=True):
        assert torch.equal(x, y)
    assert a.report.acceptance == b.report.acceptance
    return True


@pytest.mark.parametrize(
    "problem",
    ["list", "subsets", *(pytest.param(p, marks=LONG) for p in ("components", "trained"))],
)
def test_a_run_that_is_killed_twice_ends_as_if_it_had_not_been(problem, tmp_path):
    fit = problem == "trained"
    whole = run(sampler_of(problem), fit=fit)
    for kept in (5, 11):
        killed(tmp_path, kept, sampler_of(problem), fit=fit)
    found = run(sampler_of(problem), tmp_path, fit=fit)
    assert same(whole, found)
    assert repr(whole.routes) == repr(found.routes)  # NaN is NaN


def test_a_run_goes_on_where_it_had_ended(tmp_path):
    whole = run(sampler_of(), draws=20)
    first = run(sampler_of(), tmp_path, draws=12)
    assert first.raw.n_draws == 12 and same(first, run(sampler_of(), tmp_path, draws=12))
    assert same(whole, run(sampler_of(), tmp_path, draws=20))


def test_a_record_that_is_thinned_on_the_way(tmp_path, monkeypatch):
    monkeypatch.setattr("trjmcmc.draws.STORED", 1)
    monkeypatch.setattr("trjmcmc.draws.LEAST_DRAWS_STORED", 8)

    def rule(at=10**6):
        def enough(recorder):
            steps = recorder.kept * recorder.thin
            if steps == at:
                raise Killed
            return steps >= 40

        return enough

    whole = run(sampler_of(), draws=None, until=rule())
    assert whole.raw.thin == 8 and whole.raw.n_draws == 5
    for at in (6, 20):  # before the first halving, and after it
        with pytest.raises(Killed):
            run(sampler_of(), tmp_path, draws=None, until=rule(at))
    found = run(sampler_of(), tmp_path, draws=None, until=rule())
    assert same(whole, found) and found.raw.thin == 8
    assert "thinned: one step in 8 is kept" in str(found.report)
    assert [e["thin"] for e in read_events(tmp_path) if e["event"] == "thinned"] == [2, 4, 8]


def test_a_run_without_draws_yet_says_at_which_stage_it_is(tmp_path, monkeypatch):
    def dies(*_, **__):
        raise Killed

    monkeypatch.setattr("trjmcmc.run.runner.Runner._record", dies)
    with pytest.raises(Killed):
        run(sampler_of(), tmp_path)
    stage = [e["stage"] for e in read_events(tmp_path) if e["event"] == "stage"][-1]
    with pytest.raises(TRJError, match=f"no draws yet; its latest stage is '{stage}'"):
        trj.load(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(TRJError, match="no run is saved there"):
        trj.load(tmp_path / "empty")


@pytest.mark.whole
def test_a_choice_by_times_is_kept_from_the_plan_on(tmp_path):
    with pytest.raises(Killed):
        run(sampler_of(), tmp_path, draws=30, fit="auto", until=killed_at(9))
    before = trj.load(tmp_path)
    found = run(sampler_of(), tmp_path, draws=30, fit="auto")
    assert found.report.plan.automatic and found.raw.n_draws == 30
    assert torch.equal(found.raw.theta[:, :8], before.raw.theta)


@pytest.mark.whole
@pytest.mark.parametrize("fit", ["auto", False])
def test_a_run_that_had_chosen_its_moves_may_choose_again(fit, tmp_path, monkeypatch):
    """Where a search meets a lost mode; not where all draws so far were promised to be kept."""
    sampler, seen = sampler_of(), []
    with pytest.raises(Killed):
        run(sampler, tmp_path, draws=30, fit=fit, until=killed_at(9))

    def looks(self):
        seen.append(self._may_choose)
        raise Killed

    first = run(sampler_of(), fit=fit)
    monkeypatch.setattr("trjmcmc.run.runner.Runner._record", looks)
    for settings in ({"folder": tmp_path, "fit": fit}, {"start": first, **OPEN}):
        with pytest.raises(Killed):
            run(sampler_of(), draws=30, **settings)
    assert seen == [fit == "auto", False]


@pytest.mark.whole
def test_a_fit_is_not_repeated(tmp_path, monkeypatch):
    whole = run(sampler_of(), fit=True)

    def dies(*_, **__):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("trjmcmc.run.knowledge.Knowledge.weigh_visited", dies)
        patch.setattr("trjmcmc.run.preparation.starting_models", dies)
        run(sampler_of(), tmp_path, fit=True)
    with monkeypatch.context() as patch:
        patch.setattr("trjmcmc.fit.trainer.Trainer.fit", dies)
        assert same(whole, run(sampler_of(), tmp_path, fit=True))


@pytest.mark.whole
def test_a_training_that_is_killed_begins_anew_without_its_pilot_run(tmp_path, monkeypatch):
    whole = run(sampler_of(), fit=True)

    def dies(*_, **__):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("trjmcmc.fit.trainer.train", dies)
        run(sampler_of(), tmp_path, fit=True)
    (plan,) = tmp_path.glob("plan-*")
    assert read_events(tmp_path)[-1]["event"] == "saved" and plan.stat().st_size
    with monkeypatch.context() as patch:
        patch.setattr("trjmcmc.pilot.audit.TemperedSMC", dies)
        assert same(whole, run(sampler_of(), tmp_path, fit=True))


def killed_in_training(monkeypatch, folder, at, sampler, **settings):
    """Run until so many steps of a training are made and saved."""

    def passing(self, known):
        if known.trainer.step == at:
            self.learnt(known)
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(saving.Saver, "passing", passing)
        run(sampler, folder, **{"fit": True, **settings})


def steps_made(monkeypatch):
    """Numbers of the training steps from now on."""
    found, advance = [], Training.advance

    def noted(self, bar):
        advance(self, bar)
        found.append(self.step)

    monkeypatch.setattr(Training, "advance", noted)
    return found


def trains(problem="list", steps=60, **settings):
    """A sampler whose trainings are short."""
    usual = small_policy()
    training = replace(usual.fit.training, steps=steps, batch=64, window_steps=20)
    locating = replace(usual.fit.locating, iterations=5)
    fit = replace(usual.fit, training=training, most_mends=1, locating=locating)
    policy = replace(usual, fit=fit)
    target = pair() if problem == "list" else trj.problems.variable_selection(8)
    return trj.TRJSampler(target, seed=3, policy=policy, **settings)


@pytest.fixture(scope="module")
def trained():
    return run(trains(), fit=True)


@pytest.mark.whole
def test_a_training_that_is_killed_twice_goes_on_where_it_was(trained, tmp_path, monkeypatch):
    for at in (30, 55):  # in its windows, and after the first that were judged
        killed_in_training(monkeypatch, tmp_path, at, trains())
    made = steps_made(monkeypatch)
    found = run(trains(), tmp_path, fit=True)
    assert made == list(range(56, 61))
    assert same(trained, found) and repr(trained.routes) == repr(found.routes)
    for name in ("step", "objective", "draws", "best_step", "stopped"):
        assert getattr(trained.report.fit, name) == getattr(found.report.fit, name)
    assert [e["step"] for e in read_events(tmp_path) if e["event"] == "resumed"] == [30, 55]


@pytest.mark.whole
def test_a_training_without_its_moments_is_another(trained, tmp_path, monkeypatch):
    """The control: what is saved of the optimiser matters to the draws."""
    killed_in_training(monkeypatch, tmp_path, 30, trains())
    monkeypatch.setattr(torch.optim.Adam, "load_state_dict", lambda *_: None)
    assert not torch.equal(trained.raw.theta, run(trains(), tmp_path, fit=True).raw.theta)


@LONG
def test_a_map_that_is_trained_again_goes_on_too(tmp_path, monkeypatch):
    """Every model falls short once, so that the map is trained twice."""
    monkeypatch.setattr("trjmcmc.pilot.report.Score.short", property(lambda s: s.covered > -1.0))
    whole = run(trains(), fit=True)
    killed_in_training(monkeypatch, tmp_path, 33, trains())
    made = steps_made(monkeypatch)

    def second(self, known):
        if known.trace is not None and known.trainer.step == 10:
            self.learnt(known)
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(saving.Saver, "passing", second)
        run(trains(), tmp_path, fit=True)
    found = run(trains(), tmp_path, fit=True)
    again = int(60 * small_policy().fit.mending_share)
    assert made == [*range(34, 61), *range(1, again + 1)] and same(whole, found)


@LONG
@pytest.mark.parametrize("weights", [None, trj.Made])
def test_trainings_without_draws_go_on(weights, tmp_path, monkeypatch):
    """Of many models, through what Laplace's maps remember; with q(m), that is learnt beside it."""
    short = {"draws": 4, "warmup": 4, "fit": True}
    whole = run(trains("subsets", 20, models=weights), **short)
    sampler = trains("subsets", 20, models=weights)
    killed_in_training(monkeypatch, tmp_path, 15, sampler, **short)
    made = steps_made(monkeypatch)
    found = run(trains("subsets", 20, models=weights), tmp_path, **short)
    assert made == list(range(16, 21)) and same(whole, found)


def far_down():
    """Models whose log densities float32 does not resolve."""

    def log_likelihood(p):
        return Normal(0.3, 0.1).log_prob(p["x"]) - 3e5

    names = {"a": 1.0, "b": 2.0}
    return trj.Target(
        [trj.Model(k, {"x": Normal(0.0, v)}, log_likelihood) for k, v in names.items()]
    )


@pytest.mark.whole
def test_a_run_that_is_killed_before_it_begins_anew_in_float64(tmp_path, monkeypatch):
    def dies(*_, **__):
        raise Killed

    def begins():
        return run(sampler_of(far_down()), tmp_path, 10, fit="auto", shards=2)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("trjmcmc.run.preparation.starting_models", dies)
        begins()
    before = read_folder(tmp_path, plan=False).head
    assert before["dtype"] == "torch.float32" and before["spent"] > 0
    found, head = begins(), read_folder(tmp_path, plan=False).head
    assert found.raw.theta.dtype == torch.float64 and "float32" in found.report.precision
    assert head["spent"] > before["spent"]
    assert head["account"]["evaluations"] > before["account"]["evaluations"]


@pytest.mark.whole
def test_ctrl_c_writes_a_head(tmp_path, monkeypatch):
    whole = run(sampler_of())
    monkeypatch.setattr(writing, "SAVE_SECONDS", 1000.0)
    with pytest.warns(InterruptedWarning, match="after 9 of 16"):
        stopped = run(sampler_of(), tmp_path, until=killed_at(9, KeyboardInterrupt))
    assert stopped.raw.n_draws == 9 == trj.load(tmp_path).raw.n_draws
    assert same(whole, run(sampler_of(), tmp_path))


@pytest.mark.whole
def test_the_result_so_far_is_shown_while_the_run_goes_on(tmp_path):
    seen = []

    def look(recorder):
        if recorder.kept == 10:
            seen.append(trj.load(tmp_path))
        return False

    result = run(sampler_of("components"), tmp_path, until=look)
    (so_far,) = seen
    assert so_far.raw.n_draws == 9 and torch.equal(so_far.raw.theta, result.raw.theta[:, :9])
    label = so_far._indicator.visited[0]
    assert set(so_far.draws(label)) == set(result.draws(label))
    assert so_far.report.evaluations < result.report.evaluations
    assert set(so_far.model_probabilities(full=True)) == set(result.model_probabilities(full=True))


@pytest.mark.whole
def test_seconds_and_evaluations_count_what_was_spent_before(tmp_path):
    killed(tmp_path, 9)
    head = read_folder(tmp_path, plan=False).head
    spent = head["account"]["evaluations"]
    assert spent > 0 and head["spent"] > 0
    with pytest.raises(CheckpointError, match="another fit"):
        run(sampler_of(), tmp_path, fit=True)
    found = run(sampler_of(), tmp_path, draws=1000, max_evaluations=spent + 2000)
    assert found.report.budget_spent and spent < found.report.evaluations <= spent + 2000
    again = run(sampler_of(), tmp_path, draws=1000, max_evaluations=spent + 2000)
    assert again.raw.n_draws == found.raw.n_draws  # the control
    more = run(sampler_of(), tmp_path, draws=1000, max_evaluations=spent + 4000)
    assert more.report.budget_spent and more.raw.n_draws > 1.5 * found.raw.n_draws
    assert spent + 3000 < more.report.evaluations <= spent + 4000
    late = run(sampler_of(), tmp_path, draws=10**6, max_seconds=head["spent"] / 2)
    assert late.report.out_of_time


# ---- what files take ----------------------------------------------------------------------------


def test_many_integers_are_held_in_the_smallest_type(generator):
    roots = Roots({}, set())
    found = {
        "many": torch.arange(5000) % 100,
        "few": torch.arange(7),
        "floats": torch.rand(5000, generator=generator),
    }
    data = freeze(found, roots)
    assert [t.dtype for t in data["tensors"]] == [torch.int8, torch.int64, torch.float32]
    again = thaw(data, roots)
    for name, tensor in found.items():
        assert again[name].dtype == tensor.dtype and torch.equal(again[name], tensor)


def test_repeats_are_searched_for_where_there_are_any(generator, tmp_path):
    moving = torch.randn(300, 500, generator=generator)
    staying = moving[:1].repeat(300, 1)
    for name, x, share in (("moving", moving, 0.95), ("staying", staying, 0.1)):
        (tmp_path / name).write_bytes(content := packed.pack({"x": x}))
        assert torch.equal(packed.unpack(tmp_path / name)["x"], x)
        assert len(content) < share * x.numel() * x.element_size()
        searched = zlib.compress(x.numpy().tobytes(), 1)
        assert len(content) < 1.2 * len(searched)


# ---- damage -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder_of_ten(tmp_path_factory):
    """A run that was killed after its tenth draw; its head is of the ninth."""
    folder = tmp_path_factory.mktemp("ten")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "SAVE_SECONDS", 0.0)
        patch.setattr(writing, "SAVE_SHARE", math.inf)
        patch.setattr(writing, "WHOLE_SEGMENT", 0)
        killed(folder, 10)
    return {p.name: p.read_bytes() for p in folder.glob("*.ckpt")}


@pytest.mark.parametrize("files", ["heads", pytest.param("all", marks=LONG)])
def test_damage_is_found_and_the_head_before_is_used(files, folder_of_ten, tmp_path):
    """Every file, cut off at every thousandth byte, and with bits flipped."""
    newest = max(n for n in folder_of_ten if n.startswith("draws"))
    rng = random.Random(0)
    for file, whole in folder_of_ten.items():
        (tmp_path / file).write_bytes(whole)
    for name, content in folder_of_ten.items():
        if files == "heads" and name not in {HEAD, BEFORE}:
            continue
        cut = [content[:n] for n in (1, 7, 39, 40, len(content) - 1, *range(0, len(content), 1000))]
        for _ in range(5):
            place, bit = rng.randrange(len(content)), 1 << rng.randrange(8)
            cut.append(content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :])
        plan = name.startswith("plan")
        for damaged in cut:
            (tmp_path / name).write_bytes(damaged)
            if name in {HEAD, newest, BEFORE}:
                kept = 9 if name == BEFORE else 8
                assert read_folder(tmp_path, plan=False).head["kept"] == kept
            else:  # both heads need it
                with pytest.raises(CheckpointError, match=f"{name} is damaged"):
                    read_folder(tmp_path, plan=plan)
        (tmp_path / name).write_bytes(content)


@pytest.mark.whole
def test_a_run_goes_on_from_the_head_before(folder_of_ten, tmp_path):
    for file, content in folder_of_ten.items():
        (tmp_path / file).write_bytes(content[:-9] if file == HEAD else content)
    killed(tmp_path, 9)  # just after it has begun: the good head must be there still
    assert same(run(sampler_of()), run(sampler_of(), tmp_path))


def test_a_full_disk_is_told_once_and_sampling_goes_on(tmp_path, monkeypatch):
    whole, calls = run(sampler_of()), []

    def full(handle):
        calls.append(handle)
        if 20 < len(calls) < 26:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic.os, "fsync", full)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = run(sampler_of(), tmp_path)
    told = [w for w in said if issubclass(w.category, CheckpointWarning)]
    assert len(told) == 1 and "No space left" in str(told[0].message)
    assert same(whole, found) and not list(tmp_path.glob(".*"))
    assert read_folder(tmp_path, plan=False).head["kept"] == 16  # the disk had room again
    assert same(whole, run(sampler_of(), tmp_path))


class HalfWritten:
    """A file on a disk that is full after some bytes."""

    def __init__(self, path, mode):
        self.file = open(path, mode)  # noqa: SIM115

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def write(self, content):
        self.file.write(content[:100])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.whole
@pytest.mark.parametrize("fault", ["write", "fsync", "replace"])
def test_what_fails_on_the_disk_leaves_the_head_before(fault, tmp_path, monkeypatch):
    whole, kept = run(sampler_of()), []

    def fails(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def from_the_fifth(recorder):
        if recorder.kept == 5:
            if fault == "write":
                monkeypatch.setattr(atomic, "open", HalfWritten, raising=False)
            else:
                monkeypatch.setattr(atomic.os, fault, fails)
        if recorder.kept == 9:
            kept.append(trj.load(tmp_path).raw.n_draws)
            raise Killed
        return False

    with (
        pytest.warns(CheckpointWarning, match="No space left|Input/output error") as said,
        pytest.raises(Killed),
    ):
        run(sampler_of(), tmp_path, until=from_the_fifth)
    monkeypatch.undo()
    assert kept == [4] and len(said) == 1 and not list(tmp_path.glob(".*"))
    told = [e for e in read_events(tmp_path) if e["event"] == "unsaved"]
    assert len(told) >= 4
    assert same(whole, run(sampler_of(), tmp_path))


def test_a_folder_that_is_read_only(tmp_path, monkeypatch):
    def refuses(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("trjmcmc.checkpoint.lock.os.open", refuses)
    with pytest.warns(CheckpointWarning, match="Read-only file system.*goes on unsaved"):
        assert run(sampler_of(), tmp_path).raw.n_draws == 16


@pytest.mark.whole
@pytest.mark.parametrize("jump", [1e6, -1e6])
def test_a_clock_that_jumps_costs_no_draws_and_no_heads(jump, tmp_path, monkeypatch):
    """As where a machine sleeps, or a simulated clock is set; the usual one never goes back."""
    whole, ahead = run(sampler_of()), [0.0]
    monkeypatch.setattr(writing, "SAVE_SECONDS", 0.001)

    def jumps(recorder):
        ahead[0] = jump if recorder.kept >= 6 else 0.0
        if recorder.kept == 12:
            raise Killed
        return False

    with clock.read_from(lambda: time.monotonic() + ahead[0]), pytest.raises(Killed):
        run(sampler_of(), tmp_path, until=jumps)
    head = read_folder(tmp_path, plan=False).head
    assert head["kept"] >= 6 and head["spent"] >= 0
    assert same(whole, run(sampler_of(), tmp_path))


def test_events_tell_what_happens_to_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "TOLD_SECONDS", 0.0)
    killed(tmp_path, 9)
    with open(tmp_path / EVENTS, "a") as file:
        file.write('{"event": "cut o')  # by the kill
    run(sampler_of(), tmp_path)
    told = read_events(tmp_path)
    assert [e["event"] for e in told if e["event"] in {"begun", "resumed", "ended"}] == [
        "begun",
        "resumed",
        "ended",
    ]
    assert {"the warm-up", "the sampling"} <= {e.get("stage") for e in told}
    progress = [e for e in told if e["event"] == "progress"]
    assert [e["kept"] for e in progress][-1] == 16 and told[-1]["why"] == "draws"
    resumed = next(e for e in told if e["event"] == "resumed")
    assert resumed["kept"] == 8 and resumed["seed"] == 3
    assert all(a["time"] <= b["time"] for a, b in itertools.pairwise(told))
    assert [e["spent"] for e in told] == sorted(e["spent"] for e in told) or resumed["spent"] > 0


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(CheckpointWarning, match="goes on unsaved"):
        found = run(sampler_of(), tmp_path / "file" / "run")
    assert found.raw.n_draws == 16


# ---- who writes ---------------------------------------------------------------------------------


def test_two_writers_are_refused(tmp_path):
    def another(recorder):
        with pytest.raises(CheckpointError, match=f"process {os.getpid()} on"):
            run(sampler_of(), tmp_path)
        return recorder.kept == 2

    assert run(sampler_of(), tmp_path, until=another).raw.n_draws == 2
    assert not (tmp_path / "lock").exists()


def test_stale_locks_are_taken_over(tmp_path):
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], stdout=-1)
    here = socket.gethostname()
    stale = [
        {"pid": int(gone.stdout), "host": here, "begun": "1"},  # that process has ended
        {"pid": os.getpid(), "host": here, "begun": "1"},  # another had its number before
        {},  # cut off
    ]
    for who in stale:
        (tmp_path / "lock").write_text(json.dumps(who) if who else '{"pid')
        Lock(tmp_path).release()
        assert not (tmp_path / "lock").exists()
    foreign = json.dumps({"pid": 1, "host": "elsewhere", "begun": "1"})
    (tmp_path / "lock").write_text(foreign)
    with pytest.raises(CheckpointError, match="process 1 on elsewhere"):
        Lock(tmp_path)
    old = os.stat(tmp_path / "lock").st_mtime - FOREIGN_SECONDS - 1
    os.utime(tmp_path / "lock", (old, old))
    Lock(tmp_path).release()


# ---- what belongs to it -------------------------------------------------------------------------


def shifted():
    """The same names and priors, other data."""
    target = pair()

    def log_likelihood(p):
        return Normal(p["a"].sum(-1, keepdim=True), 1.0).log_prob(torch.tensor([0.31])).sum(-1)

    models = [
        trj.Model(f"{n}", {"a": Normal(torch.zeros(n), torch.ones(()))}, log_likelihood)
        for n in (1, 2)
    ]
    return trj.Target(models, dtype=target.dtype)


def test_another_run_is_refused_by_name(folder_of_ten, tmp_path, monkeypatch):
    for file, content in folder_of_ten.items():
        (tmp_path / file).write_bytes(content)
    refused = {
        "another dtype": lambda: run(sampler_of(pair(torch.float64)), tmp_path),
        "another seed": lambda: run(sampler_of(seed=4), tmp_path),
        "another chains": lambda: run(sampler_of(), tmp_path, chains=8),
        "another space of models": lambda: run(sampler_of("components"), tmp_path),
        "other priors, data or likelihoods": lambda: run(sampler_of(shifted()), tmp_path),
    }
    for what, again in refused.items():
        with pytest.raises(CheckpointError, match=what):
            again()
    for name, value in (("version", lambda: "0.1"), ("torch.__version__", "1.2.3")):
        with monkeypatch.context() as patch:
            patch.setattr(f"trjmcmc.run.same.{name}", value)
            with pytest.raises(CheckpointError, match=r"another version of .*, not (0\.1|1\.2)"):
                run(sampler_of(), tmp_path)
    assert run(sampler_of(seed=None), tmp_path).report.seed == 3  # the one of the folder


def test_nothing_outside_the_allow_list_is_loaded(tmp_path):
    touched = tmp_path / "touched"

    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {touched}",)

    named = [
        pickle.dumps(Evil()),
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"ctorch.storage\n_load_from_bytes\n(S'1'\ntR.",
        b"ctrjmcmc.result.files\nwrite\n(S'1'\ntR.",
        b"ctrjmcmc.result.result\nResult\n(S'1'\ntR.",
        b"ctrjmcmc.run.sampler\nTRJSampler\n(S'1'\ntR.",
        b"ctrjmcmc.checkpoint.folder\nFolder\n(S'1'\ntR.",
        pickle.dumps(Path, protocol=4),
    ]
    for body in named:
        data = {"body": torch.frombuffer(bytearray(body), dtype=torch.uint8)}
        with pytest.raises(CheckpointError, match="not allowed"):
            thaw(data, Roots({}, set()))
    assert not touched.exists()
    pickle.loads(named[0])  # the control: what was refused would have done it
    assert touched.exists()
    fine = pickle.dumps(trj.Policy())
    data = {"body": torch.frombuffer(bytearray(fine), dtype=torch.uint8)}
    assert thaw(data, Roots({}, set())) == trj.Policy()


class Walk(trj.kernel.Kernel):
    """A kernel of the user's."""

    name, within, between = "walk", True, True

    def __init__(self, target):
        self.inner = trj.kernel.Cycle(
            [
                trj.kernel.BirthDeath(target, trj.kernel.Fixed(target.space, other=True)),
                trj.kernel.RandomWalk(target),
            ]
        )

    def step(self, state, generator):
        return self.inner.step(state, generator)

    def frozen(self):
        return copy.copy(self)  # another object than the script makes


def test_kernels_of_the_user_are_saved_by_what_they_hold(tmp_path):
    target = pair()
    whole = run(trj.TRJSampler(target, kernel=Walk(target), seed=3, policy=small_policy()))
    target = pair()
    sampler = trj.TRJSampler(target, kernel=Walk(target), seed=3, policy=small_policy())
    killed(tmp_path, 7, sampler)
    target = pair()
    again = trj.TRJSampler(target, kernel=Walk(target), seed=3, policy=small_policy())
    assert same(whole, run(again, tmp_path))


def test_what_cannot_be_saved_is_told_and_the_run_goes_on(tmp_path):
    class Wordy(Walk):
        def frozen(self):
            found = copy.copy(self)
            found.words = string.Template("a")
            return found

    target = pair()
    sampler = trj.TRJSampler(target, kernel=Wordy(target), seed=3, policy=small_policy())
    with pytest.warns(CheckpointWarning, match=r"can't be saved: string\.Template"):
        found = run(sampler, tmp_path)
    assert found.raw.n_draws == 16 and not list(tmp_path.glob("*.ckpt"))


# ---- in this process ----------------------------------------------------------------------------


def test_more_draws_of_a_run_that_has_ended():
    sampler = sampler_of()
    with pytest.raises(trj.errors.ConfigurationError, match="call run first"):
        sampler.more(draws=5)
    first = run(sampler, draws=12)
    before = sampler.account.evaluations
    warnings.simplefilter("ignore")  # of so short a run
    more = sampler.more(draws=8, progress=False)
    assert more.raw.n_draws == 20 and torch.equal(more.raw.theta[:, :12], first.raw.theta)
    assert more.report.steps == 20 and "survey" not in more.report.seconds
    assert more.report.evaluations == sampler.account.evaluations - before > 0
    last = sampler.more(until={"rhat": 1.5}, max_seconds=20, progress=False)
    assert last.raw.n_draws > 20
    with pytest.raises(trj.errors.ConfigurationError, match="how long"):
        sampler.more()


KILLED = """
import sys, torch, warnings
warnings.simplefilter("ignore")
torch.set_num_threads(1)
from tests.run.test_saving import run, sampler_of
from trjmcmc.run import saving, writing
writing.SAVE_SECONDS, writing.SAVE_SHARE = 0.0, float("inf")
tell = lambda recorder: print(recorder.kept, flush=True)
run(sampler_of("components"), sys.argv[1], draws=30, until=tell)
"""


@LONG
def test_sigkill_at_random_moments(tmp_path):
    """In processes of their own; the long version is benchmarks/kills.py."""
    rng, reached = random.Random(7), 0
    while reached < 20:
        command = [sys.executable, "-c", KILLED, str(tmp_path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
        for line in process.stdout:
            if int(line) >= reached + 10:
                reached = int(line)
                break
        threading.Event().wait(rng.uniform(0.0, 0.02))
        process.kill()
        process.wait()
        process.stdout.close()
    found = run(sampler_of("components"), tmp_path, draws=30)
    assert same(run(sampler_of("components"), draws=30), found)


# ---- from a result ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "problem", ["list", *(pytest.param(p, marks=LONG) for p in ("subsets", "components"))]
)
def test_a_result_goes_on_as_if_it_had_not_ended(problem, tmp_path):
    whole = run(sampler_of(problem), draws=20)
    sampler = sampler_of(problem)
    first = run(sampler, draws=12)
    before = sampler.account.evaluations
    found = run(sampler, draws=20, start=first, **OPEN)
    assert same(whole, found) and "survey" not in found.report.seconds
    assert found.report.evaluations == sampler.account.evaluations - before > 0
    first.save(tmp_path / "first.trj")
    there = trj.load(tmp_path / "first.trj")
    for result in (there, pickle.loads(pickle.dumps(first))):
        found = run(sampler_of(problem, seed=None), draws=20, start=result, **OPEN)
        assert same(whole, found) and set(first.routes) <= set(found.routes)


OPEN = {"chains": None, "warmup": None, "fit": "auto"}  # as the result has them


def test_points_that_overflowed_before_sampling_are_no_part_of_what_goes_on(tmp_path):
    sampler = sampler_of()
    sampler.account.add(overflows=torch.tensor(302))  # as of a pilot run
    first = run(sampler, draws=12)
    first.save(tmp_path / "first.trj")
    found = run(sampler_of(), draws=20, start=trj.load(tmp_path / "first.trj"), **OPEN)
    assert first.report.overflows == found.report.overflows == 0


@pytest.mark.whole
def test_a_result_that_goes_on_may_be_saved_in_a_folder(tmp_path):
    whole, first = run(sampler_of(), draws=20), run(sampler_of(), draws=8)
    with pytest.raises(Killed):
        run(sampler_of(), tmp_path, 20, start=first, until=killed_at(13), **OPEN)
    assert trj.load(tmp_path).raw.n_draws == 12
    assert same(whole, run(sampler_of(), tmp_path, 20, start=first, **OPEN))


def test_results_of_other_runs_are_refused_by_name():
    first, bad = run(sampler_of()), trj.errors.ConfigurationError
    refused = {
        "another dtype": (CheckpointError, lambda: sampler_of(pair(torch.float64)), {}),
        "another seed": (CheckpointError, lambda: sampler_of(seed=4), {}),
        "another space of models": (CheckpointError, lambda: sampler_of("components"), {}),
        "other priors, data or": (CheckpointError, lambda: sampler_of(shifted()), {}),
        "chains=16, not 8": (bad, sampler_of, {"chains": 8}),
        "thin=1, not 2": (bad, sampler_of, {"thin": 2}),
        "fit=False, not True": (bad, sampler_of, {"fit": True}),
        "draws=16 counts these": (bad, sampler_of, {"draws": 16}),
    }
    for what, (error, make, settings) in refused.items():
        with pytest.raises(error, match=what):
            run(make(), start=first, **{"draws": 20, **OPEN, **settings})
    first.onward = {**first.onward.data(), "versions": {"trjmcmc": "0.1", "torch": "2.0"}}
    with pytest.raises(CheckpointError, match=r"another version of trjmcmc: 0\.1"):
        run(sampler_of(), start=first, draws=20, **OPEN)


def test_a_map_that_was_trained_since_is_told():
    sampler = sampler_of()
    first = run(sampler)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler.fit(steps=3, batch=8, pilot=False, audit=False, progress=False)
    for again in (lambda: sampler.more(draws=4), lambda: run(sampler, start=first, **OPEN)):
        with pytest.raises(trj.errors.ConfigurationError, match="trained since"):
            again()


@pytest.mark.whole
def test_a_result_that_knows_no_moves_gives_points():
    first = run(sampler_of())
    first.onward = None
    found = run(sampler_of(), start=first)
    assert found.raw.n_draws == 16 and found.report.start.points == 16 * 16
