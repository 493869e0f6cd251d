"""The components of a target over counts, one by one.

Targets hold densities of labelled components and no k!. Where names mean nothing, that is made up
for in three places: a map in canonical order has 1/k! in its density
(:mod:`trjmcmc.transport.sorted_components`); births and deaths have the number of places where a
component may stand in their ratio (:mod:`trjmcmc.kernel.components.births`), and so have splits and
merges (:mod:`trjmcmc.kernel.components.split`).
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from ..errors import ConfigurationError
from ..grouping import on_host, surely
from ..space.prior import gap_in
from .single import Single
from .target import Target
from .tempered import Tempered

ROWS = 32  # prior draws at which components are checked to be exchangeable

MORE_ROWS = 2048  # the same where the density of none of these is above 0

ALIKE = 1e-3  # nats by which a log density may change where components trade places

ROUNDING = 1e-6  # relative error of a sum over components from which one is subtracted

CANCELLED_SHARE = 1e-3  # a sum below this share of its largest value so far is added up afresh

SLACK = 2.0**-40  # share of its largest value that rounding may leave of a sum that is zero

HOPELESS = -100.0  # change of the log joint, nats, with which no move is accepted


def components(target: Target, kind: Components | int | str | None = None) -> Components:
    """The components of a kind, given by name or position, or as they are."""
    return kind if isinstance(kind, Components) else Components(target, kind)


class Components:
    """Rows of coordinates, one a component, of a target over :class:`~trjmcmc.Counts`.

    Components of a kind are exchangeable: which of them is called the first means nothing. That
    is checked at a few prior draws.

    Arguments:
        target: The target.
        kind: Name or position of the kind, where there are several.

    Attributes:
        kind: The kind, a :class:`~trjmcmc.space.base.Kind`.
        place: Its position in a code.
        number: K, its largest number of components.
        slots: Slots of each component's coordinates, shape (K, P).
        additive: Whether one component can change without the cost of the others.
        delicate: Whether the likelihood tells rounding errors of the components' sum from zero.
        shared: Whether there are parameters that belong to no component.
        single: One component without the cost of the others, if its prior lets it be had.

    Raises:
        ConfigurationError: Another space, no component, components that are not alike; no such
            kind, or several to choose from.

    Example:
        >>> import trjmcmc as trj
        >>> from torch.distributions import Normal
        >>> target = trj.Target(trj.Counts(3, of=("a", "b")),
        ...                     {"a": Normal(0.0, 1.0), "b": Normal(0.0, 1.0)},
        ...                     lambda p, active: p["a"].sum(-1))
        >>> Components(target).slots.tolist()
        [[0, 3], [1, 4], [2, 5]]
    """

    def __init__(self, target: Target, kind: int | str | None = None) -> None:
        space = target.space
        if not space.counts or not target.dim:
            raise ConfigurationError("expected a space of Counts with components to count")
        self.target, self.space = target, space
        self.place = space.place_of(kind)
        self.kind = space.kinds[self.place]
        self.number = self.kind.max
        if not self.number:
            raise ConfigurationError("expected a space of Counts with components to count")
        self.slots = space.slots_of(self.kind)
        self.width = self.slots.shape[1]
        self.shared = bool((space.slot_item == space.n_items).any())
        low, levels = space.levels()
        self._full = (low + levels - 1)[None]
        self.single: Single | None = None
        self.additive = target.additive is not None and self._independent()
        self.delicate = self.additive and self._sees_rounding()
        if not self._alike():
            raise ConfigurationError(
                "components are not exchangeable: the log density changes where they trade places, "
                "or is zero wherever that was looked at"
            )
        if self.number > 1 and not self._own_prior():
            raise ConfigurationError(
                "the prior of a component depends on the others of its kind: births and deaths of "
                "one at a time do not know it"
            )
        if gap_in(space.log_priors[self.place]):
            raise ConfigurationError(
                "the prior leaves out numbers of components between others, so that births and "
                "deaths can't reach every model; give those a little mass"
            )

        self.single = self._alone()
        self.apart = self.shared and self.single is not None and self._same_signal(self.single)

    def on(self, target: Tempered) -> Components:
        """The same components of a tempered target."""
        new = copy.copy(self)
        new.target = target
        return new

    def examples(self, generator: torch.Generator, n: int = 8) -> tuple[Tensor, Tensor]:
        """Models with all components and draws from their prior, (n, L) and (n, D)."""
        code = self._full.expand(n, -1)
        theta = self.target.sample_prior(code, generator)
        return code, torch.where(theta.isfinite(), theta, 0.0)

    def _independent(self) -> bool:
        """Whether the contributions of the others do not depend on a component, as by a prior."""
        generator = torch.Generator(self.target.device).manual_seed(0)
        code, theta = self.examples(generator)
        less = self.counted(code, self.count(code) - 1)
        last = torch.full_like(code[:, 0], self.number - 1)
        with torch.no_grad():
            change = self.contribution(theta, self.one(theta, last))
            whole = self.target.total(code, theta)
            rest = self.target.total(less, torch.where(self.space.active(less), theta, 0.0))
        gap, change, whole = (
            x.abs().nan_to_num(0.0, 0.0).reshape(len(code), -1).amax(1)
            for x in (whole - rest - change, change, whole)
        )
        return bool((gap <= ALIKE * change + ROUNDING * whole).all())

    def _sees_rounding(self) -> bool:
        """Whether the likelihood tells rounding errors of a sum from zero: a logarithm does."""
        code, theta = self.examples(torch.Generator(self.target.device).manual_seed(0))
        with torch.no_grad():
            left = SLACK * self.target.total(code, theta)
            some, none = (self.target.log_joint(code, theta, x) for x in (left, 0 * left))
        near = (some - none).abs() <= ROUNDING * (1 + none.abs())
        return not bool(((near & none.isfinite()) | (some == none)).all())

    def _alike(self) -> bool:
        """Whether the density is the same in reverse order, wherever it is above 0.

        That is looked at with few components, with all, and with a number between; one is alike.
        """
        if self.number == 1:
            return True
        generator = torch.Generator(self.target.device).manual_seed(0)
        few = min(max(2, self.kind.min), self.number)
        numbers = {few, (few + self.number + 1) // 2, self.number}
        found = [self._reversible(n, generator) for n in sorted(numbers)]
        return any(found) and not any(x is False for x in found)

    def _reversible(self, number: int, generator: torch.Generator) -> bool | None:
        """Whether the density is; None where it is 0 at all prior draws."""
        code, theta = self._possible(number, generator)
        back = torch.arange(self.number, device=code.device)
        back = torch.where(back < number, number - 1 - back, back)
        moved = theta.clone()
        moved[:, self.slots.flatten()] = self.of(theta)[:, back].flatten(1)
        with torch.no_grad():
            before = self.target.log_joint(code, theta)
            after = self.target.log_joint(code, moved)
        near = (before - after).abs() <= ALIKE * (1 + before.abs())
        same = bool((near | (before == after)).all())
        return None if same and not bool(before.isfinite().any()) else same

    def _possible(self, number: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Prior draws of so many components, of a density above 0 if that is met."""
        for n in (ROWS, MORE_ROWS):
            code = self._full.expand(n, -1)
            code = self.counted(code, torch.full_like(code[:, 0], number))
            theta = self.target.sample_prior(code, generator)
            theta = torch.where(theta.isfinite(), theta, 0.0)
            with torch.no_grad():
                possible = self.target.log_joint(code, theta) > -torch.inf
            if bool(possible.any()):
                break
        rows = possible.long().topk(ROWS).indices
        return code[rows], theta[rows]

    def _own_prior(self) -> bool:
        """Whether the prior of a component is the same whatever the others of its kind are."""
        generator = torch.Generator(self.target.device).manual_seed(1)
        code, theta = self.examples(generator)
        last = torch.full_like(code[:, 0], self.number - 1)
        other = self.put(theta, last, self.one(theta, last).roll(1, 0))
        with torch.no_grad():
            here, there = (self.target.prior_by_slot(code, x) for x in (theta, other))
        here, there = here[:, self.slots[0]], there[:, self.slots[0]]
        near = (here - there).abs() <= ALIKE * (1 + here.abs())
        return bool((near | (here == there)).all())

    def _alone(self) -> Single | None:
        """One component without the others, if priors let it be had and it is the same."""
        generator = torch.Generator(self.target.device).manual_seed(2)
        _, theta = self.examples(generator)
        x = self.one(theta, torch.zeros(len(theta), dtype=torch.long, device=theta.device)).flip(0)
        try:
            single = Single(self.target, self.kind)
            pairs = [(single.log_prior(theta, x), self.log_prior(theta, x))]
            if self.additive:
                pairs += [(single.contribution(theta, x), self.contribution(theta, x))]
        except Exception:  # a user's prior that asks for all components may raise anything
            return None
        same = all(a.shape == b.shape and torch.allclose(a, b, ALIKE, ALIKE) for a, b in pairs)
        return single if same else None

    def _same_signal(self, single: Single) -> bool:
        """Whether what all share changes nothing that components add."""
        if not self.additive or len(self.space.kinds) > 1:  # others may see it
            return False
        _, theta = self.examples(torch.Generator(self.target.device).manual_seed(3))
        x = self.one(theta, torch.zeros_like(theta[:, 0], dtype=torch.long))
        with torch.no_grad():
            one, other = (single.contribution(t, x) for t in (theta, theta.roll(1, 0)))
        return bool((one == other).all())

    def count(self, code: Tensor) -> Tensor:
        """How many components there are, (C, L) -> (C,)."""
        return code[:, self.place]

    def counted(self, code: Tensor, number: Tensor) -> Tensor:
        """The models with another number of components, (C, L)."""
        here = torch.arange(code.shape[1], device=code.device) == self.place
        return torch.where(here, number[:, None], code)

    def items(self, code: Tensor) -> Tensor:
        """Which components there are, (C, L) -> (C, K) bool."""
        return torch.arange(self.number, device=code.device) < self.count(code)[:, None]

    def of(self, theta: Tensor) -> Tensor:
        """Coordinates by component, (C, D) -> (C, K, P)."""
        return theta[:, self.slots]

    def one(self, theta: Tensor, index: Tensor) -> Tensor:
        """Coordinates of one component of each chain, (C, P)."""
        return theta.gather(1, self.slots[index])

    def put(self, theta: Tensor, index: Tensor, x: Tensor | float) -> Tensor:
        """Coordinates with one component of each chain replaced, (C, D)."""
        slots = self.slots[index]
        if not isinstance(x, Tensor):
            x = torch.full_like(slots, x, dtype=theta.dtype)
        return theta.scatter(1, slots, x)

    def swapped(self, theta: Tensor, one: Tensor, other: Tensor) -> Tensor:
        """Coordinates after two components of each chain have traded places, (C, D)."""
        x, y = self.one(theta, one), self.one(theta, other)
        return self.put(self.put(theta, one, y), other, x)

    def shuffled(self, code: Tensor, theta: Tensor, generator: torch.Generator) -> Tensor:
        """Components in random order, (C, D): the same point under other names."""
        noise = torch.rand(len(code), self.number, generator=generator, device=code.device)
        order = torch.where(self.items(code), noise, 2.0).argsort(dim=1, stable=True)
        rows = self.of(theta).gather(1, order[:, :, None].expand(-1, -1, self.width))
        moved = theta.clone()
        moved[:, self.slots.flatten()] = rows.flatten(1)
        return moved

    def some(self, code: Tensor, generator: torch.Generator) -> Tensor:
        """Index of a random component of each chain, (C,); 0 where there is none."""
        u = torch.rand(len(code), generator=generator, device=code.device)
        k = self.count(code)
        return (u * k).long().minimum(k - 1).clamp(min=0)

    def nearest(self, code: Tensor, theta: Tensor, index: Tensor, unit: Tensor) -> Tensor:
        """The component nearest to one of each chain, coordinates in units (P,), (C,)."""
        gap = (self.of(theta) - self.one(theta, index)[:, None]) / unit
        far = gap.square().sum(-1).nan_to_num(torch.inf)
        there = self.items(code).scatter(1, index[:, None], False)
        return torch.where(there, far, torch.inf).argmin(1)

    def sample_prior(self, theta: Tensor, seed: int) -> Tensor:
        """A component of each chain from the prior, given what all share, (C, P)."""
        if self.single is not None:
            return self.single.sample_prior(theta, seed)
        keep = torch.ones_like(theta, dtype=torch.bool)
        keep[:, self.slots[0]] = False
        code = self._full.expand(len(theta), -1)
        return self.target.sample_missing(code, theta, keep, seed)[:, self.slots[0]]

    def log_prior(self, theta: Tensor, x: Tensor) -> Tensor:
        """Log prior density of one component of each chain, given what all share, (C,)."""
        if self.single is not None:
            return self.single.log_prior(theta, x)
        first = torch.zeros(len(x), dtype=torch.long, device=x.device)
        code = self._full.expand(len(x), -1)
        by_slot = self.target.prior_by_slot(code, self.put(theta, first, x))
        return by_slot[:, self.slots[0]].sum(-1)

    def contribution(self, theta: Tensor, x: Tensor) -> Tensor:
        """What one component adds, float64, (C, *data); the likelihood must be additive."""
        if self.single is not None:
            return self.single.contribution(theta, x)
        first = torch.zeros(len(x), dtype=torch.long, device=x.device)
        return self.target.contribution(self.put(theta, first, x), self.place)

    def total(self, code: Tensor, theta: Tensor, known: Tensor | None = None) -> Tensor | None:
        """What all components add up to, if one can change alone, float64.

        Shape (C, *data), or (C, 2, *data) if the likelihood sees rounding: the sum, and the
        largest size that it has had since it was added up.
        """
        if not self.additive or known is not None:
            return known if self.additive else None
        return self._added_up(code, theta)

    def _added_up(self, code: Tensor, theta: Tensor) -> Tensor:
        total = self.target.total(code, theta)
        return torch.stack([total, total.abs()], 1) if self.delicate else total

    def sum_in(self, total: Tensor) -> Tensor:
        """The sum over components in what :meth:`total` gives, (C, *data)."""
        return total[:, 0] if self.delicate else total

    def times(self, number: Tensor, change: Tensor) -> Tensor:
        """A change of each chain's total times its number (C,), which is 1, 0 or -1; (C, *data)."""
        return number.view(-1, *[1] * (change.ndim - 1)) * change

    def log_joint(
        self, code: Tensor, theta: Tensor, now: Tensor, before: Tensor, change: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The log joint of proposals, (C,), and what their components add up to.

        Where most of a sum is taken away, what is left of it is rounding. A likelihood that
        can tell has it added up afresh then, unless even the larger of the two is refused.

        Arguments:
            code: Models that are proposed, shape (C, L).
            theta: Coordinates there, shape (C, D).
            now: Log joint where the chains are, shape (C,).
            before: What the components add up to there, as from :meth:`total`.
            change: What is added to that, shape (C, *data).
        """
        if not self.delicate:
            total = before + change
            return self.target.log_joint(code, theta, total), total
        total, most = before[:, 0] + change, before[:, 1]
        size = total.abs()
        lost = size < CANCELLED_SHARE * most
        at_most = torch.where(lost, before[:, 0].sign() * size.maximum(SLACK * most), total)
        log_joint = self.target.log_joint(code, theta, at_most)
        total = torch.stack([total, size.maximum(most)], 1)
        hopeless = log_joint - now < HOPELESS
        again = lost.reshape(len(lost), -1).any(1) & ~hopeless
        if surely(~again):
            return log_joint, total
        if on_host(again):
            rows = again.nonzero()[:, 0]
            code, theta = code[rows], theta[rows]
            fresh = self._added_up(code, theta)
            right = self.target.log_joint(code, theta, fresh[:, 0])
            return log_joint.index_copy(0, rows, right), total.index_copy(0, rows, fresh)
        fresh = self._added_up(code, theta)
        right = self.target.log_joint(code, theta, fresh[:, 0])
        anew = again.view(-1, *[1] * (total.ndim - 1))
        return torch.where(again, right, log_joint), torch.where(anew, fresh, total)

    def named(self, name: str) -> str:
        """A name for tables, with the kind where there are several."""
        return f"{name}: {self.kind.name}" if len(self.space.kinds) > 1 else name


def components_of(target: Target) -> tuple[Components, ...]:
    """The components that a target counts, one entry a kind; none if not exchangeable.

    That costs likelihoods, and a run asks often: the target remembers the answer.
    """
    return target.cached(_all_components)


def _all_components(target: Target) -> tuple[Components, ...]:
    if isinstance(target, Tempered):  # like components stay alike at any power
        return tuple(part.on(target) for part in components_of(target.target))
    kinds = target.space.kinds if target.space.counts else ()
    try:
        return tuple(Components(target, kind.name) for kind in kinds if kind.max)
    except ConfigurationError:
        return ()
