"""Do independent routes to the same numbers agree, and what do they say together?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import scipy
from numpy.typing import NDArray

from .estimate import Estimate
from .importance import probabilities

ALPHA = 1e-4  # chance that honest routes are said to disagree, all comparisons together

SMALL_SHARE = 0.002  # differences of a probability too small to matter

SMALL_NATS = 0.01  # differences of a log evidence too small to matter

LEAST_ERROR = 1e-6  # nats; no estimate counts as more precise

SOURCES = {  # what routes rest on: the chains' draws, the map's, a tempered population
    "visits": {"chains"},
    "bartolucci": {"chains"},
    "bridge": {"chains", "map"},
    "warp": {"chains", "map"},
    "importance": {"map"},
    "smoothed": {"map"},
    "audit": {"population"},
}

ONE_SOURCE = {frozenset({"visits", "bartolucci"})}  # both rest on which models the chains visit

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
    sources: Mapping[str, set[str]] = SOURCES,
) -> tuple[list[Clash], set[str]]:
    """Models on which two routes differ by more than chance allows.

    Flagged estimates are left out: their errors say nothing. Routes that tell ratios only are
    compared by the shares of the models that both routes know. The threshold is Bonferroni's for
    a chance of at most one in ten thousand in all, by Student's t.

    Arguments:
        labels: Models.
        absolute: By route, log of p(model) times the evidence, nats.
        relative: By route, probabilities.
        sources: By route, what it rests on.

    Returns:
        Contradictions, and the models on which routes that have no draws in common were
        compared: two routes of one set of draws may agree on what it lacks.
    """
    routes = {**absolute, **relative}
    pairs = [(a, b) for a, b in combinations(routes, 2) if frozenset({a, b}) not in ONE_SOURCE]
    limit = -float(scipy.special.stdtrit(DEGREES, ALPHA / 2 / max(1, len(pairs) * len(labels))))
    found, compared = [], set()
    for a, b in pairs:
        known = [i for i in range(len(labels)) if usable(routes[a][i]) and usable(routes[b][i])]
        x, y, small = [routes[a][i] for i in known], [routes[b][i] for i in known], SMALL_NATS
        if a in relative or b in relative:
            if len(known) < 2:
                continue
            x, y = _shares(x, a in relative), _shares(y, b in relative)
            small = SMALL_SHARE
        apart = sources.get(a, {a}).isdisjoint(sources.get(b, {b}))
        for i, e, f in zip(known, x, y, strict=True):
            if apart:
                compared.add(labels[i])
            gap, error = abs(e.value - f.value), math.hypot(e.std_error, f.std_error)
            if gap > max(limit * error, small):
                sigmas = gap / error if error else math.inf
                found.append(Clash(labels[i], (a, b), sigmas, f"{a} {e}, {b} {f}"))
    return found, compared


def _shares(known: list[Estimate], relative: bool) -> list[Estimate]:
    """Shares of some models among themselves."""
    if not relative:
        return probabilities(known)
    total = sum(e.value for e in known)
    return [e * (1 / total) for e in known] if total > 0 else known


def combine(
    log_mass: Sequence[Estimate], share: Sequence[Estimate], covariance: NDArray[np.float64]
) -> tuple[list[Estimate], NDArray[np.float64]]:
    """Log masses from evidences and from shares together, by generalised least squares.

    The weights take both kinds as independent. Where both rest on the same chains, and their
    batches are known, the errors count what they have in common.

    Flagged estimates count only for models that nothing else tells of, and their flag stays.

    Arguments:
        log_mass: Log of p(model) times the evidence, by a route that owes nothing to how often
            the chains visit.
        share: Probabilities by visits or jumps, of the same models; they tell ratios only.
        covariance: Of the shares.

    Returns:
        Estimates in nats, and their covariance.
    """
    value = np.array([e.value for e in log_mass])
    error = np.array([e.std_error for e in log_mass])
    finite = np.isfinite(value) & np.isfinite(error)
    sound = np.array([usable(e) for e in log_mass])
    seen = np.array([usable(e) and e.value > 0 for e in share])
    linked = seen & bool((seen & sound).any())  # the level of one evidence reaches them all
    counted = sound | (finite & ~linked)
    level = float(value[counted].max()) if counted.any() else 0.0
    weight = np.where(counted, 1 / np.maximum(error, LEAST_ERROR) ** 2, 0.0)
    precision, right = np.diag(weight), weight * np.where(counted, value - level, 0.0)
    rows, pull = np.flatnonzero(seen), np.zeros_like(precision)
    if len(rows) > 1 and counted.any():
        pull[np.ix_(rows, rows)], log_ratio = _ratios(
            np.array([e.value for e, s in zip(share, seen, strict=True) if s]), covariance, rows
        )
        precision += pull
        right[rows] += pull[np.ix_(rows, rows)] @ log_ratio
    reached = counted | linked
    result = np.zeros_like(precision)
    if reached.any():
        scale = 1 / np.sqrt(precision.diagonal()[reached])
        inner = precision[np.ix_(reached, reached)] * np.outer(scale, scale)
        result[np.ix_(reached, reached)] = np.linalg.inv(inner) * np.outer(scale, scale)
    x = result @ right + level
    common = (result * weight) @ _common(log_mass, share) @ (result @ pull).T
    result = result + _widening(common + common.T)
    spread = np.sqrt(np.maximum(result.diagonal(), 0.0))
    found = []
    for k, e in enumerate(log_mass):
        if not reached[k]:
            found.append(Estimate(math.nan, math.inf, 0.0, e.warning or "no estimate"))
            continue
        se, warning = float(spread[k]), "" if sound[k] or linked[k] else e.warning
        found.append(Estimate(float(x[k]), se, 1 / se**2 if se**2 > 0 else math.inf, warning))
    return found, result


def _common(log_mass: Sequence[Estimate], share: Sequence[Estimate]) -> NDArray[np.float64]:
    """Covariance of log masses and log shares, by the batches of chains that both rest on."""
    both = [(e.batches, f.batches, f.value) for e, f in zip(log_mass, share, strict=True)]
    b = max((len(x) for x, _, _ in both), default=0)
    if b < 2:
        return np.zeros((len(both), len(both)))
    blank = np.zeros(b)
    ours = np.array([x if len(x) == b else blank for x, _, _ in both])
    theirs = np.array([np.divide(y, p) if len(y) == b and p > 0 else blank for _, y, p in both])
    return np.nan_to_num(ours @ theirs.T * b / (b - 1), posinf=0.0, neginf=0.0)


def _widening(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The part of a symmetric matrix that widens errors: covariances by batches are noisy."""
    size, direction = np.linalg.eigh(x)
    return (direction * size.clip(min=0)) @ direction.T


def _ratios(
    p: NDArray[np.float64], covariance: NDArray[np.float64], rows: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Precision of log shares that tell ratios only, and the log shares, of some models."""
    first = int(p.argmax())
    others = [k for k in range(len(p)) if k != first]
    slope = np.diag(1 / p)[others] - np.eye(len(p))[first] / p[first]
    known = covariance[np.ix_(rows, rows)]
    spread = slope @ known @ slope.T
    spread += np.diag(LEAST_ERROR**2 + 1e-9 * spread.diagonal())
    contrast = np.eye(len(p))[others] - np.eye(len(p))[first]
    return contrast.T @ np.linalg.solve(spread, contrast), np.log(p)


def shares_of(log_mass: Sequence[Estimate], covariance: NDArray[np.float64]) -> list[Estimate]:
    """Probabilities of models from log masses and their covariance, by the delta method."""
    found = shares_of_sets(log_mass, covariance, np.eye(len(log_mass)))
    pairs = zip(found, log_mass, strict=True)
    return [replace(e, warning=e.warning or mass.warning) for e, mass in pairs]


def shares_of_sets(
    log_mass: Sequence[Estimate], covariance: NDArray[np.float64], member: NDArray[np.floating]
) -> list[Estimate]:
    """Probabilities of sets of models from log masses and their covariance, by the delta method.

    Arguments:
        log_mass: Log of p(model) times the evidence; models without one have no share.
        covariance: Of the log masses, shape (M, M).
        member: Which models are in each set, 0 or 1, shape (K, M).
    """
    value = [e.value if math.isfinite(e.value) else -math.inf for e in log_mass]
    if max(value) == -math.inf:
        return [Estimate(math.nan, math.nan, 0.0, "no estimate") for _ in member]
    p = scipy.special.softmax(value)
    slope = member @ (np.diag(p) - np.outer(p, p))
    error = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", slope, covariance, slope), 0.0))
    return [
        Estimate(share, se, share * (1 - share) / se**2 if se**2 > 0 else math.inf)
        for share, se in zip((member @ p).tolist(), error.tolist(), strict=True)
    ]
