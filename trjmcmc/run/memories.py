"""What a kernel is made of, and which part of it owns what a state remembers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import MethodType

from torch import Tensor, nn

from ..kernel.base import Kernel, Memo
from ..space.base import Space
from ..target.target import Target


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
        elif isinstance(it, Kernel | nn.Module) or type(it).__module__.startswith("trjmcmc."):
            yield it
            ahead += list(getattr(it, "__dict__", {}).values())[::-1]


def place_of(memo: Memo | None, kernel: Kernel, target: Target) -> int:
    """Which of the target and the parts of a kernel owns a memo; -1: none."""
    if memo is None:
        return -1
    owners = [target, *inside(kernel)]
    return next((i for i, x in enumerate(owners) if x is memo.owner), -1)


def memo_of(place: int, values: tuple[Tensor, ...], kernel: Kernel, target: Target) -> Memo | None:
    """The memo of one of these owners."""
    return None if place < 0 else Memo([target, *inside(kernel)][place], values)
