"""Numbers that chains pass through, by name, for pictures of convergence and of corners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import TRJError
from ..estimate.indicator import ModelIndicator
from ..promises import MODELS_ONE_BY_ONE
from .numbers import by_number, laid_out, numbers_of
from .parameters import Parameters
from .to_arviz import CHAINS_OF_ONE_MODEL

Series = dict[str, NDArray[Any]]

POINTS = 20_000  # draws of a corner plot at most

RANKED = 4000  # draws of a rank plot at most


def series_of_run(indicator: ModelIndicator, parameters: Parameters) -> Series:
    """What exists in every model, shape (chain, draw) each: the model first, then the log joint.

    The model is its position in the space (``model``) up to 64 models, the number of components
    (``k``) over counts, of items (``size``) over more subsets than that.
    """
    space, code = indicator.space, indicator.draws.code
    found: Series = {}
    if space.counts:
        several = len(space.kinds) > 1
        for at, kind in enumerate(space.kinds):
            found[f"k_{kind.name}" if several else "k"] = code[..., at].numpy()
    elif space.has_items and (space.size is None or space.size > MODELS_ONE_BY_ONE):
        found["size"] = indicator.items()[1].sum(-1)
    else:
        found["model"] = indicator.position()
    found["log joint"] = indicator.draws.log_joint.numpy()
    for name, value in parameters.values.items():
        if space.counts and space.items_of(name):  # positions of components mean nothing
            continue
        x = value.numpy()
        for label, place in zip(
            numbers_of(name, x.shape[2:]), np.ndindex(x.shape[2:]), strict=True
        ):
            series = x[(slice(None), slice(None), *place)]
            if not np.isnan(series).any():
                found[label] = laid_out(series, parameters.turns.get(name))
    return found


def series_of_model(indicator: ModelIndicator, parameters: Parameters, label: str) -> Series:
    """The numbers of one model at the draws in it, shape (n,) each, the log joint last.

    Components of an unknown number are all alike: the smallest, the mean and the largest of them.

    Raises:
        TRJError: The model was never visited.
    """
    inside = indicator.inside(label)
    if not inside.any():
        raise TRJError(f"model {label!r} was never visited; run longer")
    found, space = parameters.numbers(label), indicator.space
    for name, value in parameters.draws(label).items() if space.counts else ():
        if space.items_of(name) and value.shape[1] > 1:
            found = {k: x for k, x in found.items() if k.partition("[")[0] != name}
            for word, of_all in (("smallest", np.min), ("mean", np.mean), ("largest", np.max)):
                found |= by_number({f"{word} {name}": of_all(value, axis=1)})
    return {**found, "log joint": indicator.draws.log_joint.numpy()[inside]}


def cut(series: Mapping[str, NDArray[Any]]) -> Series:
    """Draws in one model as four chains, one after the other, (n,) -> (4, n // 4)."""
    n = len(next(iter(series.values())))
    pieces = CHAINS_OF_ONE_MODEL if n >= CHAINS_OF_ONE_MODEL else 1
    return {k: x[: n // pieces * pieces].reshape(pieces, -1) for k, x in series.items()}


def spaced(series: Mapping[str, NDArray[Any]], most: int) -> Series:
    """At most so many entries of the first axis, evenly spaced."""
    n = len(next(iter(series.values())))
    some = np.unique(np.linspace(0, n - 1, min(n, most)).astype(int))
    return {k: x[some] for k, x in series.items()}
