"""Likelihoods and other functions of parameters as users write them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import BlackBoxError, ConfigurationError, ShapeError, TargetError, TRJError
from .additive import Additive
from .blackbox import BlackBox, each_kind, point_of, shown

LogLikelihood = Callable[..., Tensor]

LogPriorAndLikelihood = Callable[[dict[str, Tensor]], tuple[Tensor, Tensor]]

Array = NDArray[np.float64]

OF_NUMPY = ("numpy", "operands could not be broadcast", "converted to python scalars")

Active = Tensor | dict[str, Tensor]  # what is on, (C, items); by name where there are several kinds


class Called:
    """A function of the user's; where it fails, the error says where, with what, and a remedy.

    Arguments:
        function: Of named parameters, and in a space of items of what is active.
        owner: What to call the model in messages.
        what: What to call the function.
    """

    failure: type[TRJError] = TargetError

    def __init__(self, function: Callable[..., Any], owner: str, what: str) -> None:
        if not callable(function):
            raise self.failure(f"{what} of {owner}: expected a function, got {function!r}")
        self.function, self.owner, self.what = function, owner, what
        self._call = function

    def _value(self, params: dict[str, Tensor], active: Active | None) -> Any:
        batch = (params,) if active is None else (params, active)
        try:
            return self._call(*batch)
        except BlackBoxError as error:
            hint = self._arguments(error, active)
            raise BlackBoxError(f"{self.what} of {self.owner}: {error}{hint}") from error
        except (TRJError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            where = self._culprit(batch)
            hint = self._arguments(error, active) or ("" if where else self._remedy(error, params))
            shapes = ", ".join(f"{k}: {tuple(v.shape)} {v.dtype}" for k, v in params.items())
            told = str(error).partition(" We don't support")[0]  # vmap asks for a report of a bug
            raise self.failure(
                f"{self.what} of {self.owner} failed at {where or shapes or 'no parameters'}, "
                f"{type(error).__name__}: {told}{hint}"
            ) from error

    def _culprit(self, batch: tuple[Any, ...]) -> str:
        """A point at which the function fails, where it does not fail at all, in words."""
        n = min((len(v) for v in batch[0].values()), default=0)

        def fails(first: int, end: int) -> bool:
            try:
                self._call(*point_of(batch, slice(first, end)))
            except Exception:
                return True
            return False

        low, high = 0, n
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fails(low, middle) else (middle, high)
        other = 0 if low else n - 1
        if n < 2 or not fails(low, high) or fails(other, other + 1):
            return ""
        return shown(tuple(each_kind(x, lambda v: v[low].detach().cpu()) for x in batch))

    def _arguments(self, error: Exception, active: Active | None) -> str:
        """How the function is called, where an error is of that."""
        if "positional argument" not in str(error):
            return ""
        if isinstance(self.function, Additive):
            return "; trj.Additive calls its functions as f(params) and g(total, params)"
        called = "in a list of models it is called with one: f(params)"
        if active is not None:
            called = "over items and components it is called with two: f(params, active)"
        return f"; {called}"

    def _remedy(self, error: Exception, params: dict[str, Tensor]) -> str:
        return f"; its parameters are {list(params)}" if isinstance(error, KeyError) else ""


class Likelihood(Called):
    """A user's log-likelihood with the checks that cost nothing at every call.

    Attributes:
        foreign: Whether it is no function of torch.
        rows: Longest batch; infinite off the CPU.
    """

    rows: float = math.inf

    def __init__(self, function: LogLikelihood, vectorized: bool, owner: str, what: str) -> None:
        super().__init__(function, owner, what)
        self.foreign = isinstance(function, BlackBox)
        self._vectorized = vectorized or self.foreign  # a black box knows its own batches
        self._call = function if self._vectorized else torch.func.vmap(function)

    def __call__(self, params: dict[str, Tensor], n: int, active: Active | None = None) -> Tensor:
        if not params and active is None:  # no parameters: the value is one number
            value = torch.as_tensor(self.function({})).reshape(-1)
            if len(value) not in {1, n}:
                self._wrong_shape(value, n)
            return value.expand(n)
        if n > self.rows:
            return self._in_pieces(params, n, active)
        value = self._value(params, active)
        if not isinstance(value, Tensor) or value.shape != (n,):
            self._wrong_shape(value, n)
        return value

    def cut(self, rows: float) -> Likelihood:
        """The same in batches of so many rows at most."""
        new = copy.copy(self)
        new.rows = rows
        return new

    def _in_pieces(self, params: dict[str, Tensor], n: int, active: Active | None) -> Tensor:
        """The value at n points, batch by batch."""
        values = []
        for first in range(0, n, int(self.rows)):
            some = itemgetter(slice(first, first + int(self.rows)))
            on = None if active is None else each_kind(active, some)
            size = min(n - first, int(self.rows))
            values.append(self({name: some(v) for name, v in params.items()}, size, on))
        return torch.cat(values)

    def of_total(self, total: Tensor, params: dict[str, Tensor], n: int) -> Tensor:
        """The value where the sum of what components add is known, (C,)."""
        assert isinstance(self.function, Additive)
        try:
            value = self.function.combine(total, self.function.shared(params))
        except (TRJError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise self.failure(f"{self.what} of {self.owner}: combine failed: {error}") from error
        if not isinstance(value, Tensor) or value.shape != (n,):
            self._wrong_shape(value, n)
        return value

    def _remedy(self, error: Exception, params: dict[str, Tensor]) -> str:
        if known := super()._remedy(error, params):
            return known
        if isinstance(error, TypeError) or any(x in str(error).lower() for x in OF_NUMPY):
            return (
                "; make tensors of NumPy data (torch.as_tensor), and if it is NumPy code, wrap it: "
                "trj.BlackBox(function)"
            )
        if "dtype" in str(error):
            return "; if its data have another precision, state Target(..., dtype=...)"
        if self._vectorized:
            return (
                ' (params hold a batch of points: beside data write params["x"][:, None]; for a '
                "function of one point pass vectorized=False)"
            )
        return (
            "; vectorized=False maps functions of torch alone: of one that is NumPy code, or asks "
            "for numbers by float() or if, make trj.BlackBox(function)"
        )

    def _wrong_shape(self, value: Any, n: int) -> None:
        if not isinstance(value, Tensor):
            raise ShapeError(
                f"{self.what} of {self.owner}: expected a tensor of shape ({n},), got "
                f"{type(value).__name__}; if it is NumPy code, wrap it: trj.BlackBox(function)"
            )
        got = f"shape {tuple(value.shape)}"
        hint = (
            "params hold a batch of points, leading size C: sum over the data, not over the "
            "batch; for a function of one point pass vectorized=False"
            if self._vectorized
            else "with vectorized=False it gets one point and must return a scalar tensor"
        )
        raise ShapeError(
            f"{self.what} of {self.owner}: expected a tensor of shape ({n},) for a batch of "
            f"{n} points, got {got}. {hint}."
        )


class Fused(Called):
    """Log prior and log likelihood that a user's function gives in one call."""

    def __call__(self, params: dict[str, Tensor], n: int) -> tuple[Tensor, Tensor]:
        """Log prior of the values, without any Jacobian, and log likelihood, (n,) each, nats."""
        found = self._value(params, None)
        shapes = [tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__ for x in found]
        if shapes != [(n,), (n,)]:
            raise ShapeError(
                f"{self.what} of {self.owner}: expected two tensors of shape ({n},), log prior and "
                f"log likelihood, got {shapes}"
            )
        log_prior, log_likelihood = found
        return log_prior, log_likelihood


class Quantity(Called):
    """A function that is averaged over draws: what it returns must be one value a draw."""

    failure = ConfigurationError

    def __call__(self, params: dict[str, Tensor], n: int, active: Active | None = None) -> Array:
        """Values at n points of one model, shape (n, ...); a number counts for all of them.

        Arguments:
            params: As the likelihood has them, leading size n.
            n: Number of points.
            active: In a space of items what is on, shape (n, items), or that of each kind.
        """
        value = self._numbers(params, active)
        bare = not any(v.numel() for v in params.values())  # no parameters: one value for all
        if bare and value.shape[:1] != (n,):
            each = value.shape[1:] if value.shape[:1] == (1,) else value.shape
            return np.broadcast_to(value, (n, *each))
        if value.ndim == 0:
            some = slice(0, max(1, n // 2))
            half = {k: v[some] for k, v in params.items()}
            on = None if active is None else each_kind(active, lambda x: x[some])
            again = self._numbers(half, on)
            if np.array_equal(again, value, equal_nan=True):
                return np.broadcast_to(value, (n,))
            self._wrong_shape(value, n, "a number that depends on how many draws there are")
        if value.shape[:1] != (n,):
            self._wrong_shape(value, n, f"shape {value.shape}")
        return value

    def _numbers(self, params: dict[str, Tensor], active: Active | None) -> Array:
        value = self._value(params, active)
        try:
            return np.asarray(torch.as_tensor(value).detach().cpu(), dtype=float)
        except (TypeError, ValueError, RuntimeError):
            raise self.failure(
                f"{self.what} of {self.owner}: expected a tensor or an array, got "
                f"{type(value).__name__}"
            ) from None

    def _wrong_shape(self, value: Array, n: int, got: str) -> None:
        raise self.failure(
            f"{self.what} of {self.owner}: expected one value per draw, shape ({n}, ...), got "
            f"{got}. params hold a batch of draws, leading size n: sum over other axes, not over "
            "the first."
        )

    def _remedy(self, error: Exception, params: dict[str, Tensor]) -> str:
        if known := super()._remedy(error, params):
            return (
                f"{known}; where a model lacks one use p.get(name, torch.tensor(0.0)), or give "
                "each model its own function: predict({model: f, ...})"
            )
        if isinstance(error, TypeError | AttributeError) or any(x in str(error) for x in OF_NUMPY):
            return (
                '; params are tensors of n draws: for NumPy code take p["x"].numpy(), or make '
                "tensors of NumPy data (torch.as_tensor)"
            )
        return " (params hold a batch of draws, leading size n)"
