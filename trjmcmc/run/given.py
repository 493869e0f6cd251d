"""What users may give in several forms."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any

import torch

from ..draws import Pool
from ..errors import ConfigurationError, TargetError
from ..result.result import Result
from ..space.base import Space
from ..target.target import Target
from ..weights.base import ModelWeights
from .maps import default_weights

MakeWeights = Callable[[Space], ModelWeights]


def weights_maker(
    target: Target, models: ModelWeights | MakeWeights | None
) -> Callable[[], ModelWeights] | None:
    """Gives the q(m) that a fit learns, or None where it learns none."""
    space = target.space
    if models is None:
        learns = not space.few and not space.graphs and target.dim > 0
        return (lambda: default_weights(space)) if learns else None
    if not isinstance(models, ModelWeights) and callable(models):
        models = models(space)
    fits = isinstance(models, ModelWeights) and models.space.code_width == space.code_width
    if not fits:
        raise ConfigurationError(
            "models: expected a trj.ModelWeights over the target's space, or a function "
            f"of the space that makes one, such as trj.Made; got {models!r}"
        )
    return lambda: models.to(target.device)


def as_pool(pilot: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """Points of a result, or of particles; anything else as it is."""
    if isinstance(held := getattr(pilot, "pool", None), Pool):
        return held
    if not isinstance(pilot, Result):
        return pilot
    code, theta = pilot.raw.flat()
    log_joint = pilot.raw.log_joint.flatten().double()
    return Pool(code.to(device), theta.to(device, dtype), log_joint.to(device))


def check_given(
    target: object, dtype: torch.dtype | None, device: str | torch.device | None, seed: object
) -> None:
    """Refuse what a sampler can't work with.

    Raises:
        TargetError: No target.
        ConfigurationError: Another precision, a device that is not there, a seed that is none.
    """
    if not isinstance(target, Target):
        raise TargetError(f"target: expected a trj.Target, got {type(target).__name__}")
    if dtype not in {None, torch.float32, torch.float64}:
        raise ConfigurationError(f"dtype: expected torch.float32 or float64, got {dtype}")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigurationError(f"device: {device!r} is not there ({error})") from None
    if seed is not None and not isinstance(seed, Integral):
        raise ConfigurationError(f"seed: expected an integer, got {seed!r}")
