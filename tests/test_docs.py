"""Code blocks of README.md and docs/ run, a section a test; links lead somewhere.

A section is what stands under a heading of the second level. Its blocks run in order in one
namespace, after those that stand before the first such heading of the page; sections know nothing
of each other. What a reader does not see stands in comments on the lines before a block::

    <!-- test: max_seconds=60 -> max_seconds=3 -->

runs the block with the left text replaced by the right one, for sizes that would take long. A block
of text right after one of Python is what that one prints: the same words, and numbers that differ
by five of their standard errors at most.
"""

import functools
import itertools
import json
import math
import operator
import re
import runpy
import warnings
from pathlib import Path

import matplotlib
import matplotlib.pyplot
import pytest

import trjmcmc as trj
from trjmcmc import promises

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED = [*PAGES, ROOT / "benchmarks" / "README.md", *sorted((ROOT / ".github").glob("*.md"))]
BLOCK = re.compile(
    r"((?:^<!-- test: [^\n]* -->\n)*)^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
LANGUAGES = "pymc|numpyro|jax|pyro|distributed|bilby"  # and a cluster: what may not be installed
NEEDED = re.compile(rf"^(?:import|from) ({LANGUAGES})\b", re.MULTILINE)
ERRORS = 5.0  # standard errors between what is shown and what is printed
FEW_ERRORS = 5.0  # factor between their standard errors


def sections(path):
    """Titles and (first line, text) of a page's sections; the opening has no title."""
    text = path.read_text()
    starts = [(None, 0), *((m[1], m.start()) for m in HEADING.finditer(text)), (None, len(text))]
    for (title, start), (_, end) in itertools.pairwise(starts):
        yield title, (text.count("\n", 0, start), text[start:end])


def run(path, line, text, scope, capsys=None):
    """Run the blocks of a section, and compare what is printed with what is shown."""
    for match in BLOCK.finditer(text):
        comments, code, shown = match.groups()
        for before, after in re.findall(r"<!-- test: (.*?) -> (.*?) -->", comments):
            assert before in code, f"{path.name}: {before!r} is not in the block that follows"
            code = code.replace(before, after)
        above = line + text.count("\n", 0, match.start(2))
        with warnings.catch_warnings():
            if comments or "max_seconds" in code:  # shorter, or as long as the machine allows
                warnings.simplefilter("ignore", trj.errors.TRJWarning)
                warnings.filterwarnings("ignore", "More chains", UserWarning)  # by ArviZ
            exec(compile("\n" * above + code, str(path), "exec"), scope)
        if shown is not None and capsys is not None:
            agree(shown, capsys.readouterr().out)


@functools.cache
def opening(path):
    """Names that a page defines before its first section."""
    scope = {}
    run(path, *next(sections(path))[1], scope)
    return scope


def agree(shown, printed):
    """The same words; numbers with standard errors beside them, or in a column, within these."""
    shown, printed = shown.strip().splitlines(), printed.strip().splitlines()
    assert len(shown) == len(printed), "\n".join(printed)
    columns = []
    for expected, got in zip(shown, printed, strict=True):
        a, b = expected.split(), got.split()
        names = [[x for x in words if not number(x)] for words in (a, b)]
        assert names[0] == names[1] and len(a) == len(b), f"expected {expected!r}, got {got!r}"
        if any(x.endswith("_se") for x in a):
            columns = a
            continue
        a, b = ([float(x) for x in words if number(x)] for words in (a, b))
        if "±" in expected:
            pairs = [(0, 1)]
        else:
            pairs = [
                (columns.index(x.removesuffix("_se")), i)
                for i, x in enumerate(columns)
                if x.endswith("_se")
            ]
        for value, error in pairs if a else []:
            assert abs(a[value] - b[value]) < ERRORS * math.hypot(a[error], b[error]), got
            assert 1 / FEW_ERRORS < a[error] / b[error] < FEW_ERRORS, got


def number(word):
    return re.fullmatch(r"-?\d*\.?\d+", word) is not None


LONG = "<!-- test: whole -->"  # before a block of a section that runs with `make test-whole`

CASES = [
    pytest.param(
        path,
        line,
        text,
        id=f"{path.stem}-{title}",
        marks=[pytest.mark.whole] if LONG in text else [],
    )
    for path in PAGES
    for title, (line, text) in sections(path)
    if title is not None and BLOCK.search(text)
]


@pytest.mark.parametrize(("path", "line", "text"), CASES)
def test_blocks_run(path, line, text, capsys, tmp_path, monkeypatch):
    matplotlib.use("Agg")
    for package in NEEDED.findall(path.read_text()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    scope = dict(opening(path))
    capsys.readouterr()  # what the opening printed
    run(path, line, text, scope, capsys)
    matplotlib.pyplot.close("all")


def test_what_is_shown_is_held_against_what_is_printed():
    table = "   visits  visits_se\na  {}  {}\n"
    agree(table.format(0.5, 0.01), table.format(0.52, 0.02))
    agree("1.25 ± 0.1\n", "1.31 ± 0.08\n")
    for value, error in ((0.6, 0.01), (0.5, 0.2)):
        with pytest.raises(AssertionError):
            agree(table.format(0.5, 0.01), table.format(value, error))
    with pytest.raises(AssertionError, match="expected 'b'"):
        agree("b\n", "a\n")


def anchors(path):
    """Names of a page's headings in links."""
    titles = re.findall(r"^#+ (.+)$", BLOCK.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", LINKED, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    text = BLOCK.sub("", path.read_text())
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("http"):
            continue
        file, _, anchor = link.partition("#")
        there = (path.parent / file).resolve() if file else path
        assert there.is_file(), f"{path.name}: {link}"
        assert not anchor or anchor in anchors(there), f"{path.name}: {link}"
    for file in re.findall(r"`((?:trjmcmc|examples|benchmarks|tests|docs)/[\w./]+)", text):
        assert (ROOT / file.rstrip(".")).exists(), f"{path.name} names {file}"
    for name in re.findall(r"`trj\.(\w+(?:\.\w+)*)", text):
        operator.attrgetter(name)(trj)


def test_promises_are_kept_to_the_letter():
    """The limits that the docs state are those that the package has."""
    text = (ROOT / "docs" / "accuracy.md").read_text()
    stated = dict(re.findall(r"^\| `([A-Z_]+)` \| ([\d.]+) \|", text, re.MULTILINE))
    kept = {name: value for name, value in vars(promises).items() if name.isupper()}
    assert {name: float(value) for name, value in stated.items()} == kept


def test_the_readme_leads_to_every_page_through_the_page_of_pages():
    text, pages = (ROOT / "README.md").read_text(), (ROOT / "docs" / "index.md").read_text()
    assert len(text.splitlines()) <= 200 and "(docs/index.md)" in text
    missing = [p.name for p in PAGES[1:] if p.stem != "index" and f"({p.name})" not in pages]
    assert not missing


def test_the_readme_names_commands_that_are_there():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = set(re.findall(r"\bmake ([\w-]+)", (ROOT / "README.md").read_text()))
    assert {"demo", "test"} <= commands <= targets


GALLERY = sorted((ROOT / "docs" / "gallery").glob("*.py"))


def test_the_gallery_shows_every_script():
    """Cells between the lines `# %%`, the first of which is the title."""
    text = (ROOT / "docs" / "gallery.md").read_text()
    assert len(GALLERY) == 10 and all(f"(gallery/{p.name})" in text for p in GALLERY)
    for path in GALLERY:
        assert path.read_text().startswith("# %% [markdown]\n# # "), path.name


STORED = sorted((ROOT / "docs" / "gallery" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_stored_runs_are_of_the_scripts(path):
    """The same code, or `make gallery` runs it anew; nothing printed is a warning or NaN."""
    cells = json.loads(path.read_text())["cells"]
    code = ["".join(cell["source"]).strip() for cell in cells if cell["cell_type"] == "code"]
    script = (path.parents[1] / f"{path.stem}.py").read_text()
    parts = re.split(r"(?m)^# %%", script)[1:]
    assert code == [part.strip() for part in parts if not part.startswith(" [markdown]")]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    printed = "".join("".join(output.get("text", "")) for output in outputs)
    assert printed and not re.search(r"(?i)\bnan\b|warning", printed)
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not any(output.get("name") == "stderr" for output in outputs)


@pytest.mark.whole
@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_gallery_runs(path, monkeypatch):
    matplotlib.use("Agg")
    if "sklearn" in path.read_text():
        pytest.importorskip("sklearn")
    run = trj.TRJSampler.run

    def shortly(self, *, max_evaluations=None, **_):
        limit = {"max_evaluations": 3000} if max_evaluations else {"max_seconds": 3.0}
        return run(self, **limit, progress=False)

    monkeypatch.setattr(trj.TRJSampler, "run", shortly)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trj.errors.TRJWarning)  # it is a short run
        warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")
        try:
            runpy.run_path(str(path))
        except trj.errors.TRJError as error:  # the run was too short for evidences
            assert "no map has weighed" in str(error)
    assert matplotlib.pyplot.get_fignums()
    matplotlib.pyplot.close("all")
