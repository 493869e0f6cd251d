import math
import sys

import pytest
import torch
import zuko
from torch.distributions import Dirichlet, Normal

import trjmcmc as trj
from tests import cases, toys
from tests.battery import Case, is_caught, stays_exact
from tests.cases import frequencies, from_prior
from tests.kernels import KERNELS, rough_normal, rough_realnvp
from tests.maps import MovesSpares, NoJacobian, rough_affine, rough_flow
from trjmcmc.errors import ConfigurationError
from trjmcmc.estimate import autocorrelation_time
from trjmcmc.kernel import (
    HMC,
    BirthDeath,
    Cycle,
    Fixed,
    IndependenceJump,
    Jump,
    Kernel,
    MixtureKernel,
    MixtureProposal,
    Neighbours,
    RandomWalk,
    SplitMerge,
    State,
    Stay,
    saturated_switch,
    start,
)
from trjmcmc.problems import SinhArcsinhMap
from trjmcmc.transport import Identity, StudentT

CHAINS, STEPS = 30_000, 15  # of the check and of its negative controls alike


@pytest.mark.parametrize("name", KERNELS)
def test_exactly_distributed_chains_stay_so(name, generator):
    case = cases.gaussians()
    kernel = KERNELS[name](case.target)
    seen = stays_exact(kernel, case, generator, chains=CHAINS, steps=STEPS)
    assert all(0.02 < float(i.accepted.double().mean()) <= 1 for i in seen.infos)


def broken(kernel, monkeypatch, change):
    """The same kernel, which accepts by a wrong ratio from now on."""
    module = sys.modules[type(kernel).__module__]
    right = module.accept

    def wrong(name, state, proposed, log_ratio, generator):
        ratio = change(state, proposed, log_ratio)
        return right(name, state, proposed, ratio, generator)

    monkeypatch.setattr(module, "accept", wrong)
    return kernel


def log_weight(state):
    """The log importance weight that a jump has left in the state."""
    return state.memo.values[1]


WRONG = {  # name: (kernel, what goes wrong in its ratio)
    "random walk": (RandomWalk, lambda s, p, r: r.clamp(max=0) / 2),
    "random walk in reference space": (
        lambda t: RandomWalk(t, rough_flow(t)),
        lambda s, p, r: log_weight(p) - log_weight(s),  # the reference is forgotten
    ),
    "HMC": (
        lambda t: HMC(t, leaps=1, step_size=1.2),
        lambda s, p, r: p.log_joint - s.log_joint,  # the kinetic energy is forgotten
    ),
    "birth-death": (
        lambda t: BirthDeath(t, Fixed(t.space)),
        lambda s, p, r: p.log_joint - s.log_joint,  # what is born has no density
    ),
    "normal independence": (
        lambda t: IndependenceJump(t, rough_normal(t), Fixed(t.space)),
        lambda s, p, r: p.log_joint - s.log_joint,  # nor has what is proposed
    ),
    "saturated switch": (
        lambda t: saturated_switch(t, Fixed(t.space, other=True), scale=0.7),
        lambda s, p, r: p.log_joint - s.log_joint,  # what is switched has no density
    ),
    "weighted proposal": (
        lambda t: Jump(t, rough_affine(t), Fixed(t.space, torch.tensor([0.0, 1.0, -1.0]))),
        lambda s, p, r: log_weight(p) - log_weight(s),  # the proposal's is forgotten
    ),
    "mixture of proposals": (
        lambda t: Jump(
            t,
            rough_affine(t),
            MixtureProposal([Fixed(t.space, torch.tensor([0.0, 2.0, -2.0])), Fixed(t.space)]),
        ),
        lambda s, p, r: log_weight(p) - log_weight(s),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_ratio_fails_the_same_check(name, generator, monkeypatch):
    case = cases.gaussians()
    make, change = WRONG[name]
    kernel = broken(make(case.target), monkeypatch, change)
    is_caught(kernel, case, generator, chains=2 * CHAINS, steps=STEPS)


@pytest.mark.parametrize("name", ["TRJ, rough affine", "pCN"])
def test_without_the_jacobian_the_same_check_fails(name, generator):
    case = cases.gaussians()
    jumps = "TRJ" in name
    kernel = Jump(
        case.target,
        NoJacobian(rough_affine(case.target, 2.0) if jumps else rough_flow(case.target, 0.4)),
        Fixed(case.target.space) if jumps else None,
        rho=1.0 if jumps else (0.0, 1.0),
    )
    is_caught(kernel, case, generator, chains=CHAINS, steps=STEPS)


class ByState(Kernel):
    """A broken mixture for the negative control: what moves a chain depends on where it is."""

    def __init__(self, first, second):
        self.first, self.second = first, second

    def step(self, state, generator):
        one, _ = self.first.step(state, generator)
        two, _ = self.second.step(state, generator)
        low = state.theta[:, 0] < 0.5
        return State(
            torch.where(low[:, None], one.code, two.code),
            torch.where(low[:, None], one.theta, two.theta),
            torch.where(low, one.log_joint, two.log_joint),
        ), []


def test_kernels_chosen_by_the_state_fail_the_same_check(generator):
    case = cases.gaussians()
    jump = Jump(case.target, rough_affine(case.target), rho=0.0)
    kernel = ByState(RandomWalk(case.target, scale=0.3), jump)
    is_caught(kernel, case, generator, chains=CHAINS, steps=STEPS)


class ChosenOnly(trj.transport.MixtureOfMaps):
    """A broken mixture for the negative control: the density of the chosen component alone."""

    def _alone(self, z, theta, code):
        pick = self._choice(z, code)
        return self.components.log_prob(theta, code).gather(1, pick[:, None])[:, 0]

    def push(self, z, code):
        theta, _ = super().push(z, code)
        return theta, self._alone(z, theta, code)

    def pull(self, theta, code, generator):
        z, _ = super().pull(theta, code, generator)
        return z, self._alone(z, theta, code)


@pytest.mark.parametrize("kind", [trj.transport.MixtureOfMaps, ChosenOnly])
def test_with_the_density_of_one_component_the_same_check_fails(kind, generator):
    case = cases.gaussians()
    maps = [rough_affine(case.target), toys.gaussian_map(case.target)]
    with torch.no_grad():
        maps[1].loc -= 1.5
    kernel = Jump(case.target, kind(maps), Fixed(case.target.space), rho=0.5)
    assert_so = is_caught if kind is ChosenOnly else stays_exact
    assert_so(kernel, case, generator, chains=CHAINS, steps=STEPS)


@pytest.mark.parametrize(
    "make",
    [
        lambda t: rough_affine(t),
        lambda t: rough_flow(t),
        lambda t: rough_flow(t, reference=StudentT(5)),
        lambda t: trj.transport.PerModel(t.space, lambda d: zuko.flows.NSF(d, transforms=1)),
        lambda t: MovesSpares(t.space),
        lambda t: rough_realnvp(t),
        lambda t: Identity(t.space),
    ],
)
def test_ratio_there_plus_ratio_back_is_zero(make, generator):
    target = toys.gaussians().to(dtype=torch.float64)
    transport = make(target).double()

    class Script:
        """A proposal that goes to given models, and a reference that repeats given noise."""

        def __init__(self, code, ratio):
            self.code, self.ratio = code, ratio

        def propose(self, code, generator):
            return self.code, self.ratio

    old = torch.tensor([[0], [0], [1], [1], [2], [2]])
    new = torch.tensor([[1], [2], [0], [2], [0], [1]])
    log_q = torch.linspace(-1, 1, 6, dtype=torch.float64)
    z = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    theta, _ = transport.from_reference(z, old)
    spare_there = torch.where(
        target.space.active(old), 0.0, theta if not transport.spares_pass else z
    ).detach()

    def ratio(code, proposed_code, theta, spare, log_q):
        jump = Jump(target, transport, Script(proposed_code, log_q))
        jump.transport.reference.sample = lambda shape, generator, dtype: spare
        try:
            with torch.no_grad():
                _, (info,) = jump.step(start(target, code, theta), generator)
        finally:
            del jump.transport.reference.sample
        return info

    there = ratio(old, new, theta.detach(), spare_there, log_q)
    # the spare slots that the way back must draw are those that the way there discarded
    with torch.no_grad():
        filled, _ = transport.from_reference(
            transport.to_reference(torch.where(target.space.active(old), theta, spare_there), old)[
                0
            ],
            new,
        )
    spare_back = torch.where(target.space.active(new), 0.0, filled)
    back = ratio(new, old, there.proposed.theta, spare_back, -log_q)
    assert torch.allclose(back.proposed.theta, start(target, old, theta.detach()).theta, atol=1e-9)
    assert torch.allclose(there.log_ratio + back.log_ratio, torch.zeros(6).double(), atol=1e-9)


def test_exact_maps_and_the_exact_proposal_are_never_rejected(generator):
    target = trj.problems.sinh_arcsinh().to(dtype=torch.float64)
    exact = SinhArcsinhMap(target.space)
    log_p = torch.tensor(list(target.truth.probabilities.values())).log()
    kernel = Jump(target, exact, Fixed(target.space, log_p))
    code = target.space.sample_prior(20_000, generator)
    z = torch.randn(20_000, 2, generator=generator, dtype=torch.float64)
    state = start(target, code, exact.from_reference(z, code)[0])
    _, (info,) = kernel.step(state, generator)
    assert float(info.accepted.double().mean()) > 0.999


def two_proposals(space):
    return MixtureProposal([Neighbours(space, swap=0.5), Fixed(space)], [0.8, 0.2])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fixed(toys.gaussians().space),
        lambda: Fixed(toys.gaussians().space, torch.tensor([0.0, 1.0, -1.0])),
        lambda: Fixed(toys.gaussians().space, torch.tensor([0.0, 1.0, -1.0]), other=True),
        lambda: Neighbours(trj.Counts(3, of="w")),
        lambda: Neighbours(trj.Subsets(list("abc"), of="w")),
        lambda: Neighbours(trj.Counts(2, 2, of="w")),
        lambda: Neighbours(trj.Subsets(list("abc"), of="w"), swap=0.3),
        lambda: Neighbours(trj.Subsets(list("ab"), of="w", always=list("ab")), swap=0.3),
        lambda: Fixed(trj.Counts(2, 2, of="w"), other=True),
        lambda: two_proposals(trj.Subsets(list("abc"), of="w")),
        lambda: Stay(toys.gaussians().space),
    ],
)
def test_index_proposals_report_their_own_ratios(make, generator):
    """Against frequencies: q(b | a) as drawn, as stated, and the log ratio as reported."""
    proposal = make()
    codes = proposal.space.enumerate()
    m, n = len(codes), 40_000
    frequency = torch.zeros(m, m, dtype=torch.float64)
    ratio = torch.full((m, m), math.nan, dtype=torch.float64)
    for a in range(m):
        new, log_ratio = proposal.propose(codes[a].expand(n, -1), generator)
        b = proposal.space.index(new)
        frequency[a] = torch.bincount(b, minlength=m).double() / n
        ratio[a, b] = log_ratio.double()
        stated = proposal.log_prob(codes, codes[a].expand(m, -1)).double().exp()
        assert float(stated.sum()) == pytest.approx(1)
        error = (stated * (1 - stated) / n).sqrt()
        assert bool(((frequency[a] - stated).abs() <= 5.5 * error + 1e-9).all())
    for a in range(m):
        for b in range(m):
            if frequency[a, b] > 0:
                assert frequency[b, a] > 0
                expected = float((frequency[b, a] / frequency[a, b]).log())
                error = math.sqrt(1 / (n * frequency[a, b]) + 1 / (n * frequency[b, a]))
                assert abs(expected - float(ratio[a, b])) < 5 * error + 1e-12


def test_the_place_under_a_map_is_remembered_and_forgotten(generator):
    target = toys.gaussians()
    flow = rough_flow(target)
    jump, walk = Jump(target, flow, Fixed(target.space)), RandomWalk(target)
    with torch.no_grad():
        state, _ = jump.step(cases.gaussians().draw(500, generator), generator)
        z, ladj = flow.to_reference(state.theta, state.code)
        active = target.space.active(state.code)
        assert torch.allclose(
            torch.where(active, state.recall(flow)[0], 0.0), torch.where(active, z, 0.0), atol=1e-4
        )
        weight = (
            state.log_joint - ladj - flow.reference.log_density(z, flow.space.active(state.code))
        )
        assert torch.allclose(log_weight(state), weight, atol=1e-3)
        assert state.recall(rough_flow(target)) is None  # of another map
        state, _ = walk.step(state, generator)
        assert state.memo is None


def test_points_outside_the_support_are_rejected_and_nan_is_never_accepted(generator):
    target = toys.skewed_pair()
    state = start(target, torch.zeros(4, 1).long(), torch.zeros(4, 2))
    bad = State(state.code, state.theta + 1, torch.tensor([-math.inf, math.nan, math.inf, 0.0]))
    after, (info,) = trj.kernel.accept(
        "test", state, bad, torch.tensor([-math.inf, math.nan, math.inf, math.inf]), generator
    )
    assert info.accepted.tolist() == [False, False, False, True]
    assert torch.equal(after.theta[:3], state.theta[:3])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t, f: Jump(t, f, rho=1.2), "rho: expected 0 <= rho <= 1, got 1.2"),
        (lambda t, f: Jump(t, f, rho=(0.9, 0.1)), "rho"),
        (lambda t, f: RandomWalk(t, scale=0.0), "must be positive"),
        (lambda t, f: Cycle([]), "at least one"),
        (lambda t, f: Cycle([(RandomWalk(t), 0)]), "at least one, each repeated"),
        (lambda t, f: Neighbours(t.space), "expected a space with neighbours, .* got ModelList"),
        (lambda t, f: Fixed(t.space, torch.zeros(2)), "log_weights: expected 3 numbers"),
        (lambda t, f: Neighbours(trj.Counts(3, of="w"), swap=0.5), "swap: expected a share"),
        (lambda t, f: MixtureProposal([]), "at least one"),
        (lambda t, f: MixtureProposal([Fixed(t.space)] * 2, [0.5, 0.4]), "sum to 1"),
        (lambda t, f: MixtureKernel([]), "at least one"),
        (lambda t, f: MixtureKernel([RandomWalk(t)] * 2, [1.5, -0.5]), "none negative"),
        (lambda t, f: MixtureKernel([RandomWalk(t)] * 2, [1.0]), "expected 2 probabilities"),
        (lambda t, f: HMC(t, leaps=0), "leaps >= 1"),
        (lambda t, f: HMC(t, metric="full"), "expected one of"),
    ],
)
def test_wrong_settings_say_what_is_wrong(make, message):
    target = toys.gaussians()
    with pytest.raises(ConfigurationError, match=message):
        make(target, Identity(target.space))


def test_stay_stays(generator):
    code = torch.tensor([[3], [1]])
    new, ratio = Stay(trj.Counts(3, of="w")).propose(code, generator)
    assert torch.equal(new, code)
    assert not bool(ratio.any())


def as_the_prior(target, fresh_draws=100_000):
    """Model frequencies, and parameters against fresh prior draws."""
    generator = torch.Generator().manual_seed(11)
    p = torch.tensor(list(target.truth.probabilities.values()), dtype=torch.float64)
    fresh = []
    for m in range(len(p)):
        code = torch.full((fresh_draws, 1), m)
        fresh.append(target.constrain(code[0], target.sample_prior(code, generator)))

    def bounded(x):
        return torch.tanh(x.double().reshape(len(x), -1))

    def scores(state):
        found = frequencies(target.space, state.code, p).tolist()
        for m in range(len(p)):
            inside = state.code[:, 0] == m
            if int(inside.sum()) < 100:  # its frequency tells enough
                continue
            here = target.constrain(torch.tensor([m]), state.theta[inside])
            for name in fresh[m]:
                a, b = bounded(here[name]), bounded(fresh[m][name])
                for f in (lambda x: x, lambda x: x**2, lambda x: x[:, :1] * x[:, -1:]):
                    gap = f(a).mean(0) - f(b).mean(0)
                    error = (f(a).var(0) / len(a) + f(b).var(0) / len(b)).sqrt()
                    found += (gap / error).tolist()
        return torch.tensor(found)

    return Case(target, lambda n, generator: from_prior(target, n, generator), scores)


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("simplex", [True, False])
@pytest.mark.parametrize("right", [True, False])
def test_split_and_merge_keep_the_prior(simplex, positive, right, generator, monkeypatch):
    case = as_the_prior(toys.vectors(simplex, positive))
    kernel = SplitMerge(case.target)
    if right:
        seen = stays_exact(kernel, case, generator, steps=STEPS)
        assert float(seen.infos[0].accepted.double().mean()) > 0.1
    else:  # the negative control: what the split draws has no density
        wrong = lambda s, p, r: r.clamp(max=0) + p.log_joint - s.log_joint - r  # noqa: E731
        is_caught(broken(kernel, monkeypatch, wrong), case, generator, steps=STEPS)


def test_only_vectors_that_grow_together_are_split(generator):
    """A and B differ in h, B and C in g, and a stranger has an h of another kind."""

    def model(name, h, g):
        return trj.Model(name, {"h": h, "g": g}, lambda p: torch.zeros(len(p["g"])))

    def normal(n):
        return Normal(torch.zeros(n), 1.0)

    target = trj.Target(
        [
            model("A", normal(1), normal(1)),
            model("B", normal(2), normal(1)),
            model("C", normal(2), normal(2)),
            model("stranger", Dirichlet(torch.full((6,), 2.0)), normal(1)),
        ],
        truth=trj.problems.Truth({"A": 0.25, "B": 0.25, "C": 0.25, "stranger": 0.25}),
    )
    stays_exact(SplitMerge(target), as_the_prior(target), generator, steps=STEPS)


def test_a_gradient_that_breaks_does_not_break_the_answer(generator):
    """sqrt has no gradient left of zero: trajectories there go straight, both ways alike."""
    model = trj.Model(
        "m", {"x": Normal(0.0, 1.0)}, lambda p: torch.where(p["x"] > 0, p["x"].sqrt() * 0, 0.0)
    )
    target = trj.Target([model])
    code = torch.zeros(20_000, 1).long()
    state = start(target, code, target.sample_prior(code, generator))
    kernel = HMC(target, leaps=3, step_size=0.5)
    with torch.no_grad():
        for _ in range(40):
            state, _ = kernel.step(state, generator)
    assert abs(float((state.theta[:, 0] < 0).double().mean()) - 0.5) < 5 * 0.5 / 20_000**0.5


def test_a_dense_metric_takes_long_steps_along_a_narrow_ridge(generator):
    """Coordinates of one variance whose sum is known a hundred times as well as they are."""
    target = trj.Target(
        [trj.Model("m", {"x": Normal(torch.zeros(20), 1.0)}, lambda p: -5e3 * p["x"].mean(1) ** 2)]
    )
    code = torch.zeros(200, 1).long()
    z = torch.randn(200, 20, generator=generator)
    state = start(target, code, z - 0.998 * z.mean(1, keepdim=True))
    sizes = {}
    for metric in ("diagonal", "dense"):
        kernel, _ = toys.warmed(HMC(target, metric=metric), state, generator, 80)
        (sizes[metric],) = kernel.adapted()["step size"]
    assert sizes["dense"] > 5 * sizes["diagonal"]
    with pytest.raises(ConfigurationError, match="too many"):
        HMC(trj.problems.variable_selection(12), metric="dense")


def test_draws_through_exact_maps_are_independent(generator):
    """Exact maps and q(k') = p(k' | y): the indicator has autocorrelation time 1."""
    target = trj.problems.sinh_arcsinh().to(dtype=torch.float64)
    log_p = torch.tensor(list(target.truth.probabilities.values())).log()
    kernel = Jump(target, SinhArcsinhMap(target.space), Fixed(target.space, log_p), rho=0.0)
    code = Fixed(target.space, log_p).sample(torch.zeros(2000, 1).long(), generator)
    z = torch.randn(2000, 2, generator=generator, dtype=torch.float64)
    state = start(target, code, kernel.transport.from_reference(z, code)[0])
    seen = []
    with torch.no_grad():
        for _ in range(200):
            state, _ = kernel.step(state, generator)
            seen.append(state.code[:, 0])
    indicator = torch.stack(seen, 1).double().numpy()
    assert autocorrelation_time(indicator) == pytest.approx(1.0, abs=0.15)  # from 2000 means
    gap = indicator - indicator.mean()
    rho = [(gap[:, lag:] * gap[:, :-lag]).mean() / gap.var() for lag in (1, 2, 3)]
    assert 1 + 2 * sum(rho) == pytest.approx(1.0, abs=0.05)


def test_split_and_merge_need_vectors_that_grow():
    assert SplitMerge.fits(toys.vectors()) and not SplitMerge.fits(toys.conjugate_subsets())
    with pytest.raises(ConfigurationError, match="use BirthDeath"):
        SplitMerge(toys.gaussians())
    two = trj.Target(
        [
            trj.Model("a", {"x": Normal(torch.zeros(2), 1.0)}, lambda p: p["x"].sum(-1) * 0),
            trj.Model("b", {"x": Normal(torch.zeros(4), 1.0)}, lambda p: p["x"].sum(-1) * 0),
        ]
    )
    assert not SplitMerge.fits(two)  # two entries more
