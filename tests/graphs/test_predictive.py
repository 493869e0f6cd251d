"""Densities of other data, averaged over graphs, beside sums over all of them."""

import pytest
import torch

from tests.graphs.small import data, every_graph
from trjmcmc import graphs
from trjmcmc.errors import ConfigurationError

DRAWS = 20_000
MAKE = {
    "bge": graphs.bge,
    "linear": lambda x, **more: graphs.linear(x, noise=0.5, **more),
    "bdeu": lambda x, **more: graphs.bdeu((x > 0).long(), **more),
}


def rows(kind, x):
    return (x > 0).long() if kind == "bdeu" else x


@pytest.mark.parametrize("kind", MAKE)
def test_the_predictive_density_is_a_ratio_of_evidences(kind):
    x = data(3, n=30)
    found = graphs.exact(MAKE[kind](x[:20])).posterior(DRAWS)
    levels = {"levels": [2] * 3} if kind == "bdeu" else {}
    both, first = (graphs.exact(MAKE[kind](some, **levels)) for some in (x, x[:20]))
    truth = both.log_evidence - first.log_evidence
    value = found.log_predictive(rows(kind, x[20:]))
    assert abs(value.value - truth) < 5 * value.std_error + 1e-6
    assert value.std_error < 0.05
    mean = found.log_likelihood(rows(kind, x[20:]))
    assert mean.value < value.value  # Jensen


def test_nodes_that_were_set_have_no_factor():
    """The mean over all graphs of what is left, against the sum over listed ones."""
    x = data(3, n=30)
    mask = torch.zeros(10, 3, dtype=torch.bool)
    mask[:, 1] = True
    exact = graphs.exact(MAKE["linear"](x[:20]))
    value = exact.posterior(DRAWS).log_predictive(x[20:], interventions=mask)
    code = every_graph(3)
    none = torch.zeros(20, 3, dtype=torch.bool)
    first = MAKE["linear"](x[:20])
    both = MAKE["linear"](x, interventions=torch.cat([none, mask]))
    given = first.of(code).log_softmax(0)
    truth = float((given + both.of(code) - first.of(code)).logsumexp(0))
    assert abs(value.value - truth) < 5 * value.std_error + 1e-6
    whole = exact.posterior(DRAWS).log_predictive(x[20:])
    assert abs(whole.value - truth) > 1  # with its factor it is another number


def test_the_mean_without_the_data_is_that_of_dibs():
    x = data(3, n=30)
    exact = graphs.exact(MAKE["bge"](x[:20]))
    value = exact.posterior(DRAWS).log_likelihood(x[20:], given=False)
    code = every_graph(3)
    p = MAKE["bge"](x[:20]).of(code).softmax(0)
    truth = float((p * MAKE["bge"](x[20:]).of(code)).sum())
    assert abs(value.value - truth) < 5 * value.std_error + 1e-6


def test_scores_of_unknown_origin_predict_nothing():
    scores = graphs.LocalScores(["a", "b"], torch.zeros(2, 2))
    with pytest.raises(ConfigurationError, match="scores made by"):
        graphs.exact(scores).posterior(10).log_predictive(torch.zeros(2, 2))
