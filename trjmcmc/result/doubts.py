"""What is known against a run's draws, and what it adds to the errors of what they tell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from ..estimate.agreement import usable
from ..estimate.between import ALPHA
from ..estimate.convergence import LEAST_DRAWS, TAIL_RHAT, start_error
from ..estimate.estimate import Estimate
from ..estimate.importance import tail_shape
from ..estimate.mean import mean_error_where
from ..estimate.visits import rule_of_three, visit_probability
from ..pilot.report import FEWEST_UNSCREENED_ANCESTORS
from ..promises import PARETO_K_RELIABLE, RHAT_FLAGGED
from ..target.resolution import EXAMINED, resolution_doubts
from ..target.target import Target
from .convergence import EVERY, REST, Convergence, Tail
from .indicator import Mask, ModelIndicator
from .report import Judged, RunReport

Routes = Mapping[str, Mapping[str, Estimate]]


HALVES_APART = 2.0  # nats between the halves of a pilot run that may have lost a mode

NAMED_PART = 0.1  # of an error: what widens it by more is named

LEAST_TIMES = 5.0  # autocorrelation times of a run in rounds that is done

SELDOM_SHARE = 0.05  # share of the draws below which a model can't spoil all the others

REACH_ERRORS = 5.0  # standard errors that a flagged log evidence may be off

COMMON_PROBABILITY = 0.01  # probability of a model or an item from which its flags are said aloud


@dataclass(frozen=True)
class Doubt:
    """A reason not to trust what chains say of a model.

    Attributes:
        model: Label, or :data:`~trjmcmc.result.convergence.EVERY`.
        note: In words.
        size: By how much the log evidence, in nats, or any mean, in standard deviations, may be
            off; NaN where nothing tells.
        everywhere: Whether it also concerns what was fitted to the same draws.
        said: Whether it has a warning of its own, or needs none.
        bounded: Whether errors count all that it may do, so that numbers need no flag.
        remedy: What helps against this above all, if that is known.
    """

    model: str
    note: str
    size: float
    everywhere: bool = False
    said: bool = False
    bounded: bool = False
    remedy: str = ""

    @property
    def flag(self) -> str:
        """What numbers that it concerns are flagged with; empty where their errors say it all."""
        return "" if self.bounded else self.note


UNSEARCHED = "no search for lost modes"

WIDE = 0.005  # share of climbs that lead to modes, from which tables name it


class Doubts:
    """What is known against a run's draws.

    Arguments:
        indicator: Which model each draw is in.
        convergence: R-hat of what chains pass.
        report: How the run went; what it says of its rule and of an audit.
        routes: By route and model label, log of p(model) times its evidence, nats.
        target: The target, on the CPU, which tells what the working precision does not resolve.
        coarse: By model label, parameters that it does not resolve, in words, where that is
            known already.
    """

    def __init__(
        self,
        indicator: ModelIndicator,
        convergence: Convergence,
        report: RunReport,
        routes: Routes,
        target: Target | None = None,
        coarse: Mapping[str, str] | None = None,
    ) -> None:
        self.indicator, self.convergence, self.report = indicator, convergence, report
        self._routes, self._target, self._known_coarse = routes, target, coarse

    @cached_property
    def judged(self) -> Judged:
        """How the run stands by its own rule; by R-hat where the draws are of other origin."""
        return self.report.judged or by_rhat(self.convergence)

    @property
    def unsearched(self) -> str:
        """That a run over a list has not searched for lost modes, in words; empty if it has."""
        space, judged = self.indicator.space, self.report.judged
        if judged is None or space.counts or space.has_items or space.graphs:
            return ""
        if judged.detection == math.inf:
            return UNSEARCHED
        few = judged.detection > WIDE
        return f"modes below {judged.detection:.0%} of climbs may be lost" if few else ""

    @cached_property
    def coarse(self) -> dict[str, str]:
        """By model label, parameters that the working precision does not resolve, in words."""
        if self._known_coarse is not None:
            return dict(self._known_coarse)
        indicator, theta = self.indicator, self.indicator.draws.theta
        if self._target is None or self._target.dtype != theta.dtype:
            return {}
        first = indicator.most_visited[:EXAMINED]
        codes = torch.stack([indicator.space.code_of(label) for label in first])
        return resolution_doubts(self._target, codes, torch.as_tensor(indicator.place), theta)

    @cached_property
    def found(self) -> list[Doubt]:
        """All of them, the gravest first."""
        share_of = {m: self.indicator.inside(m).mean() for m in self.coarse}
        found = [*of_rule(self.judged), *of_runs(self.convergence), *self._slow_tails]
        found += [
            Doubt(label, note, math.nan, everywhere=True, said=True)
            for label, note in self.coarse.items()
            if share_of[label] > COMMON_PROBABILITY
        ]
        found += self._few_ancestors
        for model, gap in self.halves_apart.items():
            note = f"halves of the pilot run differ by {gap:.1f} nats"
            found.append(Doubt(model, note, math.nan, everywhere=True, said=True))
        if self.unknown:
            some = ", ".join(map(repr, self.unknown[:3]))
            note = f"nothing sound tells the probability of {some}"
            found.append(Doubt(EVERY, note, math.nan))
        return sorted(found, key=lambda d: (d.model != EVERY, not math.isnan(d.size)))

    def about(self, *labels: str) -> list[Doubt]:
        """Those about some models, or about all."""
        return [d for d in self.found if d.model in {*labels, EVERY}]

    @cached_property
    def tails(self) -> list[Tail]:
        """Tails that chains hardly enter or leave, of each model.

        That is less than half as readily as they pass all else, since R-hat of short chains is
        large (its square less one is two autocorrelation times over the draws).
        """
        draws = self.indicator.draws
        if draws.n_draws < LEAST_DRAWS:
            return []
        steps = draws.n_draws * draws.thin
        tau = min(self.judged.tau, steps / LEAST_TIMES)
        return self.convergence.tails(max(TAIL_RHAT, math.sqrt(1 + 4 * tau / steps)))

    @property
    def _slow_tails(self) -> list[Doubt]:
        """The worst tail of each model; R-hat of short chains says little: errors count it."""
        found = []
        for model in dict.fromkeys(t.model for t in self.tails):
            worst = max((t for t in self.tails if t.model == model), key=lambda t: t.mass)
            note = f"R-hat {worst.rhat:.2f} of a tail of {worst.quantity} in {model!r}"
            found.append(Doubt(model, note, worst.mass, everywhere=True, said=True, bounded=True))
        return found

    def _shift(self, series: NDArray[np.floating], every: int = 1) -> float:
        """How far tails may shift the mean of a series of mean zero; see :meth:`Tail.shift`.

        Tails of one model may be one, seen in several coordinates; those of others are not.
        """
        worst: dict[str, float] = {}
        for t in self.tails:
            worst[t.model] = max(worst.get(t.model, 0.0), t.shift(series, every))
        return math.hypot(*worst.values())

    @property
    def _few_ancestors(self) -> list[Doubt]:
        """Models whose pilot run rests on few draws of the prior.

        Twenty families of random sizes count as ten of one size.
        """
        audit = self.report.audit
        return [
            Doubt(m.model, f"a pilot run that rests on {m.ancestors:.1f} draws", math.nan, True)
            for m in (audit.models if audit is not None else ())
            if m.matters and m.ancestors < FEWEST_UNSCREENED_ANCESTORS
        ]

    @property
    def halves_apart(self) -> dict[str, float]:
        """By model, nats between the halves of the pilot run, if many."""
        audit = self.report.audit
        if audit is None:
            return {}
        return {
            m.model: abs(m.gap)
            for m in audit.models
            if m.matters and not abs(m.gap) <= HALVES_APART
        }

    @cached_property
    def unknown(self) -> list[str]:
        """Models that chains never or hardly entered, and that no other route tells of.

        A few draws of many chains that share nothing tell a probability with an error that counts
        how few they are, unless another route says far more.
        """
        space, routes = self.indicator.space, self._routes.values()
        if not space.few or space.has_items:  # models next to each other are alike
            return []
        labels = space.label(space.enumerate())
        log_prior = self.indicator.log_prior(labels)
        labels = [m for m, p in zip(labels, log_prior, strict=True) if p > -math.inf]
        log_mass = {m: [r[m] for r in routes if m in r] for m in labels}
        finite = {m: [e.value for e in x if math.isfinite(e.value)] for m, x in log_mass.items()}
        top = max((v for x in finite.values() for v in x), default=math.nan)
        found = []
        for m in labels:
            inside = self.indicator.inside(m)
            share = inside.mean()
            if any(map(usable, log_mass[m])) or share > COMMON_PROBABILITY:
                continue
            if usable(visit_probability(inside, self.indicator.ess)):
                continue
            reach = max((abs(v - w) for v in finite[m] for w in finite[m]), default=math.inf)
            error = max((e.std_error for e in log_mass[m] if math.isfinite(e.value)), default=0.0)
            reach = max(1.0, reach, REACH_ERRORS * error)
            most = max(finite[m], default=-math.inf)
            if share > 0 and most < top + math.log(share) + reach:
                continue
            if not finite[m] or not most + reach < top + math.log(COMMON_PROBABILITY):
                found.append(m)
        return found

    def _size(self, doubt: Doubt) -> float:
        """By how much means of all draws may be off, in standard deviations; NaN if unknown."""
        if doubt.model == EVERY:
            return doubt.size
        part = float(self.indicator.inside(doubt.model).mean())
        # of a model seldom visited an unknown error is no more than all it has
        most = 1.0 if math.isnan(doubt.size) and part < SELDOM_SHARE else doubt.size
        return most * part

    @cached_property
    def _worth(self) -> float:
        """Draws that would tell a mean as well as these, by what flags them."""
        squares = sum(self._size(d) ** 2 for d in self.found if not d.bounded)
        return 1 / squares if squares else math.inf

    def share(self, e: Estimate, inside: Mask) -> Estimate:
        """A share of the draws whose error counts what is flagged about any model.

        Arguments:
            e: The share and its error by the draws alone.
            inside: Which draws it is of, shape (chain, draw).
        """
        error, p, flags = e.std_error, e.value, []
        if p in {0.0, 1.0} and self._worth < e.ess:  # no spread of its own that doubts could scale
            e = replace(e, std_error=max(error, rule_of_three(self._worth)), ess=self._worth)
            error = e.std_error
        for d in self.found:
            if d.bounded:
                continue
            if d.model == EVERY:
                size = self._size(d) * math.sqrt(max(p * (1 - p), 0.0))
            else:
                here = self.indicator.inside(d.model)
                within = float((here & inside).sum() / here.sum()) if here.any() else p
                size = self._size(d) * abs(within - p)
            if not size <= NAMED_PART * error:
                flags.append(d.note)
            error = math.hypot(error, size)
        error = math.hypot(error, self._shift(inside - p))
        ess = e.ess if self._worth >= e.ess else self._worth  # NaN where that is
        if flags or error > (1 + NAMED_PART) * e.std_error:
            ess = min(ess, p * (1 - p) / error**2) if error > 0 else math.nan
        return replace(e, std_error=error, ess=ess, warning=e.warning or "".join(flags[:1]))

    def widened(
        self,
        error: float,
        series: NDArray[np.floating],
        inside: Mask | None = None,
        every: int = 1,
    ) -> tuple[float, str]:
        """The error of a mean with what chains remember of their start, and why.

        Arguments:
            error: Standard error of the mean of independent or autocorrelated draws.
            series: What each draw adds to the mean, shape (chain, draw).
            inside: Draws that the mean is of, shape (chain, draw); all if omitted.
            every: The series is of every so many-th draw.

        Returns:
            The error, NaN where nothing tells it, and the flag, in words.
        """
        sd = float(series.std())
        doubts = [
            d
            for d in self.found
            if d.model == EVERY or inside is None or (self.indicator.inside(d.model) & inside).any()
        ]
        doubts = [d for d in doubts if not d.bounded]
        wide = math.hypot(error, *(sd * d.size for d in doubts))
        wide = math.hypot(wide, self._shift(series - series.mean(), every))
        if doubts and not sd:  # a series that never changed may have missed what would change it
            wide = math.nan
        note = doubts[0].note if doubts else ""
        k = tail_shape(series if inside is None else series[inside])
        if k > PARETO_K_RELIABLE:  # the largest values decide, and larger ones were not met
            return math.nan, note or f"tail too heavy for an error (Pareto k {k:.2f})"
        return wide, note

    def error_where(self, x: NDArray[np.floating], inside: Mask) -> tuple[float, float, str]:
        """Standard error and effective draws of a mean over some draws, and its flag.

        Arguments:
            x: Values of those draws, in the order chain by chain, shape (n,).
            inside: Which draws they are, shape (chain, draw).
        """
        error, ess = mean_error_where(x, inside)
        series = np.zeros(inside.shape)
        series[inside] = (x - x.mean()) / inside.mean()
        wide, note = self.widened(error, series, inside)
        if wide != error:
            ess = float(x.var()) / wide**2
        return wide, ess, note


def by_rhat(convergence: Convergence) -> Judged:
    """How draws stand that no run has judged."""
    rhat = convergence.worst(RHAT_FLAGGED)
    doubt, off = (f"R-hat {rhat:.2f}", start_error(rhat)) if rhat > RHAT_FLAGGED else ("", 0.0)
    return Judged(doubt, off, tau=0.0, detection=math.inf)


def of_rule(judged: Judged) -> list[Doubt]:
    """What the rule of a run says against its chains."""
    if not judged.doubt:
        return []
    return [Doubt(EVERY, judged.doubt, judged.off, said=judged.short)]


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
        note = f"runs differ in {name}{where}, one by {apart:.2g} sd from all together"
        found.append(Doubt(label, note, apart, remedy="runs that start anew"))
    return found
