"""Exchanges of components: exact, and born where the data ask for them."""

import math

import pytest
import scipy.stats
import torch
from torch.distributions import Normal, Uniform

import trjmcmc as trj
from tests import cases, toys
from tests.battery import is_caught, stays_exact
from tests.cases import from_prior, learned_exchange
from trjmcmc.errors import ConfigurationError, TargetError
from trjmcmc.kernel import ComponentBirthDeath, ComponentExchange, Cycle, SharedWalk, start
from trjmcmc.kernel.components.newborns import newborns_of
from trjmcmc.target.exchangeable import components_of
from trjmcmc.target.tempered import Tempered

PAIRS = [(0, 1), (1, 1), (0, 2), (1, 2), (2, 2)]
CASES = {
    "silent": cases.silent_components,  # the prior stays, of parameters too
    "sum": cases.seen_sum,  # nothing but amplitudes
    "waves": cases.waves,  # cells, and amplitudes in two coordinates
}
N = 40_000  # chains


@pytest.mark.whole
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("name", CASES)
def test_exact_draws_stay_exact(name, pair, generator):
    case = CASES[name]()
    seen = stays_exact(learned_exchange(case.target, pair), case, generator, chains=N, steps=3)
    assert float(seen.infos[0].accepted.double().mean()) > 0.02


@pytest.mark.parametrize("pair", [(0, 1), pytest.param((2, 2), marks=pytest.mark.whole)])
def test_at_the_power_zero_the_prior_stays(pair, generator):
    """The likelihood says where components are born, and counts for nothing else."""
    target = Tempered(toys.waves(), 0.3)
    kernel = learned_exchange(target, pair)
    target.temper(0.0)
    prior = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)

    def scores(state):
        u = target.constrain(torch.tensor([2]), state.theta)
        one = state.code[:, 0] == 1
        frequency = (u["frequency"][one, 0].double() - 0.5) / 3.5 - 0.5
        height = (-0.5 * (u["height"][one, 0].double() / 0.7).square()).exp() - 0.5
        found = cases.frequencies(target.space, state.code, prior).tolist()
        return torch.tensor([*found, *(cases.mean_score(x) for x in (frequency, height))])

    case = cases.Case(target, lambda n, g: from_prior(target, n, g), scores)
    stays_exact(kernel, case, generator, chains=N, steps=3)


@pytest.mark.whole
@pytest.mark.parametrize("pair", [(0, 1), (2, 2)])
@pytest.mark.parametrize(
    "births", [Uniform(0.6, 2.0), scipy.stats.norm(1.5, 0.2)], ids=["part of it", "beyond it"]
)
def test_densities_of_the_user_keep_it_exact(pair, births, generator):
    case = cases.waves(births={"frequency": births})
    kernel = learned_exchange(case.target, pair)
    stays_exact(kernel, case, generator, chains=N, steps=3)


class TooHigh(Uniform):
    """A negative control: a density twenty times as high as what it draws."""

    def log_prob(self, value):
        return super().log_prob(value) + 3


@pytest.mark.whole
def test_a_density_that_draws_otherwise_than_it_says_is_caught(generator):
    case = cases.waves(births={"frequency": TooHigh(0.6, 3.0)})
    is_caught(learned_exchange(case.target, (0, 1)), case, generator, chains=N, steps=6)


def test_newborns_come_from_where_the_user_says(generator):
    target = toys.waves(births={"frequency": Uniform(1.0, 1.1)})
    newborns = newborns_of(components_of(target)[0])
    theta = target.sample_prior(torch.zeros(2000, 1, dtype=torch.long), generator)
    residual = newborns.residual(theta, torch.zeros(2000, len(toys.TIMES)).double())
    born, one = torch.ones(2000, dtype=torch.bool), torch.ones(2000)
    x, _, log_q = newborns.placed(theta, residual, one, theta[:, 1:4], born, generator)
    f = newborns.single.values(theta, x)["frequency"][:, 0]
    share = float(((f > 1.0) & (f < 1.1)).double().mean())
    assert share > 0.35 and bool(log_q[x.isfinite().all(1)].isfinite().all())


def test_what_signals_are_linear_in_may_be_stated():
    linear = {None: "height, phase", ("height",): "height, phase", "height": "height, phase"}
    for stated, found in linear.items():
        move = ComponentExchange(toys.waves(linear=stated))
        assert move.adapted()["linear in"] == found
    assert "linear in" not in ComponentExchange(toys.waves(linear=())).adapted()
    with pytest.raises(TargetError, match=r"not linear in \['frequency'\]"):
        ComponentExchange(toys.waves(linear=("frequency",)))
    with pytest.raises(ConfigurationError, match=r"no component has \['noise'\]"):
        toys.waves(linear=("noise",))


def test_densities_that_make_no_sense_are_refused():
    with pytest.raises(ConfigurationError, match=r"no component has \['f'\]"):
        toys.waves(births={"f": Uniform(0.0, 1.0)})
    with pytest.raises(ConfigurationError, match=r"expected distributions"):
        toys.waves(births={"frequency": 3.0})
    with pytest.raises(TargetError, match=r"\['height'\] are amplitudes"):
        ComponentExchange(toys.waves(births={"height": Uniform(0.0, 1.0)}))
    with pytest.raises(TargetError, match="expected a distribution of shape"):
        ComponentExchange(toys.waves(births={"frequency": Uniform(torch.zeros(2), 1.0)}))


# ---- negative controls ----------------------------------------------------------------------


def test_without_the_volume_of_polar_coordinates_the_check_fails(generator, monkeypatch):
    case = cases.waves()
    kernel = learned_exchange(case.target, (0, 1))
    monkeypatch.setattr(
        kernel.newborns.amplitudes, "log_volume", lambda v: v["height"].flatten().double() * 0
    )
    is_caught(kernel, case, generator, chains=N, steps=3)


def gaps():
    """Six places of which data say nothing, and the smallest gap between them."""
    target = trj.Target(
        trj.Counts(6, 6, of="place"),
        {"place": Uniform(0.0, 1.0)},
        trj.Additive(lambda p: 0.0 * p["place"][:, None], lambda total, p: total[:, 0]),
    )

    def scores(state):
        place = target.constrain(torch.tensor([6]), state.theta)["place"].double()
        gap = place.sort(1).values.diff(dim=1).amin(1)
        return torch.tensor([cases.mean_score(gap - 1 / 35)])

    return cases.Case(target, lambda n, generator: from_prior(target, n, generator), scores)


def test_pairs_are_chosen_by_their_distance_and_it_stays_as_it_is(generator):
    case = gaps()
    stays_exact(learned_exchange(case.target, (2, 2)), case, generator, chains=N, steps=5)


def test_without_the_choice_of_pairs_the_check_fails(generator, monkeypatch):
    case = gaps()
    kernel = learned_exchange(case.target, (2, 2))
    monkeypatch.setattr(kernel, "_log_pair", lambda code, *_: torch.zeros(len(code)).double())
    is_caught(kernel, case, generator, chains=N, steps=5)


@pytest.mark.whole
def test_without_the_size_of_the_cells_the_check_fails(generator, monkeypatch):
    """The probability of a cell is taken for the density in it."""
    case = cases.waves()
    kernel = learned_exchange(case.target, (0, 1))
    cells = kernel.newborns.cells
    monkeypatch.setattr(cells, "log_size", torch.zeros_like(cells.log_size))
    is_caught(kernel, case, generator, chains=N, steps=3)


# ---- what it finds out about a signal -------------------------------------------------------

T = torch.linspace(-1.0, 1.0, 80)


def of_signal(f, priors, **settings):
    """A target whose components add a signal f(p), (N, 80)."""
    y = torch.randn(80, generator=torch.Generator().manual_seed(0))
    combine = settings.pop("combine", lambda total, p: -0.5 * (total - y).square().sum(-1))
    return trj.Target(trj.Counts(3, of=tuple(priors)), priors, trj.Additive(f, combine), **settings)


def bump(p, width=0.1):
    return torch.exp(-0.5 * ((T - p["centre"][:, None]) / width) ** 2)


FREE = {"a": Normal(0.0, 2.0), "centre": Uniform(-1.0, 1.0)}
SIGNALS = {
    "height": (lambda p: p["a"][:, None] * bump(p), FREE, ("a",), [1]),
    "log height": (lambda p: p["a"].exp()[:, None] * bump(p), FREE, (), [1]),
    "offset": (lambda p: 1.0 + p["a"][:, None] * bump(p), FREE, (), [0, 1]),
    "sine and cosine": (
        lambda p: (
            p["a"][:, None] * (20 * T + p["centre"][:, None]).sin()
            + p["b"][:, None] * (20 * T + p["centre"][:, None]).cos()
        ),
        FREE | {"b": Normal(0.0, 2.0)},
        ("a", "b"),
        [],
    ),
    "product": (
        lambda p: (p["a"] * p["b"])[:, None] * bump(p),
        FREE | {"b": Uniform(1.0, 2.0)},
        ("a",),
        [1],
    ),
    "level": (lambda p: p["a"][:, None].expand(-1, 80), {"a": Normal(0.0, 1.0)}, ("a",), []),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SIGNALS)
def test_amplitudes_and_places_are_found(name, dtype):
    f, priors, amplitudes, columns = SIGNALS[name]
    newborns = newborns_of(components_of(of_signal(f, priors, dtype=dtype))[0])
    assert newborns.amplitudes.names == amplitudes
    assert sorted(newborns.cells.columns) == columns


def test_a_planet_is_an_amplitude_an_angle_and_a_frequency():
    newborns = newborns_of(components_of(trj.problems.radial_velocity())[0])
    assert newborns.amplitudes.names == ("amplitude", "periastron")
    assert newborns.cells.columns == [0]


def test_cells_of_a_comb_of_frequencies_are_as_fine_as_the_data(generator):
    """Resolution is the inverse of the span, whatever the prior's shape."""
    target = trj.problems.radial_velocity(period=(2.0, 2000.0))
    cells = newborns_of(components_of(target)[0]).cells
    span = float(target.time.max() - target.time.min())
    period = target.constrain(torch.tensor([1]), torch.zeros(len(cells.edges[0]), target.dim))
    u = torch.zeros(len(cells.edges[0]), target.dim)
    u[:, components_of(target)[0].slots[0, 0]] = cells.edges[0].float()
    period = target.constrain(torch.tensor([1]), u)["period"][:, 0]
    assert 0.1 < float((1 / period).diff().abs().max()) * span < 1.0


# ---- what it is good for --------------------------------------------------------------------


def accepted(kernel, target, generator):
    """Share of proposals that are accepted near two planets, after a warm-up there."""
    true = target.planets_true.float()
    names = ("period", "amplitude", "eccentricity", "periastron", "anomaly")
    params = {n: true[None, :, i].expand(200, -1) for i, n in enumerate(names)}
    shared = {"offset": torch.zeros(200), "jitter": torch.ones(200)}
    theta = target.unconstrain("2", params | shared)
    state = start(target, torch.full((200, 1), 2), theta)
    moves = Cycle([kernel, (SharedWalk(target), 4)])
    moves, state = toys.warmed(moves, state, generator, 20)
    infos = []
    with torch.no_grad():
        for _ in range(20):
            state, found = moves.step(state, generator)
            infos += [i for i in found if i.kernel != "shared walk"]
    return float(torch.stack([info.chance.mean() for info in infos]).mean())


@pytest.mark.whole
def test_planets_are_exchanged_a_hundred_times_as_often_as_by_the_prior(generator):
    target = trj.problems.radial_velocity()
    planet = accepted(ComponentExchange(target, pairs={(1, 1): 1}), target, generator)
    prior = accepted(ComponentBirthDeath(target, prior_share=1.0), target, generator)
    assert planet > 0.01
    births = accepted(ComponentExchange(target, pairs={(0, 1): 1}), target, generator)
    assert births > 0.02 and births > prior


def share_of_two(pairs, generator):
    """Chains that have found two narrow pulses, from one wide one that lies across them."""
    t = torch.linspace(-1, 1, 500, dtype=torch.float64)
    y = sum(3.0 * torch.exp(-0.5 * ((t - c) / 0.05) ** 2) for c in (-0.1, 0.1))
    target = trj.problems.pulses(y.numpy(), t.numpy(), most=4, noise_sd=1.0)
    wide = {"amplitude": 2.6, "centre": 0.0, "width": 0.12}
    theta = target.unconstrain("1", {k: torch.full((400, 1), v) for k, v in wide.items()})
    state = start(target, torch.ones(400, 1, dtype=torch.long), theta)
    kernel = ComponentExchange(target, pairs=pairs)
    with torch.no_grad():
        for _ in range(40):
            state, _ = kernel.step(state, generator)
    return float((state.code == 2).double().mean())


@pytest.mark.whole
def test_a_pulse_becomes_the_two_that_it_hides(generator):
    """Many nats better, but neither of them is without the other."""
    pairs, single = {(1, 2): 1}, {(0, 1): 1, (1, 1): 1}
    two, one = share_of_two(pairs, generator), share_of_two(single, generator)
    assert two > max(0.25, 2 * one)


# ---- edges ----------------------------------------------------------------------------------


def test_what_it_can_not_do_is_refused():
    with pytest.raises(ConfigurationError, match="Additive"):
        ComponentExchange(trj.problems.gaussian_mixture_2d(true=3, points=50))
    dependent = {"a": Normal(0.0, 1.0), "centre": lambda p: Normal(p["a"], 1.0)}
    target = of_signal(lambda p: p["a"][:, None] * bump(p), dependent)
    with pytest.raises(ConfigurationError, match="depends on another"):
        ComponentExchange(target)
    detached = of_signal(
        SIGNALS["height"][0], FREE, combine=lambda total, p: -total.detach().square().sum(-1)
    )
    with pytest.raises(ConfigurationError, match="not differentiable"):
        ComponentExchange(detached)
    target = trj.problems.pulses(points=50)
    for pairs in ({(1, 0): 1}, {(0, 3): 1}, {(0, 0): 1}, {}):
        with pytest.raises(ConfigurationError, match="pairs"):
            ComponentExchange(target, pairs=pairs)


@pytest.mark.parametrize("least, most", [(0, 1), (1, 1), (1, 2), (2, 2)])
def test_few_components(least, most, generator):
    """Moves that the counts do not allow are left out, and counts stay within their range."""
    f, priors, *_ = SIGNALS["height"]
    y = torch.zeros(80)
    target = trj.Target(
        trj.Counts(most, least, of=("a", "centre")),
        priors,
        trj.Additive(f, lambda total, p: -0.5 * (total - y).square().sum(-1)),
    )
    kernel = ComponentExchange(target)
    code = target.space.sample_prior(50, generator)
    state = start(target, code, target.sample_prior(code, generator))
    with torch.no_grad():
        for _ in range(30):
            state, infos = kernel.step(state, generator)
    assert bool(((state.code >= least) & (state.code <= most)).all())
    exact = target.log_joint(state.code, state.theta)
    assert torch.allclose(state.log_joint, exact, atol=1e-3)
    assert bool(exact.isfinite().all()) and not math.isnan(float(infos[0].chance.mean()))


def test_vectors_of_parameters_and_data_of_two_dimensions(generator):
    """Images: a component has a place in the plane, with one density for both coordinates."""
    grid = torch.linspace(-2.0, 2.0, 9)
    image = torch.randn(9, 9, generator=generator)

    def source(p):
        gap = [(grid - p["place"][:, i, None]).square() for i in (0, 1)]
        return p["flux"][:, None, None] * (-gap[0][:, :, None] - gap[1][:, None]).exp()

    target = trj.Target(
        trj.Counts(3, of=("place", "flux")),
        {
            "place": torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2)),
            "flux": Normal(0.0, 1.0),
        },
        trj.Additive(source, lambda total, p: -0.5 * (total - image).square().sum((1, 2))),
    )
    kernel = ComponentExchange(target)
    assert kernel.newborns.amplitudes.names == ("flux",)
    code = target.space.sample_prior(50, generator)
    state = start(target, code, target.sample_prior(code, generator))
    with torch.no_grad():
        for _ in range(40):
            state, _ = kernel.step(state, generator)
    exact = target.log_joint(state.code, state.theta)
    assert torch.allclose(state.log_joint, exact, atol=1e-3)


def test_amplitudes_beyond_their_end_are_no_components(generator):
    """Data want a negative one: the sum that chains carry is that of what they hold."""
    t = torch.linspace(-1.0, 1.0, 80, dtype=torch.float64)
    dip = -3.0 * torch.exp(-0.5 * (t / 0.1) ** 2)
    target = trj.Target(
        trj.Counts(2, of=("a", "centre")),
        {"a": Uniform(0.0, 50.0), "centre": Uniform(-1.0, 1.0)},
        trj.Additive(SIGNALS["height"][0], lambda total, p: -2 * (total - dip).square().sum(-1)),
        dtype=torch.float64,
    )
    kernel = ComponentExchange(target, pairs={(0, 1): 1})
    code = torch.zeros(200, 1, dtype=torch.long)
    state = start(target, code, target.sample_prior(code, generator))
    with torch.no_grad():
        for _ in range(30):
            state, _ = kernel.step(state, generator)
    exact = target.log_joint(state.code, state.theta)
    assert torch.allclose(state.log_joint, exact, atol=1e-6)


@pytest.mark.parametrize("scalar", [True, False])
def test_one_number_is_data_too(scalar, generator):
    """A signal of shape (N,), and a sum that NumPy combines: refused, and no error of a run."""
    combine = (lambda total, p: -0.5 * (total - 1.0).square()) if scalar else _by_numpy
    f = (lambda p: p["a"]) if scalar else (lambda p: p["a"][:, None])
    target = trj.Target(trj.Counts(2, of="a"), {"a": Normal(0.0, 1.0)}, trj.Additive(f, combine))
    if not scalar:
        with pytest.raises(ConfigurationError, match="not differentiable"):
            ComponentExchange(target)
        return
    kernel = ComponentExchange(target)
    code = target.space.sample_prior(50, generator)
    state = start(target, code, target.sample_prior(code, generator))
    with torch.no_grad():
        for _ in range(20):
            state, _ = kernel.step(state, generator)
    assert torch.allclose(state.log_joint, target.log_joint(state.code, state.theta), atol=1e-4)


def _by_numpy(total, p):
    return torch.as_tensor(-0.5 * ((total.numpy() - 1.0) ** 2).sum(-1))


def test_likelihoods_that_choose_newborns_are_counted(generator):
    target = trj.problems.pulses(points=50)
    code = target.space.sample_prior(10, generator)
    state = start(target, code, target.sample_prior(code, generator))
    kernel = ComponentExchange(target, pairs={(0, 1): 1})
    before = target.account.evaluations
    with torch.no_grad():
        kernel.step(state, generator)
    assert target.account.evaluations - before == 30  # the residual's, one along it, the proposal's
