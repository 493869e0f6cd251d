"""Every check of a run, in one list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

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
from ..doubts.of_numbers import of_overflows, of_resolution, of_rounding
from ..doubts.of_search import of_limits, of_modes
from .probabilities import Probabilities
from .report import RunReport

ANEW = 'Run anew with until={"detection": 0.01}'


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
    tails, longer = slow_tails(convergence, judged), _longer(report)
    found = [
        *of_rule(judged, longer),
        *of_runs(convergence),
        *of_tails(tails),
        *of_resolution(coarse, indicator, report.unresolved),
    ]
    if report.audit is not None:
        found += of_pilot(report.audit, longer)
        found += of_coverage(report.audit, "" if report.fit is None else report.fit.by)
    found += of_visits(indicator, routes, longer)
    again = longer if report.budget_spent or report.out_of_time else ANEW
    found += of_modes(indicator.space, report.judged, again)
    return Doubted(indicator, gravest_first(found), tails)


def all_doubts(probabilities: Probabilities, report: RunReport) -> list[Doubt]:
    """What speaks against draws and maps, the gravest first, then against what they tell.

    Arguments:
        probabilities: Of models and items, and the evidences behind them.
        report: How the run went.
    """
    known, draws = probabilities.chains.doubted, probabilities.indicator.draws
    found, space = [*known.found], probabilities.indicator.space
    longer, clashes = _longer(report), probabilities.evidences.clashes
    if report.judged is None or not report.judged.short:
        mixed = report.judged is not None and not report.judged.doubt
        models = () if mixed else probabilities.indicator.models  # or they rest on no chain
        found += of_shares(_shares(probabilities, models), found, longer)
    if report.missed and not report.interrupted:  # which has been said
        found += of_length(report.missed)
    if space.counts and not known.against:
        found += of_limits(space, probabilities.of_counts())
    found += of_rounding(draws.log_joint, report.rounding)
    if report.overflows:
        found += of_overflows(report.overflows, report.evaluations)
    if clashes:
        found += of_routes(clashes, longer)
    return list(dict.fromkeys(found))


def _longer(report: RunReport) -> str:
    """How a run could be made longer, a sentence."""
    if report.interrupted:
        return "Let the run come to its end"
    if report.out_of_time:
        return "Give the run more max_seconds"
    if report.budget_spent:
        return "Give the run more max_evaluations"
    return "Run longer: more(max_seconds=...)"


def _shares(
    probabilities: Probabilities, models: Iterable[str]
) -> Iterator[tuple[str, float, str, float]]:
    """Label, probability, flag and R-hat of some models, and of items that tables show."""
    indicator = probabilities.indicator
    for label in models:
        e, rhat = probabilities.chains.visits(label), indicator.rhat_of(indicator.inside(label))
        yield label, e.value, e.warning, rhat
    if indicator.space.has_named_items:
        items = probabilities.of_items()
        columns = (items[name] for name in ("probability", "note", "rhat"))
        yield from zip(items.index, *columns, strict=True)
