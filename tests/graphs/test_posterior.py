"""What draws of graphs say, against sums over all graphs."""

import json
import math
import time

import numpy as np
import pandas as pd
import pytest
import torch

import trjmcmc as trj
from tests.graphs.small import data, every_graph
from tests.places import SHARED, shared_only
from trjmcmc import graphs
from trjmcmc.draws import Draws
from trjmcmc.errors import ConfigurationError
from trjmcmc.graphs.classes import completed, labels
from trjmcmc.result.report import RunReport
from trjmcmc.result.result import Result
from trjmcmc.space.paths import adjacency, reaches

NAMES = ["a", "b", "c", "d"]


@pytest.fixture(scope="module")
def problem():
    """Scores, all graphs on four nodes, and their posterior probabilities."""
    scores = graphs.bge(data(4, n=30), names=NAMES)
    code = every_graph(4)
    return scores, code, scores.of(code).softmax(0)


@pytest.fixture(scope="module")
def run(problem):
    sampler = trj.TRJSampler(graphs.target(problem[0]), seed=3)
    return graphs.GraphPosterior(sampler.run(draws=400, chains=64, progress=False))


@pytest.fixture(scope="module")
def drawn(problem):
    return graphs.exact(problem[0]).posterior(20_000, seed=1)


def expected(kind, code, p):
    """Probability of what each row of a table names."""
    if kind == "graphs":
        keys = trj.graphs.Dags(NAMES).label(code)
    elif kind == "classes":
        keys = labels(completed(code), NAMES)
    else:
        matrix = adjacency(code) if kind == "edges" else reaches(adjacency(code))
        mean = torch.einsum("c,cij->ij", p, matrix.double())
        return {(a, b): float(mean[i, j]) for i, a in enumerate(NAMES) for j, b in enumerate(NAMES)}
    return pd.Series(p.numpy(), keys).groupby(level=0).sum().to_dict()


@pytest.mark.parametrize("source", ["run", "drawn"])
@pytest.mark.parametrize("kind", ["edges", "paths", "classes", "graphs"])
def test_tables_are_those_of_all_graphs(kind, source, problem, request):
    posterior = request.getfixturevalue(source)
    _, code, p = problem
    truth, table = expected(kind, code, p), getattr(posterior, kind)()
    z = np.array([(row.probability - truth[name]) / row.se for name, row in table.iterrows()])
    assert np.abs(z).max() < 5 and len(table) >= 12
    assert (table["rhat"].dropna() < 1.05).all() and (table["ess"] > 500).all()
    assert not table["note"].isin(["R-hat"]).any()
    if kind in {"graphs", "classes"}:
        best = max(truth, key=truth.get)
        assert table.loc[best, "probability"] > 0.9 * truth[best]
        assert table["probability"].is_monotonic_decreasing


def test_another_posterior_is_told_apart(drawn, problem):
    """The control: probabilities without the data of one node."""
    _, code, _ = problem
    other = graphs.bge(data(4, n=30, seed=9), names=NAMES).of(code).softmax(0)
    for kind in ("edges", "paths", "classes"):
        truth, table = expected(kind, code, other), getattr(drawn, kind)()
        z = [(row.probability - truth[name]) / row.se for name, row in table.iterrows()]
        assert np.abs(z).max() > 5


def test_independent_draws_have_binomial_errors(drawn):
    table = drawn.edges()
    p = table["probability"]
    np.testing.assert_allclose(table["se"], np.sqrt(p * (1 - p) / 20_000))
    assert (table["rhat"] == 1).all() and (table["ess"] == 20_000).all()
    assert "20000 independent draws" in repr(drawn)
    few = graphs.GraphPosterior.of(torch.zeros(30, 2, dtype=torch.long), ["a", "b"]).edges()
    assert few["se"].tolist() == [0.1, 0.1] and few["note"].tolist() == ["never met"] * 2
    with pytest.raises(ConfigurationError, match=r"parent masks \(n, 2\)"):
        graphs.GraphPosterior.of(torch.zeros(30, 3, dtype=torch.long), ["a", "b"])


def test_edges_of_a_run_are_its_items(run):
    items = run._result.inclusion_probabilities(full=True)
    table = run.edges()
    assert [f"{a}->{b}" for a, b in table.index] == items.index.tolist()
    shown = ["probability", "se", "ess", "rhat", "note"]
    assert table.reset_index(drop=True)[shown].equals(items.reset_index(drop=True)[shown])


def stuck():
    """A run of two nodes, half of whose chains have the edge and never lose it."""
    space = trj.graphs.Dags(["a", "b"]).bind(torch.zeros(0).long())
    code = torch.zeros(64, 50, 2, dtype=torch.long)
    code[::2, :, 1] = 1
    code[:, 10, 1] ^= 1
    height = torch.randn(64, 50, generator=torch.Generator().manual_seed(0))
    draws = Draws(code, torch.zeros(64, 50, 0), height)
    return Result(space, draws, {}, {}, RunReport())


def test_chains_that_are_stuck_are_not_believed():
    result, scores = stuck(), graphs.linear(data(2, n=50), names=["a", "b"], noise=1.0)
    posterior = graphs.GraphPosterior(result, scores=scores)
    edge = posterior.edges().loc[("a", "b")]
    for row in (edge, posterior.graphs().iloc[0], posterior.classes().iloc[0]):
        assert row["rhat"] > 2 and math.isnan(row["se"])
    effect = posterior.effects().loc[("a", "b")]
    assert effect["rhat"] > 2 and math.isnan(effect["se"]) and "R-hat" in effect["note"]
    found = posterior.log_predictive(data(2, n=5, seed=2))
    assert math.isnan(found.std_error) and "R-hat" in found.warning
    assert "not converged" in repr(posterior)


@shared_only
def test_the_pairs_of_the_table_of_dibs_are_met_in_seconds():
    """Exact probabilities of four pairs of edges at each of two nodes."""
    answer = json.loads((SHARED / "gold" / "dag_extra.json").read_text())["dibs_table4"]
    x = np.loadtxt(SHARED / answer["data"], delimiter=",")
    start = time.process_time()
    target = graphs.target(graphs.bge(x))
    result = trj.TRJSampler(target, seed=5).run(draws=500, chains=256, progress=False)
    posterior = graphs.GraphPosterior(result)
    edges = adjacency(posterior.masks.flatten(0, 1))
    names = list(answer["pairs"])
    has = torch.stack([holds(edges, pair) for pair in names], 1)
    table = result.chains.shares(has.view(256, 500, -1).numpy()).set_index(pd.Index(names))
    seconds = time.process_time() - start
    for name, exact in answer["pairs"].items():
        row = table.loc[name]
        assert abs(row["probability"] - exact) < 0.005, name
        assert abs(row["probability"] - exact) < 5 * row["se"], name
        assert row["se"] < 0.002 and row["rhat"] < 1.02
    assert seconds < 5


def holds(edges, pair):
    """Whether graphs have the edges that "x1->x0,x0<-x2" names."""
    found = torch.ones(len(edges), dtype=torch.bool)
    for part in pair.split(","):
        i, j = part.replace("<-", "->").split("->")
        a, b = int(i[1:]), int(j[1:])
        found &= edges[:, a, b] if "->" in part else edges[:, b, a]
    return found
