"""What moves learn of chains in warm-up."""

import torch

from trjmcmc.kernel.learning import RATE, TemperedCovariance


def points(n, sd, generator):
    return torch.randn(n, 2, generator=generator) @ torch.tensor([[1.0, 0.5], [0.0, 1.0]]) * sd


def test_replicas_at_each_power_have_their_own_covariance(generator):
    power = torch.tensor([1.0, 0.1]).repeat(2000)
    x = points(4000, 1.0, generator) * torch.where(power == 1, 1.0, 30.0)[:, None]
    spread = TemperedCovariance(torch.ones(2)).plus(x, power)
    step = spread.scaled(torch.randn(4000, 2, generator=generator), power)
    cold, hot = (torch.cov(step[power == p].T) for p in (1.0, 0.1))
    wanted = torch.tensor([[1.0, 0.5], [0.5, 1.25]])
    torch.testing.assert_close(cold, wanted, atol=0.25, rtol=0)
    torch.testing.assert_close(hot / 900, wanted, atol=0.25, rtol=0)


def test_it_forgets_what_was_and_stays_with_what_is(generator):
    spread, power = TemperedCovariance(torch.ones(2)), 1.0
    spread = spread.plus(points(500, 100.0, generator) + 1000, power)
    for _ in range(60):
        spread = spread.plus(points(500, 1.0, generator), power)
    assert (1 - RATE) ** 60 * 1000**2 < 2
    step = spread.scaled(torch.randn(2000, 2, generator=generator), power)
    torch.testing.assert_close(step.std(0), torch.tensor([1.5, 1.6]), atol=0.6, rtol=0)


def test_too_few_points_teach_nothing(generator):
    nothing = TemperedCovariance(torch.ones(2)).plus(torch.zeros(2, 2), 1.0)
    assert nothing.scaled(torch.ones(2, 2), 1.0) is None
    power = torch.tensor([1.0, 1.0, 1.0, 0.5])  # one replica at a half
    few = TemperedCovariance(torch.ones(2)).plus(torch.randn(4, 2, generator=generator), power)
    assert few.scaled(torch.ones(4, 2), power) is None
    known = TemperedCovariance(torch.ones(2)).plus(torch.randn(9, 2, generator=generator), 1.0)
    assert known.scaled(torch.ones(4, 2), power) is None  # other powers than were seen
