"""Where draws come from that a fit learns from, if it learns from any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..draws import Pool
from ..errors import ConfigurationError, ConvergenceWarning, TargetError, warn_user
from ..promises import MODELS_ONE_BY_ONE
from ..target.names import as_stated
from ..target.target import Target

Pilot = bool | str | Mapping[Any, Mapping[str, Any]] | Pool | None

BY = ("pilot", "vi")  # draws of tempered runs that owe nothing to the map; variational inference


def source(target: Target, by: str | None, pilot: Pilot, *, otherwise: bool) -> Pilot:
    """The draws to learn from; None leaves them to the size of the space, False takes none.

    Arguments:
        target: The target.
        by: What the user names: one of :data:`BY`, or None.
        pilot: Draws that the user gives, or how to make them.
        otherwise: Whether an objective is given that the fit learns by.

    Raises:
        ConfigurationError: Settings that contradict each other, or no gradient where it is needed.

    Example:
        >>> from trjmcmc import problems
        >>> source(problems.sinh_arcsinh(), "vi", None, otherwise=False)
        False
    """
    if by not in (None, *BY):
        raise ConfigurationError(f"by: expected one of {BY}, got {by!r}")
    if by is not None and otherwise:
        raise ConfigurationError("by, objective: give one of them")
    if by == "vi":
        if pilot not in (None, False):
            raise ConfigurationError('by="vi": it takes no pilot draws; leave pilot out')
        if not target.differentiable:
            raise ConfigurationError(
                'by="vi": variational inference needs the gradient of the likelihood; write it in '
                "torch, or wrap it by trj.with_gradient"
            )
        pilot = False
    elif by == "pilot":
        if pilot is False:
            raise ConfigurationError('by="pilot": it needs pilot draws; leave pilot out')
        pilot = True if pilot is None else pilot
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
    return pilot


def given_draws(target: Target, pilot: Pilot) -> Pool | None:
    """Draws to learn from that are no tempered run's; None where none were given.

    Arguments:
        target: The target.
        pilot: As :func:`source` returns it.
    """
    if isinstance(pilot, Pool):
        return pilot
    return user_pool(target, pilot) if isinstance(pilot, Mapping) else None


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
