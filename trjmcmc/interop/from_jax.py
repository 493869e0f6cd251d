"""Likelihoods that are functions in JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import ShapeError, TargetError
from .extras import needed
from .jax_batches import Batched, in_float64, with_precision, with_slopes
from .jax_failures import tracing_failure

Active = Tensor | Mapping[str, Tensor]


def from_jax(function: Callable[..., Any], *, vectorized: bool = False) -> LikelihoodInJAX:
    """A log-likelihood in JAX, as ``log_likelihood=`` of a model or a target.

    JAX differentiates it; value and gradient are one call, mapped over the batch and compiled for
    two sizes of batches. Priors stay those of torch, SciPy or NumPyro.

    Arguments:
        function: Gets a dict of JAX arrays, one point in the parameters' own shapes, and returns
            one number, nats; in the form with a space also the boolean array ``active``, or a
            dict of them by kind. It must be one that ``jax.jit`` takes.
        vectorized: Whether it takes batches, (C, *shape), and returns (C,).

    Computes in the precision that JAX is set to when this is called, and a target takes that
    for its own: float32, unless ``jax.config.update("jax_enable_x64", True)`` came before.

    Raises:
        TargetError: ``function`` can't be called.
        ConfigurationError: JAX is not installed.

    Example:
        >>> import jax.numpy as jnp
        >>> f = from_jax(lambda p: -0.5 * jnp.sum(p["x"] ** 2))
        >>> x = torch.tensor([[1.0, 2.0], [3.0, 1.0]], requires_grad=True)
        >>> value = f({"x": x})
        >>> value.sum().backward()
        >>> value.detach(), x.grad
        (tensor([-2.5000, -5.0000]), tensor([[-1., -2.],
            [-3., -1.]]))
    """
    needed("jax", "numpyro", "from_jax")
    if not callable(function):
        raise TargetError(f"from_jax: expected a function, got {function!r}")
    return LikelihoodInJAX(function, vectorized)


class LikelihoodInJAX:
    """See :func:`from_jax`.

    Attributes:
        dtype: Precision that it computes in.
    """

    def __init__(self, function: Callable[..., Any], vectorized: bool) -> None:
        self.function, self.vectorized = function, vectorized
        self.x64 = in_float64()
        self.dtype = torch.float64 if self.x64 else torch.float32
        self._compiled: dict[tuple[str, ...], tuple[Batched, Batched]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> LikelihoodInJAX:
        return self  # compiled code can't be copied

    def __call__(self, params: Mapping[str, Tensor], active: Active | None = None) -> Tensor:
        if not params and active is None:
            with with_precision(self.x64):
                return torch.tensor(float(self.function({})), dtype=self.dtype)
        on = _by_kind(active)
        for name, x in params.items():
            if x.dtype == torch.float64 and not self.x64:
                raise TargetError(
                    f"from_jax: {name!r} is float64, and JAX was in float32 when this was made; "
                    "call jax.config.update('jax_enable_x64', True) before, or leave the target's "
                    "dtype out"
                )
        keys = (*params, *(f"active {k}" for k in on))
        if keys not in self._compiled:
            self._check([*params], [*on], [*params.values(), *on.values()])
            self._compiled[keys] = self._both(list(params), list(on))
        value, slopes = self._compiled[keys]
        columns = [*(v.to(self.dtype) for v in params.values()), *on.values()]
        if torch.is_grad_enabled() and any(x.requires_grad for x in params.values()):
            (found,) = with_slopes(slopes, columns, 1, len(params))
        else:
            (found,) = value.of_tensors(*columns)
        result: Tensor = found
        return result

    def _called(self, names: list[str], kinds: list[str], columns: Any) -> Any:
        params = dict(zip(names, columns, strict=False))
        on = columns[len(names) :]
        if not kinds:
            return self.function(params)
        return self.function(params, on[0] if kinds == [""] else dict(zip(kinds, on, strict=True)))

    def _both(self, names: list[str], kinds: list[str]) -> tuple[Batched, Batched]:
        """The value, and the value with gradients by parameter, compiled at their first call."""
        jax = needed("jax", "numpyro", "from_jax")

        def value(*columns: Any) -> tuple[Any]:
            return (self._called(names, kinds, columns),)

        def slopes(*columns: Any) -> tuple[Any, ...]:
            def of(params: Any) -> Any:
                found = self._called(names, kinds, (*params, *columns[len(names) :]))
                return found.sum(), found

            (_, found), gradient = jax.value_and_grad(of, has_aux=True)(columns[: len(names)])
            return found, *gradient

        mapped = not self.vectorized
        return tuple(Batched(f, x64=self.x64, mapped=mapped) for f in (value, slopes))  # type: ignore[return-value]

    def _check(self, names: list[str], kinds: list[str], columns: list[Tensor]) -> None:
        """Try it on shapes alone: what it returns, and whether JAX can trace it."""
        jax = needed("jax", "numpyro", "from_jax")
        lead = 0 if self.vectorized else 1
        with with_precision(self.x64):
            like = [
                jax.ShapeDtypeStruct(tuple(x.shape[lead:]), str(x.dtype).removeprefix("torch."))
                for x in columns
            ]
            try:
                found = jax.eval_shape(lambda *c: self._called(names, kinds, c), *like)
            except Exception as error:
                name, text = type(error).__name__, (str(error).splitlines() or [""])[0]
                known = tracing_failure(error, "a parameter's value")
                hint = f"it failed: {text}" if known is None else f"it {known[0]}; {known[1]}"
                if isinstance(error, KeyError):
                    hint = f"it asks for {text}; its parameters are {names}"
                raise TargetError(f"from_jax: {hint} ({name})") from error
        expected = (len(columns[0]),) if self.vectorized else ()
        shape = getattr(found, "shape", None)
        if shape != expected:
            hint = "a batch of points" if self.vectorized else "one point; sum over the data"
            got = type(found).__name__ if shape is None else f"shape {shape}"
            raise ShapeError(f"from_jax: expected shape {expected} for {hint}, got {got}")


def _by_kind(active: Active | None) -> dict[str, Tensor]:
    """What is on, by kind; under no name where there is one kind alone."""
    if active is None:
        return {}
    return {"": active} if isinstance(active, Tensor) else dict(active)
