"""Values by model code: computed once, kept in bounded memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from ..grouping import on_host
from ..space.codes import distinct

Compute = Callable[[Tensor], tuple[Tensor, ...]]

FIRST_ROWS = 1024

AT_ONCE = 512  # codes in a batch from which its time grows in proportion

HOPS = 3  # steps to neighbours by which a batch is filled up

LOAD = 4  # cells of the hash table for each row, at least: short probes

ROW_BYTES = 16 + 4 * 2 * LOAD  # bytes of a row beside its values: keys and cells


class Remembers(ABC):
    """A map that computes with what it has computed before."""

    @abstractmethod
    def complete(self, seconds: float) -> None:
        """Compute all that can be asked for if that takes no longer: nothing is new then."""


class CodeMemory:
    """A function of model codes that remembers what it has computed.

    An open-addressing hash table; a lookup costs a few gathers, whatever the number of models.
    When it is full it forgets everything, so that memory stays bounded in spaces of any size.
    Codes are told apart by two 64-bit sums.

    Arguments:
        compute: Function of distinct codes, (n, L), that gives tensors of leading size n. It
            must give the same values for a code whatever else is in the batch.
        width: L.
        rows: Most codes that are remembered.
        ahead: Function of codes (n, L) that gives others, (N, L), which may be asked for next:
            small batches are filled up with them, since they cost little more than one.
        number: How many codes there are, if that is known. On a device a lookup is waited for once,
            to learn whether some are new, until all of them are known.

    Example:
        >>> squares = CodeMemory(lambda code: (code.sum(1) ** 2,), width=1, rows=100)
        >>> squares(torch.tensor([[3], [4], [3]]))[0].tolist()
        [9, 16, 9]
    """

    def __init__(
        self,
        compute: Compute,
        width: int,
        rows: int,
        *,
        ahead: Callable[[Tensor], Tensor] | None = None,
        number: int | None = None,
    ) -> None:
        self.compute, self.most, self.ahead = compute, max(1, rows), ahead
        self.number = number
        generator = torch.Generator().manual_seed(2**31 - 1)
        high = torch.iinfo(torch.int64).max
        self._factor = torch.randint(high, (max(width, 1), 2), generator=generator) | 1
        self.forget()

    def forget(self) -> None:
        """Start afresh."""
        self.used = 0
        self._values: tuple[Tensor, ...] = ()
        self._keys = torch.zeros(0, 2, dtype=torch.long)
        self._cells = torch.full((1,), -1, dtype=torch.int32)
        self._farthest = 0  # steps from a key's own cell to the one that it sits in, at most

    @property
    def megabytes(self) -> float:
        """What is held now, in MiB."""
        held = (self._keys, self._cells, *self._values)
        return sum(t.numel() * t.element_size() for t in held) / 2**20

    @property
    def unknown(self) -> int | None:
        """How many codes are not known; None where their number is not, or they do not fit."""
        fits = self.number is not None and self.number <= self.most
        return self.number - self.used if fits and self.number is not None else None

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
        """Two sums that wrap around, (C, 2)."""
        if self._factor.device != code.device:
            self._factor = self._factor.to(code.device)
        return ((code + 1)[:, :, None] * self._factor[: code.shape[1]]).sum(1)

    def _cell(self, key: Tensor) -> Tensor:
        mixed = key[:, 0] ^ (key[:, 0] >> 29)
        return mixed & (len(self._cells) - 1)

    def _find(self, key: Tensor) -> Tensor:
        """Row of each key, -1 where it is not known."""
        if not self.used:
            return torch.full((len(key),), -1, device=key.device)
        cell = self._cell(key)
        if not on_host(key):
            return self._find_at_once(key, cell)
        row = self._cells[cell].long()
        left = self._other(row, key)
        while len(left):  # somebody else sits there: look into the next cell
            cell[left] = (cell[left] + 1) & (len(self._cells) - 1)
            row[left] = self._cells[cell[left]].long()
            left = left[self._other(row[left], key[left])]
        return row

    def _find_at_once(self, key: Tensor, cell: Tensor) -> Tensor:
        """:meth:`_find` that looks into all cells where a key can be: nothing is waited for."""
        ahead = torch.arange(self._farthest + 1, device=cell.device)
        row = self._cells[(cell[:, None] + ahead) & (len(self._cells) - 1)].long()
        mine = (row >= 0) & (self._keys[row.clamp(min=0)] == key[:, None]).all(2)
        found = row.gather(1, mine.long().argmax(1, keepdim=True))[:, 0]
        return torch.where(mine.any(1), found, -1)

    def _other(self, row: Tensor, key: Tensor) -> Tensor:
        """Which rows are taken and have another key."""
        known = self._keys[row.clamp(min=0)]
        same = (known[:, 0] == key[:, 0]) & (known[:, 1] == key[:, 1])
        return ((row >= 0) & ~same).nonzero()[:, 0]

    def _learn(self, code: Tensor) -> None:
        new = distinct(code)[0]
        if self.used + len(new) > self.most:
            self.forget()
        elif self.ahead is not None:
            new = self._with_more(new)
        values = self.compute(new)
        self._make_room(len(new), values)
        rows = torch.arange(self.used, self.used + len(new), device=code.device)
        for kept, value in zip(self._values, values, strict=True):
            kept[rows] = value
        self._keys[rows] = self._key(new)
        self.used += len(new)
        self._insert(rows)

    def _with_more(self, new: Tensor) -> Tensor:
        """New codes, and others near them that are not known, so that a batch is worth it."""
        assert self.ahead is not None
        near, most = new, min(AT_ONCE, self.most - self.used)
        for _ in range(HOPS):
            room = most - len(new)
            if room <= 0:
                break
            near = distinct(self.ahead(near[:: -(-len(near) // AT_ONCE)]))[0]
            unknown = near[self._find(self._key(near)) < 0]
            new = distinct(torch.cat([new, unknown[:: max(1, -(-len(unknown) // room))]]))[0]
        return new

    def _make_room(self, n: int, like: tuple[Tensor, ...]) -> None:
        needed, have = self.used + n, len(self._keys)
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
        keys = self._keys.to(like[0].device)
        self._keys = larger(keys, keys)
        self._cells = torch.full((LOAD * size,), -1, dtype=torch.int32, device=keys.device)
        self._farthest = 0
        if self.used:
            self._insert(torch.arange(self.used, device=keys.device))

    def _insert(self, rows: Tensor) -> None:
        cell, steps = self._cell(self._keys[rows]), 0
        while len(rows):
            self._farthest, steps = max(self._farthest, steps), steps + 1
            free = self._cells[cell] < 0
            self._cells[cell[free]] = rows[free].int()  # of several one stays
            left = self._cells[cell] != rows
            rows, cell = rows[left], (cell[left] + 1) & (len(self._cells) - 1)
