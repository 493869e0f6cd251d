"""Blocks of nodes with new parents: against all graphs of three and four nodes."""

import math

import pytest
import torch

from tests.battery import limit
from tests.graphs.small import data
from tests.kernel.test_order_draws import SPACES, problem, worst
from trjmcmc import graphs
from trjmcmc.kernel import BlockGibbs, start
from trjmcmc.kernel.graphs import normal
from trjmcmc.kernel.graphs.sums import ParentSums
from trjmcmc.space.paths import acyclic
from trjmcmc.target.tempered import Tempered


def drawn(target, code, node, generator, orders=1):
    kernel = BlockGibbs(target, size=node.shape[1], orders=orders)
    return kernel._drawn(code, node, ParentSums(kernel._local), generator)


@pytest.mark.parametrize("settings", SPACES)
@pytest.mark.parametrize("block", [[0], [2, 1], [0, 3, 1], [3, 1, 0, 2]])
def test_a_block_is_drawn_given_the_other_nodes(block, settings, generator):
    """The draws of the parents of a block from one graph, among all that agree elsewhere."""
    target, code, log_joint = problem(4, 1.5, generator, **SPACES[settings])
    others = [j for j in range(4) if j not in block]
    for first in torch.multinomial(torch.ones(len(code)), 2, generator=generator):
        alike = (code[:, others] == code[first, others]).all(1)
        given = log_joint.masked_fill(~alike, -math.inf)
        n = 20_000
        rows = code[first].expand(n, -1)
        new, kept = drawn(target, rows, torch.tensor(block).expand(n, -1), generator)
        assert 0.3 < float(kept.double().mean()) <= 1.0
        z, number = worst(target, code, given, new[kept])
        assert z < limit(2 * number)


def test_orders_that_are_not_normal_would_count_graphs_twice(generator, monkeypatch):
    """A negative control: all that is drawn is taken."""
    target, code, log_joint = problem(4, 1.0, generator)
    monkeypatch.setattr(
        normal, "is_normal", lambda rank, parents: torch.ones(len(rank), dtype=torch.bool)
    )
    n = 20_000
    rows, block = code[:1].expand(n, -1), torch.tensor([0, 1, 2, 3]).expand(n, -1)
    new, kept = drawn(target, rows, block, generator)
    assert bool(kept.all()) and worst(target, code, log_joint, new)[0] > 10


@pytest.mark.parametrize("size", [1, 2, 3, 9])
@pytest.mark.parametrize("candidates", [2, None])
def test_the_posterior_stays_as_it_is(size, candidates, generator):
    target, code, log_joint = problem(4, 1.5, generator, candidates=candidates)
    kernel, n = BlockGibbs(target, size=size), 20_000
    at = torch.multinomial(log_joint.softmax(0), n, True, generator=generator)
    state = start(target, code[at], torch.zeros(n, 0).double())
    for _ in range(2):
        state, _ = kernel.step(state, generator)
    z, number = worst(target, code, log_joint, state.code)
    assert z < limit(number)
    torch.testing.assert_close(state.log_joint, target.log_joint(state.code, state.theta))


@pytest.mark.whole
def test_chains_forget_where_they_began(generator):
    target, code, log_joint = problem(4, 1.0, generator)
    kernel, n = BlockGibbs(target, size=3), 10_000
    state = start(target, torch.zeros(n, 4, dtype=torch.long), torch.zeros(n, 0).double())
    for _ in range(40):
        state, _ = kernel.step(state, generator)
    z, number = worst(target, code, log_joint, state.code)
    assert z < limit(number)


def test_it_follows_the_power_of_the_target(generator):
    target, code, _ = problem(3, 2.0, generator)
    n, tempered = 10_000, Tempered(target, 1.0)
    kernel = BlockGibbs(tempered, size=3, orders=8)
    for power in (0.3, 1.0):
        tempered.temper(power)
        state = start(tempered, code[:1].expand(n, -1), torch.zeros(n, 0).double())
        for _ in range(3):
            state, _ = kernel.step(state, generator)
        log_joint = tempered.log_joint(code, torch.zeros(len(code), 0).double())
        z, number = worst(target, code, log_joint, state.code)
        assert z < limit(number)


def test_many_nodes_and_sharp_scores(generator):
    """Scores of thousands of nats: no cycles, no numbers that are none."""
    target = graphs.target(graphs.bge(100 * data(40, 2000), candidates=6))
    kernel, n = BlockGibbs(target), 16
    state = start(target, torch.zeros(n, 40, dtype=torch.long), torch.zeros(n, 0).double())
    first = state.log_joint
    for _ in range(20):
        state, _ = kernel.step(state, generator)
    assert bool(acyclic(state.code).all()) and bool(state.log_joint.isfinite().all())
    assert bool((state.log_joint > first + 1000).all())
