"""Evidences of all numbers of components, by chains that visit each alike."""

import math
import time

import numpy as np
import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from tests.toys import PRIOR, log_evidences_of_sum, seen_sum, waves
from trjmcmc import clock
from trjmcmc.errors import ConfigurationError, ConvergenceWarning
from trjmcmc.estimate import acceptance_ratio as module
from trjmcmc.estimate.acceptance_ratio import acceptance_ratio

MASS = -3.0  # log of the larger one's, at one, over that of the smaller one, at zero


def proposals(n, m, seed=0):
    """Log ratios of n moves up from a standard normal and of m moves down from one at 1."""
    rng = np.random.default_rng(seed)
    return [
        sign * (MASS - 0.5 * (x - 1) ** 2 + 0.5 * x**2)
        for sign, x in ((1, rng.normal(size=n)), (-1, 1 + rng.normal(size=m)))
    ]


@pytest.mark.parametrize("n, m", [(40_000, 40_000), (40_000, 5000), (5000, 40_000)])
def test_ratios_of_masses_are_right_however_many_moves_there_were(n, m):
    up, down = proposals(n, m)
    c = acceptance_ratio(up, down)
    error = math.sqrt((module.influence(up, down, c) ** 2).sum())
    assert abs(c - MASS) < 4.5 * error and error < 0.05


def test_with_the_wrong_sign_of_the_numbers_the_same_check_fails(monkeypatch):
    """The negative control: it is off by twice the log of their ratio."""
    up, down = proposals(40_000, 5000)
    right = module.balance

    def wrong(up, down, c):
        return right(up, down, c - 2 * math.log(len(up) / len(down)))

    monkeypatch.setattr(module, "balance", wrong)
    assert abs(acceptance_ratio(up, down) - MASS) > 3.0


def test_errors_of_ratios_are_those_of_many_repeats():
    many = [acceptance_ratio(*proposals(800, 200, seed)) for seed in range(200)]
    up, down = proposals(800, 200)
    error = math.sqrt((module.influence(up, down, acceptance_ratio(up, down)) ** 2).sum())
    assert 0.7 < error / np.std(many) < 1.4


def test_moves_that_never_can_be_tell_nothing():
    up, down = proposals(100, 100)
    assert math.isnan(acceptance_ratio(np.full(10, -math.inf), down))
    assert math.isnan(acceptance_ratio(up, np.full(10, -math.inf)))
    some = np.concatenate([up, np.full(100, -math.inf)])
    assert acceptance_ratio(some, down) < acceptance_ratio(up, down)


@pytest.mark.whole
@pytest.mark.parametrize("seen", [2.0, 9.0])
def test_evidences_are_those_of_integration(seen):
    """A sum of 9: none at all has 1e-36 of the evidence of three."""
    target, exact = seen_sum(seen=seen), log_evidences_of_sum(seen).numpy()
    with clock.read_from(time.process_time):
        table = trj.evidences_of_counts(target, max_seconds=10, seed=1, progress=False)
    z = (table["log_evidence"] - exact) / table["se"].clip(lower=1e-6)
    assert float(z.abs().max()) < 5 and float(table["se"].max()) < 0.25  # .07 on an idle machine
    z = (table["visits"] - exact)[1:] / table["visits_se"][1:]
    assert float(z.abs().max()) < 5
    p = np.exp(exact) * PRIOR.numpy()
    z = (table["probability"] - p / p.sum()) / table["probability_se"]
    assert float(z.abs().max()) < 5
    assert table.attrs["tours"] > 100


@pytest.mark.whole
def test_the_smallest_number_need_not_be_empty():
    target = trj.Target(
        trj.Counts(3, 1, of="a", prior=trj.LogWeights([0.0, -1.0, -2.0])),
        {"a": Normal(0.0, 1.0)},
        trj.Additive(
            lambda p: p["a"][:, None], lambda t, p: Normal(t[:, 0], 0.5).log_prob(torch.tensor(1.0))
        ),
    )
    table = trj.evidences_of_counts(target, max_seconds=4, seed=1, progress=False)
    exact = [float(Normal(0.0, math.sqrt(k + 0.25)).log_prob(torch.tensor(1.0))) for k in (1, 2, 3)]
    assert table.index.tolist() == [1, 2, 3]
    assert float(((table["log_evidence"] - exact) / table["se"]).abs().max()) < 5


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.DisagreementWarning")
def test_gaps_that_chains_do_not_cross_are_said_aloud():
    target = trj.problems.pulses(true=5, most=8, seed=4)
    with pytest.warns(ConvergenceWarning, match="chains hardly went from"):
        table = trj.evidences_of_counts(target, max_seconds=3, chains=16, progress=False)
    assert table["probability_se"].isna().all() and math.isnan(table["se"].iloc[-1])


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_a_limit_that_leaves_no_step_leaves_no_error(clock):
    """It crashed: one half of the run, or both, had no move."""
    clock.call = 10.0
    target = trj.problems.pulses(points=20, true=1, most=2, seed=1)
    table = trj.evidences_of_counts(target, max_seconds=1.0, chains=16, progress=False)
    assert table.index.tolist() == [0, 1, 2] and table["probability_se"].isna().all()


def test_what_it_can_not_do_is_refused():
    for settings in ({"max_seconds": 0}, {"max_seconds": math.inf}, {"chains": 1}):
        with pytest.raises(ConfigurationError, match="max_seconds, chains"):
            trj.evidences_of_counts(waves(), **settings)
    with pytest.raises(ConfigurationError, match="one kind"):
        trj.evidences_of_counts(trj.problems.sinh_arcsinh())
    one = trj.Target(
        trj.Counts(2, 2, of="a"), {"a": Normal(0.0, 1.0)}, lambda p, active: 0 * p["a"].sum(-1)
    )
    with pytest.raises(ConfigurationError, match="one number"):
        trj.evidences_of_counts(one)
