"""Posteriors that an approximation is held against: draws, runs, distribution functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ConfigurationError
from ..estimate.content import Marginal
from ..estimate.mean import mean_error
from .numbers import numbers_of

Reference = Any  # a trj.Result or the like, or a mapping: see reference_of

CHAINS = 20  # pieces that draws are cut into, for their effective number


def reference_of(reference: Reference, label: str, numbers: Sequence[str]) -> dict[str, Marginal]:
    """What a reference says of each number of an answer that it knows.

    Arguments:
        reference: A run, or anything else with ``draws(model)``; or by name draws of parameters,
            shape (n, ...), or distribution functions (objects with ``cdf``, such as SciPy's frozen
            distributions).
        label: The model.
        numbers: Names of the answer's numbers.

    Raises:
        ConfigurationError: It knows none of them, or has draws that are not finite.
    """
    if not isinstance(reference, Mapping) and not hasattr(reference, "draws"):
        raise ConfigurationError(
            "reference: expected a trj.Result, or a dict of draws (n, ...) or of objects with cdf "
            f"by name, got {type(reference).__name__}"
        )
    given = reference if isinstance(reference, Mapping) else reference.draws(label)
    found: dict[str, Marginal] = {}
    for name, value in given.items():
        if (cdf := _cdf(value)) is not None:
            found[name] = Marginal(cdf=cdf)
            continue
        draws = np.asarray(value, dtype=float)
        if draws.ndim < 1 or len(draws) < 2 or not np.isfinite(draws).all():
            raise ConfigurationError(
                f"reference: expected two finite draws of {name!r} or more, (n, ...)"
            )
        columns = draws.reshape(len(draws), -1).T
        for number, x in zip(numbers_of(name, draws.shape[1:]), columns, strict=True):
            found[number] = Marginal(x, _effective(x))
    found = {name: found[name] for name in numbers if name in found}
    if not found:
        raise ConfigurationError(
            f"reference: it knows none of {list(numbers)[:9]}, but {list(given)[:9]}"
        )
    return found


def _cdf(value: Any) -> Callable[[float], float] | None:
    return getattr(value, "cdf", None)


def _effective(x: np.ndarray[Any, Any]) -> float:
    """Independent draws behind a row of them, which may be chains end to end."""
    each = len(x) // CHAINS
    if each < 4 or np.ptp(x) == 0:
        return float(len(x))
    ess = mean_error(x[: CHAINS * each].reshape(CHAINS, each))[1]
    return min(float(len(x)), ess) if np.isfinite(ess) else float(len(x))
