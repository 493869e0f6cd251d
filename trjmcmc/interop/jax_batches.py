"""Functions in JAX, mapped over batches of any size and compiled for few."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .bridge import Computed, by_slopes, differentiable, on_host, tensor_of
from .extras import needed

Array = NDArray[Any]

SIZES = (64, 512)  # rows of a call: two compilations of each function

FEW = 2  # calls of the small size at most, so that padding costs four times the rows at most


def in_float64() -> bool:
    """Whether JAX computes in float64 now: a global setting, float32 unless changed."""
    return bool(needed("jax", "numpyro", "a model in JAX").config.jax_enable_x64)


def with_precision(x64: bool) -> AbstractContextManager[Any]:
    """Compute in a precision here, and leave JAX's global setting alone."""
    jax = needed("jax", "numpyro", "a model in JAX")
    if hasattr(jax, "enable_x64"):
        found: AbstractContextManager[Any] = jax.enable_x64(x64)
    else:  # before JAX 0.8
        from jax.experimental import enable_x64

        found = enable_x64(x64)
    return found


def pieces(n: int, sizes: tuple[int, ...] = SIZES) -> Iterator[tuple[slice, int]]:
    """The rows of each call for ``n`` points, and the size of the call.

    Example:
        >>> list(pieces(600))
        [(slice(0, 512, None), 512), (slice(512, 576, None), 64), (slice(576, 600, None), 64)]
    """
    small, large = sizes[0], sizes[-1]
    start = 0
    while start < n:
        size = small if n - start <= FEW * small else large
        yield slice(start, min(n, start + size)), size
        start += size


class Batched:
    """A function of one point in JAX for batches, padded to a size that is compiled already.

    JAX compiles anew for every shape, and samplers ask for another number of points at every
    step. Values stay on the host where the points are; on a device they are handed over in place
    and copied there.

    Arguments:
        function: Of arrays of one point; returns a tuple of arrays.
        x64: Whether it computes in float64.
        sizes: Rows of a call, one number or two.
        mapped: Whether it is mapped over the batch; else it takes batches itself.

    Example:
        >>> import numpy as np
        >>> square = Batched(lambda x: (x**2,), x64=False)
        >>> square(np.arange(3, dtype=np.float32))[0].tolist()
        [0.0, 1.0, 4.0]
    """

    def __init__(
        self,
        function: Callable[..., tuple[Any, ...]],
        *,
        x64: bool,
        sizes: tuple[int, ...] = SIZES,
        mapped: bool = True,
    ) -> None:
        jax = needed("jax", "numpyro", "a model in JAX")
        self.x64, self.sizes = x64, sizes
        self._call = jax.jit(jax.vmap(function) if mapped else function)

    def __deepcopy__(self, memo: dict[int, Any]) -> Batched:
        return self  # compiled code can't be copied

    def __call__(self, *columns: Array) -> tuple[Array, ...]:
        """Values at n points, arrays of leading size n; an answer is never shared with JAX."""
        n = len(columns[0])
        parts = []
        with with_precision(self.x64):
            for rows, size in pieces(max(n, 1), self.sizes):
                found = self._call(*(_padded(x[rows], size) for x in columns))
                parts.append([np.asarray(x)[: rows.stop - rows.start] for x in found])
        if len(parts) == 1:
            return tuple(np.array(x[:n]) for x in parts[0])
        return tuple(np.concatenate(x) for x in zip(*parts, strict=True))

    def of_tensors(self, *columns: Tensor) -> tuple[Tensor, ...]:
        """The same of tensors on any device, in the precision of the first of them."""
        return tuple(tensor_of(x, columns[0]) for x in self(*(on_host(x) for x in columns)))


def with_slopes(
    slopes: Batched, columns: Sequence[Tensor], values: int, inputs: int
) -> tuple[Tensor, ...]:
    """Values at n points, (n,) each, differentiable once.

    Arguments:
        slopes: Gives the values, and then of each its gradient by input.
        columns: Its arguments, of leading size n.
        values: How many values there are.
        inputs: How many of the arguments, the first, have gradients.
    """

    def compute(columns: Sequence[Tensor]) -> Computed:
        found = slopes.of_tensors(*columns)
        rest = found[values:]
        each = [rest[v * inputs : (v + 1) * inputs] for v in range(values)]
        nothing = [None] * (len(columns) - inputs)
        return found[:values], by_slopes(found[:values], [[*x, *nothing] for x in each])

    return differentiable(compute, columns)


def _padded(rows: Array, size: int) -> Array:
    """Rows, the last one again until there are ``size``; zeros where there is none."""
    if len(rows) == size:
        return rows
    if not len(rows):
        return np.zeros((size, *rows.shape[1:]), rows.dtype)
    return np.concatenate([rows, np.repeat(rows[-1:], size - len(rows), 0)])
