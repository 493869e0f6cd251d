"""What the page of a result says: see :meth:`trjmcmc.Result.report_html`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from typing import Any

from ..errors import TRJError
from ..versions import versions
from .html import figure, listing, page, prose, table

MOST_ROWS = 40  # of a table

CITATION = """\
@software{{trjmcmc,
  title   = {{trjmcmc: transdimensional Bayesian inference with transport maps}},
  author  = {{{{The trjmcmc developers}}}},
  version = {{{version}}},
}}

Davies, Salomone, Sutton & Drovandi (2023). Transport reversible jump proposals. AISTATS.
Green (1995). Reversible jump Markov chain Monte Carlo computation and Bayesian model
  determination. Biometrika 82:711."""


def page_of(result: Any, warned: Sequence[str]) -> str:
    """The page as a string.

    Arguments:
        result: A :class:`trjmcmc.Result`.
        warned: What it has to say aloud.
    """
    from matplotlib import pyplot as plt  # seconds to import, and only pictures need it

    parts = {
        "Warnings": _warnings,
        "Models": _models,
        "Parameters": _parameters,
        "Evidences": _evidences,
        "Convergence": _convergence,
        "Audit": _audit,
        "Plan and costs": _plan,
        "Versions and citation": _versions,
    }
    with plt.ioff():  # no windows
        sections = {
            heading: list(part(warned) if part is _warnings else part(result))
            for heading, part in parts.items()
        }
    return page("Result of a trjmcmc run", [prose(_opening(result))], sections)


def _opening(result: Any) -> str:
    report = result.report
    seconds = sum(report.seconds.values())
    return (
        f"{result._head}. {report.evaluations:,} likelihood calls in {seconds:.1f} s, seed "
        f"{report.seed}. Probabilities are posterior ones, se is a standard error, logarithms are "
        "natural (nats); NaN stands where the run cannot estimate a number."
    )


def _warnings(warned: Sequence[str]) -> Iterator[str]:
    for message in warned:
        yield prose(message, "doubt")
    if not warned:
        yield prose("None.", "fine")


def _models(result: Any) -> Iterator[str]:
    rows = result.model_probabilities()
    order = rows["probability"].sort_values(ascending=False, kind="stable").index
    yield table(rows.loc[order], "Probability of each model", MOST_ROWS)
    yield from _drawn(result.plot_models, "Probabilities of the models, bars of two errors")
    if result.space.counts:
        yield table(result.counts(), "Probability of each number of components", MOST_ROWS)
    elif result.space.has_named_items:
        items = result.inclusion_probabilities()
        order = items["probability"].sort_values(ascending=False, kind="stable").index
        yield table(items.loc[order], "Probability that each item is in the model", MOST_ROWS)
        yield from _drawn(result.plot_inclusion, "Inclusion probabilities, bars of two errors")


def _parameters(result: Any) -> Iterator[str]:
    if result.space.counts:
        for kind in result.space.kinds:
            found = result.catalogue(kind.name)
            yield table(found, f"Components that were found, {kind.name}", MOST_ROWS)
    rows = result.summary()
    if len(rows):
        yield table(rows, "Parameters, model by model, in your units", MOST_ROWS)
    p = result.model_probabilities()["probability"].loc[result.chains.models]
    best = str(p.idxmax())
    yield from _drawn(
        lambda: result.plot_corner(best), f"Parameters of the most probable model, {best}, in pairs"
    )


def _evidences(result: Any) -> Iterator[str]:
    try:
        rows = result.evidence(full=True)
    except TRJError as reason:
        yield prose(str(reason))
        return
    first = ["combined", "combined_se", "probability", "probability_se", "verdict", "note"]
    rest = [c for c in rows if c not in first]
    caption = "Log evidences by every route, nats"
    yield table(rows[[c for c in first if c in rows] + rest], caption, MOST_ROWS)
    yield from _drawn(result.evidences.plot, "Log evidences by every route, less the combined one")


def _convergence(result: Any) -> Iterator[str]:
    rows = result.convergence().sort_values("rhat", ascending=False, na_position="last")
    yield table(rows, "Have the chains mixed? The worst first", MOST_ROWS)
    mixing = result.chains.mixing().rename("value").to_frame()
    yield table(mixing, "The model indicator")
    yield from _drawn(result.chains.plot_running, "Running estimates of the models' probabilities")
    yield from _drawn(result.plot_trace, "Densities and traces of single chains")
    yield from _drawn(result.plot_rank, "Ranks, a quarter of the chains in each row: flat is good")
    if result.space.few:
        yield from _drawn(
            result.chains.plot_jumps, "How often a jump from row to column is accepted"
        )


def _audit(result: Any) -> Iterator[str]:
    if result.report.audit is None:
        return
    yield table(result.evidences.audit(), "Does the map reach all of each posterior?", MOST_ROWS)


def _plan(result: Any) -> Iterator[str]:
    import pandas as pd

    yield listing(str(result.report.plan))
    yield listing(str(result.report))
    seconds = pd.DataFrame({"seconds": result.report.seconds})
    yield table(seconds.rename_axis("stage"), "Time by stage")


def _versions(result: Any) -> Iterator[str]:
    import pandas as pd

    found = versions()
    rows = pd.DataFrame({"version": found}).rename_axis("package")
    yield table(rows, f"Written on {date.today():%Y-%m-%d}; seed {result.report.seed}")
    yield listing(CITATION.format(version=found["trjmcmc"]))


def _drawn(draw: Callable[[], Any], words: str) -> Iterator[str]:
    """A picture, or nothing where there is nothing to draw."""
    try:
        drawn = draw()
    except TRJError:
        return
    yield figure(drawn, words)
