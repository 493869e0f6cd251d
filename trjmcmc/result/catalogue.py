"""The components that a run over unknown numbers of them has found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..draws import Draws
from ..errors import ConfigurationError
from ..estimate.estimate import Estimate
from ..space.base import Kind, Space
from .relabel import Relabelling

Mask = NDArray[np.bool_]

INTERVAL = 0.9

PARTS = ("mean", "mcse", "sd", "low", "high")

OFTEN = 0.05  # p(k = max) from which counts may have run into their limit

MOVED = 0.1  # probability that data must have moved between counts, beyond chance

FALLEN = 0.25  # evidence of the largest count against the best one, under which it is no limit

SEEN = 0.01  # probability of a count from which its evidence means something

CHANCE = 3.0  # standard errors


@dataclass(frozen=True)
class Drawn:
    """Components of one kind in the draws of a run.

    Attributes:
        values: Their parameters by name, shape (chain, draw, K, ...), NaN where absent.
        x: Unconstrained coordinates, shape (chain, draw, K, P).
        active: Which of them there are, shape (chain, draw, K).
    """

    values: Mapping[str, NDArray[np.floating]]
    x: NDArray[np.floating]
    active: NDArray[np.bool_]

    @classmethod
    def of(cls, space: Space, kind: Kind, draws: Draws, values: Mapping[str, Any]) -> Drawn:
        """The components of a kind in a run over counts."""
        x = draws.theta.numpy()[:, :, space.slots_of(kind).numpy()]
        there = space.items(draws.code.flatten(0, 1))[:, kind.items]
        active = there.reshape(*x.shape[:3]).numpy()
        return cls({name: np.asarray(values[name]) for name in kind.of}, x, active)

    @property
    def numbers(self) -> list[str]:
        """Names of the numbers that describe a component."""
        return [
            name + (f"[{', '.join(map(str, position))}]" if position else "")
            for name, value in self.values.items()
            for position in np.ndindex(value.shape[3:])
        ]

    def described(self, rows: NDArray[np.bool_]) -> dict[str, NDArray[np.float64]]:
        """Those numbers of some components, (chain, draw, K) bool -> by name, shape (n,)."""
        n = int(rows.sum())
        tables = (v[rows].reshape(n, math.prod(v.shape[3:])) for v in self.values.values())
        columns = [column for table in tables for column in table.T.astype(float)]
        return dict(zip(self.numbers, columns, strict=True))


def tabled(
    drawn: Drawn,
    found: Relabelling,
    interval: float,
    share: Callable[[Mask], Estimate],
    error_where: Callable[[NDArray[np.floating], Mask], tuple[float, float, str]],
    rhat_of: Callable[[NDArray[np.floating]], float],
) -> pd.DataFrame:
    """One row an entry; see :meth:`Result.catalogue`.

    Arguments:
        drawn: The components.
        found: Which is which.
        interval: Probability of the intervals.
        share: Gives the share of some draws, a mask (chain, draw), with its error.
        error_where: Gives the standard error of a mean over such draws, effective draws, and a
            note.
        rhat_of: Gives R-hat of a series, (chain, draw).
    """
    if not 0 < interval < 1:
        raise ConfigurationError(f"interval: expected a probability in (0, 1), got {interval}")
    tails = (1 - interval) / 2, (1 + interval) / 2
    rows = []
    for e in range(len(found.probability)):
        mine = found.entry == e
        inside = mine.any(-1)
        p = share(inside)
        row: dict[str, Any] = {"probability": p.value, "se": p.std_error, "ess": p.ess}
        note, rhats = p.warning, [rhat_of(inside.astype(float))]
        for name, x in drawn.described(mine).items():
            error, _, said = error_where(x, inside)
            note, series = note or said, np.zeros(inside.shape)
            series[inside] = x - x.mean()
            rhats.append(rhat_of(series))
            parts = (x.mean(), error, x.std(), *np.quantile(x, tails))
            row |= {f"{name}_{part}": v for part, v in zip(PARTS, parts, strict=True)}
        rhat = max((r for r in rhats if not math.isnan(r)), default=math.nan)
        rows.append({**row, "rhat": rhat, "note": note})
    columns = [f"{name}_{part}" for name in drawn.numbers for part in PARTS]
    index = pd.RangeIndex(1, len(rows) + 1, name="entry")
    table = pd.DataFrame(
        rows, index, columns=["probability", "se", "ess", *columns, "rhat", "note"]
    )
    spare = drawn.active & (found.entry < 0)
    table.attrs["unassigned"] = float(spare.sum(-1).mean())
    return table


def by_entry(drawn: Drawn, found: Relabelling) -> dict[str, NDArray[Any]]:
    """Parameters by entry, NaN where it is absent, shape (chain, draw, entry, ...).

    ``present`` tells where it is there, as 0 and 1.
    """
    shape = (*found.entry.shape[:2], len(found.probability))
    chain, draw, place = (found.entry >= 0).nonzero()
    at = (chain, draw, found.entry[chain, draw, place])
    present = np.zeros(shape, dtype=np.int64)
    present[at] = 1
    filled: dict[str, NDArray[Any]] = {}
    for name, value in drawn.values.items():
        filled[name] = np.full((*shape, *value.shape[3:]), np.nan, dtype=value.dtype)
        filled[name][at] = value[chain, draw, place]
    return {"present": present, **filled}


def runs_into_limit(kind: Kind, table: pd.DataFrame) -> bool:
    """Whether data want the largest count there may be, and the prior is not why.

    Posterior over prior is the evidence of a count. Where that of the largest count is not small
    against the best one, more components would do as well. Where data say nothing the posterior
    is the prior, and its limit is meant; and 0 or 1 component is a question of yes or no.

    Arguments:
        kind: The kind.
        table: Its rows of :meth:`Result.counts`.
    """
    if kind.max < 2 or len(table) == 1:
        return False
    p, error, prior = (table[name].to_numpy() for name in ("probability", "se", "prior"))
    moved = np.maximum(np.abs(p - prior) - np.where(p > 0, CHANCE * error, 0.0), 0.0).sum() / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        evidence = np.where(p > SEEN, p / prior, 0.0)
    return bool(p[-1] > OFTEN and moved > MOVED and evidence[-1] >= FALLEN * evidence.max())
