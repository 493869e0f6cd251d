"""Subsets of items: each model is a row of switches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import TargetError, UnknownModelError
from .base import Kind, Space, check_enumerable, check_names, in_short, listing
from .prior import gap_in, log_choose, subset_prior


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
    _unit_of: Tensor | None  # of each item; any for those that are always there
    _place_value: Tensor  # of each unit in the number of a model
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
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise TargetError(f"names of Subsets: expected one name an item, got {names!r}")
        self.names = [str(name) for name in names]
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
        self.code_width = self.units = n_units
        self.n_items = len(self.names)
        own = (of,) if isinstance(of, str) else tuple(of)
        self.kinds = (Kind("items", 0, self.n_items, own),)
        self.context_width = max(n_units, 1)  # conditioners need something to see
        self.size = 2**n_units
        rows = [[name in unit for name in self.names] for unit in units]
        unit_items = torch.tensor(rows, dtype=torch.bool).reshape(n_units, self.n_items)
        self.register_buffer("unit_items", unit_items)
        unit_of = unit_items.int().argmax(0) if units else None
        self.register_buffer("_unit_of", unit_of, persistent=False)
        self.register_buffer("_place_value", 1 << torch.arange(n_units), persistent=False)
        self.register_buffer("fixed_items", torch.tensor([n in self.always for n in self.names]))
        log_on_off, by_size = subset_prior(prior, n_units)
        self.register_buffer("log_on_off", log_on_off)
        self.register_buffer("log_size_weight", by_size)

    def extra_repr(self) -> str:
        said = [f"[{listing(self.names)}]", f"of={in_short(self.of)!r}"]
        said += [f"always={self.always}"] if self.always else []
        said += [f"blocks={self.blocks}"] if self.blocks else []
        p = in_short([round(p, 6) for p in self.log_on_off[0].exp().tolist()])
        by_size = bool(self.log_size_weight.any())
        said += ["prior=by size"] if by_size else [] if p == 0.5 else [f"prior={p}"]
        return ", ".join(said)

    def items(self, code: Tensor) -> Tensor:
        if self._unit_of is None:
            return self.fixed_items.expand(*code.shape[:-1], -1)
        on = code.bool()[..., self._unit_of]
        return on | self.fixed_items if self.always else on

    def presence(self, bits: Tensor) -> Tensor:
        return bits @ self.unit_items.to(bits) + self.fixed_items.to(bits)

    def graded_log_prior(self, bits: Tensor) -> Tensor:
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
        counts = torch.tensor([log_choose(u, s) for s in range(u + 1)], dtype=noise.dtype)
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
        device = self.unit_items.device
        on = torch.tensor([name in wanted for name in self.names], device=device)
        code = (self.unit_items & on).any(-1).long()
        known = wanted <= set(self.names)
        if not known or not torch.equal(self.items(code[None])[0], on):
            raise UnknownModelError(
                f"no model {model!r}: join item names by '+', from {listing(self.names)}"
                + (f"; {self.always} are always on" if self.always else "")
                + (f"; {self.blocks} move together" if self.blocks else "")
            )
        return code

    def enumerate(self) -> Tensor:
        check_enumerable(self)
        shifts = torch.arange(self.code_width, device=self.log_on_off.device)
        return (torch.arange(int(self.size or 0), device=shifts.device)[:, None] >> shifts) & 1

    def index(self, code: Tensor) -> Tensor:
        return (code * self._place_value.to(code.device)).sum(-1)

    def neighbours(self, code: Tensor) -> tuple[Tensor, Tensor]:
        eye = torch.eye(code.shape[1], dtype=code.dtype, device=code.device)
        near = (code[:, None] + eye) % 2
        return near, torch.ones_like(near[..., 0], dtype=torch.bool)

    def random_neighbour(
        self, code: Tensor, generator: torch.Generator, *, swap: float = 0.0
    ) -> Tensor:
        if not self.units:
            return code
        c, device = len(code), code.device
        unit = torch.randint(0, self.units, (c, 1), generator=generator, device=device)
        flipped = code.scatter(1, unit, 1 - code.gather(1, unit))
        if not swap:
            return flipped
        u = torch.rand(c, 1, generator=generator, device=device)
        noise = torch.rand(code.shape, generator=generator, device=device)
        on = (noise + 2 * code).argmax(1, keepdim=True)  # a random one of those that are on
        off = (noise - 2 * code).argmax(1, keepdim=True)
        swapped = code.scatter(1, on, 0).scatter(1, off, 1)
        mixed = (code.amin(1) < code.amax(1))[:, None]
        return torch.where(u < swap, torch.where(mixed, swapped, code), flipped)

    def log_neighbour(self, new: Tensor, code: Tensor, *, swap: float = 0.0) -> Tensor:
        zero = torch.zeros(len(code), device=code.device)
        if not self.units:
            return zero
        on, gap = code.sum(1), (new - code).abs().sum(1)
        pairs = on * (self.units - on)
        one, two = (1 - swap) / self.units, swap / pairs.clamp(min=1)
        balanced = (gap == 2) & (new.sum(1) == on)
        none = torch.where((gap == 0) & (pairs == 0), swap, zero)
        return torch.where(gap == 1, one, torch.where(balanced, two, none)).log()

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

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Space:
        space = cls(spec["names"], spec["of"], always=spec["always"], blocks=spec["blocks"])
        space.log_on_off = spec["log_on_off"]
        space.log_size_weight = spec["log_size_weight"]
        return space.bind(spec["slot_item"])
