"""What a run has to say aloud about its own answer, and what would help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from ..draws import Draws
from ..errors import (
    ConvergenceWarning,
    CoverageWarning,
    DisagreementWarning,
    LimitWarning,
    PrecisionWarning,
    warn_user,
)
from ..pilot.report import AuditReport
from ..promises import ROUNDING_ERROR
from .doubts import COMMON_PROBABILITY, Doubts
from .limit import runs_into_limit
from .probabilities import Probabilities
from .report import RunReport

Alarm = tuple[str, type[Warning]]

MODELS_NAMED = 5  # models in a message

BY_PILOT = "Train on pilot draws (fit(by='pilot')): more steps of reverse KL bring no mode back."


def alarms(probabilities: Probabilities, doubts: Doubts, report: RunReport) -> Iterator[Alarm]:
    """Messages and categories, the gravest first.

    Arguments:
        probabilities: Of models and items, and the evidences behind them.
        doubts: What is known against the draws.
        report: How the run went.
    """
    draws = doubts.indicator.draws
    if report.off_target:
        yield (
            "captured steps have gone wrong, and every number may be: log joints that they kept "
            f"are not the target's in {report.off_target}. Run with compile=False",
            DisagreementWarning,
        )
    yield from _convergence(flags(probabilities, doubts), doubts, report)
    yield from _length(report)
    if (audit := report.audit) is not None:  # normals need not cover, draws must
        yield from _pilot(audit, doubts.halves_apart)
        yield from () if audit.normals else coverage(audit, _by(report))
    yield from _limits(probabilities, doubts)
    yield from _numbers(draws, doubts.coarse, report)
    yield from _disagreement(probabilities, report)


def flags(probabilities: Probabilities, doubts: Doubts) -> list[str]:
    """What says that chains have not converged, in words; of models and items the worst first."""
    elsewhere = {d.note for d in doubts.found if d.said}
    notes = dict.fromkeys(d.note for d in doubts.found if not d.said)
    indicator, flagged = doubts.indicator, []
    if doubts.judged.short:
        return list(notes)
    for label in indicator.models:
        e, rhat = probabilities.visits.of(label), indicator.rhat_of(indicator.inside(label))
        flagged.append((label, e.value, e.warning, rhat))
    if indicator.space.has_named_items:
        items = probabilities.of_items()
        columns = (items[name] for name in ("probability", "note", "rhat"))
        flagged += zip(items.index, *columns, strict=True)
    flagged.sort(key=lambda row: -row[3] if row[3] > 0 else 0.0)
    for label, p, note, _ in flagged:
        if (
            note
            and note not in notes
            and note not in elsewhere
            and COMMON_PROBABILITY < p < 1 - COMMON_PROBABILITY
        ):
            notes[f"{label!r} ({note})"] = None
    return list(notes)


def _convergence(listed: Sequence[str], doubts: Doubts, report: RunReport) -> Iterator[Alarm]:
    if not listed:
        return
    more = f", and {len(listed) - MODELS_NAMED} more" if len(listed) > MODELS_NAMED else ""
    advice = [d.remedy for d in doubts.found if d.remedy] + [f"run longer ({_longer(report)})"]
    yield (
        "the run has not converged: "
        + "; ".join(listed[:MODELS_NAMED])
        + more
        + ". Errors are wide, or NaN where nothing tells them. What may help, in this order: "
        + f"{', '.join(advice)}; see convergence().",
        ConvergenceWarning,
    )


def _length(report: RunReport) -> Iterator[Alarm]:
    if report.missed and not report.interrupted:  # which has been said
        yield (
            f"until was not reached: {report.missed}. Give the run more max_seconds or draws, or "
            "ask for less.",
            ConvergenceWarning,
        )


def coverage(audit: AuditReport, by: str = "") -> Iterator[Alarm]:
    """Models of which a map misses a part, or whose evidences contradict each other.

    Arguments:
        audit: What tempered draws say of the map.
        by: What the map was trained by: more steps of reverse KL bring no lost mode back.
    """
    better = BY_PILOT if by == "vi" else "Train longer (fit(steps=...)) or use a larger map."
    if missed := audit.uncovered:
        shares = {m.model: min(m.covered, 1 - m.lost) for m in audit.models}
        yield (
            "the map misses a part of the posterior of "
            + ", ".join(f"{m!r} (covers {shares[m]:.1%})" for m in missed[:MODELS_NAMED])
            + (f", after {audit.mended} attempts to mend it" if audit.mended else "")
            + ". Evidences and draws that come from the map alone are wrong there; only the chains "
            f"may be right. {better}",
            CoverageWarning,
        )
    if differing := audit.differing:
        gaps = {m.model: m.difference for m in audit.models}
        yield (
            "log evidences through the map differ from the audit's on "
            + ", ".join(f"{m!r} ({gaps[m]:+.2f})" for m in differing[:MODELS_NAMED])
            + ": see result.audit(); a larger audit (fit(audit=...)) may tell which is right.",
            CoverageWarning,
        )


def _pilot(audit: AuditReport, apart: Mapping[str, float]) -> Iterator[Alarm]:
    """Tempered runs that contradict each other, whatever the map that is held against them."""
    if apart:
        more = f"fit(audit={_round_up(4 * audit.evaluations)}) lets it grow further."
        if audit.normals:
            more = "run(fit=True) lets it grow until its halves agree."
        yield (
            "the pilot run contradicts itself on "
            + ", ".join(f"{m!r} (halves differ by {gap:.1f} nats)" for m, gap in apart.items())
            + f": it may have lost a part of the posterior. {more}",
            CoverageWarning,
        )


def _limits(probabilities: Probabilities, doubts: Doubts) -> Iterator[Alarm]:
    """Counts that pile up at their largest; of chains that do not mix this says nothing."""
    space = doubts.indicator.space
    if not space.counts or doubts.found:
        return
    counts = probabilities.of_counts()
    for kind in space.kinds:
        table = counts.loc[kind.name]
        if table["note"].iloc[-1] == "" and runs_into_limit(kind, table):
            yield (
                f"{table['probability'].iloc[-1]:.0%} of the draws have {kind.max} components, "
                f"the largest number there may be: raise max of Counts({kind.max}, "
                f"of={list(kind.of)}), or choose a prior under which many are less probable; where "
                "no more can exist, it stands",
                LimitWarning,
            )


def _numbers(draws: Draws, coarse: Mapping[str, str], report: RunReport) -> Iterator[Alarm]:
    dtype = draws.log_joint.dtype
    size = float(draws.log_joint.abs().median())
    lost = torch.finfo(dtype).eps * size
    if lost > ROUNDING_ERROR:
        finer = "use dtype=torch.float64, or " if dtype != torch.float64 else ""
        yield (
            f"log densities of size {size:.3g} lose digits that matter in {dtype}, {lost:.2g} "
            f"nats: {finer}leave constants out of the log-likelihood (they cancel if all models "
            "leave out the same)",
            PrecisionWarning,
        )
    if report.rounding and not lost > ROUNDING_ERROR:
        finer = (
            "use dtype=torch.float64, or "
            if dtype != torch.float64
            else "make sure that it returns float64 numbers, and "
        ) + (
            "write the likelihood so that large numbers do not cancel (differences from the "
            "data's mean, not sums of squares)"
        )
        yield f"rounding changes log densities of {report.rounding}: {finer}", PrecisionWarning
    if coarse or report.unresolved:
        by_model = "; ".join(f"model {label!r}: {why}" for label, why in coarse.items())
        yield (
            f"rounding decides: {by_model or report.unresolved}. Probabilities of these models are "
            "not to be trusted.",
            PrecisionWarning,
        )
    if report.overflows:
        yield (
            f"{report.overflows} of {report.evaluations} points, far out in the "
            "prior's tail, had a likelihood that was NaN or +inf, or parameters whose square "
            "overflows, and counted as impossible: the answer stands unless the posterior lies "
            "there. Return finite values or -inf to be sure.",
            ConvergenceWarning,
        )


def _disagreement(probabilities: Probabilities, report: RunReport) -> Iterator[Alarm]:
    clashes = probabilities.evidences.clashes
    if not clashes:
        return
    worst = sorted(clashes, key=lambda c: -c.sigmas)
    more = f"; and {len(worst) - 3} more" if len(worst) > 3 else ""
    yield (
        "routes to the evidences disagree on "
        + "; ".join(f"{c.model!r}: {c.text}" for c in worst[:3])
        + more
        + f". Either the chains have not converged (run longer: {_longer(report)}), or the map "
        "misses part of a posterior. The combined errors count the difference. See evidence().",
        DisagreementWarning,
    )


def _longer(report: RunReport) -> str:
    """How the run could be made longer."""
    if report.interrupted:
        return "let it come to its end"
    if report.out_of_time:
        return "give it more max_seconds"
    if report.budget_spent:
        return "give it more max_evaluations"
    return "more(max_seconds=...)"


def _by(report: RunReport) -> str:
    return "" if report.fit is None else report.fit.by


def _round_up(n: int) -> int:
    """The next number with one digit that is not 0."""
    size: int = 10 ** (len(str(n)) - 1)
    return -(-n // size) * size


def warn_of_coverage(audit: AuditReport, by: str = "") -> None:
    """Name the models of which a map misses a part, or whose evidences contradict each other."""
    for message, category in coverage(audit, by):
        warn_user(message, category)
