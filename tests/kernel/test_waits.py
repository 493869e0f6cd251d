"""Steps on a device: nothing is copied to the host, nothing waited for, and the host's answers."""

import pytest
import torch

import trjmcmc as trj
from tests import toys
from tests.cases import from_prior, learned_exchange
from tests.emulated import DEVICE, Emulated, carried
from tests.graphs.small import data
from tests.kernel.test_families import Problem
from tests.kernels import COMPONENT_KERNELS, KERNELS
from tests.target.test_ordered import MAPS as ORDERED
from trjmcmc import graphs
from trjmcmc.kernel import (
    HMC,
    BirthDeath,
    BlockGibbs,
    CrankNicolson,
    Cycle,
    EdgeReversal,
    Fixed,
    GraphWalk,
    Jump,
    LayerGibbs,
    MixtureKernel,
    Neighbours,
    ParentGibbs,
    RandomWalk,
    SplitMerge,
    State,
    UnitGibbs,
    start,
)
from trjmcmc.kernel.graphs.families import FamilyJump, FamilyRefresh
from trjmcmc.run.recorded import Crossings, Tally

CHAINS, STEPS = 12, 2


def on(make_target, make, place=from_prior):
    return lambda: (target := make_target(), make(target), lambda n, g: place(target, n, g))


def of_bge(make, nodes=4):
    return on(lambda: graphs.target(graphs.bge(data(nodes))), make)


def of_families(make):
    def built():
        problem = Problem(torch.Generator().manual_seed(0))
        return problem.target, make(problem), lambda n, g: problem.state

    return built


def through_order(target):
    flow = ORDERED["flow"](target.space)
    jump = Jump(target, flow, Fixed(target.space), rho=0.7)
    return Cycle([jump, CrankNicolson(target, flow), HMC(target, flow, leaps=2)])


def by_laplace(walk):
    def make(target):
        flow = trj.transport.LaplaceMap(target)
        jump = Jump(target, flow, walk(flow), rho=0.7)
        return Cycle([jump, CrankNicolson(target, flow), RandomWalk(target)])

    return make


def sum_of_three():
    """An increasing vector, beside a model without any."""

    def log_likelihood(p):
        return -0.5 * (p["at"].sum(-1) - 1.0).square()

    at = trj.Ordered(torch.distributions.Normal(0.0, 1.0), 3)
    return trj.Target(
        [trj.Model("none", {}, lambda p: -0.5), trj.Model("at", {"at": at}, log_likelihood)]
    )


BATTERY = {
    **{name: on(toys.gaussians, make) for name, make in KERNELS.items()},
    **{f"components: {n}": on(toys.silent_components, m) for n, m in COMPONENT_KERNELS.items()},
    "components without sums": on(
        lambda: toys.silent_components(additive=False), COMPONENT_KERNELS["all"]
    ),
    "exchange of amplitudes": on(toys.seen_sum, lambda t: learned_exchange(t, (1, 1))),
    "exchange, one more": on(toys.waves, lambda t: learned_exchange(t, (0, 1))),
    "exchange of two": on(toys.waves, lambda t: learned_exchange(t, (2, 2))),
    "components in order": on(toys.silent_components, through_order),
    "increasing vectors": on(
        sum_of_three, lambda t: Cycle([BirthDeath(t, Fixed(t.space)), RandomWalk(t), HMC(t)])
    ),
    "splits of vectors": on(toys.vectors, SplitMerge),
    "units in turn, or births": on(
        toys.conjugate_subsets,
        lambda t: MixtureKernel([UnitGibbs(t), BirthDeath(t, Neighbours(t.space))], [0.9, 0.1]),
    ),
    "blocks of units": on(toys.blocks_and_fixed, UnitGibbs),
    "births by Laplace's map": on(
        toys.conjugate_subsets, by_laplace(lambda flow: Neighbours(flow.space))
    ),
    "graphs: walk": of_bge(GraphWalk),
    "graphs: births": of_bge(lambda t: BirthDeath(t, Neighbours(t.space))),
    "graphs: family walk": of_families(
        lambda p: FamilyJump(p.target, p.families, p.to("walk"), tries=2)
    ),
    "graphs: family refresh": of_families(lambda p: FamilyRefresh(p.target, p.families, tries=2)),
}

# draws of other random numbers there
OTHER_NUMBERS = {
    "birth-death",
    "two births and deaths",
    "increasing vectors",
    "graphs: births",
    "graphs: family walk",
    "normal independence",
    "births by marginals, new values",
    "mixture of kernels",
    "units in turn, or births",
    "blocks of units",
    "exchange, one more",
    "exchange of two",
    "exchange of amplitudes",
    "components: births from the prior",
    "components: learned births",
    "components: shared",
    "components: common",
    "components: all",
    "components without sums",
}

USERS = ("tests/", "trjmcmc/problems")  # likelihoods and maps of users


def begun(make):
    """A target, a kernel and some chains."""
    target, kernel, place = make()
    state = place(CHAINS, torch.Generator().manual_seed(3))
    return target, kernel, State(*(x[:CHAINS] for x in state[:3]))


def counted_steps(target, kernel, state, generator, device=None, steps=STEPS):
    """Some steps as a run makes them, counting; after others, in which tables are filled."""
    few = target.space.size is not None and target.space.size < 100
    between = {part.name for part in kernel.parts() if part.between}
    tally, crossings = Tally(target), few and Crossings(target, CHAINS, between)
    kernel, state, _ = kernel.adapt(state, generator)
    kernel = kernel.frozen()
    for part in kernel.parts():
        if isinstance(
            getattr(part, "transport", None), trj.transport.LaplaceMap
        ):  # it has met all models
            part.transport.log_evidence(target.space.enumerate())
    if device is not None:
        device.clear()
    for _ in range(steps):
        state, infos = kernel.step(state, generator)
        tally.add(infos)
        if crossings:
            crossings.add(infos)
    return state


def crossed(make, users=USERS, steps=STEPS):
    """Where some steps on the device led, and what they crossed by themselves."""
    made = begun(make)
    with Emulated() as device, torch.no_grad():
        generator = torch.Generator(DEVICE).manual_seed(1)
        state = counted_steps(*carried(made), generator, device, steps)
        found = {k: n for k, n in device.counts().items() if not k[2].startswith(users)}
        return State(*(x.cpu() for x in state[:3])), found


@pytest.mark.parametrize("name", BATTERY)
def test_a_step_waits_for_nothing_and_gives_what_the_host_gives(name):
    state, found = crossed(BATTERY[name])
    assert not found
    if name not in OTHER_NUMBERS:
        with torch.no_grad():
            here = counted_steps(*begun(BATTERY[name]), torch.Generator().manual_seed(1))
        assert torch.equal(state.code, here.code)
        torch.testing.assert_close(state.theta, here.theta, rtol=1e-3, atol=1e-4)


@pytest.mark.whole
@pytest.mark.parametrize("name", BATTERY)
def test_a_hundred_steps_wait_for_nothing(name):
    assert not crossed(BATTERY[name], steps=100)[1]


@pytest.mark.parametrize("make", [BlockGibbs, LayerGibbs, ParentGibbs])
def test_moves_by_tables_ask_whether_rounding_has_spoiled_a_draw(make):
    _, found = crossed(of_bge(make))
    assert sum(found.values()) == STEPS


def test_reversals_of_edges_ask_it_four_times():
    """And once more where it has."""
    _, found = crossed(of_bge(EdgeReversal))
    assert 4 * STEPS <= sum(found.values()) <= 6 * STEPS


@pytest.mark.parametrize("chains", [5, 50])
def test_laplaces_map_asks_once_a_lookup_whether_models_are_new(chains):
    target = trj.problems.variable_selection(12)
    with Emulated() as device, torch.no_grad():
        there = carried(target)
        flow, generator = trj.transport.LaplaceMap(there), torch.Generator(DEVICE).manual_seed(1)
        code = there.space.sample_prior(chains, generator)
        z = flow.reference.sample((chains, 12), generator, there.dtype)
        flow.push(z, code)
        device.clear()
        theta, _ = flow.push(z, code)
        assert sum(device.counts().values()) == 1
        known = trj.transport.LaplaceMap(target).push(z.cpu(), code.cpu())[0]
        torch.testing.assert_close(theta.cpu(), known, rtol=1e-3, atol=1e-3)


class Curious(RandomWalk):
    """A negative control: it looks at a value, takes rows by a mask, and brings numbers along."""

    def step(self, state, generator):
        if bool((state.log_joint > 0).any()):
            state = start(self.frame.target, state.code, state.theta)
        finite = state.theta[state.log_joint.isfinite()]
        one = torch.tensor([1.0], device=state.theta.device)
        return super().step(state._replace(theta=state.theta * one + 0 * finite.sum()), generator)


def test_what_looks_at_values_is_caught():
    _, found = crossed(on(toys.waves, Curious), users="?")
    mine = {key[:2]: n for key, n in found.items() if "test_waits" in key[2]}
    assert mine == {
        ("to device", "aten::_to_copy"): STEPS,
        ("wait", "aten::_local_scalar_dense"): STEPS,
        ("wait", "aten::index"): STEPS,
    }


def test_a_device_keeps_its_tensors_apart():
    with Emulated() as device:
        x = torch.ones(3, device=DEVICE)
        with pytest.raises(RuntimeError, match="same device"):
            x + torch.ones(3)
        with pytest.raises(TypeError, match="numpy"):
            x.numpy()
        with pytest.raises(RuntimeError, match="generator"):
            torch.rand(3, generator=torch.Generator(), device=DEVICE)
        assert x.tolist() == [1.0, 1.0, 1.0]
    assert device.counts() == {("to host", "aten::_to_copy", device.crossings[0].place): 1}
