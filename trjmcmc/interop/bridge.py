"""Functions outside torch that know their gradients, as functions of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]

Arrays = Mapping[str, Array]


class Both(NamedTuple):
    """Log prior and log likelihood at C points, with gradients where they were asked for.

    Attributes:
        log_prior: Of the values, without any Jacobian, shape (C,), nats.
        log_likelihood: Shape (C,), nats.
        prior_slopes, likelihood_slopes: Gradients by parameter, shape (C, *shape); a parameter
            that is missing has none.
    """

    log_prior: Array
    log_likelihood: Array
    prior_slopes: Arrays
    likelihood_slopes: Arrays


class Fused:
    """One call for value and gradient of prior and likelihood, for ``fused=`` of a model.

    Arguments:
        function: Of values by name, NumPy arrays (C, *shape), and whether gradients are wanted.

    Example:
        >>> def normal(values, gradient):
        ...     x = values["x"]
        ...     slopes = ({"x": -x}, {"x": 1 - x}) if gradient else ({}, {})
        ...     return Both(-0.5 * x**2, -0.5 * (1 - x) ** 2, *slopes)
        >>> x = torch.tensor([0.0, 2.0], requires_grad=True)
        >>> log_prior, log_likelihood = Fused(normal)({"x": x})
        >>> torch.autograd.grad((log_prior + 0.5 * log_likelihood).sum(), x)
        (tensor([ 0.5000, -2.5000]),)
    """

    def __init__(self, function: Callable[[dict[str, Array], bool], Both]) -> None:
        self.function = function

    def __call__(self, params: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        wanted = torch.is_grad_enabled() and any(v.requires_grad for v in params.values())
        if wanted:
            found: tuple[Tensor, Tensor] = _Both.apply(self, list(params), *params.values())
            return found
        like = next(iter(params.values()))
        both = self.function({k: on_host(v) for k, v in params.items()}, False)
        return tensor_of(both.log_prior, like), tensor_of(both.log_likelihood, like)


class _Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, fused: Fused, names: list[str], *values: Tensor) -> Any:
        host = {k: on_host(v) for k, v in zip(names, values, strict=True)}
        both = fused.function(host, True)
        like = values[0]
        out = tensor_of(both.log_prior, like), tensor_of(both.log_likelihood, like)
        parts = (both.prior_slopes, both.likelihood_slopes)
        ctx.there = [[k in slopes for k in names] for slopes in parts]
        known = [tensor_of(slopes[k], like) for slopes in parts for k in names if k in slopes]
        ctx.count = len(values)
        ctx.save_for_backward(*values, *out, *known)
        return out

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        count, saved = ctx.count, ctx.saved_tensors
        inputs, out, slopes = saved[:count], saved[count : count + 2], iter(saved[count + 2 :])
        total: list[Tensor | None] = [None] * count
        for value, by, there in zip(out, outer, ctx.there, strict=True):
            by = torch.where(value.isfinite(), by, 0.0)
            for i, known in enumerate(there):
                if known:
                    part, before = scaled(next(slopes), by), total[i]
                    total[i] = part if before is None else before + part
        return None, None, *(None if x is None else once(x, inputs) for x in total)


def scaled(slope: Tensor, by: Tensor) -> Tensor:
    """Rows times numbers, zero where the number is, whatever the row."""
    by = by.reshape(-1, *[1] * (slope.dim() - 1))
    return torch.where(by == 0, 0.0, slope * by)


class _Once(torch.autograd.Function):
    """A gradient whose own gradient is not known: an error, where autograd would say zero."""

    @staticmethod
    def forward(ctx: Any, slope: Tensor, *inputs: Tensor) -> Any:
        return slope.clone()

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        raise RuntimeError("a function outside torch is differentiated once, not twice")


def once(slope: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    """The gradient, which may not be differentiated again."""
    if not torch.is_grad_enabled():
        return slope
    found: Tensor = _Once.apply(slope, *inputs)
    return found


class Pulled(Protocol):
    """A function of arrays with its vector-Jacobian product."""

    def value(self, arrays: Sequence[Array]) -> Array:
        """What it is."""

    def pull_back(self, arrays: Sequence[Array], outer: Array) -> Sequence[Array]:
        """Gradient of the sum of ``outer`` times the value, by argument."""


def through(function: Pulled, tensors: Sequence[Tensor]) -> Tensor:
    """The value of a function outside torch at tensors, differentiable once."""
    found: Tensor = _Through.apply(function, *tensors)
    return found


class _Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Pulled, *tensors: Tensor) -> Any:
        ctx.function = function
        ctx.save_for_backward(*tensors)
        return tensor_of(function.value([on_host(x) for x in tensors]), tensors[0])

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        tensors = ctx.saved_tensors
        slopes = ctx.function.pull_back([on_host(x) for x in tensors], on_host(outer[0]))
        found = [tensor_of(s, x) for s, x in zip(slopes, tensors, strict=True)]
        return None, *(once(s, tensors) for s in found)


def on_host(x: Tensor) -> Array:
    """A tensor's numbers as a NumPy array, shared where they are on the host."""
    found: Array = x.detach().cpu().numpy()
    return found


def tensor_of(x: Any, like: Tensor) -> Tensor:
    """An array as a tensor in the precision and on the device of another.

    Always a copy, or writable: arrays of other languages may be shared with them.
    """
    x = np.asarray(x)
    if not x.flags.writeable:
        x = x.copy()
    return torch.as_tensor(x).to(device=like.device, dtype=like.dtype)
