"""Files that are there as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that whatever happens meanwhile, either the old or the new one is there.

    It is written beside its place, flushed to the disk, and renamed; then the folder is flushed.

    Raises:
        OSError: The disk is full or read-only; the old file stands, and nothing is left beside it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     replace_file(Path(folder) / "a", b"old")
        ...     replace_file(Path(folder) / "a", b"new")
        ...     (Path(folder) / "a").read_bytes(), os.listdir(folder)
        (b'new', ['a'])
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(beside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, where the system lets folders be opened."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
