"""Components in the places that they fit best: densities, draws and evidences."""

import math
from itertools import permutations

import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from trjmcmc.estimate.importance import log_mean_weight, log_weights
from trjmcmc.fit.climbs_by_model import ClimbsByModel
from trjmcmc.transport import Affine
from trjmcmc.transport.labelled_components import LabelledComponents


@pytest.fixture
def flow():
    space = trj.Target(
        trj.Counts(3, of=("a", "b")),
        {"a": Normal(0.0, 1.0), "b": Normal(0.0, 1.0)},
        lambda p, active: p["a"].sum(-1),
    ).space
    mean = torch.arange(3.0, dtype=torch.float64)[None, :, None].expand(4, 3, 2)
    loc = mean.transpose(1, 2).reshape(4, 6)
    base = Affine(space, loc, 0.7 * torch.eye(6, dtype=torch.float64).expand(4, 6, 6))
    return LabelledComponents(base, mean, torch.full_like(mean, 0.49))


def test_density_and_way_back_are_those_of_the_draws(flow, generator):
    code = torch.arange(4).repeat(200)[:, None]
    z = flow.reference.sample((800, 6), generator, torch.float64)
    theta, log_q = flow.push(z, code)
    here = log_q.isfinite()
    assert bool(here[code[:, 0] < 2].all()) and 0.2 < float(here.double().mean()) < 1
    assert torch.allclose(flow.log_prob(theta, code)[here], log_q[here])
    back, again = flow.pull(theta[here], code[here], generator)
    assert torch.allclose(again, log_q[here])
    there, _ = flow.push(back, code[here])
    assert torch.allclose(there, theta[here])


def test_labels_have_no_say(flow, generator):
    code, theta = torch.full((50, 1), 3), torch.randn(50, 6, generator=generator).double()
    said = flow.log_prob(theta, code)
    for order in permutations(range(3)):
        rows = [*order, *(3 + i for i in order)]
        assert torch.allclose(flow.log_prob(theta[:, rows], code), said)


def test_evidences_of_like_components_by_births(generator):
    """Against quadrature: points near two of three places, counts 0 to 2."""
    y = torch.tensor([-2.1, -1.9, -2.0, 2.2, 1.9, 2.1], dtype=torch.float64)

    def log_likelihood(p, active):
        gap = y - p["mu"].double()[..., None]
        each = torch.where(active[..., None], -0.5 * (gap / 0.5).square(), -math.inf)
        far = torch.full_like(each[:, :1], -20.0)
        return torch.cat([each, far], 1).logsumexp(1).sum(-1)

    target = trj.Target(trj.Counts(2, of="mu"), {"mu": Normal(0.0, 3.0)}, log_likelihood)
    target = target.to(dtype=torch.float64)
    flow = ClimbsByModel(target, target.space.enumerate(), generator).distinct()
    assert isinstance(flow, LabelledComponents)
    grid = torch.linspace(-8, 8, 801, dtype=torch.float64)
    pairs = torch.cartesian_prod(grid, grid)
    joint = target.log_joint(torch.full((len(pairs), 1), 2), pairs)
    exact = float(joint.double().logsumexp(0)) + 2 * math.log(0.02)
    log_w = log_weights(target, flow, torch.tensor([2]), 20_000, generator)
    found = log_mean_weight(log_w)
    assert abs(found.value - exact) < 5 * found.std_error + 1e-3
    assert float(log_w[log_w.isfinite()].mean()) > exact - 0.05  # one of the two labellings
