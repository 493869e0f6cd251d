"""Bars where they can be seen; lines on stderr, or in a log, where they can't."""

import io
import logging
import sys
from types import SimpleNamespace

import pytest

import trjmcmc as trj
from tests.clock import simulated
from trjmcmc import clock, progress


@pytest.fixture
def minutes():
    """Every reading comes a minute after the one before."""
    seconds = iter(range(0, 10**9, 61))
    with clock.read_from(lambda: float(next(seconds))):
        yield


@pytest.fixture
def unlogged(monkeypatch):
    """As a script that has set up no logging."""
    monkeypatch.setattr(progress.LOGGER, "level", logging.WARNING)


def notebook(monkeypatch, *, widgets):
    monkeypatch.setitem(
        sys.modules,
        "IPython",
        SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel="of Jupyter")),
    )
    there = {"ipywidgets": widgets}
    monkeypatch.setattr(progress.importlib.util, "find_spec", lambda name: there[name] or None)


def test_lines_say_how_far_a_stage_is(minutes, unlogged, capsys):
    with progress.progress_bar(True, total=4, desc="sample", unit="draw") as bar:
        bar.set_postfix_str("error 0.02")
        bar.update()
    assert capsys.readouterr().err.splitlines() == [
        "sample: 25% (1 of 4 draws), 183 s left, 61 s so far, error 0.02",
        "sample: 25% (1 of 4 draws), 122 s, error 0.02",
    ]


def test_an_open_end_is_counted(minutes, caplog):
    with (
        caplog.at_level(logging.INFO, "trjmcmc"),
        progress.progress_bar(True, desc="warm-up", unit="step") as bar,
    ):
        bar.update(7)
    assert caplog.messages == ["warm-up: 7 steps, 61 s so far", "warm-up: 7 steps, 122 s"]


def test_numbers_by_name_are_shown(minutes, unlogged, capsys):
    with progress.progress_bar(True, total=2, desc="fit", unit="step") as bar:
        bar.set_postfix({"loss": 1.23456, "mode": 3})
    assert capsys.readouterr().err == "fit: 0% (0 of 2 steps), 61 s, loss 1.23, mode 3\n"


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")  # a short run
@pytest.mark.parametrize("shown", [True, False])
def test_a_run_says_how_it_went_unless_it_is_to_be_silent(shown, unlogged, capsys):
    sampler = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=1)
    with simulated():
        sampler.run(draws=5, chains=4, warmup=5, fit=False, progress=shown)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == shown
    for line in lines:
        assert line.startswith("sampling: 1 rounds, ") and ", standard error " in line
        assert line.endswith(", about 0 s left")


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_what_is_logged_is_not_printed(caplog, capsys):
    sampler = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=1)
    with caplog.at_level(logging.INFO, "trjmcmc"), simulated():
        sampler.run(draws=5, chains=4, warmup=5, fit=False)
    assert [m.partition(":")[0] for m in caplog.messages] == ["sampling"]
    assert capsys.readouterr().err == ""


def test_a_terminal_has_a_bar_that_is_cleared(monkeypatch):
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", screen)
    with progress.progress_bar(True, desc="sampling", unit="round") as bar:
        bar.set_postfix_str("standard error 0.02")
        bar.update()
        bar.refresh()
    shown = screen.getvalue()
    assert "sampling: 1 rounds, 00:00, standard error 0.02" in shown
    assert shown.split("\r")[-2].strip() == ""  # the line is blank when it ends


def test_a_notebook_without_widgets_has_the_bar_of_a_terminal(monkeypatch):
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    notebook(monkeypatch, widgets=False)
    with progress.progress_bar(True, total=2, desc="fit", unit="step") as bar:
        bar.update()
        bar.refresh()
    assert "fit:  50%" in pipe.getvalue() and pipe.getvalue().split("\r")[-2].strip() == ""


def test_a_notebook_with_widgets_has_one(monkeypatch):
    made = []
    drawn = SimpleNamespace(tqdm=lambda **options: made.append(options))
    monkeypatch.setitem(sys.modules, "tqdm.notebook", drawn)
    notebook(monkeypatch, widgets=True)
    progress.progress_bar(True, desc="sampling", unit="round")
    assert made == [{"leave": False, "desc": "sampling", "unit": "round"}]
