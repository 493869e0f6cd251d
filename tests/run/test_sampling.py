"""Sampling in blocks: a block begins from plain data, with the bits of the run in one piece."""

import io

import pytest
import torch

import trjmcmc as trj
from tests import cases, toys
from tests.kernel.test_purity import BATTERY, HiddenStream
from trjmcmc.draws import Recorder
from trjmcmc.kernel import Jump, SweepWalk
from trjmcmc.run.sampling import SamplingPlan, Shard, Walk, advance, begin


def through_a_file(shard):
    """The shard as it comes back from data alone."""
    buffer = io.BytesIO()
    torch.save(shard._asdict(), buffer)
    buffer.seek(0)
    return Shard(**torch.load(buffer, weights_only=True))


def planned(name, generator):
    target, kernel, place = BATTERY[name]()
    few = target.space.few and target.space.several
    return SamplingPlan(target, kernel, few, few), place(target, generator)


def same(a, b):
    """Whether two nested structures are the same bit by bit."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b


@pytest.mark.whole
@pytest.mark.parametrize("name", BATTERY)
def test_blocks_give_the_draws_and_sums_of_one_piece(name, generator):
    plan, state = planned(name, generator)
    ancestor = torch.arange(len(state.code)) // 2
    shard = begin(plan, state, 1, 0, ancestor)
    whole, end = advance(plan, shard, 5, thin=2)
    first, middle = advance(plan, shard, 2, thin=2)
    second, last = advance(plan, through_a_file(middle), 3, thin=2)
    for x, a, b in zip(whole[:3], first[:3], second[:3], strict=True):
        assert torch.equal(x, torch.cat([a, b]))
    assert same(end, last) and same(whole.ancestor, second.ancestor)


def test_a_hidden_stream_fails_the_same_check(generator):
    target = toys.gaussians()
    plan = SamplingPlan(target, HiddenStream(target))
    shard = begin(plan, cases.gaussians().draw(60, generator), 1, 0)
    assert not same(advance(plan, shard, 4)[0], advance(plan, shard, 4)[0])


def test_what_maps_remember_is_part_of_the_state(generator):
    """Values differ in their last digits by what was found together; here they are told apart."""
    target = trj.problems.variable_selection(12)
    flow = trj.Laplace(target)
    plan = SamplingPlan(target, Jump(target, flow, SweepWalk(flow), rho=0.7))
    code = target.space.sample_prior(8, generator)
    state = trj.kernel.start(target, code, target.sample_prior(code, generator))
    walk = Walk(plan, state, torch.Generator().manual_seed(3))
    recorder = Recorder(9, state.code, state.theta, 1)
    with torch.no_grad():
        for _ in range(4):
            walk.draw(1, recorder)
        kept, begun = walk.shard(), [m["keys"] for m in walk.shard().remembered if "keys" in m]
        for _ in range(5):
            walk.draw(1, recorder)
        ahead = [m["keys"] for m in walk.shard().remembered if "keys" in m]
        assert any(len(a) > len(b) for a, b in zip(ahead, begun, strict=True))
        again = Walk.of(plan, through_a_file(kept), torch.Generator())
        held = [m["keys"] for m in again.shard().remembered if "keys" in m]
        assert same(held, begun)
        other = Recorder(5, state.code, state.theta, 1)
        for _ in range(5):
            again.draw(1, other)
    assert torch.equal(other.draws().theta, recorder.draws().theta[:, 4:])
    assert same(again.shard(), walk.shard())


def test_a_block_leaves_what_its_maps_remember(generator):
    target = toys.conjugate_subsets()
    flow = trj.Laplace(target)
    plan = SamplingPlan(target, Jump(target, flow, SweepWalk(flow), rho=0.7))
    code = target.space.sample_prior(8, generator)
    state = trj.kernel.start(target, code, target.sample_prior(code, generator))
    before = flow.megabytes_used
    shards = [begin(plan, state, 1, n) for n in range(2)]
    alone = [advance(plan, s, 3)[0] for s in shards]
    assert flow.megabytes_used == before
    assert same([advance(plan, s, 3)[0] for s in shards[::-1]][::-1], alone)
    assert not torch.equal(alone[0].theta, alone[1].theta)  # streams of their own
