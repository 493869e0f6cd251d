"""The numbers by which runs are planned."""

import dataclasses
import math
import re
from pathlib import Path

import pytest

import trjmcmc as trj
from tests import toys
from trjmcmc.run.policy import (
    ChainPolicy,
    KernelPolicy,
    NormalsPolicy,
    Policy,
    RoundPolicy,
    SegmentPolicy,
    SharePolicy,
)

pytestmark = pytest.mark.planned

PAGE = Path(__file__).parents[2] / "docs" / "policy.md"


def as_markdown(policy):
    """The table of the manual; print it with ``python -m tests.run.test_policy``."""
    rows = [f"| `{name}` | {value} | {text} |" for name, value, text in policy.table().itertuples()]
    return "\n".join(["| number | value | what it does |", "| --- | --- | --- |", *rows])


def test_the_manual_shows_every_number():
    assert as_markdown(Policy()) in PAGE.read_text()


def test_every_number_says_what_it_does():
    table = Policy().table()
    assert len(table) > 150 and table["meaning"].str.len().min() > 10
    assert all(re.fullmatch(r"[a-z_.]+", name) for name in table.index)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NormalsPolicy(quick_components=()), "quick_components: expected one number"),
        (lambda: SegmentPolicy(states_kept=0), "states_kept: expected 1 or more"),
        (lambda: RoundPolicy(rounds=-1), "rounds: expected 0 or more"),
        (lambda: KernelPolicy(uniform_share=0.0), r"uniform_share: expected a share in \(0, 1\]"),
        (lambda: KernelPolicy(walks="4"), "walks: expected a number"),
        (lambda: SharePolicy(fit=math.nan), "fit: expected 0 or more"),
    ],
)
def test_impossible_numbers_are_refused_where_they_are_set(make, message):
    with pytest.raises(trj.errors.ConfigurationError, match=message):
        make()
    assert RoundPolicy(rounds=0).rounds == 0


def test_a_policy_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Policy().chains.of_given_draws = 3


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")  # a short run
def test_a_run_goes_by_the_policy_that_it_is_given():
    policy = Policy(chains=ChainPolicy(of_given_draws=48))
    sampler = trj.TRJSampler(toys.gaussians(), seed=1, policy=policy)
    result = sampler.run(20, warmup=5, fit=False, progress=False)
    assert result.raw.n_chains == 48 and sampler.policy is policy


if __name__ == "__main__":
    print(as_markdown(Policy()))
