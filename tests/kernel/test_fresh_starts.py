"""Replicas that start afresh, and those that only seem to."""

import math

import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from trjmcmc.errors import ConfigurationError
from trjmcmc.kernel import (
    ComponentBirthDeath,
    ComponentWalk,
    Cycle,
    MixtureKernel,
    ParallelTempering,
    RandomWalk,
    SharedWalk,
    State,
    start,
)
from trjmcmc.kernel.components.redraw import SharedRedraw

POWERS = torch.tensor([1.0, 0.3, 0.0])


def births_and_walks(target):
    return Cycle([ComponentBirthDeath(target), ComponentWalk(target)])


def level_of_two_modes(times):
    """Components that hardly matter, and a level at plus or minus five that all share."""

    def log_likelihood(p, active):
        level = p["level"]
        modes = torch.logaddexp(*(Normal(at, 0.1).log_prob(level) for at in (-5.0, 5.0)))
        return times * modes - 0.1 * (p["x"] * active).square().sum(-1)

    return trj.Target(
        trj.Counts(3, of="x"),
        {"x": Normal(0.0, 1.0), "level": Normal(0.0, 5.0)},
        log_likelihood,
    )


def shared_moves(target):
    return Cycle([ComponentBirthDeath(target), ComponentWalk(target), SharedWalk(target)])


def begun_at(kernel, chains, level):
    target = kernel.target
    n = chains * kernel.rungs
    code, theta = torch.zeros(n, 1, dtype=torch.long), torch.zeros(n, target.dim)
    theta[:, -1] = level
    whole = State(code, theta, theta[:, 0])
    return kernel.with_replicas(whole, torch.arange(n) // kernel.rungs)


def test_replicas_that_lose_components_but_keep_what_all_share_have_not_started_afresh(generator):
    """So narrow is either mode that no draw of the level from the prior is taken."""
    target = level_of_two_modes(1e6)
    kernel = ParallelTempering(target, shared_moves, torch.tensor([1.0, 0.9, 0.8]))
    state, known = begun_at(kernel, 40, 5.0), torch.arange(40)
    for _ in range(60):
        state, _ = kernel.step(state, generator)
    assert (kernel.ancestors(state, known) >= 0).float().mean() > 0.9
    assert (state.theta[:, -1] > 0).float().mean() > 0.9


@pytest.mark.whole
def test_at_low_powers_what_all_share_is_drawn_from_the_prior(generator):
    """The chains find both modes in their shares, and are told to have started afresh."""
    powers = torch.cat([torch.logspace(0, -2.5, 9), torch.full((1,), 1e-3)])
    kernel = ParallelTempering(level_of_two_modes(10.0), shared_moves, powers)
    state, known = begun_at(kernel, 200, 5.0), torch.arange(200)
    for _ in range(400):
        state, _ = kernel.step(state, generator)
    fresh = kernel.ancestors(state, known) < 0
    assert fresh.float().mean() > 0.5
    z = (float((state.theta[fresh, -1] > 0).double().mean()) - 0.5) * 2 * float(fresh.sum()) ** 0.5
    assert abs(z) < 4.5
    whole = kernel.replicas(state)
    kernel.target.temper(powers.repeat(200))
    log_joint = kernel.target.log_joint(whole.code, whole.theta)
    kernel.target.temper(1.0)
    torch.testing.assert_close(whole.log_joint, log_joint, atol=1e-2, rtol=1e-4)


def test_replicas_know_the_draws_that_they_were_given(generator):
    target = trj.problems.pulses(points=40)
    kernel = ParallelTempering(target, ComponentWalk, torch.tensor([1.0, 1 - 1e-6]))
    code = torch.full((4, 1), 3)
    whole = start(target, code, target.sample_prior(code, generator))
    given = torch.tensor([70, 30, 50, 30])  # two chains, and a replica of each
    state = kernel.with_replicas(whole, given)
    known = torch.tensor([70, 50])
    assert kernel.ancestors(state, known).tolist() == [2, 1]  # places among 30, 50, 70
    state, _ = kernel.step(state, generator)  # so near are the powers that they trade places
    assert kernel.ancestors(state, known).tolist() == [0, 0]


def test_a_ladder_that_nothing_climbs_has_no_evidence(generator):
    """A needle that no replica is near: what is seen of the likelihood is the slab around it."""

    def log_likelihood(p):
        return torch.where(p["x"].abs() < 1e-6, 1e4, 0.0)

    target = trj.Target([trj.Model("m", {"x": Normal(0.0, 1.0)}, log_likelihood)])
    kernel = ParallelTempering(target, RandomWalk, torch.tensor([1.0, 0.5, 0.0]))
    state = start(target, torch.zeros(50, 1, dtype=torch.long), torch.zeros(50, 1))
    for _ in range(50):
        state, _ = kernel.step(state, generator)
    assert not kernel.round_trips(state).any()
    assert math.isnan(kernel.log_evidence(state)[0]) and "log evidence" not in kernel.seen(state)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_draws_of_the_prior_without_a_likelihood_are_not_taken(bad, generator):
    def log_likelihood(p):
        return torch.where(p["x"] > 2, bad, -p["x"].square())

    target = trj.Target([trj.Model("m", {"x": Normal(0.0, 1.0)}, log_likelihood)])
    kernel = ParallelTempering(target, RandomWalk, torch.tensor([1.0, 0.0]))
    state = start(target, torch.zeros(20, 1, dtype=torch.long), -torch.ones(20, 1))
    for _ in range(20):
        state, _ = kernel.step(state, generator)
        whole = kernel.replicas(state)
        assert (whole.theta <= 2).all() and whole.log_joint.isfinite().all()


@pytest.mark.parametrize("compose", [Cycle, MixtureKernel])
def test_no_kernel_is_put_beside_a_ladder(compose):
    target = trj.problems.pulses(points=40)
    ladder = ParallelTempering(target, births_and_walks, POWERS)
    with pytest.raises(ConfigurationError, match="put the others among its moves"):
        compose([ladder, ComponentWalk(target)])
    compose([ladder])


def test_an_interrupted_step_leaves_the_target_at_power_one(generator):
    target = trj.problems.pulses(points=40)
    kernel = ParallelTempering(target, births_and_walks, POWERS)
    code = torch.ones(2, 1, dtype=torch.long)
    state = start(target, code, target.sample_prior(code, generator))

    def interrupted(state, generator):
        raise KeyboardInterrupt

    kernel.kernel.step = interrupted
    with pytest.raises(KeyboardInterrupt):
        kernel.step(state, generator)
    again = kernel.target.log_joint(state.code, state.theta)
    torch.testing.assert_close(again, target.log_joint(state.code, state.theta))


class Slanted(SharedRedraw):
    """A negative control: draws of the normals are taken for draws of the prior."""

    def _log_density(self, code, theta, log_prior):
        return (log_prior - self.target.space.log_prior(code)).double()


POWER = 0.5


def level_of_a_datum():
    return trj.Target(
        trj.Counts(3, of="x"),
        {"x": Normal(0.0, 1.0), "level": Normal(0.0, 3.0)},
        lambda p, active: Normal(p["level"], 1.0).log_prob(torch.tensor(2.5)),
    )


def redrawn_scores(make, generator, learn=True, n=4000):
    """z scores of mean and variance of exact draws of the level, redrawn five times."""
    precision = 1 / 9 + POWER
    mean, sd = POWER * 2.5 / precision, precision**-0.5
    target = level_of_a_datum()
    redraw, code = make(target), torch.zeros(n, 1, dtype=torch.long)
    theta = torch.zeros(n, target.dim)
    theta[:, -1] = mean + sd * torch.randn(n, generator=generator)
    if learn:  # of chains that are elsewhere
        elsewhere = theta - 1.5
        for _ in range(16):
            redraw = redraw.learned(elsewhere[:100], torch.arange(100), generator)
        assert redraw.normals is not None
    before = theta
    for _ in range(5):
        found = redraw(code, theta, torch.full((n,), POWER), generator)
        theta = found.theta
        prior, likelihood = target.log_prior_and_likelihood(code, theta)
        torch.testing.assert_close(found.log_prior, prior)
        torch.testing.assert_close(found.log_likelihood, likelihood)
    assert float((theta != before).any(1).float().mean()) > 0.3
    z = (theta[:, -1].double() - mean) / sd
    return abs(float(z.mean())) * n**0.5, abs(float(z.square().mean()) - 1) * (n / 2) ** 0.5


@pytest.mark.parametrize("learn", [False, True])
def test_draws_of_what_all_share_leave_the_target_as_it_is(learn, generator):
    assert max(redrawn_scores(SharedRedraw, generator, learn)) < 4.5


def test_draws_whose_density_is_wrong_are_caught(generator):
    assert max(redrawn_scores(Slanted, generator)) > 6


def test_normals_are_not_fitted_to_the_offspring_of_few_starts(generator):
    target = level_of_a_datum()
    redraw, theta = SharedRedraw(target), torch.zeros(100, target.dim)
    theta[:, -1] = torch.randn(100, generator=generator)
    for _ in range(16):
        redraw = redraw.learned(theta, torch.arange(100) % 19, generator)
    assert redraw.normals is None
    assert not SharedRedraw(trj.problems.pulses(points=40))  # which share nothing
