"""Bijections onto supports: values and slopes with fewer operations than torch's, and no others."""

import pytest
import torch
from torch.distributions import (
    AffineTransform,
    Beta,
    ComposeTransform,
    Dirichlet,
    Gamma,
    HalfNormal,
    Independent,
    LogNormal,
    Normal,
    SigmoidTransform,
    TanhTransform,
    Uniform,
    biject_to,
    constraints,
)

from trjmcmc.target.support import (
    Unconstrained,
    bijection_onto,
    cast_to,
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


LOW, HIGH = torch.tensor([0.0, -2.0]), torch.tensor([1.0, 1e4])
TWO, MANY = torch.tensor([0.5, 2.0]), torch.tensor([1.0, 0.5, 3.0])
PRIORS = [
    Uniform(LOW, HIGH),
    Uniform(HIGH - 0.1, HIGH),
    Normal(LOW, HIGH),
    Gamma(TWO, torch.tensor(3.0)),
    Dirichlet(MANY),
    Dirichlet(torch.ones(40)),
    Beta(TWO, torch.tensor(3.0)),
    LogNormal(LOW, TWO),
    HalfNormal(TWO + 1),
]


@pytest.mark.parametrize("dist", PRIORS, ids=lambda dist: type(dist).__name__)
def test_densities_of_coordinates_are_those_of_torch(dist, generator):
    on_line = Unconstrained(dist, torch.float32)
    size = dist.mean.numel() - isinstance(dist, Dirichlet)
    u = torch.randn(100, size, generator=generator)
    value, found = on_line.with_density(u)
    theirs = bijection_onto(dist.support)
    slope = theirs.log_abs_det_jacobian(u.double(), theirs(u.double()))
    stated = dist.log_prob(theirs(u)).expand(found.shape) + slope
    assert torch.allclose(value, theirs(u), rtol=1e-5)
    assert torch.allclose(value, on_line.value(u)[0], rtol=1e-5)
    assert torch.allclose(found.double(), stated, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(found.double(), stated + 0.01, rtol=1e-4, atol=1e-4)  # the control


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dist", PRIORS, ids=lambda dist: type(dist).__name__)
def test_values_of_coordinates_within_reach_are_inside(dist, dtype, generator):
    on_line = Unconstrained(cast_to(dist, dtype, torch.device("cpu")), dtype)
    size = dist.mean.numel() - isinstance(dist, Dirichlet)
    reach = min(on_line.reach, 1e30)
    ends = torch.tensor([[-1.0], [1.0]]).expand(2, size)
    some = 2 * torch.rand(1000, size, generator=generator) - 1
    u = 0.9999 * reach * torch.cat([ends, some, some.sign()]).to(dtype)
    value = on_line.value(u)[0]
    assert bool(on_line.inside(u, value).all())
    if isinstance(dist, Uniform):  # the control: coordinates of ten times that size may not be
        assert not bool(on_line.inside(10 * u, on_line.value(10 * u)[0]).all())


def test_points_of_the_line_are_inside_where_they_are_finite():
    y = torch.tensor([0.0, -1e38, torch.inf, -torch.inf, torch.nan])
    for dist in (Normal(0.0, 1.0), Independent(Normal(torch.zeros(5), 1.0), 1)):
        inside = Unconstrained(dist, y.dtype).inside(y, y)
        assert inside.tolist() == [True, True, False, False, False]
