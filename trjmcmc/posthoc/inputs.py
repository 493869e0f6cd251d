"""Draws, densities and supports as users have them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import constraints

from ..errors import ConfigurationError
from ..target.target import Target

ARRAY = "x"  # what the parameters of plain arrays are called inside

POINTS_CHECKED = 32  # at which stored values are compared with the function's

TOLERANCE = 1e-3  # nats that a stored value may differ by

RELATIVE_TOLERANCE = 1e-6  # of a stored value, likewise: it may be in float32

LEAST_DRAWS = 20  # in the half of the draws that a map is fitted to

Supports = Mapping[str, Any]


def as_dict(
    draws: Any, log_density: Any
) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.float64] | None, bool]:
    """Draws as users have them, by name.

    Arguments:
        draws: As :func:`trjmcmc.evidence_of_draws` takes them.
        log_density: Values of the density that the user's sampler stored, (chain, draw), or None.

    Returns:
        Arrays by parameter, (chain, draw, *shape); stored values, (chain, draw), or None; and
        whether the draws were one array without names.

    Raises:
        ConfigurationError: The arrays have no axes (chain, draw).
    """
    stored = None if log_density is None else np.asarray(log_density, dtype=float)
    if hasattr(draws, "get_chain"):  # emcee: (step, walker, d)
        if stored is None:
            stored = np.asarray(draws.get_log_prob()).T
        return {ARRAY: np.swapaxes(np.asarray(draws.get_chain(), dtype=float), 0, 1)}, stored, True
    if hasattr(draws, "posterior") or (hasattr(draws, "keys") and "posterior" in draws.keys()):  # noqa: SIM118
        posterior = draws["posterior"]
        names = [str(k) for k in posterior.data_vars]
        return {k: np.asarray(posterior[k], dtype=float) for k in names}, stored, False
    if isinstance(draws, Mapping):
        named = {str(k): np.asarray(v, dtype=float) for k, v in draws.items()}
        if any(v.ndim < 2 for v in named.values()):
            raise ConfigurationError(
                "draws: arrays in a dict have shape (chain, draw, ...); give one chain as (1, n)"
            )
        return named, stored, False
    x = np.asarray(draws, dtype=float)
    if x.ndim not in {1, 2, 3}:
        raise ConfigurationError(
            f"draws: expected (draw,), (draw, d) or (chain, draw, d), got {x.shape}"
        )
    x = x[:, None] if x.ndim == 1 else x
    return {ARRAY: x[None] if x.ndim == 2 else x}, stored, True


def check_draws(named: dict[str, NDArray[np.float64]]) -> tuple[int, int]:
    """Numbers of chains and of draws a chain.

    Raises:
        ConfigurationError: Draws are too few, not finite, or of different numbers.
    """
    if not named:
        raise ConfigurationError("draws: there is no parameter in them")
    shapes = {v.shape[:2] for v in named.values()}
    if len(shapes) > 1:
        raise ConfigurationError(f"draws: parameters differ in (chain, draw): {sorted(shapes)}")
    (chains, n) = shapes.pop()
    for name, value in named.items():
        if bad := int((~np.isfinite(value)).sum()):
            raise ConfigurationError(f"draws: {bad} values of {name!r} are NaN or infinite")
    d = sum(math.prod(v.shape[2:]) for v in named.values())
    if chains * (n // 2) <= max(d + 1, LEAST_DRAWS) or n < 4:
        raise ConfigurationError(
            f"draws: {chains} chains of {n} draws are too few for {d} parameters: half of them "
            f"must be more than the parameters and than {LEAST_DRAWS}, with four per chain"
        )
    return chains, n


def constraints_of(
    named: dict[str, NDArray[np.float64]], supports: Any, plain: bool
) -> dict[str, Any]:
    """A constraint for each parameter, as a user has given supports; ``plain`` for one array.

    Raises:
        ConfigurationError: No such parameter or support.
    """
    given: dict[str, Any] = {}
    if plain:
        d = named[ARRAY].shape[2]
        if isinstance(supports, list):
            if len(supports) != d:
                raise ConfigurationError(
                    f"supports: expected {d}, one per column, got {len(supports)}"
                )
            parts = [_constraint(s, 0) for s in supports]
            given[ARRAY] = constraints.stack(parts, dim=-1)
            return {ARRAY: constraints.independent(given[ARRAY], 1)}
        given = {} if supports is None else {ARRAY: supports}
    else:
        given = dict(supports or {})
    if unknown := sorted(set(given) - set(named)):
        raise ConfigurationError(f"supports: no parameter {unknown}; there are {sorted(named)}")
    return {k: _constraint(given.get(k), v.ndim - 2) for k, v in named.items()}


def _constraint(spec: Any, rank: int) -> Any:
    """A constraint of the whole of a parameter of some rank."""
    known = {
        None: constraints.real,
        "real": constraints.real,
        "positive": constraints.positive,
        "unit_interval": constraints.unit_interval,
        "simplex": constraints.simplex,
    }
    found: Any = spec
    if isinstance(spec, tuple):
        low, high = (float(x) for x in spec)
        if math.isinf(low) and math.isinf(high):
            found = constraints.real
        elif math.isinf(high):
            found = constraints.greater_than(low)
        elif math.isinf(low):
            found = constraints.less_than(high)
        else:
            found = constraints.interval(low, high)
    elif spec is None or isinstance(spec, str):
        if spec not in known:
            raise ConfigurationError(f"supports: expected one of {list(known)[1:]}, got {spec!r}")
        found = known[spec]
    else:
        found = spec
    return (
        constraints.independent(found, rank - found.event_dim) if rank > found.event_dim else found
    )


def rows_of(chains: int, n: int, some: slice) -> Tensor:
    """Positions of some draws of every chain in the order chain by chain, shape (m,)."""
    return torch.arange(chains * n).reshape(chains, n)[:, some].reshape(-1)


def to_numpy(value: Any) -> Any:
    """What a function in torch or NumPy returned, as NumPy has it."""
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value


def check_density(
    target: Target, code: Tensor, theta: Tensor, height: Tensor, stored: NDArray[np.float64]
) -> None:
    """Compare a density with the values that the user's sampler stored.

    Arguments:
        target: The density in unconstrained coordinates, with its Jacobian.
        code, theta: Draws, shapes (n, L) and (n, D).
        height: Log density of the target there, shape (n,), nats.
        stored: What the sampler stored, in the user's units, shape (n,), nats.

    Raises:
        ConfigurationError: They differ.
    """
    pick = torch.linspace(0, len(code) - 1, min(POINTS_CHECKED, len(code))).long()
    # the target's own density holds the Jacobian of the supports
    jacobian, _ = target.log_prior_and_likelihood(code[pick], theta[pick])
    here = (height[pick] - jacobian).numpy()
    there = stored[pick.numpy()]
    gap = np.abs(here - there)
    if not (gap <= TOLERANCE + RELATIVE_TOLERANCE * np.abs(there)).all():
        worst = int(np.nanargmax(gap)) if np.isfinite(gap).any() else 0
        raise ConfigurationError(
            f"log_joint: gives {here[worst]:.6g} where the stored value is {there[worst]:.6g}; "
            "the evidence would be that of another density"
        )
