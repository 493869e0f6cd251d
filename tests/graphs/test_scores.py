"""Local scores against integrals, closed forms and published answers."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import multivariate_normal, multivariate_t

from tests.graphs.small import data, every_graph
from tests.places import SHARED, shared_only
from trjmcmc import graphs
from trjmcmc.errors import TargetError
from trjmcmc.space.dag_sums import graph_sums


def test_bge_of_one_node_is_a_t_density():
    """Its mean and precision are integrated out; rows are exchangeable, so all at once."""
    x = data(1, n=6)
    got = float(graphs.bge(x).of(torch.zeros(1, 1).long()))
    t, df = 1.0 * (3 - 1 - 1) / 2, 3.0  # alpha_mu = 1, alpha_w = 3
    shape = t / df * (np.eye(6) + 1.0)
    assert got == pytest.approx(multivariate_t(np.zeros(6), shape, df).logpdf(x[:, 0]), abs=1e-10)


def test_bge_says_the_same_of_graphs_of_the_same_independences():
    scores = graphs.bge(data(3))
    chain = torch.tensor([[0, 1, 2], [2, 4, 0], [2, 0, 2]])  # 0->1->2, 0<-1<-2, 0<-1->2
    one = scores.of(chain)
    torch.testing.assert_close(one, one[:1].expand(3), atol=1e-9, rtol=0)
    collider = scores.of(torch.tensor([[0, 5, 0]]))
    assert abs(float(collider - one[0])) > 1


def test_linear_is_the_marginal_of_normal_weights():
    x = data(3, n=5)
    got = graphs.linear(x, noise=0.3, weight_sd=0.7).of(torch.tensor([[0, 0, 3]]))
    spread = 0.3 * np.eye(5)
    parents = x[:, :2].numpy()
    wide = spread + 0.49 * parents @ parents.T
    exact = sum(multivariate_normal(np.zeros(5), spread).logpdf(x[:, j]) for j in (0, 1))
    exact += multivariate_normal(np.zeros(5), wide).logpdf(x[:, 2])
    assert float(got) == pytest.approx(exact, abs=1e-9)


def test_bdeu_by_hand():
    """Two binary nodes; 4 observations of the prior: 1 a cell of the child's table."""
    x = torch.tensor([[0, 0], [0, 0], [0, 1], [1, 1]])
    scores = graphs.bdeu(x, sample_size=4.0)

    def dirichlet(counts, each):
        total = each * len(counts)
        found = math.lgamma(total) - math.lgamma(total + sum(counts))
        return found + sum(math.lgamma(each + c) - math.lgamma(each) for c in counts)

    alone = dirichlet([3, 1], 2.0) + dirichlet([2, 2], 2.0)
    assert float(scores.of(torch.tensor([[0, 0]]))) == pytest.approx(alone)
    given = dirichlet([3, 1], 2.0) + dirichlet([2, 1], 1.0) + dirichlet([0, 1], 1.0)
    forth, back = scores.of(torch.tensor([[0, 1], [2, 0]])).tolist()
    assert forth == pytest.approx(given) and back == pytest.approx(given)  # score-equivalent


@pytest.mark.parametrize("score", [graphs.bge, graphs.linear])
def test_rows_in_which_a_node_was_set_say_nothing_of_its_parents(score):
    x = data(3, n=30)
    was_set = torch.zeros(30, 3, dtype=torch.bool)
    was_set[:10, 1] = True
    some, rest, every = score(x, interventions=was_set), score(x[10:]), score(x)
    torch.testing.assert_close(some.table[1], rest.table[1])
    torch.testing.assert_close(some.table[[0, 2]], every.table[[0, 2]])
    was_set[:, 1] = True
    if score is graphs.bge:
        assert not score(x, interventions=was_set).table[1].any()


def test_candidates_are_those_that_explain_best():
    x = data(8, n=400)
    scores, every = graphs.bge(x, candidates=2), graphs.bge(x)
    assert scores.candidates[0].tolist()[0] == 1 and {3, 5} == set(scores.candidates[4].tolist())
    code = torch.zeros(1, 8).long()
    code[0, 4] = 1 << 3
    assert float(scores.of(code)) == pytest.approx(float(every.of(code)), abs=1e-9)
    code[0, 4] = 1 << 0
    assert float(scores.of(code)) == -math.inf
    assert ("x0", "x4") in scores.left_out and len(scores.left_out) == 8 * 5
    target = graphs.target(scores)
    assert target.log_joint(code, torch.zeros(1, 0)) == -math.inf
    few = graphs.bge(x, max_parents=1)
    code[0, 4] = (1 << 3) + (1 << 5)
    assert float(few.of(code)) == -math.inf
    both = graphs.exact(few), graphs.exact(every, max_parents=1)
    np.testing.assert_allclose(both[0].edges, both[1].edges, atol=1e-10)


def test_no_rows_leave_the_prior():
    found = graphs.exact(graphs.bge(torch.zeros(0, 3)))
    assert found.log_evidence == pytest.approx(0)
    assert found.edges.to_numpy()[0, 1] == pytest.approx(8 / 25)


@pytest.mark.parametrize("score", [graphs.bge, graphs.linear])
def test_awkward_columns_are_no_trouble(score):
    x = data(5, n=3)  # fewer rows than columns
    x[:, 1] = 7.0
    x[:, 3] = x[:, 2]
    edges = graphs.exact(score(x)).edges.to_numpy()
    assert np.isfinite(edges).all() and (edges >= 0).all() and (edges <= 1 + 1e-12).all()


def test_names_come_from_the_columns():
    frame = pd.DataFrame(data(2).numpy(), columns=["rain", "wet"])
    assert graphs.bge(frame, standardise=True).names == ["rain", "wet"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: graphs.bge([[1.0, math.nan]]), r"not finite in column\(s\) x1;"),
        (lambda x: graphs.bge([1.0, 2.0]), "expected rows of columns"),
        (lambda x: graphs.bge([["a", "b"]]), "expected a table of numbers"),
        (lambda x: graphs.bge(x, names=["a"]), "expected 3, one for each column"),
        (lambda x: graphs.bge(x, alpha_w=2.0), "alpha_w > d"),
        (lambda x: graphs.linear(x, noise=0.0), "noise, weight_sd > 0"),
        (lambda x: graphs.bge(x, interventions=[[True]]), "expected the shape of the data"),
        (lambda x: graphs.bge(x, candidates=-1), "expected 0 to 16"),
        (lambda x: graphs.bdeu(x), "expected integers from 0"),
        (lambda x: graphs.bdeu([[2, 0]], levels=[2, 2]), "levels: expected 2 numbers"),
        (lambda x: graphs.LocalScores(["a", "b"], torch.zeros(2, 3)), r"shape \(2, 2\^K\)"),
        (lambda x: graphs.LocalScores(["a"], [[math.nan]]), r"NaN or \+inf"),
        (lambda x: graphs.LocalScores(["a"], [[-math.inf]]), "without parents has to be"),
        (
            lambda x: graphs.LocalScores(["a", "b"], torch.zeros(2, 2), [[0], [0]]),
            "expected other nodes",
        ),
        (
            lambda x: graphs.exact(
                graphs.bge(x), required=[("x0", "x1"), ("x1", "x2"), ("x2", "x0")]
            ),
            "close a cycle",
        ),
    ],
)
def test_what_can_not_be_scored_is_refused_by_name(call, message):
    with pytest.raises(TargetError, match=message):
        call(data(3))


def test_scores_are_a_likelihood_of_edges():
    scores = graphs.bge(data(4))
    target, code = graphs.target(scores), every_graph(4)
    nothing = torch.zeros(len(code), 0, dtype=torch.float64)
    _, log_likelihood = target.log_prior_and_likelihood(code, nothing)
    torch.testing.assert_close(log_likelihood, scores.of(code))
    torch.testing.assert_close(scores.full()[torch.arange(4), code].sum(1), scores.of(code))
    places, known = scores.places(code)
    assert bool(known.all()) and torch.equal(scores.masks(places), code)


# ---- exact answers ------------------------------------------------------------------------------


def test_exact_is_the_sum_over_all_graphs():
    scores = graphs.linear(data(4), noise=1.0)
    settings = {"prior": "fair", "required": [("x1", "x2")], "edge_odds": torch.full((4, 4), 0.5)}
    found, target = graphs.exact(scores, **settings), graphs.target(scores, **settings)
    code = target.space.enumerate()
    log_joint = target.log_joint(code, torch.zeros(len(code), 0, dtype=torch.float64))
    p = log_joint.softmax(0)
    assert found.log_evidence == pytest.approx(float(log_joint.logsumexp(0)), abs=1e-10)
    items = target.space.items(code).double()
    for name, exact in zip(target.space.names, p @ items, strict=True):
        parent, child = name.split("->")
        assert found.edges.loc[parent, child] == pytest.approx(float(exact), abs=1e-11)
    parents = found.parents("x2", least=0.0)
    assert parents.sum() == pytest.approx(1)
    assert parents["x1"] == pytest.approx(float(p[code[:, 2] == 2].sum()), abs=1e-11)
    assert found.expected_edges == pytest.approx(float(p @ items.sum(1)))


@shared_only
def test_the_published_small_problems_are_reproduced():
    answers = json.loads((SHARED / "gold" / "dag.json").read_text())["results"]
    for answer in answers:
        d, seed = answer["d"], answer["seed"]
        x = pd.read_csv(SHARED / "data" / f"dag_d{d}_seed{seed}_N100.csv")[: answer["N"]]
        score = graphs.bge if answer["score"] == "BGe" else graphs.linear
        found = graphs.exact(score(x))
        np.testing.assert_allclose(found.edges, answer["edge_marginals"], atol=1e-11)
        assert found.log_evidence == pytest.approx(answer["log_evidence_uniform_prior"], abs=1e-8)


@shared_only
def test_the_cells_of_sachs_are_summed_to_the_last_digits():
    answers = json.loads((SHARED / "gold" / "dag_extra.json").read_text())["sachs"]
    x = pd.read_csv(SHARED / "data" / "sachs.csv")
    for answer in answers:
        n, alpha_mu = answer["N"], answer["alpha_mu"]
        scores = graphs.bge(x[:n], standardise=True, alpha_mu=alpha_mu, alpha_w=13.0)
        prior = {"er": graphs.erdos_renyi(2.0)}.get(answer["prior"], answer["prior"])
        sums = graph_sums(graphs.exact(scores, prior).table)
        np.testing.assert_allclose(sums.edges, answer["edge_marginals"], atol=1e-8)
        if answer["prior"] == "uniform":
            assert sums.log_total == pytest.approx(answer["log_sum"], abs=1e-4)
