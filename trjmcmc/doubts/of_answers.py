"""What speaks against a variational answer: tempered draws, importance weights, longer tails."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..estimate.estimate import Estimate
from ..estimate.importance import EVEN, pareto_smoothed
from ..estimate.reach import FarDraws
from ..pilot.report import AuditReport
from ..promises import PARETO_K_RELIABLE
from .doubt import EVERY, Doubt

EVIDENCES_APART = 0.3  # nats between the evidence and that of a small pilot run that are a doubt

NO_DENSITY = 0.01  # share of q where the posterior has none, that is a doubt

FAR, FAR_A_COORDINATE = 0.5, 0.01  # nats from q to the posterior that are a doubt, and of each

APART = 0.1  # of a standard deviation, by which a mean or a standard deviation is off

SHARE_APART = 0.05  # difference of a model's or an item's probability that is a doubt

SIGMAS = 5.0  # standard errors of it, or of the weighted moment

FEWEST = 1000  # draws of a model whose moments are compared

NARROWER = 0.05  # share by which a standard deviation under q is short, that is a doubt

NARROWER_SIGMAS = 3.0  # standard errors of that

FREQUENT = 25  # expected draws of a model from where their number is that of a normal

MISCOUNTED = 7.0  # standard deviations of it

MENDED_BY_RUN = "Sample exactly by run(): corrected=True has no draws there"


def _answer(subject: str, words: str, size: float = math.nan, remedy: str = "") -> Doubt:
    return Doubt(subject, words, size, remedy, kind="answer")


def of_audit(audit: AuditReport | None) -> list[Doubt]:
    """What independent tempered draws say of the map, if they could be relied on."""
    found = []
    for m in audit.models if audit is not None else ():
        if m.matters and m.uncovered:
            words = (
                f"the map misses a part of the posterior of {m.model!r}: it covers "
                f"{m.covered:.0%} of independent tempered draws and has lost {m.lost:.1%}"
            )
            found.append(_answer(m.model, words, m.missing))
        elif m.matters and m.verdict == "evidences differ" and abs(m.difference) > EVIDENCES_APART:
            words = (
                f"the evidence of {m.model!r} is {m.difference:+.2f} ± {m.difference_se:.2f} nats "
                "off that of independent tempered draws"
            )
            found.append(_answer(m.model, words, abs(m.difference)))
    return found


def of_weights(log_w: Tensor, pareto_k: float, ess_share: float) -> list[Doubt]:
    """Draws of q where the posterior has no density, and weights that can't be averaged.

    Arguments:
        log_w: Log importance weights of draws from q, shape (S,), nats.
        pareto_k: Shape of their tail, or of that of a model's.
        ess_share: Their effective share.
    """
    found, lost = [], float((log_w == -math.inf).double().mean())
    if lost > NO_DENSITY:
        words = f"{lost:.1%} of q lies where the posterior has no density"
        found.append(_answer(EVERY, words, lost))
    if not averaged(pareto_k, ess_share):
        words = (
            f"importance weights can't be averaged (Pareto k {pareto_k:.2f}), so that neither the "
            "evidence nor corrected=True can be relied on"
        )
        found.append(_answer(EVERY, words))
    return found


def averaged(pareto_k: float, ess_share: float) -> bool:
    """Whether importance weights may be averaged."""
    return pareto_k <= PARETO_K_RELIABLE or ess_share > EVEN


def of_bound(gap: float, coordinates: float) -> list[Doubt]:
    """A bound that is far below the evidence.

    Arguments:
        gap: How far, nats.
        coordinates: How many a draw has on average.
    """
    if not gap > FAR + FAR_A_COORDINATE * coordinates:
        return []
    words = f"the bound is {gap:.2f} nats below the evidence, which is KL(q | posterior)"
    remedy = "Use corrected=True where Pareto k allows it, or a richer family"
    return [_answer(EVERY, words, gap, remedy)]


def of_probabilities(
    under_q: Mapping[str, float], by_weights: Sequence[Estimate], noise: Sequence[float]
) -> list[Doubt]:
    """The model or item whose probability under q is furthest from that by importance weights.

    q(m) follows the bounds, and these fall short of the evidences by KL(q | p), of each model by
    its own: a model that q fits 0.7 nats worse than another has half the odds.

    Arguments:
        under_q: By label.
        by_weights: Of the same, by importance weights.
        noise: Standard error of the former, of each.
    """
    found = []
    for (label, p), e, own in zip(under_q.items(), by_weights, noise, strict=True):
        gap = abs(p - e.value)
        if gap > max(SHARE_APART, SIGMAS * math.hypot(e.std_error, own)):
            words = (
                f"the probability of {label!r} is {p:.2f} under q and {e.value:.2f} by importance "
                "weights"
            )
            found.append(_answer(label, words, gap))
    return sorted(found, key=lambda d: -d.size)[:1]


def of_reach(label: str, share: float) -> Doubt:
    """A share of the posterior in the tails of a model, beyond the draws of q."""
    words = (
        f"{share:.1%} of the posterior lies further out in the tails of {label!r} than draws of q "
        "reach: standard deviations and outer quantiles are too small"
    )
    return _answer(label, words, share, MENDED_BY_RUN)


def of_spread(label: str, far: FarDraws, names: Sequence[str]) -> list[Doubt]:
    """The coordinate whose standard deviation under q is shortest, where one is short.

    Arguments:
        label: The model.
        far: Draws of longer tails.
        names: Of its coordinates.
    """
    gap, error = far.spread_missed()
    short = torch.where(gap > NARROWER_SIGMAS * error, gap, 0.0)
    if not float(short.max()) > NARROWER:
        return []
    share = 1 - 1 / (1 + float(short.max()))
    words = (
        f"standard deviations under q are short by up to {share:.0%} ({names[int(short.argmax())]} "
        f"of {label!r}): the posterior reaches further out than q"
    )
    return [_answer(label, words, share, MENDED_BY_RUN)]


def of_moments(
    models: Iterable[tuple[str, Mapping[str, NDArray[np.float64]], Tensor]],
) -> list[Doubt]:
    """The worst mean or standard deviation of each model, where one is wrong.

    A bound can be within hundredths of a nat while a few stray draws of q make a standard
    deviation a third too large. Weights of the same draws tell, where they can be averaged.

    Arguments:
        models: Of each its label, the numbers of its draws by name, shape (n,), and their log
            weights, shape (n,), nats.
    """
    found = []
    for label, numbers, log_w in models:
        if len(log_w) < FEWEST or not numbers or not bool((log_w > -math.inf).any()):
            continue
        smooth, k = pareto_smoothed(log_w)
        w = smooth.softmax(0).numpy()
        if not averaged(k, 1 / np.square(w).sum() / len(w)):
            continue
        gaps, errors = _gaps(np.stack(list(numbers.values()), 1), w)
        told = np.where(np.abs(gaps) > np.maximum(APART, SIGMAS * errors), np.abs(gaps), 0.0)
        if not told.any():
            continue
        moment, column = np.unravel_index(told.argmax(), told.shape)
        gap, name = float(gaps[moment, column]), list(numbers)[column]
        what = f"mean of {name} of {label!r} is {gap:+.2f} standard deviations off"
        if moment == 1:
            size = "larger" if gap > 0 else "smaller"
            what = f"standard deviation of {name} of {label!r} is {abs(gap):.0%} {size}"
        words = f"the {what} under q than by importance weights"
        found.append(_answer(label, words, abs(gap), "Weights mend that: corrected=True"))
    return found


def of_counts(labels: Sequence[str], p: Tensor, drawn: Tensor) -> list[Doubt]:
    """The model that is not drawn as often as q(m) says.

    Arguments:
        labels: Of the models drawn, K.
        p: Their probability under q, shape (K,).
        drawn: How often each was drawn, shape (K,).
    """
    n = int(drawn.sum())
    z = (drawn - p * n) / (p * n * (1 - p)).clamp(min=1e-12).sqrt()
    z = torch.where((p * n >= FREQUENT) & (p < 1 - 1e-6), z.abs(), 0.0)
    worst = int(z.argmax())
    if float(z[worst]) < MISCOUNTED:
        return []
    said, share, label = float(p[worst]), float(drawn[worst]) / n, labels[worst]
    words = f"model {label!r} has probability {said:.3f} under q(m), but {share:.3f} of its draws"
    return [_answer(label, words, abs(said - share))]


def of_fallback() -> Doubt:
    """That a training was taken back."""
    words = (
        "reverse KL lost a part of a posterior; the map from before it, which covers it, is kept"
    )
    return _answer(EVERY, words)


def of_no_audit(why: str) -> Doubt:
    """That no tempered draws could judge the answer."""
    return Doubt(EVERY, f"not audited: {why}", grave=False)


def _gaps(
    x: NDArray[np.float64], w: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How far means and standard deviations of columns are off, and errors of the weighted ones.

    Not errors of the differences: a few stray draws that make a standard deviation too large are
    few, but they are in what is reported.

    Arguments:
        x: Values, shape (n, p).
        w: Weights of sum one, shape (n,).

    Returns:
        Two arrays of shape (2, p), of a weighted standard deviation; zero where there is none.
    """
    centred = x - w @ x
    variance = w @ np.square(centred)
    used = np.isfinite(variance) & (variance > 0)
    unit = np.where(used, variance, 1.0) ** 0.5
    z = np.where(used, centred / unit, 0.0)
    spread = np.sqrt(np.maximum(np.square(z).mean(0) - z.mean(0) ** 2, 0.0))
    gaps = np.stack([z.mean(0), np.where(used, spread - 1, 0.0)])
    squares = np.square(z) - np.where(used, 1.0, 0.0)
    columns = (w[:, None] * y for y in (z, squares / 2))
    return gaps, np.stack([np.sqrt(np.square(y).sum(0)) for y in columns])
