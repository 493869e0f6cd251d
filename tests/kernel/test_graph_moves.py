"""Moves among graphs: exact transition matrices over the 25 graphs of three nodes."""

import math

import pytest
import torch

import trjmcmc as trj
from tests.battery import limit
from tests.graphs.small import data, random_table
from trjmcmc import graphs
from trjmcmc.errors import ConfigurationError
from trjmcmc.kernel import (
    BirthDeath,
    Cycle,
    EdgeReversal,
    GraphDraws,
    GraphWalk,
    LayerGibbs,
    Neighbours,
    ParentGibbs,
    start,
)
from trjmcmc.kernel.graphs.layers import layers_of
from trjmcmc.kernel.graphs.sums import ParentSums
from trjmcmc.space.paths import adjacency, reaches
from trjmcmc.target.tempered import Tempered

SPACES = {
    "all": {},
    "fair": {"prior": "fair"},
    "required": {"required": [("x0", "x1")]},
    "one parent": {"max_parents": 1},
}


def problem(generator=None, **settings):
    """All graphs of three nodes, their exact probabilities, and the target."""
    g = torch.Generator().manual_seed(3)
    table = random_table(3, g, 1.5)
    columns = torch.tensor([[0, 2, 4, 6], [0, 1, 4, 5], [0, 1, 2, 3]])
    scores = graphs.LocalScores(["x0", "x1", "x2"], table.gather(1, columns))
    target = graphs.target(scores, **settings)
    code = target.space.enumerate()
    return target, code, target.log_joint(code, torch.zeros(len(code), 0).double()).softmax(0)


# ---- transition matrices, from what the moves draw by -------------------------------------------


def of_walk(target, code, *, counted=True):
    """Proposals in proportion to their weights, and the ratio of the sums around both."""
    near = GraphWalk(target)._near(code)
    q, total = near.log_weight.softmax(1), near.log_weight.logsumexp(1)
    matrix, (_n, pairs) = torch.zeros(len(code), len(code)).double(), q.shape
    walk = GraphWalk(target)
    for pick in range(pairs):
        real = (near.log_weight[:, pick] > -math.inf).nonzero()[:, 0]
        new = target.space.index(walk._moved(code[real], torch.full_like(real, pick)))
        taken = (total[real] - total[new]).clamp(max=0).exp() if counted else 1.0
        matrix[real, new] += q[real, pick] * taken
    return completed(matrix)


def fitting(local, node, reach, among=None):
    """Log weights of the parent sets of a node that close no cycle, (C, 2^K), one by one."""
    bit = torch.arange(local.d)
    below = (reach[torch.arange(len(node)), node].long() << bit).sum(1)
    masks = local.masks[node]
    fits = (masks & below[:, None]) == 0
    if among is not None:
        fits &= (masks >> among[:, None]) & 1 == 1
    return local.rows(node).masked_fill(~fits, -math.inf)


def of_gibbs(target, code, *, whole=True):
    local = ParentGibbs(target)._local
    reach = reaches(adjacency(code))
    reach = reach if whole else torch.eye(3, dtype=torch.bool).expand_as(reach)
    matrix = torch.zeros(len(code), len(code)).double()
    for j in range(3):
        node = torch.full((len(code),), j)
        p = fitting(local, node, reach).softmax(1)
        for column, mask in enumerate(local.masks[j]):
            rows = (p[:, column] > 0).nonzero()[:, 0]
            new = code[rows].clone()
            new[:, j] = mask
            keep = target.space.log_prior(new) > -math.inf
            matrix[rows[keep], target.space.index(new[keep])] += p[rows[keep], column] / 3
    return completed(matrix)


def of_reversal(target, code, *, corrected=True):
    """Every edge, every parent set of its two nodes, with what a step says of the ratio."""
    local, index = EdgeReversal(target)._local, target.space.index
    matrix = torch.zeros(len(code), len(code)).double()
    for m, row in enumerate(code):
        edges = adjacency(row[None])[0].nonzero().tolist()
        for i, j in edges:
            orphaned = row.clone()
            orphaned[[i, j]] = 0
            one, two = torch.tensor([i]), torch.tensor([j])
            reach = reaches(adjacency(orphaned[None]))
            first, before = (fitting(local, a, reach, among=b) for a, b in ((one, two), (two, one)))
            back = orphaned.clone()
            back[j] = row[j]
            after = fitting(local, one, reaches(adjacency(back[None])))
            for a, p in enumerate(first[0].softmax(0).tolist()):
                half = orphaned.clone()
                half[i] = local.masks[i, a]
                if not p > 0:
                    continue
                second = fitting(local, two, reaches(adjacency(half[None])))
                for b, q in enumerate(second[0].softmax(0).tolist()):
                    if q > 0:
                        new = half.clone()
                        new[j] = local.masks[j, b]
                        number = int(adjacency(new[None]).sum())
                        log_ratio = math.log(len(edges) / number) + float(
                            first.logsumexp(1)
                            + second.logsumexp(1)
                            - before.logsumexp(1)
                            - after.logsumexp(1)
                        )
                        taken = math.exp(min(0.0, log_ratio)) if corrected else 1.0
                        matrix[m, index(new[None])[0]] += p * q * taken / len(edges)
    return completed(matrix)


def of_layers(target, code, *, near=True):
    """One node to each layer, then every graph that has these layers.

    Arguments:
        target, code: The target, and all graphs.
        near: Whether nodes need a parent in the layer before theirs.
    """
    kernel = LayerGibbs(target, moves=1)
    sums, every = ParentSums(kernel._local), layers_of(code)
    weight = kernel._local.families(kernel._local.scores.places(code)[0]).sum(1)
    fits = (every[:, None] == every).all(2)  # which graphs have the layers of each
    if not near:  # all graphs whose parents are in layers before
        level = (every[:, :, None] >> torch.arange(3) & 1).argmax(1)
        before = level[:, :, None] < level[:, None]  # (C, i, j)
        fits = ~(adjacency(code)[None] & ~before[:, None]).flatten(2).any(2)
    given = torch.where(fits, weight, -math.inf).softmax(1)
    matrix = torch.zeros(len(code), len(code)).double()
    for j in range(3):
        node = torch.full((len(code), 1), j)
        rest, options = kernel._options(every, node, sums)
        for pick in range(options.shape[1]):
            p = options.softmax(1)[:, pick]
            rows = (p > 0).nonzero()[:, 0]
            there = kernel._placed(rest, node, torch.full_like(node, pick))[rows]
            new = (there[:, None] == every).all(2).long().argmax(1)  # some graph with these layers
            matrix[rows] += p[rows, None] * given[new] / 3
    return completed(matrix)


def completed(matrix):
    """With what stays where it is on the diagonal."""
    return matrix + torch.diag(1 - matrix.sum(1))


MATRICES = {
    GraphWalk: of_walk,
    ParentGibbs: of_gibbs,
    EdgeReversal: of_reversal,
    LayerGibbs: of_layers,
}


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("move", MATRICES)
def test_the_posterior_is_invariant_to_the_last_digits(move, space):
    target, code, p = problem(**SPACES[space])
    matrix = MATRICES[move](target, code)
    assert float(matrix.min()) > -1e-12
    torch.testing.assert_close(p @ matrix, p, atol=1e-12, rtol=0)
    flow = p[:, None] * matrix  # a step by layers is two, each of them reversible
    if move is not LayerGibbs:
        torch.testing.assert_close(flow, flow.T, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("matrix", "wrong"),
    [
        (of_walk, {"counted": False}),  # the ratio of neighbourhoods taken as one
        (of_reversal, {"corrected": False}),  # without its ratio
        (of_layers, {"near": False}),  # parents in any layer before
    ],
)
def test_moves_without_their_ratio_are_caught(matrix, wrong):
    target, code, p = problem()
    assert float((p @ matrix(target, code, **wrong) - p).abs().max()) > 1e-3


def test_neighbours_by_number_alone_are_caught():
    """Each neighbour that there is, equally often, accepted as if all graphs had as many."""
    target, code, p = problem()
    near, real = target.space.neighbours(code)
    matrix = torch.zeros(25, 25).double()
    for pick in range(real.shape[1]):
        rows = real[:, pick].nonzero()[:, 0]
        new = target.space.index(near[rows, pick])
        matrix[rows, new] += (p[new] / p[rows]).clamp(max=1) / real[rows].sum(1)
    assert float((p @ completed(matrix) - p).abs().max()) > 1e-3


def test_turning_an_edge_that_has_a_detour_is_caught():
    """It closes a cycle: such a walk leaves the space."""
    target, _code, _ = problem()
    full = target.space.code_of("x0->x1, x1->x2, x0->x2")
    near, real = target.space.neighbours(full[None])
    pick = target.space.n_items + target.space.names.index("x0->x2")
    assert not real[0, pick]
    assert target.log_joint(near[:, pick], torch.zeros(1, 0).double()) == -math.inf


# ---- steps do what the matrices say -------------------------------------------------------------


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("move", MATRICES)
def test_steps_go_where_the_matrix_says(move, space, generator):
    target, code, p = problem(**SPACES[space])
    n, first = 40_000, int(p.argmax())
    state = start(target, code[first].expand(n, -1), torch.zeros(n, 0).double())
    one = {"moves": 1} if move in {GraphWalk, LayerGibbs} else {}
    kernel = move(target, **one)
    state, _infos = kernel.step(state, generator)
    expected = n * MATRICES[move](target, code)[first].clamp(min=0)
    counts = torch.bincount(target.space.index(state.code), minlength=len(code)).double()
    often = (expected > 20) & (expected < n - 20)
    z = ((counts - expected) / (expected * (1 - expected / n)).sqrt())[often]
    assert float(z.abs().max()) < limit(len(z))
    assert int(counts[expected < 1e-9].sum()) == 0
    log_joint = target.log_joint(state.code, state.theta)
    torch.testing.assert_close(state.log_joint, log_joint, atol=1e-5, rtol=0)


def moves(target):
    return Cycle([m(target) for m in MATRICES])


@pytest.mark.whole
@pytest.mark.parametrize("make", [GraphDraws, moves])
def test_chains_forget_where_they_began(make, generator):
    target, _code, p = problem()
    n = 20_000
    state = start(target, torch.zeros(n, 3, dtype=torch.long), torch.zeros(n, 0).double())
    kernel = make(target)
    for _ in range(12 if make is moves else 1):
        state, _infos = kernel.step(state, generator)
    counts = torch.bincount(target.space.index(state.code), minlength=25).double()
    z = (counts - n * p) / (n * p * (1 - p)).sqrt()
    assert float(z.abs().max()) < limit(25)


def test_a_plain_birth_or_death_of_edges_is_right_too(generator):
    target, code, p = problem()
    n = 20_000
    state = start(
        target, code[torch.multinomial(p, n, True, generator=generator)], torch.zeros(n, 0).double()
    )
    kernel = BirthDeath(target, Neighbours(target.space))
    for _ in range(5):
        state, _ = kernel.step(state, generator)
    counts = torch.bincount(target.space.index(state.code), minlength=25).double()
    assert float(((counts - n * p) / (n * p * (1 - p)).sqrt()).abs().max()) < limit(25)


@pytest.mark.parametrize("move", MATRICES)
def test_at_a_power_the_tempered_posterior_is_invariant(move):
    target, code, _ = problem()
    for power in (0.0, 0.3):
        tempered = Tempered(target, power)
        p = tempered.log_joint(code, torch.zeros(25, 0).double()).softmax(0)
        matrix = MATRICES[move](tempered, code)
        torch.testing.assert_close(p @ matrix, p, atol=1e-12, rtol=0)


def test_other_targets_are_refused():
    plain = trj.Target(
        trj.graphs.Dags(["a", "b"]),
        {},
        lambda p, active: active.double().sum(1),
        dtype=torch.float64,
    )
    with pytest.raises(ConfigurationError, match=r"trj\.graphs\.target"):
        GraphWalk(plain)
    scores = graphs.bge(data(2), names=["a", "b"])
    named = trj.Target(trj.graphs.Dags(["b", "a"]), {}, scores, dtype=torch.float64)
    with pytest.raises(ConfigurationError, match="the scores are of nodes"):
        ParentGibbs(named)
    many = graphs.target(graphs.bge(data(21)))
    with pytest.raises(ConfigurationError, match="at most 20 nodes"):
        GraphDraws(many)
    with pytest.raises(ConfigurationError, match="expected 1 or more"):
        GraphWalk(many, moves=0)


def test_one_node_stays_where_it_is(generator):
    target = graphs.target(graphs.bge(data(1)))
    state = start(target, torch.zeros(5, 1, dtype=torch.long), torch.zeros(5, 0).double())
    for kernel in (GraphDraws(target), moves(target)):
        after, _ = kernel.step(state, generator)
        assert torch.equal(after.code, state.code) and bool(after.log_joint.isfinite().all())


@pytest.mark.whole
@pytest.mark.parametrize("move", MATRICES)
def test_nodes_that_choose_among_few_candidates(move, generator):
    """Four nodes with two candidates each: edges that can't be turned around among them."""
    candidates = [[1, 2], [0, 3], [3, 0], [2, 1]]
    table = 1.5 * torch.randn(4, 4, generator=generator, dtype=torch.float64)
    target = graphs.target(graphs.LocalScores(list("abcd"), table, candidates))
    code = target.space.enumerate()
    p = target.log_joint(code, torch.zeros(len(code), 0).double()).softmax(0)
    n = 40_000
    pick = torch.multinomial(p, n, True, generator=generator)
    state = start(target, code[pick], torch.zeros(n, 0).double())
    kernel = move(target)
    for _ in range(4):
        state, _ = kernel.step(state, generator)
    counts = torch.bincount(target.space.index(state.code), minlength=len(code)).double()
    often = n * p > 20
    z = ((counts - n * p) / (n * p * (1 - p)).sqrt())[often]
    assert float(z.abs().max()) < limit(len(z))
    assert bool((state.code != code[pick]).any())
