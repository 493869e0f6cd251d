"""One command per paper: its scripts take its arguments, and its table is whole."""

import importlib
import sys

import pytest
import torch

from tests.places import ROOT

sys.path.insert(0, str(ROOT))  # benchmarks are not installed
from benchmarks import papers

sys.path.insert(0, str(ROOT / "examples"))
import vti_sweep

VERDICTS = {"reproduced", "better", "corrected", "partly", "not"}


@pytest.mark.parametrize("paper", papers.PAPERS)
def test_the_scripts_of_a_paper_take_its_arguments(paper, monkeypatch, capsys):
    for study in papers.PAPERS[paper]:
        for quick in (True, False):
            *module, first = study.command(quick)[:2]
            rest = study.command(quick)[2 if module and module[0] == "-m" else 1 :]
            name = first if module == ["-m"] else study.command(quick)[0]
            if not name.endswith(".py"):
                script = importlib.import_module(name)
            else:
                assert (ROOT / name).exists()
                script = importlib.import_module(f"examples.{name[9:-3]}")
            # arguments are read to the end, then help is printed: nothing runs
            monkeypatch.setattr(sys, "argv", [name, *rest, "--help"])
            with pytest.raises(SystemExit) as ended:
                script.main()
            assert ended.value.code == 0, (study, capsys.readouterr().err)


@pytest.mark.parametrize("paper", papers.PAPERS)
def test_each_figure_has_a_verdict(paper):
    header, rule, *rows = papers.recorded(paper).splitlines()
    assert header.split(" | ")[1:] == ["theirs", "ours", "exact", "verdict |"]
    assert set(rule) <= set("|- ") and len(rows) >= 3
    for row in rows:
        cells = row.replace("\\|", "/").strip().split("|")
        assert len(cells) == 7, row
        assert cells[5].replace(":", ",").replace(";", ",").split(",")[0].strip() in VERDICTS, row


def test_a_failure_is_counted_and_data_that_are_missing_are_named(monkeypatch, capfd):
    studies = [
        papers.Study("benchmarks.no_such_module"),
        papers.Study("examples/four_nodes.py", quick=f"{papers.DATA}/no_such_data.csv"),
    ]
    monkeypatch.setitem(papers.PAPERS, "vti", studies)
    assert papers.run("vti", quick=True) == 1
    said = capfd.readouterr().out
    assert "left out: examples/four_nodes.py" in said and "no_such_data.csv" in said
    assert "| verdict |" in said


@pytest.mark.whole
def test_the_sources_in_the_plane():
    assert papers.run("mixture", quick=True) == 0


def test_a_tiny_sweep(monkeypatch, tmp_path, capsys):
    asked = "--columns 2 3 --problems conjugate mid-focused --sets 2 --steps 60 --batch 64"
    asked += f" --weights ucb thompson categorical made --output {tmp_path}"
    monkeypatch.setattr(sys, "argv", ["vti_sweep.py", *asked.split()])
    threads = torch.get_num_threads()
    try:
        vti_sweep.main()
    finally:
        torch.set_num_threads(threads)
    assert "excess, se" in capsys.readouterr().out
    assert (tmp_path / "sweep.png").stat().st_size > 10_000
    table = vti_sweep.pd.read_csv(tmp_path / "sweep.csv")
    assert len(table) == 2 * 2 * 2 * 4 and bool((table["excess"] > -1e-9).all())
    assert table.loc[table["q(m)"] == "ucb", "excess"].max() < 0.1


def test_probabilities_of_the_sweep_are_exact():
    target = vti_sweep.target_of("conjugate", 4, 700)
    exact = torch.tensor([target.truth.probabilities[x] for x in labels(target)])
    assert float((vti_sweep.exact(target, 1).exp() - exact).abs().max()) < 0.02


def labels(target):
    return target.space.label(target.space.enumerate())
