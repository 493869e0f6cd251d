"""Distances between edge probabilities and a graph: by hand, by draws, and as published."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.graphs.small import sachs_names, sachs_truth
from tests.places import SHARED, shared_only
from trjmcmc import graphs
from trjmcmc.errors import ConfigurationError
from trjmcmc.graphs.metrics import auroc

TRUTH = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]])  # 0 -> 1 -> 2


def test_numbers_by_hand():
    p = np.array([[0, 0.6, 0.2], [0.3, 0, 0.5], [0.1, 0.4, 0]])
    found = graphs.metrics(p, TRUTH)
    assert found["expected_edges"] == pytest.approx(2.1)
    # 0-1: not 0 -> 1, .4; 1-2: not 1 -> 2, .5; 0-2: either way, .3
    assert found["expected_shd"] == pytest.approx(0.4 + 0.5 + 0.3)
    assert found["expected_shd_by_entries"] == pytest.approx(0.4 + 0.5 + 0.2 + 0.3 + 0.1 + 0.4)
    assert found["auroc"] == pytest.approx(1.0)  # .6 and .5 above .2, .3, .1, .4
    assert found["brier"] == pytest.approx(0.16 + 0.25 + 0.04 + 0.09 + 0.01 + 0.16)
    assert found["brier_mean"] == pytest.approx(found["brier"] / 6)
    assert found["f1"] == pytest.approx(2 * 1 / (1 + 2))  # .6 alone is above one half
    assert graphs.metrics(p.T, TRUTH)["auroc"] == pytest.approx(4 / 8)  # .3 and .4 above .1, .2


def test_a_reversed_edge_counts_once_or_twice():
    turned = TRUTH.T.copy()
    found = graphs.metrics(turned, TRUTH)
    assert found["expected_shd"] == 2 and found["expected_shd_by_entries"] == 4
    assert found["f1"] == 0


def test_draws_have_the_numbers_of_their_mean_and_their_own():
    rng = np.random.default_rng(0)
    draws = (rng.random((200, 3, 3)) < 0.4) & ~np.eye(3, dtype=bool) & ~np.tri(3, dtype=bool)
    found, mean = graphs.metrics(draws, TRUTH), graphs.metrics(draws.mean(0), TRUTH)
    for name in mean.index:
        assert found[name] == pytest.approx(mean[name]), name
    pairs = [((draw | draw.T) != (TRUTH + TRUTH.T)).sum() / 2 for draw in draws]  # never reversed
    assert found["expected_shd"] == pytest.approx(np.mean(pairs))
    hits = (draws & (TRUTH > 0)).sum((1, 2))
    by_hand = 2 * hits / (draws.sum((1, 2)) + 2)
    assert found["f1_by_draws"] == pytest.approx(by_hand.mean())
    # of one graph: the mean of what is right of the edges, and of what is right of the others
    right = (hits / 2 + 1 - (draws & (TRUTH == 0)).sum((1, 2)) / 4) / 2
    assert found["auroc_by_draws"] == pytest.approx(right.mean())
    off = ~np.eye(3, dtype=bool)
    one_by_one = [auroc(draw[off].astype(float), TRUTH[off].astype(float)) for draw in draws]
    assert found["auroc_by_draws"] == pytest.approx(np.mean(one_by_one))


def test_shapes_that_differ_are_refused():
    with pytest.raises(ConfigurationError, match="same shape"):
        graphs.metrics(np.zeros((2, 2)), TRUTH)


@shared_only
def test_the_table_of_sachs_from_exact_edge_probabilities():
    """Fact sheet: E-SHD of the 18 and the 17 edges, AUROC, Brier score, VTI's dialect."""
    answers = json.loads((SHARED / "gold" / "dag_extra.json").read_text())["sachs"]
    columns = {
        "eshd": "expected_shd",
        "auroc_d2": "auroc_with_diagonal",
        "auroc_offdiag": "auroc",
        "brier": "brier",
        "f1_thr": "f1",
    }
    for answer in answers:
        for edges in (18, 17):
            found = graphs.metrics(answer["edge_marginals"], sachs_truth(edges))
            for theirs, ours in columns.items():
                expected = answer[f"metrics_{edges}"][theirs]
                digits = 0.0051 if theirs in {"eshd", "brier"} else 0.00051
                assert found[ours] == pytest.approx(expected, abs=digits), (theirs, edges)


@shared_only
@pytest.mark.parametrize(
    ("rows", "edges", "shd", "shd_17", "with_diagonal", "auroc", "brier", "by_entries", "by_draws"),
    [
        (853, 10.67, 18.31, 15.97, 0.6807, 0.6425, 17.23, 22.86, 0.543),
        (7466, 33.96, 28.14, 28.20, 0.7271, 0.6944, 25.43, 34.08, 0.627),
    ],
)
def test_sachs_from_the_data(
    rows, edges, shd, shd_17, with_diagonal, auroc, brier, by_entries, by_draws
):
    x = pd.read_csv(SHARED / "data" / "sachs.csv")[:rows]
    exact = graphs.exact(graphs.bge(x, standardise=True))
    assert exact.names == sachs_names()
    found = graphs.metrics(exact.edges, sachs_truth(18))
    assert found["expected_edges"] == pytest.approx(edges, abs=0.0051)
    assert found["expected_shd"] == pytest.approx(shd, abs=0.0051)
    other = graphs.metrics(exact.edges, sachs_truth(17))
    assert other["expected_shd"] == pytest.approx(shd_17, abs=0.0051)
    assert found["auroc_with_diagonal"] == pytest.approx(with_diagonal, abs=0.000051)
    assert found["auroc"] == pytest.approx(auroc, abs=0.000051)
    assert found["brier"] == pytest.approx(brier, abs=0.0051)
    assert found["expected_shd_by_entries"] == pytest.approx(by_entries, abs=0.0051)
    assert found["auroc_by_draws_with_diagonal"] == pytest.approx(by_draws, abs=0.00051)
    posterior = exact.posterior(4000)
    drawn, error = posterior.metrics(sachs_truth(18)), posterior.edges()["se"].sum()
    assert abs(drawn["expected_edges"] - edges) < error and drawn["f1_by_draws"] > 0
