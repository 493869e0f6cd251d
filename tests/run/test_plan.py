"""The numbers by which runs are planned."""

import dataclasses
import inspect
import math
import re
from pathlib import Path

import pytest

import trjmcmc as trj
from tests import toys
from trjmcmc.run.plan import Plan

PAGE = Path(__file__).parents[2] / "docs" / "how-a-run-plans-itself.md"


def meanings():
    """What each number does, by its name, of the docstring."""
    entries = re.findall(r"^    (\w+): ((?:.|\n     )+)", inspect.getdoc(Plan), re.MULTILINE)
    return {name: " ".join(words.split()) for name, words in entries}


def as_markdown():
    """The table of the manual; print it with ``python -m tests.run.test_plan``."""
    rows = [f"| `{name}` | {getattr(Plan(), name)} | {text} |" for name, text in meanings().items()]
    return "\n".join(["| number | value | what it does |", "| --- | --- | --- |", *rows])


def test_the_manual_shows_every_number_and_is_a_page():
    assert as_markdown() in PAGE.read_text()
    text = re.sub("```.*?```", "", PAGE.read_text(), flags=re.DOTALL)
    assert len(re.findall(r"[^\s|]+", text)) <= 900


def test_every_number_says_what_it_does_and_they_are_few():
    assert [*meanings()] == [f.name for f in dataclasses.fields(Plan)]
    assert len(meanings()) <= 30 and min(map(len, meanings().values())) > 5


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"groups": 0}, "groups: expected 1 or more"),
        ({"growth": -1.0}, "growth: expected 0 or more"),
        ({"chains": "4"}, "chains: expected a number"),
        ({"kept": math.nan}, "kept: expected 0 or more"),
    ],
)
def test_impossible_numbers_are_refused_where_they_are_set(numbers, message):
    with pytest.raises(trj.errors.ConfigurationError, match=message):
        Plan(**numbers)


def test_numbers_that_there_are_not_are_refused_by_name():
    with pytest.raises(TypeError, match="'particels'"):
        Plan(particels=100)
    with pytest.raises(trj.errors.ConfigurationError, match=r"plan: expected a trjmcmc\.run"):
        trj.TRJSampler(toys.gaussians(), plan={"particles": 100})


def test_a_plan_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Plan().groups = 3


if __name__ == "__main__":
    print(as_markdown())
