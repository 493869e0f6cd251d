"""The recipe of a target."""

from __future__ import annotations

import math

import torch

from ...errors import ConfigurationError
from ...space.base import Space
from ...target.exchangeable import components_of
from ...target.target import Target
from ..plan import Plan
from .base import Limit, Recipe
from .counts import Components
from .lists import Lists
from .subsets import Items

MOST_LISTED = 128  # models

FEW_SUBSETS = 16  # up to which populations of each are cheap, and give evidences


def recipe_of(
    target: Target, plan: Plan, generator: torch.Generator, *, limit: Limit | None = None
) -> Recipe:
    """Components where numbers are counted, items of many subsets, else a list of models.

    Raises:
        ConfigurationError: Graphs, or more than 128 models that are no subsets; components that
            are not exchangeable.
    """
    kind = kind_of(target.space)
    if kind is None:
        raise ConfigurationError(f"rounds: no recipe for {type(target.space).__name__}")
    if kind is Components and not components_of(target):
        raise ConfigurationError("rounds: they take components that are exchangeable")
    return kind(target, plan, generator, limit=limit)


def kind_of(space: Space) -> type[Recipe] | None:
    """The kind of a space: of components, of items, of few models; None of others."""
    if space.graphs or space.orders:
        return None
    if space.counts and space.several:
        return Components
    if space.has_items and (space.size or math.inf) > FEW_SUBSETS:
        return Items
    return Lists if space.enumerable and (space.size or 0) <= MOST_LISTED else None
