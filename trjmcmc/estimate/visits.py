"""Model probabilities from the visits of a chain."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .convergence import split_rhats
from .estimate import Estimate
from .mean import MANY_CHAINS, mean_error, spread_errors

FEW_RETURNS = 10  # visits of a model that begin anew, under which its error is doubtful

DRIFT = 4.0  # standard errors between the halves of a run that chance does not make

AT_ONCE = 32  # series that are in memory as numbers at once


def visit_probability(indicator: NDArray[np.bool_], fallback_ess: float) -> Estimate:
    """Share of the draws in a model.

    Arguments:
        indicator: Whether each draw is in the model, shape (chain, draw).
        fallback_ess: Effective draws to assume where the indicator never or hardly changes.

    Returns:
        Value and autocorrelation-aware error. For a model that is never (or always) visited
        the error is the distance of the 95 % bound, 3 / ESS (the rule of three): never visited
        is not probability zero.
    """
    return visit_probabilities(indicator[..., None], fallback_ess).estimates[0]


class VisitShares(NamedTuple):
    """Shares of the draws in many models.

    Attributes:
        estimates: As :func:`visit_probability` has them.
        rhat: Split R-hat of being in each; NaN where that never changes.
    """

    estimates: list[Estimate]
    rhat: NDArray[np.float64]


def visit_probabilities(indicators: NDArray[np.bool_], fallback_ess: float) -> VisitShares:
    """Shares of the draws in many models, as :func:`visit_probability` has that in one.

    Arguments:
        indicators: Whether each draw is in each model, shape (chain, draw, Q).
        fallback_ess: As there.
    """
    parts = range(0, indicators.shape[2], AT_ONCE)
    found = [
        _visits(np.ascontiguousarray(indicators[..., i : i + AT_ONCE]), fallback_ess) for i in parts
    ]
    rhat = np.concatenate([part.rhat for part in found]) if found else np.empty(0)
    return VisitShares([e for part in found for e in part.estimates], rhat)


def _visits(inside: NDArray[np.bool_], fallback_ess: float) -> VisitShares:
    chains, draws, _ = inside.shape
    x = inside.astype(float)
    means = x.mean(1)
    p = means.mean(0).clip(0.0, 1.0)
    spread = p * (1 - p)
    if chains < MANY_CHAINS:
        each = [mean_error(np.ascontiguousarray(x[..., q])) for q in range(x.shape[2])]
        error, ess = (np.array(part) for part in zip(*each, strict=True))
    else:
        error = spread_errors(means)
        with np.errstate(divide="ignore", invalid="ignore"):
            ess = np.where(error > 0, spread / error**2, float(chains * draws))
    marks = zip(_returns(inside).tolist(), _drifts(x).tolist(), strict=True)
    found = [
        _judged(float(p[q]), float(error[q]), float(ess[q]), chains, fallback_ess, *mark)
        for q, mark in enumerate(marks)
    ]
    return VisitShares(found, split_rhats(x))


def _judged(
    p: float, error: float, ess: float, chains: int, fallback_ess: float, returns: int, moved: float
) -> Estimate:
    """A share whose error counts what its series says against it."""
    if p in {0.0, 1.0}:
        bound = rule_of_three(fallback_ess)
        return Estimate(p, bound, fallback_ess, "never left" if p else "never visited")
    spread = p * (1 - p)
    if not math.isfinite(ess):  # too few draws for an autocorrelation: count the chains
        error, ess = math.sqrt(spread / chains), float(chains)
    warning = _few(returns, p)
    if warning and fallback_ess > 0:  # a model seldom seen: one effective draw more or less
        error = max(error, 1 / fallback_ess)
    if moved != 0:  # the starts are not forgotten: the error is larger
        warning = warning or f"drifts by {moved:+.3f} in half the run"
        error = math.hypot(error, moved)
    if warning:
        ess = min(ess, spread / error**2) if math.isfinite(error) else math.nan
    return Estimate(p, error, ess, warning)


def rule_of_three(ess: float) -> float:
    """The 95 % bound of a share that so many effective draws never met.

    Source:
        Hanley & Lippman-Hand (1983), https://doi.org/10.1001/jama.249.13.1743
    """
    return min(1.0, 3 / ess) if ess > 0 else 1.0


def log_odds(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> Estimate:
    """Log of the ratio of two visit shares, error from the influence function.

    Arguments:
        a, b: Whether each draw is in the first and the second model, shape (chain, draw).
    """
    p, q = float(a.mean()), float(b.mean())
    if p == 0 or q == 0:
        value = math.nan if p == q else (-math.inf if p == 0 else math.inf)
        return Estimate(value, math.inf, 0.0, "a model was never visited")
    error, ess = mean_error(a / p - b / q)
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


def _drifts(x: NDArray[np.floating]) -> NDArray[np.float64]:
    """Changes of shares from the first half of a run to the second, or 0 if chance explains them.

    Many chains see a common drift long before each of them has forgotten where it began.
    """
    chains, draws, q = x.shape
    if chains < MANY_CHAINS or draws < 2:
        return np.zeros(q)
    half = draws // 2
    gap = x[:, -half:].mean(1) - x[:, :half].mean(1)
    error, mean = gap.std(0, ddof=1) / math.sqrt(chains), gap.mean(0)
    sure = (np.abs(mean) > DRIFT * error) & (error > 0)
    return np.where(sure, mean, 0.0)


def _returns(inside: NDArray[np.bool_]) -> NDArray[np.intp]:
    """How often a stay in each model begins anew."""
    found: NDArray[np.intp] = (inside[:, 1:] & ~inside[:, :-1]).sum((0, 1))
    return found


def _few(returns: int, p: float) -> str:
    """What to say of a share of p into which chains have come back so often."""
    if returns >= FEW_RETURNS:
        return ""
    verb = "entered" if p <= 0.5 else "left"
    return {0: f"never {verb}", 1: f"{verb} only once"}.get(returns, f"{verb} only {returns} times")


def _few_returns(indicator: NDArray[np.bool_]) -> str:
    return _few(int(_returns(indicator[..., None])[0]), float(indicator.mean()))
