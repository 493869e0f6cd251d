"""Lost modes of one item of many: what is looked at alone, and what is held."""

import math
import time
import warnings
from itertools import count

import pytest
import torch
from torch.distributions import LogNormal, Normal

import trjmcmc as trj
from trjmcmc.clock import read_from
from trjmcmc.draws import Pool
from trjmcmc.run.items import EVERYWHERE, blocks_of, planted, screen_items
from trjmcmc.target.conditional import Conditional

WIDTH = 60.0  # of the prior of an item


def subsets(second_mode=None, items=6):
    """Items of known evidence; half of the first one's mass, if at all, in a second mode."""
    first = torch.arange(items) == 0

    def log_likelihood(p, active):
        b = p["beta"]
        height = Normal(1.0, 0.5).log_prob(b)
        if second_mode is not None:
            near = Normal(0.0, 0.5).log_prob(b)
            far = Normal(20.0, second_mode).log_prob(b)
            height = torch.where(first, torch.logaddexp(near, far) - math.log(2), height)
        return torch.where(active, height - Normal(0.0, WIDTH).log_prob(b), 0.0).sum(-1)

    space = trj.Subsets([f"b{i}" for i in range(items)], of="beta", prior=0.5)
    return trj.Target(space, {"beta": Normal(0.0, WIDTH)}, log_likelihood)


def passed(problem, generator, share_far=0.0, n=4000):
    """Points as chains have them: the first item's second mode by a share only."""
    width = problem.space.code_width
    code = (torch.rand(n, width, generator=generator) < 0.5).long()
    theta = 1 + 0.5 * torch.randn(n, width, generator=generator)
    theta[:, 0] -= 1
    far = torch.rand(n, generator=generator) < share_far
    theta[far, 0] = 20 + 0.002 * torch.randn(int(far.sum()), generator=generator)
    theta = torch.where(problem.space.active(code), theta, 0.0)
    return Pool(code, theta, problem.log_joint(code, theta))


def regression():
    space = trj.Subsets(["a", "b", "c", "d"], of="beta", always=["a"], blocks=[["b", "c"]])
    return trj.Target(
        space,
        {"beta": Normal(0.0, 2.0), "sigma": LogNormal(0.0, 1.0)},
        lambda p, active: -p["beta"].square().sum(-1) / p["sigma"],
    )


def test_a_conditional_target_holds_all_else(generator):
    problem = regression()
    code = problem.space.code_of("a+b+c+d")
    held = torch.randn(problem.dim, generator=generator)
    free = torch.arange(problem.dim) == 3
    some = Conditional(problem, code, held, free)
    codes, anywhere = code.expand(500, -1), torch.randn(500, problem.dim, generator=generator)
    there = torch.where(free, anywhere, held)
    assert torch.equal(some.log_joint(codes, anywhere), problem.log_joint(codes, there))
    value, gradient = some.log_joint_and_grad(codes, anywhere)
    expected_value, expected = problem.log_joint_and_grad(codes, there)
    assert torch.equal(value, expected_value)
    assert torch.equal(gradient, torch.where(free, expected, 0.0)) and bool(expected.all())
    drawn = some.sample_prior(codes, generator)
    assert bool((drawn[:, ~free] == 0).all())
    assert abs(float(drawn[:, free].std()) - 2.0) < 5 * 2.0 / math.sqrt(1000)
    assert [tuple(v.shape) for v in some.constrain(code, anywhere).values()] == [(500, 1)]
    assert some.to(dtype=torch.float64).log_joint(codes, anywhere.double()).dtype == torch.float64
    assert some.to(dtype=some.dtype) is some


def test_blocks_are_what_one_unit_switches_on_and_what_is_always_on():
    problem = regression()
    blocks = blocks_of(problem.space)
    assert [b.name for b in blocks] == ["b+c", "d", EVERYWHERE]
    assert [int(b.free.sum()) for b in blocks] == [2, 1, 2]
    assert sum(b.free.int() for b in blocks).tolist() == [1] * problem.dim


@pytest.mark.whole
@pytest.mark.parametrize(
    "width, share_far, lost", [(0.002, 0.0, True), (0.002, 0.3, False), (None, 0.0, False)]
)
def test_a_mode_of_one_item_is_met_whatever_the_others_do(generator, width, share_far, lost):
    problem = subsets(width)
    known = trj.TRJSampler(problem, seed=0)._known
    pool = passed(problem, generator, share_far)
    with read_from(time.process_time):  # other jobs may take any time
        found = screen_items(known, 10.0, pool, 0, {})
    said = {s.model: s for s, _ in found}
    assert sorted(said) == [f"b{i}" for i in range(6)]
    assert {m for m, s in said.items() if s.lost} == ({"b0"} if lost else set())
    assert all(s.limit < 3e-4 and s.visited for s in said.values())
    if lost:  # the known half, and as much again without the item
        assert abs(said["b0"].share - 1 / 3) < 0.05
        assert "beta = 20" in said["b0"].note
        finds = [find for _, some in found for find in some]
        state = trj.kernel.start(problem, pool.code, pool.theta)
        moved = planted(problem, state, finds, generator)
        near = (moved.theta[:, 0] - 20).abs() < 0.02
        assert bool(moved.code[near, 0].all()) and 0.2 < float(near.double().mean()) < 0.3
        assert torch.equal(moved.theta[:, 1:], state.theta[:, 1:])


@pytest.mark.whole
def test_an_item_that_chains_never_use_is_looked_at(generator):
    problem = subsets(0.002)
    pool = passed(problem, generator)
    code = pool.code.clone()
    code[:, 0] = 0
    theta = torch.where(problem.space.active(code), pool.theta, 0.0)
    pool = Pool(code, theta, problem.log_joint(code, theta))
    known = trj.TRJSampler(problem, seed=0)._known
    with read_from(time.process_time):
        found = screen_items(known, 10.0, pool, 0, {})
    (said,) = [s for s, _ in found if s.model == "b0"]
    assert said.lost and 0.4 < said.share < 1.1  # what climbs met of it, over the rest


def test_what_was_looked_at_least_comes_first_and_the_rest_is_said(generator):
    problem = subsets()
    known = trj.TRJSampler(problem, seed=0)._known
    pool = passed(problem, generator)
    earlier = {f"b{i}": 1000 * (i != 4) for i in range(6)}
    ticks = count()  # of a clock of its own: other jobs may take any time
    with read_from(lambda: 3e-4 * next(ticks)):
        said = [s for s, _ in screen_items(known, 1e-3, pool, 0, earlier)]
    assert [s.model for s in said if s.draws] == ["b4"]
    assert sum(not s.draws and math.isnan(s.limit) for s in said) == 5
    ticks = count()
    with read_from(lambda: 3e-4 * next(ticks)):  # those that come last take what is left over
        said = [s for s, _ in screen_items(known, 1e-3, pool, 0, earlier, math.inf)]
    assert len(said) == 6 and all(s.draws for s in said)
    assert screen_items(known, 1.0, None, 0, {}) == ()


@pytest.mark.whole
@pytest.mark.planned
def test_a_run_over_subsets_says_what_it_has_lost():
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        sampler = trj.TRJSampler(subsets(0.001, items=8), seed=1)
        with read_from(time.process_time):
            result = sampler.run(progress=False, max_seconds=40.0)
    table = result.inclusion_probabilities(full=True)
    right = (table["probability"] - 0.5).abs() < 4 * table["se"]
    warned = any(issubclass(w.category, trj.errors.TRJWarning) for w in heard)
    unknown = table["se"].isna()
    assert (right | unknown).all() and (warned or not unknown.any())
