"""Values by model code: computed once, kept in bounded memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..grouping import on_host
from ..space.codes import distinct

Compute = Callable[[Tensor], tuple[Tensor, ...]]

FIRST_ROWS = 1024

ROW_BYTES = 16  # of a row beside its values: its key, and its place


class CodeMemory:
    """A function of model codes that remembers what it has computed.

    Codes are told apart by a 64-bit sum with random factors, and found among sorted ones. When
    memory is full all is forgotten, so that it stays bounded in spaces of any size.

    Arguments:
        compute: Function of distinct codes, (n, L), that gives tensors of leading size n. It
            must give the same values for a code whatever else is in the batch.
        width: L.
        rows: Most codes that are remembered.
        number: How many codes there are, if that is known. On a device a lookup is waited for once,
            to learn whether some are new, until all of them are known.

    Example:
        >>> squares = CodeMemory(lambda code: (code.sum(1) ** 2,), width=1, rows=100)
        >>> squares(torch.tensor([[3], [2], [3]]))[0].tolist(), squares.used
        ([9, 4, 9], 2)
    """

    def __init__(
        self, compute: Compute, width: int, rows: int, *, number: int | None = None
    ) -> None:
        self.compute, self.most, self.number = compute, max(1, rows), number
        generator = torch.Generator().manual_seed(2**31 - 1)
        high = torch.iinfo(torch.int64).max
        self._factor = torch.randint(high, (max(width, 1),), generator=generator) | 1
        self.forget()

    def forget(self) -> None:
        """Start afresh."""
        self.used = 0
        self._values: tuple[Tensor, ...] = ()
        self._keys = self._places = torch.zeros(0, dtype=torch.long)  # keys in order, their rows

    def __call__(self, code: Tensor, *columns: int) -> tuple[Tensor, ...]:
        """The values at each code, (C, L) -> tensors of leading size C; all, or some columns."""
        if len(code) > self.most:
            parts = [self(part, *columns) for part in code.split(self.most)]
            return tuple(torch.cat(column) for column in zip(*parts, strict=True))
        row = self._rows(code)
        return tuple(self._values[i][row] for i in columns or range(len(self._values)))

    def _rows(self, code: Tensor) -> Tensor:
        key = self._key(code)
        row = self._find(key)
        if self.used == self.number and not on_host(row):
            return row  # which is not asked
        while bool((missing := row < 0).any()):  # twice, if all was forgotten to make room
            self._learn(code[missing])
            row = self._find(key)
        return row

    def _key(self, code: Tensor) -> Tensor:
        """A sum that wraps around, (C,)."""
        if self._factor.device != code.device:
            self._factor = self._factor.to(code.device)
        return ((code + 1) * self._factor[: code.shape[1]]).sum(1)

    def _find(self, key: Tensor) -> Tensor:
        """Row of each key, -1 where it is not known."""
        if not self.used:
            return torch.full((len(key),), -1, device=key.device)
        place = torch.searchsorted(self._keys, key).clamp(max=self.used - 1)
        return torch.where(self._keys[place] == key, self._places[place], -1)

    def _learn(self, code: Tensor) -> None:
        new = distinct(code)[0]
        if self.used + len(new) > self.most:
            self.forget()
        values = self.compute(new)
        self._make_room(len(new), values)
        rows = torch.arange(self.used, self.used + len(new), device=code.device)
        for kept, value in zip(self._values, values, strict=True):
            kept[rows] = value
        keys = torch.cat([self._keys.to(code.device), self._key(new)])
        self._keys, order = keys.sort()
        self._places = torch.cat([self._places.to(code.device), rows])[order]
        self.used += len(new)

    def _make_room(self, n: int, like: tuple[Tensor, ...]) -> None:
        needed, have = self.used + n, len(self._values[0]) if self._values else 0
        if needed <= have:
            return
        size = max(FIRST_ROWS, 1 << (needed - 1).bit_length())
        grown = min(size, max(self.most, needed))

        def larger(old: Tensor | None, new: Tensor) -> Tensor:
            room = new.new_zeros(grown, *new.shape[1:])
            if old is not None:
                room[: self.used] = old[: self.used]
            return room

        before = self._values or (None,) * len(like)
        self._values = tuple(larger(b, v) for b, v in zip(before, like, strict=True))
