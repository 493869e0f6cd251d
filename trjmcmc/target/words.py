"""Targets in words, for those who look at one."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Uniform

from .density import Block, Density

MOST = 12  # models that are listed

TRIED = 1000  # points at which it is counted how many observations are possible

WIDE = 1e6  # width of a flat prior that is named where no draw of it is possible


class InWords:
    """What shows its models, parameters and axes when it is printed."""

    def __repr__(self) -> str:
        return in_words(self)

    def too_wide(self) -> str:
        """The widest flat prior, where no likelihood reaches it, as the end of a sentence."""
        target: Any = self
        priors = [block.prior for density in target._densities.each for block in density.blocks]
        flat = [
            (float((p.spec.high - p.spec.low).max()), p)
            for p in priors
            if isinstance(p.spec, Uniform)
        ]
        width, prior = max(flat, key=lambda found: found[0], default=(0.0, None))
        if prior is None or width < WIDE:
            return ""
        return (
            f"; the prior of {prior.name!r} in {prior.owner} is flat over {width:.3g}: give it the "
            "range that is possible, on which its evidence depends"
        )

    def nearly_possible(self, code: Tensor, theta: Tensor) -> str:
        """How much of the data is possible at best, where no point of a model allows them all.

        Arguments:
            code: The model, shape (L,).
            theta: Some points, shape (n, D), of which the first thousand are tried.

        Returns:
            The end of a sentence; empty where the likelihood is no :class:`trjmcmc.Observed`.
        """
        target: Any = self
        if not target.is_observed:
            return ""
        pointwise = target.densities.of(code).likelihood.function.pointwise
        each = torch.as_tensor(target.apply(pointwise, code, theta[:TRIED])).flatten(1)
        best = float((each > -math.inf).double().mean(1).max())
        return (
            f"; the largest share of the {each.shape[1]} observations that one allows is {best:.0%}"
        )


def in_words(target: Any) -> str:
    """Models with the parameters of each, or the space with those of all; size and precision."""
    space, each = target.space, target._densities.each
    many = "no end of" if space.size is None else f"{space.size:,}"
    head = f"of {many} model{'s' * (space.size != 1)}, {target.dim} coordinates"
    precision = str(target.dtype).removeprefix("torch.")
    lines = [f"Target {head}, {precision} on {target.device}"]
    if not target.models:
        return "\n".join([*lines, f"  {type(space).__name__}: {_parameters(each[0], {})}"])
    for model, density in list(zip(target.models, each, strict=True))[:MOST]:
        origin = getattr(model, "language", "") or (model.on_reference and "joint on a reference")
        said = f" ({origin})" if origin else ""
        lines.append(f"  {model.name}{said}: {_parameters(density, model.dims)}")
    if len(each) > MOST:
        lines.append(f"  and {len(each) - MOST} more")
    return "\n".join(lines)


def _parameters(density: Density, dims: Any) -> str:
    return ", ".join(_parameter(b, dims) for b in density.blocks) or "no parameters"


def _parameter(block: Block, dims: Any) -> str:
    """A name, with its axes where it has some: by name where the model names them."""
    name, shape = block.prior.name, block.prior.shape
    if not math.prod(shape) or not shape:
        return name if not shape else f"{name}[0]"
    axes = dims.get(name, ())
    if len(axes) != len(shape):
        return f"{name}[{', '.join(map(str, shape))}]"
    return f"{name}[{', '.join(f'{a}={n}' for a, n in zip(axes, shape, strict=True))}]"
