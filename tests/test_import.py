"""What the import of the package costs: nothing that only some calls need."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import trjmcmc as trj

ROOT = Path(__file__).parent.parent

# beside torch's two seconds they took as long again; each is imported by the calls that need it
SLOW = {
    "arviz",
    "matplotlib",
    "pandas",
    "scipy.integrate",
    "scipy.optimize",
    "scipy.special",
    "scipy.stats",
    "sympy",
    "torch._dynamo",
    "torch._inductor",
    "xarray",
}
ROOMS = {f"trjmcmc.{name}" for name in ("graphs", "interop", "problems", "simulate", "validation")}

SAMPLER = """
import torch
before = set(sys.modules)
import trjmcmc as trj
prior = torch.distributions.Normal(0.0, 1.0)
models = [trj.Model("a", {"x": prior}, lambda p: -p["x"]), trj.Model("b", {}, lambda p: -1.0)]
trj.TRJSampler(trj.Target(models))
"""

# what default runs end with: importance weights with a tail, R-hat, errors by chains
SUMMING_UP = """
import numpy, torch
from trjmcmc.estimate.convergence import rank_rhats
from trjmcmc.estimate.importance import smoothed
from trjmcmc.estimate.mean import mean_error, spread_errors
assert smoothed(2 * torch.randn(4000, generator=torch.Generator().manual_seed(0))).warning
x = numpy.random.default_rng(0).normal(size=(64, 50, 2))
assert rank_rhats(x, numpy.ones((64, 50), bool)).max() < 1.1 and mean_error(x[..., 0])[0] > 0
assert (spread_errors(x.mean(1)) > 0).all()
"""


def loaded(code):
    """Modules that lines of Python import, beside those of before."""
    code = f"import sys\nbefore = set()\n{code}\nprint(*set(sys.modules) - before)"
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return set(found.stdout.split())


def test_import_loads_no_other_package():
    found = loaded("import trjmcmc")
    assert "trjmcmc" in found
    assert not found & (SLOW | {"numpy", "scipy", "torch", "zuko"})
    assert {name for name in found if name.startswith("trjmcmc.")} == set()


def test_a_sampler_of_a_model_list_leaves_slow_packages_alone():
    found = loaded(SAMPLER)
    assert "trjmcmc.run.in_rounds" in found
    assert not found & (SLOW | ROOMS)


def test_runs_sum_up_without_the_slowest_packages():
    # ArviZ and scipy.stats took three seconds of a first run, a third of one of two small models
    found = loaded(SUMMING_UP)
    assert "trjmcmc.estimate.importance" in found
    assert not found & {"arviz", "scipy.stats", "xarray"}


def test_a_run_over_subsets_differentiates_twice_without_sympy():
    target = "trj.problems.variable_selection(5)"
    found = loaded(f"import trjmcmc as trj\ntrj.TRJSampler({target}, seed=1).run(progress=False)")
    assert "trjmcmc.transport.laplace" in found
    assert not found & {"sympy", "torch.fx.experimental.symbolic_shapes"}


def test_what_is_loaded_would_be_seen():
    assert {"pandas", "trjmcmc.graphs"} <= loaded(
        "import trjmcmc\ntrjmcmc.graphs.exact\nimport pandas"
    )


def test_names_come_from_where_type_checkers_find_them():
    (block,) = (
        n
        for n in ast.parse((ROOT / "trjmcmc/__init__.py").read_text()).body
        if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"
    )
    shown = {alias.name: line.module for line in block.body for alias in line.names}
    assert set(shown) >= set(trj.__all__)
    assert {name: place for name, place in shown.items() if place} == trj._MODULE_OF


def test_all_names_are_there():
    assert len(trj.__all__) <= 31  # what users type; the rest is in folders, such as trj.transport
    assert all(getattr(trj, name).__name__.endswith(name) for name in trj.__all__)
    assert trj.plot.__name__ == "trjmcmc.plot"  # folders too


def test_names_of_folders_are_there():
    folders = [path.parent for path in (ROOT / "trjmcmc").glob("*/__init__.py")]
    for folder in (getattr(trj, path.name) for path in folders):
        assert all(hasattr(folder, name) for name in getattr(folder, "__all__", []))


def test_the_module_of_errors_shows_its_own_names_alone():
    shown = {name for name in dir(trj.errors) if not name.startswith("_")}
    assert "TRJError" in shown and not shown & {"Any", "os", "sys", "torch", "warnings"}


@pytest.mark.parametrize("folder", ["transport", "weights"])
def test_folders_that_load_zuko_leave_checks_of_arguments_on(folder):
    checks = "torch.distributions.Distribution._validate_args"
    loaded(f"import torch, trjmcmc\nassert {checks}\ntrjmcmc.{folder}\nassert {checks}")


@pytest.mark.parametrize("name", ["nothing", "_nothing", "test"])
def test_other_names_are_refused(name):
    with pytest.raises(AttributeError, match=f"module 'trjmcmc' has no attribute '{name}'"):
        getattr(trj, name)
