"""Pilot draws that users bring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..draws import Pool
from ..errors import ConfigurationError, ConvergenceWarning, TargetError, warn_user
from ..promises import MODELS_ONE_BY_ONE
from ..target.names import as_stated
from ..target.target import Target


def check_pilot(target: Target, pilot: Any, *, otherwise: bool) -> None:
    """Refuse draws to train on that are none, or that nothing gives.

    Arguments:
        target: The target.
        pilot: As of :meth:`trjmcmc.TRJSampler.fit`.
        otherwise: Whether the user trains on an objective of his own.

    Raises:
        ConfigurationError: What is wrong.
    """
    if pilot is True and not target.space.few:
        raise ConfigurationError(
            f"pilot: a pilot run visits each model and takes {MODELS_ONE_BY_ONE} at most; this "
            f"space has {target.space.size}"
        )
    if pilot is False and not otherwise and not target.differentiable:
        raise ConfigurationError(
            "pilot: a likelihood without gradients needs draws to train on; leave pilot out, or "
            "pass your own draws"
        )
    if isinstance(pilot, str):
        raise ConfigurationError(f"pilot: expected a bool or draws, got {pilot!r}")


def user_pool(target: Target, draws: Mapping[Any, Mapping[str, Any]]) -> Pool:
    """The user's own posterior draws.

    Arguments:
        target: The target.
        draws: By model label, parameters by name in natural units, each of shape (n, *shape), as
            :meth:`trjmcmc.Result.draws` returns them.

    Raises:
        TargetError: No draws, or draws outside a prior's support.
        UnknownModelError: There is no such model.

    Example:
        >>> from trjmcmc import problems
        >>> target = problems.sinh_arcsinh()
        >>> user_pool(target, {"1d": {"x": [[0.5], [0.6]]}, "2d": {"x": [[0.1, 0.2]]}}).theta.shape
        torch.Size([3, 2])
    """
    for model, params in draws.items():
        target.space.code_of(model)
        if not isinstance(params, Mapping):
            raise TargetError(
                f"pilot: expected for model {model!r} a dict of parameters by name, got "
                f"{type(params).__name__}"
            )
    parts = []
    for model, params in draws.items():
        theta = target.unconstrain(model, _named(target, model, params))
        if not len(theta):
            raise TargetError(f"pilot: no draws of model {model!r}; leave it out")
        code = target.space.code_of(model).to(target.device).expand(len(theta), -1)
        with torch.no_grad():
            log_joint = target.log_joint(code, theta).double()
        if not bool((theta.isfinite().all(-1) & log_joint.isfinite()).all()):
            bad = int((theta.isfinite().all(-1) & log_joint.isfinite()).int().argmin())
            raise TargetError(
                f"pilot: draw {bad} of model {model!r} has no finite density; is it in the "
                "prior's support, in natural units?"
            )
        parts.append((code, theta, log_joint))
    if not parts:
        raise TargetError("pilot: no draws")
    pool = Pool(*(torch.cat(x) for x in zip(*parts, strict=True)))
    _warn_of_missing(target, pool)
    return pool


def _named(target: Target, model: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters by their names in the target, where those of the model's statement are given."""
    known = next((m.priors for m in target.models if m.name == model), {})
    here = {as_stated(k, str(model), params): k for k in known}
    return {here.get(k, k): v for k, v in params.items()}


def _warn_of_missing(target: Target, pool: Pool) -> None:
    """Warn where models have no draws: the map learns nothing of those."""
    space = target.space
    if not space.few:
        return
    codes = space.enumerate()
    shaped = space.active(codes).any(-1)
    shaped[space.index(pool.code)] = False
    if bool(shaped.any()):
        warn_user(
            f"pilot: no draws of {', '.join(space.label(codes[shaped]))}; the map learns nothing "
            "of models without draws, and chains will hardly enter them through it",
            ConvergenceWarning,
        )
