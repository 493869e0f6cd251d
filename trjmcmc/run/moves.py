"""Kernels built from a target and a map.

Which of them a run tries is decided in :mod:`trjmcmc.run.recipes`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import cast

from torch import Tensor

from ..errors import ConfigurationError
from ..kernel.base import Kernel
from ..kernel.between.birth_death import BirthDeath
from ..kernel.components.births import ComponentBirthDeath
from ..kernel.components.common import CommonWalk
from ..kernel.components.exchange import ComponentExchange
from ..kernel.components.shared import SharedWalk
from ..kernel.components.walk import ComponentWalk
from ..kernel.compose import Cycle
from ..kernel.graphs.blocks import BlockGibbs
from ..kernel.graphs.layers import LayerGibbs
from ..kernel.graphs.learnt import OrderRefresh
from ..kernel.graphs.parents import EdgeReversal, ParentGibbs
from ..kernel.graphs.walk import GraphWalk
from ..kernel.proposal.base import IndexProposal
from ..kernel.proposal.fixed import Fixed
from ..kernel.proposal.mixture import MixtureProposal
from ..kernel.proposal.neighbours import Neighbours
from ..kernel.proposal.surrogate import SurrogateWalk
from ..space.base import Space
from ..space.dags import Dags
from ..target.exchangeable import Components
from ..target.target import Target

SWAPS = 0.3  # of the proposals among neighbours, that exchange two items

NEAR = 0.5  # of births and deaths, that lead to neighbours, where models are few

BLOCK = 9  # nodes that get new parents together; twenty nodes, 60 s, largest error .29 with 6, .048
# with 8, .024 with 10, .031 with 11

LAYERED = 0.33  # of the nodes, those that move between layers for each block; without layers errors
# are twice as large where there are hardly any edges

REVERSALS = 4  # edges turned around with new parents, beside one new parent set; Sachs's 853 rows,
# 256 chains, 6 s: largest errors .007 and .008 by these alone

BIRTHS = 2  # a walk of a component: two are jointly best on pulses and galaxies


def proposal(space: Space, guess: Tensor | None) -> IndexProposal:
    """By evidences where the models are few, else to neighbours."""
    if not space.few and space.has_items:
        return Neighbours(space)
    return Fixed(space, guess, other=True)


def birth_death(target: Target, guess: Tensor | None) -> Kernel:
    """The classical move: to neighbours, and where models are few to any."""
    space = target.space
    if not space.has_items or (space.gaps and space.enumerable):
        return BirthDeath(target, Fixed(space, guess, other=True))
    near: IndexProposal = Neighbours(space, swap=swaps(space))
    if space.graphs and target.equations is not None and target.equations.scores is not None:
        cheap = Target(cast("Dags", space).bare(), {}, target.equations.scores.to(target.device))
        to = SurrogateWalk(cheap, GraphWalk(cheap, moves=1))
        return Cycle([BirthDeath(target, near), BirthDeath(target, to, name="births by scores")])
    if space.orders:
        return Cycle([BirthDeath(target, near), OrderRefresh(target)])
    if guess is not None and not space.counts:
        far = Fixed(space, guess, other=True)
        near = MixtureProposal([near, far], [NEAR, 1 - NEAR])
    return BirthDeath(target, near)


def graph_moves(target: Target) -> dict[str, Kernel]:
    """Moves over graphs by tables of local scores, by name."""
    reversal, nodes = EdgeReversal(target), len(cast("Dags", target.space).nodes)
    return {
        "blocks": BlockGibbs(target, size=BLOCK),
        "layers": LayerGibbs(target, moves=math.ceil(LAYERED * nodes)),
        "edge reversal": Cycle([(reversal, REVERSALS), ParentGibbs(target)]),
        "graph walk": GraphWalk(target),
    }


def component_births(target: Target, parts: Sequence[Components]) -> Kernel:
    """Births and deaths of the components of each kind in turn."""
    counted = [part for part in parts if part.kind.max > part.kind.min]
    return Cycle([(ComponentBirthDeath(target, part), BIRTHS) for part in counted])


def component_exchanges(
    target: Target,
    parts: Sequence[Components],
    pairs: Mapping[tuple[int, int], int] | None = None,
) -> list[ComponentExchange]:
    """Exchanges of components of each kind whose signal is known.

    Raises:
        ConfigurationError: The user has stated what signals are linear in, or where components are
            born, and they can't be exchanged.
    """
    found, additive = [], target.additive
    for part in parts:
        own = part.kind.of
        stated = additive is not None and {*(additive.linear or ()), *additive.births} & {*own}
        try:
            found.append(ComponentExchange(target, part, pairs=pairs))
        except ConfigurationError as error:
            if stated:
                raise ConfigurationError(
                    f"Additive: linear, births: {sorted(stated)} can't be made use of: {error}"
                ) from error
    return found


def component_walks(target: Target, parts: Sequence[Components]) -> list[Kernel]:
    """Walks of one component of each kind, of all at once, and of what all share."""
    each: list[Kernel] = [ComponentWalk(target, part, times=3) for part in parts]
    # as in mixtures: where one signal leaves the others as they are, scales in common are few
    each += [CommonWalk(target, part) for part in parts if part.delicate or not part.additive]
    return [*each, Cycle([(SharedWalk(target), 4)])] if parts and parts[0].shared else each


def swaps(space: Space) -> float:
    """Share of the swaps among neighbours."""
    return SWAPS if space.units > 1 else 0.0
