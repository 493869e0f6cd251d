"""Climbs of prior draws in the models that chains visit most, where there are too many for all."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor

from .. import clock
from ..draws import Pool
from ..errors import TRJError
from ..pilot.lost import Screening
from ..pilot.parts import Ellipsoid, Part
from ..pilot.policy import WalkPolicy
from ..pilot.screening import LEAST_SCALE, screen
from ..pilot.survey import PilotRuns
from ..pilot.walk import walked
from ..space.codes import distinct
from ..target.exchangeable import components_of
from ..target.target import Target
from ..transport.normals import NormalMixture
from .knowledge import Knowledge
from .policy_of_screening import ScreeningBudget

NORMALS = 16  # by which chains know a model, at most

DRAWN = 4096  # draws of the prior that give its width, and of these normals that give its evidence

LEAST_EFFECTIVE = 100.0  # of these: normals that know a model worse tell nothing of it


def screen_visited(
    known: Knowledge, seconds: float, seen: Pool | None, seed: int
) -> tuple[tuple[Screening, list[Part]], ...]:
    """What prior draws say of the models that chains visit most, and the parts that were lost.

    Arguments:
        known: What is known of the target.
        seconds: That it may take, about.
        seen: Points that chains have passed.
        seed: Of a source of randomness of its own.
    """
    target, policy, begun = known.target, known.policy.screening, clock.now()
    calls_are_few = not math.isinf(known.spending.account.limit)
    if seen is None or calls_are_few or not known.strategy.chooses:  # as the user has asked
        return ()
    generator = torch.Generator(target.device).manual_seed(seed)
    found: list[tuple[Screening, list[Part]]] = []
    models = visited(target, seen, policy)
    for place, (code, points) in enumerate(models):
        left = (begun + seconds - clock.now()) / (len(models) - place)
        share = max(left, seconds / len(models) / 2)  # however long those before it took
        with suppress(TRJError):  # the likelihood fails out there
            found += _screen_visited(known, code, points, seen, share, generator)
    known.spending.spend("screening", clock.now() - begun)
    return tuple(found)


def visited(target: Target, seen: Pool, policy: ScreeningBudget) -> list[tuple[Tensor, Tensor]]:
    """Models (L,) that chains visit often, few that have every coordinate among them, and points.

    Of exchangeable components those of one: of more, each mode would be there many times.

    Arguments:
        target: The target.
        seen: Points that chains have passed.
        policy: How many models, and how often.
    """
    codes, which, counts = distinct(seen.code)
    active = target.space.active(codes)
    usable = active.any(1) & (counts >= policy.least_points)
    if parts := components_of(target):
        usable &= torch.stack([part.count(codes) for part in parts]).sum(0) <= 1
    chosen, new = list[int](), active & usable[:, None]
    while len(chosen) < policy.visited_models and bool(new.any()):
        chosen.append(int((new.sum(1) * counts).argmax()))
        new = new & ~active[chosen[-1]]
    device = target.device
    return [(codes[m].to(device), seen.theta[which == m].to(device)) for m in chosen]


def _screen_visited(
    known: Knowledge,
    code: Tensor,
    points: Tensor,
    seen: Pool,
    seconds: float,
    generator: torch.Generator,
) -> list[tuple[Screening, list[Part]]]:
    """What prior draws say of one model; nothing where there is no time.

    With so many models chains need not have met each combination of what they know of the
    coordinates: that is no loss.

    Arguments:
        known: What is known of the target.
        code: The model, shape (L,).
        points: Of chains in it, shape (n, D).
        seen: Points of chains in all models.
        seconds: That it may take, about.
        generator: Source of randomness.
    """
    target, policy = known.target, known.policy.screening
    walk, each = policy.climbs.walk, policy.evaluations_a_draw
    price = max(PilotRuns(target, generator).price(code[None]), 1e-12)
    most = policy.most_draws if target.differentiable else policy.most_without_gradients
    affordable = int((seconds / price - walk.walkers * walk.steps) / each)
    if affordable < policy.least_draws:
        return []
    density = KnownToChains.by_walks(target, code, points, generator, walk)
    if not density.effective_draws >= LEAST_EFFECTIVE:
        return []
    now = clock.now()
    said, parts = screen(
        target,
        code,
        density.log_evidence,
        [lambda: density],
        points,
        min(most, affordable),
        generator,
        now + (1 - policy.crowd_share) * seconds,
        policy.crowd_share * seconds,
        policy.climbs,
    )
    least = policy.climbs.known_fraction * said.share / (1 + said.share)
    if all(is_familiar(part.place, seen, target, least) for part in parts):
        said, parts = said.settled(), []
    climbed = int(policy.climbs.climbing_share * said.draws)  # other coordinates choose which
    return [(replace(said, visited=True, draws=climbed), parts)]


def is_familiar(place: Ellipsoid, seen: Pool, target: Target, least: float) -> bool:
    """Whether chains have been in the range of each coordinate of a place, in whatever model.

    Arguments:
        place: The place.
        seen: Points of chains.
        target: The target.
        least: Share of the points that have the coordinate which must be in its range.
    """
    active = target.space.active(seen.code)[:, place.used.to(seen.code.device)]
    theta = seen.theta[:, place.used.to(seen.code.device)].double()
    reach = place.sds * place.factor.norm(dim=1)
    inside = active & ((theta - place.centre.to(theta)).abs() < reach.to(theta))
    return bool((inside.sum(0) > least * active.sum(0)).all())


class KnownToChains:
    """A model as chains know it: normals fitted to points, and the evidence.

    Arguments:
        target: The target.
        code: The model, shape (L,).
        points: That tell where chains are in it, shape (n, D).
        generator: Source of randomness.

    Attributes:
        log_evidence: Of the model, without what chains have not met, nats.
        effective_draws: Of the normals, on which it rests.
    """

    def __init__(
        self, target: Target, code: Tensor, points: Tensor, generator: torch.Generator
    ) -> None:
        self._used = target.free(code[None])[0]
        codes = code.expand(DRAWN, -1)
        self._normals = NormalMixture.fitted(points[:, self._used].double(), NORMALS, generator)
        x = self._normals.sample(DRAWN, generator)
        there = torch.zeros(DRAWN, target.dim, dtype=target.dtype, device=target.device)
        there[:, self._used] = x.to(target.dtype)
        log_w = target.log_joint(codes, there).double() - self.log_prob(there, codes)
        prior = float(target.space.log_prior(code[None])[0])
        self.log_evidence = float(log_w.logsumexp(0)) - math.log(DRAWN) - prior
        effective = (2 * log_w.logsumexp(0) - (2 * log_w).logsumexp(0)).exp()
        self.effective_draws = float(effective.nan_to_num(0.0))

    @classmethod
    def by_walks(
        cls,
        target: Target,
        code: Tensor,
        theta: Tensor,
        generator: torch.Generator,
        policy: WalkPolicy,
    ) -> KnownToChains:
        """From walks: a chain of a run is seldom in one of many models, so that points are few.

        Arguments:
            target: The target.
            code: The model, shape (L,).
            theta: Points of the chains, shape (n, D).
            generator: Source of randomness.
            policy: How long the walks are.
        """
        drawn = target.sample_prior(code.expand(DRAWN, -1), generator)
        scale = drawn[drawn.isfinite().all(-1)].std(0).nan_to_num(1.0).clamp(min=LEAST_SCALE)
        which = torch.arange(policy.walkers, device=theta.device) % len(theta)
        points = walked(target, code, theta[which], scale, generator, policy)
        return cls(target, code, points, generator)

    def log_prob(self, theta: Tensor, code: Tensor) -> Tensor:
        """Log density of the normals at points (n, D), shape (n,), nats."""
        return self._normals.log_prob(theta[:, self._used].double())
