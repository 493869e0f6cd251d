"""What users give and ask, refused where it can not be."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import torch

from ..checks import checked_dtype
from ..draws import Pool
from ..errors import ConfigurationError, TargetError
from ..result.result import Result
from ..space.base import Space
from ..target.target import Target
from ..weights.base import ModelWeights
from ..weights.made import Made
from .tasks import TaskQueue

MakeWeights = Callable[[Space], ModelWeights]


def weights_maker(
    target: Target, models: ModelWeights | MakeWeights | None
) -> Callable[[], ModelWeights] | None:
    """Gives the q(m) that a fit learns, or None where it learns none."""
    space = target.space
    if models is None:
        learns = not space.few and not space.graphs and target.dim > 0
        return (lambda: Made(space)) if learns else None
    if not isinstance(models, ModelWeights) and callable(models):
        models = models(space)
    fits = isinstance(models, ModelWeights) and models.space.code_width == space.code_width
    if not fits:
        raise ConfigurationError(
            "models: expected a trj.weights.ModelWeights over the target's space, or a function "
            f"of the space that makes one, such as trj.weights.Made; got {models!r}"
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
    checked_dtype(dtype)
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigurationError(f"device: {device!r} is not there ({error})") from None
    if seed is not None and not isinstance(seed, Integral):
        raise ConfigurationError(f"seed: expected an integer, got {seed!r}")


def check_counts(
    draws: int | None, chains: int = 1, thin: int = 1, warmup: int | None = None
) -> None:
    """Refuse counts that are no counts.

    Raises:
        ConfigurationError: One is no integer, or too small.
    """
    counts = (1 if draws is None else draws, chains, thin, 0 if warmup is None else warmup)
    if not all(isinstance(n, int) for n in counts):
        raise ConfigurationError(f"run: draws, chains, thin, warmup are integers, got {counts}")
    if min(counts[:3]) < 1 or counts[3] < 0:
        raise ConfigurationError(
            "run: expected draws, chains, thin >= 1 and warmup >= 0, got "
            f"draws={draws}, chains={chains}, thin={thin}, warmup={warmup}"
        )


def check_seconds(max_seconds: float | None) -> None:
    """Refuse a limit of time that is none.

    Raises:
        ConfigurationError: It is no positive number.
    """
    if max_seconds is not None and not (isinstance(max_seconds, Real) and max_seconds > 0):
        raise ConfigurationError(f"max_seconds: expected a positive number, got {max_seconds!r}")


def check_fit(fit: bool | str, space: Space) -> None:
    """Refuse a way to train that there is not.

    Arguments:
        fit: As of :meth:`trjmcmc.TRJSampler.run`.
        space: Of the models; over many graphs no map is trained.

    Raises:
        ConfigurationError: Something else was asked for, or no map may be trained.
    """
    if fit not in {"auto", "vi", True, False}:
        raise ConfigurationError(f'fit: expected "auto", "vi", True or False, got {fit!r}')
    if fit in {True, "vi"} and space.graphs and not space.few:
        raise ConfigurationError(
            f"fit={fit!r}: no map is trained over so many graphs; run() samples them"
        )


def grid_of(shards: int | None, executor: Any) -> TaskQueue | None:
    """What the user asks, or None of one batch of chains here.

    Raises:
        ConfigurationError: Less than one shard, or workers for none.
    """
    if shards is None:
        if executor is not None:
            raise ConfigurationError("executor: say how many shards it is to work on, shards=16")
        return None
    if not isinstance(shards, Integral) or shards < 1:
        raise ConfigurationError(f"shards: expected an integer of 1 or more, got {shards!r}")
    return TaskQueue(int(shards), executor)
