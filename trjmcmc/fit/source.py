"""Where draws come from that a fit learns from, if it learns from any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..draws import Pool
from ..errors import ConfigurationError
from ..pilot.given import check_pilot, user_pool
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
    check_pilot(target, pilot, otherwise=otherwise)
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
