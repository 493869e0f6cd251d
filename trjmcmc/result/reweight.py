"""What a finished run says under other priors, and averages over its models."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..doubts.doubt import EVERY, Doubt, warn_of
from ..doubts.of_numbers import of_reweighting
from ..errors import ConfigurationError, TRJError
from ..estimate.importance import pareto_k
from ..estimate.indicator import Mask
from ..promises import PARETO_K_RELIABLE
from ..space.base import Space
from ..space.codes import distinct
from ..space.prior import normalised_log_prior
from ..target.prior import PriorSpec
from ..target.target import Target
from .evidences import Evidences
from .predict import Array, Function, Prediction, predict, weighted_mean

if TYPE_CHECKING:
    import pandas as pd

JUDGED_SHARE = 0.01  # share of the draws from which the weights of a model's draws are judged

EVEN_SHARE = 0.5  # effective share of the draws from which a heavy tail does no harm

LEAST_SHARE = 0.01  # effective share of the draws under which a reweighting is flagged

LEAST_DRAWS = 100.0  # effective draws, likewise

MOST_MODELS = 2**16  # size of a space up to which the old prior of all models is looked at

MODELS_AROUND = 100  # models of a larger space whose neighbours' old prior is looked at


class Reweighted:
    """A run seen under another prior; made by :meth:`trjmcmc.Result.reweight`.

    Arguments:
        evidences: Of the run, and its draws.
        log_weights: Log of the new prior over the old one, shape (chain, draw), nats, up to a
            constant.
        log_odds: By label of every model, log of its new prior over the old one, where p(model)
            alone changes and all models were weighed.
        within: Whether priors of parameters change.
        target: Gives parameters their names, for :meth:`predict`.

    Attributes:
        log_weights: Log of the new prior over the old one, shape (chain, draw), nats, up to a
            constant.
        ess: Effective number of draws that the weights leave of those there are.
        pareto_k: Shape of the tail of the weights, of the model where it is heaviest; above 0.7
            they can't be relied on.
        doubts: Models in which the weights are too uneven for what is made of them.
    """

    def __init__(
        self,
        evidences: Evidences,
        log_weights: Array,
        log_odds: Mapping[str, float] | None = None,
        *,
        within: bool = False,
        target: Target | None = None,
    ) -> None:
        self._evidences, self._target = evidences, target
        self._indicator, self._doubted = evidences.indicator, evidences.chains.doubted
        self._log_odds, self._within = log_odds, within
        top = float(log_weights.max())
        if not math.isfinite(top):
            raise TRJError("reweight: no draw is possible under the new prior")
        self.log_weights = log_weights - top
        w = np.exp(self.log_weights)
        self._w = w / w.mean()
        self.ess = float(w.sum() ** 2 / (w**2).sum())
        self.pareto_k, self.doubts = -math.inf, list[Doubt]()
        for label in self._indicator.models:
            self._judge(label, self._indicator.inside(label))
        if self.ess < LEAST_DRAWS:
            self.doubts.append(of_reweighting(EVERY, self.ess, w.size, self.pareto_k))
        warn_of(self.doubts)

    def _judge(self, label: str, inside: Mask) -> None:
        """Look at the weights of a model's draws; they are even if p(model) alone changes."""
        if not inside.mean() > JUDGED_SHARE or (not self._within and np.ptp(self._w[inside]) == 0):
            return
        w, n = self._w[inside], int(inside.sum())
        ess = float(w.sum() ** 2 / (w**2).sum()) if (w**2).any() else 0.0
        k = pareto_k(torch.as_tensor(self.log_weights[inside]))
        self.pareto_k = max(self.pareto_k, k)
        few = ess < min(n, max(LEAST_DRAWS, LEAST_SHARE * n))
        if few or (k > PARETO_K_RELIABLE and ess < EVEN_SHARE * n):
            self.doubts.append(of_reweighting(label, ess, n, k))

    def _share(self, inside: Mask) -> tuple[float, float, str]:
        """Weighted share of some draws, its error, NaN where few draws decide, and its flag."""
        p, error, note = weighted_mean(inside.astype(float), self._w, self._doubted)
        return (p, math.nan, self.doubts[0].words) if self.doubts else (p, error, note)

    def model_probabilities(self) -> pd.DataFrame:
        """Posterior probabilities of the models under the new prior.

        Returns:
            Indexed by model; ``probability``, ``se``, ``before``, p(model | data) as it was, and
            ``note``, what makes a row doubtful.
            Where p(model) alone has changed and all models were weighed, from the combined
            evidences; else by weighing the draws, with NaN for models never visited.
        """
        import pandas as pd

        labels, odds = self._indicator.models, self._log_odds
        shares = None if odds is None else self._evidences.shares_under(odds)
        rows = []
        for label in labels:
            inside = self._indicator.inside(label)
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
            Indexed by item; ``probability``, ``se`` and ``note``, what makes a row doubtful.
        """
        import pandas as pd

        names, on = self._indicator.items()
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
        """As :meth:`trjmcmc.Result.predict`, under the new prior."""
        target = target or self._target
        found = predict(self._doubted, target, f, most=most, weights=self._w)
        if not self.doubts:
            return found
        unknown = np.full_like(found.std_error, math.nan)
        return replace(found, std_error=unknown, warning=self.doubts[0].words)

    def __repr__(self) -> str:
        return f"Reweighted({self.ess:.0f} effective draws of {self._w.size})"


def reweighted(
    evidences: Evidences,
    model_prior: Any = None,
    priors: Mapping[str, PriorSpec] | None = None,
    target: Target | None = None,
) -> Reweighted:
    """The draws of a run, weighed for another prior; see :meth:`trjmcmc.Result.reweight`.

    Arguments:
        evidences: Of the run, and its draws.
        model_prior, priors: The new prior of the models, and those of parameters by name.
        target: Knows the old priors of the parameters.
    """
    space, draws = evidences.indicator.space, evidences.indicator.draws
    code, theta = draws.flat()
    log_w = torch.zeros(len(code), dtype=torch.float64)
    log_odds: dict[str, float] | None = None
    if model_prior is not None:
        codes, which, _ = distinct(code)
        _check_support(space, model_prior, codes)
        log_w += _log_change(space, model_prior, codes)[which]
        if not priors and space.size is not None and evidences.all_weighed:
            every = space.enumerate()
            change = _log_change(space, model_prior, every).tolist()
            log_odds = dict(zip(space.label(every), change, strict=True))
    if priors:
        if target is None:
            raise TRJError("reweight: a loaded result knows no priors; pass target=")
        log_w += target.log_prior_change(code, theta, priors).double()
    log_weights = log_w.reshape(draws.n_chains, draws.n_draws).numpy()
    return Reweighted(evidences, log_weights, log_odds, within=bool(priors), target=target)


def _check_support(space: Space, model_prior: Any, codes: Tensor) -> None:
    """No mass may be where the old prior had none: of all models, or near those visited."""
    if space.size is not None and space.size <= MOST_MODELS:
        near = space.enumerate()
    else:
        low, levels = space.levels()
        near = codes[:MODELS_AROUND, None].repeat(1, int(levels.sum()), 1)
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


def _log_change(space: Space, model_prior: Any, codes: Tensor) -> Tensor:
    """Log of another prior of the models over the present one, (N, L) -> (N,), nats."""
    old = space.log_prior(codes).double()
    new = _log_new(space, model_prior, codes)
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
                f"model_prior: expected one probability per model ({space.size}), or a function of "
                "codes that gives log-probabilities"
            )
        table = normalised_log_prior(model_prior, int(space.size), "model_prior")
        new = table.double()[space.index(codes)]
    return new
