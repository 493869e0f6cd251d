"""Normals and evidences of a graph's equations, found for each node given each of its parents."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress

import torch
from torch import Tensor

from ..errors import ConfigurationError
from ..kernel.base import Kernel
from ..kernel.graphs.draws import GraphDraws
from ..kernel.graphs.families import Families
from ..kernel.graphs.walk import GraphWalk
from ..pilot.families import temper_families
from ..target.nodes import Nodes
from ..target.scores import LocalScores
from ..target.target import Target
from ..transport.laplace import LaplaceMap
from ..transport.normals import NormalMixture

PARTICLES, REPLICATES, MOVES = 500, 2, 30  # of tempering, a family

COMPONENTS, FITTED_DRAWS = 30, 8000  # normals in the mixture of a family; draws they are fitted to

WIDENING = 1.3  # of these normals: of networks with three hidden units, one draw in a hundred had
# 400 times the mean weight without, 50 times with it

WHOLE = "families"  # the jump to graphs that are drawn whole


def by_normals(nodes: Nodes, families: Tensor) -> Families:
    """The normal at the mode of each family.

    Arguments:
        nodes: The equations; their densities have gradients.
        families: Which there are, as of :func:`~trjmcmc.pilot.families.listed_families`.
    """
    means, factors, scores = [], [], []
    for j, target in enumerate(nodes.targets):
        code = nodes.subsets(families[j].nonzero()[:, 0])
        flow = LaplaceMap(target)
        mean, factor = flow.normals(code)
        means.append(mean)
        factors.append(torch.linalg.cholesky((factor @ factor.mT).double()).to(factor))
        scores.append(flow.log_evidence(code) - target.space.log_prior(code))
    weight = torch.ones_like(torch.cat(means)[:, :1])
    return _families(
        nodes, families, scores, weight, torch.cat(means)[:, None], torch.cat(factors)[:, None]
    )


def by_tempering(
    nodes: Nodes,
    families: Tensor,
    generator: torch.Generator,
    ended: Callable[[], bool] | None = None,
) -> Families:
    """Mixtures of normals fitted to tempered draws of each family, and evidences by tempering.

    Arguments:
        nodes: The equations.
        families: Which there are.
        generator: Source of randomness.
        ended: Whether to be done at once.
    """
    scores, parts = [], list[tuple[Tensor, Tensor, Tensor]]()
    found = temper_families(
        nodes,
        families,
        particles=PARTICLES,
        replicates=REPLICATES,
        moves=MOVES,
        generator=generator,
        ended=ended,
    )
    for target, tempered in zip(nodes.targets, found, strict=True):
        scores.append(tempered.value)
        for i, active in enumerate(target.space.active(tempered.code)):
            draws = tempered.draw(i, FITTED_DRAWS, generator)[:, active].double()
            parts.append(_mixture(draws, active, generator, target))
    weight, mean, factor = (torch.stack(column) for column in zip(*parts, strict=True))
    values = torch.cat([tempered.log_evidence for tempered in found])
    gap = values.amax(1) - values.amin(1)
    return _families(nodes, families, scores, weight, mean, factor, gap)


def effective(families: Families, each: int, generator: torch.Generator) -> Tensor:
    """Share of the draws of each family's mixture that is effective by importance weights, (R,)."""
    node, place = (families.index >= 0).nonzero().unbind(1)
    _, weight = families.tried(node, place, each, generator)
    return 1 / weight.softmax(1).square().sum(1) / each


def surrogate(families: Families) -> Target:
    """Graphs alone, by the evidences of their families."""
    nodes = families.nodes
    return Target(nodes.space.bare(), {}, families.scores, device=nodes.target.device)


def proposals(cheap: Target) -> Mapping[str, Kernel]:
    """Moves of graphs by evidences, by name: whole ones unless nodes are many, and neighbours."""
    found: dict[str, Kernel] = {}
    with suppress(ConfigurationError):  # too many nodes
        found[WHOLE] = GraphDraws(cheap, ahead=1)
    found["families near"] = GraphWalk(cheap, moves=1)
    return found


def places_of(families: Families, code: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Nodes, places of their parents, and rows of the families of graphs (n, d), each (n d,)."""
    node = torch.arange(code.shape[1], device=code.device).repeat(len(code))
    place = families.nodes.places(code).flatten()
    return node, place, families.rows(node, place)


def _mixture(
    draws: Tensor, active: Tensor, generator: torch.Generator, like: Target
) -> tuple[Tensor, Tensor, Tensor]:
    """Weights (k,), means (k, m) and factors (k, m, m) fitted to draws of the active ones."""
    k, m = COMPONENTS, len(active)
    mean = torch.zeros(k, m, dtype=torch.float64, device=draws.device)
    factor = torch.eye(m, dtype=torch.float64, device=draws.device).repeat(k, 1, 1)
    weight = torch.zeros(k, dtype=torch.float64, device=draws.device)
    weight[0] = 1.0
    if draws.shape[1]:
        found = NormalMixture.fitted(draws, k, generator)
        n, own = len(found.weight), active.nonzero()[:, 0]
        weight[:n], mean[:n, own] = found.weight, found.mean
        factor[:n, own[:, None], own] = WIDENING * found.factor
    return tuple(x.to(like.dtype) for x in (weight, mean, factor))  # type: ignore[return-value]


def _families(
    nodes: Nodes,
    families: Tensor,
    scores: list[Tensor],
    weight: Tensor,
    mean: Tensor,
    factor: Tensor,
    gap: Tensor | None = None,
) -> Families:
    table = torch.full(families.shape, -math.inf, dtype=torch.float64, device=families.device)
    table[families] = torch.cat(scores).double()
    table[:, 0] = torch.where(families[:, 0], table[:, 0], 0.0)  # the space forbids it
    index = torch.full_like(table, -1, dtype=torch.long)
    index[families] = torch.arange(int(families.sum()), device=families.device)
    local = LocalScores(nodes.space.nodes, table)
    return Families(nodes, local, index, weight, mean, factor, gap)
