"""Local scores of structural equations whose weights have no closed form, by tempering."""

from __future__ import annotations

import math

import torch

from ..errors import ConfigurationError
from ..pilot.families import listed_families, temper_families
from ..target.nodes import Nodes
from ..target.scores import LocalScores
from ..target.target import Target


def evidences(
    target: Target,
    *,
    particles: int = 1000,
    replicates: int = 4,
    moves: int = 30,
    seed: int = 0,
) -> LocalScores:
    """Log evidences of each node given each of its parent sets, with their errors.

    Given the graph the posterior is a product over nodes, so that d 2^(d - 1) tempered runs of one
    equation each stand for all graphs: sum these by :func:`exact`. Errors are by the spread of
    the replicates.

    Arguments:
        target: Of :func:`equations` or :func:`network`; ``max_parents`` makes it cheaper.
        particles, moves: Of the tempered runs; a family of ten weights takes some seconds.
        replicates: Independent runs of each.
        seed: Of all randomness.

    Raises:
        ConfigurationError: Another target; more than 16 nodes; fewer than two replicates.

    Source:
        Tempered sequential Monte Carlo: Del Moral, Doucet & Jasra (2006),
        https://doi.org/10.1111/j.1467-9868.2006.00553.x

    Example:
        >>> from trjmcmc import graphs
        >>> x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
        >>> found = evidences(graphs.network(x, noise=1.0), particles=200, moves=5)
        >>> known = graphs.linear(x, noise=1.0)
        >>> bool(((found.table - known.table).abs() < 0.5).all())
        True
    """
    if replicates < 2:
        raise ConfigurationError(f"evidences: expected 2 replicates or more, got {replicates}")
    nodes = Nodes(target)
    families = listed_families(nodes.space)
    if families is None:
        raise ConfigurationError("evidences: expected 2 to 16 nodes")
    found = temper_families(
        nodes,
        families,
        particles=particles,
        replicates=replicates,
        moves=moves,
        generator=torch.Generator(target.device).manual_seed(seed),
    )
    table = torch.full(families.shape, -math.inf, dtype=torch.float64, device=target.device)
    error = torch.zeros_like(table)
    table[families] = torch.cat([node.value for node in found]).double()
    spread = torch.cat([node.log_evidence.std(1) for node in found]).double()
    error[families] = spread / replicates**0.5
    table[:, 0] = torch.where(families[:, 0], table[:, 0], 0.0)  # the space forbids it
    return LocalScores(nodes.space.nodes, table, std_error=error)
