"""Steps of Stein variational gradient descent."""

import pytest
import torch

from trjmcmc.errors import ConfigurationError
from trjmcmc.fit.stein import SquaredExponential, stein_direction


def test_the_direction_is_that_of_the_source(generator):
    """By a loop over pairs; without the repulsion it is another."""
    x = torch.randn(4, 3, generator=generator)
    g = torch.randn(4, 3, generator=generator)
    kernel = SquaredExponential(1.7)
    (found,) = stein_direction([x], [g], kernel)
    slow, pull = torch.zeros(4, 3), torch.zeros(4, 3)
    for i in range(4):
        for m in range(4):
            y = x[m].clone().requires_grad_()
            value = (-(y - x[i]).square().sum() / 1.7).exp()
            (slope,) = torch.autograd.grad(value, y)
            slow[i] += (value.detach() * g[m] + slope) / 4
            pull[i] += value.detach() * g[m] / 4
    torch.testing.assert_close(found, slow)
    assert not torch.allclose(found, pull, atol=1e-2)


def test_blocks_have_kernels_of_their_own(generator):
    a, b = (torch.randn(5, n, generator=generator) for n in (2, 3))
    zero = [torch.zeros_like(a), torch.zeros_like(b)]
    both = stein_direction([a, b], zero, SquaredExponential((1.0, 3.0)))
    (alone,) = stein_direction([b], zero[1:], SquaredExponential(3.0))
    torch.testing.assert_close(both[1], alone)


@pytest.mark.parametrize("bad", [0.0, (1.0, -1.0)])
def test_bandwidths_are_positive(bad):
    with pytest.raises(ConfigurationError, match="bandwidth > 0"):
        SquaredExponential(bad)
