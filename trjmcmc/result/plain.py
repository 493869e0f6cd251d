"""Dataclasses and tables as plain data, which files hold, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

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
