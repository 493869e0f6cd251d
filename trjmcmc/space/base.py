"""What every space of models answers.

A model is a row of integers, its ``code``, shape (L,). Spaces are pure data (modules, so that
their tables move with ``.to``) and stay cheap when nobody can enumerate the models.

How a new space is written
--------------------------
Targets, maps, kernels, runs and results ask a space what they need to know; none of them asks
which class it is. So a new space is one module beside this one:

1. Subclass :class:`Space` and set ``code_width``, ``n_items``, ``context_width``, ``size``,
   ``names`` and ``kinds``. A model switches *items* on (columns of a regression, edges of a
   graph, components of a mixture); a :class:`Kind` groups items with the same parameters.
   Tables of numbers are buffers.
2. Write the abstract methods. ``items``, ``context``, ``log_prior`` and ``neighbours`` stand in
   inner loops: batched, on the device, no Python branch on values.
3. Look at the questions that have an answer here already, and override those for which it is
   not true, or not fast, in the new space: ``units``, ``counts``, ``gaps``, ``largest``,
   ``random_neighbour``, ``log_neighbour``, ``examples``, ``entry_names``.
4. Name the class in ``saved.py``, so that results in files know it, and in the package's
   ``__init__``.

``tests/space/test_new_space.py`` does this for a space of at most two items, as an example.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ConfigurationError, ShapeError, TargetError
from ..promises import MODELS_ONE_BY_ONE
from .codes import ENUMERABLE


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
        names: Of the items; in a list of models, which has none, those of the models.
        kinds: Of items, each with parameters of its own; none in a list of models.
        context_width: Length of :meth:`context`.
        size: Number of models, or None where they can't be counted.
        units: Number of units that a code switches on (1) or off (0), one integer each, every
            combination of them a model; 0 in spaces whose codes are anything else.
        counts: Whether a code counts components, which of a kind are all alike.
        graphs: Whether items are the edges of acyclic graphs, as in :class:`~trjmcmc.graphs.Dags`.
        orders: Whether a code is such a graph with an order of its nodes.
        slot_item: Item of each slot, shape (D,); ``n_items`` marks slots that are always on.
    """

    code_width: int
    n_items: int
    names: list[str]
    kinds: tuple[Kind, ...] = ()
    context_width: int
    size: int | None
    units: int = 0
    counts: bool = False
    graphs: bool = False
    orders: bool = False
    slot_item: Tensor
    all_of_items: bool = False  # whether no slot is always on

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
        """The code of a model given by its label, shape (L,), on the device of the space.

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
        """Plain data from which :meth:`from_spec` rebuilds the space; "kind" names the class."""

    @classmethod
    @abstractmethod
    def from_spec(cls, spec: dict[str, Any]) -> Space:
        """The bound space that :meth:`spec` has described."""

    @abstractmethod
    def neighbours(self, code: Tensor) -> tuple[Tensor, Tensor]:
        """Models one change away: a unit flipped, a component more or fewer, or any other.

        Being a neighbour is mutual, and N is the same for all models.

        Returns:
            Codes, (C, L) -> (C, N, L), and which of them there are, (C, N) bool.
        """

    @abstractmethod
    def levels(self) -> tuple[Tensor, Tensor]:
        """Lowest value of each integer of a code, and how many values it takes, (L,) each."""

    @abstractmethod
    def certain(self) -> tuple[Tensor, Tensor]:
        """Items that the prior has in every model, and in none, (n_items,) bool each."""

    # ---- questions about the space ----------------------------------------------------------

    @property
    def enumerable(self) -> bool:
        """Whether tables over all models are affordable."""
        return self.size is not None and self.size <= ENUMERABLE

    @property
    def few(self) -> bool:
        """Whether models are few enough (64) to be fitted, weighed and reported one by one."""
        return self.size is not None and self.size <= MODELS_ONE_BY_ONE

    @property
    def several(self) -> bool:
        """Whether there is more than one model."""
        return self.size is None or self.size > 1

    @property
    def has_items(self) -> bool:
        """Whether models are made of items, so that neighbours differ by little.

        In a list of models any other model is a neighbour.
        """
        return bool(self.kinds)

    @property
    def has_named_items(self) -> bool:
        """Whether each item is one of its own, with a name; components that are counted are not."""
        return self.has_items and not self.counts

    @property
    def of(self) -> tuple[str, ...]:
        """Parameters of which each item of some kind has an entry of its own."""
        return tuple(name for kind in self.kinds for name in kind.of)

    @property
    def gaps(self) -> bool:
        """Whether the prior leaves out sizes between others, so that single steps are stuck."""
        return False

    @property
    def log_priors(self) -> tuple[Tensor, ...]:
        """Where components are counted, log prior of each number of a kind, (max - min + 1,)."""
        raise ConfigurationError(f"{type(self).__name__}: nothing is counted in this space")

    @property
    def n_slots(self) -> int:
        """D, the padded coordinates; known once the space is bound to a target."""
        return len(self.slot_item)

    # ---- models and moves between them ------------------------------------------------------

    def largest(self, n: int, generator: torch.Generator) -> Tensor:
        """Codes of ``n`` models or a few more, (>= n, L), that together use every slot often.

        Here that is the model with every integer at its largest value.
        """
        low, levels = self.levels()
        return self.sample_prior(n, generator).maximum(low + levels - 1)

    def examples(self, n: int, generator: torch.Generator) -> Tensor:
        """Codes of models at which a new likelihood is tried, (n, L): draws from the prior."""
        return self.sample_prior(n, generator)

    def random_neighbour(
        self, code: Tensor, generator: torch.Generator, *, swap: float = 0.0
    ) -> Tensor:
        """A neighbour of each model, all with equal probability, (C, L) -> (C, L).

        The models themselves where the neighbour that is drawn does not exist.

        Arguments:
            code: Models, shape (C, L).
            generator: Source of randomness.
            swap: Probability that a unit which is on trades with one which is off instead; for
                spaces of units.
        """
        near, real = self.neighbours(code)
        pick = torch.randint(
            0, real.shape[1], (len(code), 1), generator=generator, device=code.device
        )
        chosen = near.gather(1, pick[..., None].expand(-1, 1, code.shape[1]))[:, 0]
        return torch.where(real.gather(1, pick), chosen, code)

    def log_neighbour(self, new: Tensor, code: Tensor, *, swap: float = 0.0) -> Tensor:
        """Log probability that :meth:`random_neighbour` leads from ``code`` to ``new``, (C,)."""
        near, real = self.neighbours(code)
        there = (near == new[:, None]).all(-1) & real
        stays = (new == code).all(-1)[:, None] & ~real
        return (there | stays).double().mean(1).log()

    def presence(self, bits: Tensor) -> Tensor:
        """Items in use where units are on by degrees, (C, L) -> (C, n_items), differentiable."""
        raise ConfigurationError(f"{type(self).__name__}: no units that could be on by degrees")

    def graded_log_prior(self, bits: Tensor) -> Tensor:
        """Log prior, linear in how far units are on, (C, L) -> (C,), nats."""
        raise ConfigurationError(f"{type(self).__name__}: no units that could be on by degrees")

    def together(self) -> Tensor:
        """The code of all items together, (1, L), of which graphs have no model."""
        return torch.ones(1, self.code_width, dtype=torch.long, device=self.slot_item.device)

    def flip_log_odds(self, code: Tensor) -> Tensor:
        """Change of the log prior when each unit is turned, (C, L) -> (C, U), nats."""
        eye = torch.eye(code.shape[1], dtype=code.dtype, device=code.device)
        flipped = ((code[:, None] + eye) % 2).flatten(0, 1)
        return self.log_prior(flipped).view(code.shape) - self.log_prior(code)[:, None]

    # ---- items and their parameters ---------------------------------------------------------

    def items_of(self, name: str) -> slice | None:
        """The items that have an entry each of a parameter; None if it belongs to no item."""
        return next((kind.items for kind in self.kinds if name in kind.of), None)

    def entry_names(self, code: Tensor, name: str) -> list[str]:
        """Names of a parameter's entries in a model, code (L,); none if it belongs to no item."""
        own = self.items_of(name)
        if own is None:
            return []
        used = self.items(code[None])[0, own].nonzero()[:, 0].tolist()
        return [self.names[own.start + i] for i in used]

    def place_of(self, kind: int | str | None) -> int:
        """The position of a kind, given by that or by name; None is the only one.

        Raises:
            ConfigurationError: There is no such kind, or there are several.
        """
        names = [k.name for k in self.kinds]
        if kind is None and len(names) == 1:
            return 0
        if isinstance(kind, int) and 0 <= kind < len(names):
            return kind
        if kind not in names:
            raise ConfigurationError(f"kind: expected one of {names}, got {kind!r}")
        return names.index(str(kind))

    def slots_of(self, kind: Kind) -> Tensor:
        """Slots of the coordinates of each item of a kind, shape (max, P)."""
        here = (
            self.slot_item[None]
            == torch.arange(self.n_items, device=self.slot_item.device)[kind.items, None]
        )
        return here.nonzero()[:, 1].reshape(kind.max, -1 if kind.max else 0)

    def by_kind(self, items: Tensor) -> Tensor | dict[str, Tensor]:
        """Items in use as a likelihood sees them: by name where there are several kinds."""
        if len(self.kinds) < 2:
            return items
        return {kind.name: items[:, kind.items] for kind in self.kinds}

    def extra_repr(self) -> str:
        """What stands between brackets where the space is printed."""
        return f"{'no end of' if self.size is None else self.size} models"

    def bind(self, slot_item: Tensor) -> Space:
        """A copy that knows which item each slot belongs to."""
        bound = copy.deepcopy(self)
        bound._set_slots(slot_item)
        return bound

    def _set_slots(self, slot_item: Tensor) -> None:
        self.register_buffer("slot_item", slot_item)
        self.all_of_items = bool((slot_item < self.n_items).all())

    def active(self, code: Tensor) -> Tensor:
        """Padded coordinates in use, (C, L) -> (C, D) bool."""
        items = self.items(code)
        if self.all_of_items:
            return items[:, self.slot_item]
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
    """The first names and how many there are, for messages."""
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f", ... ({len(names)} in all)" if len(names) > most else "")


def in_short(values: Sequence[Any]) -> Any:
    """One value for many that are the same, else all of them."""
    return values[0] if len(values) and all(v == values[0] for v in values) else values
