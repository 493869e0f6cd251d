"""Progress bars that are seen in terminals and notebooks, and lines in log files elsewhere."""

from __future__ import annotations

import logging
import sys
from typing import Any

from tqdm.auto import tqdm

from . import clock

EVERY = 60.0  # seconds between lines where no bar can be seen

LOGGER = logging.getLogger("trjmcmc")


def progress_bar(shown: bool, **options: Any) -> Any:
    """A bar of tqdm's that draws itself where somebody can see it move.

    Arguments:
        shown: Whether the user wants one. Where stderr is no terminal, nor that of a notebook, a
            line a minute goes to the logger ``trjmcmc``, level INFO, in its place.
        options: Of ``tqdm``: ``total``, ``desc``, ``unit``, ``bar_format``.

    Example:
        >>> with progress_bar(False, total=3, desc="steps") as bar:
        ...     bar.update()
    """
    if shown and not sys.stderr.isatty() and "ipykernel" not in sys.modules:
        return Logged(**options)
    return tqdm(disable=None if shown else True, **options)  # None: by where stderr leads


class Logged(tqdm):
    """A bar that is not drawn: a line a minute, with the stage, how far it is, what is left."""

    def __init__(
        self, *, total: float | None = None, desc: str = "", unit: str = "it", **_: Any
    ) -> None:
        super().__init__(disable=True)
        self._stage, self._most, self._unit = desc, total, unit
        self.n, self.postfix = 0.0, ""
        self._begun = self._said = clock.now()

    def update(self, n: float | None = 1) -> None:
        self.n += 1 if n is None else n
        now = clock.now()
        if now - self._said < EVERY:
            return
        self._said, spent = now, now - self._begun
        if self._most is None:
            text = f"{self.n:.0f} {self._unit}s"
        else:
            share = self.n / self._most
            text = f"{share:.0%}"
            if self._most > 1:
                text += f" ({self.n:.0f} of {self._most:.0f} {self._unit}s)"
            if share:
                text += f", {spent * (1 / share - 1):.0f} s left"
        note = f", {self.postfix}" if self.postfix else ""
        LOGGER.info("%s: %s, %.0f s so far%s", self._stage, text, spent, note)

    def set_description(self, desc: str | None = None, refresh: bool = True) -> None:
        self._stage = desc or ""
