"""The benchmarks of steps: what is bare of a step, and who takes turns."""

import sys

import pytest
import torch

from benchmarks import step_overhead, step_speed


@pytest.fixture(autouse=True)
def short(monkeypatch):
    for module in (step_overhead, step_speed):
        monkeypatch.setattr(module, "SECONDS", 1e-4)
    monkeypatch.setattr(step_speed, "WARM", 2)


def test_what_is_bare_of_a_step_makes_its_calls_and_draws_its_numbers():
    bench = step_speed.Bench("robust regression", 16, "plain")
    bare = step_overhead.Bare(bench)
    names = [function.__name__ for function, _, _ in bare._calls]
    assert sorted(names) == ["log_joint", "log_joint", "pull", "push"]
    state, generator = bench.state, torch.Generator().manual_seed(5)
    twin = torch.Generator().manual_seed(5)
    bench.kernel.step(state, twin)
    call = step_overhead._calls(bench, bare, "plain")
    bench.generator.set_state(generator.get_state())
    with torch.no_grad():
        call()
    assert torch.equal(bench.generator.get_state(), twin.get_state())


def test_mathematics_by_hand_are_those_of_the_target():
    bench = step_speed.Bench("robust regression", 6, "plain")
    straight, state = step_overhead.Straight(bench), bench.state
    m = state.code[:, 0] + 2 * state.code[:, 1]
    torch.testing.assert_close(straight.log_joint(m, state.theta), state.log_joint)


def test_a_row_holds_ratios():
    found = step_overhead.row("robust regression", 3, "plain", 2)
    assert found["step_ms"] > 0 and all(r > 0 for r in found["over_bare"] + found["over_straight"])


@pytest.mark.whole
def test_ways_take_turns(capsys, monkeypatch):
    words = "step_speed --case pulses --chains 2 --way traced --rounds 1"
    monkeypatch.setattr(sys, "argv", words.split())
    step_speed.main()
    shown = capsys.readouterr().out
    assert "plain" in shown and "traced" in shown and "2 chains, traced: median x" in shown
