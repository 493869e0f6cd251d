"""Parameters of the models in the user's names and units: draws and their summary."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..doubts.doubted import Doubted
from ..estimate.indicator import Mask, ModelIndicator
from .numbers import Turn, laid_out, unpadded

if TYPE_CHECKING:
    import pandas as pd

Values = dict[str, Tensor]

QUANTILES = (0.05, 0.5, 0.95)  # in a summary

FEW_DRAWS = 20  # of a model, under which a summary says how many there are


@dataclass(eq=False, repr=False)
class Parameters:
    """Draws of the parameters.

    Arguments:
        indicator: Which model each draw is in.
        doubted: What speaks against the draws, which widens errors.
        given: Constrained parameters by name, padded to the largest model with NaN, shape
            (chain, draw, ...), or a function that gives them when they are asked for.
        turns: Where the circles of periodic parameters begin and end, by name.
    """

    indicator: ModelIndicator
    doubted: Doubted
    given: Values | Callable[[], Values]
    turns: Mapping[str, Turn] = field(default_factory=dict)

    @cached_property
    def values(self) -> Values:
        """Constrained parameters by name, padded with NaN, shape (chain, draw, ...)."""
        return self.given if isinstance(self.given, dict) else self.given()

    def draws(self, label: str) -> dict[str, NDArray[np.floating]]:
        """Draws of one model by parameter, without what it does not use, shape (n, ...)."""
        rows = self.indicator.inside(label)
        return unpadded(self.values, rows) if rows.any() else {}

    def numbers(self, label: str | None) -> dict[str, NDArray[np.floating]]:
        """Draws of one model number by number, called as in a summary, shape (n,) each.

        Of no model all draws, with NaN where a model has no such number.
        """
        whole = {name: x.flatten(0, 1).numpy() for name, x in self.values.items()}
        found = {}
        for name, value in (whole if label is None else self.draws(label)).items():
            turn = None if label is None else self.turns.get(name)
            for position in np.ndindex(value.shape[1:]):
                suffix = f"[{', '.join(self._position(label, name, position))}]"
                x = laid_out(value[(slice(None), *position)], turn)
                found[name + (suffix if position else "")] = x
        return found

    def frame(self, label: str | None) -> pd.DataFrame:
        """A row a draw, a column a number; see :meth:`trjmcmc.Result.to_dataframe`."""
        import pandas as pd

        of, shape = self.indicator, self.indicator.place.shape
        inside = np.ones(shape, dtype=bool) if label is None else of.inside(label)
        index = pd.MultiIndex.from_arrays(inside.nonzero(), names=["chain", "draw"])
        model = np.array(of.visited, dtype=object)[of.place[inside]]
        about = {"model": model, "log_joint": of.draws.log_joint.numpy()[inside]}
        return pd.DataFrame({**about, **self.numbers(label)}, index)

    def summary(self, labels: Sequence[str]) -> pd.DataFrame:
        """One row per parameter of each model; see :meth:`trjmcmc.Result.summary`."""
        import pandas as pd

        rows, index = [], []
        for label in labels:
            inside = self.indicator.inside(label)
            for name, x in self.numbers(label).items():
                rows.append(self._describe(x, inside))
                index.append((label, name))
        columns = ["mean", "sd", "mcse", "q5", "median", "q95", "ess", "note"]
        multi = pd.MultiIndex.from_tuples(index, names=["model", "parameter"])
        return pd.DataFrame(rows, columns=columns, index=multi)

    def _describe(self, x: NDArray[np.floating], inside: Mask) -> list[Any]:
        """A row of the summary, of draws that lie where ``inside`` (chain, draw) is True."""
        error, ess, note = self.doubted.error_where(x, inside)
        sd = float(x.std()) if len(x) > 1 else math.nan
        if len(x) < FEW_DRAWS:
            error, note = error if len(x) > 1 else math.nan, note or f"draws: {len(x)} in all"
        return [float(x.mean()), sd, error, *np.quantile(x, QUANTILES), ess, note]

    def _position(self, label: str | None, name: str, position: tuple[int, ...]) -> list[str]:
        """The place of an entry in words: of items by name, of components counted from 1."""
        text, space = [str(i) for i in position], self.indicator.space
        if text and (own := space.items_of(name)):
            names = space.names[own]
            names = names if label is None else space.entry_names(space.code_of(label), name)
            text[0] = names[position[0]]
        return text
