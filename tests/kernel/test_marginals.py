"""Moves by the marginals of single coordinates, and by kinds of models."""

import math
import time

import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from tests import cases, toys
from tests.battery import is_caught
from trjmcmc import clock
from trjmcmc.kernel import Fixed, MarginalJump, Marginals
from trjmcmc.weights.bernoulli import BernoulliMixture


def test_marginals_have_the_modes_of_each_coordinate(generator):
    """A narrow mode and a wide one where items are in, and no fit where there is nothing."""
    space = trj.Target(
        trj.Subsets(["a", "b", "c"], of="x"), {"x": Normal(0.0, 3.0)}, lambda p, a: p["x"].sum(-1)
    ).space
    n = 4000
    code = torch.randint(2, (n, 3), generator=generator)
    code[:, 2] = 0
    noise = torch.randn(n, 3, generator=generator)
    near = torch.rand(n, 3, generator=generator) < 0.5
    theta = torch.where(near, 2 + 0.05 * noise, -2 + noise) * code
    marginals = Marginals.fitted(space, code, theta, 4, generator)
    x = marginals.sample(20_000, generator)
    for j in (0, 1):
        close = ((x[:, j] - 2).abs() < 0.2).double().mean()
        assert abs(float(close) - 0.9 * 0.5) < 0.05
    assert float(x[:, 2].std()) > 2.5 and abs(float(x[:, 2].mean())) < 0.1
    grid = torch.linspace(-40, 40, 200_001, dtype=torch.float64)[:, None].expand(-1, 3)
    total = (marginals.log_prob(grid).exp().sum(0) * 80 / 200_000).tolist()
    assert total == pytest.approx([1, 1, 1], abs=1e-3)


def test_births_by_marginals_that_forget_their_density_are_caught(generator):
    case = cases.gaussians()

    class Forgetful(MarginalJump):
        def step(self, state, generator):
            marginals, self.marginals = self.marginals, Flat(self.marginals)
            found = super().step(state, generator)
            self.marginals = marginals
            return found

    class Flat(Marginals):
        def __init__(self, other):
            super().__init__(other.weight, other.mean, other.sd)

        def log_prob(self, theta):
            return torch.zeros_like(theta, dtype=torch.float64)

    one = torch.ones(case.target.dim, 1).double()
    marginals = Marginals(one, 0 * one, one)
    is_caught(Forgetful(case.target, marginals, Fixed(case.target.space)), case, generator)


def test_a_mixture_of_units_finds_two_kinds_of_models(generator):
    space = toys.conjugate_subsets().space
    n = space.units
    first = torch.arange(n) < n // 2
    chance = torch.stack([torch.where(first, 0.95, 0.05), torch.where(first, 0.05, 0.95)])
    kind = torch.randint(2, (3000,), generator=generator)
    code = (torch.rand(3000, n, generator=generator) < chance[kind]).long()
    found = BernoulliMixture.fitted(space, code, 4, generator)
    codes = space.enumerate()
    p = found.log_prob(codes).exp()
    assert float(p.sum()) == pytest.approx(1.0)
    exact = torch.zeros(len(codes), dtype=torch.float64)
    for row in chance.double():
        each = torch.where(codes.bool(), row, 1 - row)
        exact += each.prod(1) / 2
    assert float((p - exact).abs().sum() / 2) < 0.1
    drawn = torch.bincount(space.index(found.sample(50_000, generator)), minlength=len(codes))
    error = (p * (1 - p) / 50_000).sqrt()
    assert float(((drawn / 50_000 - p) / error).abs().max()) < 5.5


@pytest.mark.planned
@pytest.mark.whole
@pytest.mark.parametrize("kind", ["spikes", "far"])
def test_items_of_several_modes_and_sets_without_common_items_mix(kind):
    """R-hat was 1.3 and 2.4 after a minute of births from the prior."""
    items, names = 12, [f"v{j}" for j in range(12)]
    prior, on = Normal(0.0, 3.0), torch.arange(12) < 6

    def spikes(p, active):
        spike = math.log(0.4) + Normal(2.0, 0.05).log_prob(p["x"])
        each = torch.logaddexp(spike, math.log(0.6) + Normal(-2.0, 1.0).log_prob(p["x"]))
        return torch.where(active, each - prior.log_prob(p["x"]), 0.0).sum(-1)

    def far(p, active):
        gain = Normal(1.0, 0.3).log_prob(p["x"]) - prior.log_prob(p["x"])
        agrees = torch.where(active == on, 0.97, 0.03).log().sum(-1)
        opposes = torch.where(active == on, 0.03, 0.97).log().sum(-1)
        both = torch.logaddexp(math.log(0.6) + agrees, math.log(0.4) + opposes)
        return torch.where(active, gain, 0.0).sum(-1) + both + items * math.log(2)

    target = trj.Target(
        trj.Subsets(names, of="x"), {"x": prior}, spikes if kind == "spikes" else far
    )
    with clock.read_from(time.process_time):  # other jobs may take any time
        result = trj.TRJSampler(target, seed=1).run(
            until={"probability": 0.01, "rhat": 1.01}, max_seconds=60, progress=False
        )
    assert result.chains.convergence()["rhat"].max() < 1.02
    table = result.inclusion_probabilities(full=True)
    exact = (
        [0.5] * 12
        if kind == "spikes"
        else [0.6 * 0.97 + 0.4 * 0.03] * 6 + [0.4 * 0.97 + 0.6 * 0.03] * 6
    )
    gap = (table["probability"] - torch.tensor(exact).numpy()).abs()
    assert (gap < 4.5 * table["se"]).all()
