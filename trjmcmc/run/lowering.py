"""Operations that torch's CPU compiler makes slowly or wrong, in a form that it fuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..tape import NotCapturable

SHORT = 16  # entries of a running sum that is taken apart

FEW = 64  # that a scatter puts in place, likewise

WHOLE_SCATTER = (
    "torch's compiler has read memory before a scatter into it, and one can't be taken apart here"
)


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


def short_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Any:
    """Entries put in place by a mask, or few along one dimension; NotImplemented of others.

    Example:
        >>> x, index = torch.zeros(2, 3), torch.tensor([2, 0])
        >>> short_put(x, [None, index], torch.tensor([[5.0, 7.0], [1.0, 2.0]]))
        tensor([[7., 0., 5.],
                [2., 0., 1.]])
        >>> short_put(x, [torch.tensor([True, False])], torch.tensor(4.0))
        tensor([[4., 4., 4.],
                [0., 0., 0.]])
    """
    named = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if accumulate or len(named) != 1 or values.dtype != x.dtype:
        return NotImplemented
    ((dim, index),) = named
    if index.dtype == torch.bool:
        if dim or values.numel() != 1:
            return NotImplemented
        mask = index.reshape(*index.shape, *[1] * (x.dim() - index.dim()))
        return torch.where(mask, values.reshape(()), x)
    if index.dim() != 1 or not 0 < len(index) <= FEW:
        return NotImplemented
    size = list(x.shape)
    size[dim] = len(index)
    last, new = x.movedim(dim, -1), values.expand(size).movedim(dim, -1)
    places = torch.arange(x.shape[dim], device=x.device)
    index = torch.where(index < 0, index + x.shape[dim], index)
    for k in range(len(index)):
        last = torch.where(places == index[k], new[..., k : k + 1], last)
    return last.movedim(-1, dim)


def _is_short(x: Tensor, dim: int, index: Tensor) -> bool:
    """Whether few places of whole rows are named."""
    if not x.dim() or x.dim() != index.dim():
        return False
    rows = list(zip(x.shape, index.shape, strict=True))
    rows.pop(dim)
    return 0 < index.shape[dim] <= FEW and all(m == n for m, n in rows)


def _or_refused(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same where it takes an operation apart; else the compilation is refused."""

    def taken_apart(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        if found is NotImplemented:
            raise NotCapturable(WHOLE_SCATTER)
        return found

    return taken_apart


def assume_factorised(graph: Any) -> None:
    """Let the last output hold only where all factorisations succeed, and check them nowhere else.

    A trace drops the checks, and would go on with what there is of a factor.
    """
    aten, inner = torch.ops.aten, graph.graph
    (output,) = (node for node in inner.nodes if node.op == "output")
    *outputs, fine = output.args[0]
    for node in list(inner.nodes):
        if node.target is aten._linalg_check_errors.default:
            with inner.inserting_before(output):
                done = inner.call_function(aten.eq.Scalar, (node.args[0], 0))
                done = inner.call_function(aten.all.default, (done,))
                fine = inner.call_function(aten.logical_and.default, (fine, done))
            inner.erase_node(node)
    output.update_arg(0, [*outputs, fine])


def without_bools(graph: Any) -> None:
    """Write truth values that stand for numbers as numbers: torch's tracer refuses them."""
    for node in graph.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        for k, place in enumerate([] if schema is None else schema.arguments[: len(node.args)]):
            if isinstance(node.args[k], bool) and str(place.type) in ("number", "Scalar"):
                node.update_arg(k, int(node.args[k]))


def decompositions() -> dict[Any, Callable[..., Any]]:
    """What the compiler is to take operations apart into: its own table and the above."""
    from torch._inductor.decomposition import select_decomp_table

    aten = torch.ops.aten
    others = (
        aten.scatter.reduce,
        aten.scatter.value_reduce,
        aten.scatter_add.default,
        aten.scatter_reduce.two,
        aten._unsafe_masked_index_put_accumulate.default,
    )
    return {
        **select_decomp_table(),
        aten.cumsum.default: short_cumsum,
        aten.scatter.src: _or_refused(short_scatter),
        aten.scatter.value: _or_refused(short_fill),
        aten.index_put.default: _or_refused(short_put),
        aten._unsafe_index_put.default: _or_refused(short_put),
        **dict.fromkeys(others, _or_refused(lambda *_, **__: NotImplemented)),
    }
