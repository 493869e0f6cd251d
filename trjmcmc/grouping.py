"""Rows of a batch by groups: functions of their own, means, sums of exponentials."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

RowFunction = Callable[[Tensor], tuple[Tensor, ...]]


def on_host(x: Tensor) -> bool:
    """Whether looking at a value costs nothing; elsewhere it would be copied and waited for."""
    return x.device.type == "cpu"


def surely(condition: Tensor) -> bool:
    """Whether all of a condition holds, if that costs nothing to know; False if it does."""
    return on_host(condition) and bool(condition.all())


def apply_by_group(
    group: Tensor,
    functions: Sequence[RowFunction],
    x: Tensor,
    anchors: Tensor,
) -> tuple[Tensor, ...]:
    """Send row i of ``x`` through ``functions[group[i]]``.

    On the CPU the rows are sorted by group and each function sees only its own. Elsewhere
    that would copy the group sizes to the host at every call, so each function sees the whole
    batch, the rows of other groups replaced by a harmless point, and the answers are selected.

    Arguments:
        group: Index of the function for each row, shape (C,), int64.
        functions: One per group; each maps (n, D) to a tuple of tensors with leading size n,
            the same number and trailing shapes for all functions.
        x: Rows, shape (C, D).
        anchors: For each group a row at which its function is finite, shape (len(functions), D).

    Returns:
        The outputs, in the order of the rows.
    """
    if len(functions) == 1:
        return functions[0](x)
    if not on_host(x):
        return _apply_dense(group, functions, x, anchors)
    sizes = torch.bincount(group, minlength=len(functions)).tolist()
    if max(sizes) == len(x):  # all of one group, or no rows
        return functions[sizes.index(len(x))](x)
    order = torch.argsort(group, stable=True)
    parts = x.index_select(0, order).split(sizes)  # a quarter of the time of x[order]
    outputs = [f(part) for f, part in zip(functions, parts, strict=True) if len(part)]
    back = torch.empty_like(order).index_copy_(0, order, torch.arange(len(x)))  # its inverse
    return tuple(torch.cat(columns).index_select(0, back) for columns in zip(*outputs, strict=True))


def _apply_dense(
    group: Tensor, functions: Sequence[RowFunction], x: Tensor, anchors: Tensor
) -> tuple[Tensor, ...]:
    result: tuple[Tensor, ...] | None = None
    for g, f in enumerate(functions):
        mine = group == g
        out = f(torch.where(mine[:, None], x, anchors[g]))
        if result is None:
            result = out
        else:
            result = tuple(
                torch.where(mine.reshape(-1, *[1] * (new.dim() - 1)), new, old)
                for new, old in zip(out, result, strict=True)
            )
    assert result is not None
    return result


def group_means(
    x: Tensor, group: Tensor, counted: Tensor | None = None, groups: int | None = None
) -> Tensor:
    """For each row the mean of x over the (counted) rows of its group, (C,) -> (C,).

    The number of groups is looked up where it is not given, for which a device is waited for.
    """
    counted = torch.ones_like(group, dtype=torch.bool) if counted is None else counted
    if groups is None:
        groups = int(group.max()) + 1 if len(group) else 0
    total = x.new_zeros(groups).index_add(0, group, torch.where(counted, x, 0.0))
    number = x.new_zeros(groups).index_add(0, group, counted.to(x.dtype))
    return (total / number.clamp(min=1))[group]


def group_logsumexp(x: Tensor, group: Tensor, groups: int) -> Tensor:
    """Log-sum-exp of the rows of each group, (C,) -> (groups,); -inf for an empty group."""
    top = torch.full((groups,), -math.inf, dtype=x.dtype, device=x.device)
    top = top.scatter_reduce(0, group, x, "amax")
    safe = torch.where(top > -math.inf, top, 0.0)
    return safe + torch.zeros_like(top).index_add(0, group, (x - safe[group]).exp()).log()


def same_rows(x: Tensor) -> Tensor:
    """Number of the distinct row that each row of (N, D) is, shape (N,)."""
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(x.shape[1], generator=generator, dtype=torch.float64)
    return (x.double() @ direction.to(x.device)).unique(return_inverse=True)[1]
