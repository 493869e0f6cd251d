"""Path gradients of reverse KL: unbiased, and without noise where the map fits."""

import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from trjmcmc.errors import ConfigurationError
from trjmcmc.fit import ReverseKL
from trjmcmc.fit.reverse import reverse_kl


def normal_target():
    prior = Normal(torch.zeros(2, dtype=torch.float64), 1.0)
    return trj.Target(
        [trj.Model("m", {"x": prior}, lambda p: -0.5 * (p["x"] - 1.0).square().sum(-1))]
    ).to(dtype=torch.float64)


def gradient(target, flow, n, by_path, seed):
    z = torch.randn(n, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    code = target.space.enumerate().expand(n, -1)
    loss = reverse_kl(target, flow, code, z, by_path=by_path).value.mean()
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(flow.parameters()))])


def affine(target, loc, scale):
    eye = torch.eye(2, dtype=torch.float64)[None]
    return trj.transport.Affine(
        target.space, torch.full((1, 2), loc, dtype=torch.float64), scale * eye
    )


def test_no_noise_at_the_optimum():
    target = normal_target()
    best = affine(target, 0.5, 0.5**0.5)
    assert gradient(target, best, 64, True, 0).abs().max() < 1e-12
    assert gradient(target, best, 64, False, 0).abs().max() > 1e-3  # the total one has some


def test_both_gradients_have_one_mean():
    target = normal_target()
    flow = affine(target, 0.0, 1.3)
    path, total = (
        torch.stack([gradient(target, flow, 500, by, seed) for seed in range(60)])
        for by in (True, False)
    )
    error = torch.hypot(path.std(0), total.std(0)) / 60**0.5
    used = error > 0
    assert ((path.mean(0) - total.mean(0)).abs()[used] < 5 * error[used] + 1e-9).all()
    assert path.mean(0).abs().max() > 0.1  # there is something to agree on


def test_the_value_is_the_same():
    target = normal_target()
    flow = affine(target, 0.2, 0.8)
    z = torch.randn(9, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    code = target.space.enumerate().expand(9, -1)
    one, other = (reverse_kl(target, flow, code, z, by_path=by).value for by in (True, False))
    assert torch.allclose(one, other)


def test_an_unknown_gradient():
    with pytest.raises(ConfigurationError, match="gradient"):
        ReverseKL(normal_target(), gradient="steep")
