"""Data and spaces at the edge: right, or refused by name."""

import math

import numpy as np
import pytest
import torch

import trjmcmc as trj
from tests.graphs.small import data, every_graph
from trjmcmc import graphs
from trjmcmc.errors import ConfigurationError, ConvergenceWarning, TargetError


def summed(scores, **space):
    """Edge probabilities by a sum over listed graphs, (d, d)."""
    dags = trj.graphs.Dags(scores.names, **space)
    code = every_graph(len(scores.names))
    weight = scores.of(code) + dags.log_weight(code)
    p = weight.softmax(0)
    bit = torch.arange(len(scores.names))
    edges = ((code[:, None] >> bit[:, None]) & 1).double()
    return torch.einsum("c,cij->ij", p, edges).numpy()


def ran(scores, **space):
    """Edge probabilities of a short run."""
    target = graphs.target(scores, **space)
    result = trj.TRJSampler(target, seed=0).run(draws=50, chains=256, progress=False)
    return graphs.GraphPosterior(result).matrix().to_numpy()


AT_THE_EDGE = {
    "fewer rows than nodes": lambda: graphs.bge(data(4, n=3)),
    "one row": lambda: graphs.bge(data(4, n=1)),
    "no rows": lambda: graphs.bge(torch.zeros(0, 3)),
    "a constant column": lambda: graphs.bge(with_column(torch.full((40,), 2.0))),
    "a constant column, standardised": lambda: graphs.bge(
        with_column(torch.full((40,), 2.0)), standardise=True
    ),
    "a column twice": lambda: graphs.bge(with_column(data(3)[:, 0])),
    "a column twice, known noise": lambda: graphs.linear(with_column(data(3)[:, 0])),
    "no rows, known noise": lambda: graphs.linear(torch.zeros(0, 3)),
    "two nodes": lambda: graphs.bge(data(2)),
    "no candidates": lambda: graphs.bge(data(3), candidates=0),
    "no parents": lambda: graphs.bge(data(3), max_parents=0),
    "all rows set": lambda: graphs.bge(data(3), interventions=torch.ones(40, 3)),
    "discrete, no rows": lambda: graphs.bdeu(torch.zeros(0, 3)),
    "discrete, one value": lambda: graphs.bdeu(torch.zeros(10, 3)),
}


def with_column(extra):
    return torch.cat([data(3), extra[:, None].double()], 1)


@pytest.mark.parametrize("kind", AT_THE_EDGE)
def test_data_at_the_edge_have_the_sum_over_all_graphs(kind):
    scores = AT_THE_EDGE[kind]()
    forbidden = scores.left_out
    exact = graphs.exact(scores)
    assert math.isfinite(exact.log_evidence)
    listed = summed(scores, forbidden=forbidden)
    np.testing.assert_allclose(exact.edges.to_numpy(), listed, atol=1e-9)
    n = 50 * 256
    error = np.sqrt(listed * (1 - listed) / n)
    assert (np.abs(ran(scores) - listed) < 6 * error + 1e-9).all()


def test_no_data_have_no_evidence_and_the_prior():
    scores = graphs.bge(torch.zeros(0, 3))
    assert graphs.exact(scores).log_evidence == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(graphs.exact(scores).edges.iloc[0, 1], 8 / 25, atol=1e-12)


def test_one_node():
    scores = graphs.bge(data(1), names=["a"])
    assert graphs.exact(scores).log_evidence == pytest.approx(float(scores.table[0, 0]))
    result = trj.TRJSampler(graphs.target(scores), seed=0).run(draws=8, chains=8, progress=False)
    assert result.inclusion_probabilities(full=True).empty
    assert graphs.GraphPosterior(result).edges().empty


@pytest.mark.whole
def test_sixty_three_nodes_are_sampled_and_more_refused():
    scores = graphs.bge(data(63, n=20), candidates=3)
    target = graphs.target(scores)
    with pytest.warns(ConvergenceWarning):
        result = trj.TRJSampler(target, seed=0).run(max_seconds=8, chains=8, progress=False)
    assert result.raw.code.shape[::2] == (8, 63)
    with pytest.raises(TargetError, match="63"):
        graphs.target(graphs.bge(data(64, n=20), candidates=3))
    with pytest.raises(ConfigurationError, match="sample"):
        graphs.exact(scores)


NAN, INF = data(3), data(3)
NAN[3, 1], INF[5, 2] = math.nan, math.inf
THREE = ["x0", "x1", "x2"]

REFUSED = [
    (lambda: trj.graphs.Dags(THREE, required=[("x0", "x1"), ("x1", "x2"), ("x2", "x0")]), "cycle"),
    (
        lambda: trj.graphs.Dags(THREE, required=[("x0", "x1")], forbidden=[("x0", "x1")]),
        "forbidden too",
    ),
    (
        lambda: trj.graphs.Dags(THREE, required=[("x0", "x2"), ("x1", "x2")], max_parents=1),
        "more than 1",
    ),
    (lambda: trj.graphs.Dags(THREE, required=[("x0", "y")]), "not among the names"),
    (lambda: trj.graphs.Dags(THREE, forbidden=["x0"]), "pairs of names"),
    (lambda: trj.graphs.Dags(["a", "a"]), "differ"),
    (lambda: trj.graphs.Dags([]), "at least one"),
    (lambda: trj.graphs.Dags(THREE, max_parents=-1), "max_parents"),
    (lambda: trj.graphs.Dags(THREE, edge_odds=[[1, -1, 1]] * 3), "edge_odds"),
    (lambda: graphs.bge(NAN), r"not finite in column\(s\) x1;"),
    (lambda: graphs.exact(data(3)), "make them first"),
    (lambda: graphs.target(data(3)), "make them first"),
    (lambda: graphs.bge(INF), "not finite in column"),
    (lambda: graphs.linear(NAN), "not finite in column"),
    (lambda: graphs.network(NAN), "not finite in column"),
    (lambda: graphs.bge(data(3), alpha_mu=0.0), "alpha_mu"),
    (lambda: graphs.bge(data(3), names=["a"]), "names"),
    (lambda: graphs.bge(data(3)[0]), "rows of columns"),
    (lambda: graphs.bge([["a", "b"]]), "table of numbers"),
    (lambda: graphs.bge(data(3), interventions=torch.zeros(3, 3)), "interventions"),
    (lambda: graphs.bdeu(data(3)), "integers"),
    (lambda: graphs.bdeu(torch.full((4, 2), 3), levels=[2, 2]), "levels"),
    (lambda: graphs.LocalScores(THREE, torch.full((3, 4), math.nan)), "NaN"),
    (lambda: graphs.LocalScores(THREE, torch.full((3, 4), -math.inf)), "without parents"),
    (lambda: graphs.LocalScores(THREE, torch.zeros(3, 8)), "expected a table"),
    (lambda: graphs.LocalScores(THREE, torch.zeros(3, 2), [[0], [0], [0]]), "other nodes"),
]


@pytest.mark.parametrize(("make", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_what_can_not_be_is_refused_by_name(make, says):
    with pytest.raises(TargetError, match=says):
        make()


def test_scores_of_other_nodes_are_refused():
    dags = trj.graphs.Dags(["a", "b", "c"])
    target = trj.Target(dags, {}, graphs.bge(data(3)), dtype=torch.float64)
    with pytest.raises(ConfigurationError, match="the space has"):
        trj.TRJSampler(target, seed=0).run(draws=4, chains=4, progress=False)


def test_maps_and_model_weights_over_many_graphs_are_refused():
    target = graphs.target(graphs.bge(data(4)))
    with pytest.raises(ConfigurationError, match="no map is trained"):
        trj.TRJSampler(target, seed=0).run(fit=True, progress=False)
    for weights in (trj.weights.Made, trj.weights.UniformWeights):
        with pytest.raises(ConfigurationError, match="close cycles"):
            weights(target.space)
