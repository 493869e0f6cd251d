"""The independent starts that chains descend from while they are recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..kernel.base import Kernel, State


def renewed(kernel: Kernel, state: State, ancestor: Tensor) -> Tensor:
    """The start of each chain, as a number, shape (C,): its ancestor, or where it started afresh.

    Arguments:
        kernel: The kernel; parts of it may know of fresh starts.
        state: Where it has moved the chains.
        ancestor: The independent draw that each descended from, shape (C,).
    """
    for part in kernel.parts():
        ancestor = part.ancestors(state, ancestor)
    return ancestor


class Renewals:
    """Tells which chains have started afresh while they are recorded.

    Arguments:
        kernel, state, ancestor: As of :func:`renewed`, when the record begins.
    """

    def __init__(self, kernel: Kernel, state: State, ancestor: Tensor) -> None:
        self._kernel, self._first = kernel, renewed(kernel, state, ancestor)
        self._draws, self._away = 0, torch.zeros_like(ancestor)  # draws, those from other starts
        self._other = self._first

    def starts(self, state: State) -> Tensor:
        """The start of each chain, (C,), asked at each draw: another if half of them come from it.

        Of several others it is the last one that counts.
        """
        now = renewed(self._kernel, state, self._first)
        self._draws += 1
        self._away = self._away + (now != self._first)
        self._other = torch.where(now != self._first, now, self._other)
        return torch.where(2 * self._away >= self._draws, self._other, self._first)

    def held(self) -> dict[str, Any]:
        """What was counted so far; it stays as it is."""
        counted = {"draws": self._draws, "away": self._away}
        return {"first": self._first, "other": self._other, **counted}

    def take_up(self, held: Mapping[str, Any]) -> None:
        """Go on counting from what was held."""
        self._first, self._other = held["first"], held["other"]
        self._draws, self._away = held["draws"], held["away"]
