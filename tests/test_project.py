import ast
import re
from pathlib import Path

import trjmcmc as trj

ROOT = Path(__file__).parents[1]


def test_one_version_everywhere():
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    newest = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert cited[1] == trj.__version__ == newest[1]


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
        "grouping",
        "space",
        "prior",
        "blackbox",
        "density",
        "target",
        "transport",
        "fit",
        "kernel",
        "draws",
        "export",
        "estimate",
        "sample",
        "reweight",
        "result",
        "defaults",
        "auto",
        "sampler",
        "compare",
        "evidence",
    ]
    package = ROOT / "trjmcmc"
    allowed_late = {"plot", "problems"}
    for path in package.rglob("*.py"):
        room = path.relative_to(package).parts[0].removesuffix(".py")
        if room not in order:
            continue
        for node in ast.parse(path.read_text()).body:  # top-level imports only
            if not isinstance(node, ast.ImportFrom) or not node.level:
                continue
            depth = len(path.relative_to(package).parts) - node.level
            if depth < 0 or (depth == 0 and not node.module):
                continue
            other = node.module.split(".")[0] if depth == 0 else room
            assert other not in allowed_late, (path, other)
            assert order.index(other) <= order.index(room), (path, other)


def test_the_readme_example_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    scope = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), scope)
    assert "visits" in capsys.readouterr().out
