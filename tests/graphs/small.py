"""Small problems over graphs whose answers are sums over all of them."""

import math

import torch

import trjmcmc as trj


def random_table(d, generator, spread=3.0):
    """Log weights of parent sets, (d, 2^d), with -inf where a node would be its own parent."""
    own = ((torch.arange(2**d) >> torch.arange(d)[:, None]) & 1) == 1
    table = spread * torch.randn(d, 2**d, generator=generator, dtype=torch.float64)
    return table.masked_fill(own, -math.inf)


def every_graph(d):
    return trj.Dags([f"x{i}" for i in range(d)]).enumerate()


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
