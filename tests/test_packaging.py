"""What a release publishes: addresses that follow from one, recipes that follow from one file."""

import re
import runpy
import tomllib
from pathlib import Path

import jinja2
import pytest

import trjmcmc as trj

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
yaml = pytest.importorskip("yaml")
ADDRESS = runpy.run_path(str(ROOT / ".ci" / "address.py"))
HERE = "https://host.example/owner/trjmcmc"


def test_the_address_is_that_of_the_environment_or_of_the_project_file(monkeypatch):
    monkeypatch.delenv("REPOSITORY", raising=False)
    assert re.fullmatch(r"(https://\S+[^/])?", ADDRESS["repository"]())
    monkeypatch.setenv("REPOSITORY", f"{HERE}/")
    assert ADDRESS["repository"]() == HERE
    assert set(ADDRESS["urls"](HERE)) == {"Repository", "Documentation", "Changelog", "Issues"}
    assert ADDRESS["urls"]("") == {}


@pytest.mark.parametrize("address", ["", HERE])
def test_no_link_of_the_readme_is_relative_on_an_index(address):
    text = (ROOT / "README.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", ADDRESS["with_absolute_links"](text, address))
    assert all(link.startswith("https://") for link in links)
    ours = {link for link in links if link.startswith(f"{HERE}/")}
    assert bool(ours) == bool(address)
    for path in ours:
        folder, _, file = path.removeprefix(f"{HERE}/").partition("/HEAD/")
        assert (folder == "raw") == file.endswith(".png")
        assert (ROOT / file.partition("#")[0]).is_file()


def test_a_picture_with_brackets_around_it_is_not_mistaken_for_a_link():
    absolute = ADDRESS["with_absolute_links"]
    assert absolute("![a, b](x.png) [c](d.md#e) [f](https://g)", HERE) == (
        f"![a, b]({HERE}/raw/HEAD/x.png) [c]({HERE}/blob/HEAD/d.md#e) [f](https://g)"
    )


def test_pythons_that_are_claimed_are_tested():
    claimed = {c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r" 3\.\d+$", c)}
    exact = {path.stem for path in (ROOT / ".ci" / "constraints").glob("3.*.txt")}
    tested = re.search(r"^VERSIONS \?= (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert claimed == exact == set(tested[1].split()) - {"oldest"}
    readme = (ROOT / "README.md").read_text()
    assert min(claimed, key=lambda v: int(v[2:])) == PROJECT["requires-python"][2:]
    assert f"Python {' or '.join(sorted(claimed))}" in readme


def test_the_oldest_packages_tested_are_the_oldest_claimed():
    exact = (ROOT / ".ci" / "constraints" / "oldest.txt").read_text()
    tested = dict(re.findall(r"^([\w-]+)==(\S+)", exact, re.MULTILINE))
    for need in PROJECT["dependencies"]:
        name, least = need.split(">=")
        assert re.fullmatch(re.escape(least) + r"(\.\d+)*", tested[name]), name


def test_the_conda_recipe_needs_what_the_package_needs():
    def data(path, from_recipe_dir):
        return tomllib.loads((ROOT / ".ci" / "conda" / path).read_text())

    def found(path, pattern, from_recipe_dir):
        return re.search(pattern, (ROOT / ".ci" / "conda" / path).read_text())

    recipe = jinja2.Template((ROOT / ".ci" / "conda" / "meta.yaml").read_text()).render(
        load_file_data=data, load_file_regex=found, PYTHON="python"
    )
    read = yaml.safe_load(recipe)
    assert read["package"] == {"name": "trjmcmc", "version": trj.__version__}
    needed = {need.replace("torch", "pytorch") for need in PROJECT["dependencies"]}
    assert needed | {f"python {PROJECT['requires-python']}"} == {
        need.replace(" >", ">") if not need.startswith("python ") else need
        for need in read["requirements"]["run"]
    }


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda p: p.stem)
def test_files_of_the_host_are_read_and_call_targets_that_are_there(path):
    assert yaml.safe_load(path.read_text())
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"run: make ([\w-]+)", path.read_text())) <= targets
