"""Shares and means of draws with their errors: of the chains of a run, or of independent draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from ..doubts.doubt import EVERY
from ..estimate.convergence import split_rhats, start_error
from ..estimate.estimate import Estimate
from ..estimate.mean import MANY_CHAINS, mean_error, spread_errors
from ..estimate.visits import rule_of_three
from ..promises import RHAT_CONVERGED
from ..result.result import Result

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

LEAST_DRAWS = 20  # a chain, where draws are thinned


def by_pair(value: Array, names: Sequence[str]) -> pd.DataFrame:
    """Numbers of edges, shape (d, d), with parents in rows and children in columns."""
    import pandas as pd

    return pd.DataFrame(value, pd.Index(names, name="parent"), pd.Index(names, name="child"))


def pairs_of(d: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Positions of parents and children of all pairs, in the order of the child."""
    child, parent = np.nonzero(~np.eye(d, dtype=bool))
    return parent, child


class Errors(Protocol):
    """How far shares and means of draws may be off."""

    def shares(self, has: NDArray[np.bool_]) -> pd.DataFrame:
        """``probability``, ``se``, ``ess``, ``rhat``, ``note`` of features, (chain, draw, Q)."""

    def means(self, x: Array) -> pd.DataFrame:
        """``mean``, ``se``, ``ess``, ``rhat``, ``note`` of quantities, (chain, draw, Q)."""


class IndependentTables:
    """Of independent draws."""

    def shares(self, has: NDArray[np.bool_]) -> pd.DataFrame:
        import pandas as pd

        n = has.shape[0] * has.shape[1]
        p: Array = has.mean((0, 1))
        bound = np.where((p == 0) | (p == 1), rule_of_three(n), np.sqrt(p * (1 - p) / n))
        note = np.where(p == 0, "never met", np.where(p == 1, "always met", ""))
        found = {"probability": p, "se": bound, "ess": float(n), "rhat": 1.0, "note": note}
        return pd.DataFrame(found, index=range(len(p)))

    def means(self, x: Array) -> pd.DataFrame:
        import pandas as pd

        n = x.shape[0] * x.shape[1]
        error = x.std((0, 1)) / math.sqrt(n)
        found = {"mean": x.mean((0, 1)), "se": error, "ess": float(n), "rhat": 1.0, "note": ""}
        return pd.DataFrame(found, index=range(x.shape[2]))


class OfRun:
    """Of the chains of a run."""

    def __init__(self, result: Result) -> None:
        self.result = result

    def shares(self, has: NDArray[np.bool_]) -> pd.DataFrame:
        return self.result.chains.shares(has)

    def means(self, x: Array) -> pd.DataFrame:
        import pandas as pd

        error, ess = _mean_errors(x)
        rhat = split_rhats(x)
        sd, notes = x.std((0, 1)), []
        doubts = [d for d in self.result.doubts if d.subject == EVERY and d.grave and d.against]
        for q, own in enumerate(rhat.tolist()):
            sizes = [d.size for d in doubts] if sd[q] > 0 else []
            sizes += [start_error(own)] if own > RHAT_CONVERGED else []
            note = f"R-hat {own:.2f}" if own > RHAT_CONVERGED else ""
            notes.append(note or (doubts[0].words if sizes else ""))
            if sizes:
                error[q] = math.hypot(error[q], *(sd[q] * size for size in sizes))
                ess[q] = sd[q] ** 2 / error[q] ** 2
        found = {"mean": x.mean((0, 1)), "se": error, "ess": ess, "rhat": rhat, "note": notes}
        return pd.DataFrame(found, index=range(x.shape[2]))


def _mean_errors(x: Array) -> tuple[Array, Array]:
    """Standard errors and effective draws of means; 0 and NaN of what never changes."""
    if len(x) >= MANY_CHAINS:
        error = spread_errors(x.mean(1))
    else:
        error = np.array([mean_error(x[..., q])[0] for q in range(x.shape[2])])
    still = np.ptp(x, axis=(0, 1)) == 0
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(still, 0.0, error), np.where(still, np.nan, x.var((0, 1)) / error**2)


def thinned(chains: int, draws: int, most: int) -> tuple[slice, slice]:
    """Evenly spaced chains and draws, about so many, twenty a chain at least where it has them."""
    keep = max(min(draws, LEAST_DRAWS), min(draws, most // chains))
    each = max(1, draws // keep)
    kept = -(-draws // each)
    return slice(None, None, max(1, -(-chains * kept // most))), slice(None, None, each)


def log_mean(log_value: torch.Tensor, errors: Errors) -> Estimate:
    """Log of the mean of values whose logs are known, (chain, draw), with its error."""
    top = float(log_value.max())
    if not math.isfinite(top):
        return Estimate(top, math.nan)
    row = errors.means((log_value - top).exp().double().numpy()[..., None]).iloc[0]
    value = top + math.log(row["mean"])
    return Estimate(value, row["se"] / row["mean"], row["ess"], str(row["note"]))


def mean(value: torch.Tensor, errors: Errors) -> Estimate:
    """Mean of values, (chain, draw), with its error."""
    row = errors.means(value.double().numpy()[..., None]).iloc[0]
    return Estimate(float(row["mean"]), float(row["se"]), float(row["ess"]), str(row["note"]))
