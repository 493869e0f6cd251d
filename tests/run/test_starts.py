"""Where chains start, and what they descend from."""

import math
import time

import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from trjmcmc import clock
from trjmcmc.run.start import with_climbs


def normal(d):
    """Normal likelihoods in d coordinates and in half as many, under a wide prior.

    Log evidences are -1/1802 a coordinate.
    """

    def log_likelihood(p):
        return (0.5 * math.log(901) - 0.5 * (p["x"] - 1).square()).sum(-1)

    prior = Normal(0.0, 30.0)
    return trj.Target(
        [
            trj.Model("all", {"x": prior.expand([d])}, log_likelihood),
            trj.Model("half", {"x": prior.expand([d // 2])}, log_likelihood),
        ]
    )


def test_every_other_chain_starts_along_a_climb_of_its_own():
    target = normal(30)
    code = target.space.enumerate()[torch.arange(64) % 2]
    theta = torch.full((64, target.dim), 50.0)
    theta = torch.where(target.space.active(code), theta, 0.0)
    ancestor = torch.zeros(64, dtype=torch.long)
    drawn, new = with_climbs(target, code, theta, ancestor, torch.Generator().manual_seed(0))
    climbed = new < 0
    assert climbed.sum() == 32
    assert len(new[climbed].unique()) == 32
    assert new.min() < -64  # draws of a map have the numbers from -1 to -64
    assert torch.equal(drawn[~climbed], theta[~climbed])
    for model in (0, 1):
        rows = climbed & (code[:, 0] == model)
        assert rows.sum() == 16
        x = drawn[rows][:, target.space.active(code[rows][:1])[0]]
        error = 1 / math.sqrt(x.numel())
        assert abs(float(x.mean()) - 1) < 5 * error
        assert float(x.std()) == pytest.approx(1, abs=0.2)
    assert not drawn[code[:, 0] == 1][:, 15:].any()


def test_a_model_that_can_not_be_climbed_keeps_its_starts():
    def nowhere(p):
        return torch.where(p["x"].sum(-1) < 1e6, -math.inf, 0.0)

    target = trj.Target([trj.Model("far", {"x": Normal(0.0, 1.0).expand([2])}, nowhere)])
    code, theta = torch.zeros(4, 1, dtype=torch.long), torch.ones(4, 2)
    ancestor = torch.arange(4)
    generator = torch.Generator().manual_seed(0)
    drawn, new = with_climbs(target, code, theta, ancestor, generator)
    assert torch.equal(drawn, theta) and torch.equal(new, ancestor)


@pytest.mark.whole
@pytest.mark.planned
def test_a_run_in_many_coordinates_is_not_doubted_for_its_starts():
    target = trj.Target([normal(24).models[0]])
    with clock.read_from(time.process_time):  # the plan is not that of a busy machine
        result = trj.TRJSampler(target, seed=0).run(draws=200, chains=64, progress=False)
    assert result.report.audit.models[0].ancestors < 20  # of the pilot run
    assert not any("descend from" in doubt.note for doubt in result.doubts)
    assert result.draws("all")["x"].std() == pytest.approx(1, abs=0.03)
