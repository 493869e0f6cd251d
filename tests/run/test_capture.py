"""Captured steps are the steps themselves, to rounding; what can not be captured works without."""

import warnings
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.distributions import Gamma, LogNormal, Normal
from torch.fx.experimental.proxy_tensor import make_fx

import trjmcmc as trj
from tests.toys import conjugate_subsets, gaussians
from trjmcmc.draws import Draws
from trjmcmc.errors import ConfigurationError, DisagreementWarning, TRJError
from trjmcmc.kernel import (
    BirthDeath,
    ComponentBirthDeath,
    ComponentWalk,
    CrankNicolson,
    Cycle,
    Fixed,
    Jump,
    Kernel,
    MixtureKernel,
    Neighbours,
    RandomWalk,
    accept,
    start,
)
from trjmcmc.run import in_rounds, stepper
from trjmcmc.run.capture import (
    CapturedStep,
    NotTheSame,
    NotTraceable,
    compiled,
    off_target,
    traced,
)
from trjmcmc.run.count import Tally
from trjmcmc.run.lowering import (
    FEW,
    SHORT,
    assume_factorised,
    short_cumsum,
    short_fill,
    short_put,
    short_scatter,
)
from trjmcmc.run.stepper import Stepper
from trjmcmc.tape import NotCapturable

CHAINS = 12


def counts(infos):
    return Tally.rows(infos), []


def jump_and_walk(target):
    flow = trj.transport.CosmicFlow(target.space, layers=2, hidden=(4,), seed=1)
    to = Fixed(target.space, other=True)
    return Cycle([Jump(target, flow, to, rho=0.9, fresh=0.1), RandomWalk(target, flow)])


def neighbours(target):
    return Cycle([BirthDeath(target, Neighbours(target.space, swap=0.3)), RandomWalk(target)])


def of_components(target):
    return Cycle([ComponentBirthDeath(target), ComponentWalk(target)])


def through_laplace(target):
    flow = trj.transport.LaplaceMap(target)
    flow.log_evidence(target.space.enumerate()[::2])  # the rest is found before the capture
    jump = Jump(target, flow, Neighbours(target.space, swap=0.3), rho=0.7, fresh=0.1)
    return Cycle([jump, CrankNicolson(target, flow, fresh=0.1)])


def gammas():
    """Whose prior draws are rejection samples, of numbers that never change."""
    space = trj.Subsets(["a", "b"], of="x")
    priors = {"x": Gamma(2.0, 1.0)}
    return trj.Target(space, priors, lambda p, active: -(p["x"].sum(-1) - 3.0).square())


def over_the_edge():
    """A likelihood that is NaN where its parameter is large: the usual case is often missed."""

    def log_likelihood(p):
        a = p["a"].sum(-1)
        return torch.where(a.abs() > 1e4, torch.nan, -0.5 * (a / 1e5).square())

    wide = {"a": Normal(torch.zeros(1), 1e3)}
    return trj.Target(
        [trj.Model("one", wide, log_likelihood), trj.Model("none", {}, lambda p: -1.0)]
    )


def mixture():
    """Of normals, whose weights are sums over components: the likelihood sees their rounding."""
    y = torch.linspace(-2.0, 6.0, 15)

    def log_likelihood(total, p):
        return (total[:, :-1] / total[:, -1:]).log().sum(-1)

    def one(p):
        at = Normal(p["mean"][:, None], p["sd"][:, None]).log_prob(y).exp()
        return p["mass"][:, None] * torch.cat([at, torch.ones_like(at[:, :1])], 1)

    priors = {"mass": Gamma(1.0, 1.0), "mean": Normal(0.0, 3.0), "sd": LogNormal(0.0, 0.5)}
    return trj.Target(trj.Counts(5, 1, of=tuple(priors)), priors, trj.Additive(one, log_likelihood))


def begun(target, chains=CHAINS, steps=3, kernel=None):
    generator = torch.Generator().manual_seed(3)
    code = target.space.sample_prior(chains, generator)
    with torch.no_grad():
        state = start(target, code, target.sample_prior(code, generator))
        for _ in range(steps if kernel is not None else 0):
            state, _ = kernel.step(state, generator)
    return state, generator


CASES = {
    "list": (gaussians, lambda t: RandomWalk(t)),
    "list, jumps": (trj.problems.sinh_arcsinh, jump_and_walk),
    "subsets": (conjugate_subsets, neighbours),
    "components": (lambda: trj.problems.pulses(points=20), of_components),
    "components whose sums are delicate": (mixture, of_components),
    "models remembered": (conjugate_subsets, through_laplace),
    "rejection samples": (gammas, neighbours),
    "over the edge": (over_the_edge, lambda t: RandomWalk(t, scale=1e3, name="long walk")),
}


def same_steps(target, kernel, way, steps=6):
    """Steps of both kinds from the same numbers; how many captured ones missed the usual case."""
    state, generator = begun(target, kernel=kernel)
    with torch.no_grad():
        captured = CapturedStep(kernel, counts, state, generator, way)
        mine, twin = state, torch.Generator()
        twin.set_state(generator.get_state())
        for _ in range(steps):
            before = target.evaluations
            state, infos = kernel.step(state, generator)
            asked, before = target.evaluations - before, target.evaluations
            mine, (rows, _) = captured(mine, twin)
            dense = len(target.models) or 1  # each model sees the whole batch, as sums anew do
            assert asked <= target.evaluations - before <= dense * (asked + 2 * CHAINS)
            assert torch.equal(mine.code, state.code)
            torch.testing.assert_close(mine.theta, state.theta)
            torch.testing.assert_close(mine.log_joint, state.log_joint, rtol=1e-4, atol=1e-3)
            for row, expected in zip(rows, Tally.rows(infos), strict=True):
                assert row[:2] == expected[:2]
                assert torch.equal(row.sums, expected.sums)
            assert torch.equal(generator.get_state(), twin.get_state())
    return captured.missed


@pytest.mark.parametrize("case", CASES)
def test_traced_steps_are_the_steps(case):
    make, moves = CASES[case]
    target = make()
    same_steps(target, moves(target), traced)


def test_steps_that_miss_the_usual_case_are_made_again():
    make, moves = CASES["over the edge"]
    target = make()
    assert same_steps(target, moves(target), traced, steps=20)


@pytest.mark.whole
@pytest.mark.parametrize("case", CASES)
def test_compiled_steps_are_the_steps(case):
    make, moves = CASES[case]
    target = make()
    same_steps(target, moves(target), compiled)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.long, torch.bool])
def test_short_running_sums_are_those_of_torch(dim, dtype, generator):
    x = torch.randn(5, 4, 7, generator=generator).mul(3).to(dtype)
    if dtype.is_floating_point:
        x[2, 1, 3], x[4, 0, 2] = torch.inf, torch.nan
    mine, known = short_cumsum(x, dim), x.cumsum(dim)
    assert mine.dtype == known.dtype
    torch.testing.assert_close(mine, known, equal_nan=True)


def test_long_running_sums_are_left_to_torch():
    assert short_cumsum(torch.zeros(3, SHORT + 1), 1) is NotImplemented
    assert short_cumsum(torch.tensor(1.0), 0) is NotImplemented


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.long, torch.bool])
def test_entries_put_in_place_are_where_torch_puts_them(dim, dtype, generator):
    x = torch.randn(5, 4, generator=generator).mul(3).to(dtype)
    size = [5, 4]
    size[dim] = 3
    index = torch.randint(0, x.shape[dim], size, generator=generator)  # some of them twice
    source = torch.randn(*size, generator=generator).mul(3).to(dtype)
    assert torch.equal(short_scatter(x, dim, index, source), x.scatter(dim, index, source))
    assert torch.equal(short_fill(x, dim, index, 1), x.scatter(dim, index, 1))


def test_other_entries_are_left_to_torch():
    x = torch.zeros(3, FEW + 1)
    many = torch.zeros(3, FEW + 1, dtype=torch.long)
    for index in (many, many[:2, :2], many[:, :0]):  # many, not of all rows, none
        source = torch.ones(index.shape)
        assert short_scatter(x, 1, index, source) is NotImplemented
        assert short_fill(x, 1, index, 1.0) is NotImplemented
    assert short_scatter(x, 1, many[:, :2], torch.ones(3, 5)) is NotImplemented


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_entries_put_along_one_dimension_are_those_of_torch(dim, generator):
    x = torch.randn(4, 5, 6, generator=generator)
    index = torch.tensor([2, -1, 0, 2])  # one of them twice, one from the end
    size = [4, 5, 6]
    size[dim] = len(index)
    values = torch.randn(size, generator=generator)
    for given in (values, torch.tensor(3.0)):
        expected = x.clone()
        expected[(slice(None),) * dim + (index,)] = given
        assert torch.equal(short_put(x, [None] * dim + [index], given), expected)


def test_entries_put_by_a_mask_are_those_of_torch(generator):
    x = torch.randn(4, 5, 6, generator=generator)
    for mask in (x[..., 0] > 0, x > 0, x[:, 0, 0] > 0):
        assert torch.equal(
            short_put(x, [mask], torch.tensor(7.0)), x.index_put((mask,), torch.tensor(7.0))
        )
        rows = torch.zeros(int(mask.sum()), *x.shape[mask.dim() :])
        assert rows.numel() == 1 or short_put(x, [mask], rows) is NotImplemented


def test_entries_put_otherwise_are_left_to_torch():
    x, two = torch.zeros(4, 5), torch.tensor([0, 1])
    others = (
        ([two, two], torch.ones(2), False),
        ([None, two], torch.ones(4, 2), True),
        ([torch.zeros(FEW + 1, dtype=torch.long)], torch.ones(FEW + 1, 5), False),
        ([two[None]], torch.ones(1, 2, 5), False),
    )
    for indices, values, accumulate in others:
        assert short_put(x, indices, values, accumulate) is NotImplemented


class Spoilt:
    """A way to execute a graph that changes one of its outputs in some of the chains."""

    def __init__(self, output, chains, by):
        self.output, self.chains, self.by = output, chains, by

    def __call__(self, graph, given):
        def run(*now):
            found = list(graph(*now))
            found[self.output] = found[self.output].clone()
            found[self.output][: self.chains] += self.by
            return found

        return run


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        (Spoilt(0, 2, 1), "draws differ"),
        (Spoilt(1, 2, 0.01), "draws differ"),
        (Spoilt(2, 2, 0.1), "draws differ"),
        (Spoilt(3, 1, 1), "count otherwise"),
    ],
    ids=["models", "parameters", "log joints", "counts"],
)
def test_steps_that_are_others_are_not_taken(monkeypatch, spoilt, said):
    """Compilers make mistakes: what they give is held against the kernel itself."""
    target, (state, generator) = gaussians(), begun(gaussians())
    monkeypatch.setattr(stepper, "WAYS", {"traced": spoilt})
    steps = Stepper(RandomWalk(target), counts, generator, True)
    twin = torch.Generator()
    twin.set_state(generator.get_state())
    with torch.no_grad():
        for _ in range(4):
            after, _ = RandomWalk(target).step(state, twin)
            state, _ = steps(state)
            assert torch.equal(state.theta, after.theta)
    assert said in " / ".join(steps.said)


def test_what_chains_remember_is_compared_too(monkeypatch):
    """Their places under a map, of which the next step begins."""
    target = trj.problems.sinh_arcsinh()
    kernel = jump_and_walk(target)
    state, generator = begun(target, kernel=kernel)
    assert state.memo is not None
    monkeypatch.setattr(stepper, "WAYS", {"traced": Spoilt(3, 1, 0.1)})
    steps = Stepper(kernel, counts, generator, True)
    with torch.no_grad():
        for _ in range(3):
            state, _ = steps(state)
    (line,) = steps.said
    assert "draws differ" in line


def test_an_acceptance_at_the_edge_may_fall_the_other_way(monkeypatch):
    """One chain of three hundred; rounding of a compiled likelihood does that."""
    target, (state, generator) = gaussians(), begun(gaussians(), chains=300)
    monkeypatch.setattr(stepper, "WAYS", {"traced": Spoilt(1, 1, 1.0)})
    steps = Stepper(RandomWalk(target), counts, generator, True)
    with torch.no_grad():
        for _ in range(3):
            state, _ = steps(state)
    assert "steps traced in" in " / ".join(steps.said)


@pytest.mark.whole
def test_kernels_of_a_mixture_leave_each_other_what_they_remember(monkeypatch):
    """A jump through a map hands on its noise; a walk that knows no map hands on none."""
    monkeypatch.setattr(stepper, "WAYS", {"traced": traced})
    target = trj.problems.sinh_arcsinh()
    flow = trj.transport.CosmicFlow(target.space, layers=2, hidden=(4,), seed=1)
    kernels = [RandomWalk(target, flow), RandomWalk(target, name="plain walk")]
    kernel = MixtureKernel(kernels, [0.5, 0.5])
    state, generator = begun(target, kernel=kernel)
    twin = torch.Generator()
    twin.set_state(generator.get_state())
    steps, own = Stepper(kernel, counts, generator, True), Stepper(kernel, counts, twin)
    after = state
    with torch.no_grad():
        for _ in range(30):
            state, _ = steps(state)
            after, _ = own(after)
            torch.testing.assert_close(state.theta, after.theta)
    assert len(steps.said) >= 2 and all("steps traced in" in line for line in steps.said)


def test_a_cycle_that_is_not_the_same_is_said_and_left_whole(monkeypatch):
    target, (state, generator) = gaussians(), begun(gaussians())
    ways = {"compiled": Spoilt(1, 5, 1.0), "traced": traced}
    monkeypatch.setattr(stepper, "WAYS", ways)
    kernel = Cycle([RandomWalk(target), RandomWalk(target)])
    steps = Stepper(kernel, counts, generator, True)
    with torch.no_grad():
        for _ in range(3):
            state, _ = steps(state)
    assert "cycle: steps not compiled" in steps.said[0] and "draws differ" in steps.said[0]
    assert "cycle: steps traced in" in steps.said[1]


def test_steps_that_are_never_the_usual_case_are_not_taken(monkeypatch):
    """What is made again by the kernel itself says nothing of the captured step."""
    monkeypatch.setattr(stepper, "WAYS", {"traced": traced})
    target, (state, generator) = gaussians(), begun(gaussians())
    made = CapturedStep(RandomWalk(target), counts, state, generator, traced)
    run = made._run
    made._run = lambda *given: [*run(*given)[:-1], torch.tensor(False)]
    with pytest.raises(NotTheSame, match="usual case"):
        made.check(state, generator)


def test_steps_that_nothing_is_left_to_check_by_are_not_taken(monkeypatch):
    target, (state, generator) = gaussians(), begun(gaussians())
    monkeypatch.setattr(stepper, "WAYS", {"traced": traced})
    steps = Stepper(RandomWalk(target), counts, generator, True)
    with torch.no_grad():
        state, _ = steps(state)
        with target.account.held_to(2 * CHAINS):
            state, _ = steps(state)
    assert "too few evaluations" in " / ".join(steps.said)


def test_a_wrong_capture_would_be_seen():
    """The negative control: steps a thousandth longer are other steps."""
    target = gaussians()
    kernel = RandomWalk(target)
    state, generator = begun(target, kernel=kernel)
    captured = CapturedStep(RandomWalk(target, scale=1.001), counts, state, generator, traced)
    twin = torch.Generator()
    twin.set_state(generator.get_state())
    with torch.no_grad():
        after, _ = kernel.step(state, generator)
        mine, _ = captured(state, twin)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(mine.theta, after.theta)


# ---- what can't be captured -----------------------------------------------------------------


class NumPyWalk(Kernel):
    """Looks at values, and draws from NumPy."""

    name, within = "numpy walk", True

    def __init__(self, target):
        self.target, self.rng = target, np.random.default_rng(1)

    def step(self, state, generator):
        noise = torch.as_tensor(self.rng.normal(size=state.theta.shape)).to(state.theta)
        return self.moved(state, torch.as_tensor(noise.numpy()), generator)

    def moved(self, state, by, generator):
        theta = torch.where(self.target.space.active(state.code), state.theta + by, 0.0)
        proposed = state._replace(theta=theta, log_joint=self.target.log_joint(state.code, theta))
        return accept(self.name, state, proposed, proposed.log_joint - state.log_joint, generator)


class DataDrawn(NumPyWalk):
    """Draws numbers whose distribution depends on where the chains are."""

    name = "data drawn"

    def weights(self, theta):
        return 1 + theta.abs()

    def step(self, state, generator):
        weight = self.weights(state.theta)
        length = torch.multinomial(weight, 1, True, generator=generator).to(state.theta)
        return self.moved(state, length, generator)


class FilledDrawn(DataDrawn):
    """The same by weights that are filled in place, by a view of them."""

    name = "filled drawn"

    def weights(self, theta):
        weight = torch.ones(*theta.shape, 2)
        first, _ = weight.unbind(-1)
        first[:] = theta.abs()
        return weight.flatten(1)


class OutDrawn(FilledDrawn):
    """The same by weights that are another function's output."""

    name = "out drawn"

    def weights(self, theta):
        weight = torch.empty_like(theta)
        torch.add(torch.ones_like(theta), theta.abs(), out=weight)
        return weight


class BufferDrawn(FilledDrawn):
    """The same by weights in a tensor that outlives the step, written by a view of it."""

    name = "buffer drawn"

    def __init__(self, target):
        super().__init__(target)
        self.buffer = torch.ones(CHAINS, target.dim)

    def weights(self, theta):
        self.buffer.view(-1).copy_(theta.abs().flatten())
        return self.buffer.add_(1)


class Restless(NumPyWalk):
    """Draws from more and more numbers."""

    name, high = "restless", 2

    def step(self, state, generator):
        self.high += 1
        length = torch.randint(self.high, state.theta.shape, generator=generator).to(state.theta)
        return self.moved(state, length, generator)


def births_of_a_list(target):
    return BirthDeath(target, Fixed(target.space, other=True))  # draws by model


def test_a_map_that_does_not_know_all_models_is_left_alone():
    target = trj.problems.variable_selection(8)
    state, generator = begun(target, chains=2)
    kernel = Jump(target, trj.transport.LaplaceMap(target), Neighbours(target.space))
    settings = kernel, counts, state, generator, traced
    with pytest.raises(NotCapturable):
        CapturedStep(*settings, seconds=0.0)
    with target.account.held_to(1e6), pytest.raises(NotCapturable):  # evaluations are limited
        CapturedStep(*settings)
    CapturedStep(*settings)


@pytest.mark.parametrize(
    "kind", [NumPyWalk, DataDrawn, FilledDrawn, OutDrawn, BufferDrawn, births_of_a_list]
)
def test_what_looks_at_values_is_refused(kind):
    target = gaussians()
    state, generator = begun(target)
    before = generator.get_state()
    with pytest.raises(NotCapturable):
        CapturedStep(kind(target), counts, state, generator, traced)
    assert torch.equal(generator.get_state(), before)


def test_draws_that_change_from_step_to_step_are_refused():
    target = gaussians()
    state, generator = begun(target)
    captured = CapturedStep(Restless(target), counts, state, generator, traced)
    with pytest.raises(NotTheSame, match=r"otherwise|other numbers|draws differ"):
        captured.check(state, generator)


@pytest.mark.whole
def test_a_long_scatter_is_not_compiled():
    """Nor one into places of which some are named twice; a trace has its own memory for each."""

    def scattered(a):
        row = a[:, None].expand(-1, FEW + 1)
        many = torch.arange(FEW + 1).expand(len(a), -1)
        return torch.zeros(len(a), FEW + 5).scatter(1, many, row).sum(1)

    for f in (scattered, lambda a: torch.zeros_like(a).index_add(0, torch.arange(len(a)), a)):
        target = reading(f)
        state, generator = begun(target)
        with pytest.raises(NotCapturable, match="read memory before a scatter"):
            CapturedStep(RandomWalk(target), counts, state, generator, compiled)
        same_steps(target, RandomWalk(target), traced)


def reading(f):
    """A target of one coordinate whose likelihood is a function of it, (C,)."""
    model = trj.Model("one", {"a": Normal(0.0, 1.0)}, lambda p: f(p["a"]))
    return trj.Target([model])


def picked(a):
    """Rows by a mask, in whose number nothing shows."""
    far = a > 0.5
    return (-0.5 * a.square()).index_add(0, far.nonzero()[:, 0], torch.ones(int(far.sum())))


@pytest.mark.parametrize(
    "f",
    [
        lambda a: -8.0 * (a > 2.6) * ((n := (a > 2.6).sum().item()) / (n + 1e-30)),
        lambda a: torch.tensor([-0.5 * x**2 for x in a.tolist()]),
        lambda a: a.square() if bool((a < -1e6).any()) else -0.5 * a.square(),
        picked,
    ],
    ids=["a number", "all numbers", "a branch", "rows"],
)
def test_a_likelihood_that_reads_values_is_refused(f):
    """A trace would keep what they are where it is made: n is 0 there nearly always."""
    target = reading(f)
    state, generator = begun(target)
    with pytest.raises(NotTraceable, match="reads values"):
        CapturedStep(RandomWalk(target), counts, state, generator, traced)


@pytest.mark.parametrize(
    "f",
    [
        lambda a: -0.5 * a.square() * torch.tensor(2.0).item(),
        lambda a: (-0.5 * a.square()).masked_fill(a > 0.5, -1.0),
        lambda a: torch.where(a > 0.5, -1.0, -0.5 * a.square()) * len(a) / a.shape[0],
        lambda a: -0.5 * a.square() * (a > -9).masked_fill(a > 0.5, True),
    ],
    ids=["a constant", "a mask", "a shape", "truth values"],
)
def test_a_likelihood_that_reads_no_values_is_captured(f):
    target = reading(f)
    same_steps(target, RandomWalk(target), traced)


def test_kernels_of_a_cycle_are_captured_one_by_one(monkeypatch):
    monkeypatch.setattr(stepper, "WAYS", {"traced": traced})
    target = gaussians()
    walk = Cycle([RandomWalk(target), RandomWalk(target)])
    kernel = Cycle([walk, (NumPyWalk(target), 2)])
    state, generator = begun(target)
    steps = Stepper(kernel, counts, generator, True)
    with torch.no_grad():
        for _ in range(4):
            state, (rows, _) = steps(state)
    assert [row.kernel for row in rows] == ["walk", "walk", "numpy walk", "numpy walk"]
    told = " / ".join(steps.said)
    assert "cycle: steps traced" in told and "numpy walk: steps not captured" in told


def test_a_mixture_in_a_cycle_draws_its_kernel_each_time(monkeypatch):
    """A trace would have drawn it for good: the first, and no log joint would tell."""
    monkeypatch.setattr(stepper, "WAYS", {"traced": traced})
    target = gaussians()
    walks = [RandomWalk(target, name=name) for name in ("a", "b")]
    kernel = Cycle([RandomWalk(target), MixtureKernel(walks)])
    state, generator = begun(target)
    with pytest.raises(NotTraceable, match="decides something for all chains"):
        CapturedStep(kernel, counts, state, generator, traced)
    steps, twin, own = Stepper(kernel, counts, generator, True), state, torch.Generator()
    own.set_state(generator.get_state())
    with torch.no_grad():
        for _ in range(40):
            twin, infos = kernel.step(twin, own)
            state, (rows, _) = steps(state)
            assert [row.kernel for row in rows] == [info.kernel for info in infos]
            torch.testing.assert_close(state.theta, twin.theta)
    assert all("steps traced" in line for line in steps.said)


def test_a_failing_factorisation_is_no_usual_case():
    def function(x):
        return [torch.linalg.cholesky(x), torch.ones(()) > 0]

    good, bad = torch.eye(2), -torch.eye(2)
    graph = make_fx(function)(good)
    assume_factorised(graph)
    graph.recompile()
    run = traced(graph, [good])
    assert bool(run(good)[-1]) and not bool(run(bad)[-1])


def test_what_a_likelihood_remembers_of_a_trace_is_not_left_to_it():
    held = {}

    def f(a):
        held["a"] = a
        return -0.5 * a.square()

    for function in (f, lambda a: f(a) + 0.0 * a.sum().item()):
        target = reading(function)
        state, generator = begun(target)
        with suppress(NotTraceable):
            CapturedStep(RandomWalk(target), counts, state, generator, traced)
        assert type(held["a"]) is torch.Tensor


# ---- whether it pays ------------------------------------------------------------------------


def test_rare_kernels_of_a_mixture_are_left_alone(monkeypatch):
    monkeypatch.setattr(stepper, "WAYS", {"traced": traced})
    target = gaussians()
    rare = RandomWalk(target, name="rare walk")
    often = Cycle([RandomWalk(target), RandomWalk(target)])
    kernel = MixtureKernel([often, rare], [0.95, 0.05])
    state, generator = begun(target)
    steps = Stepper(kernel, counts, generator, True)
    with torch.no_grad():
        for _ in range(60):
            state, _ = steps(state)
    assert len(steps.said) == 2 and steps.said[0].startswith("cycle: steps traced")
    assert steps.said[1] == "rare walk: steps not captured: a small share of all"


# ---- runs -----------------------------------------------------------------------------------


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore")  # of runs that are far too short
def test_a_run_gives_the_same_draws(monkeypatch):
    monkeypatch.setattr(stepper, "WAYS", {"traced": traced})
    asked = {"draws": 20, "chains": 8, "warmup": 10, "fit": False, "progress": False}
    found = [
        trj.TRJSampler(gaussians(), seed=4, compile=mode).run(**asked) for mode in (False, True)
    ]
    assert torch.equal(found[0].raw.code, found[1].raw.code)
    torch.testing.assert_close(found[0].raw.theta, found[1].raw.theta)
    assert found[0].report.acceptance == found[1].report.acceptance
    assert not found[0].report.captured and "steps traced" in found[1].report.captured[0]
    assert "steps traced" in str(found[1].report)


@pytest.mark.filterwarnings("ignore")
def test_a_likelihood_that_can_not_be_captured_works(monkeypatch):
    monkeypatch.setattr(stepper, "WAYS", {"traced": traced})

    def log_likelihood(p):
        return torch.as_tensor(-0.5 * p["a"].detach().numpy().sum(-1) ** 2)

    models = [
        trj.Model("one", {"a": Normal(torch.zeros(1), 1.0)}, log_likelihood),
        trj.Model("none", {}, lambda p: -0.3),
    ]
    sampler = trj.TRJSampler(trj.Target(models), seed=4, compile=True)
    result = sampler.run(draws=20, chains=8, warmup=10, fit=False, progress=False)
    (line,) = result.report.captured  # one of all kernels
    assert "steps not captured" in line and "or NumPy" in line


def late(graph, given):
    """Executed rightly for twenty steps, and with other log joints from then on."""
    calls = []

    def run(*now):
        calls.append(1)
        found = list(graph(*now))
        found[2] = found[2] + 0.5 * (len(calls) > 20)
        return found

    return run


@pytest.mark.whole
@pytest.mark.parametrize(
    ("way", "chains", "wrong"), [(late, 8, True), (late, 2500, True), (traced, 8, False)]
)
def test_steps_that_go_wrong_later_are_said_aloud(monkeypatch, way, chains, wrong):
    """Log joints that draws have kept are held against the target at the end, later ones too."""
    monkeypatch.setattr(stepper, "WAYS", {"traced": way})
    sampler = trj.TRJSampler(gaussians(), seed=4, compile=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = sampler.run(draws=60, chains=chains, warmup=10, fit=False, progress=False)
    alarms = [str(w.message) for w in said if issubclass(w.category, DisagreementWarning)]
    assert any("captured steps have gone wrong" in words for words in alarms) == wrong
    assert bool(result.report.off_target) == wrong
    if wrong:
        assert "nats" in result.report.off_target and "compile=False" in alarms[0]
        monkeypatch.setattr(stepper, "WAYS", {"traced": traced})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert sampler.more(draws=5, progress=False).report.off_target  # they are still there


@pytest.mark.whole
def test_draws_of_plain_steps_are_not_looked_at(monkeypatch):
    """Nor where no step could be captured: whatever is wrong there, no capture has done it."""
    looked = []
    monkeypatch.setattr(in_rounds, "off_target", lambda *given: looked.append(1) or "")
    asked = {"draws": 20, "chains": 8, "warmup": 10, "fit": False, "progress": False}
    for target, compile_ in (
        (reading(lambda a: 0.0 * a.sum().item() + torch.tensor((-0.5 * a**2).tolist())), True),
        (gaussians(), False),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trj.TRJSampler(target, seed=4, compile=compile_).run(**asked)
    assert not looked


def test_a_target_that_fails_at_kept_draws_is_told(generator):
    target = gaussians()
    code = target.space.sample_prior(200, generator)
    theta = target.sample_prior(code, generator)
    log_joint = target.log_joint(code, theta)
    draws = Draws(code[:, None], theta[:, None], log_joint[:, None], 1)
    assert off_target(target, draws, 50) == "" == off_target(target, draws, 1000, deadline=0.0)
    assert "200 of 200 draws, by up to 1 nats" in off_target(
        target, replace(draws, log_joint=draws.log_joint + 1), 1000
    )

    def fails(*given):
        raise TRJError("it fails")

    target.log_joint = fails
    assert "it fails" in off_target(target, draws, 50)


def test_compile_is_one_of_three():
    with pytest.raises(ConfigurationError, match="compile"):
        trj.TRJSampler(gaussians(), compile="always")
