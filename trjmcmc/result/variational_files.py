"""Variational answers as plain data, and in files that hold data only, with a checksum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..doubts.doubt import Doubt
from ..errors import TRJError
from ..estimate.estimate import Estimate
from .packed import pack, unpack
from .variational_draws import VariationalDraws

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1

ESTIMATES = ("elbo", "cross_entropy", "log_evidence")


def to_data(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of an answer, by name, as what a file can hold."""
    data = dict(fields)
    for name in ESTIMATES:
        data[name] = data[name] and asdict(data[name])
    for name in ("probabilities", "inclusion"):
        data[name] = None if data[name] is None else data[name].to_dict()
    table = data["models"]
    data["models"] = None if table is None else table.to_dict(orient="index")
    data["sample"] = data["sample"] and dict(vars(data["sample"]))
    data["doubts"] = [asdict(d) for d in data["doubts"]]
    data["cost"] = dict(data["cost"])
    return data


def from_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of an answer that was turned into plain data, by name."""
    import pandas as pd

    found = dict(data)
    for name in ESTIMATES:
        if found.get(name):
            found[name] = Estimate(**found[name])
    found["probabilities"] = pd.Series(found["probabilities"], name="probability", dtype=float)
    if found["inclusion"] is not None:
        found["inclusion"] = inclusion_of(found["inclusion"])
    if found.get("models") is not None:
        table = pd.DataFrame.from_dict(found["models"], orient="index")
        found["models"] = table.rename_axis("model")
    if found.get("sample"):
        found["sample"] = VariationalDraws(**found["sample"])
    found["doubts"] = tuple(Doubt(**d) for d in found["doubts"])
    return found


def inclusion_of(share: Mapping[str, float]) -> pd.Series:
    """Probabilities by item."""
    import pandas as pd

    return pd.Series(dict(share), name="probability", dtype=float).rename_axis("item")


def write_answer(path: str | Path, data: Mapping[str, Any]) -> None:
    """Write one file, read by :func:`read_answer`."""
    plain = {**data, "cost": {k: float(np.asarray(v)) for k, v in data["cost"].items()}}
    Path(path).write_bytes(pack({"format": FORMAT, "variational": plain}))


def read_answer(path: str | Path) -> dict[str, Any]:
    """Read a file.

    Raises:
        TRJError: It is of another kind, or was damaged.
    """
    data = unpack(path)
    if data.get("format") != FORMAT or "variational" not in data:
        raise TRJError(f"{path}: not a variational answer saved by this version of trjmcmc")
    found: dict[str, Any] = data["variational"]
    return found
