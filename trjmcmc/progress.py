"""Progress bars that are seen in terminals and notebooks, and that leave log files alone."""

from __future__ import annotations

from typing import Any

from tqdm.auto import tqdm


def progress_bar(shown: bool, **options: Any) -> Any:
    """A bar of tqdm's that draws itself where somebody can see it move.

    Arguments:
        shown: Whether the user wants one. Where stderr is no terminal none is drawn, unless in a
            notebook.
        options: Of ``tqdm``: ``total``, ``desc``, ``unit``, ``bar_format``.

    Example:
        >>> with progress_bar(False, total=3, desc="steps") as bar:
        ...     bar.update()
    """
    return tqdm(disable=None if shown else True, **options)  # None: by where stderr leads
