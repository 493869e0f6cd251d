"""One command per paper: its studies, the pictures, and the table of theirs, ours and exact.

    python -m benchmarks --paper vti|yin-jiao|mixture|dibs|favi [--quick]

Each study is a script of its own; they run one after another, print their own tables and write
pictures. Then comes the paper's table of docs/reproduce-the-papers.md, with figures as recorded:
whole studies take hours, quick ones have fewer steps, seeds and data sets. Published data are taken
from ../shared/data; studies that have none there are left out, and named.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"
PAGE = ROOT / "docs" / "reproduce-the-papers.md"


class Study(NamedTuple):
    """A script or a module, with its arguments in whole and quick; ``{data}`` is the folder."""

    name: str
    whole: str = ""
    quick: str = "--quick"

    def command(self, quick: bool) -> list[str]:
        """What to run, without the interpreter."""
        path = ["-m", self.name] if "/" not in self.name else [self.name]
        return [*path, *(self.quick if quick else self.whole).format(data=DATA).split()]

    def lacks(self, quick: bool) -> list[str]:
        """Data that are not there."""
        asked = [Path(x) for x in self.command(quick) if x.startswith(str(DATA))]
        return [str(path) for path in asked if not path.exists()]


SACHS = "{data}/sachs.csv {data}/sachs_consensus.csv"

PAPERS = {
    "vti": [
        Study("examples/robust_selection.py"),
        Study("examples/vti_sweep.py", "--columns 7 9 12 --sets 10"),
        Study("examples/ten_node_network.py", "--rows 16 --sets 10", "--sets 1 --draws 200"),
        Study("examples/sachs_as_published.py", SACHS, f"{SACHS} --quick"),
    ],
    "yin-jiao": [
        Study("benchmarks.yin_jiao", f"--problem {problem}", f"--problem {problem} --quick")
        for problem in ("toy", "factors", "robust", "coal")
    ],
    "mixture": [
        Study("examples/gaussian_mixture.py", "--variational", "--variational --quick"),
    ],
    "dibs": [
        Study("examples/four_nodes.py", "{data}/dibs_table4_N100.csv --seeds 30", "--seeds 2"),
        Study(
            "benchmarks.graph_simulations", "--networks 14", "--networks 1 --nodes 8 --steps 300"
        ),
        Study("examples/sachs_as_published.py", SACHS, f"{SACHS} --quick"),
    ],
    "favi": [
        Study("examples/variational_energies.py"),
        Study("examples/variational_regressions.py", "--folder {data}/regressions"),
        Study("examples/variational_coverage.py"),
        Study("examples/variational_spike_and_slab.py"),
    ],
}


def recorded(paper: str) -> str:
    """The paper's section of the page: what was published, what is found here, what is exact."""
    text = PAGE.read_text()
    begin = text.index(f"<!-- paper: {paper} -->")
    rest = text[begin:].split("\n", 1)[1]
    return rest.split("<!-- paper:")[0].split("\n## ")[0].strip()


def run(paper: str, quick: bool) -> int:
    """Run the studies of a paper, then print its table; the number of those that failed."""
    failed = 0
    for study in PAPERS[paper]:
        if lacks := study.lacks(quick):
            print(f"left out: {study.name}, without {', '.join(lacks)}\n", flush=True)
            continue
        command = study.command(quick)
        print(f"$ python {' '.join(command)}", flush=True)
        begun = time.perf_counter()
        found = subprocess.run([sys.executable, *command], cwd=ROOT, check=False)
        failed += found.returncode != 0
        print(f"{time.perf_counter() - begun:.0f} s, exit {found.returncode}\n", flush=True)
    print(recorded(paper))
    return failed
