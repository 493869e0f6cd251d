"""Work that Ctrl-C must not cut in two."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def once_pressed(act: Callable[[], object]) -> Iterator[None]:
    """Do something when Ctrl-C is pressed; pressed again it is heard at once.

    Example:
        >>> with once_pressed(lambda: print("this round is the last")):
        ...     rounds = 3
    """
    if threading.current_thread() is not threading.main_thread():  # no signals come here
        yield
        return
    pressed: list[int] = []

    def hear(number: int, frame: Any) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)
        act()

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
