"""The recipe of a target."""

from __future__ import annotations

import math

import torch

from ...errors import ConfigurationError
from ...target.exchangeable import components_of
from ...target.target import Target
from ..plan import Plan
from .base import Limit, Recipe
from .counts import Components
from .equations import Equations, has_families
from .graphs import Graphs, graph_draws
from .lists import Lists
from .subsets import Items
from .walked_graphs import WalkedGraphs

MOST_LISTED = 128  # models

FEW_SUBSETS = 16  # up to which populations of each are cheap, and give evidences


def recipe_of(
    target: Target, plan: Plan, generator: torch.Generator, *, limit: Limit | None = None
) -> Recipe:
    """Components where numbers are counted, items of many subsets, graphs, else a list of models.

    Raises:
        ConfigurationError: Orders of the nodes of graphs; more than 128 models that are
            no subsets; components that are not exchangeable.
    """
    kind = kind_of(target)
    if kind is None:
        raise ConfigurationError(f"rounds: no recipe for {type(target.space).__name__}")
    if kind is Components and not components_of(target):
        raise ConfigurationError("rounds: they take components that are exchangeable")
    return kind(target, plan, generator, limit=limit)


def kind_of(target: Target) -> type[Recipe] | None:
    """The kind of a space: of components, items, graphs, few models; None of others."""
    space = target.space
    if space.graphs or space.orders:
        return kind_of_graphs(target) if space.graphs and space.several else None
    if space.counts and space.several:
        return Components
    if space.has_items and (space.size or math.inf) > FEW_SUBSETS:
        return Items
    return Lists if space.enumerable and (space.size or 0) <= MOST_LISTED else None


def kind_of_graphs(target: Target) -> type[Recipe] | None:
    """Graphs drawn whole, walked by tables, with parameters of each node; None of others."""
    if target.scores is not None and not target.dim:
        return WalkedGraphs if target.once(graph_draws) is None else Graphs
    return Equations if target.once(has_families) else None
