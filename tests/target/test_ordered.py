"""Maps of exchangeable components in one order, and a random one after it."""

import copy
import itertools
import math

import pytest
import torch
from torch.distributions import Normal, Uniform

import trjmcmc as trj
from tests import cases
from tests.battery import Case, is_caught, limit, stays_exact
from tests.maps import MovesSpares, shaken, shaken_mixture
from tests.toys import PRIOR, exact_counts, seen_sum, silent_components
from trjmcmc.errors import ConfigurationError
from trjmcmc.fit import ReverseKL
from trjmcmc.fit.standardise import calibrate, unwrap
from trjmcmc.fit.train import train
from trjmcmc.kernel import HMC, CrankNicolson, Cycle, Fixed, Jump
from trjmcmc.run.maps import check_round_trip, default_map
from trjmcmc.transport import CosmicFlow, Gaussians, Identity, MixtureOfMaps
from trjmcmc.transport import SortedComponents as Ordered

SPACE = silent_components().space  # a shared slot, then two coordinates of three components


class NoOrders(Ordered):
    """The negative control: log k! is dropped."""

    def _log_orders(self, code, like):
        return like.new_zeros(len(code))


class Clamped(Ordered):
    """A negative control: gaps that rounding swallows count as the least it leaves."""

    def _tied(self, keys, on):
        return torch.zeros_like(on[:, 0])


def shaken_flow(space):
    return shaken(CosmicFlow(space, layers=3, hidden=(8,)), seed=3)


MAPS = {
    "identity": lambda s: Ordered(Identity(s), by=1),
    "flow": lambda s: Ordered(shaken_flow(s), by=1),
    "mixture": lambda s: Ordered(shaken_mixture(s)),
    "moves spares": lambda s: Ordered(MovesSpares(s), by=1),
}
every = pytest.mark.parametrize("name", MAPS)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_contract(name, dtype, device):
    """One density both ways, pulled points lead back, spares and shared slots pass."""
    generator = torch.Generator(device).manual_seed(2024)
    flow = MAPS[name](copy.deepcopy(SPACE)).to(device, dtype)
    code = flow.space.enumerate().repeat(400, 1)
    z = flow.reference.sample((len(code), flow.space.n_slots), generator, dtype)
    close = 1e-6 if dtype == torch.float64 else 1e-3
    theta, log_q = flow.push(z, code)
    assert z.shape == (len(code), 7 + flow.base.reference.auxiliary + 3) and theta.dtype == dtype
    assert z.shape[1] == 7 + flow.reference.auxiliary
    back, again_q = flow.pull(theta, code, generator)
    assert torch.allclose(again_q, log_q, atol=close)
    assert torch.allclose(flow.push(back, code)[0], theta, atol=close)
    if flow.spares_pass:
        assert torch.allclose(flow.log_prob(theta, code), log_q, atol=close)
        spare = ~flow.space.active(code)
        assert torch.equal(theta[spare], z[:, :7][spare])
        moved = torch.where(spare, theta + 1, theta)
        assert torch.equal(flow.log_prob(moved, code), flow.log_prob(theta, code))
    if name == "identity":
        assert torch.equal(theta[:, 0], z[:, 0])


@every
def test_log_determinants_are_those_of_autograd(name, generator):
    """Of the base's coordinates in theta; the density is the base's over k!, times that."""
    flow = MAPS[name](copy.deepcopy(SPACE)).double()
    for k in range(4):
        code = torch.tensor([[k]])
        z = flow.reference.sample((1, flow.space.n_slots), generator, torch.float64)
        u, log_base = flow.base.push(z[:, : flow._inner], code)
        jacobian = torch.autograd.functional.jacobian(lambda u, c=code: flow._apart(u, c)[0][0], u)
        ladj = torch.linalg.slogdet(jacobian[:, 0]).logabsdet
        _, log_q = flow.push(z, code)
        assert torch.allclose(log_q + torch.lgamma(torch.tensor(k + 1.0)), log_base - ladj)
        theta = flow.push(z, code)[0].detach().requires_grad_()
        inwards = torch.autograd.functional.jacobian(
            lambda x, c=code: flow._ordered(x, c)[0][0], theta
        )
        assert torch.allclose(torch.linalg.slogdet(inwards[:, 0]).logabsdet, -ladj)


def test_gradients_reach_every_parameter(generator):
    flow = MAPS["mixture"](copy.deepcopy(SPACE)).double()
    code = SPACE.enumerate().repeat(50, 1)
    z = flow.reference.sample((len(code), flow.space.n_slots), generator, torch.float64)
    theta, log_q = flow.push(z, code)
    for loss in (
        theta.square().sum() + log_q.sum() + flow.log_choice(z, code).sum(),
        flow.log_prob(theta.detach(), code).sum() + flow.base.log_weights.sum(),
    ):
        flow.zero_grad()
        loss.backward(retain_graph=True)
        assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in flow.parameters())


@pytest.mark.parametrize(("kind", "factor"), [(Ordered, 1), (NoOrders, 0)])
def test_densities_integrate_to_one_and_know_no_names(kind, factor, generator):
    """And without k! to k!, by quadrature over all orders."""
    space = trj.Target(
        trj.Counts(3, of="a"), {"a": Normal(0.0, 1.0)}, lambda p, active: 0 * p["a"].sum(-1)
    ).space
    flow = kind(Identity(space))
    grid, step = torch.arange(-5.0, 11.0, 0.2, dtype=torch.float64), 0.2
    for k, copies in ((1, 1), (2, 2), (3, 6)):
        theta = torch.cartesian_prod(*[grid] * k).view(-1, k)
        theta = torch.nn.functional.pad(theta, (0, 3 - k))
        total = flow.log_prob(theta, torch.full((len(theta), 1), k)).exp().sum() * step**k
        assert float(total) == pytest.approx(1 if factor else copies, rel=0.02)
    theta = torch.randn(20, 3, generator=generator)
    three = torch.full((20, 1), 3)
    for order in itertools.permutations(range(3)):
        assert torch.equal(flow.log_prob(theta[:, order], three), flow.log_prob(theta, three))


@torch.no_grad()
def test_every_order_is_as_likely_and_pulls_lead_to_theirs(generator):
    flow = MAPS["flow"](copy.deepcopy(SPACE))
    n, code = 12_000, torch.full((12_000, 1), 3)
    place = torch.tensor([9, 3, 1])
    for source in ("reference", "pulled"):
        z = flow.reference.sample((n, flow.space.n_slots), generator, torch.float32)
        theta, _ = flow.push(z, code)
        if source == "pulled":
            z, _ = flow.pull(theta, code, generator)
            assert torch.allclose(flow.push(z, code)[0], theta, atol=1e-3)
            # given the order, the choosers are order statistics of normals, wherever they are
            u = torch.special.ndtr(z[:, -3:].double())
            for moment in (
                u - 0.5,
                u.square() - 1 / 3,
                u.sort(1).values - torch.tensor([1, 2, 3]) / 4,
            ):
                score = moment.mean(0) / moment.std(0) * n**0.5
                assert float(score.abs().max()) < limit(18)
        ranks = theta[:, flow.slots[:, 1]].argsort(1)
        seen = torch.bincount((ranks * place).sum(1)).double()
        seen = seen[seen > 0]
        assert len(seen) == 6
        assert float(((seen - n / 6).square() / (n / 6)).sum()) < 35.9  # chi-square, 5, 1e-6
    choice = flow.log_choice(z, code)
    assert torch.allclose(choice.exp(), torch.full((n,), 1 / 6))


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ties_are_out_of_reach_and_round_trips_hold(dtype, generator):
    flow = Ordered(shaken_flow(copy.deepcopy(SPACE)), by=1).to(dtype=dtype)
    code = torch.full((200, 1), 3)
    z = flow.reference.sample((200, flow.space.n_slots), generator, dtype)
    z[:, 5] = torch.linspace(-60, 0, 200)  # what the second gap is made of
    z[:, 4] += 7
    theta, log_q = flow.push(z, code)
    gap = theta[:, 4:].sort(1).values.diff(dim=1).amin(1)
    tied = log_q == math.inf
    assert bool((gap > 0).all()) and 20 < int(tied.sum()) < 180
    assert int((~tied & (gap < 1e-5)).sum()) > 2  # near each other, and known to be
    back, again_q = flow.pull(theta, code, generator)
    assert bool(log_q[~tied].isfinite().all()) and bool(back.isfinite().all())
    assert float((log_q - again_q)[~tied].abs().max()) < 0.02
    assert torch.allclose(flow.push(back, code)[0][~tied], theta[~tied], rtol=1e-5)
    slots = flow.slots[:, flow.key]
    theta[:, slots[1]] = theta[:, slots[0]]
    assert bool((flow.log_prob(theta, code) == -math.inf).all())
    assert bool((flow.pull(theta, code, generator)[1] == -math.inf).all())
    far = flow.log_prob(theta * 1e6, code)
    assert bool((~far.isnan()).all())


def moves(target, kind):
    flow = kind(shaken_flow(target.space)).to(dtype=target.dtype)
    jump = Jump(target, flow, Fixed(target.space), rho=0.6, fresh=0.3)
    return Cycle([jump, CrankNicolson(target, flow), HMC(target, flow)])


@pytest.mark.whole
@pytest.mark.parametrize("kind", [Ordered, NoOrders])
def test_moves_leave_the_target_as_it_is(kind, generator):
    """From exact draws; the map is poor. Without k! the same check fails."""
    case = cases.seen_sum()
    seen = (is_caught if kind is NoOrders else stays_exact)(
        moves(case.target, kind), case, generator
    )
    assert float(seen.infos[0].accepted.double().mean()) > 0.05


def test_parameters_keep_their_prior_where_data_say_nothing(generator):
    """Two coordinates a component and a shared one, in float32."""
    case = cases.silent_components()
    flow = Ordered(shaken_flow(case.target.space))
    kernel = Jump(case.target, flow, Fixed(case.target.space), rho=0.6, fresh=0.3)
    stays_exact(kernel, case, generator, chains=20_000)


@pytest.mark.parametrize("kind", [Ordered, Clamped])
def test_normals_of_wide_gaps_leave_the_prior_as_it_is(kind, generator, monkeypatch):
    """Many proposals are of gaps that rounding swallows; to call them known is an error."""
    if kind is Clamped:
        monkeypatch.setattr(trj.transport.sorted_components, "KNOWN", math.inf)
    case = cases.silent_components()
    space = case.target.space
    wide = torch.eye(space.n_slots)
    key, mass = space.slots_of(space.kinds[0]).T[[1, 0], 1:]
    wide[key, mass] = 20.0  # what a gap is made of follows the mass
    wide[key, key] = 0.5
    spread = torch.stack([torch.eye(space.n_slots), wide]).repeat(4, 1, 1, 1)
    normals = Gaussians(space, torch.zeros(4, 2, space.n_slots), spread)
    flow = kind(MixtureOfMaps(normals, log_weights=torch.zeros(1, 2)), by=1)
    kernel = Jump(case.target, flow, Fixed(space), rho=0.6, fresh=0.3)
    if kind is Clamped:
        is_caught(kernel, case, generator, chains=20_000)
    else:
        seen = stays_exact(kernel, case, generator, chains=20_000)
        assert float(seen.state.log_joint.min()) > -100


def test_a_map_that_disowns_points_is_used_for_the_rest():
    """And one that knows none of its points is refused."""
    target = silent_components()
    sampler = trj.TRJSampler(target, lambda s: Ordered(ill_conditioned(s), by=1), seed=1)
    check_round_trip(target, sampler.transport, sampler._known.generator)
    code = target.space.sample_prior(500, sampler._known.generator)
    z = sampler.transport.reference.sample(
        (500, sampler.transport.space.n_slots), sampler._known.generator, target.dtype
    )
    lost = sampler.transport.push(z, code)[1] == math.inf
    assert 0 < int(lost.sum()) < 500
    pairs = trj.Target(
        trj.Counts(3, 2, of="a"), {"a": Normal(0.0, 1.0)}, lambda p, active: 0.0 * p["a"].sum(-1)
    )
    lost_all = trj.TRJSampler(pairs, lambda s: Ordered(Identity(s)), seed=1)
    lost_all.transport.unit.fill_(1e-12)
    with pytest.raises(ConfigurationError, match="does not lead back"):
        check_round_trip(pairs, lost_all.transport, lost_all._known.generator)


def ill_conditioned(space):
    """Normals so thin that rounding hides which reference point a point is from."""
    generator = torch.Generator().manual_seed(3)
    shape = (4, 4, space.n_slots)
    tril = torch.eye(shape[-1]).repeat(4, 4, 1, 1)
    tril = tril * torch.exp(3 * torch.randn(4, 4, 1, shape[-1], generator=generator))
    tril = tril + (10 * torch.randn(*shape, shape[-1], generator=generator)).tril(-1)
    weights = torch.tensor([[0.0, 0.0, 0.0, -math.inf]])
    return MixtureOfMaps(
        Gaussians(space, 2 * torch.randn(shape, generator=generator), tril),
        None,
        log_weights=weights,
    )


@pytest.mark.whole
@pytest.mark.parametrize("careful", [True, False])
def test_thin_normals_leave_the_prior_as_it_is(careful, generator, monkeypatch):
    """What rounding hides is out of reach; to state the density of where it fell is an error."""
    if not careful:
        monkeypatch.setattr(trj.transport.mixture, "ASTRAY", math.inf)
        monkeypatch.setattr(trj.transport.sorted_components, "KNOWN", math.inf)
        monkeypatch.setattr(trj.transport.base, "VAGUE", math.inf)
    target = trj.Target(
        trj.Counts(3, of=("a", "b"), prior=PRIOR),
        {"a": Uniform(0.0, 1.0), "b": Uniform(-3.0, 5.0)},
        lambda p, active: 0.0 * p["a"].sum(-1),
    )
    flow, to = Ordered(ill_conditioned(target.space), by=0), Fixed(target.space)
    kernel = Cycle(
        [Jump(target, flow, to, rho=r, fresh=f) for r, f in ((0.5, 0.5), (1.0, 0.0))]
        + [CrankNicolson(target, flow, fresh=0.2)]
    )
    case = Case(
        target,
        lambda n, generator: cases.from_prior(target, n, generator),
        lambda state: cases.frequencies(target.space, state.code, PRIOR),
    )
    if careful:
        seen = stays_exact(kernel, case, generator, chains=40_000, steps=10)
        assert float(seen.state.log_joint.min()) > -100
    else:
        is_caught(kernel, case, generator, chains=40_000, steps=10)


@pytest.mark.whole
@pytest.mark.planned
@pytest.mark.parametrize("ordered", [True, False])
def test_with_and_without_it_the_posterior_is_the_same(ordered):
    target = seen_sum()
    base = CosmicFlow(target.space, layers=2, hidden=(16,))
    flow = (Ordered(base) if ordered else base).to(dtype=target.dtype)
    train(
        flow,
        ReverseKL(target),
        steps=600,
        batch=128,
        generator=torch.Generator().manual_seed(0),
        progress=False,
    )

    def kernel(target, transport):
        jump = Jump(target, transport, Fixed(target.space), rho=0.8, fresh=0.2)
        return Cycle([jump, CrankNicolson(target, transport, fresh=0.2)])

    sampler = trj.TRJSampler(target, flow, kernel, seed=4)
    result = sampler.run(400, chains=128, warmup=40, fit=False, progress=False)
    table = result.model_probabilities(full=True)
    gap = torch.tensor(table["visits"].to_numpy()) - exact_counts()
    error = torch.tensor(table["visits_se"].to_numpy())
    assert bool((error < 0.03).all())
    assert bool((gap.abs() < 5 * error).all()), table.to_string()


@torch.no_grad()
def test_the_key_is_the_one_that_tells_components_apart(generator):
    """Shown draws whose second coordinate sits in three places, whatever the component."""
    flow = Ordered(shaken_mixture(copy.deepcopy(SPACE)))
    code = torch.full((600, 1), 3)
    theta = torch.randn(600, 7, generator=generator)
    places = torch.tensor([-6.0, 0.0, 6.0])[torch.rand(600, 3, generator=generator).argsort(1)]
    theta[:, flow.slots[:, 1]] = places + 0.1 * theta[:, flow.slots[:, 1]]
    inner, u = unwrap(flow, code, theta)
    assert int(flow.key) == 1 and inner is flow.base
    assert float(flow.unit) == pytest.approx(6, abs=0.1)
    assert float(u[:, flow.slots[:, 1]].std(0).max()) < 0.3
    fixed = Ordered(Identity(copy.deepcopy(SPACE)), by=0)
    unwrap(fixed, code, theta)
    assert int(fixed.key) == 0
    # what a fit has found is saved and loaded
    fresh = Ordered(shaken_mixture(copy.deepcopy(SPACE)))
    fresh.load_state_dict(flow.state_dict())
    assert torch.equal(fresh.log_prob(theta, code), flow.log_prob(theta, code))


@torch.no_grad()
def test_a_location_and_a_scale_are_those_of_theta(generator):
    flow = Ordered(CosmicFlow(copy.deepcopy(SPACE)), by=1)
    codes = flow.space.enumerate()
    active = flow.space.active(codes)
    loc = torch.where(active, 40.0, 0.0)
    calibrate(flow, codes, loc, torch.where(active, 3.0, 1.0))
    code = codes.repeat(3000, 1)
    theta, _ = flow.push(
        flow.reference.sample((len(code), flow.space.n_slots), generator, torch.float32), code
    )
    found = theta[flow.space.active(code)]
    assert float(found.mean()) == pytest.approx(40, abs=0.5)
    assert float(found.std()) == pytest.approx(3, abs=0.6)


def test_it_is_the_default_where_like_components_are_counted():
    assert isinstance(default_map(silent_components(), 0), Ordered)
    uneven = trj.Target(
        trj.Counts(3, of="a"),
        {"a": Normal(0.0, 1.0)},
        lambda p, active: (p["a"] * torch.arange(3)).sum(-1),
    )
    assert isinstance(default_map(uneven, 0), trj.transport.MixtureOfMaps)
    assert isinstance(default_map(trj.problems.sinh_arcsinh(), 0), trj.transport.MixtureOfMaps)


@torch.no_grad()
def test_several_kinds_one_around_another():
    """One density both ways, the same whatever the components of each kind are called."""
    space = trj.Target(
        trj.Counts(2, of="a", name="A") + trj.Counts(3, of="b", name="B"),
        {"a": Uniform(-1.0, 1.0), "b": Normal(0.0, 1.0)},
        lambda p, active: p["b"].sum(-1),
    ).space
    flow = Ordered(Ordered(shaken_flow(space), kind="A"), kind=1).double()
    generator = torch.Generator().manual_seed(0)
    code = torch.tensor([[2, 3]]).expand(4000, -1)
    z = flow.reference.sample((4000, space.n_slots), generator, torch.float64)
    theta, log_q = flow.push(z, code)
    assert z.shape[1] == space.n_slots + 2 + 3
    renamed = theta[:, [1, 0, 4, 2, 3]]
    for x in (theta, renamed):
        torch.testing.assert_close(flow.log_prob(x, code), log_q, rtol=0, atol=1e-6)
        back, pulled = flow.pull(x, code, generator)
        torch.testing.assert_close(pulled, log_q, rtol=0, atol=1e-6)
        torch.testing.assert_close(flow.push(back, code)[0], x, rtol=0, atol=1e-6)
    weights = (Normal(1.0, 0.6).log_prob(theta).sum(1) - log_q).exp()  # of mean 1: a density
    assert abs(float(weights.mean()) - 1) < 4.4 * float(weights.std()) / 4000**0.5


def test_what_does_not_fit_is_refused():
    with pytest.raises(ConfigurationError, match="expected a space of Counts"):
        Ordered(Identity(trj.problems.sinh_arcsinh().space))
    with pytest.raises(ConfigurationError, match="kind: expected one of"):
        Ordered(Identity(copy.deepcopy(SPACE)), kind="no such")
    for by in (2, -1):
        with pytest.raises(ConfigurationError, match=r"by: expected .* 0 to 1, or None, got"):
            Ordered(Identity(copy.deepcopy(SPACE)), by=by)
