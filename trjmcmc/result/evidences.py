"""Evidences and Bayes factors by several routes, each alone and combined."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..doubts.doubt import CHAINS, COMMON_PROBABILITY, DRAWS, EVERY, MAP, widened
from ..doubts.of_chains import Routes
from ..errors import ConfigurationError, TRJError
from ..estimate.agreement import SOURCES, Clash, clashes, combine, shares_of, shares_of_sets, usable
from ..estimate.bridge import DOUBTFUL
from ..estimate.estimate import Estimate
from ..estimate.importance import probabilities
from ..estimate.indicator import Mask
from ..estimate.mean import BATCHES, batch_shares, batch_sums, share_covariance
from ..plot.evidences import plot_evidence
from .chains import Chains
from .report import RunReport

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

NOTHING = Estimate(math.nan, math.inf, 0.0)

BLANK = Estimate(math.nan, math.nan)

BEST_FIRST = ("bridge", "warp", "smoothed", "importance", "audit")  # of routes equally sound

FAR_ERRORS = 2.0  # standard errors from which routes that share a map are apart by more than chance

UNKNOWN_ERROR = 0.1  # nats of error from which a flagged importance estimate counts as unknown

UNCHECKED = "unchecked"  # no two routes that share no draws tell an evidence


class Evidences:
    """Log evidences by several routes.

    Arguments:
        chains: Probabilities by the chains, and what speaks against them and the map.
        report: How the run went: whether tempered draws have judged the map, or taught it.
        routes: By route (``importance``, ``smoothed``, ``bridge``, ``warp``, ``audit``) and
            model label, log of p(model) times its evidence, nats.
        pareto_k: By model label, the Pareto shape of the map's importance weights.
    """

    def __init__(
        self,
        chains: Chains,
        report: RunReport,
        routes: Routes,
        pareto_k: Mapping[str, float] | None = None,
    ) -> None:
        self.indicator, self.chains = chains.indicator, chains
        self._routes, self._report, self.pareto_k = routes, report, dict(pareto_k or {})

    @cached_property
    def routes(self) -> dict[str, dict[str, Estimate]]:
        """By route and model label, log of p(model) times its evidence, nats.

        Routes that rest on the chains' draws carry what is flagged about these; those by draws of
        the map alone, what tempered draws say that it misses, in improbable models too.
        """
        found = {route: dict(by_model) for route, by_model in self._routes.items()}
        for route, by_model in found.items():
            sources = SOURCES.get(route, set())
            reached = {DRAWS, *({CHAINS} & sources), *({MAP} if sources == {"map"} else ())}
            for label, e in by_model.items():
                for d in self.chains.doubted.found:
                    if d.against in reached and d.subject in {label, EVERY}:
                        e = widened(e, d)
                by_model[label] = e
        return found

    @property
    def log_mass(self) -> dict[str, Estimate]:
        """Log of p(model) times the evidence by importance sampling, by label, nats."""
        return self.routes.get("importance", {})

    @cached_property
    def weighed(self) -> list[str]:
        """Models whose evidence is known, most of them from a map."""
        return list(self.log_mass)

    @property
    def unweighed(self) -> str:
        """Why no log evidences are known, and how to come by them."""
        space = self.indicator.space
        if space.counts and len(space.kinds) == 1:
            return "no map has weighed the counts; trj.evidences_of_counts(target) does"
        return (
            "no map has weighed the models: the run ended before that (give it more max_seconds or "
            "max_evaluations), or needed none; run(fit=True) trains one"
        )

    @property
    def partial(self) -> bool:
        """Whether only some of the models were weighed."""
        size = self.indicator.space.size
        return size is None or len(self.weighed) < size

    @property
    def all_weighed(self) -> bool:
        """Whether every model of the space has an evidence."""
        return bool(self.weighed) and not self.partial

    @cached_property
    def whole(self) -> Estimate:
        """Probability of the models that were weighed, all together, by the visits."""
        if not self.partial:
            return Estimate(1.0, 0.0)
        return self.chains.share(self.indicator.inside_any(self.weighed))

    # ---- the combination --------------------------------------------------------------------

    def best(self, label: str) -> Estimate:
        """The log mass of a model by the first route that is least flagged, nats."""
        found = [self._by(r, label) for r in BEST_FIRST if label in self.routes.get(r, {})]
        best = min(found, key=lambda e: (not math.isfinite(e.value - e.std_error), bool(e.warning)))
        if not best.warning:
            return best
        # a flagged value is as uncertain as routes are apart
        apart = [e.value - best.value for e in found if math.isfinite(e.value)]
        error = math.hypot(best.std_error, max(map(abs, apart), default=0.0))
        best = replace(best, std_error=error)
        return reduce(widened, self.chains.doubted.about(label), best)

    @property
    def flagged(self) -> bool:
        """Whether the best route to some model carries a warning."""
        return any(self.best(m).warning for m in self.weighed)

    @cached_property
    def combined(self) -> tuple[list[Estimate], NDArray[np.float64]]:
        """Log masses of the models weighed by bridge and jumps together, nats, and covariance.

        Jumps count by their acceptance probabilities where these are known, else by the visits.
        """
        labels = self.weighed
        inside = np.stack([self.indicator.inside(m) for m in labels])
        share, batches = [self.chains.visits(m) for m in labels], batch_shares(inside)
        jumps = [self.chains.by_jumps.get(m, NOTHING) for m in labels]
        chains = self.indicator.draws.n_chains
        if sum(map(usable, jumps)) >= sum(map(usable, share)):
            share = jumps
        elif chains >= BATCHES:
            each = (inside.mean(2) - inside.mean((1, 2))[:, None]) / chains
            share = [replace(e, batches=batch_sums(x)) for e, x in zip(share, each, strict=True)]
        error = np.array([e.std_error if usable(e) else 0.0 for e in share])
        found, covariance = combine(
            [self.best(m) for m in labels], share, share_covariance(batches, error)
        )
        apart = self._apart([e.value for e in found])
        found = [
            replace(e, std_error=math.hypot(e.std_error, gap))
            for e, gap in zip(found, apart, strict=True)
        ]
        return found, covariance + np.diag(np.square(apart))

    def _apart(self, log_mass: Sequence[float], shares: bool = False) -> list[float]:
        """How far the routes that disagree are from given log masses, by model.

        Arguments:
            log_mass: Log masses of the models weighed, nats.
            shares: Measure probabilities, and not nats.
        """
        known = np.nan_to_num(np.array(log_mass, dtype=float), nan=-math.inf)
        total = np.logaddexp.reduce(known)
        gaps = [np.zeros(len(known))]
        for route in {r for c in self.clashes for r in c.routes}:
            theirs = np.array([e.value for e in self._log_masses(route)])
            theirs = np.nan_to_num(theirs, nan=-math.inf)
            height = np.logaddexp.reduce(theirs)
            if route in {"visits", "bartolucci"}:
                theirs, height = theirs - height + total, total
            with np.errstate(invalid="ignore"):
                gap = np.exp(theirs - height) - np.exp(known - total) if shares else theirs - known
            gaps.append(np.where(np.isfinite(gap), np.abs(gap), 0.0))
        found: list[float] = np.max(gaps, axis=0).tolist()
        return found

    def _log_masses(self, route: str) -> list[Estimate]:
        """Log masses of the models weighed by a route, of visits and jumps up to a constant."""
        if route not in {"visits", "bartolucci"}:
            return [self.routes[route].get(m, NOTHING) for m in self.weighed]
        by_jumps = route == "bartolucci"
        each = [
            self.chains.by_jumps[m] if by_jumps else self.chains.visits(m) for m in self.weighed
        ]
        return [log_share(e, Estimate(0.0, 0.0)) for e in each]

    @property
    def clashes(self) -> list[Clash]:
        """Models on which two routes contradict each other."""
        return self._compared[0]

    @cached_property
    def _compared(self) -> tuple[list[Clash], set[str]]:
        """Contradictions, and the models on which routes were compared."""
        labels, by_jumps = self.weighed, self.chains.by_jumps
        absolute = {
            route: [found.get(m, NOTHING) for m in labels]
            for route, found in self.routes.items()
            if route != "smoothed"  # the same draws as the importance route
        }
        relative = {"visits": [self.chains.visits(m) for m in labels]}
        if by_jumps:
            relative["bartolucci"] = [by_jumps[m] for m in labels]
        return clashes(labels, absolute, relative, SOURCES)

    # ---- probabilities ----------------------------------------------------------------------

    @cached_property
    def _excess(self) -> float:
        """Probability that flagged evidences give their models beyond the visits, all together."""
        found = zip(self.weighed, shares_of(*self.combined), self.combined[0], strict=True)
        whole = self.whole.value
        more = (
            e.value - self.chains.visits(m).value / whole for m, e, mass in found if mass.warning
        )
        return sum(max(0.0, x) for x in more if math.isfinite(x))

    def shares(self, labels: Sequence[str]) -> list[Estimate]:
        """Probabilities by the combination of routes; by visits of models that were not weighed."""
        if not self.weighed:
            return [BLANK] * len(labels)
        combined, covariance = self.combined
        share = shares_of(combined, covariance)
        lost = [m for m, e in zip(self.weighed, combined, strict=True) if math.isnan(e.value)]
        visits = [self.chains.visits(m) for m in lost]
        rest = Estimate(
            max(0.0, self.whole.value - sum(v.value for v in visits)),
            math.hypot(self.whole.std_error, *(v.std_error for v in visits)),
        )
        known = dict(zip(lost, visits, strict=True))
        apart = self._apart([e.value for e in combined], shares=True)
        for m, e, gap in zip(self.weighed, share, apart, strict=True):
            if m not in known:
                error = math.hypot(e.std_error, self._excess, gap)
                known[m] = replace(e, std_error=error) * rest
        return [self._open(known[m]) if m in known else self.chains.visits(m) for m in labels]

    def shares_under(self, log_change: Mapping[str, float]) -> dict[str, Estimate]:
        """Probabilities by the combined evidences where p(model) is changed.

        Arguments:
            log_change: By label of every model, log of the new prior over the old one.
        """
        combined, covariance = self.combined
        moved = [e + log_change[m] for m, e in zip(self.weighed, combined, strict=True)]
        apart = self._apart([e.value for e in combined], shares=True)
        return {
            m: replace(e, std_error=math.hypot(e.std_error, self._excess, gap))
            for m, e, gap in zip(self.weighed, shares_of(moved, covariance), apart, strict=True)
        }

    def shares_of_sets(self, sets: Callable[[Tensor], Tensor], on: Mask) -> list[Estimate]:
        """Probabilities of sets of models by the combined evidences, NaN where there are none.

        Models that were not weighed count by their visits, and the others are scaled to theirs: a
        set has a share e W + R of the probability, with e among the models weighed, which have W,
        and R of the rest. As W is what the rest leaves, that is e + (1 - e) R - e R', with R' of
        the rest that is not in the set. Errors of R and R' are added: they are of the same draws.

        Arguments:
            sets: Codes, (N, L), to which of S sets hold them, (N, S) bool.
            on: Which sets hold each draw's model, shape (chain, draw, S).
        """
        blank = [BLANK] * on.shape[-1]
        if not self.weighed:
            return blank
        combined, covariance = self.combined
        possible = np.isfinite(self.indicator.log_prior(self.weighed))
        if not all(math.isfinite(e.value) for e, p in zip(combined, possible, strict=True) if p):
            return blank
        codes = torch.stack([self.indicator.space.code_of(m) for m in self.weighed])
        found = shares_of_sets(combined, covariance, sets(codes).numpy().T * 1.0)
        found = [replace(e, std_error=math.hypot(e.std_error, self._excess)) for e in found]
        if not self.partial:
            return found
        left, whole = ~self.indicator.inside_any(self.weighed), self.whole
        sums = []
        for i, e in enumerate(found):
            rest, others = (self.chains.share(left & x) for x in (on[..., i], ~on[..., i]))
            visits = (1 - e.value) * rest.std_error + e.value * others.std_error
            error = math.hypot(whole.value * e.std_error, visits)
            sums.append(Estimate(whole.value * e.value + rest.value, error))
        return sums

    def importance(self, labels: Sequence[str]) -> list[Estimate]:
        """Probabilities by importance sampling; NaN of models that were not weighed."""
        if not self.weighed:
            return [BLANK] * len(labels)
        shares = probabilities([self._by("importance", m) for m in self.weighed])
        found = dict(zip(self.weighed, shares, strict=True))
        guessed = [
            m for m, e in self.log_mass.items() if e.warning and not e.std_error < UNKNOWN_ERROR
        ]
        matter = [
            m
            for m in guessed
            if (v := self.chains.visits(m)).warning or v.value > COMMON_PROBABILITY
        ]
        for m in found if matter else guessed:  # what one may be worth, the others may lack
            why = found[m].warning or f"{guessed[0]!r}: {self.log_mass[guessed[0]].warning}"
            found[m] = replace(found[m], std_error=math.nan, warning=why)
        return [self._open(found.get(label, BLANK) * self.whole) for label in labels]

    def _open(self, e: Estimate) -> Estimate:
        """A share that is no certainty where all routes to some model are flagged."""
        flagged = any(e.warning and self.chains.visits(m).warning for m, e in self.log_mass.items())
        return replace(e, std_error=math.nan) if flagged and e.std_error == 0 else e

    # ---- tables and ratios ------------------------------------------------------------------

    def table(self) -> pd.DataFrame:
        """Log evidences by every route side by side, nats, with a verdict.

        Raises:
            TRJError: There was no map to weigh models by.
        """
        import pandas as pd

        labels = self.weighed
        if not labels:
            raise TRJError(f"evidence: {self.unweighed}")
        columns, share = self._columns(), self.shares(labels)
        log_prior = self.indicator.log_prior(labels)
        table = pd.DataFrame(index=pd.Index(labels, name="model"))
        for route, found in columns.items():
            shifted = [e.value - prior for e, prior in zip(found, log_prior, strict=True)]
            table[route] = shifted
            table[f"{route}_se"] = [e.std_error for e in found]
            if route == "combined":
                table["probability"] = [e.value for e in share]
                table["probability_se"] = [e.std_error for e in share]
                table["verdict"] = [self._verdict(m) for m in labels]
        table["pareto_k"] = [self.pareto_k.get(m, math.nan) for m in labels]
        table["note"] = [
            "; ".join(f"{r}: {f[i].warning}" for r, f in columns.items() if f[i].warning)
            for i in range(len(labels))
        ]
        return table

    def _columns(self) -> dict[str, list[Estimate]]:
        """Log masses of the models weighed by every route, nats, the combined ones first."""
        labels, by_jumps = self.weighed, self.chains.by_jumps
        combined, covariance = self.combined
        known = [i for i, e in enumerate(combined) if math.isfinite(e.value)]
        level = _total([combined[i] for i in known], covariance[np.ix_(known, known)])
        several = self.indicator.space.size != 1
        shares = {"visits": [self.chains.visits(m) for m in labels]} if several else {}
        if several and by_jumps:
            shares["bartolucci"] = [by_jumps[m] for m in labels]
        columns = {"combined": combined}
        for route, found in shares.items():
            whole = sum(found[i].value for i in known) or 1.0  # of those whose evidence is known
            columns[route] = [log_share(e * (1 / whole), level) for e in found]
        columns |= {r: [self._by(r, m) for m in labels] for r in self.routes}
        return columns | {r: [BLANK] * len(labels) for r in BEST_FIRST if r not in columns}

    def _by(self, route: str, label: str) -> Estimate:
        """The log mass of a model by a route; by draws of the map alone no surer than the bridge.

        Their error reaches the bridge, which sees what the map misses. One that is flagged, as
        chains remember their start, tells that still. Where draws and map hardly overlap the bridge
        is wide; of a map that nobody has audited that very fact speaks against its own draws.
        """
        e = self.routes[route].get(label, NOTHING)
        if SOURCES.get(route) != {"map"}:
            return e
        bridge = self.routes.get("bridge", {}).get(label, NOTHING)
        gap, wide = abs(e.value - bridge.value), bridge.std_error
        if self._report.unaudited and not wide < DOUBTFUL:
            wide = 0.0
        if not gap > FAR_ERRORS * math.hypot(e.std_error, wide) or math.isinf(gap):
            return e
        return replace(e, std_error=math.hypot(e.std_error, gap))

    def _verdict(self, label: str) -> str:
        bad = sorted({" and ".join(c.routes) for c in self.clashes if c.model == label})
        if bad:
            return "disagree: " + ", ".join(bad)
        found = "agree" if label in self._compared[1] else UNCHECKED
        return f"{found}, map not audited" if self._report.unaudited else found

    def audit(self) -> pd.DataFrame:
        """What an audit, independent of the map, says of it, model by model.

        Returns:
            ``log_evidence`` and ``se`` by tempered sequential Monte Carlo, the error by the
            spread of its four replicates; ``halves_differ``, by how many nats the log evidences
            of the first and the last two differ; ``map_log_evidence`` and ``map_se`` by
            importance sampling through the map; their ``difference`` and its error; ``covered``,
            the share of the posterior that the map reaches, and ``lost``, the share of which it
            has next to nothing; ``modes``; and the ``verdict``, which is about coverage:
            ``covered`` or ``uncovered``. Of a map that covers it may also be ``evidences
            differ``, where the difference exceeds 0.1 nats and five errors (of these the larger
            of ``difference_se`` and ``halves_differ`` counts), or ``rough``, where the halves
            differ by more than 0.1 nats, so that the audit is too small to judge an evidence.

        Raises:
            TRJError: There was no audit.
        """
        if self._report.audit is None:
            raise TRJError(
                "audit: there was none. fit=True audits up to 64 models, unless max_evaluations "
                "are few or the run was interrupted; see convergence() and report.judged instead"
            )
        return self._report.audit.table()

    def bayes_factor(self, a: str, b: str, *, log: bool = False, route: str) -> Estimate:
        """Ratio of the evidences of two models, or its logarithm in nats.

        Raises:
            ConfigurationError: There is no such route.
        """
        prior = self.indicator.log_prior([a, b])
        odds = self._log_odds(a, b, route) - (prior[0] - prior[1])
        return odds if log else odds.exp()

    def _log_odds(self, a: str, b: str, route: str) -> Estimate:
        """Log of the ratio of two models' posterior probabilities, nats."""
        combined, covariance = self.combined if self.weighed else ([], np.zeros((0, 0)))
        known = [m for m, e in zip(self.weighed, combined, strict=True) if not math.isnan(e.value)]
        if route == "combined" and {a, b} <= set(known):
            i, j = self.weighed.index(a), self.weighed.index(b)
            x, y = combined[i], combined[j]
            variance = covariance[i, i] + covariance[j, j] - 2 * covariance[i, j]
            error = math.sqrt(max(float(variance), 0.0))
            bad = [c for c in self.clashes if c.model in {a, b}]
            clash = "routes disagree, see evidence()" if bad else ""
            ess = 1 / error**2 if error else math.inf
            return Estimate(x.value - y.value, error, ess, clash or x.warning or y.warning)
        if route in {"combined", "visits"}:
            return self.chains.log_odds(a, b)
        if route == "bartolucci" and self.chains.crossings is not None:
            return self.chains.log_odds_by_jumps(a, b)
        if {a, b} <= set(self.routes.get(route, {})):
            return self.routes[route][a] - self.routes[route][b]
        names = [*self.routes, "visits"] + (["bartolucci"] if self.chains.crossings else [])
        raise ConfigurationError(f"route: expected one of {sorted(names)}, got {route!r}")

    def plot(self, ax: Axes | None = None) -> Axes:
        """Log evidences by every route with their errors.

        Raises:
            TRJError: No map has weighed the models.
        """
        truth = self.chains.truth
        return plot_evidence(self.table(), truth.log_evidence if truth else None, ax)


def _total(log_mass: list[Estimate], covariance: NDArray[np.float64]) -> Estimate:
    """Log of the sum of the masses that are known."""
    value = np.array([e.value if math.isfinite(e.value) else -math.inf for e in log_mass])
    total = float(np.logaddexp.reduce(value))
    if not math.isfinite(total):
        return NOTHING
    p = np.exp(value - total)
    return Estimate(total, math.sqrt(max(float(p @ covariance @ p), 0.0)))


def log_share(e: Estimate, level: Estimate) -> Estimate:
    """The logarithm of a share on some level; of one that was never seen the upper bound."""
    if e.value <= 0:
        bound = math.log(e.std_error) if 0 < e.std_error < math.inf else math.nan
        return Estimate(bound + level.value, math.inf, e.ess, e.warning)
    error = math.hypot(e.std_error / e.value, level.std_error)
    return Estimate(math.log(e.value) + level.value, error, e.ess, e.warning)
