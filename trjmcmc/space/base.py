"""Model spaces: which models exist, and which items each of them uses.

A model is a row of integers, its ``code``, shape (L,). Spaces are pure data (modules, so that
their tables move with ``.to``) and stay cheap when nobody can enumerate the models.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ShapeError, TargetError
from .codes import ENUMERABLE


def several(space: Space) -> bool:
    return space.size is None or space.size > 1


@dataclass(frozen=True)
class Kind:
    """Like items of a space, with the same parameters.

    Attributes:
        name: What they are called.
        min, max: Smallest and largest number of them in a model.
        of: Parameters of which each item has its own entry.
        first: Place of the first among all items of the space.
    """

    name: str
    min: int
    max: int
    of: tuple[str, ...]
    first: int = 0

    @property
    def items(self) -> slice:
        """Their places among all items of the space."""
        return slice(self.first, self.first + self.max)


class Space(nn.Module, ABC):
    """Base of the model spaces.

    Items are what a model switches on or off; a target binds the space to its padded
    coordinates (slots), each of which belongs to one item or is always on.

    Attributes:
        code_width: L, the integers in a code.
        n_items: How many items there are.
        kinds: Of items, each with parameters of its own; none in a list of models.
        context_width: Length of :meth:`context`.
        size: Number of models, or None where they can't be counted.
        slot_item: Item of each slot, shape (D,); ``n_items`` marks slots that are always on.
    """

    code_width: int
    n_items: int
    kinds: tuple[Kind, ...] = ()
    context_width: int
    size: int | None
    slot_item: Tensor

    @abstractmethod
    def items(self, code: Tensor) -> Tensor:
        """Items in use, (C, L) -> (C, n_items) bool."""

    @abstractmethod
    def context(self, code: Tensor) -> Tensor:
        """What a flow's conditioner sees of the model, (C, L) -> (C, context_width)."""

    @abstractmethod
    def log_prior(self, code: Tensor) -> Tensor:
        """Log prior probability of each model, (C, L) -> (C,), nats."""

    @abstractmethod
    def sample_prior(self, n: int, generator: torch.Generator) -> Tensor:
        """Codes drawn from the model prior, shape (n, L)."""

    @abstractmethod
    def label(self, code: Tensor) -> list[str]:
        """A name for each model, (C, L) -> C strings."""

    @abstractmethod
    def code_of(self, model: Any) -> Tensor:
        """The code of a model given by its label, shape (L,).

        Raises:
            UnknownModelError: There is no such model.
        """

    @abstractmethod
    def enumerate(self) -> Tensor:
        """All codes in the order of :meth:`index`, shape (size, L); small spaces only."""

    @abstractmethod
    def index(self, code: Tensor) -> Tensor:
        """Position of each code in :meth:`enumerate`, (C, L) -> (C,) int64."""

    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """Plain data from which :func:`space_from_spec` rebuilds the space."""

    @abstractmethod
    def neighbours(self, code: Tensor) -> tuple[Tensor, Tensor]:
        """Models one change away: a unit flipped, a component more or fewer, or any other.

        Returns:
            Codes, (C, L) -> (C, N, L), and which of them there are, (C, N) bool.
        """

    @abstractmethod
    def levels(self) -> tuple[Tensor, Tensor]:
        """Lowest value of each integer of a code, and how many values it takes, (L,) each."""

    @abstractmethod
    def certain(self) -> tuple[Tensor, Tensor]:
        """Items that the prior has in every model, and in none, (n_items,) bool each."""

    @property
    def enumerable(self) -> bool:
        """Whether tables over all models are affordable."""
        return self.size is not None and self.size <= ENUMERABLE

    @property
    def n_slots(self) -> int:
        """D, the padded coordinates; known once the space is bound to a target."""
        return len(self.slot_item)

    def items_of(self, name: str) -> slice | None:
        """The items that have an entry each of a parameter; None if it belongs to no item."""
        return next((kind.items for kind in self.kinds if name in kind.of), None)

    def by_kind(self, items: Tensor) -> Tensor | dict[str, Tensor]:
        """Items in use as a likelihood sees them: by name where there are several kinds."""
        if len(self.kinds) < 2:
            return items
        return {kind.name: items[:, kind.items] for kind in self.kinds}

    def bind(self, slot_item: Tensor) -> Space:
        """A copy that knows which item each slot belongs to."""
        bound = copy.deepcopy(self)
        bound.register_buffer("slot_item", slot_item)
        return bound

    def active(self, code: Tensor) -> Tensor:
        """Padded coordinates in use, (C, L) -> (C, D) bool."""
        items = self.items(code)
        always = torch.ones(len(items), 1, dtype=torch.bool, device=items.device)
        return torch.cat([items, always], dim=1)[:, self.slot_item]


def check_names(names: Sequence[str], argument: str) -> None:
    """Refuse empty lists and repeated names."""
    if not names:
        raise TargetError(f"{argument}: expected at least one, got none")
    if repeated := sorted({name for name in names if list(names).count(name) > 1}):
        raise TargetError(f"{argument}: names must differ, {repeated} repeat")


def check_enumerable(space: Space) -> None:
    """Refuse to list the models of a large space."""
    if not space.enumerable:
        raise ShapeError(
            f"a space of {space.size or 'uncounted'} models is too large to enumerate "
            f"(limit {ENUMERABLE})"
        )


def listing(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f", ... ({len(names)} in all)" if len(names) > most else "")
