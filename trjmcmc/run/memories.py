"""What a kernel is made of, and what its maps remember between two steps."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import MethodType
from typing import Any

from torch import Tensor, nn

from ..kernel.base import Kernel, Memo
from ..space.base import Space
from ..target.target import Target
from ..transport.memory import Remembers

Held = dict[str, Any]  # plain data and tensors


def inside(root: object) -> Iterator[object]:
    """Objects of the package that a kernel is made of, each once, always in the same order.

    A copy that was read from a file gives its objects in the same order, so that a place in it
    names one. Targets and spaces are left out, and what other packages made.
    """
    seen: set[int] = set()
    ahead = [root]
    while ahead:
        it = ahead.pop()
        if isinstance(it, Target | Space | Tensor | str | int | float) or id(it) in seen:
            continue
        seen.add(id(it))
        if isinstance(it, MethodType):
            ahead.append(it.__self__)
        elif isinstance(it, partial):
            ahead += [it.func, *it.args, *it.keywords.values()][::-1]
        elif isinstance(it, dict):
            ahead += list(it.values())[::-1]
        elif isinstance(it, list | tuple):
            ahead += list(it)[::-1]
        elif type(it) is object:  # a bare owner of memos
            yield it
        elif isinstance(it, Kernel | nn.Module) or type(it).__module__.startswith("trjmcmc."):
            yield it
            ahead += list(getattr(it, "__dict__", {}).values())[::-1]


class Memories:
    """What the maps of a kernel remember, and who may own what a state remembers.

    Arguments:
        kernel: The kernel; or what holds some, and maps.
        target: The target that it is of.
    """

    def __init__(self, kernel: object, target: Target) -> None:
        found = list(inside(kernel))
        self.remember = [x for x in found if isinstance(x, Remembers)]
        self._owners = [target, *found]

    def held(self) -> tuple[Held, ...]:
        """What is remembered now; it shares memory and stays as it is."""
        return tuple(x.held() for x in self.remember)

    def take_up(self, held: tuple[Held, ...]) -> None:
        """Remember what was held, and that alone."""
        for x, mine in zip(self.remember, held, strict=True):
            x.take_up(mine)

    def place_of(self, memo: Memo | None) -> int:
        """Which of the owners a memo is of; -1 of none."""
        if memo is None:
            return -1
        return next((i for i, x in enumerate(self._owners) if x is memo.owner), -1)

    def memo(self, place: int, values: tuple[Tensor, ...]) -> Memo | None:
        """The memo of one of the owners."""
        return None if place < 0 else Memo(self._owners[place], values)
