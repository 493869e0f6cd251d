"""How much of an exact posterior the central intervals of a variational answer hold."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

import trjmcmc as trj
from trjmcmc.estimate import mean_error
from trjmcmc.result.numbers import by_number

CHAINS = 20  # pieces that draws are cut into, for their effective number


def quantiles(
    answer: trj.approximate.Variational,
    levels: Sequence[float] = (0.05, 0.5, 0.95),
    model: str | None = None,
    *,
    corrected: bool = False,
) -> pd.DataFrame:
    """Quantiles of one model's parameters: one row per number, one column per level.

    Arguments:
        answer: Of :func:`trj.variational`.
        levels: Probabilities in (0, 1).
        model: Its label; the only one, or the one that q draws most, if omitted.
        corrected: By importance weights.
    """
    levels = [float(p) for p in levels]
    if not levels or not all(0 < p < 1 for p in levels):
        raise ValueError(f"levels: expected probabilities in (0, 1), got {levels}")
    draws = by_number(answer.draws(model, corrected=corrected))
    table = {name: np.quantile(x, levels, method="inverted_cdf") for name, x in draws.items()}
    found = pd.DataFrame.from_dict(table, orient="index", columns=levels)
    return found.rename_axis("parameter").rename_axis("level", axis=1)


def coverage(
    answer: trj.approximate.Variational,
    reference: Any,
    level: float = 0.9,
    model: str | None = None,
    *,
    corrected: bool = False,
) -> pd.DataFrame:
    """How much of the exact posterior each central interval of q holds.

    Arguments:
        answer: Of :func:`trj.variational`.
        reference: The exact posterior: a :class:`trj.Result`, or by name draws, shape (n, ...), or
            objects with ``cdf``, such as SciPy's frozen distributions.
        level: What the intervals claim to hold.
        model, corrected: As of :func:`quantiles`.

    Returns:
        Indexed by parameter: the interval ``low`` to ``high``, the posterior probability
        ``covered`` of it, and its standard error ``se``: of the posterior's draws, and of the ends
        as if both distributions were alike.

    Source:
        Premchandar (2024), Normalizing flows aided variational inference, thesis, Michigan State
        University, section 3.4
    """
    if not 0 < level < 1:
        raise ValueError(f"level: expected a probability in (0, 1), got {level}")
    ends = quantiles(answer, ((1 - level) / 2, (1 + level) / 2), model, corrected=corrected)
    n = len(next(iter(answer.draws(model).values())))
    label = str(answer.probabilities.index[0]) if model is None else model
    given = reference if isinstance(reference, Mapping) else reference.draws(label)
    laws = {name: law for name, law in given.items() if hasattr(law, "cdf")}
    draws = by_number({k: np.asarray(v, dtype=float) for k, v in given.items() if k not in laws})
    rows = {}
    for name, (low, high) in zip(ends.index, ends.to_numpy(), strict=True):
        variance = level * (1 - level) / n
        if name in laws:
            share = float(laws[name].cdf(high) - laws[name].cdf(low))
        elif name in draws:
            x = draws[name]
            if len(x) < 2 or not np.isfinite(x).all():
                raise ValueError(f"reference: expected two finite draws of {name!r} or more")
            share = float(np.mean((x >= low) & (x <= high)))
            variance += share * (1 - share) / _effective(x)
        else:
            continue
        rows[name] = (low, high, share, math.sqrt(variance))
    if not rows:
        raise ValueError(f"reference: it knows none of {list(ends.index)[:9]}, but {list(given)}")
    columns = ["low", "high", "covered", "se"]
    found = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    return found.rename_axis("parameter")


def _effective(x: np.ndarray[Any, Any]) -> float:
    """Independent draws behind a row of them, which may be chains end to end."""
    each = len(x) // CHAINS
    if each < 4 or np.ptp(x) == 0:
        return float(len(x))
    ess = mean_error(x[: CHAINS * each].reshape(CHAINS, each))[1]
    return min(float(len(x)), ess) if np.isfinite(ess) else float(len(x))
