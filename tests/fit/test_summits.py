"""Summits of a posterior by quasi-Newton climbs: which are met, how often, and for how much."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Normal, Uniform

import trjmcmc as trj
from trjmcmc import clock
from trjmcmc.fit import summits as climbing
from trjmcmc.fit.summits import Summits

CENTRES, WIDTHS, SHARES = ((-2.0, 0.5), (2.0, 1.0)), (0.3, 0.6), (0.7, 0.3)


def bumps(black_box=False):
    """Two normals, their shares of the evidence put in, under N(0, 3^2) in two dimensions."""
    prior = Normal(torch.zeros(2, dtype=torch.float64), 3.0)

    def log_likelihood(p):
        x = torch.as_tensor(p["x"]).double()
        each = [
            Normal(torch.tensor(c, dtype=torch.float64), w).log_prob(x).sum(-1) + math.log(s)
            for c, w, s in zip(CENTRES, WIDTHS, SHARES, strict=True)
        ]
        value = torch.stack(each).logsumexp(0) - prior.log_prob(x).sum(-1)
        return value.numpy() if black_box else value

    likelihood = trj.BlackBox(log_likelihood, vectorized=True) if black_box else log_likelihood
    return trj.Target([trj.Model("bumps", {"x": prior}, likelihood)], dtype=torch.float64)


def summits(target, climbs, seed=0):
    found = Summits(target, target.space.enumerate()[0], torch.Generator().manual_seed(seed))
    found.climb(climbs)
    return found


@pytest.mark.parametrize("black_box", [False, True])
def test_means_widths_and_shares_of_two_normals(black_box):
    found = summits(bumps(black_box), 64)
    order = found.normals.mean[:, 0].argsort()
    centre = torch.tensor(CENTRES, dtype=torch.float64)
    assert ((found.normals.mean[order] - centre).abs() < 0.1).all()
    width = found.normals.factor[order].diagonal(dim1=1, dim2=2)
    assert ((width.log() - torch.tensor(WIDTHS).log()[:, None]).abs() < 0.7).all()
    share = (found.normals.weight[order] - 0.15) / 0.7  # three tenths are even
    assert ((share - torch.tensor(SHARES)).abs() < 0.25).all()
    assert not found.lonely


def test_differences_follow_gradients_at_some_twenty_calls_a_climb():
    target = bumps(black_box=True)
    before = target.account.evaluations
    found = summits(target, 64)
    assert target.account.evaluations - before < 64 * 10 * 3
    assert torch.allclose(found.normals.mean, summits(bumps(), 64).normals.mean, atol=0.02)


def test_climbs_end_early_at_summits_that_are_known_and_at_no_other(monkeypatch):
    """Steps of whole climbs may cross into the next basin: a few of 128 end elsewhere."""

    def met(foretold, aimed):
        monkeypatch.setattr(climbing, "FORETOLD", foretold)
        monkeypatch.setattr(climbing, "AIMED", aimed)
        found = summits(bumps(black_box=True), 8)
        before = found.evaluations
        found.climb(120)
        return min(found._distinct()[1].tolist()), found.evaluations - before

    (whole, calls), (early, fewer) = met(0.0, 0.0), met(0.1, 0.3)
    assert abs(early - whole) < 8 and fewer < 0.5 * calls
    careless, _ = met(1000.0, 1000.0)  # the first summit is every climb's
    assert careless < whole - 8


def test_a_summit_that_one_climb_has_met_asks_for_more():
    assert summits(bumps(), 1).lonely is False  # one climb tells nothing
    alone = next(
        s for s in (summits(bumps(), 2, seed) for seed in range(50)) if len(s.normals.weight) == 2
    )
    assert alone.lonely


def test_climbs_that_cannot_reach_what_matters_end_soon():
    """A low summit beside a high one costs its climbs little, and gets no normal."""
    prior = Uniform(-10.0, 10.0)

    def log_likelihood(p):
        x = p["x"]
        return torch.maximum(-50 * (x - 5).square(), -0.5 * (x + 5).square() - 500) * 10

    target = trj.Target([trj.Model("m", {"x": prior}, log_likelihood)], dtype=torch.float64)
    found = summits(target, 64)
    assert len(found.normals.weight) == 1
    (mean,) = found.normals.mean[:, 0].tolist()  # of x between the bounds, by the logistic map
    assert abs(20 / (1 + math.exp(-mean)) - 10 - 5) < 0.05


def test_nothing_is_met_where_no_draw_is_possible():
    def impossible(p):
        return np.full(len(p["x"]), -math.inf)

    model = trj.Model("m", {"x": Normal(0.0, 1.0)}, trj.BlackBox(impossible, vectorized=True))
    found = summits(trj.Target([model], dtype=torch.float64), 4)
    assert found.normals is None and not found.lonely and found.climbs == 0


def test_no_step_begins_when_time_is_up():
    target = bumps(black_box=True)
    found = Summits(target, target.space.enumerate()[0], torch.Generator().manual_seed(0))
    before = target.account.evaluations
    with clock.read_from(lambda: 1.0):
        found.climb(16, deadline=0.0)
    assert target.account.evaluations - before == 16 * 3  # where they start, and slopes there
