"""The files of a run: append-only segments, and a head that names them, replaced atomically.

At every moment the folder holds a whole run: a new head is renamed into its place after all that
it names lies on the disk, and the head before it stays beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..atomic import replace_file
from ..errors import CheckpointError, TRJError
from ..result.packed import pack, unpack
from .lock import Lock

FORMAT = 2

HEAD, BEFORE = "head.ckpt", "head.1.ckpt"  # the newest, and the one before


class File(NamedTuple):
    """A file that a head names.

    Attributes:
        name: Its name in the folder.
        size: Bytes.
        sha256: Of its content, hexadecimal.
    """

    name: str
    size: int
    sha256: str


class Found(NamedTuple):
    """What a folder holds.

    Attributes:
        head: Plain data.
        plan: What does not change while a run samples, as data.
        segments: Plain data, in their order.
        name: File of the head.
    """

    head: dict[str, Any]
    plan: dict[str, Any]
    segments: list[dict[str, Any]]
    name: str


class Folder:
    """The folder of a run.

    Arguments:
        path: Where it is; made if it is not there.

    Raises:
        CheckpointError: Another run writes there.
        OSError: It can't be made.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = Lock(self.path)
        self._named: list[set[str]] = []  # files that the two heads name
        self._next = 1 + max((_number(p.name) for p in self.path.glob("*-*.ckpt")), default=0)

    def close(self) -> None:
        """Let others write there."""
        self._lock.release()

    def read(self) -> Found | None:
        """The newest state that is whole; None where no run was saved.

        Raises:
            CheckpointError: Files are there, and none of the heads is whole.
        """
        found = read_folder(self.path)
        if found is not None:
            self._named = [named(found.head)]
            if found.name == BEFORE:  # the damaged one must not be kept in its place
                (self.path / HEAD).unlink(missing_ok=True)
        return found

    def write(self, kind: str, data: Mapping[str, Any]) -> File:
        """Write a plan or a segment under a new name.

        Raises:
            OSError: The disk is full or read-only.
        """
        name, content = f"{kind}-{self._next:06d}.ckpt", pack(data)
        replace_file(self.path / name, content)
        self._next += 1
        return File(name, len(content), hashlib.sha256(content).hexdigest())

    def write_head(self, data: Mapping[str, Any]) -> None:
        """Replace the head, keep the one before, and drop what neither of them names.

        Raises:
            OSError: The disk is full or read-only; the head before stands.
        """
        content, head = pack({"format": FORMAT, **data}), self.path / HEAD
        if head.exists():
            replace_file(self.path / BEFORE, head.read_bytes())
        replace_file(head, content)
        self._named = [*self._named[-1:], named(data)]
        self._lock.refresh()
        keep = {HEAD, BEFORE, *(name for names in self._named for name in names)}
        for path in self.path.glob("*.ckpt"):
            if path.name not in keep:
                with suppress(OSError):
                    path.unlink()


def named(head: Mapping[str, Any]) -> set[str]:
    """Names of the files that a head needs."""
    return {name for name, _, _ in [head["plan"], *head["segments"]]}


def read_folder(path: str | Path) -> Found | None:
    """The newest state in a folder that is whole; None where no run was saved there.

    Arguments:
        path: The folder; a run may be writing there.

    Raises:
        CheckpointError: No head is whole, or what they name is damaged or missing.
    """
    path, why = Path(path), []
    for name in (HEAD, BEFORE, HEAD):  # the first again: it may have been replaced meanwhile
        if not (path / name).exists():
            continue
        try:
            return _read(path, name)
        except (CheckpointError, TRJError, OSError) as error:
            why.append(f"{name}: {error}")
    if not why:
        return None
    raise CheckpointError(
        f"{path}: no state of the run is whole ({'; '.join(dict.fromkeys(why))}). Put the files "
        "back, or begin anew in another folder."
    )


def _read(path: Path, name: str) -> Found:
    head = unpack(path / name)
    if head.get("format") != FORMAT:
        raise CheckpointError(f"format {head.get('format')!r} of another version, not {FORMAT}")
    whole = [_whole(path, File(*file)) for file in head["segments"]]  # all, before any is read
    plan = unpack(_whole(path, File(*head["plan"])))
    return Found(head, plan, [unpack(p) for p in whole], name)


def _whole(path: Path, file: File) -> Path:
    """The place of a file, refused if it is not what the head knows."""
    there = path / file.name
    content = there.read_bytes()
    if len(content) != file.size or hashlib.sha256(content).hexdigest() != file.sha256:
        raise CheckpointError(f"{file.name} is damaged")
    return there


def _number(name: str) -> int:
    digits = name.rpartition("-")[2].removesuffix(".ckpt")
    return int(digits) if digits.isdigit() else 0
