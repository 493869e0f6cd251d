"""Single models whose evidence is known, against integrals by other means."""

import math

import pytest
import torch
from torch.distributions import MultivariateNormal

import trjmcmc as trj
from trjmcmc.errors import TargetError
from trjmcmc.problems import curved_normal, spike_beside_slab


def likelihood(target, x):
    """Likelihoods of points of its one model."""
    code = torch.zeros(len(x), 1, dtype=torch.long)
    theta = target.unconstrain(next(iter(target.truth.probabilities)), {"x": x})
    return target.log_prior_and_likelihood(code, theta)[1].double().exp()


def test_published_evidences():
    assert spike_beside_slab().log_evidence == pytest.approx(-24.15593480605331, abs=1e-10)
    assert spike_beside_slab().spike_mass == pytest.approx(0.5000077444258325, abs=1e-10)
    for shear, exact in ((0.0, -14.480149273693915), (0.4, -14.599683294937872)):
        (found,) = curved_normal(shear=shear).truth.log_evidence.values()
        assert found == pytest.approx(exact, abs=1e-10)


def test_a_spike_and_a_slab_in_the_plane_by_a_lattice():
    target = spike_beside_slab(2).to(dtype=torch.float64)
    side = torch.linspace(-4, 8, 1202, dtype=torch.float64)[1:-1]  # the density is 0 at the ends
    x = torch.cartesian_prod(side, side)
    value, area = likelihood(target, x), (12 / 1201) ** 2
    assert math.log(float(value.sum()) * area / 144) == pytest.approx(target.log_evidence, abs=1e-4)
    mass = float((target.in_spike(x) * value).sum() / value.sum())
    assert mass == pytest.approx(target.spike_mass, abs=1e-4)


def test_a_straight_normal_is_conjugate():
    covariance = 0.01 * torch.eye(4).double() + 0.99
    mean = torch.tensor([3.0, 0.0, 0.0, 0.0]).double()
    exact = MultivariateNormal(mean, covariance + torch.eye(4).double()).log_prob(0 * mean)
    (found,) = curved_normal(4, shear=0.0).truth.log_evidence.values()
    assert found == pytest.approx(float(exact), abs=1e-10)


def test_a_curved_normal_in_the_plane_by_a_lattice():
    target = curved_normal(2, shear=0.4).to(dtype=torch.float64)
    ((model, exact),) = target.truth.log_evidence.items()
    first = torch.linspace(-4, 7, 400, dtype=torch.float64)
    beside = torch.linspace(-1.2, 1.2, 400, dtype=torch.float64)  # the ridge
    x, u = torch.cartesian_prod(first, beside).T
    x = torch.stack([x, u + 0.99 * (x - 3) + 0.4 * ((x - 3) ** 2 - 1)], 1)
    code = torch.zeros(len(x), 1, dtype=torch.long)
    found = target.log_joint(code, target.unconstrain(model, {"x": x})).logsumexp(0)
    area = (11 / 399) * (2.4 / 399)
    assert float(found) + math.log(area) == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize("target", [spike_beside_slab, curved_normal])
def test_default_runs_find_the_evidence(target, limit=5.0):
    target = target(3)
    result = trj.TRJSampler(target, seed=1).run(progress=False)
    ((model, exact),) = target.truth.log_evidence.items()
    row = result.evidence().loc[model]
    assert abs(row["log_evidence"] - exact) < limit * row["se"] < 0.2


def test_settings_out_of_range_are_refused():
    with pytest.raises(TargetError, match="expected two or more"):
        spike_beside_slab(1)
    with pytest.raises(TargetError, match="expected two or more and a number"):
        curved_normal(shear=math.inf)
