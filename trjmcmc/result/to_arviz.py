"""Results for ArviZ."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arviz_bridge import to_arviz
from ..errors import ConfigurationError, TRJError
from ..space.base import Kind
from ..target.model import Model
from .axes import Axes, axes_of, description, named
from .catalogue import Catalogue, by_entry

CHAINS_OF_ONE_MODEL = 4  # that the draws in one model are cut into


def of_model(
    catalogue: Catalogue,
    label: str,
    chains: int | None = None,
    stated: Sequence[Model] = (),
    by_datum: NDArray[Any] | None = None,
) -> Any:
    """Draws of one model; see :meth:`trjmcmc.Result.to_arviz`.

    Arguments:
        catalogue: Components, parameters and the model indicator of the run.
        label: The model.
        chains: How many chains there are to be.
        stated: Models as they were stated; this one's names of axes and parameters are taken.
        by_datum: Log density of each datum at the draws in the model, shape (n, data).

    Raises:
        TRJError: The model was never visited.
    """
    indicator, parameters = catalogue.indicator, catalogue.parameters
    found, inside = parameters.draws(label), indicator.inside(label)
    if not inside.any():
        raise TRJError(f"to_arviz: model {label!r} was never visited; run longer")
    pieces, n = chains or CHAINS_OF_ONE_MODEL, int(inside.sum())
    kept = chains is None and bool(inside.all())
    shape = inside.shape if kept else (pieces, n // pieces)
    shape = shape if shape[1] else (1, n)

    def pieces_of(each: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        return {k: v[: math.prod(shape)].reshape(*shape, *v.shape[1:]) for k, v in each.items()}

    cut, stats = pieces_of(found), pieces_of({"lp": indicator.draws.log_joint.numpy()[inside]})
    data = pieces_of({} if by_datum is None else {"data": by_datum})
    axes: Axes = {}
    for model in stated:
        if model.name == label:
            cut, axes = named(description(model), cut)
    about = {"models": json.dumps([label])}
    return to_arviz(cut or stats, stats, about, axes=axes, log_likelihood=data)


def of_all(
    catalogue: Catalogue,
    entries: bool = False,
    chains: int | None = None,
    stated: Sequence[Model] = (),
) -> Any:
    """All draws, padded with NaN; see :meth:`trjmcmc.Result.to_arviz`.

    Arguments:
        catalogue: Components, parameters and the model indicator of the run.
        entries: Give components by their entries in the catalogue.
        chains: How many chains there are to be.
        stated: Models as they were stated, whose names of axes are taken where they fit.

    Raises:
        TRJError: ``entries`` in another space than one of counts.
    """
    indicator, space = catalogue.indicator, catalogue.indicator.space
    log_joint: NDArray[Any] = indicator.draws.log_joint.numpy()
    posterior: dict[str, NDArray[Any]] = {"model": indicator.position()}
    posterior |= {name: x.numpy() for name, x in catalogue.parameters.values.items()}
    axes: dict[str, str] = {}
    if entries and not space.counts:
        catalogue.drawn("to_arviz(entries=True)", None)  # says what it is for
    for place, kind in enumerate(space.kinds if space.counts else ()):
        of = f"_{kind.name}" if len(space.kinds) > 1 else ""
        parts, axis = _components(catalogue, kind, of, entries)
        posterior[f"k{of}"] = indicator.draws.code[..., place].numpy()
        posterior |= parts
        axes |= dict.fromkeys(parts, f"{axis}{of}")
    if chains is not None:
        posterior = {name: joined(x, chains) for name, x in posterior.items()}
        log_joint = joined(log_joint, chains)
    attributes = {"models": json.dumps(indicator.names)}
    named = {
        name: found
        for model in reversed(stated)
        for name in model.priors
        if name in posterior
        and (found := axes_of(description(model), name, posterior[name].shape[2:]))
    }
    labels = np.array(indicator.names)[posterior["model"]] if space.few else None
    return to_arviz(posterior, {"lp": log_joint}, attributes, axes, named, labels=labels)


def _components(
    catalogue: Catalogue, kind: Kind, of: str, entries: bool
) -> tuple[dict[str, NDArray[Any]], str]:
    """Parameters of a kind by component or by entry, and what that axis is called."""
    drawn = catalogue.drawn("to_arviz(entries=True)", kind.name)
    if entries:
        parts = by_entry(drawn, catalogue.entries(drawn))
        parts[f"present{of}"] = parts.pop("present")
        return parts, "entry"
    most = max(1, int(drawn.active.sum(-1).max(initial=1)))
    return {name: x[:, :, :most] for name, x in drawn.values.items()}, "component"


def check_chains(chains: int | None, there: int) -> None:
    """Refuse to make more chains than there are, or none.

    Raises:
        ConfigurationError: So many can't be made.
    """
    if chains is not None and not 1 <= chains <= there:
        raise ConfigurationError(f"to_arviz: chains: expected 1 to {there}, got {chains}")


def joined(x: Any, chains: int) -> NDArray[Any]:
    """Chains end to end, (chain, draw, ...) -> (fewer chains, more draws, ...).

    Example:
        >>> joined(np.arange(6).reshape(3, 2), 1).tolist()
        [[0, 1, 2, 3, 4, 5]]
    """
    each = len(x) // chains
    return np.asarray(x[: each * chains]).reshape(chains, each * x.shape[1], *x.shape[2:])
