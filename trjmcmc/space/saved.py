"""Spaces from what saved files hold of them."""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any

from .base import Space
from .counts import Counts
from .model_list import ModelList
from .subsets import Subsets


def space_from_spec(spec: dict[str, Any]) -> Space:
    """Rebuild a space from :meth:`Space.spec`."""
    if spec["kind"] == "ModelList":
        return ModelList(spec["names"], spec["slots"], spec["log_prior"])
    space: Space
    if spec["kind"] == "Subsets":
        space = Subsets(spec["names"], spec["of"], always=spec["always"], blocks=spec["blocks"])
        space.log_on_off = spec["log_on_off"]
        space.log_size_weight = spec["log_size_weight"]
    else:
        kinds = [
            Counts(k["max"], k["min"], of=k["of"], name=k.get("name"))
            for k in spec.get("kinds", [spec])
        ]
        space = reduce(operator.add, kinds)
        space.log_prior_table = spec["log_prior"]
    return space.bind(spec["slot_item"])
