"""Default runs beyond twelve nodes, beside sums over all graphs."""

import pytest
import torch

import trjmcmc as trj
from tests.battery import limit
from tests.graphs.small import data
from trjmcmc import graphs


def star(d, n=100):
    g = torch.Generator().manual_seed(1)
    x = torch.randn(n, d, generator=g, dtype=torch.float64)
    x[:, 1:] += x[:, :1]
    return x


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")  # few draws
@pytest.mark.parametrize(
    ("x", "moves"),
    [
        (data(13, 60), {"graph draws"}),
        (star(13), {"blocks", "layers", "edge reversal", "graph walk"}),
    ],
    ids=["chain", "star"],
)
def test_edges_of_thirteen_nodes(x, moves):
    scores = graphs.bge(x)
    result = trj.TRJSampler(graphs.target(scores), seed=1).run(draws=50, chains=128, progress=False)
    assert set(result.report.plan.weights) == moves
    exact, found = graphs.exact(scores).edges, graphs.GraphPosterior(result).edges()
    truth = torch.tensor([exact.loc[i, j] for i, j in found.index])
    p, se = (torch.tensor(found[c].to_numpy()) for c in ("probability", "se"))
    often = (truth > 0.02) & (truth < 0.98)
    z = ((p - truth) / se)[often]
    assert int(often.sum()) > 20 and float(z.abs().max()) < 1.3 * limit(len(z))
    assert float((p - truth).abs().max()) < 0.1
