import ast
import json
import re
import runpy
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import trjmcmc as trj
from tests.imports import arrows, circle, floors, foreign_writes, graph_of, modules, room

ROOT = Path(__file__).parents[1]


def test_one_version_everywhere():
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    newest = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert cited[1] == trj.__version__ == newest[1]


def test_the_namespace_shows_what_is_public():
    assert {name for name in dir(trj) if not name.startswith("__")} == set(trj.__all__)


def test_the_torch_pin_lies_in_the_supported_range():
    pinned = re.search(
        r"^torch==(\d+)\.(\d+)",
        (ROOT / ".ci" / "constraints" / "3.11.txt").read_text(),
        re.MULTILINE,
    )
    assert (int(pinned[1]), int(pinned[2])) >= (2, 6)


PACKAGE = ROOT / "trjmcmc"


def test_no_two_classes_have_one_name():
    found = defaultdict(list)
    for path, _ in modules(PACKAGE).values():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(ROOT)))
    assert not {name: files for name, files in found.items() if len(files) > 1}


def rooms_import():
    """Which rooms import from which; what the top of the package shows does not count."""
    pairs = [(room(a), room(b)) for a, b, _ in arrows(PACKAGE)]
    known = {room(name) for name in modules(PACKAGE)} - {""}
    return graph_of([(a, b) for a, b in pairs if a and b], known)


HOUSE = runpy.run_path(str(ROOT / "docs" / "site" / "house.py"))


def documented_floors():
    return HOUSE["table"]((ROOT / "docs" / "internals.md").read_text())


def test_the_picture_of_the_house_is_that_of_the_source():
    said = "python docs/site/house.py draws it anew"
    assert (ROOT / "docs" / "house.svg").read_text() == HOUSE["picture"](ROOT), said


def test_every_import_points_to_a_lower_floor():
    """Imports for types and inside functions too: the floors are those that the manual shows."""
    graph = rooms_import()
    assert circle(graph) is None
    shown = documented_floors()
    assert set(shown) == set(graph)
    upward = [(a, b) for a in graph for b in graph[a] if shown[b] >= shown[a]]
    assert not upward, upward
    assert all(shown[name] >= floor for name, floor in floors(graph).items())


def test_no_modules_import_each_other_in_a_circle():
    graph = graph_of((a, b) for a, b, _ in arrows(PACKAGE) if a != "trjmcmc")
    assert circle(graph) is None


def test_modules_import_names_from_where_they_are_defined():
    """Not from a package's face, which would tie a file to the whole package."""
    faces = {name for name, (_, face) in modules(PACKAGE).items() if face}
    through = [
        (a, b, line)
        for a, b, line in arrows(PACKAGE)
        if b in faces and a not in faces and b != "trjmcmc.problems"
    ]
    assert not through, through


def test_the_package_imports_itself_relatively():
    """Else the arrows above would miss an import."""
    for path, _ in modules(PACKAGE).values():
        for node in ast.walk(ast.parse(path.read_text())):
            names = (
                [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            )
            names += [a.name for a in node.names] if isinstance(node, ast.Import) else []
            assert not any(name.split(".")[0] == "trjmcmc" for name in names), path


def test_a_circle_or_an_upward_import_would_be_found(tmp_path):
    files = {
        "low/__init__.py": "",
        "low/a.py": "x = 1",
        "high/__init__.py": "",
        "high/b.py": "from ..low.a import x",
        "__init__.py": "from .high.b import x",
    }
    for name, text in files.items():
        (tmp_path / "toy" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "toy" / name).write_text(text)

    def graph():
        return graph_of((room(a), room(b)) for a, b, _ in arrows(tmp_path / "toy") if "." in a)

    assert circle(graph()) is None and floors(graph()) == {"low": 1, "high": 2}
    late = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..high.b import x\n"
    for text in (late, "def f():\n    from ..high import b\n"):
        (tmp_path / "toy" / "low" / "a.py").write_text(text)
        assert circle(graph()) is not None


def test_objects_write_their_own_attributes(tmp_path):
    """Nothing reaches into another object, but for accounts of one class, which count beside each
    other, and what fills in the result that bilby hands to its samplers."""
    exempt = {"account.py", "bilby.py"}
    found = [row for row in foreign_writes(PACKAGE) if row[0] not in exempt]
    assert not found, found
    (tmp_path / "toy.py").write_text("def f(x):\n    x.limit = 3\n")
    assert list(foreign_writes(tmp_path)) == [("toy.py", 2, "x.limit")]


def test_files_hold_one_idea():
    """Longer ones have one clear reason: a facade of documented one-line methods."""
    lines = {
        name: len(path.read_text().splitlines()) for name, (path, _) in modules(PACKAGE).items()
    }
    long = {name for name, n in lines.items() if n > 540}
    assert long <= {"trjmcmc.result.result"}, {name: lines[name] for name in long}


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


@pytest.mark.whole
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
