"""What a finished run says under other priors, and averages over its models."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import ConfigurationError, ConvergenceWarning, TRJError, warn_user
from ..estimate.importance import HIGH_K, pareto_k
from ..space.base import Space
from ..space.codes import distinct
from ..space.prior import normalised_log_prior
from ..target.prior import PriorSpec
from .predict import Array, Function, Prediction, _ratio, predict

if TYPE_CHECKING:
    from ..target.target import Target
    from .result import Result


COMMON = 0.01  # probability of a model from which its weights are judged

EVEN = 0.5  # effective share of the draws from which a heavy tail is borne

LEAST_SHARE = 0.01  # effective share of the draws under which a reweighting is doubtful

LEAST = 100.0  # effective draws, likewise

LOOKED_AT, NEAR = 2**16, 100  # models whose old prior is looked at: all, or neighbours of some


class Reweighted:
    """A run seen under another prior; made by :meth:`Result.reweight`.

    Attributes:
        result: The run.
        log_weights: Log of the new prior over the old one, shape (chain, draw), nats, up to a
            constant.
        ess: Effective number of draws that the weights leave of those there are.
        pareto_k: Shape of the tail of the weights, of the model where it is heaviest; above 0.7
            they can't be relied on.
        doubtful: Whether the weights in some model are too uneven for what is made of them.
    """

    def __init__(
        self,
        result: Result,
        log_weights: Array,
        log_odds: dict[str, float] | None = None,
        *,
        within: bool = False,
    ) -> None:
        self.result, self._log_odds, self._within = result, log_odds, within
        top = float(log_weights.max())
        if not math.isfinite(top):
            raise TRJError("reweight: no draw is possible under the new prior")
        self.log_weights = log_weights - top
        w = np.exp(self.log_weights)
        self._w = w / w.mean()
        self.ess = float(w.sum() ** 2 / (w**2).sum())
        self.pareto_k, self.doubtful, self._note = -math.inf, False, ""
        for label in result.models:
            self._judge(label, result.visited(label))
        if self.ess < LEAST:
            self._doubt(self.ess, w.size, "all models", self.pareto_k)
        if self.doubtful:
            warn_user(
                f"reweighting leaves {self._note}: the new prior is too far from the old one; run "
                "again with it",
                ConvergenceWarning,
            )

    def _doubt(self, ess: float, n: int, where: str, k: float) -> None:
        self.doubtful = True
        shape = f" (Pareto k {k:.2f})" if math.isfinite(k) else ""
        self._note = self._note or f"{ess:.0f} effective draws of {n} in {where}{shape}"

    def _judge(self, label: str, inside: NDArray[np.bool_]) -> None:
        """Look at the weights of a model's draws; they are even if p(model) alone changes."""
        if not inside.mean() > COMMON or (not self._within and np.ptp(self._w[inside]) == 0):
            return
        w, n = self._w[inside], int(inside.sum())
        ess = float(w.sum() ** 2 / (w**2).sum()) if w.any() else 0.0
        k = pareto_k(torch.as_tensor(self.log_weights[inside]))
        self.pareto_k = max(self.pareto_k, k)
        few = ess < min(n, max(LEAST, LEAST_SHARE * n))
        if few or (k > HIGH_K and ess < EVEN * n):
            self._doubt(ess, n, repr(label), k)

    def _share(self, inside: NDArray[np.bool_]) -> tuple[float, float, str]:
        """Weighted share of some draws; what a few draws tell has no error."""
        p, error, note = _ratio(inside.astype(float), self._w, self.result)
        return (p, math.nan, self._note) if self.doubtful else (p, error, note)

    def model_probabilities(self) -> pd.DataFrame:
        """Posterior probabilities of the models under the new prior.

        Returns:
            Indexed by model; ``probability``, ``se``, ``before``, p(model | data) as it was, and
            ``note``, what is in doubt.
            Where p(model) alone has changed and all models were weighed, from the combined
            evidences; else by weighing the draws, with NaN for models never visited.
        """
        labels = self.result.models
        shares = None if self._log_odds is None else self.result.combined_shares(self._log_odds)
        rows = []
        for label in labels:
            inside = self.result.visited(label)
            before = float(inside.mean())
            if shares is not None:
                e = shares[label]
                rows.append((e.value, e.std_error, before, e.warning))
            elif not before:
                rows.append((math.nan, math.inf, 0.0, "never visited"))
            else:
                p, error, note = self._share(inside)
                rows.append((p, error, before, note))
        columns = ["probability", "se", "before", "note"]
        return pd.DataFrame(rows, columns=columns, index=pd.Index(labels, name="model"))

    def inclusion_probabilities(self) -> pd.DataFrame:
        """Posterior probability of each item under the new prior.

        Returns:
            Indexed by item; ``probability``, ``se`` and ``note``, what is in doubt.
        """
        names, on = self.result.items()
        rows = [self._share(on[..., i]) for i in range(on.shape[-1])]
        columns = ["probability", "se", "note"]
        return pd.DataFrame(rows, columns=columns, index=pd.Index(names, name="item"))

    def predict(
        self,
        f: Function | Mapping[str, Function],
        *,
        most: int = 20_000,
        target: Target | None = None,
    ) -> Prediction:
        """As :meth:`Result.predict`, under the new prior."""
        found = predict(self.result, f, most=most, weights=self._w, target=target)
        if not self.doubtful:
            return found
        unknown = np.full_like(found.std_error, math.nan)
        return replace(found, std_error=unknown, warning=self._note)

    def __repr__(self) -> str:
        return f"Reweighted({self.ess:.0f} effective draws of {self._w.size})"


def reweighted(
    result: Result,
    model_prior: Any = None,
    priors: Mapping[str, PriorSpec] | None = None,
    target: Target | None = None,
) -> Reweighted:
    """The draws of a run, weighed for another prior; see :meth:`Result.reweight`."""
    code, theta = result.raw.flat()
    log_w = torch.zeros(len(code), dtype=torch.float64)
    log_odds: dict[str, float] | None = None
    if model_prior is not None:
        codes, which, _ = distinct(code)
        _check_support(result, model_prior, codes)
        log_w += _log_change(result, model_prior, codes)[which]
        if not priors and result.space.size is not None and result.all_weighed:
            every = result.space.enumerate()
            change = _log_change(result, model_prior, every).tolist()
            log_odds = dict(zip(result.space.label(every), change, strict=True))
    if priors:
        target = target or result.target
        if target is None:
            raise TRJError("reweight: a loaded result knows no priors; pass target=")
        log_w += target.log_prior_change(code, theta, priors).double()
    shape = (result.raw.n_chains, result.raw.n_draws)
    return Reweighted(result, log_w.reshape(shape).numpy(), log_odds, within=bool(priors))


def _check_support(result: Result, model_prior: Any, codes: Tensor) -> None:
    """No mass may be where the old prior had none: of all models, or near those visited."""
    space = result.space
    if space.size is not None and space.size <= LOOKED_AT:
        near = space.enumerate()
    else:
        low, levels = space.levels()
        near = codes[:NEAR, None].repeat(1, int(levels.sum()), 1)
        place = torch.arange(len(levels)).repeat_interleave(levels)
        value = torch.cat([a + torch.arange(n) for a, n in zip(low, levels, strict=True)])
        near[:, torch.arange(len(place)), place] = value
        near = near.flatten(0, 1)
    beyond = (space.log_prior(near) == -math.inf) & (_log_new(space, model_prior, near) > -math.inf)
    if bool(beyond.any()):
        label = space.label(near[beyond][:1])[0]
        raise TRJError(
            f"reweight: the run gave model {label!r} no prior probability, the new prior does; run "
            "again with it"
        )


def _log_change(result: Result, model_prior: Any, codes: Tensor) -> Tensor:
    """Log of another prior of the models over the present one, (N, L) -> (N,), nats."""
    old = result.space.log_prior(codes).double()
    new = _log_new(result.space, model_prior, codes)
    return torch.where(new == -math.inf, -math.inf, new - old)


def _log_new(space: Space, model_prior: Any, codes: Tensor) -> Tensor:
    """Log of another prior of the models, (N, L) -> (N,), nats, up to a constant."""
    if callable(model_prior):
        new = torch.as_tensor(model_prior(codes), dtype=torch.float64)
        if new.shape != (len(codes),) or bool(new.isnan().any()):
            raise ConfigurationError(
                f"model_prior: expected log-probabilities of shape ({len(codes)},) of codes "
                f"{tuple(codes.shape)}, got {tuple(new.shape)}, NaN: {bool(new.isnan().any())}"
            )
    else:
        if space.size is None or len(np.atleast_1d(model_prior)) != space.size:
            raise ConfigurationError(
                f"model_prior: expected one probability a model ({space.size}), or a function of "
                "codes that gives log-probabilities"
            )
        table = normalised_log_prior(model_prior, int(space.size), "model_prior")
        new = table.double()[space.index(codes)]
    return new
