import ast
import json
import re
import runpy
import sys
from pathlib import Path

import pytest

import trjmcmc as trj

ROOT = Path(__file__).parents[1]


def test_one_version_everywhere():
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    newest = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert cited[1] == trj.__version__ == newest[1]


def test_the_namespace_shows_what_is_public():
    assert {name for name in dir(trj) if not name.startswith("__")} == set(trj.__all__)


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [(trj.transport, "Ordered", "OrderedComponents"), (trj.kernel, "Mixture", "MixtureKernel")],
)
def test_old_names_work_and_warn_once(module, old, new):
    with pytest.warns(FutureWarning, match=f"{old} is now {module.__name__}.{new}") as said:
        assert getattr(module, old) is getattr(module, new) is getattr(module, old)
    assert len(said) == 1 and said[0].filename == __file__
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = module.Nothing


def test_the_torch_pin_lies_in_the_supported_range():
    pinned = re.search(
        r"^torch==(\d+)\.(\d+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE
    )
    assert (int(pinned[1]), int(pinned[2])) >= (2, 6)


def test_imports_point_one_way():
    """target -> transport -> fit -> kernel -> draws -> estimates -> result -> sampler."""
    order = [
        "errors",
        "rng",
        "progress",
        "threads",
        "grouping",
        "space",
        "memory",
        "prior",
        "blackbox",
        "additive",
        "density",
        "target",
        "resolution",
        "coordinates",
        "components",
        "transport",
        "fit",
        "kernel",
        "draws",
        "export",
        "estimate",
        "variational",
        "sample",
        "carry",
        "reweight",
        "relabel",
        "catalogue",
        "doubts",
        "alarms",
        "result",
        "defaults",
        "look",
        "auto",
        "auto_components",
        "sampler",
        "compare",
        "evidence",
    ]
    package = ROOT / "trjmcmc"
    allowed_late = {"plot", "problems"}
    for path in package.rglob("*.py"):
        room = path.relative_to(package).parts[0].removesuffix(".py")
        if room in allowed_late | {"__init__"}:
            continue
        assert room in order, f"say where {path} stands"
        for node in ast.parse(path.read_text()).body:  # top-level imports only
            if not isinstance(node, ast.ImportFrom) or not node.level:
                continue
            depth = len(path.relative_to(package).parts) - node.level
            if depth < 0 or (depth == 0 and not node.module):
                continue
            other = node.module.split(".")[0] if depth == 0 else room
            assert other not in allowed_late, (path, other)
            assert order.index(other) <= order.index(room), (path, other)


SCRIPTS = [p for d in ("examples", "benchmarks") for p in sorted((ROOT / d).glob("*.py"))]


@pytest.mark.parametrize("path", [p for p in SCRIPTS if "def main" in p.read_text()], ids=str)
def test_scripts_say_how_they_are_used(path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setattr(sys, "argv", [path.name, "--help"])
    module = path.name == "__main__.py"
    with pytest.raises(SystemExit) as end:
        if module:
            monkeypatch.delitem(sys.modules, "benchmarks.__main__", raising=False)
            runpy.run_module("benchmarks", run_name="__main__")
        else:
            monkeypatch.syspath_prepend(str(path.parent))
            runpy.run_path(str(path), run_name="__main__")
    assert end.value.code == 0
    assert "--threads" in capsys.readouterr().out


def test_benchmarks_write_their_figures(tmp_path, capsys, monkeypatch):
    """A scaling case and a sampler, with machine, versions and seed."""
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))
    words = "--case models --case sinh-arcsinh --sampler birth-death"
    words += f" --quick --budget 6 --chains 64 --output {tmp_path}"
    monkeypatch.setattr(sys, "argv", ["benchmarks", *words.split()])
    monkeypatch.delitem(sys.modules, "benchmarks.__main__", raising=False)
    runpy.run_module("benchmarks", run_name="__main__")
    found = json.loads((tmp_path / "benchmarks.json").read_text())
    assert found["environment"]["versions"]["trjmcmc"] == trj.__version__
    for row in found["cases"]["models"]:
        assert row["chain_steps_per_s"] > 0 and row["step_over_target"] > 1
    (classic,) = found["cases"]["sinh-arcsinh"]
    assert classic["evaluations"] > 0 and classic["sample_s"] > 0 and classic["peak_memory_mb"] > 50
    text = (tmp_path / "benchmarks.md").read_text()
    assert "## models" in text and "| birth-death |" in text
    assert (tmp_path / "speed.png").exists() and (tmp_path / "scaling.png").exists()
    assert "birth-death" in capsys.readouterr().out
