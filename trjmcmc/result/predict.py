"""Functions of parameters, averaged over models."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..doubts.doubted import Doubted
from ..errors import ConfigurationError, TRJError
from ..estimate.mean import mean_error
from ..space.codes import distinct
from ..target.target import Target

BATCH_DRAWS = 500  # draws that a function sees at once: it may need memory for each component

MOST_VALUES = 20_000_000  # values of a function that are kept, at most

Array = NDArray[np.float64]

Function = Callable[..., Any]


@dataclass(frozen=True)
class Prediction:
    """A function of the parameters, averaged over models and draws.

    Attributes:
        mean: Posterior mean over all models, shape (...).
        std_error: Its standard error, autocorrelation-aware, shape (...).
        sd: Posterior standard deviation, spread between models included, shape (...).
        lower, median, upper: 5, 50 and 95 % quantiles, shape (...).
        by_model: By label, the mean in each model that was visited.
        draws: The function at the draws that were used, of equal weight unless the result was
            reweighted, shape (n, ...).
        warning: What makes the mean doubtful; its error counts it, or is NaN.

    The interval is that of the quantity itself; add noise to it to predict new data.
    """

    mean: Array
    std_error: Array
    sd: Array
    lower: Array
    median: Array
    upper: Array
    by_model: dict[str, Array]
    draws: Array
    warning: str = ""

    def __repr__(self) -> str:
        if np.ndim(self.mean):
            return f"Prediction of shape {self.mean.shape}, by {len(self.by_model)} models"
        return (
            f"Prediction({self.mean:.5g} +- {self.std_error:.2g}, 90 % in {self.lower:.5g} to "
            f"{self.upper:.5g}, by {len(self.by_model)} models)"
            + (f" ({self.warning})" if self.warning else "")
        )


def predict(
    doubted: Doubted,
    target: Target | None,
    f: Function | Mapping[str, Function],
    *,
    most: int = 20_000,
    weights: Array | None = None,
) -> Prediction:
    """A function of the parameters averaged over models; see :meth:`trjmcmc.Result.predict`.

    Arguments:
        doubted: What is known against the draws, and the draws.
        target: Gives parameters their names; None is refused.
        f: The function, or one for each model by label.
        most: Draws to use at most.
        weights: Of the draws, shape (chain, draw), of mean 1; equal if omitted.
    """
    if target is None:
        raise TRJError("predict: a loaded result has no target; pass target=, or use draws(model)")
    draws = doubted.indicator.draws
    every = max(1, -(-draws.n_chains * draws.n_draws // most))
    code, theta = draws.code[:, ::every], draws.theta[:, ::every]
    shape = tuple(code.shape[:2])
    flat, x = code.flatten(0, 1), theta.flatten(0, 1)
    out: Array | None = None
    codes, which, _ = distinct(flat)
    labels = doubted.indicator.space.label(codes)
    for m, label in enumerate(labels):
        rows = (which == m).nonzero()[:, 0]
        if isinstance(f, Mapping) and label not in f:
            raise ConfigurationError(
                f"predict: no function for model {label!r}, which the chains visited; there are "
                f"those of {sorted(f)}"
            )
        for some in rows.split(BATCH_DRAWS):
            value = target.apply(f[label] if isinstance(f, Mapping) else f, codes[m], x[some])
            if out is None:
                if len(flat) * (each := math.prod(value.shape[1:])) > MOST_VALUES and most > 1:
                    fewer = max(1, min(MOST_VALUES // each, most // 2))
                    return predict(doubted, target, f, most=fewer, weights=weights)
                out = np.full((len(flat), *value.shape[1:]), np.nan)
            elif out.shape[1:] != value.shape[1:]:
                raise ConfigurationError(
                    f"predict: f must return the same shape in all models; got {value.shape[1:]} "
                    f"in {label!r} and {out.shape[1:]} elsewhere"
                )
            out[some.numpy()] = value
    assert out is not None
    w = np.ones(shape) if weights is None else weights[:, ::every]
    columns = out.reshape(len(flat), -1)
    found = [weighted_mean(c.reshape(shape), w, doubted, every) for c in columns.T]
    mean, error = (np.array([e[i] for e in found], dtype=float) for i in range(2))
    warning = next((e[2] for e in found if e[2]), "")
    if not np.ptp(columns, axis=0).any():
        warning = warning or f"f is the same at all {len(flat)} draws; what is rarer is not seen"
    undefined: NDArray[np.bool_] = np.isnan(columns).sum(1) > 0
    if undefined.any():
        there = [m for i, m in enumerate(labels) if undefined[(which == i).numpy()].any()]
        warning = f"f is NaN at {undefined.sum()} of {len(flat)} draws, in {there[0]!r}"
    p = w.ravel() / w.sum()
    sd = np.sqrt(p @ (columns - mean) ** 2)
    weighing = {} if weights is None else {"weights": p}  # equal weights cost less unsaid
    cuts = [0.05, 0.5, 0.95]
    quantiles = np.quantile(columns, cuts, axis=0, method="inverted_cdf", **weighing)
    by_model = {}
    for m, label in enumerate(labels):
        inside = (which == m).numpy()
        if (here := w.ravel()[inside]).sum() > 0:
            by_model[label] = np.average(out[inside], axis=0, weights=here)
    lower, median, upper, mean, error, sd = (
        v.reshape(out.shape[1:]) for v in (*quantiles, mean, error, sd)
    )
    return Prediction(mean, error, sd, lower, median, upper, by_model, out, warning)


def weighted_mean(x: Array, w: Array, doubted: Doubted, every: int = 1) -> tuple[float, float, str]:
    """Weighted mean of ``x`` at every so many-th draw, (chain, draw), its error, and its flag."""
    mean = float((w * x).mean() / w.mean())
    influence = w * (x - mean) / w.mean()
    error, _ = mean_error(influence)
    if math.isnan(error):  # constant, or too few draws for an autocorrelation: count the chains
        error = float(influence.std()) / math.sqrt(len(x))
    return mean, *doubted.widened(error, influence, every=every)
