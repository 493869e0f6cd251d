"""Default runs over unknown numbers of components: starts by tempering, moves by measurement."""

import math
import time
import warnings

import pytest
import torch
from torch.distributions import Gamma, Normal, Uniform

import trjmcmc as trj
from tests.battery import limit
from tests.toys import PRIOR, exact_counts, seen_sum
from trjmcmc.errors import ConfigurationError, NonFiniteError
from trjmcmc.kernel import ComponentBirthDeath, ComponentWalk, Cycle, start
from trjmcmc.run.count import Tally
from trjmcmc.run.policy import Policy
from trjmcmc.run.policy_of_components import CountedPolicy
from trjmcmc.run.tempering import temper_chains
from trjmcmc.target.exchangeable import components_of
from trjmcmc.target.tempered import Tempered

CHAINS = 4000
RELATED = 10.0  # chains that share an ancestor count less; a generous bound on how much


def carried(target, generator, **settings):
    target = Tempered(target)
    code = target.space.sample_prior(CHAINS, generator)
    state = start(target, code, target.sample_prior(code, generator))
    kernel = Cycle([ComponentBirthDeath(target), ComponentWalk(target)])
    return temper_chains(target, state, kernel, generator, Tally(target), **settings)[1]


def test_chains_are_carried_to_near_the_posterior(generator):
    target = seen_sum()
    p = exact_counts()
    begun = time.monotonic()
    state = carried(target, generator)
    share = torch.bincount(state.code[:, 0], minlength=4) / CHAINS
    error = (p * (1 - p) * RELATED / CHAINS).sqrt()
    assert float(((share - p) / error).abs().max()) < limit(4)
    assert torch.allclose(state.log_joint, target.log_joint(state.code, state.theta))
    again = time.monotonic()
    carried(target, generator, deadline=again)  # no time at all: two powers, not one in many
    assert time.monotonic() - again < 0.7 * (again - begun)


def test_the_power_is_one_again_whatever_happened(generator):
    class Pressed(ComponentWalk):
        def step(self, state, generator):
            assert 0 < self.target.power < 1
            raise KeyboardInterrupt

    target = Tempered(seen_sum())
    code = target.space.sample_prior(8, generator)
    state = start(target, code, target.sample_prior(code, generator))
    with pytest.raises(KeyboardInterrupt):
        temper_chains(target, state, Pressed(target), generator, Tally(target))
    assert target.power == 1.0


def impossible_prior():
    """Most prior draws are impossible: no datum may be further than 3 from a component."""

    def log_likelihood(p, active):
        near = (active & (p["a"].abs() < 3)).any(-1)
        return torch.where(near, 0.0, -math.inf)

    return trj.Target(trj.Counts(3, of="a"), {"a": Normal(0.0, 30.0)}, log_likelihood)


def test_impossible_prior_draws_are_left_behind(generator):
    target = impossible_prior()
    code = target.space.sample_prior(CHAINS, generator)
    theta = target.sample_prior(code, generator)
    value = target.log_prior_and_likelihood(code, theta)[1]
    assert float((value == -math.inf).double().mean()) > 0.5
    state = carried(target, generator)
    assert bool(state.log_joint.isfinite().all())


def overlapping():
    return trj.problems.pulses(points=120, true=3, most=4, noise_sd=1.0, seed=2)


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")  # it is a short run
def test_whole_vectors_jump_and_time_is_held(clock):
    """Replicas jump too, where that is asked for however rarely they are accepted."""
    target, clock.call = overlapping(), 0.02
    begun, policy = clock.seconds, Policy(counted=CountedPolicy(accepted_normals=0.0))
    sampler = trj.TRJSampler(target, seed=1, policy=policy)
    result = sampler.run(max_seconds=20, progress=False)
    assert clock.seconds - begun < 22
    assert "normals" in result.report.acceptance
    assert result.report.plan.settings["components"]["births learned from"] > 100
    assert result.raw.n_draws > 10


@pytest.mark.whole
def test_a_run_of_so_many_draws_is_right(generator):
    result = trj.TRJSampler(seen_sum(), seed=3).run(draws=400, progress=False)
    table = result.counts(full=True).loc["a"]
    z = (table["probability"] - exact_counts().numpy()) / table["se"]
    assert float(z.abs().max()) < 5
    assert (table["se"] < 0.01).all()


@pytest.mark.whole
def test_replicas_renew_slow_chains_and_it_stays_right():
    policy = Policy(counted=CountedPolicy(patience=0.0))
    result = trj.TRJSampler(seen_sum(), seed=4, policy=policy).run(draws=400, progress=False)
    assert set(result.report.plan.weights) == {"ladder"}
    table = result.counts(full=True).loc["a"]
    z = (table["probability"] - exact_counts().numpy()) / table["se"]
    assert float(z.abs().max()) < 5


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.LimitWarning")  # so many there are
def test_two_kinds_come_out_as_their_evidences_say():
    """A datum is the sum of all of either kind, which are normal: so is it, given their numbers."""
    y, noise = 2.0, 0.7
    counts = trj.Counts(3, of="a") + trj.Counts(2, of="b")
    target = trj.Target(
        counts,
        {"a": Normal(0.0, 1.0), "b": Normal(1.0, 0.5)},
        trj.Additive(
            {"a": lambda p: p["a"][:, None], "b": lambda p: p["b"][:, None]},
            lambda total, p: Normal(total[:, 0], noise).log_prob(total.new_tensor(y)),
        ),
    )
    result = trj.TRJSampler(target, seed=5).run(draws=400, progress=False)
    code = target.space.enumerate()
    a, b = code.double().T
    sd = (noise**2 + a + 0.25 * b).sqrt()
    log_p = Normal(b, sd).log_prob(torch.tensor(y).double()) + target.space.log_prior(code)
    table = result.model_probabilities(full=True)
    exact = dict(zip(target.space.label(code), log_p.softmax(0).tolist(), strict=True))
    z = [(table.loc[m, "visits"] - p) / table.loc[m, "visits_se"] for m, p in exact.items()]
    assert max(map(abs, z)) < 5


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")  # it is a short run
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.LimitWarning")  # three are the most
def test_two_planets_are_found_without_a_word_of_them():
    """Twenty nats against one planet: as new users would, in a short run."""
    result = trj.TRJSampler(trj.problems.radial_velocity(), seed=1).run(
        max_seconds=60, progress=False
    )
    p = result.model_probabilities(full=True)["visits"]
    assert p["0"] + p["1"] < 0.02 and 0.5 < p["2"] < 0.85
    assert set(result.report.plan.weights) == {"ladder"}
    assert result.report.plan.settings["ladder"]["round trips"] > 0
    assert (abs(result.catalogue()["period_mean"] / 12.3 - 1) < 0.02).any()


@pytest.mark.whole
def test_an_order_constraint_changes_names_only():
    """Components in increasing order, k! times the density: not exchangeable, the same p(k)."""
    y = 2.0

    def likelihood(p, active):
        rises = torch.where(active[:, 1:], p["a"].diff(dim=1) > 0, True).all(1)
        total = torch.where(active, p["a"], 0.0).sum(-1)
        value = Normal(total, 0.7).log_prob(torch.tensor(y, dtype=total.dtype))
        return torch.where(rises, value + torch.lgamma(active.sum(1) + 1.0), -math.inf)

    target = trj.Target(
        trj.Counts(3, of="a", prior=PRIOR), {"a": Gamma(2.0, 1.0)}, likelihood, dtype=torch.float64
    )
    with pytest.raises(ConfigurationError, match="not exchangeable"):
        ComponentWalk(target)
    result = trj.TRJSampler(target, seed=4).run(max_seconds=6, progress=False)
    table = result.counts(full=True).loc["a"]
    z = (table["probability"] - exact_counts().numpy()) / table["se"]
    assert float(z.abs().max()) < 5


@pytest.mark.whole
@pytest.mark.parametrize(
    "counts",
    [
        trj.Counts(3, 3, of="a"),
        trj.Counts(1, of="a"),
        trj.Counts(2, of="a") + trj.Counts(0, of="b"),
    ],
)
def test_one_number_or_one_component(counts):
    def first(p):
        return next(iter(p.values()))[:, None]

    target = trj.Target(
        counts,
        {name: Normal(0.0, 1.0) for name in counts.of},
        trj.Additive(
            {kind.name: first for kind in counts.kinds} if len(counts.kinds) > 1 else first,
            lambda total, p: Normal(total[:, 0], 1.0).log_prob(total.new_ones(1)),
        ),
    )
    result = trj.TRJSampler(target, seed=1).run(draws=1000, chains=64, progress=False)
    assert result.counts(full=True)["probability"].sum() == pytest.approx(len(counts.kinds))


def test_a_likelihood_that_fails_is_named_and_leaves_the_target_whole():
    def combine(total, p):
        return torch.where(total[:, 0] > 1.0, math.nan, -total[:, 0])

    with pytest.raises(NonFiniteError, match="a="):
        target = trj.Target(
            trj.Counts(2, of="a"),
            {"a": Uniform(0.0, 1.001)},
            trj.Additive(lambda p: p["a"][:, None], combine),
        )
        trj.TRJSampler(target, seed=1).run(draws=100, progress=False)


def toy(counts, priors, likelihood=None):
    return trj.Target(counts, priors, likelihood or (lambda p, active: 0.0 * p["a"].sum(-1)))


@pytest.mark.whole
def test_what_births_of_one_cannot_sample_is_refused_and_run_otherwise():
    tied = toy(
        trj.Counts(3, of=("a", "b")),
        {"a": Normal(0.0, 1.0), "b": lambda p: Normal(p["a"].sum(1, keepdim=True), 1.0)},
    )
    with pytest.raises(ConfigurationError, match="depends on the others"):
        ComponentBirthDeath(tied)
    gap = toy(trj.Counts(2, of="a", prior=[0.5, 0.0, 0.5]), {"a": Normal(0.0, 1.0)})
    with pytest.raises(ConfigurationError, match="leaves out numbers"):
        ComponentBirthDeath(gap)
    weighed = toy(
        trj.Counts(3, of="a"),
        {"a": Normal(0.0, 1.0)},
        lambda p, active: (p["a"] * torch.tensor([1.0, 5.0, 9.0])[: active.shape[1]]).sum(-1),
    )
    with pytest.raises(ConfigurationError, match="not exchangeable"):
        ComponentBirthDeath(weighed)
    assert components_of(tied) == components_of(gap) == ()
    table = (
        trj.TRJSampler(gap, seed=1)
        .run(draws=200, chains=64, progress=False)
        .counts(full=True)
        .loc["a"]
    )
    assert abs(table.loc[0, "probability"] - 0.5) < 5 * table.loc[0, "se"] < 0.1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # it is a short run, and three the most
def test_a_fixed_number_is_sampled_as_any_one_model():
    target = trj.problems.pulses(points=120, true=3, most=3, noise_sd=1.0, seed=2)
    fixed = trj.Target(
        trj.Counts(3, 3, of=("amplitude", "centre", "width")),
        {
            "amplitude": Uniform(2.5, 3.5),
            "centre": Uniform(-1.0, 1.0),
            "width": Uniform(0.01, 0.21),
        },
        target.additive,
    )
    free = trj.TRJSampler(target, seed=1).run(max_seconds=8, progress=False)
    bound = trj.TRJSampler(fixed, seed=1).run(draws=200, progress=False)
    inside = free.raw.log_joint[free.raw.code[..., 0] == 3] + math.log(4)
    gap = float(bound.raw.log_joint.median() - inside.median())
    assert abs(gap) < 1.0


def test_a_dear_likelihood_does_not_outlast_its_time(clock):
    def combine(total, p):
        return Normal(total[:, 0], 1.0).log_prob(total.new_ones(1))

    target = trj.Target(
        trj.Counts(2, of="a"),
        {"a": Normal(0.0, 1.0)},
        trj.Additive(lambda p: p["a"][:, None], combine),
    )
    begun, clock.call = clock.seconds, 0.05
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trj.TRJSampler(target, seed=1).run(max_seconds=5, progress=False)
    assert clock.seconds - begun < 6
