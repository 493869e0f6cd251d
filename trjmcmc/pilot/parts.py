"""Parts of a posterior that tempering has lost, and that were found by other means."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

LOG_2PI = math.log(2 * math.pi)

JOINED_NATS = 1.0  # a dip of the log joint between two points of one mode

BETWEEN = 7  # points at which the line between two ends is looked at


@dataclass(frozen=True)
class Ellipsoid:
    """Where a part is.

    Attributes:
        centre: Of the coordinates in use, shape (d,), float64.
        factor: Cholesky factor of a covariance, shape (d, d), float64.
        used: Which coordinates these are, shape (D,), bool.
        sds: How far it reaches: standard deviations of a squared distance above its mean.
    """

    centre: Tensor
    factor: Tensor
    used: Tensor
    sds: float

    def holds(self, theta: Tensor) -> Tensor:
        """Whether points (n, D) are inside, shape (n,)."""
        d = len(self.centre)
        return self._distance(theta) < d + self.sds * (2 * d) ** 0.5

    def log_density(self, theta: Tensor) -> Tensor:
        """Of the normal with its centre and covariance, at points (n, D), shape (n,), nats."""
        log_det = self.factor.diagonal().log().sum()
        return -0.5 * self._distance(theta) - log_det - 0.5 * LOG_2PI * len(self.centre)

    def _distance(self, theta: Tensor) -> Tensor:
        """Squared distance from the centre in units of the covariance, shape (n,)."""
        gap = (theta[:, self.used].double() - self.centre).mT
        return torch.linalg.solve_triangular(self.factor, gap, upper=False).square().sum(0)


@dataclass(frozen=True)
class Part:
    """A part of a model's posterior, weighed by importance sampling.

    Attributes:
        code: The model, shape (L,).
        theta: Points, shape (n, D).
        log_joint: Their log joint densities, shape (n,), nats.
        log_weight: Normalised log importance weights, shape (n,), float64, nats.
        log_mass: Log of p(model) times the part's share of the evidence, nats.
        error: Its standard error, nats.
        place: Where it is: what others have met there is the same.
        met: Climbs that ended there.
    """

    code: Tensor
    theta: Tensor
    log_joint: Tensor
    log_weight: Tensor
    log_mass: float
    error: float
    place: Ellipsoid
    met: int = 0

    @property
    def ess(self) -> float:
        """Effective number of its points."""
        return math.exp(-float((2 * self.log_weight).logsumexp(0)))

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Positions of posterior draws among the points, shape (n,)."""
        return torch.multinomial(self.log_weight.exp(), n, replacement=True, generator=generator)


def weighed(
    code: Tensor,
    theta: Tensor,
    log_joint: Tensor,
    log_proposal: Tensor,
    counts: Tensor,
    place: Ellipsoid,
) -> Part | None:
    """What draws of a proposal say of the part where some of them lie; None if none does.

    Arguments:
        code: The model, shape (L,).
        theta: Draws, shape (n, D).
        log_joint: Their log joint densities, shape (n,), nats.
        log_proposal: Log densities that they were drawn from, shape (n,), nats.
        counts: Which of them lie in the part, shape (n,), bool.
        place: Where the part is.
    """
    log_w = torch.where(counts, log_joint.double() - log_proposal, -math.inf)
    total = float(log_w.logsumexp(0))
    if not math.isfinite(total):
        return None
    log_weight, n = log_w - total, len(log_w)
    spread = math.exp(float((2 * log_weight).logsumexp(0))) - 1 / n  # relative variance of the mean
    error = math.sqrt(max(spread, 0.0))
    return Part(code, theta, log_joint.double(), log_weight, total - math.log(n), error, place)


def told_apart(parts: Sequence[Part], lost: Callable[[Tensor], Tensor]) -> list[Part]:
    """Parts that overlap, weighed again so that no point counts twice.

    A point is of the first part whose place holds it, outside them all of the one whose normal is
    densest there.

    Arguments:
        parts: Parts that were each weighed by draws of the normal of its own place.
        lost: Which of some points, (n, D), lie in any of them, shape (n,).
    """
    found = []
    for k, part in enumerate(parts):
        near = torch.stack([other.place.log_density(part.theta) for other in parts])
        held = torch.stack([other.place.holds(part.theta) for other in parts])
        owner = torch.where(held.any(0), held.long().argmax(0), near.argmax(0))
        counts = (owner == k) & lost(part.theta)
        again = weighed(part.code, part.theta, part.log_joint, near[k], counts, part.place)
        found += [] if again is None else [again]
    return found


def distinct_modes(
    theta: Tensor, height: Tensor, log_joint: Callable[[Tensor], Tensor]
) -> Iterator[Tensor]:
    """The highest point, then the highest of those that are not of its mode, and so on.

    Two points are of one mode where the log joint does not dip on the line between them, so that
    a curved ridge counts as several.

    Arguments:
        theta: Points, shape (n, D).
        height: Their log joint, shape (n,), nats.
        log_joint: Of points, (m, D) -> (m,), nats.

    Example:
        >>> theta = torch.tensor([[-2.0], [-2.1], [2.0], [1.9], [2.1]])
        >>> def log_joint(x):
        ...     return x[:, 0] - 8 * (x[:, 0].abs() - 2).square()
        >>> [round(float(x), 1) for x in distinct_modes(theta, log_joint(theta), log_joint)]
        [2.1, -2.0]
    """
    usable = height.isfinite()
    order = height[usable].argsort(descending=True)
    theta, height = theta[usable][order], height[usable][order]
    share = (torch.arange(1, BETWEEN + 1, device=theta.device) / (BETWEEN + 1)).to(theta)
    while len(theta):
        line = theta[0] + share[:, None, None] * (theta - theta[0])
        between = log_joint(line.flatten(0, 1)).reshape(BETWEEN, -1)
        same = between.min(0).values >= height - JOINED_NATS
        same[0] = True
        yield theta[0]
        theta, height = theta[~same], height[~same]
