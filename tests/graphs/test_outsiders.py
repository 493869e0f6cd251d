"""Exact answers beside those of another program, where there is an interpreter that has it.

SUMU_PYTHON=/path/to/python python -m pytest tests/graphs/test_outsiders.py
"""

import os
import subprocess

import numpy as np
import pytest

from tests.graphs.small import data
from trjmcmc import graphs

SUMU = os.environ.get("SUMU_PYTHON")
SCRIPT = "import sys, numpy, sumu; numpy.save(sys.argv[2], sumu.aps(numpy.load(sys.argv[1])))"


@pytest.mark.skipif(SUMU is None, reason="SUMU_PYTHON is not set")
@pytest.mark.parametrize("d", [5, 10, 14])
def test_sums_over_all_graphs_are_those_of_sumu(d, tmp_path):
    """Log weights of the graphs in which each node has each of its parent sets."""
    scores = graphs.bge(data(d, n=100, seed=d))
    there, back = tmp_path / "weights.npy", tmp_path / "sums.npy"
    np.save(there, scores.table.numpy())
    subprocess.run([SUMU, "-c", SCRIPT, str(there), str(back)], check=True)
    sums = np.load(back)
    totals = np.logaddexp.reduce(sums, 1)
    edges = np.zeros((d, d))
    for j in range(d):
        p = np.exp(sums[j] - totals[j])
        for k, i in enumerate(scores.candidates[j].tolist()):
            edges[i, j] = p[(np.arange(len(p)) >> k) & 1 == 1].sum()
    exact = graphs.exact(scores)
    gap = np.abs(exact.edges.to_numpy() - edges).max()
    assert gap < 1e-10, gap
    prior = graphs.exact(scores).log_evidence - totals[0]
    assert np.allclose(prior, graphs.exact(scores).log_evidence - totals, atol=1e-8)
    print(f"{d} nodes: edges differ by {gap:.2g}")
