"""What a finished run says under other priors, and averages over its models."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from .errors import ConfigurationError, ConvergenceWarning, TRJError
from .estimate import mean_error, pareto_k
from .estimate.importance import HIGH_K
from .prior import PriorSpec
from .space import distinct, normalised_log_prior

if TYPE_CHECKING:
    from .result import Result
    from .target import Target

LEAST_SHARE = 0.01  # effective share of the draws under which a reweighting is doubtful
LEAST = 100.0  # effective draws, likewise

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
    """

    mean: Array
    std_error: Array
    sd: Array
    lower: Array
    median: Array
    upper: Array
    by_model: dict[str, Array]


class Reweighted:
    """A run seen under another prior; made by :meth:`Result.reweight`.

    Attributes:
        result: The run.
        log_weights: Log of the new prior over the old one, shape (chain, draw), nats, up to a
            constant.
        ess: Effective number of draws that the weights leave of those there are.
        pareto_k: Shape of the tail of the weights; above 0.7 they can't be relied on.
    """

    def __init__(self, result: Result, log_weights: Array) -> None:
        self.result = result
        top = float(log_weights.max())
        if not math.isfinite(top):
            raise TRJError("reweight: no draw is possible under the new prior")
        self.log_weights = log_weights - top
        w = np.exp(self.log_weights)
        self._w = w / w.mean()
        self.ess = float(w.sum() ** 2 / (w**2).sum())
        self.pareto_k = pareto_k(torch.as_tensor(self.log_weights.ravel()))
        if self.doubtful:
            warnings.warn(
                f"reweighting leaves {self.ess:.0f} effective draws of {w.size} (Pareto k "
                f"{self.pareto_k:.2f}): the new prior is too far from the old one; run again "
                "with it",
                ConvergenceWarning,
                stacklevel=3,
            )

    @property
    def doubtful(self) -> bool:
        """Whether the weights are too uneven for what is made of them."""
        few = self.ess < max(LEAST, LEAST_SHARE * self._w.size)
        return few or (self.pareto_k > HIGH_K and self.ess < 0.5 * self._w.size)

    def model_probabilities(self) -> pd.DataFrame:
        """Posterior probabilities of the models under the new prior.

        Returns:
            Indexed by model; ``probability``, ``se`` (autocorrelation-aware), ``before``, the
            share of the visits.
        """
        labels = self.result.models
        rows = []
        for label in labels:
            inside = self.result.visited(label)
            p, se = _ratio(inside.astype(float), self._w)
            rows.append((p, se, float(inside.mean())))
        columns = ["probability", "se", "before"]
        return pd.DataFrame(rows, columns=columns, index=pd.Index(labels, name="model"))

    def predict(self, f: Function | Mapping[str, Function], *, most: int = 20_000) -> Prediction:
        """As :meth:`Result.predict`, under the new prior."""
        return predict(self.result, f, most=most, weights=self._w)


def reweighted(
    result: Result,
    model_prior: Any = None,
    priors: Mapping[str, PriorSpec] | None = None,
    target: Target | None = None,
) -> Reweighted:
    """The draws of a run, weighed for another prior; see :meth:`Result.reweight`."""
    code, theta = result.raw.flat()
    log_w = torch.zeros(len(code), dtype=torch.float64)
    if model_prior is not None:
        codes, which, _ = distinct(code)
        if callable(model_prior):
            new = torch.as_tensor(model_prior(codes), dtype=torch.float64)
        else:
            if result.space.size is None or result.space.size > len(np.atleast_1d(model_prior)):
                raise ConfigurationError(
                    "model_prior: expected one probability a model, or a function of codes that "
                    "gives log-probabilities"
                )
            table = normalised_log_prior(model_prior, int(result.space.size), "model_prior")
            new = table.double()[result.space.index(codes)]
        log_w += (new - result.space.log_prior(codes).double())[which]
    if priors:
        target = target or result.target
        if target is None:
            raise TRJError("reweight: a loaded result knows no priors; pass target=")
        log_w += target.log_prior_change(code, theta, priors).double()
    shape = (result.raw.n_chains, result.raw.n_draws)
    return Reweighted(result, log_w.reshape(shape).numpy())


def predict(
    result: Result,
    f: Function | Mapping[str, Function],
    *,
    most: int = 20_000,
    weights: Array | None = None,
) -> Prediction:
    """A function of the parameters averaged over models; see :meth:`Result.predict`."""
    target = result.target
    if target is None:
        raise TRJError("predict: a loaded result has no target; use draws(model)")
    every = max(1, -(-result.raw.n_chains * result.raw.n_draws // most))
    code, theta = result.raw.code[:, ::every], result.raw.theta[:, ::every]
    shape = tuple(code.shape[:2])
    flat, x = code.reshape(-1, code.shape[2]), theta.reshape(-1, theta.shape[2])
    out: Array | None = None
    codes, which, _ = distinct(flat)
    labels = result.space.label(codes)
    for m, label in enumerate(labels):
        rows = (which == m).nonzero()[:, 0]
        one = f[label] if isinstance(f, Mapping) else f
        value = target.apply(one, codes[m], x[rows])
        value = np.asarray(torch.as_tensor(value).detach().cpu(), dtype=float)
        bare = not bool(target.space.active(codes[m][None]).any())  # no parameters: one for all
        if value.ndim == 0 or (bare and value.shape[:1] != (len(rows),)):
            each = value.shape[1:] if value.shape[:1] == (1,) else value.shape
            value = np.broadcast_to(value, (len(rows), *each))
        if value.shape[:1] != (len(rows),):
            raise ConfigurationError(
                f"predict: f must return one value a draw, ({len(rows)}, ...), in model "
                f"{label!r}; got shape {value.shape}"
            )
        if out is None:
            out = np.full((len(flat), *value.shape[1:]), np.nan)
        elif out.shape[1:] != value.shape[1:]:
            raise ConfigurationError(
                f"predict: f must return the same shape in all models; got {value.shape[1:]} in "
                f"{label!r} and {out.shape[1:]} elsewhere"
            )
        out[rows.numpy()] = value
    assert out is not None
    w = np.ones(shape) if weights is None else weights[:, ::every]
    columns = out.reshape(len(flat), -1)
    moments = np.array([_ratio(c.reshape(shape), w) for c in columns.T]).reshape(-1, 2)
    mean, error = moments[:, 0], moments[:, 1]
    p = w.ravel() / w.sum()
    sd = np.sqrt(p @ (columns - mean) ** 2)
    quantiles = np.quantile(columns, [0.05, 0.5, 0.95], axis=0, weights=p, method="inverted_cdf")
    by_model = {}
    for m, label in enumerate(labels):
        inside = (which == m).numpy()
        if (here := w.ravel()[inside]).sum() > 0:
            by_model[label] = np.average(out[inside], axis=0, weights=here)
    lower, median, upper, mean, error, sd = (
        v.reshape(out.shape[1:]) for v in (*quantiles, mean, error, sd)
    )
    return Prediction(mean, error, sd, lower, median, upper, by_model)


def _ratio(x: Array, w: Array) -> tuple[float, float]:
    """Weighted mean of ``x``, shape (chain, draw), and its standard error."""
    mean = float((w * x).mean() / w.mean())
    error, _ = mean_error(w * (x - mean) / w.mean())
    return mean, 0.0 if math.isnan(error) else error
