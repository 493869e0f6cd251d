"""Every check of a run, in one list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..doubts.convergence import Convergence
from ..doubts.doubt import Doubt, gravest_first
from ..doubts.doubted import Doubted
from ..doubts.of_chains import (
    Routes,
    by_rhat,
    of_length,
    of_rule,
    of_runs,
    of_shares,
    of_tails,
    of_visits,
    slow_tails,
)
from ..doubts.of_maps import of_coverage, of_pilot, of_routes
from ..doubts.of_numbers import of_capture, of_overflows, of_resolution, of_rounding
from ..doubts.of_search import of_limits, of_modes
from .probabilities import Probabilities
from .report import RunReport


def doubted(
    convergence: Convergence, report: RunReport, routes: Routes, coarse: Mapping[str, str]
) -> Doubted:
    """The draws of a run with what speaks against them, and against maps beside them.

    Arguments:
        convergence: R-hat of what chains pass.
        report: How the run went; what it says of its rule and of an audit.
        routes: By route and model label, log of p(model) times its evidence, nats.
        coarse: By model label, parameters that the working precision does not resolve, in words.
    """
    indicator, judged = convergence.indicator, report.judged or by_rhat(convergence)
    tails = slow_tails(convergence, judged)
    found = [
        *of_rule(judged, report.longer),
        *of_runs(convergence),
        *of_tails(tails),
        *of_resolution(coarse, indicator, report.unresolved),
        *of_pilot(report.audit, report.longer),
        *of_coverage(report.audit, "" if report.fit is None else report.fit.by),
        *of_visits(indicator, routes, report.longer),
        *of_modes(indicator.space, report.judged),
    ]
    return Doubted(indicator, gravest_first(found), tails)


def all_doubts(probabilities: Probabilities, report: RunReport) -> list[Doubt]:
    """What speaks against draws and maps, the gravest first, then against what they tell.

    Arguments:
        probabilities: Of models and items, and the evidences behind them.
        report: How the run went.
    """
    known, draws = probabilities.visits.doubts, probabilities.indicator.draws
    found, space = [*known.found], probabilities.indicator.space
    if not any(d.kind == "short" for d in found):
        found += of_shares(_shares(probabilities), found, report.longer)
    if not report.interrupted:  # which has been said
        found += of_length(report.missed)
    if space.counts and not known.against:
        found += of_limits(space, probabilities.of_counts())
    found += of_capture(report.off_target)
    found += of_rounding(draws.log_joint, report.rounding)
    found += of_overflows(report.overflows, report.evaluations)
    found += of_routes(probabilities.evidences.clashes, report.longer)
    return list(dict.fromkeys(found))


def _shares(probabilities: Probabilities) -> Iterator[tuple[str, float, str, float]]:
    """Label, probability, flag and R-hat of models and items that tables show."""
    indicator = probabilities.indicator
    for label in indicator.models:
        e, rhat = probabilities.visits.of(label), indicator.rhat_of(indicator.inside(label))
        yield label, e.value, e.warning, rhat
    if indicator.space.has_named_items:
        items = probabilities.of_items()
        columns = (items[name] for name in ("probability", "note", "rhat"))
        yield from zip(items.index, *columns, strict=True)
