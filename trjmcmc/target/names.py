"""Parameters of one name in several models: shared, or told apart."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from torch.distributions import constraints

from .density import Block, Density
from .model import Model

SAME_KIND = {  # supports that differ by their ends alone, by the names of torch's classes
    "_GreaterThanEq": "_GreaterThan",
    "_HalfOpenInterval": "_Interval",
    "_LogInterval": "_Interval",
    "Circle": "_Interval",
}


def told_apart(models: Sequence[Model]) -> tuple[list[Model], list[Density]]:
    """Models and their densities; names that mean different things are made different ones.

    Parameters of one name share coordinates. Where rank or support differs from the first model
    with that name, a model that can be renamed gets the name with its own behind it.
    """
    first: dict[str, tuple[int, Any]] = {}
    found, each = [], []
    for model in models:
        density = _density(model)
        kinds = {b.prior.name: _kind(b) for b in density.blocks}
        other = {k: apart(k, model.name) for k, v in kinds.items() if first.get(k, v) != v}
        renamed = model.renamed(other) if other else None
        if renamed is not None:
            model, density = renamed, _density(renamed)
            kinds = {b.prior.name: _kind(b) for b in density.blocks}
        first = kinds | first
        found.append(model)
        each.append(density)
    return found, each


def apart(name: str, model: str) -> str:
    """What a parameter is called that shares its name with others and means something else.

    Example:
        >>> apart("rate", "changed")
        'rate_changed'
    """
    return f"{name}_{model}"


def as_stated(name: str, model: str, stated: Container[str]) -> str:
    """The name that a model's own statement has for a parameter of a target.

    Example:
        >>> as_stated("rate_changed", "changed", ["rate"])
        'rate'
    """
    return name if name in stated else name.removesuffix(apart("", model))


def _density(model: Model) -> Density:
    return Density(
        f"model {model.name!r}",
        model.priors,
        model.log_likelihood,
        model.vectorized,
        model.surrogate,
        fused=model.fused,
        on_reference=model.on_reference,
        padded=model.padded,
    )


def _kind(block: Block) -> tuple[int, str]:
    """What must agree for two parameters to be one: rank, and the kind of support.

    Whether ends belong to it does not matter: half-normal priors of torch may be 0, gamma priors
    of PyMC may not.
    """
    support: Any = block.prior.support
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    name = type(support).__name__
    return len(block.prior.shape), SAME_KIND.get(name, name)
