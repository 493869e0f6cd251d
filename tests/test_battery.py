"""The battery itself: how often it lets a right kernel pass, and what it finds out."""

import math

import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from tests.battery import ALPHA, CLEAR, Case, clear, is_caught, limit, stays_exact
from tests.cases import mean_score
from trjmcmc.kernel import State, start

CHAINS = 4000


class Shift:
    """A kernel that moves every chain by as much; 0 is right, anything else wrong."""

    def __init__(self, target, by):
        self.target, self.by = target, by

    def step(self, state, generator):
        theta = state.theta + self.by
        return start(self.target, state.code, theta), []


@pytest.fixture(scope="module")
def case():
    """Three independent standard normals."""
    model = trj.Model("m", {"x": Normal(torch.zeros(3), 1.0)}, lambda p: 0.0 * p["x"].sum(-1))
    target = trj.Target([model])

    def draw(n, generator):
        theta = torch.randn(n, 3, generator=generator)
        return start(target, torch.zeros(n, 1, dtype=torch.long), theta)

    return Case(target, draw, lambda s: torch.tensor([mean_score(x) for x in s.theta.T.double()]))


@pytest.mark.parametrize("scores", [1, 3, 40])
def test_limits_are_those_of_the_largest_of_normals(scores, generator):
    worst = torch.randn(50_000, scores, generator=generator).abs().amax(1)
    assert float((worst < clear(scores)).double().mean()) == pytest.approx(CLEAR, abs=0.01)
    beyond = float((worst > limit(scores, 0.01)).double().mean())
    assert beyond == pytest.approx(0.01, abs=0.002)
    assert clear(scores) < limit(scores) == limit(scores, ALPHA)


def test_a_right_kernel_passes_and_four_in_five_times_at_the_first_stage(case):
    stages = [
        len(stays_exact(Shift(case.target, 0.0), case, seeded, chains=CHAINS).state.code)
        for seeded in (torch.Generator().manual_seed(i) for i in range(300))
    ]
    assert set(stages) == {CHAINS, CHAINS // 4}
    early = stages.count(CHAINS // 4) / len(stages)
    assert abs(early - CLEAR) < 4.5 * math.sqrt(CLEAR * (1 - CLEAR) / len(stages))


@pytest.mark.parametrize("limits", [2.5, -2.5])
def test_what_is_far_off_is_caught_at_the_first_stage_and_never_passes(case, limits):
    """By so many limits at a quarter of the chains, after three steps."""
    wrong = Shift(case.target, limits * limit(3) / (CHAINS // 4) ** 0.5 / 3)
    for seed in range(20):
        is_caught(wrong, case, torch.Generator().manual_seed(seed), chains=CHAINS)
        with pytest.raises(AssertionError, match="standard errors"):
            stays_exact(wrong, case, torch.Generator().manual_seed(seed), chains=CHAINS)


def test_what_is_little_off_is_let_pass_as_seldom_as_the_first_stage_says(case):
    """Three standard errors at the first stage, six at the second."""
    wrong, passed = Shift(case.target, 3.0 / (CHAINS // 4) ** 0.5 / 3), 0
    for seed in range(100):
        try:
            stays_exact(wrong, case, torch.Generator().manual_seed(seed), chains=CHAINS)
            passed += 1
        except AssertionError:
            pass
    p = float(Normal(0.0, 1.0).cdf(torch.tensor(clear(3) - 3.0))) ** 3  # all three are off
    assert passed / 100 < p + 0.05 + 4.5 * math.sqrt(0.25 / 100)
    with pytest.raises(AssertionError, match="only"):
        is_caught(wrong, case, torch.Generator().manual_seed(0), chains=CHAINS)


def test_scores_that_are_no_numbers_and_states_that_are_stale_fail(case, generator):
    blind = case._replace(scores=lambda state: torch.tensor([math.nan]))
    with pytest.raises(AssertionError, match="nan standard errors"):
        stays_exact(Shift(case.target, 0.0), blind, generator, chains=CHAINS)

    class Stale(Shift):
        def step(self, state, generator):
            return State(state.code, -state.theta, state.log_joint + 0.1), []

    with pytest.raises(AssertionError):
        stays_exact(Stale(case.target, 0.0), case, generator, chains=CHAINS)


class Shared(Shift):
    """Right on average only: all chains of a batch move by one random number."""

    def step(self, state, generator):
        rho = 0.9
        noise = torch.randn(1, 3, generator=generator)
        theta = rho * state.theta + math.sqrt(1 - rho**2) * noise
        return start(self.target, state.code, theta), []


def test_chains_that_share_a_choice_need_batches(case, generator):
    kernel = Shared(case.target, 0.0)
    with pytest.raises(AssertionError):
        stays_exact(kernel, case, generator, chains=CHAINS)
    stays_exact(kernel, case, generator, chains=400, batch=1)
