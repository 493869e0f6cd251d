"""One reason not to trust an answer, and what is said of all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..errors import (
    ConvergenceWarning,
    CoverageWarning,
    DisagreementWarning,
    LimitWarning,
    PrecisionWarning,
    warn_user,
)
from ..estimate.estimate import Estimate

EVERY = "(all models)"  # label of quantities that belong to no single model

CHAINS, DRAWS, MAP = "chains", "draws", "map"  # what a doubt may be against

COMMON_PROBABILITY = 0.01  # probability of a model or an item from which its flags are said aloud

NAMED = 3  # doubts of a kind in a warning


@dataclass(frozen=True)
class Doubt:
    """One reason not to trust an answer, or a part of it.

    Attributes:
        subject: Label of a model, an item, a kind of components or a parameter, or :data:`EVERY`.
        words: What is wrong, in a clause.
        size: By how much the log evidence, in nats, or any mean, in standard deviations, may be
            off; NaN where nothing tells.
        remedy: What helps, a sentence without its full stop; empty if nothing is known to.
        grave: Whether what it concerns can't be relied on. An error counts all that a mild one
            may do, or it costs time alone.
        kind: Which row of :data:`KINDS` says it aloud; one without a row stands in tables alone.
        against: What numbers it flags or widens: those of ``chains``, of all ``draws`` and what
            was fitted to them, of the ``map``; empty where none.
    """

    subject: str
    words: str
    size: float = math.nan
    remedy: str = ""
    grave: bool = True
    kind: str = ""
    against: str = ""

    def __str__(self) -> str:
        if self.subject == EVERY or repr(self.subject) in self.words:
            return self.words
        return f"{self.subject!r} ({self.words})"


class Phrase(NamedTuple):
    """How doubts of a kind are said aloud.

    Attributes:
        warning: Category.
        sentence: What is wrong, with a place for whose and by how much.
        alone: Whether each of them is a sentence of its own.
    """

    warning: type[Warning]
    sentence: str
    alone: bool = False


KINDS = {  # the gravest first
    "chains": Phrase(
        ConvergenceWarning,
        "the run has not converged: {}. Standard errors are wide, or NaN where they cannot be "
        "estimated; see convergence().",
    ),
    "impossible": Phrase(ConvergenceWarning, "{}: the probability counts as 0."),
    "until": Phrase(ConvergenceWarning, "until was not reached: {}."),
    "halves": Phrase(
        CoverageWarning,
        "the pilot run contradicts itself: {}. It may have lost a mode.",
    ),
    "coverage": Phrase(
        CoverageWarning,
        "the map misses a part of the posterior of {}. Evidences and draws of the map alone are "
        "wrong there; the chains may be right.",
    ),
    "evidences": Phrase(
        CoverageWarning,
        "log evidences by the map are not those of the audit: {}; see result.evidences.audit().",
    ),
    "search": Phrase(CoverageWarning, "few searches for modes: {}, below which modes may be lost."),
    "limit": Phrase(LimitWarning, "a count has run into its limit: {}."),
    "rounding": Phrase(PrecisionWarning, "rounding changes log densities {}."),
    "resolution": Phrase(
        PrecisionWarning,
        "rounding decides: {}. Probabilities of these models are not to be trusted.",
    ),
    "overflow": Phrase(ConvergenceWarning, "{}, and counted as impossible."),
    "answer": Phrase(ConvergenceWarning, "variational answer: {}.", alone=True),
    "prior": Phrase(
        ConvergenceWarning,
        "reweighting leaves {}: the new prior is too far from the old one.",
    ),
    "routes": Phrase(
        DisagreementWarning,
        "routes to the evidences disagree: {}. The combined errors include the difference; see "
        "evidence().",
    ),
}


def messages(doubts: Sequence[Doubt]) -> list[tuple[str, type[Warning]]]:
    """What there is to say aloud, with categories, the gravest first: two messages at most.

    The first one has all of the gravest category, the second one all the rest.
    """
    by_kind: dict[str, list[Doubt]] = {}
    for d in doubts:
        by_kind.setdefault(d.kind, []).append(d)
    said: dict[type[Warning], list[str]] = {}
    for name, kind in KINDS.items():
        if some := by_kind.get(name):
            remedies = dict.fromkeys(f"{d.remedy}." for d in some if d.remedy)
            said.setdefault(kind.warning, []).extend([_sentence(kind, some), *remedies])
    if not said:
        return []
    (grave, first), *rest = said.items()
    found = [(" ".join(first), grave)]
    if rest:
        found.append((" ".join(text for _, texts in rest for text in texts), rest[0][0]))
    return found


def _sentence(kind: Phrase, doubts: Sequence[Doubt]) -> str:
    """What is wrong, of a kind."""
    each = list(dict.fromkeys(map(str, doubts)))
    each = [*each[:NAMED], *([f"and {len(each) - NAMED} more"] if len(each) > NAMED else [])]
    listed = ". ".join(x[0].upper() + x[1:] for x in each) if kind.alone else "; ".join(each)
    return kind.sentence.format(listed)


def warn_of(doubts: Sequence[Doubt]) -> None:
    """Say aloud what doubts of :data:`KINDS` there are."""
    for message, category in messages(doubts):
        warn_user(message, category)


def widened(e: Estimate, doubt: Doubt) -> Estimate:
    """An estimate whose error counts a doubt about it, and is flagged with it."""
    error, flag = math.hypot(e.std_error, doubt.size), doubt.words if doubt.grave else ""
    return replace(e, std_error=error, warning=e.warning or flag)


def gravest_first(doubts: Iterable[Doubt]) -> list[Doubt]:
    """Those about all models first, of these and of others those whose size nothing tells."""
    return sorted(doubts, key=lambda d: (d.subject != EVERY, not math.isnan(d.size)))
