"""Apply a different function to the rows of each group of a batch."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

RowFunction = Callable[[Tensor], tuple[Tensor, ...]]


def on_host(x: Tensor) -> bool:
    """Whether looking at a value costs nothing; elsewhere it would be copied and waited for."""
    return x.device.type == "cpu"


def apply_by_group(
    group: Tensor,
    functions: Sequence[RowFunction],
    x: Tensor,
    anchors: Tensor,
    *,
    dense: bool | None = None,
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
        dense: Force the second way (True) or the first (False).

    Returns:
        The outputs, in the order of the rows.
    """
    if len(functions) == 1:
        return functions[0](x)
    if dense is None:
        dense = not on_host(x)
    if dense:
        return _apply_dense(group, functions, x, anchors)
    order = torch.argsort(group, stable=True)
    sizes = torch.bincount(group, minlength=len(functions)).tolist()
    parts = x[order].split(sizes)
    outputs = [f(part) for f, part in zip(functions, parts, strict=True) if len(part)]
    if not outputs:
        return functions[0](x)
    back = torch.argsort(order)
    return tuple(torch.cat(columns)[back] for columns in zip(*outputs, strict=True))


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
