"""q over numbers of like components: births, one labelling, and what a learnt q(k) lacks."""

import pytest
import torch

import trjmcmc as trj
from trjmcmc.fit.climbs_by_model import ClimbsByModel
from trjmcmc.transport.labelled_components import LabelledComponents

SOURCES = {"true": 2, "points": 60, "side": 6.0, "seed": 1, "dtype": torch.float64}


def climbs_of(most, seed=0):
    target = trj.problems.gaussian_mixture_2d(most=most, **SOURCES)
    generator = torch.Generator().manual_seed(seed)
    return ClimbsByModel(target, target.space.enumerate(), generator)


class Settled(trj.weights.CategoricalWeights):
    """q(k) that is not learnt."""

    def learn(self, code, loss):
        pass


def answered(climbs, transport, logits):
    weights = Settled(climbs.target.space)
    with torch.no_grad():
        weights.logits.copy_(logits)
    sampler = trj.TRJSampler(climbs.target, transport, models=weights, seed=1)
    sampler.fit(pilot=False, audit=False, steps=1, progress=False)
    return sampler.variational


def test_a_count_that_q_has_settled_on_is_doubted_and_the_right_one_is_not():
    climbs = climbs_of(most=3)
    transport = climbs.distinct()
    bounds = torch.stack([found.elbo.max() for found in climbs.found])
    right = answered(climbs, transport, bounds + torch.lgamma(torch.tensor([2.0, 3.0, 4.0])))
    assert right.probabilities.idxmax() == "2" and right.ok, right.doubts
    assert right.kind == "Settled"
    parts = transport.base.components  # one source fitted, the others where training began
    parts.loc[1:], parts.tril[1:] = 0.0, torch.eye(climbs.target.dim).to(parts.tril)
    wrong = answered(climbs, transport, torch.tensor([0.0, -40.0, -40.0]))
    assert wrong.pareto_k < 0.7 and wrong.probabilities["1"] == pytest.approx(1)
    assert any(
        d.grave and "part of the posterior of '2' that q lacks" in str(d) for d in wrong.doubts
    )


def test_many_counts_are_grown_as_long_as_they_gain():
    target = trj.problems.gaussian_mixture_2d(most=70, **SOURCES)
    answer = trj.variational(target, seed=1, progress=False, draws=500)
    assert isinstance(answer.transport, LabelledComponents)
    assert answer.probabilities["2"] > 0.9 and answer.ok, answer.doubts
    assert answer.kind == "their evidence bounds"
    assert 2 < len(answer.models) < 20 and answer.models["probability"].sum() == pytest.approx(1)
    few = climbs_of(most=3, seed=5)
    flow, code = few.distinct(), torch.tensor([[2]])
    z = flow.reference.sample(
        (4000, flow.space.n_slots), torch.Generator().manual_seed(2), torch.float64
    )
    theta, log_q = flow.push(z, code.expand(4000, -1))
    log_w = (few.target.log_joint(code.expand(4000, -1), theta) - log_q)[log_q.isfinite()]
    gap = float(log_w.mean() - few.target.space.log_prior(code)[0]) - answer.models["elbo"]["2"]
    assert abs(gap) < 0.05  # two fits of one posterior


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")
@pytest.mark.parametrize("family", ["recommended", "mean-field"])
def test_evaluations_are_held_to(family):
    target = trj.problems.energy("U5")
    answer = trj.variational(target, family, seed=2, max_evaluations=20_000, progress=False)
    assert answer.cost["evaluations"] <= 1.05 * 20_000
