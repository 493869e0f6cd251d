"""Draws that maps learn from, and maps that learn from them."""

import pytest
import torch

import trjmcmc as trj
from trjmcmc.approximate import ApproximationPolicy, covering
from trjmcmc.approximate.covering import cover, nearly_exact
from trjmcmc.approximate.families import Start, map_of
from trjmcmc.draws import Pool
from trjmcmc.pilot.audit import Audit
from trjmcmc.pilot.generation import systematic

# four normals can't follow the wave: nothing but the weights makes their draws the posterior's
POLICY = ApproximationPolicy(first_round=8000, rounds=1, most_normals=4, fewest_effective=1000)


def wave(seed=0):
    """U5, whose z2 - sin(pi z1 / 2) is normal, sd .4, and z1 normal, variance 5; a pilot run."""
    target = trj.problems.energy("U5").to(dtype=torch.float64)
    g = torch.Generator().manual_seed(seed)
    audit = Audit(target, target.space.enumerate(), particles=150, moves=10, generator=g)
    audit.grow(0)
    return target, audit, g


def off(theta, effective):
    """How far the variances of the two normals of U5 are from exact, in standard errors."""
    normals = theta[:, 0], theta[:, 1] - torch.sin(torch.pi * theta[:, 0] / 2)
    gaps = [x.square().mean() / exact - 1 for x, exact in zip(normals, (5.0, 0.16), strict=True)]
    return float(torch.stack(gaps).abs().max() / (2 / effective) ** 0.5)


def test_draws_to_cover_are_nearly_the_posteriors(monkeypatch):
    target, audit, g = wave()
    pool, near = nearly_exact(target, audit, g, POLICY, 1e6)
    assert near and len(pool.theta) == 8000
    assert off(pool.theta, 3000) < 5  # the weights are worth 3800 to 4900 draws
    log_joint = target.log_joint(pool.code[:50], pool.theta[:50])
    torch.testing.assert_close(pool.log_joint[:50], log_joint)
    # control: without their weights; 87 errors or more with each of fifty seeds
    monkeypatch.setattr(covering, "systematic", lambda p, n, g: torch.arange(n)[None])
    plain, _ = nearly_exact(target, audit, g, POLICY, 1e6)
    assert off(plain.theta, 3000) > 50


@pytest.mark.parametrize(
    ("policy", "most"),
    [
        (ApproximationPolicy(first_round=4000, rounds=1, fewest_effective=1e6), 1e6),
        (ApproximationPolicy(first_round=4000), 3999),
        (ApproximationPolicy(first_round=4000, most_normal_coordinates=1), 1e6),
    ],
)
def test_else_maps_learn_from_the_pilot_run(policy, most):
    """Weights that are too uneven, too few evaluations, too many coordinates."""
    target, audit, g = wave()
    pool, near = nearly_exact(target, audit, g, policy, most)
    assert not near and len(pool.theta) == len(audit.pool().theta)


def test_copies_are_in_proportion_to_weights(generator):
    weight = torch.rand(500, generator=generator, dtype=torch.float64) ** 4
    weight = weight / weight.sum()
    copies = torch.bincount(systematic(weight[None], 500, generator)[0], minlength=500)
    assert int(copies.sum()) == 500
    assert float((copies - 500 * weight).abs().max()) < 1


def test_a_map_learns_in_single_precision_and_keeps_its_own(generator):
    """Far from 0, where single precision has no digit left of the parameters themselves."""
    z = torch.randn(4000, 2, generator=generator, dtype=torch.float64)
    bent = torch.stack([z[:, 0], (z[:, 0].square() - 1) / 2 + 0.4 * z[:, 1]], 1)
    far, code = torch.tensor([1e8, -1e8], dtype=torch.float64), torch.zeros(4000, 1).long()
    pool = Pool(code, bent + far, torch.zeros(4000, dtype=torch.float64))
    target = trj.problems.energy("U5").to(dtype=torch.float64)
    factor = torch.diag_embed(bent.std(0))[None]
    options = {"layers": 1, "blocks": 1, "hidden": 16}
    made = map_of("iaf", Start(target, far[None], factor, 0, POLICY), options)

    def density():
        with torch.no_grad():
            return float(made.log_prob(pool.theta, pool.code).mean())

    before, most = density(), float((bent[:, 1].std() / 0.4).log())
    cover(made, pool, generator, steps=100, batch=256, rate=0.01, patience=8, progress=False)
    assert before + 0.5 * most < density() < before + most + 0.1
    assert {p.dtype for p in made.state_dict().values() if p.is_floating_point()} == {far.dtype}
    assert float((pool.theta.float().double() - pool.theta).abs().max()) > 1  # what is avoided
