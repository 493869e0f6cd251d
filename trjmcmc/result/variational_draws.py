"""Draws of an approximation in the user's names and units, with their importance weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..draws import Draws
from ..errors import ConfigurationError, TRJError, UnknownModelError
from ..estimate.estimate import Estimate
from ..estimate.importance import pareto_smoothed
from ..estimate.mean import mean_error
from ..transport.base import Transport
from ..weights.base import ModelWeights
from .axes import Description
from .numbers import by_number, unpadded

if TYPE_CHECKING:
    import pandas as pd

QUANTILES = (0.05, 0.5, 0.95)

MOST_DRAWS = 8192  # of a run that are looked at, about


@dataclass(frozen=True)
class VariationalDraws:
    """Independent draws from q, on the CPU.

    Attributes:
        models: Labels of the models that were drawn.
        model: Of each draw, its position in ``models``, shape (S,).
        values: Parameters by name, padded to the largest model with NaN, shape (S, ...).
        theta: Padded unconstrained coordinates, shape (S, D).
        log_joint: Shape (S,), float64, nats; -inf where the density is zero.
        log_q: Log density of q, of the model and theta together, shape (S,), float64, nats.
        stated: By label what its model says of its parameters' names and axes.
    """

    models: tuple[str, ...]
    model: Tensor
    values: Mapping[str, Tensor]
    theta: Tensor
    log_joint: Tensor
    log_q: Tensor
    stated: Mapping[str, Description] = field(default_factory=dict)

    @property
    def log_weight(self) -> Tensor:
        """log pi - log q, shape (S,), nats."""
        return self.log_joint - self.log_q

    def weights(self, corrected: bool, rows: Tensor | None = None) -> NDArray[np.float64]:
        """Weights of draws with sum one: Pareto-smoothed importance weights, or equal ones."""
        log_w = self.log_weight if rows is None else self.log_weight[rows]
        if not corrected:
            return np.full(len(log_w), 1 / max(1, len(log_w)))
        if not bool((log_w > -math.inf).any()):
            raise TRJError("corrected: no draw of q lies where the posterior has a density")
        return pareto_smoothed(log_w)[0].softmax(0).numpy()

    def label(self, model: str | None) -> str:
        """The model that is meant: by default the only one, or the one drawn most.

        Raises:
            UnknownModelError: It was not drawn.
        """
        if model is None:
            return self.models[int(torch.bincount(self.model, minlength=1).argmax())]
        if model not in self.models:
            raise UnknownModelError(
                f"model: expected one of the models that were drawn, {list(self.models)[:9]}, got "
                f"{model!r}; numbers of draws and names of parameters have arguments of their own"
            )
        return model

    def of_model(self, model: str | None) -> tuple[Tensor, dict[str, NDArray[np.floating]]]:
        """Rows (n,) of the draws of one model, and its parameters by name, shape (n, ...)."""
        rows = (self.model == self.models.index(self.label(model))).nonzero()[:, 0]
        return rows, unpadded(self.values, rows)

    def resampled(self, model: str | None, n: int | None, corrected: bool, seed: int) -> Any:
        """Draws of one model; see :meth:`trjmcmc.approximate.Variational.draws`."""
        rows, found = self.of_model(model)
        if n is None and not corrected:
            return found
        if n is not None and n < 1:
            raise ConfigurationError(f"n: expected a positive number of draws, got {n}")
        p = self.weights(corrected, rows)
        chosen = np.random.default_rng(seed).choice(len(p), size=n or len(p), p=p)
        return {name: value[chosen] for name, value in found.items()}

    def columns(self, model: str | None) -> tuple[Tensor, dict[str, NDArray[np.float64]]]:
        """Rows of one model, and each number of its parameters, (n,), by name."""
        rows, found = self.of_model(model)
        return rows, by_number(found)


def described(x: NDArray[np.float64], w: NDArray[np.float64]) -> list[float]:
    mean = float(w @ x)
    error = math.sqrt(float((w * (x - mean)) @ (w * (x - mean))))
    sd = math.sqrt(float(w @ np.square(x - mean)))
    return [mean, error, sd, *np.quantile(x, QUANTILES, weights=w, method="inverted_cdf")]


@torch.no_grad()
def beside_run(
    transport: Transport,
    weights: ModelWeights,
    sample: VariationalDraws,
    inclusion: pd.Series | None,
    draws: Draws,
) -> dict[str, Any]:
    """Fields of :class:`~trjmcmc.approximate.Variational` that a run's draws tell.

    Arguments:
        transport, weights: q.
        sample: Its draws.
        inclusion: Inclusion probabilities by item under q, or None.
        draws: Of the run.
    """
    every = max(1, -(-draws.n_chains * draws.n_draws // MOST_DRAWS))
    device = next((t.device for t in (*weights.buffers(),)), torch.device("cpu"))
    kept = (draws.code, draws.theta, draws.log_joint)
    code, theta, log_joint = (x[:, ::every].flatten(0, 1).to(device) for x in kept)
    dtypes = [t.dtype for t in (*transport.parameters(), *transport.buffers())]
    theta = theta.to(next((t for t in dtypes if t.is_floating_point), theta.dtype))
    theta = transport.with_spares(theta, code)
    log_q = (transport.log_prob(theta, code) + weights.log_prob(code)).double()
    by_chain = -log_q.view(draws.n_chains, -1).cpu().numpy()
    log_w = sample.log_weight
    log_evidence = float(log_w.logsumexp(0)) - math.log(len(log_w))
    error = None
    if inclusion is not None and len(inclusion):
        exact = transport.space.items(draws.flat()[0].to(device)).double().mean(0)
        error = float((torch.tensor(inclusion.to_numpy()).to(exact) - exact).abs().max())
    return {
        "cross_entropy": Estimate(float(by_chain.mean()), *mean_error(by_chain)),
        "divergence": float((log_joint.double() - log_q).mean()) - log_evidence,
        "inclusion_error": error,
    }
