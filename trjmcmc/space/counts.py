"""Numbers of components: each model is a count, or one count a kind."""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from numbers import Integral
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from ..errors import TargetError, UnknownModelError
from ..rng import weighted
from .base import Kind, Space, check_enumerable, check_names, in_short
from .prior import LogWeights, gap_in, normalised_log_prior


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

    counts = True
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
        if not (isinstance(min, Integral) and isinstance(max, Integral) and 0 <= min <= max):
            raise TargetError(
                f"Counts: expected integers 0 <= min <= max, got min={min!r}, max={max!r}"
            )
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

    def __repr__(self) -> str:
        return " + ".join(map(_stated, self.kinds, self.log_priors))

    @property
    def gaps(self) -> bool:
        """Whether the prior of a kind leaves out counts between others."""
        return any(gap_in(table) for table in self.log_priors)

    @property
    def log_priors(self) -> tuple[Tensor, ...]:
        """Log prior of each number of components, by kind, shape (max - min + 1,), nats."""
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
        draws = [weighted(table.exp(), n, generator) for table in self.log_priors]
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
        code = [known[str(k)] for k, known in zip(given, counts, strict=True)]
        return torch.tensor(code, device=self.log_prior_table.device)

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

    def random_neighbour(
        self, code: Tensor, generator: torch.Generator, *, swap: float = 0.0
    ) -> Tensor:
        kinds = self.code_width
        move = torch.randint(0, 2 * kinds, (len(code), 1), generator=generator, device=code.device)
        step = torch.zeros_like(code).scatter(1, move // 2, 2 * (move % 2) - 1)
        return (code + step).clamp(self._low, self._low + self._levels - 1)

    def log_neighbour(self, new: Tensor, code: Tensor, *, swap: float = 0.0) -> Tensor:
        zero = torch.zeros(len(code), device=code.device)
        step, each = (new - code).abs().sum(1), 0.5 / code.shape[1]
        high = self._low + self._levels - 1
        ends = ((code == self._low).long() + (code == high).long()).sum(1)
        return torch.where(step == 1, each, torch.where(step == 0, each * ends, zero)).log()

    def examples(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws from the prior, the first of them without all components."""
        code = self.sample_prior(n, generator)
        low, levels = self.levels()
        fewer = torch.minimum(code[0], low + levels - 2).maximum(low)
        code[0] = torch.where(low + levels > 3, fewer, code[0])
        return code

    def entry_names(self, code: Tensor, name: str) -> list[str]:
        """Components in use come first: their entries are numbered from 1."""
        own = self.items_of(name)
        if own is None:
            return []
        return [str(i + 1) for i in range(int(self.items(code[None])[0, own].sum()))]

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

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Space:
        kinds = [
            Counts(k["max"], k["min"], of=k["of"], name=k.get("name"))
            for k in spec.get("kinds", [spec])
        ]
        space = reduce(operator.add, kinds)
        space.log_prior_table = spec["log_prior"]
        return space.bind(spec["slot_item"])


def _stated(kind: Kind, log_prior: Tensor) -> str:
    """How components of a kind were stated, probabilities to six digits."""
    said = [str(kind.max), *([str(kind.min)] if kind.min else []), f"of={in_short(kind.of)!r}"]
    if not bool((log_prior == log_prior[0]).all()):
        said.append(f"prior={[round(p, 6) for p in log_prior.exp().tolist()]}")
    if kind.name != "+".join(kind.of):
        said.append(f"name={kind.name!r}")
    return f"Counts({', '.join(said)})"
