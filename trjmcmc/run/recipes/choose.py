"""The recipe of a target."""

from __future__ import annotations

import math

import torch

from ...errors import ConfigurationError
from ...target.exchangeable import components_of
from ...target.target import Target
from ..plan import Plan
from .base import Limit, Recipe, Stated
from .counts import Components
from .given import Given
from .graphs import Graphs, graph_draws
from .lists import Lists
from .subsets import Items

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
    """Components where numbers are counted, items of many subsets, graphs, else a list of models.

    With a kernel of the user that of given kernels.

    Raises:
        ConfigurationError: Graphs that are not drawn independently; more than 128 models that are
            no subsets; components that are not exchangeable.
    """
    if stated.kernel is not None:
        return Given(target, plan, generator, limit=limit, stated=stated)
    kind = kind_of(target)
    if kind is None:
        raise ConfigurationError(f"rounds: no recipe for {type(target.space).__name__}")
    if kind is Components and not components_of(target):
        raise ConfigurationError("rounds: they take components that are exchangeable")
    return kind(target, plan, generator, limit=limit, stated=stated)


def kind_of(target: Target) -> type[Recipe] | None:
    """The kind of a space: of components, items, graphs, few models; None of others."""
    space = target.space
    if space.graphs or space.orders:
        drawn = space.graphs and space.several and target.once(graph_draws) is not None
        return Graphs if drawn else None
    if space.counts and space.several:
        return Components
    if space.has_items and (space.size or math.inf) > FEW_SUBSETS:
        return Items
    return Lists if space.enumerable and (space.size or 0) <= MOST_LISTED else None
