"""Numbers that torch reads and writes, counted and not timed."""

from __future__ import annotations

import math
import re
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

OUT_OF_TORCH = {Tensor.numpy, Tensor.__array__, Tensor.tolist, Tensor.item, Tensor.__float__}

IN_CACHE = 200_000  # numbers of a tensor: batches of larger ones take 2 to 6 times as long, since
# they leave the cache and go back to the system after each operation

LEAST_ROWS, MOST_IN_CACHE = 4, 1_000_000  # rows of a batch that are worth larger tensors, and these

LEAST_SHARE = 8  # work of a batch, over that which does not depend on its size

AN_OPERATION = 5000  # numbers that take as long as an operation of one

OF_MATRICES = re.compile(
    "linalg|cholesky|matmul|triangular_solve|inverse|slogdet|^(svd|lu|qr|lstsq|det|logdet|b?mm|mv)$"
)


class Counting(TorchFunctionMode):
    """Counts numbers while it is entered.

    Attributes:
        numbers: Sum over operations of the larger of what each reads and writes.
        written: The largest tensor of each that writes any.
        work: Numbers written, those of matrices as often as rows are long, and what each operation
            takes beside.
        all_of_it: Whether no number has left torch, where it could not be counted.

    Example:
        >>> import torch
        >>> with Counting() as counted:
        ...     x = torch.ones(3, 4).exp().sum()
        >>> counted.numbers, counted.written, counted.all_of_it
        (36, [12, 12, 1], True)
    """

    def __init__(self) -> None:
        super().__init__()
        self.numbers, self.written, self.work, self.all_of_it = 0, list[int](), 0, True

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        each = found if isinstance(found, tuple | list) else (found,)
        sizes = [x.numel() for x in each if isinstance(x, Tensor)]
        read = [x for x in args if isinstance(x, Tensor)]
        widest = max(sizes, default=0)
        self.numbers += max([widest, *(x.numel() for x in read)])
        self.written += [widest] if widest else []
        of_matrices = OF_MATRICES.search(getattr(func, "__name__", ""))
        length = read[0].shape[-1] if of_matrices and read and read[0].dim() else 1
        self.work += AN_OPERATION + sum(sizes) * length
        self.all_of_it &= func not in OUT_OF_TORCH
        return found


def rows_in_cache(one: Counting, batch: Counting, n: int) -> float:
    """Rows of a batch whose tensors the cache holds; infinite where a batch is not to be cut.

    That is where numbers leave torch, where nothing grows with the batch, or where most does not.

    Arguments:
        one: What a batch of one row has counted.
        batch: What one of n rows has.
        n: Its rows.
    """
    if not (one.all_of_it and batch.all_of_it) or len(one.written) != len(batch.written):
        return math.inf
    grown = [(b - a) / (n - 1) for a, b in zip(one.written, batch.written, strict=True)]
    each, more = max(grown, default=0.0), (batch.work - one.work) / (n - 1)
    if not (each > 0 and more > 0):
        return math.inf
    rows = max(IN_CACHE / each, min(LEAST_ROWS, MOST_IN_CACHE / each))
    return max(1, int(max(rows, LEAST_SHARE * (one.work - more) / more)))
