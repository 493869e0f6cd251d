"""Exchangeable components in one order: a map that does not learn each posterior k! times."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from ..errors import ConfigurationError
from ..grouping import on_host
from ..space.codes import distinct
from .base import Choosing, Standardisable, Transport
from .reference import Extended, Gaussian

BLURRED = 1e4  # units of rounding below which a gap is no longer known to a ten-thousandth

KNOWN = 0.05  # nats that rounding of a gap may change the density by

GUESSES = 256  # draws of a model from a location and a scale


class SortedComponents(Choosing):
    r"""A map of the components in increasing order of a key, and a random order after it.

    Names of like components mean nothing, so that a posterior over k of them has k! copies of
    every mode. Here the base learns one copy, u: a coordinate of each component, its key, is
    made increasing,

    .. math:: x_1 = u_1, \qquad x_{j+1} = x_j + s \log(1 + e^{u_{j+1}}), \qquad
              q(\theta | k) = \frac{1}{k!} \, q_{base}(u | k) \prod_{j > 1} \frac{1 + e^{-u_j}}{s},

    and the components then trade places by chance: component i has the place that the i-th of
    as many further reference coordinates has among those of the components there are.

    Arguments:
        base: A map over a space of :class:`~trjmcmc.Counts`; auxiliary coordinates of its own are
            kept. Of several kinds each is put in order by a map around that of the one before.
        kind: Name or position of the kind of components, where there are several.
        by: Which coordinate of a component is the key, counted from 0 in the order of the
            target's parameters. None begins with the first and takes, when a fit shows
            posterior draws, the one whose order leaves the least spread. Name it where a fit has
            gradients alone: a location and a scale say little about it.

    Attributes:
        key: The coordinate that is made increasing.
        unit: s, the mean gap between keys that a fit has seen; 1 until then.

    Raises:
        ConfigurationError: Another space, one without components, no such kind or coordinate.

    Error:
        Keys nearer to each other than rounding have no density: push gives +inf, so that no move
        leads there, and pull -inf.

    Source:
        The k! copies: Stephens (2000), https://doi.org/10.1111/1467-9868.00265

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.transport import CosmicFlow
        >>> space = problems.pulses(most=3).space
        >>> flow = SortedComponents(CosmicFlow(space, layers=2, hidden=(8,)), by=1)
        >>> z = flow.reference.sample((5, 9), torch.Generator().manual_seed(0), torch.float32)
        >>> code = torch.tensor([[0], [1], [2], [3], [3]])
        >>> theta, log_q = flow.push(z, code)
        >>> z.shape, theta.shape, log_q.shape
        (torch.Size([5, 12]), torch.Size([5, 9]), torch.Size([5]))
        >>> swapped = theta[:, [1, 0, 2, 4, 3, 5, 7, 6, 8]]  # the first two of each parameter
        >>> bool((flow.log_prob(swapped, code) == flow.log_prob(theta, code))[2:].all())
        True
    """

    slots: Tensor
    key: Tensor
    unit: Tensor

    def __init__(
        self, base: Transport, by: int | None = None, *, kind: int | str | None = None
    ) -> None:
        space = base.space
        if not space.counts or not bool((space.slot_item < space.n_items).any()):
            raise ConfigurationError(
                "SortedComponents: expected a space of Counts, with components"
            )
        self.place = space.place_of(kind)
        slots = space.slots_of(space.kinds[self.place])
        if not slots.numel():
            raise ConfigurationError("SortedComponents: expected a kind that has components")
        super().__init__(space, Extended(base.reference, len(slots)))
        width = slots.shape[1]
        if by is not None and not 0 <= by < width:
            raise ConfigurationError(
                f"by: expected a coordinate of a component, 0 to {width - 1}, or None, got {by!r}"
            )
        self.base, self.by = base, by
        self.spares_pass = base.spares_pass
        self._inner = space.n_slots + base.reference.auxiliary
        self.register_buffer("slots", slots, persistent=False)
        self.register_buffer("key", torch.tensor(by or 0, device=space.slot_item.device))
        self.register_buffer("unit", torch.ones((), device=space.slot_item.device))

    # ---- places and gaps ----------------------------------------------------------------------

    @property
    def _key_slots(self) -> Tensor:
        """Slots of the key, (K,); its number stays on the device."""
        return self.slots.index_select(1, self.key.view(1))[:, 0]

    def _items(self, code: Tensor) -> Tensor:
        """Which components of the kind there are, (C, L) -> (C, K) bool."""
        number = torch.arange(len(self.slots), device=code.device)
        return number < code[:, self.place, None]

    def _order(self, x: Tensor, code: Tensor) -> Tensor:
        """Components by increasing x, (C, K) -> (C, K); those that are absent stay behind."""
        return torch.where(self._items(code), x, math.inf).argsort(dim=1, stable=True)

    def _arranged(self, theta: Tensor, order: Tensor) -> Tensor:
        """Each component's coordinates from the component that stands in its place in order."""
        rows = theta[:, self.slots]
        rows = rows.gather(1, order[:, :, None].expand_as(rows))
        return theta.scatter(1, self.slots.flatten().expand(len(theta), -1), rows.flatten(1))

    def _with_keys(self, theta: Tensor, keys: Tensor) -> Tensor:
        return theta.scatter(1, self._key_slots.expand_as(keys), keys)

    def _apart(self, u: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        """Increasing keys from what gaps are made of, and log|det|, -inf where it has none."""
        on, keys = self._items(code), u[:, self._key_slots]
        steps = torch.cat([keys[:, :1], self.unit * softplus(keys[:, 1:])], 1)
        x = torch.where(on, steps, 0.0).cumsum(1)
        # no ties: pull could not tell which of them was the first
        least = torch.cat([steps[:, :1], 2 * _rounding(x.detach())], 1)
        x = torch.where(on, torch.where(on, steps.maximum(least), 0.0).cumsum(1), keys)
        log_det = self._log_det(keys, on).masked_fill(self._tied(steps < least, on), -math.inf)
        return self._with_keys(u, x), log_det

    def _tied(self, near: Tensor, on: Tensor) -> Tensor:
        """Rows of which two components stand nearer than can be told, (C, K) -> (C,)."""
        return (near & on)[:, 1:].any(1)

    def _log_det(self, keys: Tensor, on: Tensor) -> Tensor:
        each = logsigmoid(keys[:, 1:]) + self.unit.log()
        return torch.where(on[:, 1:], each, 0.0).sum(1)

    def _ordered(self, theta: Tensor, code: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Base coordinates, log|det du/dtheta| and the order of the components."""
        on = self._items(code)
        order = self._order(theta[:, self._key_slots], code)
        x = self._arranged(theta, order)
        keys = x[:, self._key_slots]
        gap, least = keys.diff(dim=1), _rounding(keys)
        near = torch.nn.functional.pad(gap < least, (1, 0))
        gap = torch.maximum(gap, least) / self.unit
        gap = torch.where(on[:, 1:], gap, 1.0)  # no infinite slopes where nothing is
        u = torch.where(on[:, 1:], gap + torch.log(-torch.expm1(-gap)), keys[:, 1:])
        u = torch.cat([keys[:, :1], u], 1)
        log_det = -self._log_det(u, on).masked_fill(self._tied(near, on), math.inf)
        return self._with_keys(x, u), log_det, order

    def _log_orders(self, code: Tensor, like: Tensor) -> Tensor:
        """log k!, shape (C,)."""
        return torch.lgamma(code[:, self.place].to(like) + 1)

    # ---- the transport ------------------------------------------------------------------------

    def push(self, z: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        u, log_q = self.base.push(z[:, : self._inner], code)
        x, ladj = self._apart(u, code)
        log_q = log_q - ladj - self._log_orders(code, z)
        keys = x[:, self._key_slots]
        near = (keys.diff(dim=1) < BLURRED * _rounding(keys)) & self._items(code)[:, 1:]
        rows = near.any(1) & ladj.isfinite()
        if not on_host(x):  # all rows: to pick some would wait for the device
            log_q = torch.where(rows, self._seen(x, code, log_q), log_q)
        elif bool(rows.any()):
            log_q = log_q.index_put((rows,), self._seen(x[rows], code[rows], log_q[rows]))
        place = self._order(z[:, self._inner :], code).argsort(dim=1)
        return self._arranged(x, place), log_q

    def _seen(self, x: Tensor, code: Tensor, said: Tensor) -> Tensor:
        """log q as pull will see it where rounding has changed a gap, if that is near."""
        seen = self.log_prob(x, code)
        return torch.where((seen - said).abs() > KNOWN, math.inf, seen)

    def pull(
        self, theta: Tensor, code: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        u, ladj, order = self._ordered(theta, code)
        z, log_q = self.base.pull(u, code, generator)
        noise = Gaussian().sample(tuple(order.shape), generator, theta.dtype)
        on = self._items(code)
        rising = torch.where(on, noise, math.inf).sort(dim=1).values
        chooser = torch.where(on, rising, noise).gather(1, order.argsort(dim=1))
        return torch.cat([z, chooser], 1), log_q + ladj - self._log_orders(code, z)

    def log_prob(self, theta: Tensor, code: Tensor) -> Tensor:
        u, ladj, _ = self._ordered(theta, code)
        return self.base.log_prob(u, code) + ladj - self._log_orders(code, u)

    def log_choice(self, z: Tensor, code: Tensor) -> Tensor:
        orders = self._log_orders(code, z)
        if not isinstance(self.base, Choosing):
            return -orders
        return self.base.log_choice(z[:, : self._inner], code) - orders

    # ---- a first guess ------------------------------------------------------------------------

    @torch.no_grad()
    def arrange(self, code: Tensor, theta: Tensor) -> tuple[Transport, Tensor]:
        """Choose the key, if it is open, and the unit of its gaps by posterior draws.

        Arguments:
            code: Models of the draws, shape (N, L).
            theta: The draws, shape (N, D).

        Returns:
            The map inside, and the draws in its coordinates, shape (N, D).
        """
        if self.by is None and self.slots.shape[1] > 1:
            spreads = [self._spread(code, theta, i) for i in range(self.slots.shape[1])]
            self.key.fill_(min(range(len(spreads)), key=spreads.__getitem__))
        slots = self._key_slots
        keys = self._arranged(theta, self._order(theta[:, slots], code))[:, slots]
        gaps = keys.diff(dim=1)[self._items(code)[:, 1:]]
        if len(gaps) and float(gaps.mean()) > 0:
            self.unit.copy_(gaps.mean())
        u = self._ordered(theta, code)[0]
        return (
            self.base.arrange(code, u)
            if isinstance(self.base, SortedComponents)
            else (self.base, u)
        )

    def _spread(self, code: Tensor, theta: Tensor, key: int) -> float:
        """Entropy of independent normals fitted to the draws in order, but for a constant."""
        x = self._arranged(theta, self._order(theta[:, self.slots[:, key]], code))
        total = 0.0
        for one in distinct(code)[0]:
            mine = (code == one).all(1)
            active = self.space.active(one[None])[0]
            if int(mine.sum()) > 1 and bool(active.any()):
                tiny = torch.finfo(x.dtype).tiny
                log_sd = x[mine][:, active].std(0).clamp(min=tiny).log()
                total += float(log_sd.sum()) * float(mine.sum())
        return total

    def standardise(self, code: Tensor, loc: Tensor, scale: Tensor) -> None:
        """By draws from independent normals of that location and scale."""
        if not len(code):
            return
        generator = torch.Generator(loc.device).manual_seed(0)
        noise = Gaussian().sample((GUESSES, *loc.shape), generator, loc.dtype)
        many = code.expand(GUESSES, *code.shape).flatten(0, 1)
        inner, u = self.arrange(many, (loc + scale * noise).flatten(0, 1))
        if not isinstance(inner, Standardisable):
            return
        u = u.view(GUESSES, *loc.shape)
        active = self.space.active(code)
        inner.standardise(
            code,
            torch.where(active, u.mean(0), 0.0),
            torch.where(active, u.std(0).clamp(min=1e-6), 1.0),
        )


def _rounding(keys: Tensor) -> Tensor:
    """What the gaps between keys may be off by, (C, K) -> (C, K - 1)."""
    return torch.finfo(keys.dtype).eps * (1 + keys[:, 1:].abs().maximum(keys[:, :-1].abs()))
