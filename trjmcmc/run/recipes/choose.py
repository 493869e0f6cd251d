"""The recipe of a target."""

from __future__ import annotations

import torch

from ...target.exchangeable import components_of
from ...target.target import Target
from ..asked import Limit, Stated
from ..plan import Plan
from .base import Recipe
from .counts import CountsRecipe
from .equations import EquationsRecipe, has_families
from .given import KernelRecipe
from .graphs import GraphsRecipe, WalkedGraphsRecipe, graph_draws
from .lists import Lists
from .subsets import SubsetsRecipe

MOST_LISTED = 128  # models

FEW_SUBSETS = 16  # up to which populations of each are cheap, and give evidences


def recipe_of(
    target: Target,
    plan: Plan,
    generator: torch.Generator,
    *,
    limit: Limit | None = None,
    stated: Stated = Stated(),  # noqa: B008
) -> Recipe:
    """That of the kernel that is stated, or of the kind of space."""
    kind = KernelRecipe if stated.kernel is not None else kind_of(target)
    return kind(target, plan, generator, limit=limit, stated=stated)


def kind_of(target: Target) -> type[Recipe]:
    """Of components that are alike, graphs, few models, else of items."""
    space = target.space
    if space.graphs or space.orders:
        return kind_of_graphs(target)
    if space.counts and space.several and components_of(target):
        return CountsRecipe
    few = FEW_SUBSETS if space.has_items else MOST_LISTED
    return Lists if space.enumerable and (space.size or 0) <= few else SubsetsRecipe


def kind_of_graphs(target: Target) -> type[Recipe]:
    """Graphs drawn whole, walked by tables, with parameters of each node; else like items."""
    several = target.space.several and not target.space.orders
    if target.scores is not None and not target.dim and several:
        return WalkedGraphsRecipe if target.cached(graph_draws) is None else GraphsRecipe
    return EquationsRecipe if target.cached(has_families) else SubsetsRecipe
