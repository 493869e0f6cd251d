"""The log joint of all items together to second order, in units of its own precision."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...target.units import check_absent_is_zero
from ...transport.laplace import LaplaceMap

SAME = 0.01  # largest difference of two expansions of one quadratic, in its units and nats


class Terms(NamedTuple):
    """A quadratic in coordinates x that are zero where an item is absent, float64.

    Attributes:
        precision: Minus its second derivatives, ones on the diagonal, shape (D, D).
        slope: Its gradient at x = 0, shape (D,).
        gain: What each unit adds to a model's log evidence beside that, nats, shape (U,).
        centre: Where x is zero, in the target's coordinates, shape (D,).
        unit: What x = 1 is away from there, shape (D,).
    """

    precision: Tensor
    slope: Tensor
    gain: Tensor
    centre: Tensor
    unit: Tensor


class Quadratic:
    """What Laplace's method says of all items together, around a model that warm-up finds.

    The centre moves to the median probability model of the visits, until two expansions are the
    same: the log joint is quadratic then, and any centre is as good.

    Arguments:
        flow: Laplace's map of a target over :class:`~trjmcmc.Subsets` whose item parameters
            are real numbers, zero when absent.
        name: Who asks, for errors.

    Attributes:
        slots: Which slots come and go with each unit, shape (U, D), bool.
        exact: Whether two expansions have been the same, so that the log joint is quadratic.

    Raises:
        ConfigurationError: Another space, no model of all items, parameters of items that are
            not real numbers.

    Example:
        >>> from trjmcmc import problems
        >>> quadratic = Quadratic(LaplaceMap(problems.variable_selection(4)), "an example")
        >>> quadratic.terms.precision.shape, quadratic.terms.gain.shape
        (torch.Size([4, 4]), torch.Size([4]))
    """

    def __init__(self, flow: LaplaceMap, name: str) -> None:
        space = flow.space
        if not space.units:
            raise ConfigurationError(f"{name}: expected a space of Subsets with items to choose")
        check_absent_is_zero(flow.target)
        self.flow = flow
        first = torch.eye(space.code_width, dtype=torch.long, device=space.slot_item.device)
        self.slots = space.active(first) & ~space.active(torch.zeros_like(first))
        self._on = torch.zeros(space.code_width, dtype=torch.float64, device=first.device)
        self._seen = 0
        self._centre = torch.zeros_like(first[0])
        self._terms: Terms | None = None  # costs evaluations: when it is first asked for
        self.exact = False

    @property
    def terms(self) -> Terms:
        if self._terms is None:
            self._terms = self._expanded(self._centre)
        return self._terms

    def adapted_to(self, code: Tensor, *, move: bool = True) -> Quadratic:
        """That which has seen models (C, L) as well, its centre moved where that is due."""
        found = copy.copy(self)
        found._on, found._seen = self._on + code.sum(0), self._seen + len(code)
        centre = (found._on > 0.5 * found._seen).long()
        if move and not self.exact and not torch.equal(centre, self._centre):
            found._centre = centre
            found._terms = self._expanded(centre)
            found.exact = self._terms is not None and _same(self._terms, found._terms)
        return found

    def learnt(self) -> dict[str, Any]:
        return {"centre": self._centre.tolist()}

    def _expanded(self, code: Tensor) -> Terms:
        flow = self.flow
        precision, slope, constant, centre = flow.expansion(code)
        unit = precision.diagonal().rsqrt()  # with ones on the diagonal pivots are shares
        return Terms(
            unit[:, None] * precision * unit,
            unit * slope,
            self.slots.double() @ (constant + unit.log()),
            centre.double(),
            unit * flow.scale.double(),
        )


def _same(a: Terms, b: Terms) -> bool:
    """Whether two expansions are one quadratic, whatever their centres."""
    moved = a.slope - a.precision @ ((b.centre - a.centre) / a.unit)
    pairs = [
        (a.unit.log(), b.unit.log()),
        (a.precision, b.precision),
        (moved, b.slope),
        (a.gain, b.gain),
    ]
    return all(bool(((x - y).abs() < SAME).all()) for x, y in pairs)
