"""Files of plain data with a checksum: what is read is never executed."""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..errors import TRJError

MAGIC = b"trjmcmc\n"  # first bytes of a file; then the checksum, and what it is of

CHECKSUM = 32  # bytes


def pack(data: Mapping[str, Any]) -> bytes:
    """Plain data and tensors as the content of a file."""
    buffer = io.BytesIO()
    torch.save(dict(data), buffer)
    payload = zlib.compress(buffer.getvalue(), 1)
    return MAGIC + hashlib.sha256(payload).digest() + payload


def unpack(path: str | Path) -> dict[str, Any]:
    """What a file holds; files of version 0.9.0 have no checksum.

    Raises:
        TRJError: It was damaged, as its checksum says, or is another's.
    """
    content = Path(path).read_bytes()
    if content.startswith(MAGIC):
        head = len(MAGIC) + CHECKSUM
        payload = content[head:]
        if hashlib.sha256(payload).digest() != content[len(MAGIC) : head]:
            raise TRJError(f"{path}: damaged, its checksum is not that of its content")
        content = zlib.decompress(payload)
    try:
        data: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True)
    except Exception as error:  # torch meets a foreign file with errors of many kinds
        raise TRJError(f"{path}: not a result saved by trjmcmc ({type(error).__name__})") from None
    return data
