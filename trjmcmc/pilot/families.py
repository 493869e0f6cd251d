"""Tempered draws and evidences of a graph's equations, for each node given each of its parents."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..space.dags import Dags
from ..target.nodes import Nodes
from .particles import Particles
from .smc import TemperedSMC

MOST_NODES = 16  # of which all parent sets are listed


class TemperedFamilies(NamedTuple):
    """What tempering has found of the families of one node.

    Attributes:
        code: Their parents, over the node's target, shape (R, d - 1).
        log_evidence: By family and replicate, float64, shape (R, replicates).
        run: Particles; row ``i * replicates + r`` is replicate r of family i.
    """

    code: Tensor
    log_evidence: Tensor
    run: Particles

    @property
    def value(self) -> Tensor:
        """Log of the mean evidence, (R,)."""
        return self.log_evidence.logsumexp(1) - math.log(self.log_evidence.shape[1])

    def draw(self, family: int, n: int, generator: torch.Generator) -> Tensor:
        """Coordinates of the node's target, (n, m), as many from each replicate, about."""
        replicates = self.log_evidence.shape[1]
        row = family * replicates + torch.arange(n, device=self.code.device) % replicates
        return self.run.theta[self.run.draw(row, generator)]


def listed_families(space: Dags) -> Tensor | None:
    """Which families a space has, by node and place among the others, (d, 2^(d - 1)) bool.

    None of a single node, or where they are too many to list.
    """
    d = len(space.nodes)
    if not 1 < d <= MOST_NODES:
        return None
    allowed = space.prior_table() > -math.inf
    place = torch.arange(2 ** (d - 1), device=allowed.device)
    rows = []
    for j in range(d):
        low = (1 << j) - 1
        rows.append(allowed[j, (place & low) | ((place & ~low) << 1)])
    return torch.stack(rows)


def temper_families(
    nodes: Nodes,
    families: Tensor,
    *,
    particles: int,
    replicates: int,
    moves: int,
    generator: torch.Generator,
    ended: Callable[[], bool] | None = None,
) -> list[TemperedFamilies]:
    """Temper each family of each node from its prior, some times over.

    Arguments:
        nodes: The equations.
        families: Which there are, as of :func:`listed_families`.
        particles, moves: Of :class:`~trjmcmc.pilot.smc.TemperedSMC`.
        replicates: Independent runs a family.
        generator: Source of randomness.
        ended: Whether to be done at once, as of :class:`~trjmcmc.pilot.smc.TemperedSMC`.
    """
    found = []
    for j, target in enumerate(nodes.targets):
        code = nodes.subsets(families[j].nonzero()[:, 0])
        run = TemperedSMC(
            target,
            code.repeat_interleave(replicates, 0),
            particles=particles,
            moves=moves,
            ended=ended,
            generator=generator,
        ).run()
        found.append(TemperedFamilies(code, run.log_evidence.view(len(code), replicates), run))
    return found
