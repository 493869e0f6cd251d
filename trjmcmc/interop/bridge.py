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


class FusedCall:
    """One call for value and gradient of prior and likelihood, for ``fused=`` of a model.

    Arguments:
        function: Of values by name, NumPy arrays (C, *shape), and whether gradients are wanted.

    Example:
        >>> def normal(values, gradient):
        ...     x = values["x"]
        ...     slopes = ({"x": -x}, {"x": 1 - x}) if gradient else ({}, {})
        ...     return Both(-0.5 * x**2, -0.5 * (1 - x) ** 2, *slopes)
        >>> x = torch.tensor([0.0, 2.0], requires_grad=True)
        >>> log_prior, log_likelihood = FusedCall(normal)({"x": x})
        >>> torch.autograd.grad((log_prior + 0.5 * log_likelihood).sum(), x)
        (tensor([ 0.5000, -2.5000]),)
    """

    def __init__(self, function: Callable[[dict[str, Array], bool], Both]) -> None:
        self.function = function

    def __call__(self, params: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        like, names = next(iter(params.values())), list(params)
        wanted = torch.is_grad_enabled() and any(v.requires_grad for v in params.values())

        def compute(tensors: Sequence[Tensor]) -> Computed:
            host = {k: on_host(v) for k, v in zip(names, tensors, strict=True)}
            both = self.function(host, wanted)
            values = tensor_of(both.log_prior, like), tensor_of(both.log_likelihood, like)
            slopes = [
                [tensor_of(known[k], like) if k in known else None for k in names]
                for known in (both.prior_slopes, both.likelihood_slopes)
            ]
            return values, by_slopes(values, slopes)

        tensors = list(params.values())
        found = differentiable(compute, tensors) if wanted else compute(tensors)[0]
        return found[0], found[1]


Slopes = Sequence[Tensor | None]  # by argument; None of those that have no gradient

PullBack = Callable[[Sequence[Tensor]], Slopes]  # of gradients by value, gradients by argument

Computed = tuple[tuple[Tensor, ...], PullBack]


def differentiable(
    compute: Callable[[Sequence[Tensor]], Computed], tensors: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Values of a function outside torch at tensors, differentiable once.

    Arguments:
        compute: Of the tensors: values, and a function of gradients by value, that gives the
            gradients by argument; both without torch's autograd.
        tensors: Its arguments.

    Example:
        >>> def double(tensors):
        ...     return (2 * tensors[0],), lambda outer: [2 * outer[0]]
        >>> x = torch.tensor(3.0, requires_grad=True)
        >>> (value,) = differentiable(double, [x])
        >>> torch.autograd.grad(value, x)
        (tensor(2.),)
    """
    found: tuple[Tensor, ...] = _Outside.apply(compute, *tensors)
    return found


class _Outside(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, compute: Callable[..., Computed], *tensors: Tensor) -> Any:
        values, ctx.pull_back = compute(tensors)
        ctx.save_for_backward(*tensors)
        return values

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        inputs, slopes = ctx.saved_tensors, ctx.pull_back(outer)
        return None, *(None if x is None else once(x, inputs) for x in slopes)


def by_slopes(values: Sequence[Tensor], slopes: Sequence[Slopes]) -> PullBack:
    """The gradients by argument where those of each value are known.

    Arguments:
        values: Shape (C,) each; where one is not finite its gradients count for nothing.
        slopes: By value and argument, (C, *shape).
    """
    finite = [value.isfinite() for value in values]

    def pull_back(outer: Sequence[Tensor]) -> Slopes:
        total: list[Tensor | None] = [None] * len(slopes[0])
        for fine, by, each in zip(finite, outer, slopes, strict=True):
            by = torch.where(fine, by, 0.0)
            for i, slope in enumerate(each):
                if slope is not None:
                    part, before = scaled(slope, by), total[i]
                    total[i] = part if before is None else before + part
        return total

    return pull_back


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
    """The value of a function of arrays at tensors, differentiable once."""

    def compute(tensors: Sequence[Tensor]) -> Computed:
        arrays = [on_host(x) for x in tensors]

        def pull_back(outer: Sequence[Tensor]) -> Slopes:
            slopes = function.pull_back(arrays, on_host(outer[0]))
            return [tensor_of(s, x) for s, x in zip(slopes, tensors, strict=True)]

        return (tensor_of(function.value(arrays), tensors[0]),), pull_back

    return differentiable(compute, tensors)[0]


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
