"""Cover, then polish: how q(theta | m) of a small space is fitted."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..draws import Pool
from ..errors import ConfigurationError, ConvergenceWarning, TRJError
from ..estimate.importance import log_mean_weight, log_weights
from ..fit.objective import ForwardKL, Objective
from ..fit.pathfinder import Pathfinder, pathfinder, pathfinder_map
from ..fit.reverse import ReverseKL
from ..fit.standardise import moments
from ..fit.trace import FitTrace
from ..fit.train import train
from ..pilot.audit import REPLICATES, Audit
from ..pilot.report import Score
from ..pilot.survey import PilotRuns
from ..target.target import Target
from ..transport.autoregressive import CosmicAutoregressive
from ..transport.base import Transport
from ..transport.cosmic import CosmicFlow
from ..transport.mixture import Mixture
from ..transport.parts import Gaussians
from ..transport.whitened import Whitened
from .families import FAMILIES, FOUND, RECOMMENDED, Family, Start, goes_back_in_one_pass, map_of
from .policy import ApproximationPolicy
from .population import Population

OBJECTIVES = ("cover, then polish", "cover", "reverse")

TRIED = 4000  # draws of a model that tell the effective share of its weights

LARGEST = 1e12  # condition number of a covariance of draws


class Recipe:
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
        audit: Whether there is a pilot run.
        policy: What is spent where.
        progress: Show progress bars.

    Attributes:
        name: Of the family that was fitted in the end.
        transport: The map, once :meth:`run` is over.
        audit: The pilot run; None where there was none.
        trace: Of the last training, or None.
        notes: What the user should know of the fit, in words.
    """

    def __init__(
        self,
        target: Target,
        family: Family,
        *,
        objective: str,
        generator: torch.Generator,
        seed: int,
        options: Mapping[str, Any],
        settings: Mapping[str, Any],
        most: float,
        audit: bool,
        policy: ApproximationPolicy,
        progress: bool,
    ) -> None:
        if objective not in OBJECTIVES:
            raise ConfigurationError(f"objective: expected one of {OBJECTIVES}, got {objective!r}")
        self.target, self.family, self.objective = target, family, objective
        self.generator, self.seed, self.options = generator, seed, dict(options)
        self.settings, self.most, self.policy = dict(settings), most, policy
        self.progress, self._audits = progress, audit
        self.codes = target.space.enumerate()
        self.active = target.space.active(self.codes)
        self.name = family if isinstance(family, str) else type(family).__name__
        if callable(family) and not isinstance(family, Transport):
            self.name = getattr(family, "__name__", self.name)
        self.audit: Audit | None = None
        self.trace: FitTrace | None = None
        self.notes: list[str] = []
        self._spent_before = target.account.evaluations

    def run(self) -> Transport:
        """Fit, and return the map."""
        pilot_wanted = self._audits and self.target.dim > 0
        if pilot_wanted:
            self._pilot()
        self._check_objective()
        if not self.target.dim:
            self.name = ""
            return map_of("mean-field", self._blank(), {})
        if self.family == "pathfinder":
            return self._normals_of_paths()
        if self.family in ("normals", RECOMMENDED):
            found = self._by_normals()
            if found is not None:
                return found
        return self._by_training()

    @property
    def left(self) -> float:
        """Evaluations that may still be made."""
        return max(0.0, self.most - (self.target.account.evaluations - self._spent_before))

    # ---- the pilot run ------------------------------------------------------------------------

    def _pilot(self) -> None:
        p = self.policy
        pilot = PilotRuns(self.target, self.generator, p.survey)
        share = p.pilot_share * self.most
        limit = int(share) if share < self._usual_pilot() else None
        audit = Audit(
            self.target,
            self.codes,
            particles=None if limit else self._particles(),
            moves=p.moves,
            generator=self.generator,
            policy=p.survey.audit,
        )
        budget = int(share) if math.isfinite(share) else 10**9
        if pilot.grow(audit, budget, limit=limit, progress=self.progress):
            self.audit = audit

    def _particles(self) -> int:
        """Chains a model and replicate: fewer where there are many models."""
        return max(50, self.policy.particles // math.ceil(len(self.codes) ** 0.5))

    def _usual_pilot(self) -> float:
        """Evaluations of a pilot run of the usual size, by guess."""
        temperatures = 10
        return self._particles() * REPLICATES * len(self.codes) * self.policy.moves * temperatures

    @property
    def pool(self) -> Pool | None:
        """Draws of the pilot run, if maps may learn from them."""
        audit = self.audit
        if audit is None or audit.hurried or not audit.rounds:
            return None
        of_note = audit.matters & (self.active.any(-1).cpu())
        counts = self.active.sum(-1).cpu().double()
        enough = audit.ancestors >= self.policy.fewest_ancestors * counts
        agree = audit.gap.abs() <= self.policy.rough
        return audit.pool() if bool((enough & agree)[of_note].all()) else None

    @property
    def is_audited(self) -> bool:
        """Whether the pilot run can tell what a map has lost."""
        return self.pool is not None

    # ---- where maps start ---------------------------------------------------------------------

    def _blank(self) -> Start:
        """Standard normals."""
        d = self.target.dim
        loc = torch.zeros(len(self.codes), d, dtype=self.target.dtype, device=self.target.device)
        eye = torch.eye(d, dtype=loc.dtype, device=loc.device).expand(len(loc), d, d)
        return Start(self.target, loc, eye, self.seed, self.policy)

    def start(self) -> Start:
        """Location and covariance of each model: of draws, else of paths, else unknown."""
        blank = self._blank()
        pool = self.pool
        if pool is not None:
            loc, factor = self._of_draws(pool)
        elif self.target.differentiable:
            loc, factor = self._of_paths(blank)
        else:
            return blank
        return Start(self.target, loc, factor, self.seed, self.policy)

    def _of_draws(self, pool: Pool) -> tuple[Tensor, Tensor]:
        loc, scale = moments(pool, self.codes, self.active)
        factor = torch.diag_embed(scale)
        for m, code in enumerate(self.codes):
            slots = self.active[m].nonzero()[:, 0]
            mine = pool.theta[(pool.code == code).all(-1)][:, slots].double()
            if not len(slots) or len(mine) <= 10 * len(slots):
                continue
            covariance = torch.atleast_2d(torch.cov(mine.T))
            units = covariance.diagonal().sqrt().clamp(min=1e-300)
            correlation = covariance / units[:, None] / units
            if float(torch.linalg.cond(correlation)) < LARGEST:
                found = units[:, None] * torch.linalg.cholesky(correlation)
                factor[m, slots[:, None], slots] = found.to(factor.dtype)
        return loc, factor

    def _of_paths(self, blank: Start) -> tuple[Tensor, Tensor]:
        assert blank.loc is not None and blank.factor is not None
        loc, factor = blank.loc.clone(), blank.factor.clone()
        for m, found in enumerate(self._paths(strict=False)):
            if found is not None:
                best = int(found.elbo.argmax())
                loc[m], factor[m] = found.loc[best], found.scale_tril[best]
        return loc, factor

    def _paths(self, strict: bool) -> list[Pathfinder | None]:
        """Climbs of each model; None of one where all failed."""
        found: list[Pathfinder | None] = []
        for code in self.codes:
            try:
                found.append(pathfinder(self.target, code, self.generator))
            except TRJError:
                if strict:
                    raise
                found.append(None)
        return found

    # ---- families that are found --------------------------------------------------------------

    def _normals_of_paths(self) -> Transport:
        found = [p for p in self._paths(strict=True) if p is not None]
        made = pathfinder_map(self.target.space, found).to(self.target.device, self.target.dtype)
        return made.requires_grad_(False)

    def _by_normals(self) -> Transport | None:
        """Normals of draws, under a flow where they fall short; None where they can't be had."""
        few = int(self.active.sum(-1).max()) <= self.policy.most_normal_coordinates
        if self.pool is None or not (few or self.family == "normals"):
            if self.family == "normals":
                raise ConfigurationError(
                    'family "normals": they are fitted to tempered draws, and those are too rough '
                    f"here ({self._pilot_said()}); take another family"
                )
            return None
        assert self.audit is not None
        if self.options:
            raise ConfigurationError(f"options: normals take none, got {self.options}")
        population = Population(self.target, self.audit, self.generator, self.policy)
        made = population.run(self.left)
        if self.family == "normals" or self._even(made) >= self.policy.enough_share:
            self.name = "normals"
            return made
        if not self.target.differentiable or self.left < self.policy.batch * 100:
            self.name = "normals"
            return made
        self.name = "normals under a flow"
        return self._better(made, self._polished(self._under_a_flow(population)))

    def _pilot_said(self) -> str:
        if self.audit is None:
            return "there are none"
        gap, ancestors = float(self.audit.gap.abs().max()), float(self.audit.ancestors.min())
        return f"halves differ by {gap:.2f} nats, {ancestors:.0f} ancestors"

    def _under_a_flow(self, population: Population) -> Transport:
        """Normals in coordinates of unit covariance, and a flow over them that is none yet."""
        start = self.start()
        assert start.loc is not None and start.factor is not None
        parts = population.map().components
        assert isinstance(parts, Gaussians)
        space, d = self.target.space, self.target.dim
        kind = {"transform": "spline", "layers": 2, "blocks": 2, "hidden": self.policy.hidden}
        flow = (
            CosmicFlow(
                space, layers=self.policy.layers, hidden=(self.policy.hidden,), seed=self.seed
            )
            if d > 1
            else CosmicAutoregressive(space, **kind, seed=self.seed)  # type: ignore[arg-type]
        )
        outer = Whitened(flow, start.loc, start.factor).to(self.target.device, self.target.dtype)
        inverse = outer.inverse[:, None]
        loc = (inverse @ (parts.loc - outer.loc[:, None])[..., None])[..., 0]
        white = Gaussians(space, loc, torch.linalg.cholesky(_square(inverse @ parts.tril)))
        log_weights = population.map().log_weights.detach()
        made = Mixture(white, outer, log_weights=log_weights)
        made.log_weights.requires_grad_(False)
        return made.to(self.target.device, self.target.dtype)

    # ---- training -----------------------------------------------------------------------------

    def _by_training(self) -> Transport:
        family = self.family
        if family == RECOMMENDED:
            family = "coupling" if self.target.dim > 1 else "spline"
            self.name = family
        if not self.target.differentiable and isinstance(family, str):
            self._check_without_gradients(family)
        made = map_of(family, self.start(), self.options)
        trainable = any(p.requires_grad for p in made.parameters())
        if family in FOUND or not trainable:
            return made
        if self.objective != "reverse" and (pool := self.pool) is not None:
            self._cover(made, pool)
        if self.objective == "cover":
            return made
        if not self.target.differentiable:
            return made
        before = copy.deepcopy(made)
        return self._better(before, self._polished(made)) if self.trace else self._polished(made)

    def _check_without_gradients(self, family: str) -> None:
        if family in ("laplace", "pathfinder") or self.pool is None:
            raise ConfigurationError(
                f"family {family!r}: the likelihood has no gradients, and "
                f"{'this family needs them' if self.pool else 'tempered draws are too rough'}; "
                "write the likelihood in torch, wrap it by trj.with_gradient, or sample with run()"
            )

    def _check_objective(self) -> None:
        if self.objective == "cover" and self.pool is None and self.target.dim:
            raise ConfigurationError(
                f'objective "cover": there are no tempered draws to learn from '
                f"({self._pilot_said()}); take the default, or audit=True"
            )

    def _cover(self, transport: Transport, pool: Pool) -> None:
        p = self.policy
        objective = ForwardKL(pool.code, pool.theta, order=1.0, generator=self.generator)
        steps, batch = self._sizes(p.cover_steps)
        if steps:
            self._train(transport, objective, steps, p.cover_rate, label="cover", batch=2 * batch)

    def _polished(self, transport: Transport) -> Transport:
        """The map trained by reverse KL, in place."""
        p = self.policy
        gradient = self.settings.get("gradient")
        if gradient is None:
            gradient = "path" if goes_back_in_one_pass(transport) else "total"
        near = self.trace is not None or self.pool is not None or self.name in FAMILIES
        objective = ReverseKL(self.target, anneal=0.0 if near else 0.3, gradient=gradient)
        steps, batch = self._sizes(p.polish_steps)
        rate = self.settings.get("learning_rate")
        if steps < 1:
            return transport
        if rate is None:
            trial = min(p.tried_steps, max(1, steps // 5))
            rate = self._quickest(transport, objective, trial, batch)
        steps = int(min(steps, self.left // batch))
        if steps > 0:
            self._train(transport, objective, steps, rate, label="polish", batch=batch)
        return transport

    def _sizes(self, usual: int) -> tuple[int, int]:
        """Steps of a training, and draws of each."""
        steps, batch = self.settings.get("steps"), self.settings.get("batch")
        return usual if steps is None else int(steps), batch or self.policy.batch

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
                trace = self._train(trial, objective, steps, rate, label="step size", batch=batch)
            self.generator.set_state(state)  # all meet the same draws
            last = trace.objective[-1] if trace.objective else math.inf
            found[rate] = last if math.isfinite(last) else math.inf
        return min(found, key=lambda rate: found[rate]) if found else self.policy.learning_rates[0]

    def _train(
        self,
        transport: Transport,
        objective: Objective,
        steps: int,
        rate: float,
        *,
        label: str,
        batch: int,
    ) -> FitTrace:
        trace = train(
            transport,
            objective,
            steps=steps,
            batch=batch,
            learning_rate=rate,
            generator=self.generator,
            progress=self.progress,
            label=label,
            policy=self.policy.training,
        )
        if label != "step size":
            self.trace = trace
        return trace

    # ---- judgement ----------------------------------------------------------------------------

    def scored(self, transport: Transport) -> Score | None:
        """What share of each posterior a map covers, by the pilot run."""
        return self.audit.score(transport) if self.audit is not None and self.is_audited else None

    def _better(self, before: Transport, after: Transport) -> Transport:
        """The map after a training, unless it has lost a part that was covered before."""
        first, second = self.scored(before), self.scored(after)
        if first is None or second is None or self.audit is None:
            return after
        matters = self.audit.matters
        if not bool((second.short & ~first.short & matters).any()):
            return after
        self.notes.append(
            "reverse KL lost a part of a posterior; the map is the one before, which covers it"
        )
        return before

    def _even(self, transport: Transport) -> float:
        """Least effective share of the weights among models with a share of the posterior."""
        assert self.audit is not None
        shares = [1.0]
        for m in self.audit.matters.nonzero()[:, 0].tolist():
            if bool(self.active[m].any()):
                log_w = log_weights(self.target, transport, self.codes[m], TRIED, self.generator)
                shares.append(log_mean_weight(log_w).ess / TRIED)
        return min(shares)


def _square(factor: Tensor) -> Tensor:
    return factor @ factor.mT
