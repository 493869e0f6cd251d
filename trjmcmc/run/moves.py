"""Kernels built from a target and a map.

Which of them a run tries is decided in :mod:`trjmcmc.run.recipes`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import torch
from torch import Tensor

from ..errors import ConfigurationError
from ..estimate.estimate import Estimate
from ..fit.fitted import Fitted
from ..kernel.base import Kernel
from ..kernel.between.birth_death import BirthDeath
from ..kernel.between.jump import Jump
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
from ..kernel.inside.crank_nicolson import CrankNicolson
from ..kernel.inside.random_walk import RandomWalk
from ..kernel.proposal.base import IndexProposal
from ..kernel.proposal.fixed import Fixed, Learnt
from ..kernel.proposal.mixture import MixtureProposal
from ..kernel.proposal.neighbours import Neighbours
from ..kernel.proposal.surrogate import SurrogateWalk
from ..kernel.proposal.sweep import SweepWalk
from ..pilot.modes import mode_map
from ..space.base import Space
from ..space.dags import Dags
from ..target.exchangeable import Components, components_of
from ..target.target import Target
from ..transport.base import Transport
from ..transport.laplace import Laplace
from ..weights.base import ModelWeights
from .maps import matching
from .policy import KernelPolicy
from .policy_of_graphs import GraphPolicy

DEFAULT = KernelPolicy()


def log_guess(
    fitted: Fitted,
    log_mass: Mapping[str, Estimate],
    device: torch.device,
    policy: KernelPolicy = DEFAULT,
) -> Tensor | None:
    """Log-probabilities of the models of a small space as far as they are known yet, (M,)."""
    if not fitted.few:
        return None
    if fitted.audit is not None:
        if fitted.audit.hurried:  # nor would what rests on its draws be better
            return None
        known = fitted.audit.log_mass.to(device)
    elif log_mass:
        known = torch.tensor([e.value for e in log_mass.values()], device=device)
    else:
        return None
    if not bool((known > -torch.inf).any()):
        return None
    p, uniform = known.double().softmax(0), policy.uniform_share
    return ((1 - uniform) * p + uniform / len(p)).log()


def proposal(space: Space, few: bool, guess: Tensor | None) -> IndexProposal:
    """By evidences where the models are few, else to neighbours."""
    if not few and space.has_items:
        return Neighbours(space)
    return Fixed(space, guess, other=True)


def trained_kernel(
    target: Target,
    transport: Transport,
    fitted: Fitted,
    guess: Tensor | None,
    policy: KernelPolicy = DEFAULT,
) -> Kernel:
    """A jump, a Crank-Nicolson move and random walks; moves between modes if there are any."""
    space = target.space
    kernels: list[Kernel | tuple[Kernel, int]] = []
    settings: dict[str, Any] = {"rho": policy.jump_rho, "fresh": policy.fresh_share}
    if space.several:
        to = proposal(space, fitted.few, guess)
        kernels.append(Jump(target, transport, to, **settings))
        if space.orders:
            kernels.append(OrderRefresh(target))
        if fitted.weights is not None:
            learnt = Learnt(fitted.weights)
            kernels.append(Jump(target, transport, learnt, **settings, name="q(m)"))
        if isinstance(transport, Laplace):
            with suppress(ConfigurationError):  # where it does not fit
                walk = SweepWalk(transport)
                kernels.append(Jump(target, transport, walk, **settings, name="sweep"))
    kernels += inside(target, transport, fitted, policy)
    if (parts := components_of(target)) and space.several:
        births = component_births(target, parts, policy)
        kernels += [births, *component_walks(target, parts)]
    return Cycle([*kernels, (RandomWalk(target, scale=fitted.scale), policy.walks)])


def inside(
    target: Target, transport: Transport, fitted: Fitted, policy: KernelPolicy = DEFAULT
) -> list[Kernel]:
    """Moves through a trained map, and between the modes that the audit has found."""
    move = CrankNicolson(target, transport, fresh=policy.fresh_share)
    return [move, *between_modes(target, fitted)]


def between_modes(target: Target, fitted: Fitted) -> list[Kernel]:
    """A move between the modes that the audit has found, if it found several of any model."""
    if not fitted.few or all(len(m) < 2 for m in fitted.modes):
        return []
    modes = matching(mode_map(target.space, fitted.modes), target)
    return [CrankNicolson(target, modes, name="modes")]


def birth_death(
    target: Target,
    guess: Tensor | None,
    policy: KernelPolicy = DEFAULT,
    weights: ModelWeights | None = None,
) -> Kernel:
    """The classical move: to neighbours, where models are few to any, and to those of q(m)."""
    if weights is not None:
        learnt = BirthDeath(target, Learnt(weights), name="q(m)")
        return Cycle([birth_death(target, guess, policy), learnt])
    space = target.space
    if not space.has_items or (space.gaps and space.enumerable):
        return BirthDeath(target, Fixed(space, guess, other=True))
    near: IndexProposal = Neighbours(space, swap=swaps(space, policy))
    if space.graphs and target.equations is not None and target.equations.scores is not None:
        cheap = Target(cast("Dags", space).bare(), {}, target.equations.scores.to(target.device))
        to = SurrogateWalk(cheap, GraphWalk(cheap, moves=1))
        return Cycle([BirthDeath(target, near), BirthDeath(target, to, name="births by scores")])
    if space.orders:
        return Cycle([BirthDeath(target, near), OrderRefresh(target)])
    if guess is not None and not space.counts:
        far = Fixed(space, guess, other=True)
        near = MixtureProposal([near, far], [policy.local_share, 1 - policy.local_share])
    return BirthDeath(target, near)


def graph_moves(target: Target, policy: GraphPolicy) -> dict[str, Kernel]:
    """Moves over graphs by tables of local scores, by name."""
    reversal, nodes = EdgeReversal(target), len(cast("Dags", target.space).nodes)
    return {
        "blocks": BlockGibbs(target, size=policy.block_size),
        "layers": LayerGibbs(target, moves=math.ceil(policy.layer_share * nodes)),
        "edge reversal": Cycle([(reversal, policy.reversals), ParentGibbs(target)]),
        "graph walk": GraphWalk(target),
    }


def component_births(
    target: Target, parts: Sequence[Components], policy: KernelPolicy = DEFAULT
) -> Kernel:
    """Births and deaths of the components of each kind in turn."""
    counted = [part for part in parts if part.kind.max > part.kind.min]
    return Cycle([(ComponentBirthDeath(target, part), policy.births_a_walk) for part in counted])


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
    each: list[Kernel] = [Cycle([(ComponentWalk(target, part), 3)]) for part in parts]
    # as in mixtures: where one signal leaves the others as they are, scales in common are few
    each += [CommonWalk(target, part) for part in parts if part.delicate or not part.additive]
    return [*each, Cycle([(SharedWalk(target), 4)])] if parts and parts[0].shared else each


def swaps(space: Space, policy: KernelPolicy = DEFAULT) -> float:
    """Share of the swaps among neighbours."""
    return policy.swap_share if space.units > 1 else 0.0
