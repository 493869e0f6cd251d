"""The recipe of a target."""

from __future__ import annotations

import math

import torch

from ...errors import ConfigurationError
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
        ConfigurationError: Graphs, or more than 128 models that are no subsets.
    """
    space = target.space
    if space.counts and space.several:
        return Components(target, plan, generator, limit=limit)
    if space.has_items and not space.graphs and (space.size or math.inf) > FEW_SUBSETS:
        return Items(target, plan, generator, limit=limit)
    if space.enumerable and (space.size or 0) <= MOST_LISTED:
        return Lists(target, plan, generator, limit=limit)
    raise ConfigurationError(f"rounds: no recipe for {type(space).__name__}")
