"""Unknown numbers of components: one component at a time, learned births, sums."""

import math

import pytest
import torch
from torch.distributions import Gamma, LogNormal, Normal, Uniform

import trjmcmc as trj
from tests import cases, toys
from tests.battery import is_caught, limit, stays_exact
from tests.cases import frequencies, learned, learned_split
from tests.kernels import COMPONENT_KERNELS
from trjmcmc.errors import ConfigurationError, ShapeError, TargetError
from trjmcmc.kernel import (
    ComponentBirthDeath,
    ComponentSplitMerge,
    ComponentWalk,
    Cycle,
    start,
)
from trjmcmc.problems.mixtures import GALAXIES
from trjmcmc.target.exchangeable import Components

N, SPLITS = 40_000, 160_000  # chains; of splits, whose wrong ratio shows least

OF_ONE_KIND = ("births from the prior", "learned births", "learned splits")


@pytest.mark.whole
@pytest.mark.parametrize("additive", [True, False], ids=["sums", "whole"])
@pytest.mark.parametrize("name", COMPONENT_KERNELS)
def test_where_data_say_nothing_the_prior_stays(name, additive, generator):
    """k, and every parameter: marginals of all components, and of what they share."""
    case = cases.silent_components(additive)
    seen = stays_exact(COMPONENT_KERNELS[name](case.target), case, generator)
    assert float(seen.infos[0].accepted.double().mean()) > 0.1


def test_merges_of_components_as_near_to_each_other_are_not_forced(generator):
    """Far from zero, distances tie by rounding; 40 nats speak for three components."""
    target = trj.Target(
        trj.Counts(3, of="a"),
        {"a": Normal(1e5, 1.0)},
        lambda p, active: 40.0 * (active.sum(-1) - 3.0) + 0.0 * p["a"].sum(-1),
    )
    code = torch.full((N, 1), 3)
    state, ties = start(target, code, target.sample_prior(code, generator)), 0
    kernel = ComponentSplitMerge(target)
    with torch.no_grad():
        for _ in range(20):
            state, (info,) = kernel.step(state, generator)
            assert bool((info.log_ratio < math.inf).all())
            gaps = state.theta.sort(1).values.diff(dim=1)
            ties += int((gaps[:, 0] == gaps[:, 1]).sum())
    assert bool((state.code == 3).all()) and ties > 20


def test_a_sum_of_what_is_never_there_is_refused():
    with pytest.raises(ConfigurationError, match="there is never a component"):
        trj.Target(
            trj.Counts(0, of="a"),
            {"a": Normal(0.0, 1.0)},
            trj.Additive(lambda p: p["a"][:, None], lambda total, p: total[:, 0]),
        )


@pytest.mark.parametrize(
    ("name", "additive"),
    [
        *((name, True) for name in (*OF_ONE_KIND, "all")),
        *(pytest.param(name, False, marks=pytest.mark.whole) for name in OF_ONE_KIND),
        ("all", False),  # a likelihood of all components at once, as a function
    ],
)
def test_counts_are_those_of_integration(name, additive, generator):
    case = cases.seen_sum(additive)
    chains = SPLITS if name == "learned splits" else N
    seen = stays_exact(COMPONENT_KERNELS[name](case.target), case, generator, chains=chains)
    assert float(seen.infos[0].accepted.double().mean()) > 0.02


def test_without_the_number_of_components_the_same_check_fails(generator, monkeypatch):
    """The negative control: the k of k! is dropped."""
    case = cases.seen_sum()
    kernel = learned(case.target)
    monkeypatch.setattr(kernel, "_log_places", lambda k, up: torch.zeros(len(k)))
    is_caught(kernel, case, generator)


def test_without_the_count_of_neighbours_the_same_check_fails(generator, monkeypatch):
    """The negative control of splits: every pair is taken for mutual neighbours."""
    case = cases.seen_sum()
    kernel = learned_split(case.target)
    right, nearest = kernel._log_choice, kernel._nearest

    def wrong(code, theta, one, two, e, share):
        mutual = (nearest(code, theta, one) == two).to(e) + (nearest(code, theta, two) == one).to(e)
        return right(code, theta, one, two, e, share) - (0.5 * mutual.clamp(min=1)).log()

    monkeypatch.setattr(kernel, "_log_choice", wrong)
    is_caught(kernel, case, generator, chains=SPLITS, steps=9)


def test_sums_are_kept_and_are_those_of_the_components(generator):
    target = trj.problems.pulses(points=60, seed=1)
    code = target.space.sample_prior(300, generator)
    state = start(target, code, target.sample_prior(code, generator))
    kernel = Cycle([ComponentBirthDeath(target), (ComponentWalk(target), 2)])
    with torch.no_grad():
        for _ in range(150):
            state, _ = kernel.step(state, generator)
        fresh = target.total(state.code, state.theta)
        exact = target.log_joint(state.code, state.theta)
    (total,) = state.recall(target)
    assert float((total - fresh).abs().max()) < 1e-4
    assert torch.allclose(state.log_joint, exact, atol=1e-2)
    params = target.constrain(torch.tensor([8]), state.theta)
    t = target.t.float()
    z = (t - params["centre"][..., None]) / params["width"][..., None]
    signal = params["amplitude"][..., None] * torch.exp(-0.5 * z**2)
    signal = torch.where(target.space.items(state.code)[..., None], signal, 0.0).sum(1)
    assert torch.allclose(signal, fresh.float(), atol=1e-4)


def test_gradients_pass_through_sums():
    target = trj.problems.pulses(points=40)
    code = torch.tensor([[0], [2], [8]])
    theta = torch.randn(3, 24, generator=torch.Generator().manual_seed(0))
    value, gradient = target.log_joint_and_grad(code, theta)
    step = torch.zeros(24)
    step[1] = 1e-2
    up, down = (target.log_joint(code, theta + s * step) for s in (1, -1))
    assert torch.allclose(gradient[1:, 1], ((up - down) / 2e-2)[1:], rtol=2e-2, atol=2e-2)
    assert float(gradient[0].abs().max()) == 0 and bool(value.isfinite().all())


def test_portions_of_many_components_add_up(monkeypatch, generator):
    target = trj.problems.pulses(points=50)
    code = target.space.sample_prior(200, generator)
    theta = target.sample_prior(code, generator)
    whole = target.total(code, theta)
    monkeypatch.setattr(trj.target.additive, "CELLS", 50 * 7)
    assert torch.allclose(whole, target.total(code, theta))


def test_components_trade_places_by_chance_alone(generator):
    target = toys.silent_components(True)
    parts = Components(target)
    code = torch.full((6000, 1), 2)
    theta = target.sample_prior(code, generator)
    moved = parts.shuffled(code, theta, generator)
    swapped = (parts.of(moved)[:, 0] == parts.of(theta)[:, 1]).all(-1)
    kept = (moved == theta).all(-1)
    assert bool((swapped | kept).all())
    assert abs(float(swapped.double().mean()) - 0.5) < 5 * 0.5 / 6000**0.5
    assert bool((parts.of(moved)[:, 2] == parts.of(theta)[:, 2]).all())


def test_what_does_not_fit_is_refused():
    with pytest.raises(ConfigurationError, match="expected a space of Counts"):
        ComponentBirthDeath(toys.conjugate_subsets())
    for most in (2, 3):
        uneven = trj.Target(
            trj.Counts(most, of="a"),
            {"a": Normal(0.0, 1.0)},
            lambda p, active: (p["a"] * torch.arange(p["a"].shape[1])).sum(-1),
        )
        with pytest.raises(ConfigurationError, match="components are not exchangeable"):
            ComponentWalk(uneven)
    target = toys.silent_components(False)
    with pytest.raises(ConfigurationError, match="prior_share"):
        ComponentBirthDeath(target, prior_share=0.0)
    with pytest.raises(ConfigurationError, match="pass it to a Target"):
        trj.Additive(lambda p: p["a"], lambda t, p: t)({"a": torch.zeros(2, 3)}, torch.ones(2, 3))
    shape = trj.Additive(lambda p: p["a"].sum(), lambda t, p: t)
    with pytest.raises(ConfigurationError, match=r"contribution: expected a tensor of shape \(1,"):
        trj.Target(trj.Counts(3, of="a"), {"a": Normal(0.0, 1.0)}, shape)
    with pytest.raises(ShapeError, match="y, t: expected one shape"):
        trj.problems.pulses(torch.zeros(3), torch.zeros(4))
    with pytest.raises(TargetError, match="most, noise_sd"):
        trj.problems.pulses(noise_sd=0.0)


@pytest.mark.parametrize("most", [1, 2])
def test_few_components_and_none(most, generator):
    """At most one component; and a space whose smallest and largest counts are next to empty."""
    target = trj.Target(
        trj.Counts(most, of="x"),
        {"x": Uniform(0.0, 1.0)},
        lambda p, active: torch.zeros(len(active)),
    )
    state = start(target, torch.zeros(4000, 1).long(), torch.zeros(4000, most))
    kernel = Cycle([ComponentBirthDeath(target), ComponentWalk(target)])
    with torch.no_grad():
        for _ in range(40):
            kernel, state, infos = kernel.adapt(state, generator)
            assert not any(bool(i.log_ratio.isnan().any()) for i in infos)
    p = torch.full((most + 1,), 1 / (most + 1), dtype=torch.float64)
    assert float(frequencies(target.space, state.code, p).abs().max()) < limit(3)
    assert math.isfinite(float(state.log_joint.sum()))


@pytest.mark.parametrize("surrogate", [False, True])
def test_a_likelihood_that_ignores_the_mask_is_found_out(surrogate):
    """Absent components read as zero: here each still adds something."""

    def careless(p, active):
        return Normal(p["a"].exp().sum(-1), 1.0).log_prob(torch.tensor(2.0))

    def careful(p, active):
        total = torch.where(active, p["a"].exp(), 0.0).sum(-1)
        return Normal(total, 1.0).log_prob(torch.tensor(2.0))

    priors, space = {"a": Normal(0.0, 1.0)}, trj.Counts(4, of="a")
    with pytest.raises(TargetError, match=r"component.s. give .* alone and .* that are not there"):
        if surrogate:
            trj.Target(space, priors, careful, surrogate=careless)
        else:
            trj.Target(space, priors, careless)
    trj.Target(trj.Counts(4, of="a"), priors, careful)
    relies_on_zero = lambda p, active: Normal(p["a"].sum(-1), 1.0).log_prob(torch.tensor(2.0))  # noqa: E731
    trj.Target(trj.Counts(4, of="a"), priors, relies_on_zero)  # right: zeros add nothing
    insists = lambda p, active: (p["a"] * torch.ones(4)).sum(-1)  # noqa: E731
    trj.Target(trj.Counts(4, of="a"), priors, insists)  # can't be cut, is not refused


def shown(target, k, generator, n=40):
    code = torch.full((n, 1), k)
    theta = target.sample_prior(code, generator)
    return code, theta, target.constrain(code[0], theta)


def test_the_mixture_of_galaxies_is_that_of_torch(generator):
    target = trj.problems.mixture_1d().to(dtype=torch.float64)
    code, theta, p = shown(target, 3, generator)
    parts = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(p["mass"][:, :3]),
        Normal(p["mean"][:, :3], p["precision"][:, :3] ** -0.5),
    )
    exact = parts.log_prob(target.y[:, None]).sum(0)
    found = target.log_prior_and_likelihood(code, theta)[1]
    near = exact > -3000  # beyond, a datum is 50 standard deviations from everything
    assert near.sum() > 10 and torch.allclose(found[near], exact[near], rtol=1e-9)


def test_the_mixture_in_the_plane_is_that_of_the_walkthrough(generator):
    target = trj.problems.gaussian_mixture_2d(true=4, points=300, most=20).to(dtype=torch.float64)
    code, theta, p = shown(target, 5, generator)
    means = torch.stack([p["x"], p["y"]], -1)[:, :5]
    gap = (target.y[:, None, None] - means).square().sum(-1)  # (n, C, 5)
    log_density = -0.5 * gap / 0.25 - math.log(2 * math.pi * 0.25)
    exact = (log_density.logsumexp(-1) - math.log(5)).sum(0)
    found = target.log_prior_and_likelihood(code, theta)[1]
    near = gap.amin(-1).amax(0) < (50 * 0.5) ** 2
    assert near.sum() > 10 and torch.allclose(found[near], exact[near], rtol=1e-9)
    prior = target.space.log_prior(torch.tensor([[1], [2], [20]]))
    steps = torch.tensor([0.0, -1.0, -19.0]).double() * math.log(300)
    assert torch.allclose((prior - prior[0]).double(), steps, rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: trj.problems.mixture_1d([1.0]), ShapeError, "a vector of two numbers"),
        (lambda: trj.problems.mixture_1d([1.0, 1.0]), TargetError, "not all equal"),
        (lambda: trj.problems.gaussian_mixture_2d(sigma=0.0), TargetError, "sigma, side"),
        (lambda: trj.problems.gaussian_mixture_2d(torch.zeros(4, 3)), ShapeError, "shape"),
        (lambda: trj.problems.gaussian_mixture_2d(true=99, side=5.0), TargetError, "do not fit"),
    ],
)
def test_mixtures_refuse_what_is_none(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.whole
def test_a_component_is_taken_away_from_a_sum_without_loss(generator):
    """Births, deaths and walks of mixtures: densities in sums agree with those from scratch."""
    target = trj.problems.gaussian_mixture_2d(true=3, points=200, most=8)
    code = torch.full((100, 1), 4)
    theta = target.sample_prior(code, generator)
    state = start(target, code, theta)
    kernel = Cycle([ComponentBirthDeath(target), (ComponentWalk(target), 3)])
    _, state = toys.warmed(kernel, state, generator, 200)
    exact = target.log_joint(state.code, state.theta)
    assert torch.allclose(state.log_joint, exact, rtol=1e-5)
    assert int((state.code == 3).sum()) > 50


TINY = 50.0  # nats that one component's share of a sum may lie below another's


def log_of_sum(total, p):
    assert bool((total >= 0).all()), "a sum below what its parts allow"
    return 0.2 * total[:, 0].log()


@pytest.mark.whole
def test_what_is_left_of_a_sum_is_no_rounding():
    """1e-17 in place of 1e-22 would bias p(1), known by quadrature."""
    target = trj.Target(
        trj.Counts(2, 1, of="a"),
        {"a": Uniform(0.0, TINY)},
        trj.Additive(lambda p: 1.3 * torch.exp(-p["a"].double())[:, None], log_of_sum),
    )
    a = torch.linspace(0, TINY, 4001, dtype=torch.float64)
    a = 0.5 * (a[1:] + a[:-1])
    one = (1.3 * torch.exp(-a)).pow(0.2).mean()
    two = (1.3 * (torch.exp(-a) + torch.exp(-a[:, None]))).pow(0.2).mean()
    truth = float(one / (one + two))
    generator = torch.Generator().manual_seed(0)
    moves = Cycle([ComponentBirthDeath(target, prior_share=1), ComponentWalk(target)])
    code = torch.randint(1, 3, (1000, 1), generator=generator)
    state = start(target, code, target.sample_prior(code, generator))
    with torch.no_grad():
        seen = []
        for _ in range(250):
            state, _ = moves.step(state, generator)
            seen.append((state.code[:, 0] == 1).double())
            exact = target.total(state.code, state.theta)
            assert torch.allclose(state.recall(target)[0][:, 0], exact, rtol=0.01, atol=0)
            assert torch.allclose(
                state.log_joint, target.log_joint(state.code, state.theta), atol=0.01
            )
    chains = torch.stack(seen[50:]).mean(0)
    error = float(chains.std()) / len(chains) ** 0.5
    assert error < 0.01
    assert abs(float(chains.mean()) - truth) < 4 * error


def test_a_mixture_of_galaxies_runs():
    """Densities in plain units, far data, a log: sums of 1e-17 below zero crashed it."""
    y = torch.tensor(GALAXIES) - 20.0

    def add(p):
        density = Normal(p["mean"][:, None], p["sd"][:, None]).log_prob(y).exp()
        return p["mass"][:, None] * torch.cat([density, torch.ones(len(density), 1)], 1)

    target = trj.Target(
        trj.Counts(10, 1, of=("mass", "mean", "sd")),
        {"mass": Gamma(1.0, 1.0), "mean": Normal(0.0, 3.0), "sd": LogNormal(0.0, 0.5)},
        trj.Additive(add, lambda total, p: (total[:, :-1] / total[:, -1:]).log().sum(-1)),
    )
    generator = torch.Generator().manual_seed(0)
    moves = Cycle([ComponentBirthDeath(target), ComponentSplitMerge(target), ComponentWalk(target)])
    code = torch.full((256, 1), 6)
    state = start(target, code, target.sample_prior(code, generator))
    state = state._replace(log_joint=state.log_joint.nan_to_num(-math.inf))
    with torch.no_grad():
        for _ in range(60):
            state, infos = moves.step(state, generator)
            assert not any(bool(info.proposed.log_joint.isnan().any()) for info in infos)
