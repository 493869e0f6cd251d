"""Means and spreads of angles whose draws lie on both sides of the seam."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Independent, Uniform

import trjmcmc as trj
from trjmcmc.kernel import ComponentWalk, Cycle, RandomWalk
from trjmcmc.result.numbers import laid_out

TURN = 2 * math.pi


def spread_of(concentration):
    """Standard deviation of a von Mises angle within half a turn of its mean."""
    x = np.linspace(-math.pi, math.pi, 4001)
    weight = np.exp(concentration * np.cos(x))
    return math.sqrt((x**2 * weight).sum() / weight.sum())


def walked(target, kernel):
    """A run of many steps of one kernel."""
    sampler = trj.TRJSampler(target, kernel=kernel, seed=1)
    return sampler.run(400, chains=256, warmup=300, thin=5, fit=False, progress=False)


def test_a_summary_is_the_same_wherever_the_circle_is_cut(generator):
    x = 0.3 * torch.randn(5000, generator=generator).double().numpy()
    for shift in (0.0, 1.0, 3.0, 6.2):
        line = laid_out(np.remainder(x + shift, TURN), (0.0, TURN))
        assert 0 <= line.mean() < TURN
        gap = np.remainder(line.mean() - x.mean() - shift + math.pi, TURN) - math.pi
        assert abs(gap) < 1e-9
        assert line.std() == pytest.approx(x.std())
        quantile = np.quantile(line, 0.9) - line.mean()
        assert quantile == pytest.approx(np.quantile(x, 0.9) - x.mean())
    assert laid_out(x, None) is x


@pytest.fixture(scope="module")
def result():
    """A clock: a time of day about midnight, a vector of phases, and a number."""
    prior = {
        "hour": trj.priors.Periodic(0.0, 24.0),
        "phase": Independent(trj.priors.Periodic(torch.zeros(2), TURN * torch.ones(2)), 1),
        "flat": Uniform(0.0, 1.0),
    }
    target = trj.Target(
        [
            trj.Model(
                "clock",
                prior,
                lambda p: 4.0 * (TURN / 24 * p["hour"]).cos() + 2.0 * p["phase"].cos().sum(-1),
            )
        ]
    )
    return walked(target, RandomWalk(target))


@pytest.mark.whole
def test_a_result_lays_angles_out_around_their_mean(result, tmp_path):
    assert result._turns == {"hour": (0.0, 24.0), "phase": pytest.approx((0.0, TURN))}
    result.save(tmp_path / "clock.trj")
    for found in (result, trj.load(tmp_path / "clock.trj")):
        table = found.summary().loc["clock"]
        hour, phase = table.loc["hour"], table.loc["phase[1]"]
        spread = 24 / TURN * spread_of(4.0)
        assert hour["sd"] == pytest.approx(spread, rel=0.1)
        assert 3 * spread < hour["q95"] - hour["q5"] < 3.6 * spread
        assert abs((hour["mean"] + 12) % 24 - 12) < 6 * hour["mcse"]
        assert phase["sd"] == pytest.approx(spread_of(2.0), rel=0.1)
        assert table["sd"]["flat"] == pytest.approx(12**-0.5, rel=0.1)


@pytest.mark.whole
def test_phases_of_components_are_laid_out_in_the_catalogue(generator):
    target = trj.Target(
        trj.Counts(1, of=("phase", "height"), min=1),
        {"phase": trj.priors.Periodic(0.0, TURN), "height": Uniform(0.0, 1.0)},
        lambda p, active: 16.0 * (p["phase"].cos() * active).sum(-1),
    )
    result = walked(target, Cycle([ComponentWalk(target)]))
    row = result.catalogue().iloc[0]
    assert row["phase_sd"] == pytest.approx(spread_of(16.0), rel=0.15)
    assert row["phase_high"] - row["phase_low"] < 1.3
