"""Replicas at powers of the likelihood: exact at each, however they travel."""

import math
import warnings

import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from tests.battery import Case, is_caught, stays_exact
from trjmcmc.errors import ConfigurationError
from trjmcmc.kernel import (
    ComponentBirthDeath,
    ComponentWalk,
    Cycle,
    Fixed,
    ParallelTempering,
    RandomWalk,
    State,
    saturated_switch,
    start,
)
from trjmcmc.kernel.tempering import spaced

POWERS = torch.tensor([1.0, 0.4, 0.1, 0.0], dtype=torch.float64)
Y, SD = 2.5, 2.0  # the datum, and the spread of the prior of its mean


def conjugate():
    """Is a datum's mean zero? The answer is a formula at every power of the likelihood."""

    def log_likelihood(p):
        return Normal(p["x"], 1.0).log_prob(torch.tensor(Y))

    none = Normal(0.0, 1.0).log_prob(torch.tensor(Y))
    free = trj.Model("free", {"x": Normal(0.0, SD)}, log_likelihood)
    return trj.Target([trj.Model("zero", {}, lambda p: none), free])


def exact(powers):
    """p(free), mean and standard deviation of its parameter at some powers."""
    gain = 1 + powers * SD**2
    log_odds = -0.5 * gain.log() - powers * Y**2 / (2 * gain) + powers * Y**2 / 2
    return log_odds.sigmoid(), powers * Y * SD**2 / gain, SD / gain.sqrt()


class OneTooMany(ParallelTempering):
    """A negative control: neighbours trade by the powers of the pair above."""

    def _traded(self, whole, travel, generator):
        powers, self.powers = self.powers, self.powers**0.5
        try:
            return super()._traded(whole, travel, generator)
        finally:
            self.powers = powers


class TooWide(ParallelTempering):
    """A negative control: what starts afresh at power 0 is wider than the prior."""

    def _fresh(self, whole, travel, generator):
        whole, travel = super()._fresh(whole, travel, generator)
        theta = whole.theta.unflatten(0, (-1, self.rungs)).clone()
        theta[:, -1] *= 3
        theta = theta.flatten(0, 1)
        log_joint = self.target.log_joint(whole.code, theta)
        return whole._replace(theta=theta, log_joint=log_joint), travel


def replicas(kernel, n, generator):
    """A state of exact draws, the replicas at their powers too."""
    powers = kernel.powers.repeat(n)
    p, mean, sd = exact(powers)
    free = torch.rand(len(p), generator=generator).double() < p
    x = mean + sd * torch.randn(len(p), generator=generator).double()
    theta = torch.where(free, x, 0.0).float()[:, None]
    return kernel.with_replicas(State(free.long()[:, None], theta, theta[:, 0]))


def scores(state):
    """z scores at power 1."""
    p, mean, sd = (float(x) for x in exact(torch.tensor(1.0).double()))
    free, n = state.code[:, 0] == 1, len(state.code)
    x = (state.theta[free, 0] - mean) / sd
    z = [(float(free.double().mean()) - p) / math.sqrt(p * (1 - p) / n)]
    z += [float(x.mean()) * len(x) ** 0.5, (float(x.square().mean()) - 1) * (len(x) / 2) ** 0.5]
    return torch.tensor(z)


def ladder(make=ParallelTempering, powers=POWERS):
    target = conjugate()

    def moves(tempered):
        switch = saturated_switch(tempered, Fixed(target.space), scale=1.0)
        return Cycle([switch, RandomWalk(tempered)])

    kernel = make(target, moves, powers)
    return kernel, Case(target, lambda n, g: replicas(kernel, n, g), scores)


def test_replicas_leave_the_target_as_it_is(generator):
    kernel, case = ladder()
    stays_exact(kernel, case, generator, steps=4)


def test_a_ratio_of_other_powers_is_caught(generator):
    kernel, case = ladder(OneTooMany)
    is_caught(kernel, case, generator, steps=4)


def test_draws_of_another_prior_at_the_last_rung_are_caught(generator):
    kernel, case = ladder(TooWide, torch.tensor([1.0, 0.0]))
    is_caught(kernel, case, generator, steps=6)


def exact_log_evidence():
    gain = 1 + SD**2
    log_odds = -0.5 * math.log(gain) + Y**2 / 2 * (1 - 1 / gain)
    none = float(Normal(0.0, 1.0).log_prob(torch.tensor(Y)))
    return none + math.log(0.5 + 0.5 * math.exp(log_odds))


def test_stepping_stones_tell_the_evidence(generator):
    kernel, case = ladder()
    state = case.draw(400, generator)
    assert math.isnan(kernel.log_evidence(state)[0])
    for _ in range(50):
        state, _ = kernel.step(state, generator)
    value, error = kernel.log_evidence(state)
    assert 0 < error < 0.05
    assert abs(value - exact_log_evidence()) < 5 * error
    assert kernel.seen(state)["log evidence"].startswith(f"{value:.5g} ±")
    _, learning, _ = kernel.adapt(state, generator)  # powers may change: nothing is known yet
    assert "log evidence" not in kernel.seen(learning)
    far = torch.tensor([1.0, 0.4])  # not down to the prior
    assert math.isnan(ParallelTempering(case.target, RandomWalk, far).log_evidence(state)[0])


def test_stepping_stones_of_other_powers_are_caught(generator):
    kernel, case = ladder(OneTooMany)
    state = case.draw(400, generator)
    for _ in range(50):
        state, _ = kernel.step(state, generator)
    value, error = kernel.log_evidence(state)
    assert abs(value - exact_log_evidence()) > 10 * error


def test_replicas_start_afresh_without_components_and_at_power_zero(generator):
    target = trj.problems.pulses(points=40)
    near = ParallelTempering(target, ComponentWalk, torch.tensor([1.0, 1 - 1e-6]))
    code = torch.tensor([[3], [0], [3], [3]])  # the second replica of the first chain
    whole = start(target, code, target.sample_prior(code, generator))
    state = near.with_replicas(whole)
    known = torch.tensor([7, 8])
    assert near.ancestors(state, known).tolist() == [7, 8]
    state, _ = near.step(state, generator)  # so near are the powers that they trade places
    assert (near.ancestors(state, known) < 0).tolist() == [True, False]
    assert near.round_trips(state).tolist() == [1, 0]
    drawn = ParallelTempering(target, ComponentWalk, torch.tensor([1.0, 0.0]))
    state = drawn.with_replicas(whole)
    before = drawn.replicas(state).theta[1::2]
    state, _ = drawn.step(state, generator)
    assert (drawn.replicas(state).theta[1::2] != before).any(1).all()


def test_a_chain_that_has_no_replicas_begins_with_copies_and_ends_right(generator):
    kernel, case = ladder()
    state = start(case.target, torch.zeros(4000, 1, dtype=torch.long), torch.zeros(4000, 1))
    assert (kernel.replicas(state).code == 0).all()
    for _ in range(60):
        state, _ = kernel.step(state, generator)
    assert scores(state).abs().max() < 5
    assert kernel.round_trips(state).min() > 0


def births_and_walks(target):
    return Cycle([ComponentBirthDeath(target), ComponentWalk(target)])


def test_a_step_is_a_function_of_its_arguments(generator):
    kernel, case = ladder()
    state = case.draw(50, generator)
    one, _ = kernel.step(state, torch.Generator().manual_seed(5))
    kernel.step(state, torch.Generator().manual_seed(6))
    two, _ = kernel.step(state, torch.Generator().manual_seed(5))
    assert (one.theta == two.theta).all()
    some = State(*(x[:20] for x in state[:3]), state.memo.rows(slice(20)))
    assert len(kernel.step(some, generator)[0].code) == 20


def test_sums_over_components_travel_with_their_replicas(generator):
    target = trj.problems.pulses(points=40)
    kernel = ParallelTempering(target, births_and_walks, POWERS)
    state = start(target, target.space.sample_prior(30, generator), torch.zeros(30, target.dim))
    state = start(target, state.code, target.sample_prior(state.code, generator))
    for _ in range(30):
        kernel, state, infos = kernel.adapt(state, generator)
    assert all(len(info.accepted) == 30 for info in infos)
    torch.testing.assert_close(
        state.log_joint, target.log_joint(state.code, state.theta), atol=0.05, rtol=1e-4
    )
    whole = kernel.replicas(state)
    tempered = kernel.target
    (total,) = whole.recall(tempered)
    torch.testing.assert_close(total, target.total(whole.code, whole.theta), atol=1e-3, rtol=1e-3)
    tempered.temper(kernel.powers.float().repeat(30))
    fresh = tempered.log_joint(whole.code, whole.theta)
    torch.testing.assert_close(whole.log_joint, fresh, atol=0.05, rtol=1e-4)


def test_warm_up_spaces_the_powers_so_that_neighbours_reject_alike(generator):
    kernel, _ = ladder()
    kernel.powers = torch.tensor([1.0, 0.99, 0.98, 0.0], dtype=torch.float64)
    state = replicas(kernel, 500, generator)
    for _ in range(150):
        kernel, state, _ = kernel.adapt(state, generator)
    rejected = kernel._rejected / kernel._offered
    assert rejected.max() < 2 * rejected.min() and kernel.adapted()["rungs"] == 4
    assert kernel.powers[0] == 1 and kernel.powers[-1] == 0
    for _ in range(20):
        state, _ = kernel.frozen().step(state, generator)
    assert scores(state).abs().max() < 5


def test_powers_of_many_rungs_come_from_few():
    powers = spaced(POWERS, torch.tensor([0.3, 0.3, 0.3]), 7)
    assert len(powers) == 7 and (powers[1:] < powers[:-1]).all()
    torch.testing.assert_close(powers[[0, 2, 4, 6]], POWERS)


@pytest.mark.parametrize("powers", [[1.0], [0.9, 0.0], [1.0, 0.5, 0.5], [1.0, -0.1]])
def test_powers_that_make_no_ladder_are_refused(powers):
    with pytest.raises(ConfigurationError, match="expected two or more that fall from 1"):
        ParallelTempering(conjugate(), RandomWalk, torch.tensor(powers))


@pytest.mark.slow
def test_two_modes_far_apart_in_twenty_dimensions_have_their_shares(generator):
    """A tenth of the prior's spread each and 20 of these apart; no walk crosses at power 1."""
    at = torch.tensor([1.0, -1.0])

    def log_likelihood(p):
        each = Normal(at[:, None, None], 0.1).log_prob(p["x"]).sum(-1)
        return torch.logaddexp(each[0] + math.log(0.8), each[1] + math.log(0.2))

    prior = Normal(torch.zeros(20), 1.0)
    target = trj.Target([trj.Model("m", {"x": prior}, log_likelihood)])
    powers = torch.cat([torch.logspace(0, -3, 19, dtype=torch.float64), torch.zeros(1)])

    def moves(tempered):
        return Cycle([(RandomWalk(tempered, lengths=(0.02, 0.6)), 10)])

    kernel = ParallelTempering(target, moves, powers)
    code = torch.zeros(64, 1, dtype=torch.long)
    state = start(target, code, target.sample_prior(code, generator))
    with torch.no_grad():
        for _ in range(1500):
            kernel, state, _ = kernel.adapt(state, generator)
        kernel, shares = kernel.frozen(), []
        trips = kernel.round_trips(state)
        for _ in range(3000):
            state, _ = kernel.step(state, generator)
            shares.append((state.theta[:, 0] > 0).double())
    share = torch.stack(shares).mean(0)
    error = float(share.std()) / 8
    assert error < 0.02 and abs(float(share.mean()) - 0.8) < 4.5 * error
    assert int((kernel.round_trips(state) - trips).sum()) > 500


@pytest.mark.slow
def test_a_spike_in_a_slab_of_ten_dimensions_has_its_share(generator):
    """A phase transition: at lower powers there is nothing but the slab, four times as wide."""
    spike, wide, weight = 0.25, 1.0, 0.05

    def either(x):
        narrow, broad = (Normal(0.0, sd).log_prob(x).sum(-1) for sd in (spike, wide))
        return narrow + math.log(weight), broad + math.log(1 - weight)

    def log_likelihood(p):
        return torch.logaddexp(*either(p["x"]))

    target = trj.Target([trj.Model("m", {"x": Normal(torch.zeros(10), 1.0)}, log_likelihood)])
    mass = [
        w * (1 + sd**2) ** -5.0 for sd, w in zip((spike, wide), (weight, 1 - weight), strict=True)
    ]
    exact, evidence = mass[0] / sum(mass), math.log(sum(mass)) - 5 * math.log(2 * math.pi)
    powers = torch.cat([torch.logspace(0, -2, 11, dtype=torch.float64), torch.zeros(1)])

    def moves(tempered):
        return Cycle([(RandomWalk(tempered, lengths=(0.01, 1.0)), 10)])

    kernel = ParallelTempering(target, moves, powers)
    code = torch.zeros(64, 1, dtype=torch.long)
    state = start(target, code, target.sample_prior(code, generator))
    with torch.no_grad():
        for _ in range(800):
            kernel, state, _ = kernel.adapt(state, generator)
        kernel, shares = kernel.frozen(), []
        for _ in range(2500):
            state, _ = kernel.step(state, generator)
            narrow, broad = either(state.theta.double())
            shares.append((narrow - broad).sigmoid())
    share = torch.stack(shares).mean(0)
    error = float(share.std()) / 8
    assert error < 0.03 and abs(float(share.mean()) - exact) < 4.5 * error
    value, se = kernel.log_evidence(state)
    assert se < 0.1 and abs(value - evidence) < 4.5 * se


@pytest.mark.whole
def test_a_run_samples_by_a_ladder_of_its_own():
    """It is told of it like of any other kernel."""
    powers = torch.tensor([1.0, 0.4, 0.15, 0.05, 0.02, 0.008, 0.0])

    def kernel(target, transport):
        return ParallelTempering(target, births_and_walks, powers)

    sampler = trj.TRJSampler(trj.problems.pulses(points=100), kernel=kernel, seed=1)
    with warnings.catch_warnings():  # of so few draws, and of maps that were never trained
        warnings.simplefilter("ignore", trj.errors.TRJWarning)
        result = sampler.run(draws=100, chains=16, warmup=50, fit=False, progress=False)
    settings = result.report.plan.settings["tempering"]
    assert result.raw.n_chains == 16 and settings["rungs"] == 7
    assert 0 < settings["neighbours reject"] < 0.9
