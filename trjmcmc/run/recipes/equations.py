"""Graphs whose equations have parameters: mixtures of normals for each node given its parents."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from ...draws import Pool
from ...errors import (
    ConfigurationError,
    ConvergenceError,
    CoverageWarning,
    TargetError,
    UnreachableError,
    warn_user,
)
from ...kernel.base import Kernel, State, start
from ...kernel.compose import Cycle
from ...kernel.graphs.draws import GraphDraws
from ...kernel.graphs.families import Families, FamilyJump, FamilyRefresh
from ...kernel.graphs.walk import GraphWalk
from ...kernel.inside.random_walk import RandomWalk
from ...kernel.proposal.surrogate import SurrogateWalk
from ...pilot.families import listed_families, temper_families
from ...space.dags import Dags
from ...target.nodes import Nodes
from ...target.scores import LocalScores
from ...target.target import Target
from ...transport.laplace import LaplaceMap
from ...transport.normals import NormalMixture
from ..plan import Plan
from .base import Known, Moves, Recipe
from .graphs import FIRST

MOST_FAMILIES, MOST_TEMPERED = 6000, 200  # whose normals are found by Newton steps; by tempering

EFFECTIVE = 0.3  # share of the draws of the median family from which normals at modes will do

NEARLY_EXACT = 0.9  # the same from which whole graphs are proposed alone

CHECKED = 256  # draws of each family by which that is judged

DOUBTED = 0.05  # of the chains, that start in a family whose tempered runs contradict each other

FIRST_STEPS = 200  # by evidences alone, from draws of the prior over graphs to first ones

TRIES, MOST_TRIES = 0.9, 32  # draws that a jump tries, times their effective share; and at most

WALKS = 3  # of all parameters, a step

DRAWS_A_STEP = 2**14  # that all chains try for all nodes, by which fewer chains are made

DRAWN = 20  # times that chains are drawn anew at most, where a likelihood is 0

CONTRADICTION = 2.0  # nats between tempered runs of a family

PARTICLES, REPLICATES, MOVES = 500, 2, 30  # of tempering, a family

COMPONENTS, FITTED_DRAWS = 30, 8000  # normals in the mixture of a family; draws they are fitted to

WIDENING = 1.3  # of these normals: of networks with three hidden units, one draw in a hundred had
# 400 times the mean weight without, 50 times with it

WHOLE = "families"  # the jump to graphs that are drawn whole


class EquationsRecipe(Recipe):
    """Jumps to graphs that evidences of families propose, with parameters from their mixtures.

    A family is a node with its parents. Its mixture is the normal at the mode where draws of most
    such normals are effective, else what is fitted to tempered draws. What is known of families is
    kept as plain tensors: evidences, rows, shares, means and factors of the mixtures, and the
    effective share of draws from the median one.
    """

    def __init__(
        self, target: Target, plan: Plan, generator: torch.Generator, **settings: Any
    ) -> None:
        super().__init__(target, replace(plan, first=min(plan.first, FIRST)), generator, **settings)

    def begin(self) -> tuple[Known, State]:
        families = self._families()
        share = effective(families, CHECKED, self.generator).nan_to_num(0.0).median()
        state = self._started(families, self._chains(tries_of(share)))
        made = families.log_shares.exp(), families.mean, families.factor
        tables = families.scores.table, families.index, *made, share
        pool = Pool(state.code, state.theta, state.log_joint.double())
        nothing = torch.zeros(self.plan.groups, dtype=torch.float64)
        return Known(pool, None, nothing, families=tables), state

    def _families(self) -> Families:
        """Normals at the modes if these will do, else what tempering finds."""
        target, g, nodes = self.target, self.generator, Nodes(self.target)
        listed = listed_families(nodes.space)
        assert listed is not None
        normals = by_normals(nodes, listed) if target.differentiable else None
        if normals is not None:
            share = effective(normals, CHECKED, g).median()
            if share > EFFECTIVE or int(listed.sum()) > MOST_TEMPERED:
                return normals
        try:
            return by_tempering(nodes, listed, g, ended=lambda: self.late)
        except (TargetError, ConvergenceError):  # the prior reaches where nothing is possible
            if normals is None:
                raise
            return normals

    def _chains(self, tries: int) -> int:
        """Chains: fewer where each tries many parameters a step."""
        groups, nodes = self.plan.groups, self.target.space.code_width
        each = max(self.least_chains, DRAWS_A_STEP // (nodes * tries) // groups)
        return self.chains if self.stated.chains else min(self.chains, groups * each)

    def _started(self, families: Families, n: int) -> State:
        """Chains at graphs that evidences propose, with parameters from the mixtures.

        Raises:
            UnreachableError: The likelihood is 0 wherever a group was begun.
        """
        target, groups = self.target, self.plan.groups
        code, theta = self._drawn(families, n)
        self._doubt(families, code)
        for _ in range(DRAWN):
            sound = target.log_joint(code, theta).abs() < math.inf
            if self.late or bool(sound.all()):
                break
            other, point = self._drawn(families, n)
            code = torch.where(sound[:, None], code, other)
            theta = torch.where(sound[:, None], theta, point)
        sound = (target.log_joint(code, theta).abs() < math.inf).view(-1, groups)
        if not bool(sound.any(0).all()):
            raise UnreachableError("likelihood: it is 0 wherever chains were begun")
        pick = sound.T.double().multinomial(len(sound), True, generator=self.generator).T
        every = torch.arange(n, device=code.device).view(-1, groups)
        rows = torch.where(sound, every, pick * groups + every[:1]).flatten()
        return start(target, code[rows], theta[rows])

    def _drawn(self, families: Families, n: int) -> tuple[Tensor, Tensor]:
        """Graphs and parameters, masks (n, d) and coordinates (n, D)."""
        target, g, nodes = self.target, self.generator, families.nodes
        cheap, code = surrogate(families), target.space.sample_prior(n, g)
        state = start(cheap, code, torch.zeros(n, 0, dtype=cheap.dtype, device=target.device))
        name, move = next(iter(proposals(cheap).items()))
        for _ in range(1 if name == WHOLE else FIRST_STEPS):
            state, _ = move.step(state, g)
        node, place, row = places_of(families, state.code)
        value = families.sample(row, families.active(node, place), g)
        theta = torch.zeros(n, target.dim, dtype=target.dtype, device=target.device)
        theta[:, nodes.slots.flatten()] = value.view(n, -1)
        return state.code, theta

    def _doubt(self, families: Families, code: Tensor) -> None:
        """Warn where tempered runs of families that chains begin in contradict each other."""
        row = places_of(families, code)[2].view(code.shape).clamp(min=0)
        share = (families.gap[row] > CONTRADICTION).double().mean(0)
        names = cast("Dags", self.target.space).nodes
        worst = [names[j] for j in (share > DOUBTED).nonzero()[:, 0]]
        if worst:
            warn_user(
                f"tempered runs of the equation(s) of {', '.join(worst)} contradict each other (by "
                f"up to {float(families.gap[row].max()):.1f} nats): a part of their posterior may "
                "be lost, and chains start there. Compare with "
                "trj.graphs.exact(trj.graphs.evidences(target, particles=2000))",
                CoverageWarning,
            )

    def moves(self, known: Known, generator: torch.Generator) -> Moves:
        target, nodes = self.target, Nodes(self.target)
        table, index, weight, mean, factor, share = known.families
        scores = LocalScores(nodes.space.nodes, table)
        families = Families(nodes, scores, index, weight, mean, factor)
        cheap, tries = surrogate(families), tries_of(share)
        between: dict[str, Kernel] = {}
        for name, move in proposals(cheap).items():
            if between and share >= NEARLY_EXACT:
                break  # graphs that are drawn whole are all but independent
            to = SurrogateWalk(cheap, move)
            between[name] = FamilyJump(target, families, to, tries=tries, name=name)
        walks = Cycle([(RandomWalk(target), WALKS if tries > 1 else 1)])
        return Moves(between, [FamilyRefresh(target, families, tries=tries), walks])


def tries_of(share: Tensor) -> int:
    """Draws that a jump tries, by the effective share of these."""
    return math.ceil(min(MOST_TRIES, TRIES / (float(share) or 1e-9)))


def has_families(target: Target) -> bool:
    """Whether a target is of equations with parameters whose families are few enough to list."""
    space = target.space
    if target.equations is None or not space.graphs:
        return False
    listed = listed_families(cast("Dags", space))
    most = MOST_FAMILIES if target.differentiable else MOST_TEMPERED
    return listed is not None and int(listed.sum()) <= most


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
