"""Parts of a posterior that prior draws meet, or climb to, and that the map does not know."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor

from .. import clock
from ..target.target import Target
from ..transport.base import Transport
from .parts import Ellipsoid, Part, distinct_modes, told_apart, weighed
from .report import LOST_NATS
from .slopes import slopes
from .walk import walked

CHUNK = 8192  # draws evaluated at once

FIRST_LENGTHS = (1.0, 0.25)  # tried in the one step of every draw, in half the draws' spread

LENGTHS = (4.0, 1.0, 0.25, 0.06, 0.015)  # tried in a later step, in units of the last one

BOXES = 16  # points of a black box whose slopes are asked for between two looks at the time

CLIMBING, CLIMBING_STEPS = 1 / 8, 2  # of a batch goes on after that step, so many steps

WEIGHING_WIDTH = 1.3  # of a normal that weighs a part, over that of the walkers' points

NEIGHBOURHOOD = 3.0  # standard deviations of a squared distance within which points are of a part

KNOWN = 0.1  # of the share that a part should have among the run's points, from which these know it

LOST_SHARE = 0.005  # of the known mass, from which a part that the map does not know counts as lost

FEW_SEEN_SHARE = 0.05  # the same where chains have passed few points

SEEN_IN_A_PART = 5  # points of the chains that would be there: fewer may all be elsewhere by chance

LEAST_SHARE = 5e-4  # the same, from which a further part is weighed beside those that are larger

HELD_APART = 256  # points among which summits are told apart at once

LEAST_SCALE = 1e-6  # of a coordinate

LARGEST = 700.0  # log of a share that is still a number

# With these numbers 40 000 draws met the lost mode of 9 of 10 runs in 3 to 10 dimensions, with its
# mass right to a few percent, and nothing on five problems where none was lost.

KEPT = 512  # draws of the most mass, or that have climbed highest, held against the maps

FOLLOWED = 1024  # draws that climb to the end however low they lie: they meet what is wide but low

DRAWS_A_CLIMB = 8  # prior draws at least for each of these

SUMMIT_STEPS = 12  # further steps of the highest

PARTS = 8  # summits about which parts are weighed, at most

WALKERS = 128  # chains that walk from a summit, but four for each coordinate at least

STEPS = 80  # of each: their spread is the summit's extent

WEIGHING = 2048  # draws of a normal by which what lies about a summit is weighed


@torch.no_grad()
def search_modes(
    target: Target,
    code: Tensor,
    log_evidence: float,
    known: Transport,
    seen: Tensor,
    n: int,
    generator: torch.Generator,
    deadline: float = math.inf,
    parts: int = PARTS,
    evaluations: float = math.inf,
) -> list[Part]:
    """Look for posterior mass that a map has lost, from prior draws.

    Narrow modes that tempering loses between its temperatures lie high. Of many prior draws a few
    land there, or lie on its slopes, so that some steps uphill lead there: what lies about the
    highest point that the map does not know is then weighed by importance sampling, and is lost if
    the chains have not been there either; then what lies about the next.

    Arguments:
        target: The target.
        code: One model, shape (L,).
        log_evidence: Of the model as it is known, nats.
        known: A map; a part is lost that it does not know.
        seen: Points of that model that chains have passed, shape (k, D): where they are nothing is
            lost, however poor the maps.
        n: Prior draws, at most.
        generator: Source of randomness.
        deadline: Time by :func:`trjmcmc.clock.now` after which no further batch of them begins, and
            nothing counts as lost.
        parts: Summits about which parts are weighed, at most.
        evaluations: Beyond which no second part is weighed.

    Returns:
        The parts that were lost.
    """
    level = log_evidence + float(target.space.log_prior(code[None])[0])
    search = _Search(target, code, level, known, generator, parts, deadline)
    likely: list[tuple[Tensor, Tensor]] = []
    high: list[tuple[Tensor, Tensor]] = []
    ends = torch.zeros(0, target.dim, dtype=target.dtype, device=code.device)
    drawn, before = 0, target.account.evaluations
    while drawn < n and not search.late:
        size = min(CHUNK, n - drawn)
        drawn += size
        theta, log_likelihood, usable = search.prior_draws(size)
        likely.append(search.best(theta, log_likelihood))
        inside = theta[usable]
        spread = inside.std(0) if len(inside) > 1 else torch.ones_like(theta[0])
        scale = spread.nan_to_num(1.0).clamp(min=LEAST_SCALE)
        if target.space.active(code[None]).any():
            high.append(search.highest(_drawn_in(theta, usable, generator), scale))
            if len(high) == 1 and not search.late:
                some = inside[: min(FOLLOWED, n // DRAWS_A_CLIMB)]
                ends = search.ends(some, scale)
    if search.late or not drawn:
        return []
    looked = [search.best_of(likely)]
    if high:
        theta, _ = search.climbed(search.best_of(high), scale, SUMMIT_STEPS, LENGTHS)
        looked = [theta, *looked, ends]
    if search.late:
        return []
    candidates = torch.cat(looked)
    lost = search.lost(candidates)
    if not bool(lost.any()):
        return []
    looked = [x[here] for x, here in zip(looked, lost.split([*map(len, looked)]), strict=True)]
    found = search.parts_among(candidates[lost], scale, seen, before + evaluations)
    found = told_apart(found, search.lost)
    share = sum(math.exp(min(part.log_mass - level, LARGEST)) for part in found)
    if share < min(FEW_SEEN_SHARE, SEEN_IN_A_PART / max(len(seen), 1)):  # missed by chance
        return []
    # the same draws may be among all three
    return [replace(p, met=max(int(p.place.holds(x).sum()) for x in looked)) for p in found]


def draws_within(evaluations: float) -> int:
    """Prior draws that a search of one model may start from, if it weighs one part at most.

    Each draw is evaluated and makes a step, a share of them some further steps; the highest climb
    to their summits, and so do those that are followed.

    Arguments:
        evaluations: That the search may take, about.

    Example:
        >>> draws_within(40_000), draws_within(400_000)
        (295, 49989)
    """
    each = 1 + len(LENGTHS)  # evaluations of a step
    part = WALKERS * (STEPS + 1) + 2 * WEIGHING
    evaluations = max(0.0, evaluations - part)
    climb = SUMMIT_STEPS * each
    first = 2 + len(FIRST_LENGTHS) + CLIMBING * CLIMBING_STEPS * each
    n = int(evaluations / (first + climb + climb / DRAWS_A_CLIMB))  # of few all climb
    if n > KEPT:
        left = evaluations - climb * KEPT
        n = int(left / (first + climb / DRAWS_A_CLIMB))
    if n > FOLLOWED * DRAWS_A_CLIMB:
        n = int((evaluations - climb * (KEPT + FOLLOWED)) / first)
    return max(n, 0)


@dataclass(frozen=True)
class _Search:
    """The search for lost mass of one model.

    Attributes:
        target: The target.
        code: The model, shape (L,).
        level: Its log evidence plus the log of p(model), as known, nats.
        known: A map of its posterior.
        generator: Source of randomness.
        parts: Summits about which parts are weighed, at most.
        deadline: Time by :func:`trjmcmc.clock.now` after which nothing more is looked for.
    """

    target: Target
    code: Tensor
    level: float
    known: Transport
    generator: torch.Generator
    parts: int
    deadline: float

    @property
    def late(self) -> bool:
        """Whether time is up."""
        return clock.now() > self.deadline

    def prior_draws(self, n: int) -> tuple[Tensor, Tensor, Tensor]:
        """Prior draws (n, D), log likelihoods (n,) in nats, and which draws are finite (n,)."""
        codes = self.code.expand(n, -1)
        theta = self.target.sample_prior(codes, self.generator)
        usable = theta.isfinite().all(-1)
        theta = torch.where(usable[:, None], theta, 0.0)
        log_prior, log_likelihood = self.target.log_prior_and_likelihood(codes, theta)
        usable &= log_prior > -math.inf
        return theta, torch.where(usable, log_likelihood.double(), -math.inf), usable

    def ends(self, theta: Tensor, scale: Tensor) -> Tensor:
        """Where climbs of some points (n, D) end, however low that lies: what is wide but low."""
        if not len(theta):
            return theta
        theta, _ = self.climbed(theta, scale, 1, FIRST_LENGTHS)
        return self.climbed(theta, scale, SUMMIT_STEPS, LENGTHS)[0]

    def best(self, theta: Tensor, score: Tensor, least: int = 0) -> tuple[Tensor, Tensor]:
        """The points that score highest, ``kept`` or ``least`` of them, and their scores."""
        most = min(max(least, KEPT), len(score))
        best = score.nan_to_num(-math.inf, -math.inf, -math.inf).topk(most).indices
        return theta[best], score[best]

    def best_of(self, batches: list[tuple[Tensor, Tensor]]) -> Tensor:
        """The points of all batches that score highest."""
        theta, score = (torch.cat(x) for x in zip(*batches, strict=True))
        return self.best(theta, score)[0]

    def highest(self, theta: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """The highest of a batch of points that have made their first steps, and log joints."""
        theta, height = self.climbed(theta, scale, 1, FIRST_LENGTHS)
        theta, _ = self.best(theta, height, int(len(theta) * CLIMBING))
        return self.best(*self.climbed(theta, scale, CLIMBING_STEPS, LENGTHS))

    def climbed(
        self, theta: Tensor, scale: Tensor, steps: int, lengths: tuple[float, ...]
    ) -> tuple[Tensor, Tensor]:
        """Points some steps uphill, each by a search along the gradient, and their log joints.

        Arguments:
            theta: Where they start, shape (n, D).
            scale: Standard deviations of prior draws, shape (D,).
            steps: Steps of each.
            lengths: Lengths that each step tries, in units of the last one.
        """
        length, height = torch.full_like(theta[:, :1], 0.5), theta.new_zeros(len(theta))
        for _ in range(steps):
            if self.late:
                break
            height, gradient = self.slope(theta, scale)
            along = (gradient * scale).nan_to_num(0.0, 0.0, 0.0)
            along = along / along.norm(dim=1, keepdim=True).clamp(min=1e-12) * scale
            here, used = theta, length * lengths[-1]
            for times in lengths:
                if self.late:
                    break
                there = theta + times * length * along
                value = self.height(there)
                better = value > height
                here = torch.where(better[:, None], there, here)
                used = torch.where(better[:, None], times * length, used)
                height = torch.where(better, value, height)
            theta, length = here, used
        return theta, height

    def slope(self, theta: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """Log joints of points (n, D), and their gradients, of black boxes by differences."""
        if self.target.differentiable:
            return self.target.log_joint_and_grad(self.code.expand(len(theta), -1), theta)
        used = self.target.space.active(self.code[None])[0]
        steps = (torch.finfo(theta.dtype).eps ** (1 / 3) * scale).diag_embed()[used]
        height, gradient = self.height(theta), torch.zeros_like(theta)
        for rows in torch.arange(len(theta), device=theta.device).split(BOXES):
            if self.late:
                break
            found = slopes(self.height, theta[rows], height[rows], steps)
            gradient[rows[:, None], used.nonzero()[:, 0]] = found
        return height, gradient

    def lost(self, theta: Tensor) -> Tensor:
        """Points that matter to the posterior and that the map would never propose, shape (n,)."""
        codes, known = self.code.expand(len(theta), -1), self.known
        log_pi = self.height(theta).double() - self.level
        lost = log_pi > -math.inf
        if bool(lost.any()):
            log_q = known.log_prob(known.with_spares(theta, codes), codes).double()
            lost &= log_pi - log_q.nan_to_num(-math.inf) > LOST_NATS
        return lost

    def height(self, theta: Tensor) -> Tensor:
        """Log joint of points (n, D), shape (n,), nats."""
        return self.target.log_joint(self.code.expand(len(theta), -1), theta)

    def parts_among(
        self, theta: Tensor, scale: Tensor, seen: Tensor, evaluations: float
    ) -> list[Part]:
        """Parts about the highest of some points, until one is known or a crumb beside the others.

        Arguments:
            theta: Points that the map does not know, shape (n, D).
            scale: Standard deviations of prior draws, shape (D,).
            seen: Points that chains have passed, shape (k, D).
            evaluations: Of the target, beyond which no second part is weighed.
        """
        parts, account, height = list[Part](), self.target.account, self.height(theta)
        order = height.argsort(descending=True)
        theta, height = theta[order], height[order]
        while len(theta) and len(parts) < self.parts:
            if self.late or (parts and account.evaluations > evaluations):
                break
            most = self.parts - len(parts) if math.isinf(evaluations) else 1
            few = HELD_APART if most > 1 else 1
            found = [*islice(distinct_modes(theta[:few], height[:few], self.height), most)]
            if not found:  # no height is finite
                break
            summits = torch.stack(found)
            used = int(self.target.space.active(self.code[None]).sum())
            starts = summits[:, None].expand(-1, max(WALKERS, 4 * used), -1)
            late = self.deadline
            walks = walked(self.target, self.code, starts, scale, self.generator, STEPS, late)
            if self.late:
                break
            for summit, points in zip(summits, walks, strict=True):
                if any(bool(part.place.holds(summit[None])) for part in parts):
                    continue
                part = self.part_of(points, seen, parts)
                if part is None or (parts and part.log_mass < self.level + math.log(LEAST_SHARE)):
                    return parts
                parts.append(part)
            left = ~torch.stack([part.place.holds(theta) for part in parts]).any(0)
            theta, height = theta[left], height[left]
        return parts

    def part_of(self, points: Tensor, seen: Tensor, others: Sequence[Part] = ()) -> Part | None:
        """The part in which walks have ended; None where the map or chains know it.

        Draws of a normal as wide as their points weigh it; not those that lie in other parts.
        """
        target = self.target
        used = target.space.active(self.code[None])[0]
        points = points[:, used].double()
        centre, spread = points.mean(0), torch.cov(points.T).reshape(points.shape[1], -1)
        least = LEAST_SCALE**2 * torch.eye(len(spread), device=spread.device)
        factor, failed = torch.linalg.cholesky_ex(WEIGHING_WIDTH**2 * spread + least)
        if bool(failed) or not bool(spread.isfinite().all()):  # all chains stood still
            return None
        place = Ellipsoid(centre, factor, used, NEIGHBOURHOOD)
        d, n = len(centre), WEIGHING
        z = torch.randn(n, d, generator=self.generator, device=centre.device).double()
        theta = torch.zeros(n, target.dim, dtype=target.dtype, device=centre.device)
        theta[:, used] = (centre + z @ factor.mT).to(target.dtype)
        log_joint = self.height(theta)
        counts = self.lost(theta)
        for other in others:
            counts &= ~other.place.holds(theta)
        part = weighed(self.code, theta, log_joint, place.log_density(theta), counts, place)
        if part is None:
            return None
        share = math.exp(min(part.log_mass - self.level, LARGEST))
        # points of a mode nearby, which a map knows, say nothing of this one
        there = seen[place.holds(seen)]
        known = float(self.lost(there).double().sum()) / max(len(seen), 1) if len(there) else 0.0
        return None if known > KNOWN * share / (1 + share) else part


def _drawn_in(theta: Tensor, usable: Tensor, generator: torch.Generator) -> Tensor:
    """Every other point moved towards the middle of them all, by a share that is uniform.

    Draws in many dimensions lie on a shell; modes may lie anywhere inside it.
    """
    share = torch.rand(len(theta), 1, generator=generator, device=theta.device, dtype=theta.dtype)
    share[::2] = 1.0
    middle = theta[usable].mean(0).nan_to_num(0.0)
    return middle + share * (theta - middle)
