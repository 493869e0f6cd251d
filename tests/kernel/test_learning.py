"""What moves learn of chains in warm-up."""

import torch

from trjmcmc.kernel.learning import RATE, RecentCovariance


def points(n, sd, generator):
    return torch.randn(n, 2, generator=generator) @ torch.tensor([[1.0, 0.5], [0.0, 1.0]]) * sd


def test_steps_have_the_covariance_of_the_chains(generator):
    spread = RecentCovariance(torch.ones(2)).plus(points(2000, 1.0, generator))
    step = spread.scaled(torch.randn(2000, 2, generator=generator))
    wanted = torch.tensor([[1.0, 0.5], [0.5, 1.25]])
    torch.testing.assert_close(torch.cov(step.T), wanted, atol=0.25, rtol=0)


def test_it_forgets_what_was_and_stays_with_what_is(generator):
    spread = RecentCovariance(torch.ones(2))
    spread = spread.plus(points(500, 100.0, generator) + 1000)
    for _ in range(60):
        spread = spread.plus(points(500, 1.0, generator))
    assert (1 - RATE) ** 60 * 1000**2 < 2
    step = spread.scaled(torch.randn(2000, 2, generator=generator))
    torch.testing.assert_close(step.std(0), torch.tensor([1.5, 1.6]), atol=0.6, rtol=0)


def test_too_few_points_teach_nothing():
    nothing = RecentCovariance(torch.ones(2)).plus(torch.zeros(2, 2))
    assert nothing.scaled(torch.ones(2, 2)) is None


def test_a_few_points_far_off_do_not_count(generator):
    many = torch.cat([points(500, 1.0, generator), 300 + points(8, 1.0, generator)])
    step = (
        RecentCovariance(torch.ones(2)).plus(many).scaled(torch.randn(2000, 2, generator=generator))
    )
    torch.testing.assert_close(step.std(0), torch.tensor([1.0, 1.25**0.5]), atol=0.2, rtol=0)
    half = torch.cat([points(500, 1.0, generator), 300 + points(500, 1.0, generator)])
    step = (
        RecentCovariance(torch.ones(2)).plus(half).scaled(torch.randn(2000, 2, generator=generator))
    )
    assert float(step.std(0).min()) > 100  # as many as the others are not few
