"""What a graph of a step would keep for good, although chains decide it."""

from __future__ import annotations

from functools import reduce
from operator import getitem
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as tree

from ..tape import NotCapturable

DRAWS_ONLY = "random numbers depend on where the chains are"

READS = (
    "the likelihood, a prior or the move itself reads values in Python: by item(), a branch, "
    "a mask that picks rows (of one that never changes take nonzero() beforehand), or NumPy"
)

WRITES = "the likelihood, a prior or the move itself writes into a tensor that outlives the step"


def cut_marks(graph: Any, marks: int) -> None:
    """Drop the outputs that mark what draws depend on."""
    (output,) = (node for node in graph.graph.nodes if node.op == "output")
    outputs = list(output.args[0])
    output.update_arg(0, outputs[: len(outputs) - marks])


def refuse_frozen(graph: Any, marks: int) -> None:
    """Refuse what a captured step would keep for good, and follows from the values of its inputs.

    These are parameters of draws, which the last outputs mark; numbers that ``item()`` gives;
    shapes where a mask picks rows; and what is written into tensors that are there before the
    step. What follows from constants alone may be kept.

    Arguments:
        graph: Its nodes in the order in which they are executed, not functionalised.
        marks: Outputs that say what draws depend on.
    """
    memory: dict[Any, Any] = {}  # of each node, the first that has the same memory
    given: set[Any] = set()  # memory that depends on an input
    outside: set[Any] = set()  # memory that is there before the step
    for node in graph.graph.nodes:
        written = _written(node)
        is_view = getattr(node.target, "is_view", False) or node.target is getitem
        shared = written or (node.all_input_nodes[:1] if is_view else [])
        memory[node] = memory[shared[0]] if shared else _place(graph, node)
        if node.op == "get_attr":
            outside.add(memory[node])
        depends = any(memory[x] in given for x in node.all_input_nodes)
        if node.op == "output":
            last = node.args[0][len(node.args[0]) - marks :] if marks else ()
            if any(memory[x] in given for x in last):
                raise NotCapturable(DRAWS_ONLY)
        elif node.op == "placeholder" or depends:
            if any(memory[x] in outside for x in written):
                raise NotCapturable(WRITES)
            given.update(memory[x] for x in (node, *written))
            if _is_symbolic(node.meta.get("val")):
                raise NotCapturable(READS)


def _place(graph: Any, node: Any) -> Any:
    """What stands for the memory of a node that is no view of another."""
    if node.op != "get_attr":
        return node
    found = reduce(getattr, node.target.split("."), graph)
    return found.untyped_storage()._cdata if isinstance(found, Tensor) else node


def _written(node: Any) -> list[Any]:
    """Nodes whose memory an operation writes into."""
    found: list[Any] = []
    schema = getattr(node.target, "_schema", None)
    for place, argument in enumerate(() if schema is None else schema.arguments):
        value = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
        if argument.alias_info is not None and argument.alias_info.is_write:
            found += [x for x in tree.tree_leaves(value) if hasattr(x, "all_input_nodes")]
    return found


def _is_symbolic(value: Any) -> bool:
    """Whether a number, or an extent of a tensor, is not known before values are."""
    numbers = value.shape if isinstance(value, Tensor) else (value,)
    return any(isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool) for x in numbers)
