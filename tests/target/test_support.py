"""Bijections onto supports: values and slopes with fewer operations than torch's, and no others."""

import pytest
import torch
from torch.distributions import (
    AffineTransform,
    Beta,
    ComposeTransform,
    SigmoidTransform,
    TanhTransform,
    Uniform,
    biject_to,
    constraints,
)

from trjmcmc.target.support import bijection_onto, log_density_inside, with_slope

INTERVALS = {
    "numbers": constraints.interval(-3, 4.5),
    "unit": constraints.unit_interval,
    "tensors": constraints.interval(torch.tensor([0.0, -1e3, 5.0]), torch.tensor([1e-3, 1e6, 6.0])),
}

CUT = 5e-9  # torch's softplus is a straight line from 20 on


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("support", INTERVALS.values(), ids=INTERVALS)
def test_slopes_onto_intervals_are_those_of_torch(support, dtype):
    u = torch.linspace(-80, 80, 999, dtype=dtype).reshape(-1, 3).requires_grad_()
    theirs = biject_to(support)
    expected = theirs.log_abs_det_jacobian(u, theirs(u))
    value, slope = with_slope(bijection_onto(support), u)
    assert torch.equal(value, theirs(u))
    tolerance = max(32 * torch.finfo(dtype).eps, CUT)
    assert torch.allclose(slope, expected, rtol=tolerance, atol=tolerance)
    (theirs_along,), (along,) = (torch.autograd.grad(x.sum(), u) for x in (expected, slope))
    assert torch.allclose(along, theirs_along, atol=tolerance)


@pytest.mark.parametrize(
    "transform",
    [
        ComposeTransform([TanhTransform(), AffineTransform(1.0, 2.0)]),
        ComposeTransform([SigmoidTransform(), TanhTransform()]),
        ComposeTransform([AffineTransform(1.0, 2.0), SigmoidTransform()]),
    ],
)
def test_other_bijections_have_slopes_of_their_own(transform):
    u = torch.linspace(-3, 3, 50, dtype=torch.float64)
    value, slope = with_slope(transform, u)
    assert torch.equal(slope, transform.log_abs_det_jacobian(u, value))


def test_densities_inside_the_support_are_those_of_the_distribution(generator):
    low, high = torch.tensor([0.0, -2.0]), torch.tensor([1.0, 1e4])
    for dist in (Uniform(low, high), Beta(torch.tensor([0.5, 2.0]), torch.tensor(3.0))):
        value = bijection_onto(dist.support)(torch.randn(100, 2, generator=generator))
        found = log_density_inside(dist, value).expand(value.shape)
        assert torch.equal(found, dist.log_prob(value))
