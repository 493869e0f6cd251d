"""One component becomes two near it, and two that are near become one."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...target.exchangeable import Components, components
from ...target.target import Target
from ...target.units import prior_units
from ..base import Info, Kernel, State, accept
from ..learning import RecentRows, due
from .sums import known_total, memo_of

HALVINGS = 7  # scales of the proposed distance: 1, 1/2, 1/4, ... prior standard deviations

LEARNED = 0.5  # share of the proposed distances that come from the fitted normal

FEW = 100  # least number of accepted distances that a normal is fitted to

REMEMBERED = 20_000  # accepted distances that the fit uses at most

FIRST_FIT = 64  # warm-up step after which it is fitted first; then after 128, 256, ...


class ComponentSplitMerge(Kernel):
    r"""A random component splits in two, or a random one merges with its nearest neighbour.

    In unconstrained coordinates x becomes x + e and x - e; each coordinate of a positive
    parameter by chance either so, or sharing out its value: log x + log s(e) and
    log x + log s(-e), s the logistic function. The distance e is from a mixture q of centred
    normals of many scales, and of one that is fitted in warm-up to what was accepted. With k
    components before a split, and N in {0, 1, 2} counting which of the two newborn is the other's
    nearest neighbour, the ratio is

    .. math:: \frac{\pi(\theta')}{\pi(\theta)} \, \frac{k N |J|}{2 q(e)},

    where ``|J|`` is 2 to the number of coordinates that are not shared out.

    Arguments:
        target: A target over :class:`~trjmcmc.Counts` whose components are exchangeable.
        kind: Which components, where there are several kinds: a name, or a position.

    Raises:
        ConfigurationError: Another space, components that are not exchangeable, or at most one.

    Source:
        Richardson & Green (1997), https://doi.org/10.1111/1467-9868.00095, who match moments
        instead

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.kernel import start
        >>> target = problems.pulses(points=50)
        >>> code = torch.tensor([[0], [3]])
        >>> state = start(target, code, torch.zeros(2, target.dim))
        >>> move = ComponentSplitMerge(target)
        >>> state, (info,) = move.step(state, torch.Generator().manual_seed(0))
        >>> info.kernel, info.proposed.code.shape
        ('component split', torch.Size([2, 1]))
    """

    between = True

    def __init__(self, target: Target, kind: Components | int | str | None = None) -> None:
        self.target = target
        self.components = parts = components(target, kind)
        self.name = parts.named("component split")
        if parts.number < 2:
            raise ConfigurationError("component split: there is never more than one component")
        self.unit = prior_units(target)[1][parts.slots[0]]
        low, levels = parts.space.levels()
        self._positive = target.positive_slots(low + levels - 1)[parts.slots[0]]
        self._factor: Tensor | None = None  # of the covariance of distances, in prior units
        self._accepted, self._steps = RecentRows(REMEMBERED), 0

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        parts, kind, space = self.components, self.components.kind, self.components.space
        code, k, theta = state.code, parts.count(state.code), state.theta
        total = known_total(parts, state)
        up, share = self._coins(len(k), generator)
        one, last = parts.some(code, generator), (k - 1).clamp(min=0)
        other = self._nearest(code, theta, one)
        # the one that may vanish goes last
        theta = torch.where(up[:, None], theta, parts.swapped(theta, other, last))
        one = torch.where(~up & (one == last), other, one)
        state = State(code, theta, state.log_joint, memo_of(parts, total))
        two = torch.where(up, k.clamp(max=kind.max - 1), last)
        possible = torch.where(up, (k > 0) & (k < kind.max), (k > 1) & (k > kind.min))
        x, first, second, e = self._pair(theta, one, two, up, share, generator)
        possible &= torch.stack([v.isfinite().all(-1) for v in (x, first, second)]).all(0)
        x, first, second = (torch.where(possible[:, None], v, 0.0) for v in (x, first, second))
        smaller = parts.put(theta, one, x)
        larger = parts.put(parts.put(theta, one, first), two, second)
        sign = torch.where(up, 1, -1)
        new = parts.counted(code, torch.where(possible, k + sign, k))
        moved = torch.where(up[:, None], larger, smaller)
        moved = torch.where(space.active(new), moved, 0.0)
        moved = torch.where(possible[:, None], moved, theta)
        if total is None:
            log_joint = self.target.log_joint(new, moved)
        else:
            change = parts.contribution(theta, first) + parts.contribution(theta, second)
            change = parts.times(sign * possible, change - parts.contribution(theta, x))
            log_joint, total = parts.log_joint(new, moved, state.log_joint, total, change)
        most = parts.counted(code, torch.where(up, k + 1, k).clamp(max=kind.max))
        log_choice = self._log_choice(most, larger, one, two, e, share)
        possible &= log_choice > -math.inf  # of two neighbours as far, neither is the nearest
        log_ratio = log_joint - state.log_joint + sign * log_choice
        log_ratio = torch.where(possible, log_ratio, -math.inf)
        proposed = State(new, moved, log_joint, memo_of(parts, total))
        after, (info,) = accept(self.name, state, proposed, log_ratio, generator)
        # the last is the likeliest to vanish: new names, or moves that go by names would be wrong
        after = after._replace(theta=parts.shuffled(after.code, after.theta, generator))
        return after, [info._replace(note=e)]

    def _coins(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Which chains split (C,), and which coordinates they share out (C, P)."""
        coin = torch.rand(n, 1 + len(self.unit), generator=generator, device=self.unit.device)
        return coin[:, 0] < 0.5, (coin[:, 1:] < 0.5) & self._positive

    def _pair(
        self,
        theta: Tensor,
        one: Tensor,
        two: Tensor,
        up: Tensor,
        share: Tensor,
        generator: torch.Generator,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The one, the two that it becomes or was, and half their distance, (C, P) each."""
        here, there = self.components.one(theta, one), self.components.one(theta, two)
        part = torch.nn.functional.logsigmoid
        drawn = self._distances(len(theta), generator)
        e = torch.where(share, here - there, 0.5 * (here - there))
        e = torch.where(up[:, None], drawn, e)
        x = torch.where(share, torch.logaddexp(here, there), 0.5 * (here + there))
        x = torch.where(up[:, None], here, x)
        first = torch.where(up[:, None], torch.where(share, x + part(e), x + e), here)
        second = torch.where(up[:, None], torch.where(share, x + part(-e), x - e), there)
        return x, first, second, e

    def _log_choice(
        self, code: Tensor, theta: Tensor, one: Tensor, two: Tensor, e: Tensor, share: Tensor
    ) -> Tensor:
        """Log of what the ratio of a split holds beside the densities, (C,)."""
        mutual = (self._nearest(code, theta, one) == two).to(e)
        mutual = mutual + (self._nearest(code, theta, two) == one).to(e)
        halves = (~share).sum(1) * math.log(2)
        fewer = (self.components.count(code) - 1).clamp(min=1).to(e)
        return fewer.log() + (0.5 * mutual).log() + halves - self._log_distance(e)

    def _nearest(self, code: Tensor, theta: Tensor, index: Tensor) -> Tensor:
        return self.components.nearest(code, theta, index, self.unit)

    # ---- half the distance of two that were one ---------------------------------------------

    def _distances(self, n: int, generator: torch.Generator) -> Tensor:
        like = self.unit
        noise = torch.randn(n, len(like), generator=generator, device=like.device, dtype=like.dtype)
        u = torch.rand(2, n, 1, generator=generator, device=like.device, dtype=like.dtype)
        drawn = noise * 0.5 ** (u[0] * HALVINGS).floor()
        if self._factor is not None:
            drawn = torch.where(u[1] < LEARNED, noise @ self._factor.T, drawn)
        return drawn * self.unit

    def _log_distance(self, e: Tensor) -> Tensor:
        """log q(e), (C,)."""
        z, d = e / self.unit, e.shape[1]
        halvings = torch.arange(HALVINGS, device=e.device, dtype=e.dtype)
        square = z.square().sum(-1, keepdim=True)
        each = d * halvings * math.log(2) - 0.5 * square * 4.0**halvings
        log_q = each.logsumexp(1) - math.log(HALVINGS)
        if self._factor is not None:
            y = torch.linalg.solve_triangular(self._factor, z.T, upper=False)
            fitted = -0.5 * y.square().sum(0) - self._factor.diagonal().log().sum()
            log_q = torch.logaddexp(math.log1p(-LEARNED) + log_q, math.log(LEARNED) + fitted)
        return log_q - 0.5 * d * math.log(2 * math.pi) - self.unit.log().sum()

    def adapted_to(self, infos: list[Info], generator: torch.Generator) -> Kernel:
        (info,) = infos
        found = copy.copy(self)
        found._steps = self._steps + 1
        found._accepted = self._accepted.plus(info.note[info.accepted] / self.unit)
        if due(found._steps, FIRST_FIT):
            found._accepted = found._accepted.joined()
            if len(found._accepted) >= FEW:
                found._factor = _factor_of(found._accepted.rows())
        return found

    def adapted(self) -> dict[str, Any]:
        return {} if self._factor is None else {"distances learned from": len(self._accepted)}


def _factor_of(distances: Tensor) -> Tensor:
    """Factor of the covariance about zero of distances in prior units, (n, P) -> (P, P)."""
    covariance = (distances.T @ distances).double() / len(distances)
    floor = 1e-6 * torch.eye(len(covariance), dtype=torch.float64, device=distances.device)
    return torch.linalg.cholesky(covariance + floor).to(distances.dtype)
