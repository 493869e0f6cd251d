"""Small problems over graphs whose answers are sums over all of them."""

import math

import numpy as np
import pandas as pd
import torch

import trjmcmc as trj
from tests.places import SHARED


def random_table(d, generator, spread=3.0):
    """Log weights of parent sets, (d, 2^d), with -inf where a node would be its own parent."""
    own = ((torch.arange(2**d) >> torch.arange(d)[:, None]) & 1) == 1
    table = spread * torch.randn(d, 2**d, generator=generator, dtype=torch.float64)
    return table.masked_fill(own, -math.inf)


def every_graph(d):
    return trj.graphs.Dags([f"x{i}" for i in range(d)]).enumerate()


def weights(table, code):
    """Log weights of graphs, masks (C, d) -> (C,)."""
    return table[torch.arange(len(table)), code].sum(1)


def data(d, n=40, seed=0):
    """A chain of linear equations."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=g, dtype=torch.float64)
    for j in range(1, d):
        x[:, j] += 0.8 * x[:, j - 1]
    return x


def sachs_names():
    names = "praf pmek plcg PIP2 PIP3 p44/42 pakts473 PKA PKC P38 pjnk"
    return names.split()


def sachs_truth(edges):
    """The consensus graphs of 18 edges, which has a cycle, and of 17, 0/1 (d, d)."""
    names = sachs_names()
    found = np.zeros((11, 11), dtype=int)
    for cause, effect in pd.read_csv(SHARED / "data" / "sachs_consensus.csv").to_numpy():
        found[names.index(cause), names.index(effect)] = 1
    if edges == 17:
        less = "plcg>PKC PIP2>PIP3 PIP2>PKC PIP3>plcg PIP3>pakts473"
        more = "plcg>PIP3 PIP3>PIP2 p44/42>pakts473 PKC>PKA"
        for pairs, value in ((less, 0), (more, 1)):
            for pair in pairs.split():
                i, j = map(names.index, pair.split(">"))
                assert found[i, j] == 1 - value
                found[i, j] = value
    assert found.sum() == edges
    return found
