"""The benchmark of steps: who takes turns."""

import sys

import pytest

from benchmarks import step_speed


def test_a_block_of_steps_has_a_rate(monkeypatch):
    monkeypatch.setattr(step_speed, "SECONDS", 1e-4)
    monkeypatch.setattr(step_speed, "WARM", 2)
    assert step_speed.Bench("robust regression", 6).rate() > 0


@pytest.mark.whole
def test_versions_take_turns(capsys, monkeypatch):
    here = str(step_speed.Path(step_speed.__file__).parents[1])
    words = f"step_speed --case pulses --chains 2 --rounds 1 --against {here}"
    monkeypatch.setattr(sys, "argv", words.split())
    step_speed.main()
    shown = capsys.readouterr().out
    assert "now" in shown and "before" in shown and "2 chains, now: median x" in shown
