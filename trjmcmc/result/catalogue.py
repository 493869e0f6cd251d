"""The components that a run over unknown numbers of them has found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..draws import Draws
from ..errors import ConfigurationError, TRJError
from ..estimate.estimate import Estimate
from ..estimate.indicator import Mask
from ..estimate.mean import mean_error
from ..estimate.visits import visit_probability
from ..space.base import Kind, Space
from .numbers import laid_out, numbers_of
from .parameters import Parameters
from .relabel import LEAST_SHARE, Relabelling, relabel

if TYPE_CHECKING:
    import pandas as pd

INTERVAL = 0.9  # probability of credible intervals

PARTS = ("mean", "mcse", "sd", "low", "high")  # columns of a parameter


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
        shapes = {name: value.shape[3:] for name, value in self.values.items()}
        return [number for name, shape in shapes.items() for number in numbers_of(name, shape)]

    def described(self, rows: NDArray[np.bool_]) -> dict[str, NDArray[np.float64]]:
        """Those numbers of some components, (chain, draw, K) bool -> by name, shape (n,)."""
        n = int(rows.sum())
        tables = (v[rows].reshape(n, math.prod(v.shape[3:])) for v in self.values.values())
        columns = [column for table in tables for column in table.T.astype(float)]
        return dict(zip(self.numbers, columns, strict=True))


class Catalogue:
    """Components of a run over unknown numbers of them, named by where they are.

    Arguments:
        parameters: Draws of the parameters, of which some belong to components.
    """

    def __init__(self, parameters: Parameters) -> None:
        self.parameters, self.indicator = parameters, parameters.indicator
        self.doubted = parameters.doubted
        self._entries: dict[tuple[Any, ...], Relabelling] = {}

    def drawn(self, what: str, kind: str | int | None) -> Drawn:
        """The components of a kind.

        Arguments:
            what: Who asks, for messages.
            kind: A name or a position.

        Raises:
            TRJError: The space is not one of counts.
        """
        space = self.indicator.space
        if not space.counts:
            raise TRJError(f"{what}: this is for an unknown number of components, trj.Counts")
        of = space.kinds[space.place_of(kind)]
        return Drawn.of(space, of, self.indicator.draws, self.parameters.values)

    def entries(self, drawn: Drawn, least: float = LEAST_SHARE) -> Relabelling:
        """Which entry each component is; of one kind and ``least`` found once."""
        known = *drawn.values, least
        if known not in self._entries:
            log_joint = self.indicator.draws.log_joint.numpy()
            self._entries[known] = relabel(drawn.x, drawn.active, log_joint, least=least)
        return self._entries[known]

    def kind_of(self, parameter: str) -> str | int | None:
        """The kind of components that a parameter describes, the first where none has it."""
        if not self.indicator.space.counts:
            return None
        for kind in self.indicator.space.kinds:
            if any(parameter in self._numbers(name) for name in kind.of):
                return kind.name
        return 0

    def _numbers(self, name: str) -> list[str]:
        """A parameter of components by itself, and by its entries."""
        shape = self.parameters.values[name].shape[3:]
        return [name, *numbers_of(name, shape)]

    def components(
        self, kind: str | int | None, least: float
    ) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.int64]]:
        """Components of all draws in a row, and the entry of each, 0 where it has none."""
        drawn = self.drawn("components", kind)
        rows = drawn.active
        return drawn.described(rows), self.entries(drawn, least).entry[rows] + 1

    def table(self, kind: str | int | None, interval: float, least: float) -> pd.DataFrame:
        """One row an entry; see :meth:`trjmcmc.Result.catalogue`."""
        import pandas as pd

        drawn = self.drawn("catalogue", kind)
        found = self.entries(drawn, least)
        if not 0 < interval < 1:
            raise ConfigurationError(f"interval: expected a probability in (0, 1), got {interval}")
        rows = [self._row(drawn, found.entry == e, interval) for e in range(len(found.probability))]
        for row, gap in zip(rows, self._gaps_of_names(drawn, found, least), strict=True):
            row["se"] = math.hypot(row["se"], gap)
        columns = [f"{name}_{part}" for name in drawn.numbers for part in PARTS]
        index = pd.RangeIndex(1, len(rows) + 1, name="entry")
        table = pd.DataFrame(
            rows, index, columns=["probability", "se", "ess", *columns, "rhat", "note"]
        )
        spare = drawn.active & (found.entry < 0)
        table.attrs["unassigned"] = float(spare.sum(-1).mean())
        return table

    def _gaps_of_names(self, drawn: Drawn, found: Relabelling, least: float) -> Sequence[float]:
        """How far the share of each entry moves where half of the draws give the names, (J,)."""
        log_joint = self.indicator.draws.log_joint.numpy()
        along = 0 if len(log_joint) > 1 else 1  # chains, or the draws of one
        halves = np.array_split(np.arange(log_joint.shape[along]), 2)
        squares = np.zeros(len(found.probability))
        for half in halves if len(found.probability) > 1 else ():
            x, active, score, mine = (
                np.take(a, half, along) for a in (drawn.x, drawn.active, log_joint, found.entry)
            )
            theirs = relabel(x, active, score, least=least).entry
            common = np.zeros((len(squares) + 1, theirs.max(initial=0) + 2))
            np.add.at(common, (mine[active], theirs[active]), 1)
            for e, other in enumerate(common[:-1, :-1].argmax(1)):
                gap = (theirs == other).any(-1).mean() - (mine == e).any(-1).mean()
                squares[e] += gap**2 / len(halves)
        gaps: list[float] = np.sqrt(squares).tolist()
        return gaps

    def _row(self, drawn: Drawn, mine: Mask, interval: float) -> dict[str, Any]:
        """The row of an entry whose components are where ``mine`` (chain, draw, K) is True."""
        inside, rhat_of = np.asarray(mine.any(-1)), self.indicator.rhat_of
        p = self._share(inside)
        row: dict[str, Any] = {"probability": p.value, "se": p.std_error, "ess": p.ess}
        note, rhats = p.warning, [rhat_of(inside.astype(float))]
        tails = (1 - interval) / 2, (1 + interval) / 2
        for name, values in drawn.described(mine).items():
            x = laid_out(values, self.parameters.turns.get(name.partition("[")[0]))
            error, _, why = self.doubted.error_where(x, inside)
            note, series = note or why, np.zeros(inside.shape)
            series[inside] = x - x.mean()
            rhats.append(rhat_of(series))
            parts = (x.mean(), error, x.std(), *np.quantile(x, tails))
            row |= {f"{name}_{part}": v for part, v in zip(PARTS, parts, strict=True)}
        rhat = max((r for r in rhats if not math.isnan(r)), default=math.nan)
        return {**row, "rhat": rhat, "note": note}

    def _share(self, inside: Mask) -> Estimate:
        """Share of the draws that hold an entry."""
        ess = self.indicator.ess
        if not ess:  # the number of components never changes; their places do
            ess = mean_error(self.indicator.draws.log_joint.numpy().astype(float))[1]
        ess = ess if math.isfinite(ess) else 0.0
        return self.doubted.share(visit_probability(inside, ess), inside)


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
