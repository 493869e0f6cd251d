"""Bijections onto supports: values and slopes with fewer operations than torch's, and no others."""

import pytest
import torch
from torch.distributions import (
    AffineTransform,
    Beta,
    ComposeTransform,
    Dirichlet,
    Gamma,
    LogNormal,
    Normal,
    SigmoidTransform,
    TanhTransform,
    Uniform,
    biject_to,
    constraints,
)

from trjmcmc.target.support import (
    bijection_onto,
    constant_of,
    interior_point,
    log_density_inside,
    with_slope,
)

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
    two, many = torch.tensor([0.5, 2.0]), torch.tensor([1.0, 0.5, 3.0])
    known = [Uniform(low, high), Normal(low, high), Gamma(two, torch.tensor(3.0)), Dirichlet(many)]
    for dist in (*known, Beta(two, torch.tensor(3.0)), LogNormal(low, two)):
        constant = constant_of(dist)
        assert (constant is not None) == (dist in known)  # others are asked each time
        u = torch.randn(100, 2, generator=generator)
        value = bijection_onto(dist.support)(u)
        found, stated = log_density_inside(dist, value, constant), dist.log_prob(value)
        assert torch.allclose(found.expand(stated.shape), stated, rtol=1e-5, atol=1e-5)
        if constant is not None:  # the control: it is the constant of this distribution
            assert not torch.allclose(log_density_inside(dist, value, constant + 0.01), stated)


def test_points_of_the_line_are_inside_where_they_are_finite():
    y = torch.tensor([0.0, -1e38, torch.inf, -torch.inf, torch.nan])
    for support in (constraints.real, constraints.independent(constraints.real, 1)):
        inside = interior_point(support, None, y, y)
        assert inside.tolist() == [True, True, False, False, False]
