"""Tables that show a few columns, and know the others by name."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import cache
from typing import Any

import pandas as pd

from ..errors import UnweighedError


class Glance(pd.DataFrame):
    """The columns that are read at a glance; ``[]`` and ``loc`` reach those of the full table too.

    Nothing else does: what is made of it is a plain table, and so are its copies. It is in a file
    of its own since pandas is imported on first use.

    Example:
        >>> short = pd.DataFrame({"probability": [0.4, 0.6]}, index=["a", "b"])
        >>> full = pd.DataFrame({"visits": [0.39, 0.61]}, index=["a", "b"])
        >>> table = Glance.of(short, lambda: full)
        >>> [*table.columns], float(table.loc["a", "visits"]), "visits" in table
        (['probability'], 0.39, True)
    """

    _full: Callable[[], pd.DataFrame] | None = None

    @classmethod
    def of(cls, short: pd.DataFrame, full: Callable[[], pd.DataFrame]) -> Glance:
        """A table of few columns that knows where the others are.

        Arguments:
            short: What is shown.
            full: Gives a table with the same rows; asked where a column is not in the short one.
        """
        table = cls(short)
        object.__setattr__(table, "_full", cache(full))  # pandas would take it for a column
        return table

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
        except UnweighedError:
            return False

    @property
    def loc(self) -> Any:
        return _Loc("loc", self)


class _Loc(type(pd.DataFrame().loc)):  # type: ignore[misc]
    """Rows of a table as shown; one row, and columns by name, of the full one."""

    def __getitem__(self, key: Any) -> Any:
        try:
            found = super().__getitem__(key)
        except KeyError:
            return self.obj._whole().loc[key]
        if isinstance(found, pd.Series) and found.index.equals(self.obj.columns):
            with suppress(UnweighedError):
                return self.obj._whole().loc[key]
        return found
