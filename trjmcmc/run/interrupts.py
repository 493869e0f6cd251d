"""Work that Ctrl-C must not cut in two."""

from __future__ import annotations

import importlib
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LATE_IMPORTS = ("torch.fx.experimental.symbolic_shapes",)  # by torch, once shapes are broadcast


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait until this is over.

    Raises:
        KeyboardInterrupt: The user pressed Ctrl-C meanwhile.

    Example:
        >>> with uninterrupted():
        ...     written = "all of it"
    """
    if threading.current_thread() is not threading.main_thread():  # no signals come here
        yield
        return
    pressed: list[int] = []

    def wait(number: int, frame: Any) -> None:
        pressed.append(number)

    before = signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


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


@contextmanager
def between_draws() -> Iterator[Callable[[], None]]:
    """Let Ctrl-C wait until it is asked for; pressed again it is heard at once.

    Returns:
        A function that raises KeyboardInterrupt if it was pressed.

    Example:
        >>> with between_draws() as listen:
        ...     listen()
    """
    pressed: list[bool] = []

    def listen() -> None:
        if pressed:
            raise KeyboardInterrupt

    with once_pressed(lambda: pressed.append(True)):
        yield listen
    listen()


def import_whole() -> None:
    """Import what torch imports late: half imported it would fail ever after in this process."""
    with uninterrupted():
        for name in LATE_IMPORTS:
            importlib.import_module(name)
