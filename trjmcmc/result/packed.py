"""Files of plain data with a checksum: what is read is never executed."""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import TRJError

MAGIC = b"trjmcmc\n"  # first bytes of a file; then the checksum, and what it is of

CHECKSUM = 32  # bytes

SAMPLE = 2**18  # bytes by which it is seen whether repeats are worth a search

WORTH = 0.7  # size with such a search over that without, below which they are

CLASS = "class"  # key under which plain data name what they were

TABLES = ("Series", "DataFrame")


def plain(x: Any) -> Any:
    """Plain data of dataclasses, tables of floats, mappings and sequences; tensors stay.

    Fields that are left out of comparisons are left out.

    Example:
        >>> from trjmcmc.estimate import Estimate
        >>> plain({"p": Estimate(0.5, 0.1)})["p"]["std_error"]
        0.1
    """
    name = type(x).__name__
    if is_dataclass(x):
        return {CLASS: name, **{f.name: plain(getattr(x, f.name)) for f in fields(x) if f.compare}}
    if name in TABLES:
        columns = {"": x} if name == "Series" else dict(x.items())
        return {
            CLASS: name,
            "name": getattr(x, "name", None),
            "of": x.index.name,
            "index": list(x.index),
            "columns": {key: column.tolist() for key, column in columns.items()},
        }
    if isinstance(x, Mapping):
        return {key: plain(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return type(x)(plain(value) for value in x)
    return x.item() if isinstance(x, np.generic) else x


def made(x: Any, classes: Mapping[str, type]) -> Any:
    """What data of :func:`plain` were made of.

    Arguments:
        x: The data.
        classes: Dataclasses that may be among them, by name; others are an error.
    """
    if isinstance(x, list | tuple):
        return type(x)(made(value, classes) for value in x)
    if not isinstance(x, Mapping):
        return x
    found = {key: made(value, classes) for key, value in x.items() if key != CLASS}
    if CLASS not in x:
        return found
    if x[CLASS] not in TABLES:
        return classes[x[CLASS]](**found)
    import pandas as pd

    index = pd.Index(found["index"], name=found["of"])
    table = pd.DataFrame(found["columns"], index, dtype=float)
    return table if x[CLASS] == "DataFrame" else table[""].rename(found["name"])


def pack(data: Mapping[str, Any]) -> bytes:
    """Plain data and tensors as the content of a file."""
    buffer = io.BytesIO()
    torch.save(dict(data), buffer)
    payload = _compressed(buffer.getbuffer())
    return MAGIC + hashlib.sha256(payload).digest() + payload


def _compressed(content: memoryview) -> bytes:
    """Deflated, without the search for repeats that takes half the time where it finds none.

    Chains that stay where they are repeat themselves; coordinates of chains that move do not.
    """
    first = max(0, (len(content) - SAMPLE) // 2)
    some = content[first : first + SAMPLE]
    searched, plain = (len(_deflated(some, s)) for s in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_RLE))
    worth = searched < WORTH * plain
    return _deflated(content, zlib.Z_DEFAULT_STRATEGY if worth else zlib.Z_RLE)


def _deflated(content: memoryview, strategy: int) -> bytes:
    by = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, strategy)
    return by.compress(content) + by.flush()


def unpack(path: str | Path) -> dict[str, Any]:
    """What a file holds.

    Raises:
        TRJError: It was damaged, as its checksum says, or is another's.
    """
    content = Path(path).read_bytes()
    head = len(MAGIC) + CHECKSUM
    if not content.startswith(MAGIC):
        raise TRJError(f"{path}: not a result saved by trjmcmc")
    payload = content[head:]
    if hashlib.sha256(payload).digest() != content[len(MAGIC) : head]:
        raise TRJError(f"{path}: damaged, its checksum is not that of its content")
    try:
        data: dict[str, Any] = torch.load(io.BytesIO(zlib.decompress(payload)), weights_only=True)
    except Exception as error:  # torch meets a foreign file with errors of many kinds
        raise TRJError(f"{path}: not a result saved by trjmcmc ({type(error).__name__})") from None
    return data
