"""Model probabilities from the visits of a chain."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..promises import RHAT_CONVERGED
from .convergence import families, split_rhats, start_error
from .estimate import Estimate
from .mean import MANY_CHAINS, Ancestors, mean_error, spread_error

FEW_RETURNS = 10  # visits of a model that begin anew, under which its error is doubtful

DRIFT = 4.0  # standard errors between the halves of a run that chance does not make


def visit_probability(
    indicator: NDArray[np.bool_],
    fallback_ess: float,
    shares: NDArray[np.float64] | None = None,
    ancestor: Ancestors = None,
) -> Estimate:
    """Share of the draws in a model.

    Arguments:
        indicator: Whether each draw is in the model, shape (chain, draw).
        fallback_ess: Effective draws to assume where the indicator never or hardly changes.
        shares: Of many chains that were thinned, the share of all its steps that each was in
            the model, shape (chain,): thinning then costs no precision.
        ancestor: The independent draw that each chain descends from, shape (chain,).

    Returns:
        Value and autocorrelation-aware error, widened by what chains still remember of their
        start; NaN where they remember too much. For a model that is never (or always) visited
        the error is the distance of the 95 % bound, 3 / ESS (the rule of three): never visited
        is not probability zero.
    """
    if shares is None:
        p = float(indicator.mean())
        error, ess = mean_error(indicator.astype(float), ancestor)
    else:
        p = min(max(float(shares.mean()), 0.0), 1.0)
        error, ess = spread_error(shares, p * (1 - p), indicator.size, ancestor)
    if p in {0.0, 1.0}:
        bound = rule_of_three(fallback_ess)
        return Estimate(p, bound, fallback_ess, "never left" if p else "never visited")
    if not math.isfinite(ess):  # too few draws for an autocorrelation: count the chains
        error, ess = math.sqrt(p * (1 - p) / len(indicator)), float(len(indicator))
    warning = _few_returns(indicator)
    if warning and fallback_ess > 0:  # a model seldom seen: one effective draw more or less
        error = max(error, 1 / fallback_ess)
    if (moved := _drift(indicator)) != 0:  # the starts are not forgotten: the error is larger
        warning = warning or f"drifts by {moved:+.3f} in half the run"
        error = math.hypot(error, moved)
    first = families(ancestor, len(indicator))
    rhat = float(split_rhats(indicator[first, :, None].astype(float))[0])
    if rhat > RHAT_CONVERGED:
        warning = warning or f"R-hat {rhat:.2f}"
        error = math.hypot(error, start_error(rhat) * math.sqrt(p * (1 - p)))
    if warning:
        ess = min(ess, p * (1 - p) / error**2) if math.isfinite(error) else math.nan
    return Estimate(p, error, ess, warning)


def rule_of_three(ess: float) -> float:
    """The 95 % bound of a share that so many effective draws never met.

    Source:
        Hanley & Lippman-Hand (1983), https://doi.org/10.1001/jama.249.13.1743
    """
    return min(1.0, 3 / ess) if ess > 0 else 1.0


def log_odds(
    a: NDArray[np.bool_],
    b: NDArray[np.bool_],
    shares: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
    ancestor: Ancestors = None,
) -> Estimate:
    """Log of the ratio of two visit shares, error from the influence function.

    Arguments:
        a, b: Whether each draw is in the first and the second model, shape (chain, draw).
        shares: Of many chains that were thinned, the shares of all steps of each in the two.
        ancestor: The independent draw that each chain descends from, shape (chain,).
    """
    x, y = (a.mean(1), b.mean(1)) if shares is None else shares
    p, q = float(x.mean()), float(y.mean())
    if p == 0 or q == 0:
        value = math.nan if p == q else (-math.inf if p == 0 else math.inf)
        return Estimate(value, math.inf, 0.0, "a model was never visited")
    if shares is None:
        error, ess = mean_error(a / p - b / q, ancestor)
    else:
        error, ess = spread_error(x / p - y / q, 1 / p + 1 / q, math.nan, ancestor)
    if not math.isfinite(ess):  # a and b are the same model, or the chains never moved
        same = bool((a == b).all())
        return Estimate(math.log(p / q), 0.0 if same else math.inf, ess)
    return Estimate(math.log(p / q), error, ess, _few_returns(a) or _few_returns(b))


def transition_matrix(index: NDArray[np.integer], size: int) -> NDArray[np.float64]:
    """Shares of the draws that follow each model in a chain, (chain, draw) -> (size, size).

    Rows of models never left or never seen are NaN.
    """
    counts = np.zeros((size, size))
    np.add.at(counts, (index[:, :-1].ravel(), index[:, 1:].ravel()), 1.0)
    with np.errstate(invalid="ignore"):
        found: NDArray[np.float64] = counts / counts.sum(1, keepdims=True)
    return found


def second_eigenvalue(transition: NDArray[np.float64]) -> float:
    """Largest modulus of an eigenvalue but one, of the models that were seen.

    0 where each draw's model owes nothing to the one before, 1 where chains are stuck; 0 of a
    single model.
    """
    seen = np.isfinite(transition).all(1)
    p = transition[np.ix_(seen, seen)]
    if len(p) < 2:
        return 0.0 if len(p) else float("nan")
    total = p.sum(1, keepdims=True)
    p = np.where(total > 0, p / np.where(total > 0, total, 1.0), np.eye(len(p)))
    return float(np.sort(np.abs(np.linalg.eigvals(p)))[-2])


def _drift(indicator: NDArray[np.bool_]) -> float:
    """Change of the share from the first half of a run to the second, or 0 if chance explains it.

    Many chains see a common drift long before each of them has forgotten where it began.
    """
    chains, draws = indicator.shape
    if chains < MANY_CHAINS or draws < 2:
        return 0.0
    half = draws // 2
    gap = indicator[:, -half:].mean(1) - indicator[:, :half].mean(1)
    error = float(gap.std(ddof=1)) / math.sqrt(chains)
    mean = float(gap.mean())
    return mean if abs(mean) > DRIFT * error > 0 else 0.0


def _few_returns(indicator: NDArray[np.bool_]) -> str:
    returns = int((np.diff(indicator.astype(int), axis=1) == 1).sum())
    if returns >= FEW_RETURNS:
        return ""
    rarely = {0: "never entered", 1: "entered only once"}
    return rarely.get(returns, f"entered only {returns} times")
