"""The recipe of a target."""

from __future__ import annotations

import torch

from ...errors import ConfigurationError
from ...space.base import Space
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
    """That of the kernel that is stated, or of the kind of space.

    Raises:
        ConfigurationError: Graphs that are not drawn independently.
    """
    kind = Given if stated.kernel is not None else kind_of(target)
    if kind is None:
        raise ConfigurationError(f"rounds: no recipe for {type(target.space).__name__}")
    return kind(target, plan, generator, limit=limit, stated=stated)


def kind_of(target: Target) -> type[Recipe] | None:
    """Of components that are alike, graphs, few models, else items; None of some graphs."""
    space = target.space
    if space.graphs or space.orders:
        drawn = space.graphs and space.several and target.once(graph_draws) is not None
        return Graphs if drawn else None
    if space.counts and space.several and components_of(target):
        return Components
    few = FEW_SUBSETS if space.has_items else MOST_LISTED
    return Lists if space.enumerable and (space.size or 0) <= few and all_possible(space) else Items


def all_possible(space: Space) -> bool:
    """Whether each of few models has a prior above 0."""
    return bool(space.log_prior(space.enumerate()).isfinite().all())
