"""What speaks against chains: that they remember their start, or have never been somewhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..estimate.agreement import usable
from ..estimate.between import ALPHA
from ..estimate.convergence import LEAST_DRAWS, TAIL_RHAT, start_error
from ..estimate.estimate import Estimate
from ..estimate.indicator import ModelIndicator
from ..estimate.visits import visit_probability
from ..promises import RHAT_FLAGGED
from .convergence import REST, Convergence, Tail
from .doubt import CHAINS, COMMON_PROBABILITY, DRAWS, EVERY, Doubt

Routes = Mapping[str, Mapping[str, Estimate]]

LEAST_TIMES = 5.0  # autocorrelation times of a run in rounds that is done

REACH_ERRORS = 5.0  # standard errors that a flagged log evidence may be off


@dataclass(frozen=True)
class Judged:
    """How a run in rounds stands by its own rule.

    Attributes:
        doubt: Why its draws do not suffice, in words; empty if they do.
        off: By how much means may be off meanwhile, in standard deviations, by the spread of
            groups of chains that share nothing.
        tau: Integrated autocorrelation time of the slowest quantity, steps.
        detection: Share of climbs from a model's prior that lead to a mode, from which it was met
            with 95 %; infinite where nothing was searched, 0 of independent draws.
        short: Whether the doubt is of length alone: groups agree, and so do the routes. Errors
            count how far groups are apart, and no warning need say more.
    """

    doubt: str
    off: float
    tau: float
    detection: float
    short: bool = False


def by_rhat(convergence: Convergence) -> Judged:
    """How draws stand that no run has judged."""
    rhat = convergence.worst(RHAT_FLAGGED)
    doubt, off = (f"R-hat {rhat:.2f}", start_error(rhat)) if rhat > RHAT_FLAGGED else ("", 0.0)
    return Judged(doubt, off, tau=0.0, detection=math.inf)


def of_rule(judged: Judged, longer: str) -> list[Doubt]:
    """What the rule of a run says against its chains.

    Arguments:
        judged: How it stands.
        longer: How it could be made longer, in a sentence.
    """
    if not judged.doubt:
        return []
    kind = "short" if judged.short else "chains"
    return [Doubt(EVERY, judged.doubt, judged.off, longer, kind=kind, against=CHAINS)]


def of_length(missed: str) -> list[Doubt]:
    """That a run ended before it was as precise as was asked, in words how far it came."""
    remedy = "Give the run more max_seconds or draws, or ask for less"
    return [Doubt(EVERY, missed, math.nan, remedy, kind="until")]


def of_runs(convergence: Convergence) -> list[Doubt]:
    """What merged runs contradict each other in, for each model the quantity that differs most."""
    if convergence.draws.run is None:
        return []
    table = convergence.between_runs()
    table = table[table["p"] * table["p"].count() < ALPHA]
    found = []
    for model, rows in table.groupby(level="model"):
        _, name = worst = rows["p"].idxmin()
        apart = float(rows.loc[worst, "apart"])
        where = "" if model in {EVERY, REST} else f" in {model!r}"
        label = EVERY if model == REST else str(model)
        words = f"runs differ in {name}{where}, one by {apart:.2g} sd from their mean"
        remedy = "Start runs anew, and make them longer"
        found.append(Doubt(label, words, apart, remedy, kind="chains", against=CHAINS))
    return found


def slow_tails(convergence: Convergence, judged: Judged) -> list[Tail]:
    """Tails that chains hardly enter or leave, of each model.

    That is less than half as readily as they pass all else, since R-hat of short chains is
    large (its square less one is two autocorrelation times over the draws).
    """
    draws = convergence.draws
    if draws.n_draws < LEAST_DRAWS:
        return []
    steps = draws.n_draws * draws.thin
    tau = min(judged.tau, steps / LEAST_TIMES)
    return convergence.tails(max(TAIL_RHAT, math.sqrt(1 + 4 * tau / steps)))


def of_tails(tails: Sequence[Tail]) -> list[Doubt]:
    """The worst tail of each model; R-hat of short chains says little: errors count it."""
    worst: dict[str, Doubt] = {}
    for t in tails:
        if t.model not in worst or t.mass > worst[t.model].size:
            words = f"R-hat {t.rhat:.2f} of a tail of {t.quantity} in {t.model!r}"
            d = Doubt(t.model, words, t.mass, grave=False, kind="tails", against=DRAWS)
            worst[t.model] = d
    return list(worst.values())


def of_visits(indicator: ModelIndicator, routes: Routes, longer: str) -> list[Doubt]:
    """Models that chains never or hardly entered, and that no other route tells of.

    A few draws of many chains that share nothing tell a probability with an error that counts
    how few they are, unless another route says far more.

    Arguments:
        indicator: Which model each draw is in.
        routes: By route and model label, log of p(model) times its evidence, nats.
        longer: How the run could be made longer, in a sentence.
    """
    space = indicator.space
    if not space.few or space.has_items:  # models next to each other are alike
        return []
    labels = space.label(space.enumerate())
    log_prior = indicator.log_prior(labels)
    labels = [m for m, p in zip(labels, log_prior, strict=True) if p > -math.inf]
    log_mass = {m: [r[m] for r in routes.values() if m in r] for m in labels}
    finite = {m: [e.value for e in x if math.isfinite(e.value)] for m, x in log_mass.items()}
    top = max((v for x in finite.values() for v in x), default=math.nan)
    found, doubts = list[str](), list[Doubt]()
    for m in labels:
        inside = indicator.inside(m)
        share = inside.mean()
        if any(e.value == -math.inf and e.std_error == 0 for e in log_mass[m]):
            words = f"no draw of {m!r} has a finite likelihood"
            doubts.append(Doubt(m, words, kind="impossible", against=CHAINS))
            continue
        if any(map(usable, log_mass[m])) or share > COMMON_PROBABILITY:
            continue
        if usable(visit_probability(inside, indicator.ess)):
            continue
        reach = max((abs(v - w) for v in finite[m] for w in finite[m]), default=math.inf)
        error = max((e.std_error for e in log_mass[m] if math.isfinite(e.value)), default=0.0)
        reach = max(1.0, reach, REACH_ERRORS * error)
        most = max(finite[m], default=-math.inf)
        if share > 0 and most < top + math.log(share) + reach:
            continue
        if not finite[m] or not most + reach < top + math.log(COMMON_PROBABILITY):
            found.append(m)
    if not found:
        return doubts
    words = f"no estimate of the probability of {', '.join(map(repr, found[:3]))}"
    return [Doubt(EVERY, words, math.nan, longer, kind="chains", against=CHAINS), *doubts]


def of_shares(
    shares: Iterable[tuple[str, float, str, float]], known: Sequence[Doubt], longer: str
) -> list[Doubt]:
    """Models and items whose probability is flagged for what chains remember, the worst first.

    Arguments:
        shares: Label, probability, flag and R-hat of each.
        known: Doubts that stand in flags, and have been said.
        longer: How the run could be made longer, in a sentence.
    """
    said = {d.words for d in known}
    rows = sorted(shares, key=lambda row: -row[3] if row[3] > 0 else 0.0)
    return [
        Doubt(label, words, math.nan, longer, kind="chains")
        for label, p, words, _ in rows
        if words and words not in said and COMMON_PROBABILITY < p < 1 - COMMON_PROBABILITY
    ]
