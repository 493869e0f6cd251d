"""Model spaces: which models exist, and which items each of them uses.

A model is a row of integers, its ``code``, shape (L,). Spaces are pure data (modules, so that
their tables move with ``.to``) and stay cheap when nobody can enumerate the models.
"""

from __future__ import annotations

import copy
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution

from .errors import ConfigurationError, ShapeError, TargetError, UnknownModelError

ENUMERABLE = 1 << 16  # largest space that anything in the package lists model by model


@dataclass(frozen=True)
class LogWeights:
    """Unnormalised log prior weights of the models, where a list would be read as probabilities."""

    values: Sequence[float] | Tensor


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


class ModelList(Space):
    """A finite list of models; item i is slot i.

    Arguments:
        names: One name a model.
        slots: Which slots each model uses, shape (M, D) bool.
        log_prior: Normalised log prior probabilities, shape (M,).
    """

    table: Tensor
    log_prior_table: Tensor

    def __init__(self, names: Sequence[str], slots: Tensor, log_prior: Tensor) -> None:
        super().__init__()
        self.names = list(names)
        self.code_width, self.size = 1, len(self.names)
        self.n_items = slots.shape[1]
        self.context_width = self.size
        self.register_buffer("table", slots.bool())
        self.register_buffer("log_prior_table", log_prior)
        self.register_buffer("slot_item", torch.arange(self.n_items))

    def items(self, code: Tensor) -> Tensor:
        return self.table[code[:, 0]]

    def active(self, code: Tensor) -> Tensor:
        return self.table[code[:, 0]]

    def context(self, code: Tensor) -> Tensor:
        one_hot = code == torch.arange(self.context_width, device=code.device)
        return one_hot.to(self.log_prior_table.dtype)

    def log_prior(self, code: Tensor) -> Tensor:
        return self.log_prior_table[code[:, 0]]

    def sample_prior(self, n: int, generator: torch.Generator) -> Tensor:
        weights = self.log_prior_table.exp()
        return torch.multinomial(weights, n, replacement=True, generator=generator)[:, None]

    def label(self, code: Tensor) -> list[str]:
        return [self.names[i] for i in code[:, 0].tolist()]

    def code_of(self, model: Any) -> Tensor:
        if model not in self.names:
            raise UnknownModelError(f"no model {model!r}; the models are {_listing(self.names)}")
        return torch.tensor([self.names.index(model)])

    def enumerate(self) -> Tensor:
        return torch.arange(len(self.names), device=self.table.device)[:, None]

    def index(self, code: Tensor) -> Tensor:
        return code[:, 0]

    def neighbours(self, code: Tensor) -> tuple[Tensor, Tensor]:
        near = self.enumerate()[None].expand(len(code), -1, -1)
        return near, (near != code[:, None]).any(-1)

    def levels(self) -> tuple[Tensor, Tensor]:
        low = torch.zeros(1, dtype=torch.long, device=self.table.device)
        return low, low + len(self.names)

    def certain(self) -> tuple[Tensor, Tensor]:
        possible = self.table[self.log_prior_table > -math.inf]
        return possible.all(0), ~possible.any(0)

    def spec(self) -> dict[str, Any]:
        return {
            "kind": "ModelList",
            "names": self.names,
            "slots": self.table.cpu(),
            "log_prior": self.log_prior_table.cpu(),
        }


class Subsets(Space):
    """All subsets of a set of items: variable selection, source lists, edges.

    Arguments:
        names: One name an item.
        of: The parameter, or parameters, of which each item has its own entry.
        always: Items that every model contains.
        blocks: Groups of items that enter and leave together; other items are on their own.
        prior: Prior on the free units (blocks and single items): the inclusion probability of
            each, as one number or one number a unit, or a function of how many units are on
            that gives the weight of *one* subset of that size, normalised here.

    Raises:
        TargetError: Names repeat or hold a ``+``, a block names no item, a probability is
            outside [0, 1].

    Example:
        >>> space = Subsets(["a", "b", "c"], of="beta", always=["a"], blocks=[["b", "c"]])
        >>> space.size, space.label(space.enumerate())
        (2, ['a', 'a+b+c'])
    """

    unit_items: Tensor
    fixed_items: Tensor
    log_on_off: Tensor
    log_size_weight: Tensor

    def __init__(
        self,
        names: Sequence[str],
        of: str | Sequence[str],
        *,
        always: Sequence[str] = (),
        blocks: Sequence[Sequence[str]] = (),
        prior: float | Sequence[float] | Tensor | Callable[[int], float] = 0.5,
    ) -> None:
        super().__init__()
        if isinstance(names, str | int):
            raise TargetError(f"names of Subsets: expected one name an item, got {names!r}")
        self.names = [str(name) for name in names]
        self.of = (of,) if isinstance(of, str) else tuple(of)
        check_names(self.names, "names of Subsets")
        if bad := [name for name in self.names if "+" in name]:
            raise TargetError(f"names of Subsets: {bad} hold a '+', which joins names in labels")
        self.always, self.blocks = list(always), [list(block) for block in blocks]
        used = [*self.always, *(name for block in self.blocks for name in block)]
        if unknown := [name for name in used if name not in self.names]:
            raise TargetError(f"always/blocks of Subsets: {unknown} are not among the names")
        if len(set(used)) < len(used):
            raise TargetError("always/blocks of Subsets: an item stands in two of them")
        singles = [[name] for name in self.names if name not in used]
        units = sorted([*self.blocks, *singles], key=lambda u: min(self.names.index(n) for n in u))
        n_units = len(units)
        self.code_width, self.n_items = n_units, len(self.names)
        self.kinds = (Kind("items", 0, self.n_items, self.of),)
        self.context_width = max(n_units, 1)  # conditioners need something to see
        self.size = 2**n_units
        rows = [[name in unit for name in self.names] for unit in units]
        unit_items = torch.tensor(rows, dtype=torch.bool).reshape(n_units, self.n_items)
        self.register_buffer("unit_items", unit_items)
        self.register_buffer("fixed_items", torch.tensor([n in self.always for n in self.names]))
        log_on_off, by_size = _subset_prior(prior, n_units)
        self.register_buffer("log_on_off", log_on_off)
        self.register_buffer("log_size_weight", by_size)

    def items(self, code: Tensor) -> Tensor:
        dtype = self.log_on_off.dtype
        return (code.to(dtype) @ self.unit_items.to(dtype) > 0) | self.fixed_items

    def presence(self, bits: Tensor) -> Tensor:
        """Items in use where units are on by degrees, (C, L) -> (C, n_items), differentiable."""
        return bits @ self.unit_items.to(bits) + self.fixed_items.to(bits)

    def graded_log_prior(self, bits: Tensor) -> Tensor:
        """Log prior, linear in how far units are on, (C, L) -> (C,), nats."""
        on, off = self.log_on_off.clamp(min=-1e6).to(bits)
        by_size = self.log_size_weight[bits.detach().long().sum(-1)].to(bits)
        return (bits * on + (1 - bits) * off).sum(-1) + by_size

    def context(self, code: Tensor) -> Tensor:
        signs = 2 * code.to(self.log_on_off.dtype) - 1
        return signs if self.code_width else signs.new_ones(len(code), 1)

    def log_prior(self, code: Tensor) -> Tensor:
        on = code.bool()
        # log p(on), log p(off) of each unit; a sum over selected entries keeps 0 and 1 exact
        chosen = torch.where(on, self.log_on_off[0], self.log_on_off[1]).sum(-1)
        return chosen + self.log_size_weight[on.sum(-1)]

    @property
    def gaps(self) -> bool:
        """Whether the prior leaves out sizes between others."""
        return gap_in(self.log_size_weight)

    def flip_log_odds(self, code: Tensor) -> Tensor:
        """Change of the log prior when each unit is flipped, (C, L) -> (C, L), nats."""
        on, off = self.log_on_off
        size = torch.nn.functional.pad(self.log_size_weight, (1, 1), value=-math.inf)
        n, sign = code.sum(1, keepdim=True), 1 - 2 * code
        return sign * (on - off) + size[n + sign + 1] - size[n + 1]

    def sample_prior(self, n: int, generator: torch.Generator) -> Tensor:
        u = self.code_width
        device = self.log_on_off.device
        noise = torch.rand(n, u, generator=generator, device=device, dtype=self.log_on_off.dtype)
        if not bool(self.log_size_weight.any()):
            return (noise < self.log_on_off[0].exp()).long()
        counts = torch.tensor([_log_choose(u, s) for s in range(u + 1)], dtype=noise.dtype)
        weights = (counts.to(device) + self.log_size_weight).exp()
        size = torch.multinomial(weights, n, replacement=True, generator=generator)
        return (noise.argsort(-1).argsort(-1) < size[:, None]).long()

    def label(self, code: Tensor) -> list[str]:
        rows = self.items(code).tolist()
        return [
            "+".join(n for n, on in zip(self.names, row, strict=True) if on) or "(none)"
            for row in rows
        ]

    def code_of(self, model: Any) -> Tensor:
        text = model if isinstance(model, str) else "+".join(model)
        wanted = {part.strip() for part in text.split("+")} - {"", "(none)"}
        on = torch.tensor([name in wanted for name in self.names])
        unit_items = self.unit_items.cpu()
        code = (unit_items & on).any(-1).long()
        known = wanted <= set(self.names)
        if not known or not torch.equal(self.items(code[None].to(unit_items.device))[0].cpu(), on):
            raise UnknownModelError(
                f"no model {model!r}: join item names by '+', from {_listing(self.names)}"
                + (f"; {self.always} are always on" if self.always else "")
                + (f"; {self.blocks} move together" if self.blocks else "")
            )
        return code

    def enumerate(self) -> Tensor:
        check_enumerable(self)
        shifts = torch.arange(self.code_width, device=self.log_on_off.device)
        return (torch.arange(int(self.size or 0), device=shifts.device)[:, None] >> shifts) & 1

    def index(self, code: Tensor) -> Tensor:
        return (code << torch.arange(self.code_width, device=code.device)).sum(-1)

    def neighbours(self, code: Tensor) -> tuple[Tensor, Tensor]:
        eye = torch.eye(code.shape[1], dtype=code.dtype, device=code.device)
        near = (code[:, None] + eye) % 2
        return near, torch.ones_like(near[..., 0], dtype=torch.bool)

    def levels(self) -> tuple[Tensor, Tensor]:
        device = self.log_on_off.device
        low = torch.zeros(self.code_width, dtype=torch.long, device=device)
        return low, low + 2

    def certain(self) -> tuple[Tensor, Tensor]:
        sizes = (self.log_size_weight > -math.inf).nonzero()[:, 0]
        on = (self.log_on_off[1] == -math.inf) | (sizes.min() == self.code_width)
        off = (self.log_on_off[0] == -math.inf) | (sizes.max() == 0)
        items = self.unit_items.double()
        return (on.double() @ items > 0) | self.fixed_items, off.double() @ items > 0

    def spec(self) -> dict[str, Any]:
        return {
            "kind": "Subsets",
            "names": self.names,
            "of": list(self.of),
            "always": self.always,
            "blocks": self.blocks,
            "log_on_off": self.log_on_off.cpu(),
            "log_size_weight": self.log_size_weight.cpu(),
            "slot_item": self.slot_item.cpu(),
        }


class Counts(Space):
    """An unknown number of like components, ``min`` to ``max`` of them.

    Components of several kinds are a sum of counts: a code then has one integer a kind, and the
    numbers are independent in the prior.

    Arguments:
        max: Largest count.
        min: Smallest count; 0 is allowed.
        of: The parameter, or parameters, of which each component has its own entry.
        prior: Probability of each count, ``min`` to ``max``; a distribution over integers
            (truncated and normalised); :class:`LogWeights`; or None for uniform.
        name: What the components are called where there are several kinds; the names in ``of``
            joined by ``+`` if omitted.

    Attributes:
        min, max: Smallest and largest number of components, of all kinds together.
        log_prior_table: Log prior of the counts of each kind, one kind after the other.

    Raises:
        TargetError: ``min`` above ``max`` or negative; a prior of the wrong length; a sum with
            something else, or of kinds that share a name or a parameter.

    Example:
        >>> space = Counts(3, of=("amplitude", "centre"), prior=torch.distributions.Poisson(1.0))
        >>> space.label(space.enumerate())
        ['0', '1', '2', '3']
        >>> space.items(torch.tensor([[2]])).tolist()
        [[True, True, False]]
        >>> both = space + Counts(1, of="frequency", name="lines")
        >>> both.label(torch.tensor([[2, 1]])), both.size
        (['amplitude+centre=2 lines=1'], 8)
    """

    log_prior_table: Tensor
    _low: Tensor
    _levels: Tensor
    _row: Tensor
    _place: Tensor

    def __init__(
        self,
        max: int,  # noqa: A002 - the field's word
        min: int = 0,  # noqa: A002
        *,
        of: str | Sequence[str],
        prior: Sequence[float] | Tensor | Distribution | LogWeights | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        if min < 0 or max < min:
            raise TargetError(f"Counts: expected 0 <= min <= max, got min={min}, max={max}")
        of = (of,) if isinstance(of, str) else tuple(of)
        table = normalised_log_prior(prior, max - min + 1, "prior of Counts", min)
        self._hold([Kind("+".join(of) if name is None else name, min, max, of)], table)

    def _hold(self, kinds: Sequence[Kind], log_prior_table: Tensor) -> None:
        first = 0
        self.kinds = ()
        for kind in kinds:
            self.kinds += (replace(kind, first=first),)
            first += kind.max
        self.min, self.max = sum(kind.min for kind in kinds), first
        self.of = tuple(name for kind in kinds for name in kind.of)
        several = len(kinds) > 1
        self.names = [
            f"{kind.name} {i + 1}" if several else str(i + 1)
            for kind in kinds
            for i in range(kind.max)
        ]
        levels = [kind.max - kind.min + 1 for kind in kinds]
        self.code_width, self.size = len(kinds), math.prod(levels)
        self.n_items = self.context_width = self.max
        self.register_buffer("log_prior_table", log_prior_table)
        tables = {
            "_low": [kind.min for kind in kinds],
            "_levels": levels,
            "_row": [sum(levels[:i]) - kind.min for i, kind in enumerate(kinds)],
            "_place": [math.prod(levels[i + 1 :]) for i in range(len(kinds))],
        }
        for name, values in tables.items():
            self.register_buffer(name, torch.tensor(values), persistent=False)

    def __add__(self, other: Counts) -> Counts:
        if not isinstance(other, Counts):
            raise TargetError(f"Counts + {type(other).__name__}: only Counts can be added")
        kinds = (*self.kinds, *other.kinds)
        check_names([kind.name for kind in kinds], "kinds of Counts")
        if bad := [kind.name for kind in kinds if not kind.name or set(kind.name) & set(" =")]:
            raise TargetError(
                f"kinds of Counts: {bad} are empty or hold a ' ' or '=', which stand in labels; "
                "give them a name"
            )
        check_names([name for kind in kinds for name in kind.of], "parameters of Counts (of)")
        both = copy.deepcopy(self)
        both._hold(kinds, torch.cat([self.log_prior_table, other.log_prior_table]))
        return both

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
        """Slots of the coordinates of each component of a kind, shape (max, P)."""
        here = (
            self.slot_item[None]
            == torch.arange(self.n_items, device=self.slot_item.device)[kind.items, None]
        )
        return here.nonzero()[:, 1].reshape(kind.max, -1 if kind.max else 0)

    @property
    def gaps(self) -> bool:
        """Whether the prior of a kind leaves out counts between others."""
        return any(gap_in(table) for table in self.log_priors)

    @property
    def log_priors(self) -> tuple[Tensor, ...]:
        """Log prior of the counts of each kind."""
        return self.log_prior_table.split([kind.max - kind.min + 1 for kind in self.kinds])

    def items(self, code: Tensor) -> Tensor:
        each = [
            torch.arange(kind.max, device=code.device) < code[:, i : i + 1]
            for i, kind in enumerate(self.kinds)
        ]
        return torch.cat(each, dim=1)

    def context(self, code: Tensor) -> Tensor:
        return self.items(code).to(self.log_prior_table.dtype)

    def log_prior(self, code: Tensor) -> Tensor:
        return self.log_prior_table[code + self._row].sum(-1)

    def sample_prior(self, n: int, generator: torch.Generator) -> Tensor:
        draws = [
            torch.multinomial(table.exp(), n, replacement=True, generator=generator)
            for table in self.log_priors
        ]
        return torch.stack(draws, dim=1) + self._low

    def label(self, code: Tensor) -> list[str]:
        if len(self.kinds) == 1:
            return [str(k) for k in code[:, 0].tolist()]
        return [
            " ".join(f"{kind.name}={k}" for kind, k in zip(self.kinds, row, strict=True))
            for row in code.tolist()
        ]

    def code_of(self, model: Any) -> Tensor:
        given = model
        if isinstance(model, str) and len(self.kinds) > 1:
            given = dict(part.rpartition("=")[::2] for part in model.split())
        if isinstance(given, Mapping):
            known = set(given) == {kind.name for kind in self.kinds}
            given = [given[kind.name] for kind in self.kinds] if known else []
        given = given if isinstance(given, list | tuple) else [given]
        counts = [{str(k): k for k in range(kind.min, kind.max + 1)} for kind in self.kinds]
        if len(given) != len(counts) or any(
            str(k) not in known for k, known in zip(given, counts, strict=True)
        ):
            raise UnknownModelError(f"no model {model!r}: expected {self._expected()}")
        return torch.tensor([known[str(k)] for k, known in zip(given, counts, strict=True)])

    def _expected(self) -> str:
        if len(self.kinds) == 1:
            return f"a count from {self.min} to {self.max}"
        each = [f"{kind.name} ({kind.min} to {kind.max})" for kind in self.kinds]
        (example,) = self.label(self._low[None])
        return f"counts of {', '.join(each)}, such as {example!r}"

    def enumerate(self) -> Tensor:
        check_enumerable(self)
        index = torch.arange(int(self.size or 0), device=self._low.device)
        return index[:, None] // self._place % self._levels + self._low

    def index(self, code: Tensor) -> Tensor:
        return ((code - self._low) * self._place).sum(-1)

    def neighbours(self, code: Tensor) -> tuple[Tensor, Tensor]:
        step = torch.eye(code.shape[1], dtype=code.dtype, device=code.device)
        near = code[:, None] + torch.cat([-step, step])
        high = self._low + self._levels - 1
        real = ((near >= self._low) & (near <= high)).all(-1)
        return near.clamp(self._low, high), real

    def levels(self) -> tuple[Tensor, Tensor]:
        return self._low, self._levels

    def certain(self) -> tuple[Tensor, Tensor]:
        used = [(table > -math.inf).nonzero()[:, 0] for table in self.log_priors]
        ends = torch.stack([torch.stack([x[0], x[-1]]) for x in used], 1) + self._low
        fewest, most = self.items(ends)
        return fewest, ~most

    def spec(self) -> dict[str, Any]:
        kinds: list[dict[str, Any]] = [
            {"max": kind.max, "min": kind.min, "of": list(kind.of)} for kind in self.kinds
        ]
        for known, kind in zip(kinds, self.kinds, strict=True):
            if kind.name != "+".join(kind.of):
                known["name"] = kind.name
        return {
            "kind": "Counts",
            **(kinds[0] if len(kinds) == 1 else {"kinds": kinds}),
            "log_prior": self.log_prior_table.cpu(),
            "slot_item": self.slot_item.cpu(),
        }


def space_from_spec(spec: dict[str, Any]) -> Space:
    """Rebuild a space from :meth:`Space.spec`."""
    if spec["kind"] == "ModelList":
        return ModelList(spec["names"], spec["slots"], spec["log_prior"])
    space: Space
    if spec["kind"] == "Subsets":
        space = Subsets(spec["names"], spec["of"], always=spec["always"], blocks=spec["blocks"])
        space.log_on_off = spec["log_on_off"]
        space.log_size_weight = spec["log_size_weight"]
    else:
        kinds = [
            Counts(k["max"], k["min"], of=k["of"], name=k.get("name"))
            for k in spec.get("kinds", [spec])
        ]
        space = reduce(operator.add, kinds)
        space.log_prior_table = spec["log_prior"]
    return space.bind(spec["slot_item"])


def normalised_log_prior(
    prior: Sequence[float] | Tensor | Distribution | LogWeights | None,
    size: int,
    argument: str,
    first: int = 0,
) -> Tensor:
    """Log probabilities of ``size`` models from any of the accepted forms, shape (size,)."""
    if prior is None:
        return torch.full((size,), -math.log(size), dtype=torch.float64)
    if isinstance(prior, Categorical) and prior.probs.shape != (size,):
        raise TargetError(
            f"{argument}: expected a Categorical over {size} models, got {prior.probs.shape}"
        )
    if isinstance(prior, Distribution):
        index = torch.arange(first, first + size).to(torch.get_default_dtype())
        possible = prior.support.check(index)  # type: ignore[union-attr]
        inside = (
            torch.where(possible, index, index[possible][:1]) if bool(possible.any()) else index
        )
        log_weights = torch.where(possible, prior.log_prob(inside).double(), -math.inf)
    elif isinstance(prior, LogWeights):
        log_weights = torch.as_tensor(prior.values, dtype=torch.float64)
    else:
        p = torch.as_tensor(prior, dtype=torch.float64)
        if bool((p < 0).any()):
            raise TargetError(
                f"{argument}: probabilities must not be negative, got {p.tolist()}; "
                "wrap log-weights in trj.LogWeights"
            )
        if p.shape == (size,) and abs(float(p.sum()) - 1) > 1e-4:
            raise TargetError(
                f"{argument}: probabilities must sum to 1, got {float(p.sum()):.6g}; "
                "for unnormalised weights use trj.LogWeights"
            )
        log_weights = p.log()
    if log_weights.shape != (size,):
        raise TargetError(
            f"{argument}: expected one number for each of {size} models, "
            f"got shape {tuple(log_weights.shape)}"
        )
    if bool(log_weights.isnan().any()) or not bool(log_weights.isfinite().any()):
        raise TargetError(f"{argument}: NaN, or no mass at all: {log_weights.tolist()}")
    return log_weights - log_weights.logsumexp(0)


def distinct(code: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct codes (U, L), which of them each row is (N,), and how often each occurs (U,)."""
    if not code.shape[1]:  # a space of one model has nothing to tell apart
        which = torch.zeros(len(code), dtype=torch.long, device=code.device)
        return code[:1], which, torch.bincount(which, minlength=1)
    radix = code.amax(0).add(1).tolist() if len(code) else [1]
    if bool((code >= 0).all()) and math.prod(radix) < 2**62:  # one number each sorts much faster
        place = [math.prod(radix[i + 1 :]) for i in range(len(radix))]
        weight = torch.tensor(place, device=code.device)
        row = (code * weight).sum(-1)
        if math.prod(radix) <= ENUMERABLE:  # counting is faster still
            number = torch.bincount(row)
            key = number.nonzero()[:, 0]
            which, counts = (number > 0).cumsum(0).sub_(1)[row], number[key]
        else:
            key, which, counts = torch.unique(row, return_inverse=True, return_counts=True)
        modulus = torch.tensor(radix, device=code.device)
        return key[:, None] // weight % modulus, which, counts
    models, which, counts = torch.unique(code, dim=0, return_inverse=True, return_counts=True)
    return models, which, counts


def gap_in(log_prior: Tensor) -> bool:
    """Whether a prior of sizes leaves out some between others."""
    used = log_prior.isfinite().nonzero()[:, 0]
    return len(used) > 0 and not bool(log_prior[used[0] : used[-1] + 1].isfinite().all())


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


def _subset_prior(prior: Any, n_units: int) -> tuple[Tensor, Tensor]:
    """log p(on), log p(off) by unit, shape (2, U), and a log weight by size, shape (U + 1,)."""
    if callable(prior):
        try:
            each = [float(prior(s)) for s in range(n_units + 1)]
        except (TypeError, AttributeError) as error:
            raise TargetError(
                "prior of Subsets: a function gets how many units are on, an int, and returns the "
                f"weight of one subset of that size; it failed with {error!r}"
            ) from error
        weights = torch.tensor(each, dtype=torch.float64)
        if not bool((weights >= 0).all()) or not bool(weights.isfinite().all()):
            raise TargetError(f"prior of Subsets: weights by size must be >= 0, got {weights}")
        log_weights = weights.log()
        counts = torch.tensor([_log_choose(n_units, s) for s in range(n_units + 1)])
        total = (log_weights + counts.double()).logsumexp(0)
        if not bool(total.isfinite()):
            raise TargetError("prior of Subsets: the weights by size hold no mass")
        return torch.zeros(2, n_units, dtype=torch.float64), log_weights - total
    try:
        p = torch.as_tensor(prior, dtype=torch.float64)
    except (TypeError, ValueError):
        raise TargetError(
            "prior of Subsets: expected one number, one for each free unit, or a function of how "
            f"many units are on, got {prior!r}"
        ) from None
    if p.dim() > 1 or (p.dim() == 1 and len(p) != n_units):
        raise TargetError(
            f"prior of Subsets: expected one number or one for each of {n_units} free units, "
            f"got shape {tuple(p.shape)}"
        )
    if not bool(((p >= 0) & (p <= 1)).all()):
        raise TargetError(f"prior of Subsets: inclusion probabilities lie in [0, 1], got {prior}")
    p = p.expand(n_units)
    return torch.stack([p.log(), (1 - p).log()]), torch.zeros(n_units + 1, dtype=torch.float64)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _listing(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f", ... ({len(names)} in all)" if len(names) > most else "")
