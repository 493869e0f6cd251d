"""A folder that cannot be lost: cut off, full disks, two writers."""

import errno
import json
import os
import random
import socket
import subprocess
import sys
import warnings
import zlib

import pytest
import torch

import trjmcmc as trj
from tests.run.test_rounds_saved import (  # noqa: F401
    ENOUGH,
    KINDS,
    LONG,
    QUICK,
    Killed,
    at_each_step,
    killed,
    run,
    same,
    whole_run,
)
from trjmcmc import atomic
from trjmcmc.checkpoint.events import EVENTS, read_events
from trjmcmc.checkpoint.folder import BEFORE, HEAD, read_folder
from trjmcmc.checkpoint.lock import FOREIGN_SECONDS, Lock
from trjmcmc.errors import CheckpointError, CheckpointWarning, TRJError
from trjmcmc.result import packed
from trjmcmc.run import rounds_saved

LIST = KINDS["list"]


def test_a_run_without_draws_yet_says_at_which_stage_it_is(tmp_path, monkeypatch):
    def dies(*_, **__):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("trjmcmc.run.rounds.teach", dies)
        run(LIST(), tmp_path)
    with pytest.raises(TRJError, match="no draws yet; its latest stage is 'the beginning'"):
        trj.load(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(TRJError, match="no run is saved there"):
        trj.load(tmp_path / "empty")


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
def folder_of_nine(tmp_path_factory):
    """A run that was killed after its ninth step; its head is of that, the one before of eight."""
    folder = tmp_path_factory.mktemp("nine")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds_saved, "SAVE_SECONDS", 0.0)
        patch.setattr(rounds_saved, "SAVE_SHARE", float("inf"))
        patch.setattr(rounds_saved, "WHOLE_SEGMENT", 0)
        killed(LIST(), folder, 9, patch)
    return {p.name: p.read_bytes() for p in folder.glob("*.ckpt")}


@pytest.mark.parametrize("files", ["heads", pytest.param("all", marks=LONG)])
def test_damage_is_found_and_the_head_before_is_used(files, folder_of_nine, tmp_path):
    """Every file, cut off at every thousandth byte, and with bits flipped."""
    newest = max(n for n in folder_of_nine if n.startswith("draws"))
    rng = random.Random(0)
    for file, whole in folder_of_nine.items():
        (tmp_path / file).write_bytes(whole)
    last = read_folder(tmp_path).head["kept"]
    for name, content in folder_of_nine.items():
        if files == "heads" and name not in {HEAD, BEFORE}:
            continue
        every = max(1000, len(content) // 50)
        cut = [
            content[:n] for n in (1, 7, 39, 40, len(content) - 1, *range(0, len(content), every))
        ]
        for _ in range(5):
            place, bit = rng.randrange(len(content)), 1 << rng.randrange(8)
            cut.append(content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :])
        for damaged in cut:
            (tmp_path / name).write_bytes(damaged)
            if name in {HEAD, newest, BEFORE}:
                kept = last if name == BEFORE else last - 1
                assert read_folder(tmp_path).head["kept"] == kept
            else:  # both heads need it
                with pytest.raises(CheckpointError, match=f"{name} is damaged"):
                    read_folder(tmp_path)
        (tmp_path / name).write_bytes(content)


@pytest.mark.whole
def test_a_run_goes_on_from_the_head_before(folder_of_nine, tmp_path):
    for file, content in folder_of_nine.items():
        (tmp_path / file).write_bytes(content[:-9] if file == HEAD else content)
    assert same(whole_run("list"), run(LIST(), tmp_path))


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


@pytest.mark.parametrize(
    "fault", ["write", *(pytest.param(x, marks=LONG) for x in ("fsync", "replace"))]
)
def test_what_fails_on_the_disk_leaves_the_head_before(fault, tmp_path, monkeypatch):
    whole, write, kept = whole_run("list"), rounds_saved.RoundsSaver.save, []

    def fails(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def from_the_fifth(self, wanted, **told):
        kept.append(1)
        if len(kept) == 5:
            if fault == "write":
                monkeypatch.setattr(atomic, "open", HalfWritten, raising=False)
            else:
                monkeypatch.setattr(atomic.os, fault, fails)
        write(self, wanted, **told)
        if len(kept) == 9:
            raise Killed

    with warnings.catch_warnings(record=True) as said, pytest.raises(Killed):
        warnings.simplefilter("always")
        monkeypatch.setattr(rounds_saved.RoundsSaver, "save", from_the_fifth)
        sampler = trj.TRJSampler(LIST(), seed=3, plan=QUICK)
        sampler.run(until={"probability": ENOUGH}, checkpoint=tmp_path, progress=False)
    monkeypatch.undo()
    told = [w for w in said if issubclass(w.category, CheckpointWarning)]
    assert len(told) == 1 and not list(tmp_path.glob(".*"))
    assert read_folder(tmp_path).head["kept"] == 4
    assert len([e for e in read_events(tmp_path) if e["event"] == "unsaved"]) >= 4
    assert same(whole, run(LIST(), tmp_path))


def test_a_folder_that_is_read_only(tmp_path, monkeypatch):
    def refuses(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("trjmcmc.checkpoint.lock.os.open", refuses)
    sampler = trj.TRJSampler(LIST(), seed=3, plan=QUICK)
    with pytest.warns(CheckpointWarning, match="Read-only file system.*goes on unsaved"):
        sampler.run(5, chains=8, checkpoint=tmp_path, progress=False)


def test_events_tell_what_happens_to_a_run(tmp_path, monkeypatch):
    killed(LIST(), tmp_path, 9, monkeypatch)
    with open(tmp_path / EVENTS, "a") as file:
        file.write('{"event": "cut o')  # by the kill
    run(LIST(), tmp_path)
    told = read_events(tmp_path)
    assert [e["event"] for e in told if e["event"] in {"begun", "resumed", "ended"}] == [
        "begun",
        "resumed",
        "ended",
    ]
    assert {"the beginning", "the rounds"} <= {e.get("stage") for e in told}
    assert [e["kept"] for e in told if e["event"] == "progress"] and told[-1]["why"] == "enough"
    resumed = next(e for e in told if e["event"] == "resumed")
    assert resumed["kept"] == 9 and resumed["seed"] == 3


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    sampler = trj.TRJSampler(LIST(), seed=3, plan=QUICK)
    with pytest.warns(CheckpointWarning, match="goes on unsaved"):
        sampler.run(5, chains=8, checkpoint=tmp_path / "file" / "run", progress=False)


# ---- who writes ---------------------------------------------------------------------------------


def test_two_writers_are_refused(tmp_path):
    def another(draws):
        with pytest.raises(CheckpointError, match=f"process {os.getpid()} on"):
            run(LIST(), tmp_path)
        return True

    run(LIST(), tmp_path, until=another)
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
