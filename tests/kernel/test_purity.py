"""A step is a function of its arguments: chains go on as they would have from what is saved."""

import copy
import pickle
import random

import pytest
import torch

from tests import cases, toys
from tests.kernels import COMPONENT_KERNELS, KERNELS
from trjmcmc.kernel import (
    HMC,
    ComponentBirthDeath,
    ComponentSplitMerge,
    ComponentWalk,
    Cycle,
    Kernel,
    MixtureKernel,
    RandomWalk,
    SplitMerge,
    State,
    UnitGibbs,
    start,
)
from trjmcmc.kernel.base import Memo

C = 60  # chains


def from_prior(target, generator):
    code = target.space.sample_prior(C, generator)
    return start(target, code, target.sample_prior(code, generator))


def of_subsets(make):
    return lambda: (target := toys.conjugate_subsets(), make(target), from_prior)


def of_components(make, additive=True):
    return lambda: (target := toys.silent_components(additive), make(target), from_prior)


BATTERY = {
    **{
        name: lambda make=make: (
            target := toys.gaussians(),
            make(target),
            lambda t, g: cases.gaussians().draw(C, g),
        )
        for name, make in KERNELS.items()
    },
    **{f"components: {n}": of_components(make) for n, make in COMPONENT_KERNELS.items()},
    "split and merge": lambda: (target := toys.vectors(), SplitMerge(target), from_prior),
    "units in turn": of_subsets(UnitGibbs),
}

LEARNERS = {
    "HMC": of_subsets(lambda t: HMC(t, step_size=2.0)),
    "HMC in a dense metric": of_subsets(lambda t: HMC(t, metric="dense")),
    "units in turn": of_subsets(UnitGibbs),
    "components": of_components(
        lambda t: Cycle([ComponentBirthDeath(t), ComponentSplitMerge(t), ComponentWalk(t)])
    ),
    "mixture": of_subsets(
        lambda t: MixtureKernel([HMC(t), Cycle([UnitGibbs(t), RandomWalk(t)])], [0.4, 0.6])
    ),
}


def same(a, b):
    """Whether two states are the same bit by bit, memo included."""
    pairs = list(zip(a[:3], b[:3], strict=True))
    assert (a.memo is None) == (b.memo is None)
    if a.memo is not None:
        assert a.memo.owner is b.memo.owner
        pairs += zip(a.memo.values, b.memo.values, strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


def saved(state, generator):
    """A checkpoint: tensors alone, and whose the memo is."""
    memo = None if state.memo is None else state.memo.values
    owner = None if state.memo is None else state.memo.owner
    return pickle.dumps((state[:3], memo, generator.get_state())), owner


def restored(checkpoint, owner):
    place, memo, at = pickle.loads(checkpoint)
    state = State(*place, None if memo is None else Memo(owner, memo))
    generator = torch.Generator()
    generator.set_state(at)
    return state, generator


def walked(kernel, state, generator, steps):
    with torch.no_grad():
        for _ in range(steps):
            state, infos = kernel.step(state, generator)
    return state, infos


@pytest.mark.parametrize("name", BATTERY)
def test_a_step_is_a_function_of_its_arguments(name, generator):
    target, kernel, place = BATTERY[name]()
    state = place(target, generator)
    untouched = pickle.dumps(state[:3])
    first, _ = walked(kernel, state, again := torch.Generator().manual_seed(1), 4)
    second, _ = walked(kernel, state, torch.Generator().manual_seed(1), 4)
    assert same(first, second)
    assert pickle.dumps(state[:3]) == untouched
    # saved in the middle, the chain goes on as it would have
    checkpoint = saved(first, again)
    on, infos = walked(kernel, first, again, 4)
    resumed, there = walked(kernel, *restored(*checkpoint), 4)
    assert same(on, resumed)
    assert all(torch.equal(a.log_ratio, b.log_ratio) for a, b in zip(infos, there, strict=True))


class HiddenStream(Kernel):
    """A broken kernel for the negative control: its walk has a stream of its own."""

    def __init__(self, target):
        self.walk, self.random = RandomWalk(target), random.Random(0)

    def step(self, state, generator):
        again = torch.Generator().manual_seed(self.random.getrandbits(32))
        return self.walk.step(state, again)


class Learning(Kernel):
    """A broken kernel for the negative control: it learns in its steps."""

    def __init__(self, target):
        self.kernel = HMC(target)

    def step(self, state, generator):
        self.kernel, state, infos = self.kernel.adapt(state, generator)
        return state, infos


@pytest.mark.parametrize("make", [HiddenStream, Learning])
def test_hidden_streams_and_lessons_fail_the_same_check(make, generator):
    target = toys.gaussians()
    kernel, state = make(target), cases.gaussians().draw(C, generator)
    found = [walked(kernel, state, torch.Generator().manual_seed(1), 4)[0] for _ in range(2)]
    assert not same(*found)


@pytest.mark.whole
@pytest.mark.parametrize("name", LEARNERS)
def test_a_warm_up_leaves_its_kernel_alone_and_gives_another(name, generator):
    target, kernel, place = LEARNERS[name]()
    state = place(target, generator)
    before = copy.deepcopy([part.adapted() for part in kernel.parts()])
    found = []
    for _ in range(2):  # two runs of one kernel object and one seed
        again = torch.Generator().manual_seed(5)
        warm, there = kernel, state
        with torch.no_grad():
            for _ in range(70):
                warm, there, _ = warm.adapt(there, again)
            warm = warm.frozen()
            assert [part.adapted() for part in kernel.parts()] == before
            for _ in range(10):
                there, _ = warm.step(there, again)
        found.append((there.theta, [part.adapted() for part in warm.parts()]))
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1] != before
