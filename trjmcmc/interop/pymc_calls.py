"""PyTensor graphs as functions of NumPy arrays."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigurationError

Array = NDArray[Any]

BACKENDS = ("numba", "c", "numpy")

UNFIT = ("fusion", "inplace", "BlasOpt", "cxx_only")  # rewrites that NumPy gains nothing by


@contextmanager
def quietly() -> Iterator[None]:
    """Without PyTensor's warning, once a process, that it has no BLAS for its C code."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PyTensor could not link to a BLAS", UserWarning)
        yield


class Call:
    """Outputs of a graph as a function of arrays, compiled at the first call.

    NumPy needs no compiling and takes some .2 to .8 ms a call of a small model; Numba and C take
    .01 to .1 ms, and seconds to compile once (both keep what they made on disk).

    Arguments:
        inputs, outputs: Of the graph.
        backend: ``"numba"``, ``"c"`` or ``"numpy"``.
    """

    def __init__(self, inputs: Sequence[Any], outputs: Sequence[Any], backend: str) -> None:
        if backend not in BACKENDS:
            raise ConfigurationError(f"backend: expected one of {BACKENDS}, got {backend!r}")
        self.inputs, self.outputs, self.backend = list(inputs), list(outputs), backend
        self._dtypes = [x.dtype for x in self.inputs]
        self._function: Any = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Call:
        return copy.copy(self)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_function": None}

    def __call__(self, *arrays: Array) -> list[Array]:
        arrays = tuple(
            np.asarray(x, dtype=dtype, order="C")
            for x, dtype in zip(arrays, self._dtypes, strict=True)
        )
        if self._function is None:
            return self._first(arrays)
        with np.errstate(all="ignore"):
            found: list[Array] = self._function(*arrays)
        return found

    def _first(self, arrays: tuple[Array, ...]) -> list[Array]:
        """Compile, and call once: Numba compiles then."""
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # of a BLAS that is missing, of Numba's object mode
            self._function = _compiled(self.inputs, self.outputs, self.backend)
            found: list[Array] = self._function(*arrays)
        return found


def _compiled(inputs: list[Any], outputs: list[Any], backend: str) -> Any:
    import pytensor
    from pytensor.compile.mode import Mode, get_mode

    usual = get_mode("FAST_RUN").provided_optimizer
    modes = {
        "numba": lambda: get_mode("NUMBA"),
        "c": lambda: Mode(linker="cvm", optimizer=usual),
        "numpy": lambda: Mode(linker="py", optimizer=usual.excluding(*UNFIT)),
    }
    function = pytensor.function(inputs, outputs, mode=modes[backend](), on_unused_input="ignore")
    function.trust_input = True
    return function


class WithProduct:
    """A graph of batches with its vector-Jacobian product, for :func:`.bridge.through`.

    Arguments:
        inputs: Batched variables, (C, ...).
        output: A variable (C, ...).
    """

    def __init__(self, inputs: Sequence[Any], output: Any) -> None:
        import pytensor.tensor as pt

        outer = pt.tensor("outer", dtype=output.dtype, shape=(None,) * output.ndim)
        slopes = pt.grad((outer * output).sum(), list(inputs), disconnected_inputs="ignore")
        self._value = Call(inputs, [output], "numpy")
        self._slopes = Call([*inputs, outer], slopes, "numpy")

    def value(self, arrays: Sequence[Array]) -> Array:
        return self._value(*arrays)[0]

    def pull_back(self, arrays: Sequence[Array], outer: Array) -> Sequence[Array]:
        return self._slopes(*arrays, outer)
