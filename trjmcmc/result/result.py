"""What a run found out: probabilities, Bayes factors, draws, tables, files."""

from __future__ import annotations

import hashlib
import io
import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from .. import arviz_bridge as export
from ..draws import Draws
from ..errors import ConfigurationError, TRJError, warn_user
from ..estimate.agreement import SOURCES, Clash, clashes, combine, shares_of, shares_of_sets, usable
from ..estimate.bartolucci import bartolucci, bartolucci_odds
from ..estimate.convergence import HIGH_RHAT, split_rhats, start_error
from ..estimate.estimate import Estimate
from ..estimate.importance import HIGH_K, probabilities, tail_shape
from ..estimate.mean import (
    BATCHES,
    MANY_CHAINS,
    autocorrelation_time,
    batch_shares,
    batch_sums,
    mean_error,
    mean_error_where,
    share_covariance,
)
from ..estimate.visits import log_odds, second_eigenvalue, transition_matrix, visit_probability
from ..fit.trace import FitTrace
from ..pilot.report import FEWEST_UNSCREENED_ANCESTORS, AuditReport, ModelAudit
from ..pilot.screening import Screening
from ..space.base import Space
from ..space.codes import distinct
from ..space.counts import Counts
from ..space.saved import space_from_spec
from ..space.subsets import Subsets
from ..target.model import Truth
from ..target.prior import PriorSpec
from ..target.resolution import EXAMINED, resolution_doubts
from ..target.target import Target
from .alarms import WORTH, alarms
from .catalogue import INTERVAL, Drawn, by_entry, tabled
from .doubts import EVERY, Convergence, Doubt
from .evidences import NOTHING, _total, log_share
from .files import FORMAT
from .predict import Prediction, predict
from .relabel import LEAST, Relabelling, relabel
from .report import Plan, RunReport
from .reweight import Reweighted, reweighted
from .variational import Variational

if TYPE_CHECKING:
    from matplotlib.axes import Axes


SHOWN = 20  # models in the table of a large space

NUMBERED = 1000  # models up to which draws show a model's position in the space

MAGIC = b"trjmcmc\n"  # first bytes of a saved file; then its checksum and what it is of

DIGEST = 32  # bytes of a checksum

SMALL = 64  # models between which transitions are counted

OTHERS = "(other models)"

PIECES = 4  # chains that the draws in one model are cut into

APART = 2.0  # nats between the halves of a pilot run that may have lost a mode

GUESSED = 0.1  # nats of error from which a flagged evidence by importance sampling has none

NOTICED = 0.1  # of an error, from where what widens it is named

DIGITS = 12  # of a share

SELDOM = 0.05  # share of the draws below which a model can't spoil all the others

REACH = 5.0  # standard errors that an evidence in doubt may be off


class Result:
    """Draws of a run and the estimates made from them.

    Arguments:
        space: The bound model space.
        draws: Kept draws.
        values: Constrained parameters by name, padded to the largest model with NaN, shape
            (chain, draw, ...), or a function that gives them when they are asked for.
        routes: By route (``importance``, ``smoothed``, ``bridge``, ``warp``, ``audit``) and
            model label, log of p(model) times its evidence, nats.
        report: How the run went.
        truth: Known answers, if any.
        crossings: For a small space, sums of the acceptance probabilities of jumps from row to
            column, shape (batch, M, M), and the numbers of draws they were proposed from,
            shape (batch, M), in the order of ``space.enumerate()``.
        pareto_k: By model label, the Pareto shape of the map's importance weights.
        target: The target, on the CPU, for :meth:`reweight` and :meth:`predict`; it is not saved.
        slot_names: Names of the coordinates, for :meth:`convergence`.
        coarse: By model label, parameters that the working precision does not resolve, in words;
            found from the target if omitted.
    """

    def __init__(
        self,
        space: Space,
        draws: Draws,
        values: dict[str, Tensor] | Callable[[], dict[str, Tensor]],
        routes: Mapping[str, Mapping[str, Estimate]],
        report: RunReport,
        truth: Truth | None = None,
        *,
        crossings: tuple[Tensor, Tensor] | None = None,
        pareto_k: Mapping[str, float] | None = None,
        target: Target | None = None,
        slot_names: Sequence[str] | None = None,
        coarse: Mapping[str, str] | None = None,
    ) -> None:
        self.space, self.raw, self._given_values = space, draws, values
        self._given_coarse = coarse
        self._given_routes = {route: dict(found) for route, found in routes.items()}
        self.report, self.truth, self.crossings = report, truth, crossings
        self.pareto_k, self.target = dict(pareto_k or {}), target
        codes, inverse, counts = distinct(draws.code.flatten(0, 1))
        order = torch.argsort(counts, descending=True, stable=True)
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        self._visited = space.label(codes[order])
        self._model = place[inverse].reshape(draws.code.shape[:2]).numpy()
        self._cache: dict[str, Estimate] = {}
        self._relabelled: dict[tuple[Any, ...], Relabelling] = {}
        self.slot_names = list(slot_names or (f"theta[{i}]" for i in range(draws.theta.shape[2])))
        self.ancestor = None if draws.ancestor is None else draws.ancestor.numpy()

    @cached_property
    def _values(self) -> dict[str, Tensor]:
        given = self._given_values
        return given if isinstance(given, dict) else given()

    @property
    def log_mass(self) -> dict[str, Estimate]:
        """Log of p(model) times the evidence by importance sampling, by model, nats."""
        return self.routes.get("importance", {})

    # ---- models -----------------------------------------------------------------------------

    @property
    def models(self) -> list[str]:
        """Labels of the rows of :meth:`model_probabilities`, the row of the rest left out."""
        if self.space.size is not None and self.space.size <= SHOWN:
            return self.space.label(self.space.enumerate())
        return self._visited[:SHOWN]

    def _label(self, model: Any) -> str:
        return self.space.label(self.space.code_of(model)[None])[0]

    def visited(self, label: str) -> NDArray[np.bool_]:
        """Whether each draw is in a model, shape (chain, draw)."""
        if label not in self._visited:
            return np.zeros(self._model.shape, dtype=bool)
        found: NDArray[np.bool_] = self._model == self._visited.index(label)
        return found

    def visits(self, label: str) -> Estimate:
        """Probability of a model by the share of the draws in it."""
        if label not in self._cache:
            e = self._share_of(self.visited(label), self._thinned(label))
            prior = float(self.space.log_prior(self.space.code_of(label)[None])[0])
            if self.space.size == 1:
                e = Estimate(1.0, 0.0, math.inf)
            elif prior == -math.inf:
                e = Estimate(0.0, 0.0, math.inf, "prior probability 0")
            self._cache[label] = e
        return self._cache[label]

    def _share_of(
        self,
        inside: NDArray[np.bool_],
        thinned: NDArray[np.float64] | None = None,
    ) -> Estimate:
        """Share of the draws where some models are, with what is in doubt in its error."""
        e = visit_probability(inside, self._index_ess, thinned, self.ancestor)
        return self._doubted(e, inside)

    def _doubted(self, e: Estimate, inside: NDArray[np.bool_]) -> Estimate:
        """A share whose error counts what is in doubt about any model."""
        error, p, notes = e.std_error, e.value, []
        for d in self.doubts:
            if d.model == EVERY:
                size = d.size * math.sqrt(max(p * (1 - p), 0.0))
            else:
                here = self.visited(d.model)
                part = here.mean()
                within = float((here & inside).sum() / here.sum()) if part else p
                # of a model seldom visited an unknown error is no more than all it has
                most = 1.0 if math.isnan(d.size) and part < SELDOM else d.size
                size = most * part * abs(within - p)
            if not size <= NOTICED * error:
                notes.append(d.note)
            error = math.hypot(error, size)
        if not notes:
            return e
        ess = min(e.ess, p * (1 - p) / error**2) if error > 0 else math.nan
        return replace(e, std_error=error, ess=ess, warning=e.warning or notes[0])

    def _remembered(self, series: NDArray[Any]) -> list[Doubt]:
        """What the chains remember of their start, by R-hat of a series."""
        rhat = self.rhat_of(series)
        return [Doubt(EVERY, f"R-hat {rhat:.2f}", start_error(rhat))] if rhat > HIGH_RHAT else []

    def widened(
        self, error: float, series: NDArray[np.floating], inside: NDArray[np.bool_] | None = None
    ) -> tuple[float, str]:
        """The error of a mean with what the chains remember of their start, and why.

        Arguments:
            error: Standard error of the mean of independent or autocorrelated draws.
            series: What each draw adds to the mean, shape (chain, draw).
            inside: Draws that the mean is of, shape (chain, draw); all if omitted.

        Returns:
            The error, NaN where nothing tells it, and what is in doubt, in words.
        """
        sd = float(series.std())
        doubts = [
            d
            for d in self.doubts
            if d.model == EVERY or inside is None or (self.visited(d.model) & inside).any()
        ]
        doubts += self._remembered(series) if sd else []
        wide = math.hypot(error, *(sd * d.size for d in doubts))
        if doubts and not sd:  # what never changed may be what was never met
            wide = math.nan
        note = doubts[0].note if doubts else ""
        k = tail_shape(series if inside is None else series[inside])
        if k > HIGH_K:  # the largest values decide, and larger ones were not met
            return math.nan, note or f"tail too heavy for an error (Pareto k {k:.2f})"
        return wide, note

    def rhat_of(self, series: NDArray[Any]) -> float:
        """Split R-hat of a series, (chain, draw), over chains of independent starts."""
        return float(split_rhats(series[self._convergence.first][..., None].astype(float))[0])

    def error_where(
        self, x: NDArray[np.floating], inside: NDArray[np.bool_]
    ) -> tuple[float, float, str]:
        """Standard error and effective draws of a mean over some draws, and what is in doubt.

        Arguments:
            x: Values of those draws, in the order chain by chain, shape (n,).
            inside: Which draws they are, shape (chain, draw).
        """
        error, ess = mean_error_where(x, inside, self.ancestor)
        series = np.zeros(inside.shape)
        series[inside] = (x - x.mean()) / inside.mean()
        wide, note = self.widened(error, series, inside)
        if wide != error:
            ess = float(x.var()) / wide**2
        return wide, ess, note

    @cached_property
    def _convergence(self) -> Convergence:
        return Convergence(
            self.space, self.raw, self._model, self._visited[:SHOWN], self.slot_names
        )

    @cached_property
    def doubts(self) -> list[Doubt]:
        """What is known against the chains, and what was fitted to their draws, gravest first."""
        found = self._convergence.doubts()
        for s in self.report.screening:
            if s.lost:
                seldom = self.visited(s.model).mean() < SELDOM
                place = EVERY if seldom and self._matters(s.model, s.share) else s.model
                found.append(Doubt(place, s.note, math.nan, everywhere=True, said=True))
        for label, said in self.coarse.items():
            if self.visited(label).mean() > WORTH:
                found.append(Doubt(label, said, math.nan, everywhere=True, said=True))
        found += self._unscreened
        for model, gap in self.halves_apart.items():
            note = f"halves of the pilot run differ by {gap:.1f} nats"
            found.append(Doubt(model, note, math.nan, everywhere=True, said=True))
        if self._unknown:
            some = ", ".join(map(repr, self._unknown[:3]))
            note = f"nothing sound tells the probability of {some}"
            found.append(Doubt(EVERY, note, math.nan))
        return sorted(found, key=lambda d: (d.model != EVERY, not math.isnan(d.size)))

    @property
    def _unscreened(self) -> list[Doubt]:
        """Models whose pilot run rests on few draws of the prior, in a run without climbs.

        Twenty families of random sizes count as ten of one size.
        """
        audit = None if self.report.screening else self.report.audit
        return [
            Doubt(m.model, f"a pilot run that rests on {m.ancestors:.1f} draws", math.nan, True)
            for m in (audit.models if audit is not None else ())
            if m.matters and m.ancestors < FEWEST_UNSCREENED_ANCESTORS
        ]

    def _matters(self, label: str, share: float) -> bool:
        """Whether a model would be worth a word if it had so many times its evidence more."""
        known = {
            m: max(e.value for r in self._given_routes.values() if (e := r.get(m)) is not None)
            for m in self._given_routes.get("importance", {})
        }
        top = max(known.values(), default=-math.inf)
        return not known.get(label, -math.inf) + math.log1p(share) <= top + math.log(WORTH)

    @property
    def halves_apart(self) -> dict[str, float]:
        """By model, nats between the halves of the pilot run that chains start from, if many."""
        audit = self.report.audit
        if audit is None:
            return {}
        return {m.model: abs(m.gap) for m in audit.models if m.matters and not abs(m.gap) <= APART}

    @cached_property
    def _unknown(self) -> list[str]:
        """Models that chains never or hardly entered, and that no other route tells of."""
        related = isinstance(self.space, Subsets | Counts)  # models next to each other are alike
        if self.space.size is None or self.space.size > SMALL or related:
            possible = self.space.size != 1 and not self._given_routes
            return [] if len(self._visited) > 1 or not possible else ["any other model"]
        labels = self.space.label(self.space.enumerate())
        labels = [m for m, p in zip(labels, self._log_prior(labels), strict=True) if p > -math.inf]
        heights = {m: [r[m] for r in self._given_routes.values() if m in r] for m in labels}
        finite = {m: [e.value for e in x if math.isfinite(e.value)] for m, x in heights.items()}
        top = max((v for x in finite.values() for v in x), default=math.nan)
        found = []
        for m in labels:
            inside = self.visited(m)
            seen = visit_probability(inside, self._index_ess)
            if any(map(usable, heights[m])) or usable(seen) or inside.mean() > WORTH:
                continue
            reach = max((abs(v - w) for v in finite[m] for w in finite[m]), default=math.inf)
            apart = max((e.std_error for e in heights[m] if math.isfinite(e.value)), default=0.0)
            reach = max(1.0, reach, REACH * apart)
            if not finite[m] or not max(finite[m]) + reach < top + math.log(WORTH):
                found.append(m)
        return found

    @cached_property
    def routes(self) -> dict[str, dict[str, Estimate]]:
        """By route and model label, log of p(model) times its evidence, nats.

        Routes that rest on the chains' draws carry what is in doubt about these.
        """
        found = {route: dict(by_model) for route, by_model in self._given_routes.items()}
        for route, by_model in found.items():
            for label, e in by_model.items():
                doubts = [d for d in self.doubts if d.model in {label, EVERY}]
                if "chains" in SOURCES.get(route, ()):
                    doubts += self._remembered(self.visited(label))
                else:
                    doubts = [d for d in doubts if d.everywhere]
                for d in doubts:
                    e = replace(
                        e,
                        std_error=math.hypot(e.std_error, d.size),
                        warning=e.warning or d.note,
                    )
                by_model[label] = e
        return found

    def convergence(self) -> pd.DataFrame:
        """Have chains forgotten where they began? Of all that they pass, by model.

        Components of an unknown number have no names of their own: of their parameters the
        smallest, the mean and the largest are looked at; :meth:`catalogue` has R-hat by entry.

        Returns:
            Indexed by model (``(all models)`` for what belongs to none, ``(other models)`` for
            all below one percent together) and quantity: the log joint, being in a model,
            including an item, numbers of components, unconstrained parameters. ``rhat``,
            rank-normalised split R-hat over chains of independent starts; ``ess_bulk`` and
            ``ess_tail``, effective draws; ``share`` of the draws in which the quantity exists.

        Source:
            Vehtari et al. (2021), https://doi.org/10.1214/20-BA1221

        Example:
            >>> import trjmcmc as trj
            >>> result = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=1).run(
            ...     draws=200, progress=False)
            >>> bool((result.convergence()["rhat"] < 1.1).all())
            True
        """
        return self._convergence.table()

    @cached_property
    def coarse(self) -> dict[str, str]:
        """By model label, parameters that the working precision does not resolve, in words."""
        if self._given_coarse is not None:
            return dict(self._given_coarse)
        if self.target is None or self.target.dtype != self.raw.theta.dtype:
            return {}
        first = self._visited[:EXAMINED]
        codes = torch.stack([self.space.code_of(label) for label in first])
        which = torch.as_tensor(self._model)
        return resolution_doubts(self.target, codes, which, self.raw.theta)

    def _thinned(self, *labels: str) -> NDArray[np.float64] | None:
        """Share of the steps that each of many chains was in any of some models, if thinned."""
        shares = self.raw.shares
        if shares is None:
            return None
        at = torch.cat([self.space.index(self.space.code_of(label)[None]) for label in labels])
        found: NDArray[np.float64] = shares[:, at].sum(1).numpy()
        return found

    @cached_property
    def _index_ess(self) -> float:
        """Effective draws of the model indicator: of the visited model that mixes worst."""
        shown = self._visited[:SHOWN]
        found = [mean_error(self.visited(label).astype(float), self.ancestor)[1] for label in shown]
        return min((e for e in found if math.isfinite(e)), default=0.0)

    def model_probabilities(self) -> pd.DataFrame:
        """Posterior probability of each model by visits, by importance sampling, and combined.

        Returns:
            One row a model, indexed by name. ``visits``: share of the draws (of all steps, where
            draws were thinned and chains are 32 or more), with its standard
            error ``visits_se`` and the effective number of draws ``visits_ess``; ``importance``:
            evidences by importance sampling through the map, normalised, with
            ``importance_se``; ``combined`` and ``combined_se``: bridges between chains and map
            and jumps together, the most precise, see :meth:`evidence`; ``note``: what makes a
            row doubtful. Large spaces show the most visited models, their importance and
            combined estimates scaled to their share of the visits, and a row for the rest. A
            model that was never visited ("never visited"), or that no chain has left ("never
            left"), shows the distance of a 95 % bound as ``visits_se``, which is no standard
            error: three over the effective draws of the model that mixes worst, 1 at most.
            One that was entered a few times alone ("entered only once") has the error of one
            effective draw more or less at least.
        """
        labels = self.models
        visits = [self.visits(label) for label in labels]
        importance, combined = self._importance(labels), self._combined_shares(labels)
        table = pd.DataFrame(
            {
                "visits": [v.value for v in visits],
                "visits_se": [v.std_error for v in visits],
                "visits_ess": [v.ess for v in visits],
                "importance": [i.value for i in importance],
                "importance_se": [i.std_error for i in importance],
                "combined": [c.value for c in combined],
                "combined_se": [c.std_error for c in combined],
                "note": [
                    "; ".join(dict.fromkeys(filter(None, (v.warning, i.warning))))
                    for v, i in zip(visits, importance, strict=True)
                ],
            },
            index=pd.Index(labels, name="model"),
        )
        if self.space.size is None or len(labels) < self.space.size:
            rest = ~np.isin(self._model, [self._visited.index(x) for x in labels])
            known = self._thinned(*labels)
            left = None if known is None else (1 - known).round(DIGITS).clip(0, 1)
            other = self._share_of(rest, left)
            table.loc[OTHERS] = [
                other.value,
                other.std_error,
                other.ess,
                *[math.nan] * 4,
                other.warning,
            ]
        return table

    @property
    def all_weighed(self) -> bool:
        """Whether every model of the space has an evidence."""
        return bool(self._weighed) and not self._partial

    def combined_shares(self, log_change: Mapping[str, float]) -> dict[str, Estimate]:
        """Probabilities by the combined evidences where p(model) is changed.

        Arguments:
            log_change: By label of every model, log of the new prior over the old one.
        """
        combined, covariance = self._combined
        moved = [e.shifted(log_change[m]) for m, e in zip(self._weighed, combined, strict=True)]
        apart = self._apart([e.value for e in combined], shares=True)
        return {
            m: replace(e, std_error=math.hypot(e.std_error, self._doubt, gap))
            for m, e, gap in zip(self._weighed, shares_of(moved, covariance), apart, strict=True)
        }

    def _combined_shares(self, labels: list[str]) -> list[Estimate]:
        """Probabilities by the combination of routes, of the models that were weighed."""
        blank = Estimate(math.nan, math.nan)
        if not self._weighed:
            return [blank] * len(labels)
        combined, covariance = self._combined
        share = shares_of(combined, covariance)
        lost = [m for m, e in zip(self._weighed, combined, strict=True) if math.isnan(e.value)]
        visits = [self.visits(m) for m in lost]
        rest = Estimate(
            max(0.0, self._whole.value - sum(v.value for v in visits)),
            math.hypot(self._whole.std_error, *(v.std_error for v in visits)),
        )
        known = dict(zip(lost, visits, strict=True))
        apart = self._apart([e.value for e in combined], shares=True)
        for m, e, gap in zip(self._weighed, share, apart, strict=True):
            if m not in known:
                error = math.hypot(e.std_error, self._doubt, gap)
                known[m] = replace(e, std_error=error).times(rest)
        return [self._open(known.get(label, blank)) for label in labels]

    def _open(self, e: Estimate) -> Estimate:
        """A share that is no certainty where all routes to some model are in doubt."""
        flagged = any(e.warning and self.visits(m).warning for m, e in self.log_mass.items())
        return replace(e, std_error=math.nan) if flagged and e.std_error == 0 else e

    def _apart(self, log_mass: Sequence[float], shares: bool = False) -> list[float]:
        """How far the routes that disagree are from given log masses, by model.

        Arguments:
            log_mass: Of the models weighed, nats.
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
            return [self.routes[route].get(m, NOTHING) for m in self._weighed]
        each = [self.visits(m) if route == "visits" else self._bartolucci[m] for m in self._weighed]
        return [log_share(e, Estimate(0.0, 0.0)) for e in each]

    @cached_property
    def _whole(self) -> Estimate:
        """Probability of the models that were weighed, all together, by the visits."""
        if not self._partial:
            return Estimate(1.0, 0.0)
        weighed = np.isin(self._visited, self._weighed)
        return self._share_of(weighed[self._model])

    @cached_property
    def _doubt(self) -> float:
        """What doubtful evidences give their models beyond the visits: an error of all shares."""
        found = zip(self._weighed, shares_of(*self._combined), self._combined[0], strict=True)
        whole = self._whole.value
        more = (e.value - self.visits(m).value / whole for m, e, mass in found if mass.warning)
        return sum(max(0.0, x) for x in more if math.isfinite(x))

    def _importance(self, labels: list[str]) -> list[Estimate]:
        blank = Estimate(math.nan, math.nan)
        if not self._weighed:
            return [blank] * len(labels)
        shares = probabilities([self.log_mass[m] for m in self._weighed])
        found = dict(zip(self._weighed, shares, strict=True))
        guessed = [m for m, e in self.log_mass.items() if e.warning and not e.std_error < GUESSED]
        matter = [m for m in guessed if (v := self.visits(m)).warning or v.value > WORTH]
        for m in found if matter else guessed:  # what one may be worth, the others may lack
            why = found[m].warning or f"{guessed[0]!r}: {self.log_mass[guessed[0]].warning}"
            found[m] = replace(found[m], std_error=math.nan, warning=why)
        return [self._open(found.get(label, blank).times(self._whole)) for label in labels]

    # ---- evidences --------------------------------------------------------------------------

    @cached_property
    def _weighed(self) -> list[str]:
        """Models whose evidence is known, most of them from a map."""
        return list(self.log_mass)

    @cached_property
    def _bartolucci(self) -> dict[str, Estimate]:
        """Probabilities by the acceptance probabilities of jumps."""
        if self.crossings is None:
            return {}
        labels = self.space.label(self.space.enumerate())
        stays = self.crossings[1]
        batches = (stays / stays.sum(1, keepdim=True)).numpy()
        found = {}
        for m, (label, e) in enumerate(zip(labels, bartolucci(*self.crossings), strict=True)):
            visits = self.visits(label)  # chains that have not mixed spoil both
            memory = 1.0
            related = self.raw.n_chains < MANY_CHAINS or self.ancestor is not None
            if related and len(batches) > 1:
                # neither stretches of one chain nor chains of one ancestor may be independent
                spread = float(batches[:, m].std(ddof=1)) / math.sqrt(len(batches))
                memory = max(1.0, visits.std_error / spread) if spread > 0 else 1.0
            error = e.std_error * memory
            for d in self._remembered(self.visited(label)):
                spread = math.sqrt(max(e.value * (1 - e.value), 0.0))
                error = math.hypot(error, d.size * spread)
            e = replace(e, std_error=error, warning=e.warning or visits.warning)
            found[label] = self._doubted(e, self.visited(label))
        return found

    @cached_property
    def _combined(self) -> tuple[list[Estimate], NDArray[np.float64]]:
        """Log masses by bridge and jumps together, in the order of the models weighed.

        Jumps count by their acceptance probabilities where these are known, else by the visits.
        """
        labels = self._weighed
        inside = np.stack([self.visited(m) for m in labels])
        share, batches = [self.visits(m) for m in labels], batch_shares(inside)
        jumps = [self._bartolucci.get(m, NOTHING) for m in labels]
        if sum(map(usable, jumps)) >= sum(map(usable, share)):
            share = jumps
        elif self.raw.n_chains >= BATCHES:
            each = (inside.mean(2) - inside.mean((1, 2))[:, None]) / self.raw.n_chains
            share = [replace(e, batches=batch_sums(x)) for e, x in zip(share, each, strict=True)]
        error = np.array([e.std_error if usable(e) else 0.0 for e in share])
        found, covariance = combine(
            [self._best_route(m) for m in labels], share, share_covariance(batches, error)
        )
        apart = self._apart([e.value for e in found])
        found = [
            replace(e, std_error=math.hypot(e.std_error, gap))
            for e, gap in zip(found, apart, strict=True)
        ]
        return found, covariance + np.diag(np.square(apart))

    def _best_route(self, label: str) -> Estimate:
        """The log mass of a model by the first route that is least in doubt."""
        order = ("bridge", "warp", "smoothed", "importance", "audit")
        found = [self.routes[r][label] for r in order if label in self.routes.get(r, {})]
        best = min(found, key=lambda e: (not math.isfinite(e.value - e.std_error), bool(e.warning)))
        if not best.warning:
            return best
        # what is in doubt is as uncertain as routes are apart
        apart = [e.value - best.value for e in found if math.isfinite(e.value)]
        sizes = [d.size for d in self.doubts if d.model in {label, EVERY}]
        error = math.hypot(best.std_error, max(map(abs, apart), default=0.0), *sizes)
        return replace(best, std_error=error)

    @property
    def clashes(self) -> list[Clash]:
        """Models on which two routes contradict each other; see :meth:`evidence`."""
        return self._compared[0]

    @cached_property
    def _compared(self) -> tuple[list[Clash], set[str]]:
        """Contradictions, and the models on which routes were compared."""
        labels = self._weighed
        absolute = {
            route: [found.get(m, NOTHING) for m in labels]
            for route, found in self.routes.items()
            if route != "smoothed"  # the same draws as the importance route
        }
        relative = {"visits": [self.visits(m) for m in labels]}
        if self._bartolucci:
            relative["bartolucci"] = [self._bartolucci[m] for m in labels]
        sources = SOURCES
        if self.report.audit is not None and self.report.audit.normals:  # fitted to its draws
            by_map = {r: rests | {"population"} for r, rests in SOURCES.items() if "map" in rests}
            sources = {**SOURCES, **by_map}
        return clashes(labels, absolute, relative, sources)

    def evidence(self) -> pd.DataFrame:
        """Log evidences by every route side by side, in nats, with a verdict.

        Routes that owe nothing to how often models are visited: ``importance``, through the map
        (``smoothed``: its largest weights Pareto-smoothed, with the shape ``pareto_k``; both are
        flagged where that exceeds 0.5 and the effective draws are less than four fifths of all:
        weights more even than that have no tail that could matter, whatever its shape);
        ``bridge``, between the chains' draws in a model and draws of the map; ``warp``, the same
        with the target made symmetric about the map's centre; ``audit``, tempered sequential
        Monte Carlo, whose error here is the larger of ``se`` and ``halves_differ`` in
        :meth:`audit`, as four replicates may agree by chance. Routes that tell ratios only:
        ``visits``, and ``bartolucci``, by the acceptance probabilities of jumps; both are put on
        the level of the combined total.

        Returns:
            One row a model. For each route the log evidence (p(model) is not included) and its
            standard error ``_se``; ``combined``, bridge and jumps together, by generalised
            least squares, with what both owe to the same chains in its error; ``probability``
            and ``probability_se``, p(model | data) by the combination; ``verdict``: ``agree``,
            ``disagree: `` and the routes, or ``unchecked`` where no two routes without draws in
            common are free of doubt; ``note``, every route's own warning. A model never visited
            shows the 95 % upper bound of its log evidence under ``visits``, with an infinite
            error.

        Raises:
            TRJError: There was no map to weigh models by.

        Example:
            >>> import trjmcmc as trj
            >>> sampler = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=1)
            >>> result = sampler.run(draws=200, progress=False)
            >>> result.evidence().loc["2d", "verdict"] in {"agree", "unchecked"}
            True
        """
        labels = self._weighed
        if not labels:
            raise TRJError(
                "evidence: no map has weighed the models; run(fit=True) trains one, and "
                "run(fit='auto') may find that it needs none"
            )
        combined, covariance = self._combined
        share = self._combined_shares(labels)
        log_prior = self._log_prior(labels)
        known = [i for i, e in enumerate(combined) if math.isfinite(e.value)]
        level = _total([combined[i] for i in known], covariance[np.ix_(known, known)])
        columns = {"combined": combined}
        shares = {"visits": [self.visits(m) for m in labels]} if self.space.size != 1 else {}
        if shares and self._bartolucci:
            shares["bartolucci"] = [self._bartolucci[m] for m in labels]
        for route, found in shares.items():
            whole = sum(found[i].value for i in known) or 1.0  # of those whose evidence is known
            columns[route] = [log_share(e.scaled(1 / whole), level) for e in found]
        columns |= {r: [f.get(m, NOTHING) for m in labels] for r, f in self.routes.items()}
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

    @property
    def _partial(self) -> bool:
        """Whether only some of the models were weighed."""
        return self.space.size is None or len(self._weighed) < self.space.size

    def _log_prior(self, labels: list[str]) -> list[float]:
        codes = torch.stack([self.space.code_of(m) for m in labels])
        found: list[float] = self.space.log_prior(codes).tolist()
        return found

    def _verdict(self, label: str) -> str:
        bad = sorted({" and ".join(c.routes) for c in self.clashes if c.model == label})
        if bad:
            return "disagree: " + ", ".join(bad)
        return "agree" if label in self._compared[1] else "unchecked"

    @cached_property
    def transitions(self) -> pd.DataFrame:
        """Chance of the next draw's model given this one's, by the draws; small spaces only.

        Raises:
            TRJError: There are more than 64 models.
        """
        labels = self.space.label(self._small_space("transitions"))
        return pd.DataFrame(
            transition_matrix(self.model_index(), len(labels)),
            index=pd.Index(labels, name="from"),
            columns=pd.Index(labels, name="to"),
        )

    def jumps(self) -> pd.DataFrame:
        """Mean acceptance probability times chance of proposal, from row to column, a jump.

        Raises:
            TRJError: There are more than 64 models, or only one.
        """
        if self.crossings is None:
            raise TRJError("jumps: none were recorded; that is done for 2 to 64 models")
        crossed, stays = (t.sum(0).numpy() for t in self.crossings)
        labels = self.space.label(self.space.enumerate())
        with np.errstate(invalid="ignore"):
            rate = crossed / stays[:, None]
        np.fill_diagonal(rate, np.nan)
        return pd.DataFrame(
            rate, index=pd.Index(labels, name="from"), columns=pd.Index(labels, name="to")
        )

    def mixing(self) -> pd.Series:
        """How fast the model indicator forgets.

        Returns:
            ``ess`` and ``rhat`` (split, between chains) of the model that has the worst,
            ``autocorrelation_time`` in kernel steps, and for small spaces
            ``second_eigenvalue`` of the transition matrix between models: its power tells the
            share of the memory that is left after so many draws.
        """
        rhat = [self.rhat_of(self.visited(m)) for m in self._visited[:SHOWN]]
        found = {
            "ess": self._index_ess,
            "rhat": max((r for r in rhat if not math.isnan(r)), default=math.nan),
            "autocorrelation_time": self.autocorrelation_time(),
        }
        if self.space.size is not None and self.space.size <= SMALL:
            found["second_eigenvalue"] = second_eigenvalue(self.transitions.to_numpy())
        return pd.Series(found)

    def _small_space(self, what: str) -> Tensor:
        if self.space.size is None or self.space.size > SMALL:
            raise TRJError(f"{what}: this is for up to {SMALL} models")
        return self.space.enumerate()

    def audit(self) -> pd.DataFrame:
        """What an audit that owes nothing to the map says of it, model by model.

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
        if self.report.audit is None:
            raise TRJError("audit: there was none; TRJSampler.fit makes one for up to 64 models")
        return self.report.audit.table()

    def bayes_factor(
        self, a: Any, b: Any, *, log: bool = False, route: str = "combined"
    ) -> Estimate:
        """Bayes factor of model ``a`` over model ``b``.

        Arguments:
            a, b: Labels of models.
            log: Return its logarithm, in nats, with the error of the logarithm.
            route: ``"combined"``, ``"visits"``, ``"bartolucci"`` (the jumps between the two
                alone), or any other route of :meth:`evidence`. The combined one falls back on
                the visits where no map has weighed the models.

        Returns:
            The ratio of evidences and its standard error; flagged where routes disagree, or
            where the one that is used is in doubt.

        Raises:
            UnknownModelError: There is no such model.
            ConfigurationError: There is no such route.
        """
        first, second = self._label(a), self._label(b)
        prior = self._log_prior([first, second])
        odds = self._log_odds(first, second, route)
        value = odds.value - (prior[0] - prior[1])
        if log:
            return replace(odds, value=value)
        factor = math.exp(value) if not value >= 700 else math.inf
        error = math.inf if math.isinf(odds.std_error) else factor * odds.std_error
        return Estimate(factor, error, odds.ess, odds.warning)

    def _doubted_odds(self, e: Estimate, a: str, b: str) -> Estimate:
        """Log odds of two models whose error counts what is in doubt about the chains."""
        doubts = [d for d in self.doubts if d.model in {a, b, EVERY}]
        for label in (a, b):
            doubts += self._remembered(self.visited(label))
        error = math.hypot(e.std_error, *(d.size for d in doubts))
        said = e.warning or self.visits(a).warning or self.visits(b).warning
        return replace(e, std_error=error, warning=said or "".join(d.note for d in doubts[:1]))

    def _log_odds(self, a: str, b: str, route: str) -> Estimate:
        """Log of the ratio of two models' posterior probabilities."""
        combined, covariance = self._combined if self._weighed else ([], np.zeros((0, 0)))
        known = [m for m, e in zip(self._weighed, combined, strict=True) if not math.isnan(e.value)]
        if route == "combined" and {a, b} <= set(known):
            i, j = self._weighed.index(a), self._weighed.index(b)
            x, y = combined[i], combined[j]
            variance = covariance[i, i] + covariance[j, j] - 2 * covariance[i, j]
            error = math.sqrt(max(float(variance), 0.0))
            bad = [c for c in self.clashes if c.model in {a, b}]
            said = "routes disagree, see evidence()" if bad else ""
            ess = 1 / error**2 if error else math.inf
            return Estimate(x.value - y.value, error, ess, said or x.warning or y.warning)
        if route in {"combined", "visits"}:
            first, second = self._thinned(a), self._thinned(b)
            shares = None if first is None or second is None else (first, second)
            e = log_odds(self.visited(a), self.visited(b), shares, self.ancestor)
            return self._doubted_odds(e, a, b)
        if route == "bartolucci" and self.crossings is not None:
            order = self.space.label(self.space.enumerate())
            e = bartolucci_odds(*self.crossings, order.index(a), order.index(b))
            return self._doubted_odds(e, a, b)
        if {a, b} <= set(self.routes.get(route, {})):
            x, y = self.routes[route][a], self.routes[route][b]
            error = math.hypot(x.std_error, y.std_error)
            return Estimate(x.value - y.value, error, min(x.ess, y.ess), x.warning or y.warning)
        known = [*self.routes, "visits"] + (["bartolucci"] if self.crossings else [])
        raise ConfigurationError(f"route: expected one of {sorted(known)}, got {route!r}")

    def inclusion_probabilities(self) -> pd.DataFrame:
        """Posterior probability that each item is in the model; subset and count spaces only.

        Returns:
            Indexed by item; columns ``probability``, ``se``, ``ess``, by the visits,
            ``combined``, ``combined_se``, sums of the models' probabilities by the combined
            evidences (see :meth:`model_probabilities`) with the error from their covariance, and
            ``note``, what makes the visits doubtful. In large spaces ``combined`` is of those
            models that were weighed, scaled to their visits, and the visits of the rest; NaN
            where none was. The error of an item that no draw has, or every draw, is the distance
            of a 95 % bound and no standard error. For counts, item i is in the model if there are
            at least i components.

        Raises:
            TRJError: The space is a list of models.
        """
        names, _ = self.items()
        always, never = self.space.certain()
        return self._shares(self.space.items, always, never, pd.Index(names, name="item"))

    def counts(self) -> pd.DataFrame:
        """Posterior probability of each number of components, by kind; count spaces only.

        Returns:
            Indexed by kind and count; columns as of :meth:`inclusion_probabilities`, and the
            ``prior``.

        Raises:
            TRJError: The space has no counts.
        """
        space = self.space
        if not isinstance(space, Counts):
            raise TRJError(f"counts: expected a space of Counts, got {type(space).__name__}")
        _, levels = space.levels()
        possible = [table > -math.inf for table in space.log_priors]
        rows = [(kind.name, n) for kind in space.kinds for n in range(kind.min, kind.max + 1)]
        number = torch.tensor([n for _, n in rows])
        table = self._shares(
            lambda code: code.repeat_interleave(levels, dim=1) == number,
            torch.cat([p & (p.sum() == 1) for p in possible]),
            ~torch.cat(possible),
            pd.MultiIndex.from_tuples(rows, names=["kind", "count"]),
        )
        table["prior"] = torch.cat(space.log_priors).exp().numpy()
        return table

    def _shares(
        self, sets: Callable[[Tensor], Tensor], always: Tensor, never: Tensor, index: pd.Index
    ) -> pd.DataFrame:
        """Probabilities of sets of models, (N, L) -> (N, S), some of which hold all or none."""
        on = sets(self.raw.code.flatten(0, 1)).reshape(*self.raw.code.shape[:2], -1).numpy()
        known = (always | never).tolist()
        sure = [Estimate(float(p), 0.0, math.inf) for p in always]
        found = [sure[i] if yes else self._share_of(on[..., i]) for i, yes in enumerate(known)]
        combined = self._combined_sets(sets, on)
        combined = [sure[i] if yes else combined[i] for i, yes in enumerate(known)]
        return pd.DataFrame(
            {
                "probability": [e.value for e in found],
                "se": [e.std_error for e in found],
                "ess": [e.ess for e in found],
                "combined": [e.value for e in combined],
                "combined_se": [e.std_error for e in combined],
                "note": [e.warning for e in found],
            },
            index=index,
        )

    def _combined_sets(
        self, sets: Callable[[Tensor], Tensor], on: NDArray[np.bool_]
    ) -> list[Estimate]:
        """Probabilities of sets by the combined evidences, NaN where there are none.

        Models that were not weighed count by their visits, ``on`` of shape (chain, draw, S); the
        others are scaled to theirs, and the errors of both visits are added.
        """
        blank = [Estimate(math.nan, math.nan)] * on.shape[-1]
        if not self._weighed:
            return blank
        combined, covariance = self._combined
        possible = np.isfinite(self._log_prior(self._weighed))
        if not all(math.isfinite(e.value) for e, p in zip(combined, possible, strict=True) if p):
            return blank
        codes = torch.stack([self.space.code_of(m) for m in self._weighed])
        found = shares_of_sets(combined, covariance, sets(codes).numpy().T * 1.0)
        found = [replace(e, std_error=math.hypot(e.std_error, self._doubt)) for e in found]
        if not self._partial:
            return found
        left, whole = ~np.isin(self._visited, self._weighed)[self._model], self._whole
        sums = []
        for i, e in enumerate(found):
            rest = self._share_of(on[..., i] & left)
            visits = e.value * whole.std_error + rest.std_error
            error = math.hypot(whole.value * e.std_error, visits)
            sums.append(Estimate(whole.value * e.value + rest.value, error))
        return sums

    def items(self) -> tuple[Sequence[str], NDArray[np.bool_]]:
        """Names of the items, and which are in the model, shape (chain, draw, items).

        Raises:
            TRJError: The space is a list of models.
        """
        if not isinstance(self.space, Subsets | Counts):
            raise TRJError("inclusion_probabilities: a list of models has no items to include")
        flat = self.space.items(self.raw.code.flatten(0, 1))
        return self.space.names, flat.reshape(*self.raw.code.shape[:2], -1).numpy()

    def autocorrelation_time(self) -> float:
        """Integrated autocorrelation time of the model's position in the space, in kernel steps.

        With 32 chains or more from the spread of the chains' means, which counts slow modes
        that emcee's estimator (used for fewer chains) misses; it is never the more flattering.
        Infinite where the model never changes.

        Source:
            Goodman & Weare (2010), https://doi.org/10.2140/camcos.2010.5.65
        """
        return autocorrelation_time(self.model_index().astype(float)) * self.raw.thin

    def model_index(self) -> NDArray[np.int64]:
        """The model of each draw as a number, shape (chain, draw).

        Position in the space where that has up to 1000 models, else rank by visits;
        :attr:`model_names` says which is which.
        """
        if not self._numbered:
            return self._model.astype(np.int64)
        flat = self.space.index(self.raw.code.reshape(-1, self.raw.code.shape[2]))
        found: NDArray[np.int64] = flat.reshape(self.raw.code.shape[:2]).numpy()
        return found

    @property
    def model_names(self) -> list[str]:
        """Names of the models in the order of :meth:`model_index`."""
        return self.space.label(self.space.enumerate()) if self._numbered else self._visited

    @property
    def _numbered(self) -> bool:
        return self.space.size is not None and self.space.size <= NUMBERED

    # ---- parameters -------------------------------------------------------------------------

    def draws(self, model: Any) -> dict[str, NDArray[np.floating]]:
        """Posterior draws of one model in the user's names and constrained space.

        Arguments:
            model: Label of a model.

        Returns:
            By parameter, shape (n, *shape), in the order chain by chain; per-item parameters
            hold the items in use. Empty if the model was never visited.

        Raises:
            UnknownModelError: There is no such model.
        """
        rows = self.visited(self._label(model))
        if not rows.any():
            return {}
        found = {}
        for name, padded in self._values.items():
            value = padded.numpy()[rows]
            used = ~np.isnan(value[0])
            if used.ndim and not used.any():
                continue
            if not used.ndim and not used:
                continue
            for axis in range(used.ndim):
                other = tuple(i for i in range(used.ndim) if i != axis)
                value = np.compress(used.any(axis=other), value, axis=axis + 1)
            found[name] = value
        return found

    @property
    def variational(self) -> Variational | None:
        """The answer of the fit alone where it learnt q(m), and how far off it was; or None."""
        return self.report.variational

    def summary(self) -> pd.DataFrame:
        """Posterior mean, spread and quantiles of every parameter in every model shown.

        Returns:
            Indexed by (model, parameter). ``mean``, ``sd``, ``mcse`` (standard error of the
            mean, autocorrelation-aware, NaN where chains remember too much of their start),
            ``q5``, ``median``, ``q95``, ``ess``, in the user's units; ``note``, what makes
            the error doubtful.
        """
        rows, index = [], []
        for label in self.models:
            inside = self.visited(label)
            for name, value in self.draws(label).items():
                for position in np.ndindex(value.shape[1:]):
                    x = value[(slice(None), *position)]
                    rows.append(self._describe(x, inside))
                    suffix = f"[{', '.join(self._positions(label, name, position))}]"
                    index.append((label, name + (suffix if position else "")))
        columns = ["mean", "sd", "mcse", "q5", "median", "q95", "ess", "note"]
        multi = pd.MultiIndex.from_tuples(index, names=["model", "parameter"])
        return pd.DataFrame(rows, columns=columns, index=multi)

    def _describe(self, x: NDArray[np.floating], inside: NDArray[np.bool_]) -> list[Any]:
        """Moments and quantiles of draws that lie where ``inside`` (chain, draw) is True."""
        error, ess, note = self.error_where(x, inside)
        q5, median, q95 = np.quantile(x, [0.05, 0.5, 0.95])
        sd = float(x.std()) if len(x) > 1 else math.nan
        return [float(x.mean()), sd, error, q5, median, q95, ess, note]

    def _positions(self, label: str, name: str, position: tuple[int, ...]) -> list[str]:
        text = [str(i) for i in position]
        if text and isinstance(self.space, Counts) and self.space.items_of(name):
            text[0] = str(position[0] + 1)  # those in use come first
        elif text and isinstance(self.space, Subsets) and self.space.items_of(name):
            items = self.space.items(self.space.code_of(label)[None])[0].nonzero()[:, 0].tolist()
            text[0] = self.space.names[items[position[0]]]
        return text

    # ---- components -------------------------------------------------------------------------

    def catalogue(
        self,
        kind: str | int | None = None,
        *,
        interval: float = INTERVAL,
        least: float = LEAST,
    ) -> pd.DataFrame:
        """The components that were found, the most probable first; spaces of counts only.

        Components have no names of their own: which is which in each draw is told by where they
        are, see :func:`trjmcmc.relabel.relabel`.

        Arguments:
            kind: Which components, where there are several kinds: a name, or a position.
            interval: Probability of the credible intervals, which leave as much on either side.
            least: Entries in less than this share of the draws are left out.

        Returns:
            One row an entry. ``probability`` that there is such a component, its standard error
            ``se`` and the effective number of draws ``ess``, as in
            :meth:`model_probabilities`; ``rhat`` of its presence and of its parameters, the
            largest; for each parameter, at the draws that hold the entry, in
            your units: ``_mean`` with its standard error ``_mcse``, ``_sd``, and the interval
            from ``_low`` to ``_high``; ``note``: what makes the probability doubtful. No rows
            where no draw has a component. ``attrs["unassigned"]`` is the mean number of
            components a draw that belong to no entry.

        Raises:
            TRJError: The space is another one.
            ConfigurationError: ``interval`` or ``least`` is not in (0, 1); no such kind, or
                none named of several.

        Error:
            Of the names: see :func:`trjmcmc.relabel.relabel`. Chains that have not mixed may
            show one component as several entries, or several as one.

        Example:
            >>> import warnings
            >>> import trjmcmc as trj
            >>> target = trj.problems.gaussian_mixture_2d(true=2, points=50, most=3)
            >>> kernel = trj.kernel.Cycle(
            ...     [trj.kernel.ComponentBirthDeath(target), trj.kernel.ComponentWalk(target)])
            >>> with warnings.catch_warnings(action="ignore"):  # it is a short run
            ...     result = trj.TRJSampler(target, kernel=kernel, seed=1).run(
            ...         50, chains=256, warmup=200, fit=False, progress=False)
            >>> sorted(result.catalogue()["x_mean"].round(0))
            [1.0, 13.0]
        """
        drawn = self._drawn("catalogue", kind)
        found = self._found(drawn, least)
        ess = self._index_ess
        if not ess:  # always as many; what moves is where they are
            ess = mean_error(self.raw.log_joint.numpy().astype(float))[1]
        ess = ess if math.isfinite(ess) else 0.0

        def share(inside: NDArray[np.bool_]) -> Estimate:
            return self._doubted(visit_probability(inside, ess, None, self.ancestor), inside)

        return tabled(drawn, found, interval, share, self.error_where, self.rhat_of)

    def components(
        self, kind: str | int | None = None, *, least: float = LEAST
    ) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.int64]]:
        """All components of all draws in a row, and which entry of :meth:`catalogue` each is.

        Returns:
            The numbers that describe a component by name, shape (n,), in the order chain by
            chain, in your units; entries, shape (n,), 0 where a component belongs to none.

        Raises:
            TRJError: The space is another one.
        """
        drawn = self._drawn("components", kind)
        rows = drawn.active
        return drawn.described(rows), self._found(drawn, least).entry[rows] + 1

    def _drawn(self, what: str, kind: str | int | None) -> Drawn:
        if not isinstance(self.space, Counts):
            raise TRJError(f"{what}: this is for an unknown number of components, trj.Counts")
        place = self.space.place_of(kind)
        return Drawn.of(self.space, self.space.kinds[place], self.raw, self._values)

    def _found(self, drawn: Drawn, least: float = LEAST) -> Relabelling:
        known = *drawn.values, least
        if known not in self._relabelled:
            score = self.raw.log_joint.numpy()
            self._relabelled[known] = relabel(drawn.x, drawn.active, score, least=least)
        return self._relabelled[known]

    # ---- other priors, averages --------------------------------------------------------------

    def reweight(
        self,
        model_prior: Sequence[float] | Tensor | Callable[[Tensor], Tensor] | None = None,
        *,
        priors: Mapping[str, PriorSpec] | None = None,
        target: Target | None = None,
    ) -> Reweighted:
        """The run under another prior of the models or of some parameters, without a new run.

        Arguments:
            model_prior: One probability a model, in the order of ``space.enumerate()``, or a
                function of codes (N, L) that gives log-probabilities (N,) up to a constant. A
                code is the model's position in a list, the 0s and 1s of a subset, or a count of
                each kind.
            priors: By parameter, another prior (a distribution, or a function of the parameters
                before it); the rest stay.
            target: Where the result was loaded from a file, the target it came from.

        Returns:
            Its ``model_probabilities()``, ``predict(f)``, and ``ess``.

        Raises:
            TargetError, TRJError: No such parameter; a new prior that reaches beyond the old
                one's support; no draw is possible under it.

        Warns:
            ConvergenceWarning: The weights leave too few effective draws.

        Example:
            >>> import trjmcmc as trj
            >>> result = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=1).run(
            ...     draws=100, progress=False)
            >>> table = result.reweight([0.5, 0.5]).model_probabilities()
            >>> bool(abs(table.loc["1d", "probability"] - 0.5) < 0.02)
            True
        """
        return reweighted(self, model_prior, priors, target)

    def predict(
        self,
        f: Callable[..., Any] | Mapping[str, Callable[..., Any]],
        *,
        most: int = 20_000,
        target: Target | None = None,
    ) -> Prediction:
        """A function of the parameters, averaged over models.

        Arguments:
            f: Called as the likelihood is, with named parameters of n draws of one model (and in
                a space of items what is active); returns shape (n, ...), the same in all
                models; one number will do where it is the same for all draws, and shape (...)
                in a model without parameters. A dict gives each model its own.
            most: Draws to use at most, evenly spaced; fewer where f returns so many numbers that
                more than 20 million would have to be kept.
            target: Where the result was loaded from a file, the target it came from.

        Returns:
            Mean with its standard error, spread and quantiles, and the mean in each model.

        Raises:
            ConfigurationError: The function failed, or its values are of the wrong shape or of a
                shape that differs between models; model, parameters and a remedy are named.
            TRJError: The result was loaded from a file.

        Example:
            >>> import trjmcmc as trj
            >>> result = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=1).run(
            ...     draws=100, progress=False)
            >>> result.predict(lambda p: p["x"][:, 0]).mean.shape
            ()
        """
        return predict(self, f, most=most, target=target)

    # ---- files and pictures -----------------------------------------------------------------

    def to_arviz(
        self, model: Any = None, *, entries: bool = False, chains: int | None = None
    ) -> Any:
        """ArviZ InferenceData (0.2x) or DataTree (1.x).

        Arguments:
            model: Label of a model; all draws if omitted.
            entries: In a space of counts, give the parameters of components by the entries of
                :meth:`catalogue`.
            chains: Join so many chains as there are, end to end, into this many, such as 4:
                ArviZ draws a line a chain. What does not divide is left out. If omitted, chains
                stay as they are.

        Returns:
            ``posterior`` holds ``model`` (as :meth:`model_index`; the JSON list ``models`` among
            its attributes names them) and every parameter padded with NaN where a model does
            not use it; ``sample_stats`` holds the log joint density of the unconstrained
            coordinates, ``lp``. Of one model: its own parameters at the draws in it, without
            NaN, fit for ``arviz.summary``. As chains are in it unequally often, their draws are
            put one after the other and cut into four chains of equal length (up to three draws
            are left out), unless all chains were there throughout.

            In a space of counts ``posterior`` also holds ``k``, how many components there are,
            and their parameters have the dimension ``component``, up to the largest number
            that was visited. Its position means nothing, so ``arviz.summary(data,
            var_names=["k", ...])`` is for ``k`` and what all share. With ``entries`` it is the
            dimension ``entry``, counted from 1 as in the catalogue, with NaN at draws that do not
            hold it; ``present`` tells which do. ArviZ has no figures (NaN) for entries that some
            draws lack; :meth:`catalogue` has. Nor has it any for parameters that some models
            lack: ask for those model by model.

        Raises:
            UnknownModelError: There is no such model.
            TRJError: It was never visited; ``entries`` in another space than one of counts.
            ConfigurationError: ``entries`` of one model; more chains than there are, or none.
        """
        if chains is not None and not 1 <= chains <= self.raw.n_chains:
            raise ConfigurationError(
                f"to_arviz: chains: expected 1 to {self.raw.n_chains}, got {chains}"
            )
        if entries and model is not None:
            raise ConfigurationError("to_arviz: entries are those of all draws; leave out model")
        log_joint = self.raw.log_joint.numpy()
        if model is not None:
            label = self._label(model)
            found, inside = self.draws(label), self.visited(label)
            if not inside.any():
                raise TRJError(f"to_arviz: model {label!r} was never visited; run longer")
            pieces = chains or PIECES
            kept = chains is None and bool(inside.all())
            shape = inside.shape if kept else (pieces, int(inside.sum()) // pieces)
            shape = shape if shape[1] else (1, int(inside.sum()))
            found["lp"] = log_joint[inside]
            cut = {k: v[: math.prod(shape)].reshape(*shape, *v.shape[1:]) for k, v in found.items()}
            lp = cut.pop("lp")
            return export.to_arviz(cut, {"lp": lp}, {"models": json.dumps([label])})
        posterior: dict[str, NDArray[Any]] = {"model": self.model_index()}
        posterior.update({name: value.numpy() for name, value in self._values.items()})
        attributes = {"models": json.dumps(self.model_names)}
        names: dict[str, str] = {}
        if entries or isinstance(self.space, Counts):
            kinds = self.space.kinds if isinstance(self.space, Counts) else ()
            for place in range(max(1, len(kinds))):
                drawn = self._drawn("to_arviz(entries=True)", place)
                of = f"_{kinds[place].name}" if len(kinds) > 1 else ""
                posterior[f"k{of}"] = k = self.raw.code[..., place].numpy()
                most = max(1, int(k.max(initial=1)))
                parts = {name: value[:, :, :most] for name, value in drawn.values.items()}
                if entries:
                    parts = by_entry(drawn, self._found(drawn))
                    parts[f"present{of}"] = parts.pop("present")
                posterior |= parts
                names |= dict.fromkeys(parts, f"entry{of}" if entries else f"component{of}")
        if chains is not None:
            posterior = {name: _joined(x, chains) for name, x in posterior.items()}
            log_joint = _joined(log_joint, chains)
        return export.to_arviz(posterior, {"lp": log_joint}, attributes, names)

    def save(self, path: str | Path) -> None:
        """Write everything to one file that holds data only, no code; read by :func:`load`."""
        fit = asdict(self.report.fit) if self.report.fit else None
        audit = asdict(self.report.audit) if self.report.audit else None
        plan = asdict(self.report.plan)
        variational = self.variational and self.variational.to_data()
        report = {
            **vars(self.report),
            "fit": fit,
            "audit": audit,
            "plan": plan,
            "variational": variational,
            "screening": [asdict(s) for s in self.report.screening],
        }
        truth = None
        if self.truth:
            truth = {
                "probabilities": {str(k): float(p) for k, p in self.truth.probabilities.items()},
                "log_evidence": {str(k): float(z) for k, z in self.truth.log_evidence.items()},
                "source": self.truth.source,
            }
        buffer = io.BytesIO()
        torch.save(
            {
                "format": FORMAT,
                "space": self.space.spec(),
                "draws": {**vars(self.raw), "code": _smallest(self.raw.code)},
                "values": self._values,
                "routes": {
                    route: {k: asdict(e) for k, e in found.items()}
                    for route, found in self._given_routes.items()
                },
                "slot_names": self.slot_names,
                "coarse": self.coarse,
                "pareto_k": dict(self.pareto_k),
                "crossings": self.crossings,
                "report": report,
                "truth": truth,
            },
            buffer,
        )
        payload = zlib.compress(buffer.getvalue(), 1)
        Path(path).write_bytes(MAGIC + hashlib.sha256(payload).digest() + payload)

    def __getstate__(self) -> dict[str, Any]:
        """Without the target: functions of the user's cannot always be pickled."""
        kept = {"_given_values": self._values, "_given_coarse": self.coarse}
        return {**vars(self), **kept, "target": None}

    def plot_running(self, ax: Axes | None = None, *, chains: int = 0) -> Axes:
        """Running estimates of the model probabilities, of so many single chains too."""
        from ..plot.models import plot_running

        return plot_running(self, ax, chains=chains)

    def plot_evidence(self, ax: Axes | None = None) -> Axes:
        """Log evidences by every route with their errors."""
        from ..plot.evidences import plot_evidence

        return plot_evidence(self, ax)

    def plot_jumps(self, ax: Axes | None = None) -> Axes:
        """Heat map of accepted jumps between models."""
        from ..plot.evidences import plot_jumps

        return plot_jumps(self, ax)

    def plot_pareto(self, ax: Axes | None = None) -> Axes:
        """Pareto shape of the importance weights by model."""
        from ..plot.evidences import plot_pareto

        return plot_pareto(self, ax)

    def plot_inclusion(self, ax: Axes | None = None) -> Axes:
        """Inclusion probabilities with their errors; spaces of items only.

        Raises:
            TRJError: The space is a list of models.
        """
        from ..plot.models import plot_inclusion

        return plot_inclusion(self, ax)

    def plot_models(self, ax: Axes | None = None) -> Axes:
        """Model probabilities with their errors, and the truth where it is known."""
        from ..plot.models import plot_models

        return plot_models(self, ax)

    def plot_components(
        self,
        x: str,
        y: str | None = None,
        ax: Axes | None = None,
        *,
        kind: str | int | None = None,
        interval: float = INTERVAL,
    ) -> Axes:
        """Where components are, with the intervals of :meth:`catalogue`; spaces of counts only.

        Arguments:
            x: A parameter of components. Of this alone, its intensity: how many components there
                are per unit, on average over the draws.
            y: Another one: components as points in the plane.
            ax: Where to draw.
            kind: Which components, where there are several kinds.
            interval: Probability of the intervals.

        Raises:
            TRJError: The space is another one.
            ConfigurationError: No such parameter; ``interval`` is not in (0, 1).
        """
        from ..plot.components import plot_components

        if kind is None and isinstance(self.space, Counts):  # the parameter says it
            own = [k.name for k in self.space.kinds if x.partition("[")[0] in k.of]
            kind = own[0] if own else self.space.kinds[0].name
        return plot_components(self, x, y, ax, kind=kind, interval=interval)

    def plot_averaged(
        self,
        grid: ArrayLike,
        f: Callable[..., Any] | Mapping[str, Callable[..., Any]],
        data: Any = None,
        ax: Axes | None = None,
        *,
        most: int = 2000,
        target: Target | None = None,
    ) -> Axes:
        """A curve, averaged over models, with its pointwise 90 % band.

        Arguments:
            grid: Where the curve is known, shape (n,).
            f: The curve at a batch of draws, as in :meth:`predict`, shape (draws, n).
            data: Shown behind: a tuple of arrays (x, y) as points, one array as a histogram of
                area 1.
            ax: Where to draw.
            most: Draws to use at most.
            target: Where the result was loaded from a file, the target it came from.

        Raises:
            ConfigurationError: The function failed, or its values do not fit the grid.
        """
        from ..plot.components import plot_averaged

        return plot_averaged(self, grid, f, data, ax, most=most, target=target)

    def warn(self) -> None:
        """Say aloud what is doubtful, and what would help.

        Issues a :class:`ConvergenceWarning` where chains remember their start, descend from too few
        draws, or have never been where nothing else tells of, where the precision that was asked
        for was missed, and where densities overflowed; a :class:`CoverageWarning` where a map or
        a pilot run misses a part; a :class:`LimitWarning` where counts pile up at their largest
        though their prior does not; a :class:`PrecisionWarning` where rounding matters; a
        :class:`DisagreementWarning` where two routes to the evidences clash.
        """
        for message, category in alarms(self):
            warn_user(message, category)

    def __repr__(self) -> str:
        shape = f"{self.raw.n_chains} chains x {self.raw.n_draws} draws"
        return f"Result({shape}, {len(self._visited)} models visited)"


def load(path: str | Path) -> Result:
    """Read a file written by :meth:`Result.save`; nothing in it is executed.

    Raises:
        TRJError: The file is of another format, or was damaged: its checksum says so.
    """
    content = Path(path).read_bytes()
    if content.startswith(MAGIC):
        head = len(MAGIC) + DIGEST
        payload = content[head:]
        if hashlib.sha256(payload).digest() != content[len(MAGIC) : head]:
            raise TRJError(f"{path}: damaged, its checksum is not that of its content")
        content = zlib.decompress(payload)
    try:
        data = torch.load(io.BytesIO(content), weights_only=True)
        if data["format"] not in {2, FORMAT}:
            raise TRJError(f"{path}: not a result saved by this version of trjmcmc")
        return _from_data(data)
    except TRJError:
        raise
    except Exception as error:  # torch meets a foreign file with errors of many kinds
        raise TRJError(f"{path}: not a result saved by trjmcmc ({type(error).__name__})") from None


def _joined(x: Any, chains: int) -> NDArray[Any]:
    """Chains end to end, (chain, draw, ...) -> (fewer chains, more draws, ...)."""
    each = len(x) // chains
    return np.asarray(x[: each * chains]).reshape(chains, each * x.shape[1], *x.shape[2:])


def _smallest(code: Tensor) -> Tensor:
    """The same integers in the smallest type that holds them."""
    if not code.numel():
        return code
    low, high = int(code.min()), int(code.max())
    for dtype in (torch.int8, torch.int16, torch.int32):
        if torch.iinfo(dtype).min <= low and high <= torch.iinfo(dtype).max:
            return code.to(dtype)
    return code


def _from_data(data: dict[str, Any]) -> Result:
    draws = {**data["draws"], "code": data["draws"]["code"].long()}
    report = dict(data["report"])
    report["fit"] = FitTrace(**report["fit"]) if report["fit"] else None
    if report.get("audit"):
        models = tuple(ModelAudit(**m) for m in report["audit"]["models"])
        report["audit"] = AuditReport(**{**report["audit"], "models": models})
    if report.get("variational"):
        report["variational"] = Variational.from_data(report["variational"])
    report["screening"] = tuple(Screening(**s) for s in report.get("screening", ()))
    report["plan"] = Plan(**report.get("plan", {}))
    return Result(
        space_from_spec(data["space"]),
        Draws(**draws),
        data["values"],
        {r: {k: Estimate(**e) for k, e in f.items()} for r, f in data["routes"].items()},
        RunReport(**report),
        Truth(**data["truth"]) if data["truth"] else None,
        crossings=data["crossings"],
        pareto_k=data["pareto_k"],
        slot_names=data.get("slot_names"),
        coarse=data.get("coarse"),
    )
