"""Climbs of prior draws in the parameters of one item at a time, where models are many."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import clock
from ..draws import Pool
from ..errors import TRJError
from ..kernel.base import State, start
from ..pilot.lost import Screening
from ..pilot.parts import Part
from ..pilot.screening import LARGEST, screen
from ..pilot.survey import PilotRuns
from ..space.base import Space
from ..target.conditional import Conditional
from ..target.target import Target
from .knowledge import Knowledge
from .policy_of_screening import ScreeningBudget
from .visited import LEAST_EFFECTIVE, KnownToChains

ENOUGH_POINTS = 200  # of an item, by which normals know it without walks

WITNESSES = 3  # further points of chains at which a part must matter to be lost

MOST_PLANTED = 3.0  # chains that are moved to a part, over those that stay

EVERYWHERE = "the parameters of all models"


class Block(NamedTuple):
    """Parameters that are looked at alone.

    Attributes:
        name: What they are called.
        free: Their slots, shape (D,), bool.
        switch: Place in the code of what switches them on; None if they always are.
    """

    name: str
    free: Tensor
    switch: int | None = None


def screen_items(
    known: Knowledge,
    seconds: float,
    seen: Pool | None,
    seed: int,
    draws: Mapping[str, int],
    most: float = 0.0,
) -> tuple[tuple[Screening, list[Find]], ...]:
    """What prior draws of one item's parameters say, all else as chains have it.

    In models of many items those decide together which draws lie high, so that a lost mode of one
    of them is seldom climbed to; alone it is as easy to meet as in a model of its own.

    Arguments:
        known: What is known of the target.
        seconds: That it should take, about.
        seen: Points that chains have passed.
        seed: Of a source of randomness of its own.
        draws: Prior draws of earlier looks, by name: what had fewest is looked at first.
        most: Seconds that it may take, so that what comes last is looked at as well.

    Returns:
        What was found of each, where there was no time for it of no draws, and what was lost.
    """
    target = known.target
    calls_are_few = not math.isinf(known.spending.account.limit)
    if seen is None or calls_are_few or not target.space.units:
        return ()
    begun = clock.now()
    generator = torch.Generator(target.device).manual_seed(seed)
    blocks = blocks_of(target.space)
    shuffled = torch.randperm(len(blocks), generator=generator, device=target.device).tolist()
    order = sorted(shuffled, key=lambda place: draws.get(blocks[place].name, 0))
    found: list[tuple[Screening, list[Find]]] = []
    for looked, place in enumerate(order):
        spent, block = clock.now() - begun, blocks[place]
        said = Screening(block.name, 0, 0, 0.0, visited=True), list[Find]()
        if spent < max(seconds, most):
            with suppress(TRJError):  # the likelihood fails out there
                share = max((seconds - spent) / (len(order) - looked), 0.0)
                said = _screen_block(known, block, seen, share, generator) or said
        found.append(said)
    known.spending.spend("screening", clock.now() - begun)
    return tuple(found)


def blocks_of(space: Space) -> list[Block]:
    """Parameters of a space of units that are looked at alone: a unit's, and those of all models.

    Arguments:
        space: A bound space of units.
    """
    device = space.slot_item.device
    units = torch.eye(space.code_width, dtype=torch.long, device=device)
    none = space.active(torch.zeros_like(units[:1]))[0]
    free = space.active(units) & ~none
    own = space.items(units) & ~space.items(torch.zeros_like(units[:1]))
    names = ["+".join(space.names[i] for i in row.nonzero()[:, 0].tolist()) for row in own]
    blocks = [Block(names[u], free[u], u) for u in range(len(units)) if bool(free[u].any())]
    return blocks + [Block(EVERYWHERE, none)] * bool(none.any())


class Find(NamedTuple):
    """A part of one block's posterior that chains have lost.

    Attributes:
        block: The block.
        part: What was met.
        share: Its mass over what is known, the block switched off included.
    """

    block: Block
    part: Part
    share: float


class Conditions(NamedTuple):
    """A block at one point of the chains, all else held there.

    Attributes:
        target: The posterior of the block given the rest.
        code: The model with the block, shape (L,).
        density: The block as chains know it; None where they hardly know it.
        log_mass: Log joint density of the point, what chains know of the block integrated out, and
            of the same point without the block: nats.
    """

    target: Conditional
    code: Tensor
    density: KnownToChains | None
    log_mass: float


def _screen_block(
    known: Knowledge, block: Block, seen: Pool, seconds: float, generator: torch.Generator
) -> tuple[Screening, list[Find]] | None:
    """What prior draws say of one block at a point of the chains; None where too little is known.

    A part is lost that matters at further points as well, and where chains have never been.

    Arguments:
        known: What is known of the target.
        block: The block.
        seen: Points of chains.
        seconds: That it may take, about.
        generator: Source of randomness.
    """
    target, policy = known.target, known.policy.screening
    active = block.free.to(seen.theta.device) & target.space.active(seen.code)
    theta = torch.where(active, seen.theta, math.inf)  # nowhere, where it is not in use
    points, begun = theta.to(target.device), clock.now()
    here = _conditions(target, block, seen, points, generator, policy)
    if here is None:
        return None
    price = max(PilotRuns(here.target, generator).price(here.code[None]), 1e-12)
    affordable = int(seconds / price / policy.evaluations_a_draw)
    density, log_model = here.density, float(target.space.log_prior(here.code[None])[0])
    said, parts = screen(
        here.target,
        here.code,
        here.log_mass - log_model,
        [lambda: density] if density is not None else [],
        points,
        min(policy.most_draws, max(affordable, policy.draws_alone)),
        generator,
        begun + seconds,
        policy=policy.alone,
    )
    shares = [math.exp(min(part.log_mass - here.log_mass, LARGEST)) for part in parts]
    for _ in range(WITNESSES if said.lost else 0):
        there = _conditions(target, block, seen, points, generator, policy)
        if there is not None:
            now = [_share_at(there, part) for part in parts]
            shares = now if sum(now) < sum(shares) else shares
    said = replace(said, model=block.name, share=sum(shares), visited=True)
    least = policy.alone.known_fraction * said.share / (1 + said.share)
    visited = sum(float(part.place.holds(points).double().mean()) for part in parts)
    if not said.lost or visited > least:
        return said.settled(), []
    return said, [Find(block, part, share) for part, share in zip(parts, shares, strict=True)]


def _conditions(
    target: Target,
    block: Block,
    seen: Pool,
    points: Tensor,
    generator: torch.Generator,
    policy: ScreeningBudget,
) -> Conditions | None:
    """A block at a random point of the chains; None where too little is known of it.

    Arguments:
        target: The target.
        block: The block.
        seen: Points of chains.
        points: The same where the block is in use, infinite elsewhere, shape (n, D).
        generator: Source of randomness.
        policy: How points become a density.
    """
    there = points[:, block.free].isfinite().all(1)
    enough = int(there.sum()) >= policy.least_points
    rows = there.nonzero()[:, 0] if enough else torch.arange(len(there), device=there.device)
    pick = int(torch.randint(len(rows), (), generator=generator, device=rows.device))
    code = seen.code[rows[pick].to(seen.code.device)].to(target.device)
    held = seen.theta[rows[pick].to(seen.theta.device)].to(target.device)
    with_it, without = code.clone(), code.clone()
    log_without = -math.inf
    if block.switch is not None:
        with_it[block.switch], without[block.switch] = 1, 0
        log_without = float(target.log_joint(without[None], held[None])[0])
    log_model = float(target.space.log_prior(with_it[None])[0])
    some = Conditional(target, with_it, held, block.free)
    density, log_with = None, -math.inf
    if enough:
        density = _as_chains_know(some, with_it, points[there], generator, policy)
        if not density.effective_draws >= LEAST_EFFECTIVE:
            return None
        log_with = density.log_evidence + log_model
    log_mass = float(np.logaddexp(log_with, log_without))
    if not math.isfinite(log_mass) or log_model == -math.inf:
        return None
    return Conditions(some, with_it, density, log_mass)


def _share_at(there: Conditions, part: Part) -> float:
    """Mass of a part that was met at another point, over what is known at this one."""
    log_joint = there.target.log_joint(there.code.expand(len(part.theta), -1), part.theta).double()
    change = (part.log_weight + log_joint - part.log_joint).nan_to_num(-math.inf).logsumexp(0)
    return math.exp(min(part.log_mass + float(change) - there.log_mass, LARGEST))


def _as_chains_know(
    some: Conditional,
    code: Tensor,
    points: Tensor,
    generator: torch.Generator,
    policy: ScreeningBudget,
) -> KnownToChains:
    """A block given the rest as chains know it, by walks where points of them do not tell."""
    if len(points) >= ENOUGH_POINTS:
        density = KnownToChains(some, code, points, generator)
        if density.effective_draws >= LEAST_EFFECTIVE:
            return density
    return KnownToChains.by_walks(some, code, points, generator, policy.alone.walk)


def planted(
    target: Target, state: State, finds: Sequence[Find], generator: torch.Generator
) -> State:
    """Chains, some of them moved to parts that they have lost: as many as belong there.

    Arguments:
        target: The target.
        state: The chains.
        finds: The parts.
        generator: Source of randomness.
    """
    code, theta = state.code.clone(), state.theta.clone()
    weights = torch.tensor([1.0, *(min(find.share, MOST_PLANTED) for find in finds)])
    n = len(code)
    which = torch.multinomial(weights.to(target.device), n, replacement=True, generator=generator)
    for number, find in enumerate(finds, 1):
        rows = (which == number).nonzero()[:, 0]
        if not len(rows):
            continue
        drawn = find.part.theta[find.part.draw(len(rows), generator)]
        theta[rows] = torch.where(find.block.free, drawn.to(theta), theta[rows])
        if find.block.switch is not None:
            code[rows, find.block.switch] = 1
    return start(target, code, theta)
