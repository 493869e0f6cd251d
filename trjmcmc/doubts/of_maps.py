"""What speaks against maps, and against tempered draws that judge them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..estimate.agreement import Clash
from ..pilot.report import FEWEST_UNSCREENED_ANCESTORS, AuditReport
from .doubt import DRAWS, MAP, Doubt

HALVES_APART = 2.0  # nats between the halves of a pilot run that may have lost a mode


def of_pilot(audit: AuditReport, longer: str) -> list[Doubt]:
    """Models whose pilot run rests on few draws of the prior, or contradicts itself.

    Twenty families of random sizes count as ten of one size.

    Arguments:
        audit: The pilot run.
        longer: How the run could be made longer, in a sentence.
    """
    grows = f"Let it grow further: fit(audit={_round_up(4 * audit.evaluations)})"
    of_note = [m for m in audit.models if m.matters]
    few = [
        Doubt(m.model, words, math.nan, longer, kind="chains", against=DRAWS)
        for m in of_note
        if m.ancestors < FEWEST_UNSCREENED_ANCESTORS
        for words in [f"a pilot run that rests on {m.ancestors:.1f} prior draws"]
    ]
    apart = [
        Doubt(m.model, words, math.nan, grows, kind="halves", against=DRAWS)
        for m in of_note
        if not abs(m.gap) <= HALVES_APART
        for words in [f"halves of the pilot run differ by {abs(m.gap):.1f} nats"]
    ]
    return few + apart


def of_coverage(audit: AuditReport | None, by: str = "") -> list[Doubt]:
    """Models of which a map misses a part, or whose evidences contradict the audit's.

    Arguments:
        audit: What tempered draws say of the map.
        by: What the map was trained by: more steps of reverse KL bring no lost mode back.
    """
    if audit is None:
        return []
    better = "Train longer (fit(steps=...)), or use a larger map"
    if by == "vi":
        better = (
            "Train on pilot draws (fit(by='pilot')): more steps of reverse KL bring no mode back"
        )
    better += f"; {audit.mended} attempts have not mended it" if audit.mended else ""
    larger = "A larger audit may show which is right: fit(audit=...)"
    lacking = [
        Doubt(m.model, words, m.missing, better, kind="coverage" * m.matters, against=MAP)
        for m in audit.models
        if m.uncovered
        for words in [f"covers {min(m.covered, 1 - m.lost):.1%} of the posterior"]
    ]
    differing = [
        Doubt(m.model, f"{m.difference:+.2f} nats", abs(m.difference), larger, kind="evidences")
        for m in audit.models
        if m.model in audit.differing
    ]
    return lacking + differing


def of_routes(clashes: Sequence[Clash], longer: str) -> list[Doubt]:
    """Evidences that two routes do not agree on, the worst first.

    Arguments:
        clashes: Those routes.
        longer: How the run could be made longer, in a sentence.
    """
    remedy = f"{longer}, or train the map: it may miss a part of a posterior"
    worst = sorted(clashes, key=lambda c: -c.sigmas)
    return [Doubt(c.model, c.text, math.nan, remedy, kind="routes") for c in worst]


def _round_up(n: int) -> int:
    """The next number with one digit that is not 0."""
    size: int = 10 ** (len(str(n)) - 1)
    return -(-n // size) * size
