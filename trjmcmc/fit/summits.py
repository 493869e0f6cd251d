"""Summits of the posterior of one model, and a normal about each: where few calls can begin."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .. import clock
from ..target.target import Target
from ..transport.normals import LOG_2PI, NormalMixture
from .climbs import Climbs, Posterior

HISTORY = 10  # steps from which curvature is learnt

MOST_STEPS = 30  # of a climb

SETTLED = 0.001  # nats: steps that promise less end it

LOW, PATIENCE = 4.0, 10.0  # nats below the best, for each dimension and one, that a climb has to
# promise to reach in so many steps

SAME = 1.0  # standard deviations within which two climbs have ended at one summit

FORETOLD, AIMED = 0.1, 0.3  # of what a known summit's normal foretells of a fall in height, and of
# its distance in standard deviations, or of one: errors with which a climb counts as ended there

EVEN = 0.3  # share of the weight that all summits have alike

MOST = 64  # summits

NEGLIGIBLE = 1e-6  # share of the mass of a summit that is left out

MATTERS = 0.01  # share of the mass, from which a summit that one climb alone met asks for more


class Summits:
    """Where climbs from prior draws have ended.

    Climbs take quasi-Newton steps along gradients, or differences where there are none: some
    five each. What the steps have taught of the curvature makes the normal. A climb that comes to
    where height and slope are those of the normal about a known summit has ended at this one.

    Arguments:
        target: The target.
        code: A model with parameters, shape (L,).
        generator: Source of randomness.

    Attributes:
        target: As above.
        climbs: Those from prior draws that have come to their end.

    Example:
        >>> from trjmcmc import problems
        >>> target = problems.sleep()
        >>> found = Summits(target, target.space.enumerate()[1], torch.Generator().manual_seed(0))
        >>> found.climb(32)
        >>> found.normals.mean.shape, found.lonely
        (torch.Size([1, 2]), False)
    """

    def __init__(self, target: Target, code: Tensor, generator: torch.Generator) -> None:
        self.target, self.climbs = target, 0
        self._posterior = Posterior(target, code, generator)
        none = torch.zeros(0, self._posterior.dim, dtype=torch.float64, device=target.device)
        self._x, self._height, self._factor = none, none.sum(1), none.diag_embed()

    def climb(self, n: int, deadline: float = math.inf, most: float = math.inf) -> None:
        """Climb from so many prior draws more.

        Arguments:
            n: Climbs.
            deadline: Time by :func:`trjmcmc.clock.now` after which no step begins.
            most: Evaluations of all climbs after which none does.
        """
        self.climbs += self._climb(*self._posterior.starts(n), deadline, most)

    def climb_from(self, x: Tensor, deadline: float = math.inf, most: float = math.inf) -> None:
        """Climb from points of the coordinates in use, (n, d), which are no prior draws."""
        self._climb(x, *self._posterior.with_gradient(x), deadline, most)

    def _climb(
        self, x: Tensor, value: Tensor, gradient: Tensor, deadline: float, most: float
    ) -> int:
        """Climb from points; how many have come to their end."""
        posterior = self._posterior
        climbs = Climbs(posterior, x, value, gradient, HISTORY, posterior.prior_scale, SETTLED)
        factor, low = climbs.diagonal.sqrt().diag_embed(), LOW * (1 + posterior.dim)
        known, _ = self._distinct()
        self._end_at(known, climbs, factor)
        while bool(climbs.going.any()) and clock.now() < deadline and self.evaluations < most:
            rows, _, learnt = climbs.advance(MOST_STEPS)
            factor[rows] = learnt
            best = float(torch.cat([climbs.value, self._height]).max())
            climbs.going &= climbs.value + PATIENCE * climbs.promise > best - low
            self._end_at(known, climbs, factor)
        there = climbs.value > -math.inf
        self._x = torch.cat([self._x, climbs.x[there]])
        self._height = torch.cat([self._height, climbs.value[there]])
        self._factor = torch.cat([self._factor, factor[there]])
        return int((there & ~climbs.going).sum())

    def _end_at(self, known: Tensor, climbs: Climbs, factors: Tensor) -> None:
        """Move climbs to that of some known summits whose normal tells their height and slope."""
        rows = climbs.going.nonzero()[:, 0]
        if not len(rows) or not len(known):
            return
        x, height, factor = self._x[known], self._height[known], self._factor[known]
        gap, slope = (climbs.x[rows, None] - x)[..., None], climbs.gradient[rows, None, :, None]
        z = torch.linalg.solve_triangular(factor, gap, upper=False)
        fall, distance = 0.5 * z.square().sum((2, 3)), z.norm(dim=(2, 3))
        off = (climbs.value[rows, None] - height + fall).abs()
        miss = (z + factor.mT @ slope).norm(dim=(2, 3))  # of a Newton step
        told = off < FORETOLD * fall.clamp(min=1.0)
        told &= miss < AIMED * distance.clamp(min=1.0)
        there, which = told.max(1)
        rows, which = rows[there], known[which[there]]
        climbs.x[rows], climbs.value[rows] = self._x[which], self._height[which]
        factors[rows], climbs.going[rows] = self._factor[which], False

    @property
    def evaluations(self) -> int:
        """Of all climbs so far."""
        return self._posterior.evaluations

    @property
    def normals(self) -> NormalMixture | None:
        """One normal about each summit; None where no climb has found a possible point."""
        rows, _ = self._distinct()
        rows = rows[self._share(rows) > NEGLIGIBLE]
        if not len(rows):
            return None
        share = self._share(rows)
        weight = (1 - EVEN) * share + EVEN / len(rows)
        return NormalMixture(weight, self._x[rows], self._factor[rows])

    @property
    def lonely(self) -> bool:
        """Whether one climb alone has met a summit that matters: others like it may be missed."""
        rows, met = self._distinct()
        return bool(((met == 1) & (self._share(rows) > MATTERS)).any()) and self.climbs > 1

    def _share(self, rows: Tensor) -> Tensor:
        """Shares of the mass about some summits, by Laplace's method."""
        size = self._factor[rows].diagonal(dim1=1, dim2=2).log().sum(1)
        return (self._height[rows] + size + 0.5 * self._x.shape[1] * LOG_2PI).softmax(0)

    def _distinct(self) -> tuple[Tensor, Tensor]:
        """The highest climb of each summit, the highest first, and how many have ended there."""
        left = torch.arange(len(self._x), device=self._x.device)
        rows, met = list[Tensor](), list[int]()
        while len(left) and len(rows) < MOST:
            top = left[self._height[left].argmax()]
            gap = (self._x[left] - self._x[top])[..., None]
            far = torch.zeros_like(self._height[left])
            for factor in (self._factor[top].expand(len(left), -1, -1), self._factor[left]):
                z = torch.linalg.solve_triangular(factor, gap, upper=False)
                far = torch.maximum(far, z.square().sum((1, 2)))
            same = far < SAME**2
            rows.append(top)
            met.append(int(same.sum()))
            left = left[~same]
        found = torch.stack(rows) if rows else left
        return found, torch.tensor(met, device=left.device)
