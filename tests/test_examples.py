"""Examples that no other test runs: each from its first line to its last, with short runs."""

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


@pytest.fixture
def execute(monkeypatch, capsys):
    """Executes a script with options, its sampling runs cut short; what it prints."""
    run = trj.TRJSampler.run
    monkeypatch.setattr(trj.TRJSampler, "run", lambda self, *args, **kwargs: run(self, **SHORT))
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    threads = torch.get_num_threads()

    def executed(name, *options):
        monkeypatch.setattr(sys, "argv", [name, *map(str, options)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TRJWarning)  # short runs say that they are short
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
