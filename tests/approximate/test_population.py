"""Normals fitted to weighted draws, and what answers find out about q(m)."""

import math

import numpy as np
import pytest
import torch
from solved import spike_and_slab

import trjmcmc as trj
from trjmcmc.approximate import ApproximationPolicy
from trjmcmc.approximate.population import PopulationMonteCarlo
from trjmcmc.pilot.audit import Audit
from trjmcmc.result.answer import variational
from trjmcmc.transport.normals import NormalMixture
from trjmcmc.weights.base import ModelWeights


def test_weighted_draws_make_the_mixture_they_stand_for():
    g = torch.Generator().manual_seed(0)
    loc = torch.tensor([[-2.0, 0.0], [2.0, 1.0]], dtype=torch.float64)
    factor = torch.tensor([[[0.5, 0.0], [0.2, 0.4]], [[1.0, 0.0], [0.0, 0.3]]]).double()
    exact = NormalMixture(torch.tensor([0.3, 0.7]).double(), loc, factor)
    wide = NormalMixture(
        torch.ones(1).double(), torch.zeros(1, 2).double(), 3 * torch.eye(2)[None].double()
    )
    x = wide.sample(60_000, g)
    weight = (exact.log_prob(x) - wide.log_prob(x)).exp()
    start = NormalMixture(torch.tensor([0.5, 0.5]).double(), loc + 0.3, 1.5 * factor)
    found = start.refitted(x, weight)
    assert (found.weight - exact.weight).abs().max() < 0.03
    assert (found.mean - exact.mean).abs().max() < 0.06
    covariance = found.factor @ found.factor.mT
    assert (covariance - factor @ factor.mT).abs().max() < 0.06
    equal = start.refitted(x, torch.ones_like(weight))  # without weights it is another's
    assert (equal.mean - exact.mean).abs().max() > 0.3


@pytest.mark.whole
def test_rounds_lower_the_divergence():
    target = trj.problems.energy("U5").to(dtype=torch.float64)
    g = torch.Generator().manual_seed(0)
    policy = ApproximationPolicy(first_round=8000, rounds=2)
    audit = Audit(target, target.space.enumerate(), particles=150, moves=10, generator=g)
    audit.grow(0)
    population = PopulationMonteCarlo(target, audit, g, policy)
    exact = target.exact_draws(4000, g).double()
    code = target.space.enumerate().expand(len(exact), -1)

    def divergence(flow):
        with torch.no_grad():
            return float((target.log_prob(exact) - flow.log_prob(exact, code)).mean())

    before, after = divergence(population.map()), divergence(population.run())
    assert after < 0.5 * before and after < 0.05
    assert population.evaluations == 8000 + 24_000


def test_a_normal_is_one_normal_and_two_modes_are_not():
    """Four normals of one creep; the single one takes their place, but not that of two modes."""
    g = torch.Generator().manual_seed(0)
    target = trj.problems.beta_bernoulli()
    audit = Audit(target, target.space.enumerate(), particles=50, moves=5, generator=g)
    audit.grow(0)
    population = PopulationMonteCarlo(
        target, audit, g, ApproximationPolicy(first_round=4000, rounds=1)
    )
    for apart, normals in ((0.0, 1), (6.0, 2)):
        x = torch.randn(40_000, 1, generator=g).double()
        x[::2] += apart
        mean = torch.tensor([[-0.4], [0.4 + apart]]).double()
        population.normals[0] = NormalMixture(
            torch.full((2,), 0.5).double(), mean, torch.full((2, 1, 1), 0.8).double()
        )
        found = population._refitted(0, x, torch.ones(len(x)).double())
        assert len(found.weight) >= normals and (len(found.weight) == 1) is (normals == 1)


@pytest.mark.whole
@pytest.mark.parametrize("seed", [3, 4])
def test_a_nearly_normal_posterior_is_met_closely(seed):
    found = trj.variational(trj.problems.beta_bernoulli(), seed=seed, progress=False)
    kl = found.kl()
    assert kl.value < 0.001 + 3 * kl.std_error and kl.std_error < 0.001


class Given(ModelWeights):
    """Independent units of stated probabilities, drawn with others."""

    def __init__(self, space, stated, drawn):
        super().__init__(space)
        self.stated, self.drawn = torch.as_tensor(stated), torch.as_tensor(drawn)

    def sample(self, n, generator):
        return (torch.rand(n, len(self.drawn), generator=generator) < self.drawn).long()

    def log_prob(self, code):
        return torch.where(code > 0, self.stated.log(), (-self.stated).log1p()).sum(-1)

    def learn(self, code, loss):
        """Nothing."""


def weak_effects():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 7))
    return spike_and_slab(x, x @ np.full(7, 0.4) + rng.standard_normal(30))


def test_draws_that_are_not_those_of_the_stated_probabilities(generator):
    target = weak_effects()
    flow, p = trj.transport.LaplaceMap(target), target.inclusion.float().clamp(1e-3, 1 - 1e-3)
    right = variational(target, Given(target.space, p, p), flow, generator)
    assert not any("of its draws" in str(doubt) for doubt in right.doubts)
    gumbel = -torch.expm1(-p / (1 - p))
    wrong = variational(target, Given(target.space, p, gumbel), flow, generator)
    assert any("of its draws" in str(doubt) for doubt in wrong.doubts)


def test_models_that_are_never_drawn(generator):
    target = weak_effects()
    stuck = torch.full((7,), 1e-9)
    answer = variational(
        target, Given(target.space, stuck, stuck), trj.transport.LaplaceMap(target), generator
    )
    assert answer.ess_share == pytest.approx(1.0)  # of the empty model alone
    assert any("hardly draws" in str(doubt) for doubt in answer.doubts)


@pytest.mark.whole
def test_a_climb_finds_what_q_lacks():
    """Two far modes in ten dimensions, where tempered draws are rough; q has one of them."""
    d = 10
    prior = torch.distributions.Normal(torch.zeros(d).double(), 10.0)

    def log_likelihood(params):
        x = params["x"].double()
        each = [-0.5 * (x - m).square().sum(-1) for m in (-6.0, 6.0)]
        return torch.logaddexp(*each) - prior.log_prob(x).sum(-1)

    target = trj.Target([trj.Model("two", {"x": prior}, log_likelihood)])

    def one(space):
        loc = torch.full((1, d), 6.0, dtype=torch.float64)
        return trj.transport.Affine(space, loc, torch.eye(d).double()[None]).requires_grad_(False)

    policy = ApproximationPolicy(particles=50, moves=2)
    with pytest.warns(trj.errors.ConvergenceWarning) as caught:
        trj.variational(target, one, seed=1, progress=False, policy=policy, draws=1000)
    said = " ".join(str(w.message) for w in caught)
    assert "that q lacks" in said or "misses a part" in said
    both = trj.variational(target, "pathfinder", seed=1, progress=False, audit=False, draws=1000)
    exact = math.log(2) + 0.5 * d * math.log(2 * math.pi)
    assert both.log_evidence.value == pytest.approx(exact, abs=0.1)
