"""The only file that imports ArviZ: effective sample sizes, R-hat, export.

Works with ArviZ 0.2x (InferenceData) and with ArviZ 1.x (DataTree).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray


@cache
def _arviz() -> tuple[Any, bool]:
    """ArviZ, which takes seconds to import, and whether it is 1.x."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # 0.2x announces 1.x at import
        import arviz
    return arviz, int(arviz.__version__.split(".")[0]) >= 1


def effective_sample_size(x: NDArray[np.floating]) -> float:
    """Effective number of independent draws behind the mean of ``x``, shape (chain, draw).

    NaN where x is constant or there are fewer than four draws a chain.
    """
    if x.shape[1] < 4 or np.ptp(x) == 0:
        return float("nan")
    arviz, modern = _arviz()
    axes = {"chain_axis": 0, "draw_axis": 1} if modern else {}
    return _number(arviz.ess(np.ascontiguousarray(x, dtype=float), method="mean", **axes))


def _from_dict(
    groups: Mapping[str, Mapping[str, Any]],
    coords: Mapping[str, Any] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
) -> Any:
    """Groups of arrays with leading axes (chain, draw) as InferenceData or DataTree."""
    arviz, modern = _arviz()
    axes = {"coords": coords or {}, "dims": dims or {}}
    return arviz.from_dict(groups, **axes) if modern else arviz.from_dict(**groups, **axes)


def _number(value: Any) -> float:
    return float(np.asarray(value).item())


def to_arviz(
    posterior: dict[str, NDArray[Any]],
    sample_stats: dict[str, NDArray[Any]],
    attributes: dict[str, Any],
    third: Mapping[str, str] | None = None,
    axes: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    log_likelihood: Mapping[str, NDArray[Any]] | None = None,
    labels: NDArray[Any] | None = None,
) -> Any:
    """Groups of arrays with leading axes (chain, draw) as InferenceData or DataTree.

    Arguments:
        posterior, sample_stats: Arrays by name, shape (chain, draw, ...).
        attributes: Of the posterior.
        third: By name, what the axis after (chain, draw) is called; it is numbered from 1.
        axes: By name, what all axes after (chain, draw) are called, and their places.
        log_likelihood: Log density of each datum, shape (chain, draw, data), nats.
        labels: Each draw's model in words, shape (chain, draw), the coordinate ``label``.
    """
    groups: dict[str, Any] = {"posterior": posterior, "sample_stats": sample_stats}
    groups |= {"log_likelihood": dict(log_likelihood)} if log_likelihood else {}
    third = third or {}
    coords = {axis: np.arange(posterior[name].shape[2]) + 1 for name, axis in third.items()}
    dims = {
        name: [axis, *(f"{name}_dim_{i}" for i in range(1, posterior[name].ndim - 2))]
        for name, axis in third.items()
    }
    for name, places in (axes or {}).items():
        dims[name] = list(places)
        coords |= {axis: np.asarray(x) for axis, x in places.items()}
    data = _from_dict(groups, coords=coords, dims=dims)
    data["posterior"].attrs.update(attributes)
    if labels is not None:
        data["posterior"].coords["label"] = (("chain", "draw"), labels)
    return data


def groups(found: Mapping[str, Mapping[str, NDArray[Any]]]) -> Any:
    """Groups of arrays, each of shape (draw, ...), as InferenceData or DataTree with one chain."""
    return _from_dict(
        {group: {k: np.asarray(x)[None] for k, x in each.items()} for group, each in found.items()}
    )


def predictions(
    found: Mapping[str, NDArray[Any]], dims: Mapping[str, Sequence[str]] | None = None
) -> Any:
    """Predicted data as the group ``posterior_predictive`` of an InferenceData or DataTree.

    Arguments:
        found: By name, shape (draw, ...); they become one chain.
        dims: By name, what the axes after draw are called, where that fits.
    """
    whole = {name: np.asarray(x)[None] for name, x in found.items()}
    named = {k: list(v) for k, v in (dims or {}).items() if k in whole}
    fitting = {
        k: v for k, v in named.items() if len(v) == whole[k].ndim - 2 and not set(v) & set(whole)
    }
    return _from_dict({"posterior_predictive": whole}, dims=fitting)
