"""Total effects of one node on another, beside closed forms."""

import numpy as np
import pytest
import torch

from tests.graphs.small import data
from trjmcmc import graphs
from trjmcmc.errors import ConfigurationError

CHAIN = {
    "required": [("x0", "x1"), ("x1", "x2")],
    "forbidden": [("x0", "x2")],
}
DRAWS = 20_000


def z_of(row, truth):
    return abs(row["mean"] - truth) / row["se"]


def test_effects_along_a_chain_are_products_of_conjugate_means():
    """Weights of different equations are independent given the graph."""
    x = data(3, n=30)
    found = graphs.exact(graphs.linear(x, noise=0.5), **CHAIN).posterior(DRAWS).effects()
    means = [float((x[:, i] @ x[:, i + 1]) / 0.5 / (x[:, i] @ x[:, i] / 0.5 + 1)) for i in range(2)]
    assert z_of(found.loc[("x0", "x1")], means[0]) < 5
    assert z_of(found.loc[("x0", "x2")], means[0] * means[1]) < 5
    assert z_of(found.loc[("x0", "x2")], means[0]) > 5  # it isn't the first weight alone
    back = found.loc[("x2", "x0")]
    assert back["mean"] == 0 and back["probability"] == 0
    variance = 1 / float(x[:, 0] @ x[:, 0] / 0.5 + 1)
    assert found.loc[("x0", "x1"), "sd"] == pytest.approx(variance**0.5, rel=0.05)


def test_effects_under_the_bge_score_are_regressions_on_the_scatter():
    """The posterior mean of a weight is R_jP / R_PP, with R the prior's and the data's scatter."""
    x = data(3, n=30)
    found = graphs.exact(graphs.bge(x), **CHAIN).posterior(DRAWS).effects()
    n, mean = len(x), x.mean(0)
    gap = x - mean
    r = 0.5 * torch.eye(3) + gap.T @ gap + n / (n + 1) * mean[:, None] * mean
    first, second = float(r[0, 1] / r[0, 0]), float(r[1, 2] / r[1, 1])
    assert z_of(found.loc[("x0", "x1")], first) < 5
    assert z_of(found.loc[("x1", "x2")], second) < 5
    assert z_of(found.loc[("x0", "x2")], first * second) < 5


def test_effects_are_averaged_over_graphs():
    """Of two nodes: the mean given the edge times its probability."""
    x = data(2, n=8)
    exact = graphs.exact(graphs.linear(x, noise=0.5))
    found = exact.posterior(DRAWS).effects()
    p = exact.edges.loc["x0", "x1"]
    mean = float((x[:, 0] @ x[:, 1]) / 0.5 / (x[:, 0] @ x[:, 0] / 0.5 + 1))
    row = found.loc[("x0", "x1")]
    assert z_of(row, p * mean) < 5
    assert row["probability"] == pytest.approx(p, abs=5 * np.sqrt(p * (1 - p) / DRAWS))


def test_effects_need_linear_scores():
    scores = graphs.bdeu(torch.randint(0, 2, (20, 2), generator=torch.Generator().manual_seed(0)))
    with pytest.raises(ConfigurationError, match="linear"):
        graphs.exact(scores).posterior(10).effects()
