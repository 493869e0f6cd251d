"""Tables that show a few columns, and know the others by name."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import pandas as pd

from ..errors import TRJError


class Glance(pd.DataFrame):
    """The columns that are read at a glance; ``[]`` and ``loc`` reach those of the full table too.

    What is made of it is a plain table, and so are its copies.

    Example:
        >>> short = pd.DataFrame({"probability": [0.4, 0.6]}, index=["a", "b"])
        >>> table = glance(short, lambda: pd.DataFrame({"visits": [0.39, 0.61]}, index=["a", "b"]))
        >>> [*table.columns], float(table.loc["a", "visits"]), "visits" in table
        (['probability'], 0.39, True)
    """

    _full: Callable[[], pd.DataFrame] | None = None

    def _whole(self) -> pd.DataFrame:
        """All columns, those at a glance first."""
        short = pd.DataFrame(self)
        if self._full is None:
            return short
        full = self._full()
        return short.join(full[[c for c in full if c not in short]])

    def __getitem__(self, key: Any) -> Any:
        try:
            return super().__getitem__(key)
        except KeyError:
            return self._whole()[key]

    def __contains__(self, key: Hashable) -> bool:
        try:
            return super().__contains__(key) or key in self._whole()
        except TRJError:  # there is no full table
            return False

    @property
    def loc(self) -> Any:
        try:
            return self._whole().loc
        except TRJError:
            return super().loc


def glance(short: pd.DataFrame, full: Callable[[], pd.DataFrame]) -> Glance:
    """A table of few columns that knows where the others are.

    Arguments:
        short: What is shown.
        full: Gives a table with the same rows; asked where a column is not in the short one.
    """
    table = Glance(short)
    object.__setattr__(table, "_full", full)
    return table
