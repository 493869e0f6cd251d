"""Flows in whitened coordinates."""

import pytest
import torch

import trjmcmc as trj
from trjmcmc.errors import ConfigurationError, ShapeError
from trjmcmc.transport.whitened import Whitened


def random_tables(space, upper, dtype):
    g = torch.Generator().manual_seed(0)
    m, d = len(space.enumerate()), space.n_slots
    factor = 0.3 * torch.randn(m, d, d, generator=g, dtype=dtype)
    factor = factor.triu(1) if upper else factor.tril(-1)
    factor = factor + torch.diag_embed(0.5 + torch.rand(m, d, generator=g, dtype=dtype))
    return torch.randn(m, d, generator=g, dtype=dtype), factor


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_there_and_back_with_the_right_determinant(upper, dtype):
    space = trj.problems.variable_selection(3).space
    flow = trj.transport.CosmicFlow(space, layers=2, hidden=(8,), seed=1)
    for p in flow.parameters():
        torch.nn.init.normal_(p, std=0.1, generator=torch.Generator().manual_seed(2))
    made = Whitened(flow, *random_tables(space, upper, dtype)).to(dtype)
    code = space.enumerate().repeat(3, 1)
    z = torch.randn(
        len(code), space.n_slots, dtype=dtype, generator=torch.Generator().manual_seed(3)
    )
    with torch.no_grad():
        theta, ladj = made.from_reference(z, code)
        back, negative = made.to_reference(theta, code)
    tolerance = 2e-4 if dtype == torch.float32 else 1e-10
    assert torch.allclose(back, z, atol=tolerance) and torch.allclose(
        ladj, -negative, atol=tolerance
    )
    spare = ~space.active(code)
    assert torch.equal(theta[spare], z[spare])
    for row in range(0, len(code), 5):
        one = code[row : row + 1]
        jacobian = torch.autograd.functional.jacobian(
            lambda x, one=one: made.from_reference(x[None], one)[0][0], z[row]
        )
        assert torch.allclose(torch.linalg.slogdet(jacobian)[1], ladj[row], atol=10 * tolerance)


def test_what_it_refuses():
    space = trj.problems.sinh_arcsinh().space
    flow = trj.transport.CosmicFlow(space, layers=2, hidden=(4,))
    loc, factor = random_tables(space, False, torch.float32)
    with pytest.raises(ShapeError, match="loc"):
        Whitened(flow, loc[:1], factor)
    with pytest.raises(ShapeError, match="factor"):
        Whitened(flow, loc, factor[:, :1])
    flow.spares_pass = False
    with pytest.raises(ConfigurationError, match="spare"):
        Whitened(flow, loc, factor)
