"""Several samplers on one target and one budget, side by side."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import clock
from ..errors import ConfigurationError, TRJError, TRJWarning
from ..estimate.convergence import split_rhats
from ..estimate.mean import mean_error
from ..promises import MODELS_ONE_BY_ONE
from ..result.result import Result
from ..run.sampler import TRJSampler
from ..target.target import Target
from .classical import METHODS, ClassicalSampler

if TYPE_CHECKING:
    import pandas as pd


LEAST_DRAWS = 4  # draws a chain of which effective draws can be told

COUNTED = 0.01  # share from which an indicator's effective draws count

MakeSampler = Callable[[Target], TRJSampler]


@dataclass(frozen=True)
class Comparison:
    """What :func:`compare_samplers` found.

    Attributes:
        table: One row per sampler. ``fit_s`` and ``total_s`` in seconds of wall time;
            ``chains``, how many it had; ``ess``, effective draws of the model indicator that
            has fewest (of those between 1 and 99 %), less the one that each chain starts with;
            the same per second of the total, per step of a chain and per evaluation of the
            likelihood; ``between``, acceptance of moves to another model; ``error``, the
            largest of a model's probability against the truth; ``z``, the largest in standard
            errors; ``rhat`` of the indicator; ``note``.
        results: By sampler, its result; None where it failed.
    """

    table: pd.DataFrame
    results: dict[str, Result | None]


def compare_samplers(
    target: Target,
    samplers: Sequence[str] | Mapping[str, str | MakeSampler] | None = None,
    *,
    budget: float = 30.0,
    chains: int | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Comparison:
    """Run several samplers for the same time each, fit included.

    Arguments:
        target: The target; its ``truth``, if any, is what errors are measured against.
        samplers: Names (``"default"`` and those of :class:`ClassicalSampler`), or a dict by
            name of such names or of functions of the target that make a sampler. All that
            apply if omitted.
        budget: Seconds of wall time each. A pilot run and a fit under way are finished: a sampler
            whose fit takes longer gets no figures, and a note.
        chains: Chains each; if omitted 512, and of the default sampler as many as it chooses.
        seed: Of every sampler.
        progress: Show progress bars.

    Returns:
        A table and the results.

    Raises:
        ConfigurationError: No such sampler, or a budget that is not positive.

    Example:
        >>> from trjmcmc import problems
        >>> found = compare_samplers(problems.sinh_arcsinh(), ["birth-death", "affine TRJ"],
        ...                          budget=5.0, progress=False)
        >>> found.table["ess_per_s"].idxmax()
        'affine TRJ'
    """
    import pandas as pd

    if not budget > 0:
        raise ConfigurationError(f"budget: expected seconds above 0, got {budget}")
    if samplers is None:
        samplers = ["default", *METHODS]
    named = samplers if isinstance(samplers, Mapping) else {name: name for name in samplers}
    for made in named.values():
        if isinstance(made, str) and made not in {"default", *METHODS}:
            raise ConfigurationError(
                f"samplers: expected 'default' or one of {list(METHODS)}, got {made!r}"
            )
    rows, results = {}, {}
    for name, made in named.items():
        rows[name], results[name] = _run(target, made, budget, chains, seed, progress)
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index.name = "sampler"
    return Comparison(table, results)


def _run(
    target: Target,
    made: str | MakeSampler,
    budget: float,
    chains: int | None,
    seed: int,
    progress: bool,
) -> tuple[dict[str, Any], Result | None]:
    begun = clock.now()
    row: dict[str, Any] = dict.fromkeys(COLUMNS, float("nan"))
    row["note"] = ""
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", TRJWarning)
            if not isinstance(made, str):
                sampler = made(target)
            elif made == "default":
                sampler = TRJSampler(target, seed=seed)
            else:
                sampler = ClassicalSampler(target, made, seed=seed)
            result = sampler.run(  # all of the time
                until=lambda draws: False, max_seconds=budget, chains=chains, progress=progress
            )
    except (TRJError, RuntimeError, ArithmeticError) as error:  # one must not lose the others
        row["note"] = str(error)
        return row, None
    total = clock.now() - begun
    row |= _row(result, total)
    notes = sorted({type(w.message).__name__ for w in said})
    if result.raw.n_draws < LEAST_DRAWS:
        notes.insert(0, f"the fit left time for {result.raw.n_draws} draws per chain")
    row["note"] = "; ".join(notes)
    return row, result


COLUMNS = [
    "fit_s",
    "total_s",
    "chains",
    "ess",
    "ess_per_s",
    "ess_per_step",
    "ess_per_evaluation",
    "between",
    "error",
    "z",
    "rhat",
    "note",
]


def _row(result: Result, total: float) -> dict[str, Any]:
    seconds, raw = result.report.seconds, result.raw
    space, indicator = result.space, result.chains.indicator
    if not space.few and (space.has_named_items or space.size is None):
        seen = indicator.items()[1].astype(float)
    else:
        often = indicator.visited[:MODELS_ONE_BY_ONE]
        seen = np.stack([indicator.inside(label) for label in often], -1).astype(float)
    means = seen.mean((0, 1))
    seen = seen[..., (means > COUNTED) & (means < 1 - COUNTED)]
    ess = min((mean_error(seen[..., f])[1] for f in range(seen.shape[2])), default=float("inf"))
    rhat = max([1.0, *split_rhats(seen)])
    # each chain's start counts as one draw, whether the chain ever leaves it or not
    ess = max(0.0, ess - raw.n_chains) if np.isfinite(ess) else float("nan")
    if raw.n_draws < LEAST_DRAWS:
        ess = rhat = float("nan")
    moved, tried = 0.0, 0.0
    for rates in result.report.acceptance.values():
        if rates["between"] == rates["between"]:
            moved += rates["between"] * rates["proposals"]
            tried += rates["proposals"]
    row = {
        "fit_s": total - seconds.get("warmup", 0.0) - seconds.get("sample", 0.0),
        "total_s": total,
        "chains": raw.n_chains,
        "ess": ess,
        "ess_per_s": ess / total,
        "ess_per_step": ess / (result.report.steps * raw.n_chains),
        "ess_per_evaluation": ess / max(result.report.evaluations, 1),
        "between": moved / tried if tried else float("nan"),
        "rhat": rhat,
    }
    truth = result.chains.truth
    if truth is not None:
        p = result.model_probabilities(full=True)
        known = [label for label in p.index if label in truth.probabilities]
        gap = np.array([p.loc[label, "visits"] - truth.probabilities[label] for label in known])
        error = np.array([p.loc[label, "visits_se"] for label in known])
        row |= {"error": float(np.abs(gap).max()), "z": float(np.abs(gap / error).max())}
    return row
