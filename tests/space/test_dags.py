"""The space of acyclic graphs: counts, priors, draws, names, neighbours, bad input."""

import math

import pytest
import torch

import trjmcmc as trj
from tests.battery import limit
from tests.graphs.small import every_graph, random_table, weights
from trjmcmc import graphs
from trjmcmc.errors import TargetError, UnknownModelError
from trjmcmc.space.dag_draws import DagDraws
from trjmcmc.space.dag_gibbs import gibbs_draws
from trjmcmc.space.dag_prior import SizeDraws
from trjmcmc.space.dag_sums import graph_sums, order_sums
from trjmcmc.space.paths import acyclic, adjacency, changes, masks_of, order_of, reaches
from trjmcmc.space.saved import space_from_spec

COUNTS = {1: 1, 2: 3, 3: 25, 4: 543, 5: 29281, 10: 4175098976430598143}


def named(d, **settings):
    return trj.graphs.Dags([f"x{i}" for i in range(d)], **settings)


@pytest.mark.parametrize(("d", "count"), COUNTS.items())
def test_there_are_as_many_as_robinson_says(d, count):
    space = named(d)
    assert space.size == count
    if d <= 5:
        code = space.enumerate()
        assert len(code) == count and bool(acyclic(code).all())
        assert torch.equal(space.index(code), torch.arange(count))
        assert float(space.log_prior(code).exp().sum()) == pytest.approx(1)


def test_paths_and_orders():
    edges = torch.tensor([[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]]).bool()[None]
    assert torch.equal(adjacency(masks_of(edges)), edges)
    assert reaches(edges)[0].int().tolist() == [
        [1, 1, 1, 0],
        [0, 1, 1, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 1],
    ]
    flip, turn = changes(edges, reaches(edges))
    assert not flip[0, 2, 0] and flip[0, 0, 2] and turn[0, 0, 1]
    edges[0, 0, 2] = True  # now 0 -> 1 -> 2 is a detour, so that 0 -> 2 can't turn
    flip, turn = changes(edges, reaches(edges))
    assert not turn[0, 0, 2] and turn[0, 1, 2] and flip[0, 0, 2]
    order = order_of(edges)[0].tolist()
    assert order.index(0) < order.index(1) < order.index(2)
    cycle = torch.tensor([[2, 4, 1, 0], [0, 1, 2, 0]])
    assert acyclic(cycle).tolist() == [False, True]


def test_neighbours_are_mutual_and_those_that_there_are():
    space = named(4)
    code = space.enumerate()
    near, real = space.neighbours(code)
    assert near.shape == (543, 24, 4) and bool(acyclic(near[real]).all())
    start = torch.arange(543)[:, None].expand_as(real)[real]
    matrix = torch.zeros(543, 543)
    matrix[start, space.index(near[real])] += 1
    assert torch.equal(matrix, matrix.T) and matrix.max() == 1
    edges = adjacency(code)
    gap = (edges[:, None] != edges[None]).flatten(2).sum(2)
    one = gap == 1
    pair = (edges[:, None] & ~edges[None]).transpose(2, 3) == (edges[None] & ~edges[:, None])
    turned = (gap == 2) & pair.flatten(2).all(2)
    assert torch.equal(matrix > 0, one | turned)


def test_random_neighbours_are_as_probable_as_they_say(generator):
    space, n = named(3), 50_000
    code = space.code_of("x0->x1, x1->x2")[None].expand(n, -1)
    new = space.random_neighbour(code, generator)
    models, counts = new.unique(dim=0, return_counts=True)
    p = space.log_neighbour(models, code[: len(models)]).exp()
    assert float(p.sum()) == pytest.approx(1)
    z = (counts - n * p) / (n * p * (1 - p)).sqrt()
    assert float(z.abs().max()) < limit(len(p))


PRIORS = {
    "uniform": {},
    "fair": {"prior": "fair"},
    "scale-free": {"prior": "scale-free"},
    "few parents": {"max_parents": 1},
    "required": {"required": [("x0", "x1")], "forbidden": [("x2", "x3")]},
    "odds": {
        "edge_odds": torch.tensor([[1.0, 3, 1, 1], [0.2, 1, 1, 1], [1, 1, 1, 5], [1, 0, 1, 1]])
    },
    "penalty": {"prior": graphs.edge_penalty(0.3)},
    "Erdos-Renyi": {"prior": graphs.erdos_renyi(0.5)},
}


@pytest.mark.parametrize("prior", PRIORS)
def test_priors_sum_to_one_and_are_drawn_from(prior, generator):
    space, n = named(4, **PRIORS[prior]), 30_000
    code = space.enumerate()
    p = space.log_prior(code).exp()
    assert space.size == len(code) and float(p.sum()) == pytest.approx(1)
    drawn = space.sample_prior(n, generator)
    counts = torch.bincount(space.index(drawn), minlength=len(code)).double()
    assert torch.equal(code[space.index(drawn)], drawn)
    edge = adjacency(code).double()
    share, exact = (torch.einsum("m,mij->ij", w, edge) for w in (counts / n, p))
    some = (exact > 1e-9) & (exact < 1 - 1e-9)
    z = ((share - exact) / (exact * (1 - exact) / n).sqrt())[some]
    assert float(z.abs().max()) < limit(int(some.sum()))
    assert torch.equal(share[~some].round(), exact[~some].round())
    often = n * p > 20
    z = ((counts - n * p) / (n * p * (1 - p)).sqrt())[often]
    assert float(z.abs().max()) < limit(int(often.sum()))


EXCEPTIONS = {
    "required": {"required": [("x0", "x1")]},
    "forbidden": {"prior": "fair", "forbidden": [("x0", "x1"), ("x2", "x0")], "max_parents": 2},
    "odds": {"edge_odds": [[1, 2, 1, 3, 0.5, 1]] * 6, "forbidden": [("x5", "x1")]},
}


def gap_of_chains(space, generator, sweeps):
    """Largest difference of edges of chains from sums over all graphs, in errors, and its limit."""
    law = space.must, space.may, space.by_parents, space.edge_log_odds
    edges = adjacency(gibbs_draws(4000, *law, generator, sweeps)).double().mean(0)
    exact = graph_sums(space.prior_table()).edges
    some = (exact > 1e-9) & (exact < 1 - 1e-9)
    z = ((edges - exact) / (exact * (1 - exact) / 4000).sqrt())[some]
    return float(z.abs().max()), limit(int(some.sum()))


@pytest.mark.parametrize("kind", EXCEPTIONS)
def test_the_prior_of_many_nodes_with_exceptions_is_drawn_by_chains(kind, generator):
    """Beyond twelve nodes there are chains; here of six, against sums over all graphs."""
    gap, most = gap_of_chains(named(6, **EXCEPTIONS[kind]), generator, 40)
    assert gap < most


def test_chains_of_the_prior_that_are_short_are_seen(generator):
    gap, most = gap_of_chains(named(6, **EXCEPTIONS["required"]), generator, 1)
    assert gap > most


def test_a_certain_edge_is_known():
    space = named(3, required=[("x0", "x1"), ("x1", "x2")], forbidden=[("x0", "x2")])
    on, off = space.certain()
    assert [n for n, c in zip(space.names, on, strict=True) if c] == ["x0->x1", "x1->x2"]
    never = {n for n, c in zip(space.names, off, strict=True) if c}
    assert never == {"x1->x0", "x2->x0", "x2->x1", "x0->x2"}
    assert space.size == 1


def test_graphs_have_names():
    space = named(3)
    code = space.code_of("x0->x1, x2->x1")
    assert space.label(code[None]) == ["x0->x1, x2->x1"] and space.label(0 * code[None]) == [
        "(empty)"
    ]
    matrix = [[0, 1, 0], [0, 0, 0], [0, 1, 0]]
    assert torch.equal(space.code_of(matrix), code)
    assert torch.equal(space.code_of([("x0", "x1"), ("x2", "x1")]), code)
    assert torch.equal(space.code_of("(empty)"), torch.zeros(3).long())
    with pytest.raises(UnknownModelError, match="it has a cycle"):
        space.code_of("x0->x1, x1->x0")
    with pytest.raises(UnknownModelError, match="not among the names"):
        space.code_of("x0->x7")
    with pytest.raises(UnknownModelError, match="it lacks required edges"):
        named(3, required=[("x0", "x1")]).code_of("(empty)")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"required": [("x0", "x1"), ("x1", "x0")]}, "x0->x1, x1->x0 close a cycle"),
        ({"required": [("x0", "x1")], "forbidden": [("x0", "x1")]}, "x0->x1 are forbidden too"),
        ({"required": [("x0", "x2"), ("x1", "x2")], "max_parents": 1}, "more than 1 parents"),
        ({"forbidden": [("x0", "x9")]}, "'x9'.* are not among the names"),
        ({"required": [("x0", "x0")]}, "its own parent"),
        ({"required": ["x0"]}, "expected pairs of names"),
        ({"prior": "sparse"}, "expected one of"),
        ({"edge_odds": torch.ones(2, 2)}, r"expected \(3, 3\)"),
        ({"max_parents": -1}, "expected 0 or more"),
        ({"prior": "erdos-renyi"}, "give fewer"),
    ],
)
def test_what_makes_no_space_is_refused_by_name(settings, message):
    with pytest.raises(TargetError, match=message):
        named(3, **settings)


@pytest.mark.parametrize("names", ["abc", [], ["a", "a"], ["a->b", "c"], ["a,b"]])
def test_names_that_can_not_be_told_apart_are_refused(names):
    with pytest.raises(TargetError, match="names of Dags"):
        trj.graphs.Dags(names)


def test_one_node_and_sixty_three(generator):
    one = named(1)
    assert one.size == 1 and one.sample_prior(3, generator).tolist() == [[0]] * 3
    assert torch.equal(one.random_neighbour(torch.zeros(3, 1).long(), generator), torch.zeros(3, 1))
    many = named(63)
    code = many.sample_prior(20, generator)
    assert bool(acyclic(code).all()) and bool(many.log_prior(code).isfinite().all())
    assert bool(acyclic(many.random_neighbour(code, generator)).all())
    assert torch.equal(many.code_of(many.label(code[:1])[0]), code[0])
    with pytest.raises(TargetError, match="64 nodes; at most 63"):
        named(64)


def test_a_space_is_rebuilt_from_plain_data():
    space = named(4, of="w", required=[("x0", "x1")], prior="fair").bind(torch.arange(12))
    again = space_from_spec(space.spec())
    code = space.enumerate()
    assert torch.equal(space.log_prior(code), again.log_prior(code)) and again.size == space.size
    assert again.of == ("w",) and torch.equal(again.slot_item, space.slot_item)


# ---- sums and draws -----------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 3, 4])
@pytest.mark.parametrize("spread", [1.0, 200.0])
def test_sums_are_those_of_all_graphs_one_by_one(d, spread, generator):
    table, code = random_table(d, generator, spread), every_graph(d)
    weight = weights(table, code)
    p = weight.softmax(0)
    sums = graph_sums(table, families=True)
    assert sums.log_total == pytest.approx(float(weight.logsumexp(0)), abs=1e-9)
    edges = torch.einsum("m,mij->ij", p, adjacency(code).double())
    torch.testing.assert_close(sums.edges, edges, atol=1e-11, rtol=0)
    families = torch.zeros(d, 2**d).double()
    for j in range(d):
        families[j].index_add_(0, code[:, j], p)
    torch.testing.assert_close(sums.families.exp(), families, atol=1e-11, rtol=0)


def extensions(code):
    """In how many orders of its nodes each graph has parents first, (C, d) -> (C,)."""
    d = code.shape[1]
    found = []
    for row in code.tolist():
        ways = {0: 1}
        for placed in range(2**d):
            for j in range(d):
                if placed in ways and not placed >> j & 1 and row[j] & ~placed == 0:
                    ways[placed | 1 << j] = ways.get(placed | 1 << j, 0) + ways[placed]
        found.append(ways[2**d - 1])
    return torch.tensor(found).double()


def test_sums_over_orders_count_each_graph_once_an_order(generator):
    table, code = random_table(4, generator), every_graph(4)
    weight = weights(table, code) + extensions(code).log()
    sums = order_sums(table)
    assert sums.log_total == pytest.approx(float(weight.logsumexp(0)), abs=1e-10)
    edges = torch.einsum("m,mij->ij", weight.softmax(0), adjacency(code).double())
    torch.testing.assert_close(sums.edges, edges, atol=1e-11, rtol=0)
    assert float((graph_sums(table).edges - edges).abs().max()) > 0.01  # the law is another


@pytest.mark.parametrize(("d", "spread"), [(1, 1.0), (3, 2.0), (4, 1.0), (4, 40.0)])
def test_draws_are_as_probable_as_they_should_be(d, spread, generator):
    table, n = random_table(d, generator, spread), 40_000
    draws, code = DagDraws(table), every_graph(d)
    weight = weights(table, code)
    assert draws.log_total == pytest.approx(float(weight.logsumexp(0)), abs=1e-9)
    drawn = trj.graphs.Dags([f"x{i}" for i in range(d)]).index(draws.sample(n, generator))
    counts, p = torch.bincount(drawn, minlength=len(code)).double(), weight.softmax(0)
    often = (n * p > 20) & (p < 1 - 1e-9)
    z = ((counts - n * p) / (n * p * (1 - p)).sqrt())[often]
    assert not len(z) or float(z.abs().max()) < limit(len(z))
    assert int(counts[n * p < 1e-7].sum()) == 0


def test_layers_that_ignore_who_is_new_are_caught(generator):
    """A negative control: parents anywhere before, so that graphs have several layerings."""

    class Loose(DagDraws):
        def _meets(self, node, base, last):
            return self._inside[node, base]

    table, n = random_table(4, generator, 1.0), 40_000
    exact = graph_sums(table)
    loose = Loose(table)
    assert abs(loose.log_total - exact.log_total) > 0.1
    z = (adjacency(loose.sample(n, generator)).double().mean(0) - exact.edges).abs()
    assert float((z / (exact.edges * (1 - exact.edges) / n).clamp(min=1e-9).sqrt()).max()) > 10


def test_by_sizes_as_by_sets(generator):
    for d in (2, 5, 8):
        by_parents = torch.randn(d, generator=generator, dtype=torch.float64)
        space = named(d)
        space.by_parents = by_parents
        exact = graph_sums(space.prior_table()).log_total
        assert SizeDraws(by_parents).log_total == pytest.approx(exact, abs=1e-9)
    assert SizeDraws(torch.zeros(20)).log_total == pytest.approx(math.log(named(20).size), abs=1e-9)
