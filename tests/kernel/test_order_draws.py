"""Independent draws of graphs by orders in normal form: against all graphs, one by one."""

import math
from itertools import pairwise, permutations

import pytest
import torch

from tests.battery import limit
from tests.graphs.small import data, random_table
from trjmcmc import graphs
from trjmcmc.errors import ConfigurationError
from trjmcmc.kernel import GraphDraws, start
from trjmcmc.kernel.graphs.local import LocalWeights
from trjmcmc.kernel.graphs.orders import OrderDraws
from trjmcmc.space.paths import adjacency

SPACES = {
    "all": {},
    "fair": {"prior": "fair"},
    "required": {"required": [("x0", "x1")]},
    "forbidden": {"forbidden": [("x0", "x1"), ("x2", "x1")]},
    "one parent": {"max_parents": 1},
}


def problem(d, spread, generator, candidates=None, **settings):
    """A target of random scores, all its graphs, and their probabilities."""
    names = [f"x{i}" for i in range(d)]
    table = random_table(d, generator, spread)
    others = torch.tensor([[i for i in range(d) if i != j] for j in range(d)]).long().view(d, -1)
    others = others[:, : d - 1 if candidates is None else candidates]
    places = torch.arange(2 ** others.shape[1])
    masks = (((places[:, None, None] >> torch.arange(others.shape[1])) & 1) << others).sum(-1).T
    scores = graphs.LocalScores(names, table.gather(1, masks), others)
    target = graphs.target(scores, **settings)
    code = target.space.enumerate()
    return target, code, target.log_joint(code, torch.zeros(len(code), 0).double())


def worst(target, code, log_joint, drawn):
    """Largest deviation of the counts of graphs, in standard errors, and how many were judged."""
    n, p = len(drawn), log_joint.softmax(0)
    counts = torch.bincount(target.space.index(drawn), minlength=len(code)).double()
    assert int(counts[n * p < 1e-7].sum()) == 0
    often = (n * p > 20) & (p < 1 - 1e-9)
    z = ((counts - n * p) / (n * p * (1 - p)).sqrt())[often]
    return (float(z.abs().max()) if len(z) else 0.0), max(1, len(z))


@pytest.mark.parametrize("settings", SPACES)
@pytest.mark.parametrize(("d", "spread"), [(1, 1.0), (2, 1.0), (3, 2.0), (4, 1.0), (4, 40.0)])
def test_draws_are_as_probable_as_they_should_be(d, spread, settings, generator):
    if d < 3 and settings in ("required", "forbidden"):
        pytest.skip("names nodes that are not there")
    target, code, log_joint = problem(d, spread, generator, **SPACES[settings])
    drawn = OrderDraws(LocalWeights(target)).sample(40_000, generator)
    z, number = worst(target, code, log_joint, drawn)
    assert z < limit(number)


def test_nodes_with_few_candidates(generator):
    target, code, log_joint = problem(4, 1.0, generator, candidates=2)
    assert len(code) < 543
    z, number = worst(
        target, code, log_joint, OrderDraws(LocalWeights(target)).sample(40_000, generator)
    )
    assert z < limit(number)


def test_orders_that_are_not_normal_would_count_graphs_twice(generator):
    """A negative control: what is proposed, all of it kept."""
    target, code, log_joint = problem(4, 1.0, generator)
    draws = OrderDraws(LocalWeights(target))
    proposed, kept = draws.propose(40_000, generator)
    assert 0.5 < float(kept.double().mean()) < 0.99
    assert worst(target, code, log_joint, proposed[kept])[0] < limit(len(code))
    assert worst(target, code, log_joint, proposed)[0] > 10


def orders_of(code, node):
    """Orders that a graph allows in which one after a node of a higher rank is a child of it."""
    rank = {int(j): r for r, j in enumerate(node)}
    parents = [{i for i in range(len(code)) if m >> i & 1} for m in code.tolist()]
    number = 0
    for order in permutations(range(len(code))):
        allowed = all(parents[j] <= set(order[:t]) for t, j in enumerate(order))
        falls = [(a, b) for a, b in pairwise(order) if rank[a] > rank[b]]
        number += allowed and all(a in parents[b] for a, b in falls)
    return number


def test_the_sum_is_over_orders_whose_falls_are_edges(generator):
    target, code, log_joint = problem(4, 1.0, generator)
    draws = OrderDraws(LocalWeights(target))
    weight = log_joint + math.log(len(code))  # the prior is uniform
    number = torch.tensor([orders_of(c, draws._node) for c in code]).double()
    assert float(number.min()) == 1  # the normal form is among them
    assert draws.log_total == pytest.approx(float((weight + number.log()).logsumexp(0)))
    share = float((weight.logsumexp(0) - draws.log_total).exp())
    assert abs(draws.rate - share) < 5 * math.sqrt(share * (1 - share) / 4096)


def test_edges_of_thirteen_nodes(generator):
    scores = graphs.bge(data(13, 60))
    target = graphs.target(scores)
    kernel, n = GraphDraws(target), 2000
    state = start(target, torch.zeros(n, 13, dtype=torch.long), torch.zeros(n, 0).double())
    state, (info,) = kernel.step(state, generator)
    assert bool(info.accepted.all())
    answer = graphs.exact(scores)
    assert torch.equal(answer.sample(5, seed=1), answer.sample(5, seed=1))
    exact = torch.tensor(answer.edges.to_numpy())
    z = (adjacency(state.code).double().mean(0) - exact) / (exact * (1 - exact) / n).sqrt()
    often = n * exact * (1 - exact) > 20
    assert float(z[often].abs().max()) < limit(int(often.sum()))


def test_tables_that_are_too_large_are_refused(monkeypatch):
    monkeypatch.setattr("trjmcmc.kernel.graphs.sums.MOST_NUMBERS", 1000)
    with pytest.raises(ConfigurationError, match="fewer candidates"):
        GraphDraws(graphs.target(graphs.bge(data(13))))


def test_where_hardly_any_order_is_normal_it_says_so():
    x = torch.randn(100, 16, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ConfigurationError, match="take LayerGibbs"):
        GraphDraws(graphs.target(graphs.bge(x)))
