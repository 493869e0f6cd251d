"""Functions of one point, as the flat list of operations that they do on a batch."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..target.support import unchecked

SIZES = (1, 2, 5, 64)  # of the batches at which operations and function must agree

SAME = {torch.float64: 1e-10, torch.float32: 1e-4}  # relative difference up to which they do

Batched = Callable[[Mapping[str, Tensor]], tuple[Tensor, ...]]


def flattened(function: Batched, examples: Mapping[str, Tensor]) -> Batched | None:
    """What a function does to its tensors, without the Python around it.

    The function is recorded once, with the size of the batch left open; what depends on no
    parameter is computed in advance. Derivatives of any order are torch's.

    Arguments:
        function: Of tensors by name, (C, *shape), to a tuple of tensors.
        examples: A few different points, (n, *shape) by name.

    Returns:
        The same function of the same tensors, or None where it can't be recorded, draws random
        numbers, or does not agree with what was recorded at batches of several sizes.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    names = list(examples)

    def flat(*values: Tensor) -> tuple[Tensor, ...]:
        return function(dict(zip(names, values, strict=True)))

    try:
        with unchecked(), torch.no_grad():
            sizes = {n for x in examples.values() for n in x.shape[1:]}
            other = next(n for n in range(3, 3 + len(sizes) + 1) if n not in sizes)
            rows = [_rows(examples[k], other) for k in names]  # equal sizes are taken for one
            record = make_fx(flat, tracing_mode="symbolic", _allow_non_fake_inputs=True)(*rows)
            if _is_random(record):
                return None
            _fold(record)
            call = record.forward
            for n in SIZES:
                rows = [_rows(examples[k], n) for k in names]
                for a, b in zip(call(*rows), flat(*rows), strict=True):
                    torch.testing.assert_close(
                        a, b, rtol=SAME[b.dtype], atol=SAME[b.dtype], equal_nan=True
                    )
    except Exception:  # whatever torch can't record is called as it is
        return None
    return lambda values: tuple(call(*(values[k] for k in names)))


def _rows(x: Tensor, n: int) -> Tensor:
    """``n`` rows, repeated where there are fewer."""
    return x.repeat(math.ceil(n / len(x)), *[1] * (x.dim() - 1))[:n].clone()


def _calls(record: Any) -> Sequence[Any]:
    return [node for node in record.graph.nodes if node.op == "call_function"]


def _is_random(record: Any) -> bool:
    return any(
        torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        for node in _calls(record)
    )


def _fold(record: Any) -> None:
    """Compute what depends on no parameter, where nothing is written into."""
    graph = record.graph
    graph.eliminate_dead_code()
    if any(
        isinstance(n.target, torch._ops.OpOverload) and n.target._schema.is_mutable
        for n in _calls(record)
    ):
        record.recompile()
        return
    known: dict[Any, Any] = {}
    for node in list(graph.nodes):
        if node.op == "get_attr":
            known[node] = operator.attrgetter(node.target)(record)
        elif node.op == "call_function" and all(x in known for x in node.all_input_nodes):
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
            value = node.target(*args, **kwargs)
            if not isinstance(value, Tensor):
                continue
            known[node] = value
            name = f"_known{len(known)}"
            record.register_buffer(name, value)
            with graph.inserting_before(node):
                constant = graph.get_attr(name)
            node.replace_all_uses_with(constant)
            graph.erase_node(node)
            known[constant] = value
    graph.eliminate_dead_code()
    record.recompile()
