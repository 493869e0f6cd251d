"""Spaces from what saved files hold of them."""

from __future__ import annotations

from typing import Any

from .base import Space
from .counts import Counts
from .dags import Dags
from .model_list import ModelList
from .ordered_dags import OrderedDags
from .subsets import Subsets

SPACES: dict[str, type[Space]] = {
    cls.__name__: cls for cls in (ModelList, Subsets, Counts, Dags, OrderedDags)
}


def space_from_spec(spec: dict[str, Any]) -> Space:
    """Rebuild a space from :meth:`Space.spec`."""
    return SPACES[spec["kind"]].from_spec(spec)
