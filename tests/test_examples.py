"""Examples from their first line to their last, with short runs."""

import importlib
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import trjmcmc as trj
from tests.places import ROOT
from trjmcmc.errors import TRJWarning

SHORT = {"draws": 40, "chains": 32, "warmup": 20, "fit": False, "progress": False}

SECONDS = {"draws": None, "chains": None, "warmup": None, "fit": "auto", "max_seconds": 4.0}


@pytest.fixture
def execute(monkeypatch, capsys):
    """Executes a script with options, its sampling runs cut short; what it prints."""
    run, fit, counts = trj.TRJSampler.run, trj.TRJSampler.fit, trj.evidences_of_counts
    length = dict(SHORT)
    monkeypatch.setattr(trj.TRJSampler, "run", lambda self, *args, **kwargs: run(self, **length))
    few = {"steps": 2, "progress": False}
    monkeypatch.setattr(trj.TRJSampler, "fit", lambda self, **kwargs: fit(self, **(kwargs | few)))
    soon = {"max_seconds": 2.0, "seed": 1}
    monkeypatch.setattr(trj, "evidences_of_counts", lambda target, **kwargs: counts(target, **soon))
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    threads = torch.get_num_threads()

    def executed(name, *options, **settings):
        length.update(settings)
        monkeypatch.setattr(sys, "argv", [name, *map(str, options)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TRJWarning)  # short runs say that they are short
            warnings.filterwarnings("ignore", "More chains", UserWarning)  # by ArviZ
            importlib.import_module(name).main()
        return capsys.readouterr().out

    yield executed
    torch.set_num_threads(threads)


def test_diabetes(execute, tmp_path):
    pytest.importorskip("sklearn")
    said = execute("diabetes", "--quick", "--output", tmp_path)
    assert "1024 models" in said and "bmi" in said and "90 %" in said
    assert (tmp_path / "diabetes.png").stat().st_size > 10_000


def test_eight_schools(execute):
    pytest.importorskip("pymc")
    said = execute("eight_schools_pymc", "--quick")
    assert all(name in said for name in ("pooled", "unpooled", "alike", "exact p"))
    assert "share of predicted data above those seen" in said


def test_a_mixture_against_a_regression(execute, tmp_path):
    jax = pytest.importorskip("jax")
    pytest.importorskip("numpyro")
    pytest.importorskip("pyro")
    before = jax.config.jax_enable_x64
    try:
        said = execute("mixture_numpyro_against_pyro", "--quick", "--output", tmp_path)
    finally:
        jax.config.update("jax_enable_x64", before)
    assert "two groups (NumPyro)" in said
    assert (tmp_path / "mixture_numpyro_against_pyro.png").stat().st_size > 10_000


def test_structural_equations(execute):
    said = execute("structural_equations", "--quick")
    assert "x0->x1" in said and "log evidence of all graphs" in said


def test_sachs_as_published(execute, tmp_path):
    """Of positive numbers of six proteins, one of which depends on another."""
    names, rng = ["praf", "pmek", "PKA", "PKC", "P38", "pjnk"], np.random.default_rng(0)
    x = rng.normal(size=(150, 6))
    x[:, 1] += 2 * x[:, 0]
    pd.DataFrame(np.exp(x), columns=names).to_csv(tmp_path / "data.csv", index=False)
    edges = pd.DataFrame({"Cause": names[:-1], "Effect": names[1:]})
    edges.to_csv(tmp_path / "edges.csv", index=False)
    said = execute("sachs_as_published", tmp_path / "data.csv", tmp_path / "edges.csv", "--quick")
    assert "BGe, alpha_mu 10" in said and "DiBS+, linear, variance 1, 100 rows" in said
    assert "by orders" in said and "published:  F1 .44" in said


def test_coal_mining(execute, tmp_path):
    said = execute("coal_mining", "--quick", "--output", tmp_path / "coal.png", **SECONDS)
    assert "largest error of p(k)" in said and "verdict" in said and "births" in said
    assert (tmp_path / "coal.png").stat().st_size > 10_000


PICTURES = {
    "galaxies": ("Components that most draws share", SECONDS),
    "gaussian_mixture": ("sources were put in at", SECONDS),
    "planets": ("Planets: means and 90 % intervals", SECONDS),
    "pulses": ("The pulses that were put in", SECONDS),
    "robust_selection": (
        "What each flow alone would have answered",
        {"fit": "auto", "max_seconds": 5.0},
    ),
}


@pytest.mark.parametrize("name", PICTURES)
def test_those_that_draw(name, execute, tmp_path):
    said, length = PICTURES[name]
    assert said in execute(name, "--quick", "--output", tmp_path, **length)
    assert all(path.stat().st_size > 10_000 for path in tmp_path.glob("*.png"))
    assert list(tmp_path.glob("*.png"))


def test_interventions(execute):
    assert execute("interventions").count("parents in rows") == 3


def test_sachs(execute, tmp_path):
    """Of as many proteins that tell nothing of each other."""
    sachs = importlib.import_module("sachs")
    names = list({**sachs.PARENTS, **dict.fromkeys(["PKC", "plcg"])})
    data = np.exp(np.random.default_rng(0).normal(size=(900, len(names))))
    pd.DataFrame(data, columns=names).to_csv(tmp_path / "data.csv", index=False)
    said = execute("sachs", tmp_path / "data.csv", "--quick", **SECONDS | {"max_seconds": 1.0})
    assert "853 rows" in said and said.count("most probable equivalence classes") == 2


def test_ten_nodes(execute, monkeypatch):
    """Of four."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.setattr(importlib.import_module("ten_node_network"), "NODES", 4)
    tiny = ("--sets", 1, "--draws", 50, "--steps", 3, "--batch", 8)
    assert "16" in execute("ten_node_network", *tiny)


def test_coverage_of_variational_answers(execute, tmp_path):
    tiny = ("--quick", "--seeds", 0, "--sets", 2, "--runs", 1, "--rho", 0.6, "--steps", 5)
    execute("variational_coverage", *tiny, "--figures", tmp_path)
    assert list(tmp_path.glob("*.png"))


def test_energies(execute, tmp_path):
    tiny = (
        "--quick",
        "--energies",
        "U1",
        "U2",
        "--families",
        "recommended",
        "--evaluations",
        14_000,
        "--no-kernel",
    )
    assert "U1" in execute("variational_energies", *tiny, "--figures", tmp_path)
    assert list(tmp_path.glob("*.png"))


def test_layers(execute, tmp_path):
    said = execute("layers", "--quick", "--output", tmp_path, **SECONDS)
    assert "log_depth+below" in said and (tmp_path / "layers.png").stat().st_size > 10_000


def test_the_ground_answers_as_far_as_waves_reach(monkeypatch):
    """One layer gives its resistivity at 45 degrees; what lies deep is seen by long waves."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    layers = importlib.import_module("layers")
    p = {
        "top": torch.tensor([2.0, 2.0]),
        "log_depth": torch.tensor([[1.0], [3.0]]),
        "below": torch.tensor([[0.5], [0.5]]),
    }
    one, two = layers.response(p, torch.tensor([[False], [True]]))
    assert torch.allclose(one[0], torch.tensor(2.0), atol=1e-4)
    assert torch.allclose(one[1], torch.tensor(45.0), atol=1e-2)
    assert abs(two[0, -1] - 2.0) < 0.01 and two[0, 0] < 1.0
