"""Progress bars in terminals and notebooks, and lines on stderr or in a log elsewhere."""

from __future__ import annotations

import importlib.util
import logging
import sys
from types import TracebackType
from typing import Any

from tqdm.std import tqdm

from . import clock

FIRST = 10.0  # seconds after which a line is written where no bar can be seen

EVERY = 60.0  # seconds between further ones

OPEN_END = "{desc}: {n_fmt} {unit}s, {elapsed}{postfix}"  # of a bar without a total

LOGGER = logging.getLogger("trjmcmc")


def progress_bar(shown: bool, **options: Any) -> Any:
    """A bar of tqdm's that is cleared at its end; lines where it could not be seen to move.

    A terminal and a notebook have a bar. Elsewhere stderr gets a line after ten seconds, one a
    minute from then on, and one when the stage ends. Where logging of ``trjmcmc`` is set to INFO
    or lower, they go there in its place.

    Arguments:
        shown: Whether the user wants one.
        options: Of ``tqdm``: ``total``, ``desc``, ``unit``, ``bar_format``.

    Example:
        >>> with progress_bar(False, total=3, desc="steps") as bar:
        ...     bar.update()
    """
    if not shown:
        return tqdm(disable=True, **options)
    if not sys.stderr.isatty() and not _in_notebook():
        return Lines(**options)
    if options.get("total") is None:
        options.setdefault("bar_format", OPEN_END)
    if _in_notebook() and importlib.util.find_spec("ipywidgets") is not None:
        from tqdm.notebook import tqdm as drawn

        options.pop("bar_format", None)  # widgets have a form of their own
        return drawn(leave=False, **options)
    return tqdm(leave=False, dynamic_ncols=True, **options)


def _in_notebook() -> bool:
    """Whether a kernel of Jupyter runs this."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class Lines:
    """What a bar would show, as lines: the stage, how far it is, what is left.

    Attributes:
        n: How far it is, of ``total``.
        disable: Whether nothing is shown, as of a bar.
    """

    disable = False

    def __init__(
        self, *, total: float | None = None, desc: str = "", unit: str = "it", **_: Any
    ) -> None:
        self._stage, self._most, self._unit = desc, total, unit
        self.n, self._note = 0.0, ""
        self._begun = clock.now()
        self._next = self._begun + FIRST

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._say(clock.now(), ended=True)

    def update(self, n: float = 1) -> None:
        """Count further, and write a line if one is due."""
        self.n += n
        now = clock.now()
        if now >= self._next:
            self._next = now + EVERY
            self._say(now)

    def set_description(self, desc: str) -> None:
        """Name the stage."""
        self._stage = desc

    def set_postfix_str(self, words: str) -> None:
        """What further lines end with."""
        self._note = words

    def set_postfix(self, shown: dict[str, Any]) -> None:
        """The same as numbers by name."""
        numbers = {k: f"{v:.3g}" if isinstance(v, float) else v for k, v in shown.items()}
        self._note = ", ".join(f"{name} {value}" for name, value in numbers.items())

    def _say(self, now: float, ended: bool = False) -> None:
        spent = now - self._begun
        share = None if self._most is None else self.n / self._most
        if share is None:
            text = f"{self.n:.0f} {self._unit}s"
        else:
            text = f"{share:.0%}"
            if self._most and self._most > 1:
                text += f" ({self.n:.0f} of {self._most:.0f} {self._unit}s)"
            if share and not ended:
                text += f", {spent * (1 / share - 1):.0f} s left"
        note = f", {self._note}" if self._note else ""
        text = f"{self._stage}: {text}, {spent:.0f} s{'' if ended else ' so far'}{note}"
        if LOGGER.isEnabledFor(logging.INFO) and LOGGER.hasHandlers():
            LOGGER.info(text)
        else:
            print(text, file=sys.stderr, flush=True)
