"""Batches that memory does not hold are evaluated in halves."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

Values = TypeVar("Values", bound=tuple[Tensor, ...])

_FIT: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # rows that a target's memory has held


def in_pieces(method: Callable[..., Values]) -> Callable[..., Values]:
    """A method of (code, theta) that goes on where a batch takes more memory than there is.

    The batch is halved, and so are those after it, down to one row; values are as of the whole.
    Options of leading size C are cut with it.

    Raises:
        torch.OutOfMemoryError: One row is too much.

    Example:
        >>> class Small:
        ...     @in_pieces
        ...     def squares(self, code, theta):
        ...         if len(theta) > 3:
        ...             raise torch.OutOfMemoryError("four rows are too many")
        ...         return (theta.square(),)
        >>> theta = torch.arange(7.0)
        >>> Small().squares(theta[:, None], theta)[0].tolist()
        [0.0, 1.0, 4.0, 9.0, 16.0, 25.0, 36.0]
    """

    @wraps(method)
    def evaluated(self: Any, code: Tensor, theta: Tensor, **options: Any) -> Values:
        n = len(theta)
        most = _FIT.get(self, n)
        if n <= most:
            try:
                return method(self, code, theta, **options)
            except torch.OutOfMemoryError:
                if n == 1:
                    raise
            # what the error held is free again
            if theta.device.type == "cuda":
                torch.cuda.empty_cache()
            most = _FIT[self] = -(-n // 2)
        parts = []
        for rows in torch.arange(n, device=theta.device).split(most):
            some = {k: _rows(v, rows, n) for k, v in options.items()}
            parts.append(evaluated(self, code[rows], theta[rows], **some))
        return tuple(torch.cat(column) for column in zip(*parts, strict=True))  # type: ignore[return-value]

    return evaluated


def _rows(value: Any, rows: Tensor, n: int) -> Any:
    of_each = isinstance(value, Tensor) and value.dim() > 0 and len(value) == n
    return value[rows] if of_each else value
