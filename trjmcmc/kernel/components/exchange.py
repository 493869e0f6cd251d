"""Components die, and others are born where the rest of the data asks for them."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...grouping import on_host
from ...rng import host_number
from ...target.exchangeable import Components, components
from ...target.target import Target
from ...target.units import prior_units
from ..base import Info, Kernel, State, accept
from ..learning import RecentCovariance, RecentRows, due
from ..steps import LogUniformSteps
from .newborns import newborns_of
from .sums import known_total, memo_of

# how often so many components die for so many others, or the reverse: pulses that lie on each
# other were seven times as often told apart by twos for ones as by the other moves
PAIRS = {(0, 1): 3, (1, 1): 1, (1, 2): 3, (2, 2): 1}

NEAR = 0.8  # share of the pairs of which the second is the nearest to the first

LEAST = 0.2  # least share of what cells gain that counts where the first of two is born

SHIFTS = (0.1, 2.0)  # of what all share where one is born, in standard deviations of the chains

FEW = 100  # least number of components that are learned from

REMEMBERED = 20_000  # components that are learned from at most

FIRST_FIT = 16  # warm-up step after which that is done first; then after 32, 64, ...


class ComponentExchange(Kernel):
    r"""Some components die and others are born where what is left of the data asks for them.

    None for one, one for another, two for one, two for two, and the reverse of each: so components
    come and go, move far away, and one explanation of the data becomes another. Those that die are
    chosen at random, pairs often so that the second is the nearest to the first; newborns
    :math:`y_1, y_2` come from :class:`Newborns` given the residual r, the second given what the
    first leaves of it. With those that die :math:`x_1, x_2` and the probabilities c of choosing
    pairs, relative to uniform ones, the ratio is

    .. math:: \frac{\pi(\theta')}{\pi(\theta)} \,
              \frac{q(x_1 | r) \, q(x_2 | r, x_1)}{q(y_1 | r) \, q(y_2 | r, y_1)} \,
              \frac{c(y_1, y_2)}{c(x_1, x_2)},

    without a count of names: they are dealt afresh at each step.

    Arguments:
        target: A target over :class:`~trjmcmc.Counts` whose components are exchangeable and whose
            likelihood is :class:`~trjmcmc.Additive`, differentiable in the sum.
        kind: Name or position of the kind of components, where there are several.
        pairs: How often so many are exchanged for so many, fewer first, at most two.

    Raises:
        ConfigurationError: Another space or likelihood, components that are not exchangeable, a
            prior whose coordinates depend on each other, no such kind.

    Source:
        Green (1995), https://doi.org/10.1093/biomet/82.4.711; proposals by the residual: Zanella
        (2020), https://doi.org/10.1080/01621459.2019.1585255, for discrete spaces

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.kernel import start
        >>> target = problems.radial_velocity()
        >>> code = torch.tensor([[0], [2]])
        >>> state = start(target, code, torch.zeros(2, target.dim))
        >>> move = ComponentExchange(target)
        >>> move.adapted()["linear in"]
        'amplitude, periastron'
        >>> state, (info,) = move.step(state, torch.Generator().manual_seed(0))
        >>> info.proposed.code.shape
        torch.Size([2, 1])
    """

    between = within = True

    def __init__(
        self,
        target: Target,
        kind: Components | int | str | None = None,
        *,
        pairs: Mapping[tuple[int, int], int] | None = None,
    ) -> None:
        often = PAIRS if pairs is None else pairs
        if any(n < 0 or not 0 <= a <= b or not 1 <= b <= 2 for (a, b), n in often.items()):
            raise ConfigurationError(
                f"pairs: expected numbers of 0 to 2 components, fewer first, got {dict(often)}"
            )
        self.target, self.components = target, components(target, kind)
        parts = self.components
        self.name, low, high = parts.named("exchange"), parts.kind.min, parts.kind.max
        possible = {p: n for p, n in often.items() if p[1] <= high and p[1] - p[0] <= high - low}
        self.pairs = [pair for pair, n in possible.items() for _ in range(n)]
        if not self.pairs:
            raise ConfigurationError("pairs: none of them is possible with these counts")
        self.newborns = newborns_of(parts)
        self._seen, self._steps = RecentRows(REMEMBERED), 0
        space = target.space
        self._shared = (space.slot_item == space.n_items).nonzero()[:, 0]
        self._lengths = LogUniformSteps(torch.ones((), device=target.device), SHIFTS)
        by = torch.as_tensor(self.newborns.cells.columns[:1] or range(parts.width))
        units = prior_units(target)[1]
        unit, self._spread = units[parts.slots[0]], RecentCovariance(units[self._shared])
        self._unit = torch.full_like(unit, math.inf)  # coordinates that do not count
        self._unit[by] = unit[by]

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        less, more = self.pairs[host_number(generator) % len(self.pairs)]
        parts, code = self.components, state.code
        k, n = parts.count(code), len(code)
        total = known_total(parts, state)
        assert total is not None
        theta = parts.shuffled(code, state.theta, generator)
        theta, log_chosen = self._paired(code, theta, generator)
        state = State(code, theta, state.log_joint, memo_of(parts, total))
        u = torch.rand(2, n, generator=generator, device=code.device)
        shift = self._shift(theta, generator) if (less, more) == (0, 1) else 0.0
        up, share = u[0] < 0.5, LEAST + (1 - LEAST) * u[1]
        dying, born = torch.where(up, less, more), torch.where(up, more, less)
        left, after = k - dying, k - dying + born
        possible = (left >= 0) & (after >= parts.kind.min) & (after <= parts.kind.max)
        dying, born = torch.where(possible, dying, 0), torch.where(possible, born, 0)

        old, gone = self._dying(theta, k, dying, more)
        rest = total.reshape(n, -1) - sum(gone)
        # what all share is that of the larger model wherever a newborn is weighed
        larger = torch.where(up[:, None], theta + shift, theta)
        new, come, log_old, log_new = self._exchanged(
            larger, rest, old, gone, up, share, (less, more), generator
        )
        moved = torch.where(up[:, None], larger, theta - shift)
        change, sound = -sum(gone), possible
        for i, (x, signal) in enumerate(zip(new, come, strict=True)):
            fine = x.isfinite().all(1) & signal.isfinite().all(1)
            sound = sound & (fine | (i >= born))  # else there is no such component
            used = (fine & (i < born))[:, None]
            put = parts.put(moved, torch.where(i < born, left + i, 0), torch.where(used, x, 0.0))
            moved = torch.where((i < born)[:, None], put, moved)
            change = change + torch.where(used, signal, 0.0)
        fresh = parts.counted(code, torch.where(possible, after, k))
        moved = torch.where(parts.space.active(fresh), moved, 0.0)
        moved = torch.where(possible[:, None], moved, theta)
        change = torch.as_tensor(change).view(total.shape)
        log_joint, total = parts.log_joint(fresh, moved, state.log_joint, total, change)
        first, second = (place.clamp(0, parts.number - 1) for place in (left, left + 1))
        log_back = self._log_pair(fresh, moved, first, second)
        log_pair = torch.where(born > 1, log_back, 0.0) - torch.where(dying > 1, log_chosen, 0.0)
        log_ratio = log_joint - state.log_joint + log_old - log_new + log_pair
        log_ratio = torch.where(sound, log_ratio, -math.inf).nan_to_num(-math.inf)
        proposed = State(fresh, moved, log_joint, memo_of(parts, total))
        result, infos = accept(self.name, state, proposed, log_ratio, generator)
        # names go by who was born last: new ones, or moves that go by names would be wrong
        return result._replace(theta=parts.shuffled(result.code, result.theta, generator)), infos

    def _shift(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        """Of what all share, when one is born, in half of the chains, (C, D).

        Noise is lower where one component more explains the data.
        """
        shift = torch.zeros_like(theta)
        step = self._lengths.draw(theta[:, self._shared], generator)
        scaled = self._spread.scaled(step)
        if scaled is None:
            return shift
        coin = torch.rand(len(theta), 1, generator=generator, device=theta.device) < 0.5
        shift[:, self._shared] = torch.where(coin, scaled, 0.0)
        return shift

    # ---- who dies -----------------------------------------------------------------------------

    def _paired(
        self, code: Tensor, theta: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Components with those that may die last, in random order before, (C, D).

        The last is the first to die. Often the nearest to it is the second. And the log
        probability of the two relative to a uniform choice, (C,).
        """
        parts, k = self.components, self.components.count(code)
        last, before = (k - 1).clamp(min=0), (k - 2).clamp(min=0)
        coin = torch.rand(len(code), generator=generator, device=code.device) < NEAR
        near = parts.nearest(code, theta, last, self._unit)
        theta = parts.swapped(theta, torch.where(coin & (k > 1), near, before), before)
        return theta, self._log_pair(code, theta, last, before)

    def _log_pair(self, code: Tensor, theta: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Log probability of a pair relative to a uniform choice, (C,)."""
        others = (self.components.count(code) - 1).clamp(min=1)
        near = self.components.nearest(code, theta, first, self._unit) == second
        return (1 - NEAR + NEAR * others * near).double().log()

    def _dying(
        self, theta: Tensor, k: Tensor, number: Tensor, most: int
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The last components, (C, P) each, and signals of those that die, (C, points) each."""
        parts, found, signals = self.components, [], []
        for i in range(most):
            x = parts.one(theta, (k - 1 - i).clamp(min=0))
            found.append(x)
            signals.append(self._signal(theta, x, number > i))
        return found, signals

    def _signal(self, theta: Tensor, x: Tensor, dies: Tensor) -> Tensor:
        """What components (C, P) that die add, zero elsewhere, (C, points)."""
        parts = self.components
        if not on_host(theta):  # which is not asked how many die
            signal = parts.contribution(theta, x).reshape(len(theta), -1)
            return torch.where(dies[:, None], signal, 0.0)
        rows = dies.nonzero()[:, 0]
        signal = theta.new_zeros(len(theta), self.newborns.amplitudes.points).double()
        if len(rows):
            signal[rows] = parts.contribution(theta[rows], x[rows]).reshape(len(rows), -1)
        return signal

    # ---- who is born --------------------------------------------------------------------------

    def _exchanged(
        self,
        theta: Tensor,
        rest: Tensor,
        old: list[Tensor],
        gone: list[Tensor],
        up: Tensor,
        share: Tensor,
        pair: tuple[int, int],
        generator: torch.Generator,
    ) -> tuple[list[Tensor], list[Tensor], Tensor, Tensor]:
        """Newborns and their signals, and log densities of those that die and of newborns.

        Where only one of the two sequences goes on, chains of either kind share the work: newborns
        go on where there are more of them (``up``), those that die elsewhere.
        """
        less, more = pair
        log_old = log_new = torch.zeros_like(rest[:, 0])
        new: list[Tensor] = []
        come: list[Tensor] = []
        first = self.newborns.residual(theta, rest)
        for i in range(more):
            if i >= less:
                at = first
                if i:
                    taken = torch.where(up[:, None], sum(come), sum(gone[:i]))
                    at = self.newborns.residual(theta, rest + taken)
                whole = torch.ones_like(share)
                x, signal, log_q = self.newborns.placed(theta, at, whole, old[i], up, generator)
                log_old = log_old + torch.where(up, 0.0, log_q)
                log_new = log_new + torch.where(up, log_q, 0.0)
            else:
                at = first if not i else self.newborns.residual(theta, rest + sum(gone[:i]))
                last = torch.where(up, less, more) == i + 1
                counted = torch.where(last, 1.0, share)
                log_q = self.newborns.placed(theta, at, counted, old[i], False, generator)[2]
                log_old = log_old + log_q
                at = first if not i else self.newborns.residual(theta, rest + sum(come))
                last = torch.where(up, more, less) == i + 1
                counted = torch.where(last, 1.0, share)
                x, signal, log_q = self.newborns.placed(theta, at, counted, old[i], True, generator)
                log_new = log_new + log_q
            new.append(x)
            come.append(signal)
        return new, come, log_old, log_new

    # ---- warm-up ------------------------------------------------------------------------------

    def adapted_to(self, infos: list[Info], generator: torch.Generator) -> Kernel:
        (info,) = infos
        found = copy.copy(self)
        found._steps = self._steps + 1
        if self.components.apart:
            x = info.theta[:, self._shared]
            found._spread = self._spread.plus(x)
        if found._steps % FIRST_FIT == 0:
            items = self.components.items(info.code)
            found._seen = self._seen.plus(self.components.of(info.theta)[items]).joined()
        if due(found._steps, FIRST_FIT) and len(found._seen) >= FEW:
            found.newborns = self.newborns.learned(found._seen.rows(), generator)
        return found

    def adapted(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if names := self.newborns.amplitudes.names:
            found["linear in"] = ", ".join(names)
        if number := self.newborns.cells.number:
            found["cells"] = number
        return found
