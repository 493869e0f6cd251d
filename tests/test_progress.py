"""Lines in a log file where no bar can be seen."""

import logging

import pytest

import trjmcmc as trj
from trjmcmc import clock, progress


@pytest.fixture
def minutes():
    """Every update comes a minute after the one before."""
    seconds = iter(range(0, 10**9, 61))
    with clock.read_from(lambda: float(next(seconds))):
        yield


def test_a_line_a_minute_says_how_far_a_stage_is(minutes, caplog):
    with (
        caplog.at_level(logging.INFO, "trjmcmc"),
        progress.progress_bar(True, total=4, desc="sample", unit="draw") as bar,
    ):
        bar.set_postfix_str("error .02")
        bar.update()
    assert caplog.messages == ["sample: 25% (1 of 4 draws), 183 s left, 61 s so far, error .02"]


def test_an_open_end_is_counted(minutes, caplog):
    with (
        caplog.at_level(logging.INFO, "trjmcmc"),
        progress.progress_bar(True, desc="warm-up", unit="step") as bar,
    ):
        bar.update(7)
    assert caplog.messages == ["warm-up: 7 steps, 61 s so far"]


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")  # a short run
@pytest.mark.parametrize("shown", [True, False])
def test_a_run_is_logged_unless_it_is_to_be_silent(shown, caplog, monkeypatch, capsys):
    monkeypatch.setattr(progress, "EVERY", 0.0)
    sampler = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=1)
    with caplog.at_level(logging.INFO, "trjmcmc"):
        sampler.run(draws=5, chains=4, warmup=5, fit=False, progress=shown)
    assert any(m.startswith("sampling: ") for m in caplog.messages) == shown
    assert capsys.readouterr().err == ""
