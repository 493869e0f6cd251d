"""Studies of graphs in small: the scripts run, and the run among their answers is right."""

import importlib.util
import sys
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import graph_simulations

EXAMPLES = Path(__file__).parents[2] / "examples"


def script(name):
    """A script of the examples as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_four_nodes(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["four_nodes.py", "--seeds", "1", "--seconds", "1"])
    script("four_nodes").main()
    said = capsys.readouterr().out
    assert float(said.split("largest error ")[1].split(";")[0]) < 0.03
    assert "DiBS+ sd" in said and "MC3, ratio one" in said


@pytest.mark.whole
def test_table_4_within_five_thousandths_in_five_seconds(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["four_nodes.py", "--seeds", "1", "--seconds", "5"])
    script("four_nodes").main()
    said = capsys.readouterr().out
    assert float(said.split("largest error ")[1].split(";")[0]) < 0.005


def test_scores_of_ten_nodes_in_small(monkeypatch):
    """Of three nodes: prior draws of the first layer, the second in closed form, with errors."""
    module = script("ten_node_network")
    monkeypatch.setattr(module, "NODES", 3)
    x = module.random_network(0).draw(12, seed=1)
    one, two = (module.summed_scores(x, 3000, seed) for seed in (0, 1))
    error = (one.std_error**2 + two.std_error**2).sqrt()
    some = one.std_error > 0
    assert float(((one.table - two.table)[some] / error[some]).abs().max()) < 6
    assert float(one.std_error.max()) < 0.3


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_simulations_in_small():
    study = graph_simulations.Study("erdos-renyi", 0, 6, 100)
    run = graph_simulations.by_run(study, 2.0)
    particles = graph_simulations.by_dibs(study, 5, 150)
    table = pd.DataFrame({"run": run, **particles})
    assert table.notna().all().all() and list(particles) == ["DiBS", "DiBS+"]
    assert table.loc["neg. LL", "run"] < table.loc["neg. LL", "DiBS"]
