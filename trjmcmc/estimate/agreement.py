"""Do independent routes to the same numbers agree, and what do they say together?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from scipy.stats import t as student_t

from .estimate import Estimate

ALPHA = 1e-4  # chance that honest routes are said to disagree, all comparisons together
SMALL_SHARE = 0.002  # differences of a probability too small to matter
SMALL_NATS = 0.01  # differences of a log evidence too small to matter
DEGREES = 31  # of freedom behind errors from the spread of 32 chains


@dataclass(frozen=True)
class Clash:
    """Two routes that contradict each other on one model.

    Attributes:
        model: Label.
        routes: The two routes.
        sigmas: Their distance in standard errors.
        text: Both estimates in words.
    """

    model: str
    routes: tuple[str, str]
    sigmas: float
    text: str


def usable(e: Estimate) -> bool:
    """Whether an estimate has an error to judge by."""
    return math.isfinite(e.value) and math.isfinite(e.std_error) and not e.warning


def clashes(
    labels: Sequence[str],
    absolute: Mapping[str, Sequence[Estimate]],
    relative: Mapping[str, Sequence[Estimate]],
) -> list[Clash]:
    """Models on which two routes differ by more than chance allows.

    Flagged estimates are left out: their errors say nothing. The threshold is Bonferroni's for
    a chance of one in ten thousand in all, by Student's t.

    Arguments:
        labels: Models.
        absolute: By route, log of p(model) times the evidence, nats.
        relative: By route, probabilities.
    """
    from .importance import probabilities

    shares = {name: list(found) for name, found in relative.items()}
    for name, found in absolute.items():
        whole = softmax([e.value if math.isfinite(e.value) else -math.inf for e in found])
        doubtful = sum(p for p, e in zip(whole, found, strict=True) if not usable(e))
        if doubtful <= SMALL_SHARE:  # they share their normalisation
            shares[name] = probabilities(list(found))
    pairs = [(a, b, absolute[a], absolute[b], SMALL_NATS) for a, b in combinations(absolute, 2)] + [
        (a, b, shares[a], shares[b], SMALL_SHARE)
        for a, b in combinations(shares, 2)
        if a in relative or b in relative
    ]
    limit = float(student_t.isf(ALPHA / 2 / max(1, len(pairs) * len(labels)), DEGREES))
    found_clashes = []
    for a, b, first, second, small in pairs:
        for label, x, y in zip(labels, first, second, strict=True):
            gap, error = abs(x.value - y.value), math.hypot(x.std_error, y.std_error)
            if usable(x) and usable(y) and gap > max(limit * error, small):
                sigmas = gap / error if error else math.inf
                found_clashes.append(Clash(label, (a, b), sigmas, f"{a} {x}, {b} {y}"))
    return found_clashes


def combine(
    log_mass: Sequence[Estimate], share: Sequence[Estimate]
) -> tuple[list[Estimate], NDArray[np.float64]]:
    """Log masses from evidences and from visits together, by generalised least squares.

    Arguments:
        log_mass: Log of p(model) times the evidence, by a route that owes nothing to how often
            the chains visit; flagged ones count only where there is nothing else.
        share: Probabilities by visits, of the same models; they tell ratios only.

    Returns:
        Estimates in nats, flagged where nothing unflagged stands behind them, and their
        covariance.
    """
    n = len(log_mass)
    value = np.array([e.value for e in log_mass])
    error = np.array([e.std_error for e in log_mass])
    known = np.isfinite(value) & np.isfinite(error)
    weight = np.where(known, 1 / np.maximum(error, 1e-6) ** 2, 0.0)
    precision, right = np.diag(weight), weight * np.where(known, value, 0.0)
    seen = np.array([usable(e) and e.value > 0 and e.std_error > 0 for e in share])
    if seen.sum() > 1 and known.any():
        pull = _odds_precision([e for e, s in zip(share, seen, strict=True) if s])
        log_p = np.log([e.value for e, s in zip(share, seen, strict=True) if s])
        rows = np.flatnonzero(seen)
        precision[np.ix_(rows, rows)] += pull
        right[rows] += pull @ log_p
    reached = known | (seen & bool(known.any()))
    covariance = np.linalg.pinv(precision, hermitian=True)
    x = covariance @ right
    spread = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    found = []
    for k in range(n):
        if not reached[k]:
            found.append(Estimate(math.nan, math.inf, 0.0, log_mass[k].warning or "no estimate"))
            continue
        warning = "" if usable(log_mass[k]) or seen[k] else log_mass[k].warning
        se = float(spread[k])
        found.append(Estimate(float(x[k]), se, 1 / se**2 if se else math.inf, warning))
    return found, covariance


def _odds_precision(share: list[Estimate]) -> NDArray[np.float64]:
    """Inverse covariance of log shares as functions of log masses.

    Errors are correlated as those of a multinomial are.
    """
    p = np.array([e.value for e in share]).clip(1e-12, 1 - 1e-12)
    sd = np.array([e.std_error for e in share]) / p
    tie = np.sqrt(p / (1 - p))
    correlation = -np.outer(tie, tie)
    np.fill_diagonal(correlation, 1.0)
    inverse = np.linalg.pinv(correlation * np.outer(sd, sd), rcond=1e-10, hermitian=True)
    # log shares are log masses less the log of their sum: what the sum does not see
    relative = np.eye(len(p)) - np.outer(np.ones(len(p)), p / p.sum())
    found: NDArray[np.float64] = relative.T @ inverse @ relative
    return found


def shares_of(log_mass: Sequence[Estimate], covariance: NDArray[np.float64]) -> list[Estimate]:
    """Probabilities of models from log masses and their covariance, by the delta method."""
    value = [e.value if math.isfinite(e.value) else -math.inf for e in log_mass]
    if max(value) == -math.inf:
        return [Estimate(math.nan, math.nan, 0.0, "no estimate") for _ in value]
    p = softmax(value)
    slope = np.diag(p) - np.outer(p, p)
    error = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", slope, covariance, slope), 0.0))
    found = []
    for share, se, e in zip(p.tolist(), error.tolist(), log_mass, strict=True):
        found.append(
            Estimate(share, se, share * (1 - share) / se**2 if se else math.inf, e.warning)
        )
    return found
