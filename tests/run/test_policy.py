"""The numbers by which runs are planned."""

import dataclasses
import math
import re
from pathlib import Path

import pytest

import trjmcmc as trj
from tests import toys
from trjmcmc.checks import Checked
from trjmcmc.run.policy import MapPolicy, Policy

pytestmark = pytest.mark.planned


@dataclasses.dataclass(frozen=True)
class Sizes(Checked):
    steps: int = 4
    time_share: float = 0.5


PAGE = Path(__file__).parents[2] / "docs" / "policy.md"


def as_markdown(policy):
    """The table of the manual; print it with ``python -m tests.run.test_policy``."""
    rows = [f"| `{name}` | {value} | {text} |" for name, value, text in policy.table().itertuples()]
    return "\n".join(["| number | value | what it does |", "| --- | --- | --- |", *rows])


def test_the_manual_shows_every_number():
    assert as_markdown(Policy()) in PAGE.read_text()


def test_every_number_says_what_it_does():
    table = Policy().table()
    assert len(table) > 5 and table["meaning"].str.len().min() > 10
    assert all(re.fullmatch(r"[a-z_.]+", name) for name in table.index)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MapPolicy(hidden=()), "hidden: expected one number"),
        (lambda: MapPolicy(layers=-1), "layers: expected"),
        (lambda: Sizes(time_share=0.0), r"time_share: expected a share in \(0, 1\]"),
        (lambda: Sizes(steps="4"), "steps: expected a number"),
        (lambda: Sizes(time_share=math.nan), "time_share: expected 0 or more"),
    ],
)
def test_impossible_numbers_are_refused_where_they_are_set(make, message):
    with pytest.raises(trj.errors.ConfigurationError, match=message):
        make()


def test_a_policy_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Policy().maps.layers = 3


def test_a_map_is_made_by_the_policy_that_is_given():
    policy = Policy(maps=MapPolicy(layers=2, hidden=(8,)))
    sampler = trj.TRJSampler(toys.gaussians(), seed=1, policy=policy)
    assert sampler.policy is policy
    usual = trj.TRJSampler(toys.gaussians(), seed=1, policy=Policy())
    sizes = [sum(p.numel() for p in s.transport.parameters()) for s in (sampler, usual)]
    assert sizes[0] < sizes[1]


if __name__ == "__main__":
    print(as_markdown(Policy()))
