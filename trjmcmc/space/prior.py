"""Priors over models: what users may give, and how it is normalised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution

from ..errors import TargetError


@dataclass(frozen=True)
class LogWeights:
    """Unnormalised log prior weights of the models, where a list would be read as probabilities."""

    values: Sequence[float] | Tensor


def normalised_log_prior(
    prior: Sequence[float] | Tensor | Distribution | LogWeights | None,
    size: int,
    argument: str,
    first: int = 0,
) -> Tensor:
    """Log probabilities of ``size`` models from any of the accepted forms, shape (size,)."""
    if prior is None:
        return torch.full((size,), -math.log(size), dtype=torch.float64)
    if isinstance(prior, Categorical) and prior.probs.shape != (size,):
        raise TargetError(
            f"{argument}: expected a Categorical over {size} models, got {prior.probs.shape}"
        )
    if isinstance(prior, Distribution):
        index = torch.arange(first, first + size).to(torch.get_default_dtype())
        possible = prior.support.check(index)  # type: ignore[union-attr]
        inside = (
            torch.where(possible, index, index[possible][:1]) if bool(possible.any()) else index
        )
        log_weights = torch.where(possible, prior.log_prob(inside).double(), -math.inf)
    elif isinstance(prior, LogWeights):
        log_weights = torch.as_tensor(prior.values, dtype=torch.float64)
    else:
        try:
            p = torch.as_tensor(prior, dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError):
            raise TargetError(
                f"{argument}: expected {size} probabilities in the order of the models, a "
                f"distribution or trj.LogWeights, got {prior!r}"
            ) from None
        if bool((p < 0).any()):
            raise TargetError(
                f"{argument}: probabilities must not be negative, got {p.tolist()}; "
                "wrap log-weights in trj.LogWeights"
            )
        if p.shape == (size,) and abs(float(p.sum()) - 1) > 1e-4:
            raise TargetError(
                f"{argument}: probabilities must sum to 1, got {float(p.sum()):.6g}; "
                "for unnormalised weights use trj.LogWeights"
            )
        log_weights = p.log()
    if log_weights.shape != (size,):
        raise TargetError(
            f"{argument}: expected one number for each of {size} models, "
            f"got shape {tuple(log_weights.shape)}"
        )
    if bool(log_weights.isnan().any()) or not bool(log_weights.isfinite().any()):
        raise TargetError(f"{argument}: NaN, or no mass at all: {log_weights.tolist()}")
    return log_weights - log_weights.logsumexp(0)


def gap_in(log_prior: Tensor) -> bool:
    """Whether a prior of sizes leaves out some between others."""
    used = log_prior.isfinite().nonzero()[:, 0]
    return len(used) > 0 and not bool(log_prior[used[0] : used[-1] + 1].isfinite().all())


def subset_prior(prior: Any, n_units: int) -> tuple[Tensor, Tensor]:
    """log p(on), log p(off) by unit, shape (2, U), and a log weight by size, shape (U + 1,)."""
    if callable(prior):
        try:
            each = [float(prior(s)) for s in range(n_units + 1)]
        except (TypeError, AttributeError) as error:
            raise TargetError(
                "prior of Subsets: a function gets how many units are on, an int, and returns the "
                f"weight of one subset of that size; it failed with {error!r}"
            ) from error
        weights = torch.tensor(each, dtype=torch.float64)
        if not bool((weights >= 0).all()) or not bool(weights.isfinite().all()):
            raise TargetError(f"prior of Subsets: weights by size must be >= 0, got {weights}")
        log_weights = weights.log()
        counts = torch.tensor([log_choose(n_units, s) for s in range(n_units + 1)])
        total = (log_weights + counts.double()).logsumexp(0)
        if not bool(total.isfinite()):
            raise TargetError("prior of Subsets: the weights by size hold no mass")
        return torch.zeros(2, n_units, dtype=torch.float64), log_weights - total
    try:
        p = torch.as_tensor(prior, dtype=torch.float64)
    except (TypeError, ValueError):
        raise TargetError(
            "prior of Subsets: expected one number, one for each free unit, or a function of how "
            f"many units are on, got {prior!r}"
        ) from None
    if p.dim() > 1 or (p.dim() == 1 and len(p) != n_units):
        raise TargetError(
            f"prior of Subsets: expected one number or one for each of {n_units} free units, "
            f"got shape {tuple(p.shape)}"
        )
    if not bool(((p >= 0) & (p <= 1)).all()):
        raise TargetError(f"prior of Subsets: inclusion probabilities lie in [0, 1], got {prior}")
    p = p.expand(n_units)
    return torch.stack([p.log(), (1 - p).log()]), torch.zeros(n_units + 1, dtype=torch.float64)


def log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
