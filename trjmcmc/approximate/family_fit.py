"""Cover, then polish: how q(theta | m) of a small space is fitted."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..doubts.doubt import Doubt
from ..doubts.of_answers import of_fallback
from ..doubts.of_search import of_climbs
from ..draws import Pool
from ..errors import ConfigurationError, ConvergenceWarning, TRJError
from ..estimate.importance import log_mean_weight, log_weights
from ..fit.climbs_by_model import ClimbsByModel
from ..fit.objective import Objective
from ..fit.pathfinder import pathfinder, pathfinder_map
from ..fit.reverse import ReverseKL, goes_back_cheaply
from ..fit.trace import FitTrace
from ..fit.train import train
from ..pilot.audit import REPLICATES, Audit
from ..pilot.parts import Part
from ..pilot.report import Score
from ..pilot.screening import draws_within, search_modes
from ..pilot.survey import PilotRuns
from ..target.target import Target
from ..transport.base import Transport
from ..transport.whitened import Whitened
from .covering import Near, cover, nearly_exact
from .families import FOUND, RECOMMENDED, Family, Start, map_of, name_of
from .fixed_draws import climbed
from .flow_over import flow_over
from .moments import Widening, can_be_followed
from .normals_of_draws import normals_of_draws
from .policy import ApproximationPolicy
from .population import PopulationMonteCarlo

OBJECTIVES = ("cover, then polish", "cover", "reverse")

FEWEST_MOVES = 40  # evaluations of a particle in the smallest of pilot runs

MOST_OF_MANY = 4000  # prior draws that are searched in each of many models

SIMPLE = ("mean-field", "full-rank")  # whose best is far from posteriors that they can't follow

OF_A_CLIMB = 18  # evaluations of a draw of a whole search, about

FEWEST_SEARCHED = 50  # draws of a model from which climbs are worth their while

TRIED, TRIED_SHARE = 4000, 0.05  # draws of a model that tell the effective share of its weights,
# and the share of the evaluations that all models together take for these


@dataclass(eq=False, repr=False)
class FamilyFit:
    """Fits one family to the posteriors of a small space.

    A pilot run of tempered draws comes first, where there is one: maps learn from it what there
    is to be covered, and it scores them in the end. Then reverse KL takes over; if it loses a
    part that was covered, what was before is kept.

    Arguments:
        target: The target.
        family: A family by name, or a map.
        objective: One of ``OBJECTIVES``.
        generator: Source of randomness.
        seed: Of initial weights.
        options: Further arguments of the map.
        settings: Of the training by reverse KL: ``steps``, ``batch``, ``learning_rate`` (found by
            short trainings if omitted), ``gradient``.
        most: Evaluations at most, about.
        audits: Whether tempered draws and climbs have their say.
        policy: What is spent where.
        progress: Show progress bars.

    Attributes:
        name: Of the family that was fitted in the end.
        audit: The pilot run; None where there was none.
        trace: Of the last training, or None.
        doubts: What speaks against the fit.
        parts: Parts of posteriors that were found after a fit, for the next one.
        climbs: Climbs of each model, once somebody has asked for them.
    """

    target: Target
    family: Family
    objective: str
    generator: torch.Generator
    seed: int
    options: Mapping[str, Any]
    settings: Mapping[str, Any]
    most: float
    audits: bool
    policy: ApproximationPolicy
    progress: bool
    audit: Audit | None = None
    trace: FitTrace | None = None
    doubts: list[Doubt] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise ConfigurationError(
                f"objective: expected one of {OBJECTIVES}, got {self.objective!r}"
            )
        self.name = name_of(self.family)
        self.codes = self.target.space.enumerate()
        self.active = self.target.space.active(self.codes)
        self.climbs = ClimbsByModel(self.target, self.codes, self.generator)
        self._tried = max(400, int(min(TRIED_SHARE * self.most / len(self.codes), TRIED)))
        self._spent_before = self.target.account.evaluations

    def run(self) -> Transport:
        """Fit, look for what was lost, fit again if something was, and return the map."""
        if not self.target.dim:
            self._check_objective()
            self.name = ""
            return map_of("mean-field", self._blank(), {})
        p = self.policy
        labelled = self.climbs.like is not None and self.target.dim > p.most_normal_coordinates
        if self.audits and self.target.dim <= p.many_coordinates and not labelled:
            self._pilot()
        self._check_objective()
        made = self._fit()
        lost = self._lost(made) if self.audits else []
        if lost and self.left >= self.policy.batch:
            self.parts += lost
            if self.audit is not None:
                for part in lost:
                    self.audit.add_part(part)
            name = self.name
            made = self._better(made, self._fit(), name)
            lost = self._lost(made)
        for part in lost:
            (label,) = self.target.space.label(part.code[None])
            times = math.exp(min(50.0, part.log_mass - self._log_mass(made, part.code)))
            self.doubts.append(of_climbs(label, times))
        return made

    def _fit(self) -> Transport:
        if self.family == "pathfinder":
            found = [pathfinder(self.target, code, self.generator) for code in self.codes]
            made = pathfinder_map(self.target.space, found)
            return made.to(self.target.device, self.target.dtype)
        normals = self._by_normals() if self.family in ("normals", RECOMMENDED) else None
        return self._widened(self._by_training() if normals is None else normals)

    def _widened(self, transport: Transport) -> Transport:
        """The map with moments of short chains, where no tempered draws taught it to cover."""
        p, taught = self.policy, self.target.dim <= self.policy.many_coordinates
        asked = self.objective == OBJECTIVES[0] and not isinstance(self.family, Transport)
        if taught or not asked or self.trace is None or self.family in SIMPLE:
            return transport
        if not (can_be_followed(transport) and goes_back_cheaply(transport)):
            return transport
        if self._near(transport).share >= p.enough_share:
            return transport
        widening = Widening(self.target, self.codes, self.generator, p)
        try:
            return widening.of(transport, self._that_matter, self.left)
        except TRJError:  # a density that is NaN out there: it will be met in the answer
            return transport

    def _lost(self, transport: Transport) -> list[Part]:
        """Parts of posteriors that climbs of prior draws meet and a map lacks."""
        found: list[Part] = []
        spent = self.target.account.evaluations - self._spent_before
        each = min(self._for_climbs, self.most - spent) / len(self.codes)
        n = draws_within(each)
        for m in self._that_matter if n >= FEWEST_SEARCHED else ():
            code = self.codes[m]
            try:
                level = self._log_mass(transport, code)
                log_prior = float(self.target.space.log_prior(code[None])[0])
                seen = torch.zeros(0, self.target.dim).to(self.codes.device, self.target.dtype)
                found += search_modes(
                    self.target,
                    code,
                    level - log_prior,
                    transport,
                    seen,
                    n,
                    self.generator,
                    evaluations=each,
                )
            except TRJError:  # the likelihood fails out there
                continue
        return found

    def _log_mass(self, transport: Transport, code: Tensor) -> float:
        """Log evidence of a model by the map, p(model) included, nats."""
        log_w = log_weights(self.target, transport, code, self._tried, self.generator)
        return log_mean_weight(log_w).value

    @property
    def _that_matter(self) -> list[int]:
        """Positions of models with parameters and a share of the posterior, as far as is known."""
        matters = self.active.any(-1).cpu()
        if self.audit is not None:
            matters = matters & self.audit.matters
        elif self.climbs.made:
            matters = matters & self.climbs.likely.to(matters.device)
        found: list[int] = matters.nonzero()[:, 0].tolist()
        return found

    @property
    def left(self) -> float:
        """Evaluations that fits may still make; climbs that look for what they lost have theirs."""
        spent = self.target.account.evaluations - self._spent_before
        return max(0.0, self.most - self._for_climbs - spent)

    @property
    def _for_climbs(self) -> float:
        """Evaluations of one search by climbs, about; none where they are too few for any."""
        p, models = self.policy, len(self.codes)
        wanted = OF_A_CLIMB * max(MOST_OF_MANY * models, p.searched_draws)
        most = min(wanted, p.searched_share * self.most)
        few = draws_within(most / models) < FEWEST_SEARCHED
        return 0 if few or not self.audits else most

    # ---- the pilot run ------------------------------------------------------------------------

    def _pilot(self) -> None:
        p = self.policy
        pilot = PilotRuns(self.target, self.generator)
        most = int(min(p.pilot_share * self.most, 1e12))
        many = max(50, p.particles // math.ceil(len(self.codes) ** 0.5))
        audit = Audit(
            self.target,
            self.codes,
            particles=max(2, min(many, most // (FEWEST_MOVES * REPLICATES * len(self.codes)))),
            moves=p.moves,
            generator=self.generator,
        )
        if pilot.grow(audit, most, limit=most, progress=self.progress):
            pilot.grow(audit, most, progress=self.progress)  # until its halves agree
            self.audit = audit

    @property
    def is_audited(self) -> bool:
        """Whether the pilot run can teach a map, and tell what it has lost."""
        audit = self.audit
        if audit is None or audit.hurried or not audit.rounds:
            return False
        of_note = audit.matters & (self.active.any(-1).cpu())
        counts = self.active.sum(-1).cpu().double()
        enough = audit.ancestors >= self.policy.fewest_ancestors * counts
        agree = audit.gap.abs() <= self.policy.rough
        return bool((enough & agree)[of_note].all())

    def _pool(self) -> Pool | None:
        """Draws of the pilot run, if maps may learn from them."""
        return self.audit.pool() if self.audit is not None and self.is_audited else None

    # ---- where maps start ---------------------------------------------------------------------

    def _blank(self) -> Start:
        """Standard normals."""
        d = self.target.dim
        loc = torch.zeros(len(self.codes), d, dtype=self.target.dtype, device=self.target.device)
        eye = torch.eye(d, dtype=loc.dtype, device=loc.device).expand(len(loc), d, d)
        return Start(self.target, loc, eye, self.seed, self.policy)

    def start(self) -> Start:
        """Location and covariance of each model: of draws, else of climbs, else unknown."""
        blank = self._blank()
        assert blank.loc is not None and blank.factor is not None
        loc, factor = blank.loc.clone(), blank.factor.clone()
        if (pool := self._pool()) is not None:
            loc, factor = normals_of_draws(pool, self.codes, self.active)
        elif self.target.differentiable:
            for m, found in enumerate(self.climbs.found):
                if found is not None:
                    best = int(found.elbo.argmax())
                    loc[m], factor[m] = found.loc[best], found.scale_tril[best]
        return Start(self.target, loc, factor, self.seed, self.policy)

    # ---- families that are found --------------------------------------------------------------

    def _by_normals(self) -> Transport | None:
        """Normals, under a flow where they fall short; None where they can't be had."""
        made: Transport
        few = int(self.active.sum(-1).max()) <= self.policy.most_normal_coordinates
        asked = self.family == "normals"
        if self.options and (asked or self.family == RECOMMENDED):
            raise ConfigurationError(
                f"variational: unknown arguments {list(self.options)}; the family {self.family!r} "
                "has no settings of its own"
            )
        if self.is_audited and (few or asked):
            assert self.audit is not None
            population = PopulationMonteCarlo(self.target, self.audit, self.generator, self.policy)
            made, self.name = population.run(self.left), "normals"
        elif asked:
            raise ConfigurationError(
                'family "normals": they are fitted to tempered draws, and those are too rough '
                f"here ({self.pilot_said}); take another family"
            )
        elif self.target.differentiable and all(found is not None for found in self.climbs.found):
            made, self.name = self.climbs.distinct(self.parts), "pathfinder"
        else:
            return None
        enough = asked or self._near(made).share >= self.policy.enough_share
        if enough or not self.target.differentiable or self.left < 100 * self.policy.batch:
            return made
        name = self.name
        return self._better(made, self._polished(self._under_a_flow(made)), name)

    @property
    def pilot_said(self) -> str:
        """What became of the pilot run, in words."""
        if self.audit is None:
            many = self.target.dim > self.policy.many_coordinates
            return "no pilot run" + (" in so many coordinates" if many else "")
        gap, ancestors = float(self.audit.gap.abs().max()), float(self.audit.ancestors.min())
        rests = f"the pilot run rests on {ancestors:.0f} prior draws"
        return f"{rests}, its halves differ by {gap:.1f} nats"

    def _under_a_flow(self, normals: Transport) -> Transport:
        """Normals in coordinates of unit covariance, and a flow over them that is none yet."""
        flow = map_of("coupling" if self.target.dim > 1 else "spline", self._blank(), {})
        assert isinstance(flow, Whitened)
        self.name = f"{self.name} under a flow"
        made = flow_over(normals, flow.flow, self.active)
        return made.to(self.target.device, self.target.dtype)

    # ---- training -----------------------------------------------------------------------------

    def _by_training(self) -> Transport:
        family = self.family
        if family == RECOMMENDED:
            family = self.name = "coupling" if self.target.dim > 1 else "spline"
        if not self.target.differentiable and isinstance(family, str):
            self._check_without_gradients(family)
        made = map_of(family, self.start(), self.options)
        trainable = any(p.requires_grad for p in made.parameters())
        if family in FOUND or not trainable:
            return made
        if family == "mean-field" and not any(x is not None for x in self.settings.values()):
            found = self._by_fixed_draws(made)
            if found is not None:
                return found
            made = map_of(family, self.start(), self.options)
        near = None
        if self.objective != "reverse" and family not in SIMPLE and self.is_audited:
            made, near = self._covering(made, family)
        if self.objective == "cover" or not self.target.differentiable:
            return made
        if near is None:
            return self._polished(made)
        return self._better(copy.deepcopy(made), self._polished(made, near=near), self.name)

    def _by_fixed_draws(self, made: Transport) -> Transport | None:
        """The mean field of the best bound: from near the posterior, and from standard normals.

        Where there are more coordinates than data bind, these may end nats apart.
        """
        if not self.target.differentiable:
            return None
        assert isinstance(self.family, str)
        p, other = self.policy, map_of(self.family, self._blank(), self.options)
        return climbed(
            self.target,
            [made, other],
            self.codes,
            self.generator,
            draws=p.fixed_draws,
            steps=p.climb_steps,
            most=self.left,
        )

    def _check_without_gradients(self, family: str) -> None:
        if family in ("laplace", "pathfinder") or not self.is_audited:
            rough = "tempered draws are too rough"
            why = "this family needs them" if self.is_audited else rough
            raise ConfigurationError(
                f"family {family!r}: the likelihood has no gradients, and {why}; write the "
                "likelihood in torch, wrap it by trj.with_gradient, or sample with run()"
            )

    def _check_objective(self) -> None:
        if self.objective == "cover" and not self.is_audited and self.target.dim:
            raise ConfigurationError(
                f'objective "cover": there are no tempered draws to learn from '
                f"({self.pilot_said}); take the default, or audit=True"
            )

    def _covering(self, made: Transport, family: Family) -> tuple[Transport, bool]:
        """The map trained on draws, and whether it is near the posterior since.

        Where draws are nearly exact and it ends far off all the same, another start is tried: some
        end in a poor optimum.
        """
        p = self.policy
        assert self.audit is not None
        most = p.cover_share * self.left if self.objective != "cover" else self.left
        pool, exact = nearly_exact(self.target, self.audit, self.generator, p, most)
        self._cover(made, pool, exact)
        if not exact:
            return made, False
        near = self._near(made)
        if near.gap > p.near_gap and isinstance(family, str) and "seed" not in self.options:
            other = map_of(family, replace(self.start(), seed=self.seed + 1), self.options)
            self._cover(other, pool, exact)
            if (again := self._near(other)).gap < near.gap:
                made, near = other, again
        return made, near.share >= p.near_share

    def _cover(self, transport: Transport, pool: Pool, exact: bool) -> None:
        """Train a map on draws, in place."""
        p = self.policy
        steps, batch = self._sizes(p.exact_steps if exact else p.cover_steps)
        if not steps:
            return
        self.trace = cover(
            transport,
            pool,
            self.generator,
            steps=steps,
            batch=2 * batch,
            rate=p.exact_rate if exact else p.cover_rate,
            patience=p.exact_patience if exact else p.cover_patience,
            progress=self.progress,
        )

    def _polished(self, transport: Transport, *, near: bool = False) -> Transport:
        """The map trained by reverse KL, in place: shortly, and longer if that is not enough.

        Arguments:
            transport: The map.
            near: Whether it is near the posterior. Steps are then short ones.
        """
        p = self.policy
        gradient = self.settings.get("gradient")
        if gradient is None:
            gradient = "path" if goes_back_cheaply(transport) else "total"
        located = self.is_audited or self.climbs.made or self.trace is not None
        objective = ReverseKL(self.target, anneal=0.0 if located else 0.3, gradient=gradient)
        steps, batch = self._sizes(p.polish_steps)
        rate = self.settings.get("learning_rate") or (p.near_rate if near else None)
        if steps and rate is None:
            trial = min(p.tried_steps, max(1, steps // 5))
            rate = self._quickest(transport, objective, trial, batch)
        given = self.settings.get("steps") is not None
        for stage in (steps,) if given else (p.short_steps, steps):
            now = int(min(stage, self.left // batch))
            if now < 1:
                break
            assert rate is not None
            self.trace = self._train(transport, objective, rate, now, batch)
            if not given and self._near(transport).share >= p.enough_share:
                break
        return transport

    def _sizes(self, usual: int) -> tuple[int, int]:
        """Steps of a training, and draws of each."""
        steps, batch = self.settings.get("steps"), self.settings.get("batch")
        p, many = self.policy, self.target.dim > self.policy.many_coordinates
        usual_batch = max(2, p.batch // 2) if many else p.batch
        return usual if steps is None else int(steps), batch or usual_batch

    def _quickest(
        self, transport: Transport, objective: Objective, steps: int, batch: int
    ) -> float:
        """The learning rate that goes furthest in a short training of a copy."""
        found: dict[float, float] = {}
        for rate in self.policy.learning_rates:
            if self.left < 2 * steps * batch:
                break
            trial = copy.deepcopy(transport)
            state = self.generator.get_state()
            with warnings.catch_warnings():  # trials have nothing to say
                warnings.simplefilter("ignore", ConvergenceWarning)
                trace = self._train(trial, objective, rate, steps, batch)
            self.generator.set_state(state)  # all meet the same draws
            last = trace.objective[-1] if trace.objective else math.inf
            found[rate] = last if math.isfinite(last) else math.inf
        return min(found, key=lambda rate: found[rate]) if found else self.policy.learning_rates[0]

    def _train(
        self, transport: Transport, objective: Objective, rate: float, steps: int, batch: int
    ) -> FitTrace:
        return train(
            transport,
            objective,
            steps=steps,
            batch=batch,
            learning_rate=rate,
            generator=self.generator,
            progress=self.progress,
            label="polish",
        )

    # ---- judgement ----------------------------------------------------------------------------

    def scored(self, transport: Transport) -> Score | None:
        """What share of each posterior a map covers, by the pilot run."""
        return self.audit.score(transport) if self.audit is not None and self.is_audited else None

    def _better(self, before: Transport, after: Transport, name: str) -> Transport:
        """The map after a training, unless it has lost a part that was covered before.

        Arguments:
            before, after: The maps.
            name: Of the family before.
        """
        first, second = self.scored(before), self.scored(after)
        if first is None or second is None or self.audit is None:
            return after
        if not bool((second.short & ~first.short & self.audit.matters).any()):
            return after
        self.name = name
        self.doubts.append(of_fallback())
        return before

    def _near(self, transport: Transport) -> Near:
        """How near a map is to the posteriors of models with a share of them.

        A density that is NaN where it draws makes it as far as can be: an answer will meet that.
        """
        near = Near(1.0, 0.0)
        for m in self._that_matter:
            try:
                log_w = log_weights(
                    self.target, transport, self.codes[m], self._tried, self.generator
                )
            except TRJError:
                return Near(0.0, math.inf)
            found = log_mean_weight(log_w)
            gap = found.value - float(log_w.mean())
            near = Near(min(near.share, found.ess / self._tried), max(near.gap, gap))
        return near
