"""Operations that torch's CPU compiler makes slowly or wrong, in a form that it fuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

SHORT = 16  # entries of a running sum, or that a scatter puts in place, which are taken apart


def short_cumsum(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    """Running sums along a short dimension; NotImplemented along a long one.

    The compiler calls ``cumsum`` out of line, which takes some five microseconds each time:
    coal mining makes 38 of them a step, and 1650 compiled steps a second without, 1030 with.

    Example:
        >>> short_cumsum(torch.tensor([[1.0, 2.0, 3.0]]), 1)
        tensor([[1., 3., 6.]])
    """
    if dtype is not None or not x.dim() or not 0 < x.shape[dim] <= SHORT:
        return NotImplemented
    n, last = x.shape[dim], x.movedim(dim, -1)
    places = torch.arange(n, device=x.device)
    until = places[:, None] <= places
    terms = torch.where(until, last[..., None], torch.zeros_like(last[..., None]))
    return terms.sum(-2).movedim(-1, dim)


def short_scatter(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
    """Entries put in place along a dimension, few at a time; NotImplemented of many.

    Places have to exist: one beyond the end would be ignored. The compiler of torch 2.13 fuses a
    scatter with loops that read from it before it has written there: pulses' births with a walk
    after them, each right alone, were wrong together.

    Example:
        >>> x, index = torch.zeros(1, 3), torch.tensor([[2, 0]])
        >>> short_scatter(x, 1, index, torch.tensor([[5.0, 7.0]]))
        tensor([[7., 0., 5.]])
    """
    if not _is_short(x, dim, index) or (source.shape, source.dtype) != (index.shape, x.dtype):
        return NotImplemented
    last, where, new = (y.movedim(dim, -1) for y in (x, index, source))
    places = torch.arange(x.shape[dim], device=x.device)
    for k in range(where.shape[-1]):  # of two at one place the later one stays
        last = torch.where(places == where[..., k : k + 1], new[..., k : k + 1], last)
    return last.movedim(-1, dim)


def short_fill(x: Tensor, dim: int, index: Tensor, value: float) -> Any:
    """The same of one number at all places.

    Example:
        >>> short_fill(torch.zeros(1, 3), 1, torch.tensor([[2, 0]]), 4.0)
        tensor([[4., 0., 4.]])
    """
    if not _is_short(x, dim, index):
        return NotImplemented
    return short_scatter(x, dim, index, torch.full_like(index, value, dtype=x.dtype))


def _is_short(x: Tensor, dim: int, index: Tensor) -> bool:
    """Whether few places of whole rows are named."""
    if not x.dim() or x.dim() != index.dim():
        return False
    rows = list(zip(x.shape, index.shape, strict=True))
    rows.pop(dim)
    return 0 < index.shape[dim] <= SHORT and all(m == n for m, n in rows)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """What the compiler is to take operations apart into: its own table and the above."""
    from torch._inductor.decomposition import select_decomp_table

    return {
        **select_decomp_table(),
        torch.ops.aten.cumsum.default: short_cumsum,
        torch.ops.aten.scatter.src: short_scatter,
        torch.ops.aten.scatter.value: short_fill,
    }
