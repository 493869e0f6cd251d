"""Likelihoods that are distributions, data drawn from models, and leave-one-out."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Bernoulli, Independent, Normal

import trjmcmc as trj
from tests.validation.resampling import Resampler
from trjmcmc.errors import ConfigurationError, ShapeError, TargetError
from trjmcmc.result.report import RunReport
from trjmcmc.rng import seeded

Y = torch.tensor([0.3, 1.2, -0.4, 0.8, 0.1])


def normal(p):
    return Normal(p["mu"][:, None].expand(-1, len(Y)), 1.0)


def two():
    """A mean that is zero, and one that is not known."""
    zero = trj.Observed(lambda p: Normal(torch.zeros(len(Y)), 1.0), Y)
    mean = trj.Observed(normal, Y)
    prior = {"mu": Normal(0.0, 1.0)}
    return trj.Target([trj.Model("zero", {}, zero), trj.Model("mean", prior, mean)])


def test_a_distribution_over_data_is_a_likelihood():
    target = two()
    by_hand = trj.Target(
        [
            trj.Model("zero", {}, lambda p: Normal(0.0, 1.0).log_prob(Y).sum()),
            trj.Model("mean", {"mu": Normal(0.0, 1.0)}, lambda p: normal(p).log_prob(Y).sum(-1)),
        ]
    )
    code, theta = torch.tensor([[0], [1], [1]]), torch.tensor([[0.0], [0.5], [-2.0]])
    assert torch.allclose(target.log_joint(code, theta), by_hand.log_joint(code, theta))
    moved = target.given(Y + 1.0)
    assert moved.truth is None and not torch.allclose(
        moved.log_joint(code, theta), target.log_joint(code, theta)
    )
    with pytest.raises(TargetError, match=r"trj\.Observed"):
        by_hand.given(Y)


def test_shapes_that_mix_points_and_data_are_refused():
    seen = trj.Observed(lambda p: Normal(p["mu"], 1.0), Y)
    with pytest.raises(ShapeError, match="beside data"):
        trj.Target([trj.Model("a", {"mu": Normal(0.0, 1.0)}, seen)])
    with pytest.raises(TargetError, match="returns a distribution"):
        trj.Observed(lambda p: p["mu"], Y)({"mu": torch.zeros(2)})
    with pytest.raises(TargetError, match="NaN"):
        trj.Observed(normal, [math.nan])


def test_events_are_observations_of_their_own():
    seen = trj.Observed(lambda p: Independent(normal(p), 1), Y)
    p = {"mu": torch.tensor([0.0, 1.0])}
    with seeded(0):
        drawn = seen.sample(p)
    assert seen.pointwise(p).shape == (2,) and drawn.shape == (2, 5)
    yes = trj.Observed(lambda p: Bernoulli(logits=p["mu"][:, None].expand(-1, 3)), [1.0, 0.0, 1.0])
    with seeded(0):
        some = yes.sample(p)
    assert set(some.unique().tolist()) <= {0.0, 1.0}


def test_prior_predictive_draws_have_the_moments_of_the_model():
    drawn = trj.simulate.prior_predictive(two(), n=4000, seed=3)
    inside = np.array(drawn.models) == "mean"
    y = drawn.data[:, 0]
    for some, variance in ((~inside, 1.0), (inside, 2.0)):
        z = (y[some].var() - variance) / (variance * math.sqrt(2 / some.sum()))
        assert abs(z) < 5
    assert np.isnan(drawn.parameters["mu"][~inside]).all()
    assert drawn.to_arviz()["prior_predictive"]["data"].shape == (1, 4000, 5)
    again = trj.simulate.prior_predictive(two(), n=4000, seed=3)
    assert np.array_equal(drawn.data, again.data)


def test_data_come_from_the_users_function():
    def simulate(model, params, generator):
        n = len(params["mu"]) if params else 1
        return [[model] * (i + 1) for i in range(n)]

    drawn = trj.simulate.prior_predictive(two(), simulate, n=20)
    assert [d[0] for d in drawn.data] == drawn.models
    with pytest.raises(ConfigurationError, match="data sets for"):
        trj.simulate.prior_predictive(two(), lambda *_: torch.zeros(7, 3), n=20)
    with pytest.raises(ConfigurationError, match="KeyError"):
        trj.simulate.prior_predictive(two(), lambda m, p, g: p["nu"], n=20)
    plain = trj.Target([trj.Model("a", {"mu": Normal(0.0, 1.0)}, lambda p: -(p["mu"] ** 2))])
    with pytest.raises(ConfigurationError, match="give simulate"):
        trj.simulate.prior_predictive(plain)


def test_posterior_predictive_averages_over_models():
    target = two()
    result = Resampler(target, seed=1).run()
    found = trj.simulate.posterior_predictive(result, target=target, n=200)
    assert set(found.models) == {"zero", "mean"}
    table = found.checks()
    assert list(table.index) == ["mean", "sd", "smallest", "largest"]
    assert table.loc["mean", "observed"] == pytest.approx(float(Y.mean()))
    assert table["p"].between(0.001, 0.999).all()
    far = trj.simulate.posterior_predictive(result, target=target, observed=Y + 30, n=100)
    assert far.checks("mean").loc["mean", "p"] == 0
    with pytest.raises(ConfigurationError, match="no data were drawn"):
        found.checks("other")


def test_leave_one_out_is_that_of_the_conjugate_model():
    code = torch.ones(1500, 1, dtype=torch.long)
    n, g = len(Y), torch.Generator().manual_seed(2)
    theta = Y.sum() / (n + 1) + torch.randn(1500, 1, generator=g) / math.sqrt(n + 1)
    target = two()
    state = trj.kernel.start(target, code, theta)
    raw = trj.draws.Draws(state.code[:, None], state.theta[:, None], state.log_joint[:, None])
    result = trj.Result(target.space, raw, {}, {}, RunReport(), target=target)
    table = result.compare()
    left = (Y.sum() - Y) / n
    exact = float(Normal(left, math.sqrt(1 + 1 / n)).log_prob(Y).sum())
    assert abs(table.loc["mean", "elpd_loo"] - exact) < 0.05
    assert table.loc["mean", "stacking"] == 1.0 and table.loc["mean", "probability"] == 1.0
    other = table.iloc[1]  # without draws, which is said
    assert other["note"] == "0 draws, fewer than 100" and math.isnan(other["elpd_loo"])
    assert table.loc["mean", "note"] == "" and math.isnan(other["stacking"])
