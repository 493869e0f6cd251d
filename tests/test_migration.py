"""Scripts for earlier versions go on working, and are told what changed."""

import importlib
import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import trjmcmc as trj
from trjmcmc.compare import classical

PUBLIC = json.loads((Path(__file__).parent / "data" / "public_names_0.10.json").read_text())
PAGE = (Path(__file__).parents[1] / "docs" / "migration.md").read_text()
RENAMED = [
    (trj.transport, "Ordered", "trjmcmc.transport.OrderedComponents"),
    (trj.kernel, "Mixture", "trjmcmc.kernel.MixtureKernel"),
    (trj, "Categorical", "trjmcmc.CategoricalWeights"),
    (trj, "Uniform", "trjmcmc.UniformWeights"),
    (trj.fit, "Recipe", "trjmcmc.fit.Trainer"),
]


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_of_0_10_are_there(module):
    found = importlib.import_module(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        missing = [name for name in PUBLIC[module] if not hasattr(found, name)]
    assert not missing


def test_old_names_work_and_warn_once():
    """In a process of its own: whatever ran before has heard the warnings."""
    code = f"""
import importlib, warnings
for module, old, new in {[(m.__name__, old, new) for m, old, new in RENAMED]!r}:
    module, (place, _, name) = importlib.import_module(module), new.rpartition(".")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert getattr(module, old) is getattr(importlib.import_module(place), name)
        assert getattr(module, old) is not None
    (word,) = [w for w in said if w.category is FutureWarning]
    print(word.message, word.filename)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said = [f"{module.__name__}.{old} is now {new} <string>" for module, old, new in RENAMED]
    assert found.stdout.splitlines() == said
    for module, old, _ in RENAMED:
        place = f"trj.{module.__name__}.".replace("trj.trjmcmc.", "trj.")
        assert f"`{place}{old}`" in PAGE


@pytest.mark.parametrize(
    ("module", "name"),
    [("result", "Result"), ("target", "Target"), ("space", "Subsets"), ("compare", "METHODS")],
)
def test_folders_that_were_modules_still_know_their_names(module, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        found = getattr(importlib.import_module(f"trjmcmc.{module}"), name)
    assert found is (getattr(trj, name) if hasattr(trj, name) else classical.METHODS)


def test_names_that_never_were_are_no_names():
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = trj.kernel.Nothing


def test_modules_are_where_the_page_says():
    places = re.findall(r"\| `trjmcmc[\w.]+`[^|]*\| `(trjmcmc[\w.]+)`", PAGE)
    assert len(places) >= 8
    for place in places:
        assert importlib.import_module(place).__doc__, place
