"""Likelihoods from outside PyTorch: NumPy functions, simulators, codes with their own gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import BlackBoxError, PoolError, TargetError
from .workers import TASKS, DeadWorkerError, Shipped, guarded

Point = dict[str, np.ndarray]

Active = Tensor | dict[str, Tensor]

SHOWN = 4  # points that are named where a worker has died


class BlackBox:
    """A log-likelihood in NumPy, without gradients.

    Use it as ``log_likelihood=trj.BlackBox(f)``. Points outside the prior's support are never
    passed on. Values of the last batch are remembered, so that after a failure (a pool that
    died, one bad point) nothing is computed twice.

    Arguments:
        function: Gets a dict of NumPy arrays (float64), one point in the parameters' own
            shapes, and returns a float, nats; in the form with a space also the boolean array
            ``active``, or a dict of them by kind. With ``vectorized=True`` it gets batches and
            returns an array (C,).
        vectorized: Whether the function takes batches.
        pool: A pool of ``multiprocessing``, an executor of ``concurrent.futures``, loky or MPI, a
            client of Dask; anything with ``submit`` or ``map``. Workers are sent the function
            once, with what it holds then; it must be importable by them, or ``cloudpickle``
            installed. Not used where the function is vectorised.

    Attributes:
        calls: Points evaluated so far.
        pool: May be replaced after a failure.

    Raises:
        TargetError: ``function`` can't be called, or ``pool`` has neither ``submit`` nor ``map``.

    Example:
        >>> import numpy as np
        >>> f = BlackBox(lambda p: -0.5 * np.sum((p["x"] - 1.0) ** 2))
        >>> f({"x": torch.tensor([[1.0, 2.0], [3.0, 1.0]])})
        tensor([-0.5000, -2.0000])
    """

    differentiable = False

    def __init__(
        self, function: Callable[..., Any], *, vectorized: bool = False, pool: Any = None
    ) -> None:
        if not callable(function):
            raise TargetError(f"BlackBox: expected a function, got {function!r}")
        if pool is not None and not (hasattr(pool, "map") or hasattr(pool, "submit")):
            raise TargetError(
                f"pool: expected an object with `submit` or `map`, got {type(pool).__name__}"
            )
        self.function, self.vectorized, self.pool = function, vectorized, pool
        self.calls = 0
        self._shipped: Shipped | None = None
        self._last: dict[tuple[str, ...], dict[bytes, Any]] = {}  # by names of parameters

    def __deepcopy__(self, memo: dict[int, Any]) -> BlackBox:
        return self  # pools and compiled codes can't be copied

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "pool": None, "_shipped": None, "_last": {}}  # pools can't be sent

    def __call__(self, params: Mapping[str, Tensor], active: Active | None = None) -> Tensor:
        like, batch = _on_host(params, active)
        n = len(like)
        if self.vectorized:
            value = np.asarray(self._whole(batch, n))
            if value.shape != (n,) or not np.issubdtype(value.dtype, np.number):
                raise BlackBoxError(
                    f"the black box returned shape {value.shape} of {value.dtype} for a batch of "
                    f"{n} points, expected ({n},); the first of them {shown(point_of(batch))}"
                )
        else:
            points = _points(batch, n)
            value = np.array([self._number(v, p) for v, p in self._values_of(points)])
        return torch.as_tensor(value).to(like)

    def _whole(self, batch: tuple[Any, ...], n: int) -> Any:
        self.calls += n
        try:
            return self.function(*batch)
        except Exception as error:
            raise BlackBoxError(
                f"the black box failed on a batch of {n} points, the first of them "
                f"{shown(point_of(batch))}: {type(error).__name__}: {error}"
            ) from error

    def _values_of(self, points: Sequence[tuple[Any, ...]]) -> list[tuple[Any, tuple[Any, ...]]]:
        """Values of points one by one, those of the last batch of their kind from memory."""
        keys = [_key(p) for p in points]
        kind = tuple(sorted(points[0][0])) if points else ()
        memory = self._last.get(kind, {})
        todo = {key: i for i, key in enumerate(keys) if key not in memory}  # each point once
        found: dict[bytes, Any] = {}
        try:
            outcomes = self._outcomes([points[i] for i in todo.values()])
            asked = list(todo)
            for i, outcome in outcomes:
                found[asked[i]] = outcome
        finally:
            self.calls += len(found)
            good = {k: v for k, (ok, v) in found.items() if ok and _is_number(v)}
            self._last[kind] = {k: memory[k] for k in keys if k in memory} | good
        for key, (ok, value) in found.items():
            if not ok:
                raise BlackBoxError(f"the black box failed at {shown(points[todo[key]])}:\n{value}")
        values = memory | {key: v for key, (_, v) in found.items()}
        return [(values[key], p) for key, p in zip(keys, points, strict=True)]

    def _outcomes(self, points: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """The number of each point and (True, value) or (False, traceback), as they come."""
        if self.pool is None or not points:
            yield from enumerate(guarded(self.function, p) for p in points)
            return
        size = -(-len(points) // TASKS)
        tasks = [list(points[i : i + size]) for i in range(0, len(points), size)]
        if self._shipped is None or self._shipped.function is not self.function:
            self._shipped = Shipped(self.function)
        kept = "Values computed so far are kept; set `.pool` to a fresh pool and call again."
        try:
            for i, outcomes in self._shipped.outcomes(self.pool, tasks):
                yield from ((i * size + j, o) for j, o in enumerate(outcomes) if o is not None)
        except PoolError:
            raise
        except DeadWorkerError as error:
            where = " or ".join(shown(p) for p in error.points[:SHOWN])
            left = len(error.points) - SHOWN
            more = f" or {left} more" if left > 0 else ""
            raise PoolError(
                f"a worker of the pool died at {where}{more} ({error}). {kept}"
            ) from error
        except Exception as error:
            raise PoolError(f"the pool failed, {type(error).__name__}: {error}. {kept}") from error

    def _number(self, value: Any, point: tuple[Any, ...]) -> float:
        if not _is_number(value, nan=True):
            shape = getattr(value, "shape", None)
            got = type(value).__name__ if shape is None else f"shape {shape}"
            raise BlackBoxError(
                f"the black box returned {got} at {shown(point)}, expected one number; for a "
                "function of batches pass vectorized=True"
            )
        return float(value)


class WithGradient(BlackBox):
    """A log-likelihood from outside PyTorch that knows its gradient; see :func:`with_gradient`."""

    differentiable = True

    def __call__(self, params: Mapping[str, Tensor], active: Active | None = None) -> Tensor:
        names = list(params)
        value: Tensor = _Bridge.apply(self, names, active, *params.values())
        return value

    def evaluate(
        self, params: Mapping[str, Tensor], active: Active | None
    ) -> tuple[Tensor, list[Tensor]]:
        like, batch = _on_host(params, active)
        n = len(like)
        if self.vectorized:
            value, gradient = self._pair(self._whole(batch, n), point_of(batch))
            self._check(value, gradient, params, n, point_of(batch))
        else:
            points = _points(batch, n)
            pairs = [self._pair(v, p) for v, p in self._values_of(points)]
            for (v, g), point in zip(pairs, points, strict=True):
                self._number(v, point)
                lifted = {k: np.asarray(x)[None] for k, x in g.items()}
                self._check(np.asarray(v)[None], lifted, params, 1, point)
            value = np.array([float(v) for v, _ in pairs])
            gradient = {k: np.stack([np.asarray(g[k]) for _, g in pairs]) for k in params}
        slopes = [torch.as_tensor(np.asarray(gradient[k])).to(params[k]) for k in params]
        return torch.as_tensor(np.asarray(value)).to(like), slopes

    def _pair(self, found: Any, point: tuple[Any, ...]) -> tuple[Any, Mapping[str, Any]]:
        if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], Mapping)):
            raise BlackBoxError(
                f"with_gradient: expected (value, dict of gradients) at {shown(point)}, got "
                f"{type(found).__name__}"
            )
        return found

    def _check(
        self,
        value: Any,
        gradient: Mapping[str, Any],
        params: Mapping[str, Tensor],
        n: int,
        point: tuple[Any, ...],
    ) -> None:
        shapes = {k: (n, *v.shape[1:]) for k, v in params.items()}
        got = {k: np.shape(gradient[k]) for k in shapes if k in gradient}
        if got != shapes or np.shape(value) != (n,):
            raise BlackBoxError(
                f"with_gradient: expected a value of shape ({n},) and gradients {shapes}, got "
                f"{np.shape(value)} and {got} at {shown(point)}"
            )


class _Bridge(torch.autograd.Function):
    """Gradients that come with the value."""

    @staticmethod
    def forward(ctx: Any, box: WithGradient, names: list[str], active: Any, *values: Tensor) -> Any:
        value, slopes = box.evaluate(dict(zip(names, values, strict=True)), active)
        ctx.save_for_backward(*slopes)
        return value

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> Any:
        slopes = ctx.saved_tensors
        scaled = [g * outer.reshape(-1, *[1] * (g.dim() - 1)) for g in slopes]
        return None, None, None, *scaled


def with_gradient(
    function: Callable[..., Any], *, vectorized: bool = False, pool: Any = None
) -> WithGradient:
    """A log-likelihood that returns its value and its gradient: Stan, JAX, adjoint codes.

    Arguments:
        function: As in :class:`BlackBox`, but returns ``(value, gradients)``, the gradients a
            dict by parameter name, of the parameters' shapes (with a leading C where
            vectorised), in the parameters' natural units.
        vectorized: Whether the function takes batches.
        pool: As in :class:`BlackBox`.

    Returns:
        A function for ``log_likelihood=``; training and Hamiltonian moves use the gradients.

    Example:
        >>> f = with_gradient(lambda p: (-0.5 * p["x"] ** 2, {"x": -p["x"]}))
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> f({"x": x}).sum().backward()
        >>> x.grad
        tensor([-1., -2.])
    """
    return WithGradient(function, vectorized=vectorized, pool=pool)


def _on_host(params: Mapping[str, Tensor], active: Active | None) -> tuple[Tensor, tuple[Any, ...]]:
    """A tensor to return like, and the arguments of the whole batch in NumPy."""
    like = next(iter(params.values())).detach() if params else torch.zeros(1)
    host = {k: v.detach().cpu().double().numpy() for k, v in params.items()}
    if active is None:
        return like, (host,)
    return like, (host, each_kind(active, lambda on: on.cpu().numpy()))


def each_kind(active: Any, function: Callable[[Any], Any]) -> Any:
    """A function of what is on, kind by kind, or of each parameter."""
    if isinstance(active, Mapping):
        return {kind: function(on) for kind, on in active.items()}
    return function(active)


def _points(batch: tuple[Any, ...], n: int) -> list[tuple[Any, ...]]:
    """The arguments of a batch point by point."""
    return [point_of(batch, i) for i in range(n)]


def point_of(batch: tuple[Any, ...], i: Any = 0) -> tuple[Any, ...]:
    """Arguments of one point of a batch, or of a slice of it."""
    return tuple(each_kind(x, lambda v: v[i]) for x in batch)


def _key(point: tuple[Any, ...]) -> bytes:
    told = [each_kind(x, lambda v: (np.shape(v), np.asarray(v).tobytes())) for x in point]
    return repr(told).encode()


def shown(point: tuple[Any, ...]) -> str:
    """Parameters of one point by name, and what is active there."""
    params, *rest = point
    words = [f"{k}={np.array2string(np.asarray(v), precision=6)}" for k, v in params.items()]
    words += [f"active={each_kind(x, lambda on: np.asarray(on).astype(int))}" for x in rest]
    return "(" + ", ".join(words) + ")"


def _is_number(value: Any, nan: bool = False) -> bool:
    if isinstance(value, float):  # of Python or float64, as nearly all are
        return nan or value == value
    if isinstance(value, tuple):  # a value with its gradient: judged elsewhere
        return len(value) == 2 and _is_number(value[0])
    found = np.asarray(value)
    if found.shape != () or not np.issubdtype(found.dtype, np.number):
        return False
    return nan or not np.isnan(found)
