"""Parts of a posterior that prior draws meet, or climb to, and that no map knows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..target.target import Target
from ..transport.base import Transport
from .audit import HOPELESS

Maps = Sequence[Callable[[], Transport]]

CHUNK = 8192  # draws evaluated at once

TOP = 512  # draws of the most mass, or that have climbed highest, that are looked at under the maps

LOST = 0.05  # share of the known mass from which a part matters

LENGTHS = (4.0, 1.0, 0.25, 0.06, 0.015)  # of a climb's steps, in units of the last one

FIRST_LENGTHS = (1.0, 0.25)  # of the step that every draw makes

GO_ON = 8  # one of so many draws that have made a step uphill goes on

CLIMBED, FINISHED = 2, 12  # further steps of these, and of the highest

WALKERS, WALKED, SEEN = 256, 80, 30  # chains about a summit, their steps, those that are kept

WEIGHED = 2048  # draws by which what lies about a summit is weighed

FLATTER = 1.3  # times as wide as what these chains have seen, are those draws

FIRST_STEP, CHANGES = 0.01, (1.3, 0.9)  # of the walks; if one is taken, and if not

NEAR = 3.0  # standard deviations of a squared distance, within which a point is part of it

KNOWN = 0.1  # of the share that it should have among the run's draws: then they know it

LEAST_SCALE = 1e-6

NAMED = 3  # parameters, and entries of one, by which a place is named

LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Screening:
    """What prior draws of one model say of the maps of its posterior.

    Attributes:
        model: Label.
        draws: Prior draws that were looked at. A part of the posterior that holds less than three
            over this number of the prior, slopes that lead to it included, may have been missed
            by all.
        met: How many of them lie, or have ended their climb, where no map has anything to speak of
            although the posterior has.
        share: The mass of that part over that of the model as it is known.
        place: Its highest point, in words; empty if nothing was met.
    """

    model: str
    draws: int
    met: int
    share: float
    place: str = ""

    @property
    def lost(self) -> bool:
        """Whether a part of the posterior that matters is missing from the maps."""
        return not self.share <= LOST

    @property
    def note(self) -> str:
        """What was met, in words."""
        return (
            f"{self.met} of {self.draws} prior draws met a part of the posterior of {self.model!r} "
            f"that neither map nor chains know{self.place and f', near {self.place}'}"
        )


@torch.no_grad()
def screen(
    target: Target,
    code: Tensor,
    log_evidence: float,
    transports: Maps,
    seen: Tensor,
    n: int,
    generator: torch.Generator,
    deadline: float = math.inf,
) -> Screening:
    """Look for posterior mass that maps have lost, from prior draws.

    Narrow modes that tempering loses between its temperatures lie high. Of many prior draws a few
    land there, or lie on its slopes, so that a few steps uphill lead there: what lies about the
    highest point that no map knows is then weighed by importance sampling, and is lost if the
    run's chains have not been there either.

    Arguments:
        target: The target.
        code: One model, shape (L,).
        log_evidence: Of the model as it is known, nats.
        transports: Functions that give maps; a part is lost that none of them knows, and later ones
            are asked only for what the ones before do not know.
        seen: Points of that model that chains have passed, shape (k, D): where they are nothing is
            lost, however poor the maps.
        n: Prior draws, at most.
        generator: Source of randomness.
        deadline: Time by ``time.monotonic`` after which no further batch of them begins.
    """
    (label,) = target.space.label(code[None])
    level = log_evidence + float(target.space.log_prior(code[None])[0])
    high: list[tuple[Tensor, Tensor]] = []
    mass: list[tuple[Tensor, Tensor]] = []
    drawn = 0
    while drawn < n and not (drawn and time.monotonic() > deadline):
        size = min(CHUNK, n - drawn)
        drawn += size
        codes = code.expand(size, -1)
        theta = target.sample_prior(codes, generator)
        usable = theta.isfinite().all(-1)
        theta = torch.where(usable[:, None], theta, 0.0)
        log_prior, log_likelihood = target.log_prior_and_likelihood(codes, theta)
        usable &= log_prior > -math.inf
        mass.append(_best(theta, torch.where(usable, log_likelihood.double(), -math.inf)))
        scale = theta[usable].std(0).nan_to_num(1.0).clamp(min=LEAST_SCALE)
        if target.differentiable and target.space.active(code[None]).any():
            theta = _drawn_in(theta, usable, generator)
            theta, height = _climbed(target, codes, theta, scale, 1, FIRST_LENGTHS)
            theta, _ = _best(theta, height, max(TOP, size // GO_ON))
            theta, height = _climbed(target, codes[: len(theta)], theta, scale, CLIMBED)
            high.append(_best(theta, height))
    theta, _ = _best(torch.cat([x for x, _ in mass]), torch.cat([y for _, y in mass]))
    candidates = theta
    if high:
        theta, _ = _best(torch.cat([x for x, _ in high]), torch.cat([y for _, y in high]))
        theta, _ = _climbed(target, code.expand(len(theta), -1), theta, scale, FINISHED)
        candidates = torch.cat([theta, candidates])
    lost = _unknown(target, code, candidates, level, transports)
    if not bool(lost.any()):
        return Screening(label, drawn, 0, 0.0)
    height = target.log_joint(code.expand(len(candidates), -1), candidates)
    summit = candidates[torch.where(lost, height, -math.inf).argmax()]
    share = _about(target, code, summit, scale, level, transports, seen, generator)
    return Screening(label, drawn, int(lost.sum()), share, _in_words(target, code, summit))


def _in_words(target: Target, code: Tensor, theta: Tensor) -> str:
    """A point by the names of its first parameters, in the user's units."""
    words = []
    for name, value in target.constrain(code, theta[None]).items():
        entries = value.flatten().tolist()
        some = [f"{x:.3g}" for x in entries[:NAMED]] + ["..."] * (len(entries) > NAMED)
        words.append(f"{name} = {', '.join(some)}")
    return "; ".join([*words[:NAMED], *["..."] * (len(words) > NAMED)])


def _drawn_in(theta: Tensor, usable: Tensor, generator: torch.Generator) -> Tensor:
    """Every other point moved towards the middle of them all, by a share that is uniform.

    Draws in many dimensions lie on a shell; modes may lie anywhere inside it.
    """
    share = torch.rand(len(theta), 1, generator=generator, device=theta.device, dtype=theta.dtype)
    share[::2] = 1.0
    middle = theta[usable].mean(0).nan_to_num(0.0)
    return middle + share * (theta - middle)


def _best(theta: Tensor, score: Tensor, most: int = TOP) -> tuple[Tensor, Tensor]:
    """The points that score highest."""
    best = score.nan_to_num(-math.inf, -math.inf, -math.inf).topk(min(most, len(score))).indices
    return theta[best], score[best]


def _unknown(target: Target, code: Tensor, theta: Tensor, level: float, transports: Maps) -> Tensor:
    """Points at which no map has anything to speak of although the posterior has, shape (n,)."""
    codes = code.expand(len(theta), -1)
    log_pi = target.log_joint(codes, theta).double() - level
    lost = log_pi > -math.inf
    for transport in transports:
        if bool(lost.any()):
            log_q = transport().log_prob(theta, codes).double().nan_to_num(-math.inf)
            lost &= log_pi - log_q > HOPELESS
    return lost


def _climbed(
    target: Target,
    code: Tensor,
    theta: Tensor,
    scale: Tensor,
    steps: int,
    lengths: tuple[float, ...] = LENGTHS,
) -> tuple[Tensor, Tensor]:
    """Points some steps uphill, each by a search along the gradient, and their log joints."""
    length = torch.full_like(theta[:, :1], 0.5)
    for _ in range(steps):
        height, gradient = target.log_joint_and_grad(code, theta)
        along = (gradient * scale).nan_to_num(0.0, 0.0, 0.0)
        along = along / along.norm(dim=1, keepdim=True).clamp(min=1e-12) * scale
        here, used = theta, length * lengths[-1]
        for times in lengths:
            there = theta + times * length * along
            value = target.log_joint(code, there)
            better = value > height
            here = torch.where(better[:, None], there, here)
            used = torch.where(better[:, None], times * length, used)
            height = torch.where(better, value, height)
        theta, length = here, used
    return theta, height


def _about(
    target: Target,
    code: Tensor,
    summit: Tensor,
    scale: Tensor,
    level: float,
    transports: Maps,
    seen: Tensor,
    generator: torch.Generator,
) -> float:
    """Mass about a summit that no map knows, over the known mass.

    Chains that walk from there tell its extent; draws of a normal as wide weigh it.
    """
    like: dict[str, Any] = {
        "generator": generator,
        "device": summit.device,
        "dtype": summit.dtype,
    }
    used = target.space.active(code[None])[0]
    codes, theta = code.expand(WALKERS, -1), summit.expand(WALKERS, -1)
    height = target.log_joint(codes, theta)
    size, kept = torch.full_like(theta[:, :1], FIRST_STEP), []
    for step in range(WALKED):
        there = theta + size * scale * used * torch.randn(theta.shape, **like)
        value = target.log_joint(codes, there)
        taken = torch.rand(len(theta), **like).log() < value - height
        theta = torch.where(taken[:, None], there, theta)
        height = torch.where(taken, value, height)
        size = size * torch.where(taken[:, None], *CHANGES)
        if step >= WALKED - SEEN:
            kept.append(theta)
    points = torch.cat(kept)[:, used].double()
    centre, spread = points.mean(0), torch.cov(points.T).reshape(points.shape[1], -1)
    spread = FLATTER**2 * spread + LEAST_SCALE**2 * torch.eye(len(spread), device=spread.device)
    factor, failed = torch.linalg.cholesky_ex(spread)
    if bool(failed) or not bool(spread.isfinite().all()):  # all chains stood still
        return 0.0
    gap = torch.linalg.solve_triangular(factor, (seen[:, used].double() - centre).mT, upper=False)
    inside = gap.square().sum(0) < len(centre) + NEAR * (2 * len(centre)) ** 0.5
    z = torch.randn(WEIGHED, len(centre), generator=generator, device=summit.device).double()
    some = centre + z @ factor.mT
    log_near = -0.5 * z.square().sum(1) - factor.diagonal().log().sum() - LOG_2PI / 2 * len(centre)
    theta = torch.zeros(WEIGHED, target.dim, dtype=summit.dtype, device=summit.device)
    theta[:, used] = some.to(summit.dtype)
    lost = _unknown(target, code, theta, level, transports)
    log_w = target.log_joint(code.expand(WEIGHED, -1), theta).double() - level - log_near
    share = float(torch.where(lost, log_w.exp(), 0.0).mean())
    known = float(inside.double().mean()) if len(inside) else 0.0
    return 0.0 if known > KNOWN * share / (1 + share) else share
