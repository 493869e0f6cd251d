"""How a map is trained unless told otherwise: audit, draws, objective, score, mend."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .. import clock
from ..draws import Pool
from ..errors import BudgetError, ConfigurationError, ConvergenceWarning, warn_user
from ..pilot.audit import Audit
from ..pilot.given import user_pool
from ..pilot.parts import Part
from ..pilot.report import Score
from ..pilot.survey import PilotRuns
from ..pilot.through_emcee import emcee_pool
from ..promises import LOG_EVIDENCES_AGREE, MODELS_ONE_BY_ONE
from ..space.codes import distinct
from ..target.target import Target
from ..transport.base import Transport
from ..transport.laplace import Laplace
from ..weights.base import ModelWeights
from .fitted import Fitted
from .locate import locate
from .objective import ForwardKL, Objective
from .policy import TrainerPolicy
from .reverse import ReverseKL
from .standardise import moments, standardise, typical_scale
from .trace import FitTrace
from .train import train

Pilot = bool | str | Mapping[Any, Mapping[str, Any]] | Pool | None


class Trainer:
    """Trains a map, and knows what was found out on the way.

    Arguments:
        target: The target.
        transport: The map, changed in place.
        generator: Source of randomness.
        weights: Function that gives the distribution over models to learn beside the map, or
            None. It is asked where the map is trained by reverse KL.
        policy: What a fit spends where.

    Attributes:
        pilot: The pilot runs, which owe nothing to the map.

    Example:
        >>> from trjmcmc import CosmicFlow, problems
        >>> target = problems.sinh_arcsinh()
        >>> flow = CosmicFlow(target.space, seed=1)
        >>> trainer = Trainer(target, flow, torch.Generator().manual_seed(0))
        >>> fitted = trainer.fit(steps=50, batch=64, particles=100, audit=10**5, progress=False)
        >>> fitted.trace.best_step, len(fitted.modes), fitted.score.covered.shape
        (50, 2, torch.Size([2]))
    """

    def __init__(
        self,
        target: Target,
        transport: Transport,
        generator: torch.Generator,
        weights: Callable[[], ModelWeights] | None = None,
        policy: TrainerPolicy = TrainerPolicy(),
    ) -> None:
        self.target, self.transport, self.generator = target, transport, generator
        self.policy, self._make_weights = policy, weights
        self.pilot = PilotRuns(target, generator, policy.survey)
        self._fitted = Fitted(transport, few=target.space.few)
        self._deadline = math.inf
        self._audits = False  # whether the last fit was to be audited

    def __getstate__(self) -> dict[str, Any]:
        """A deadline is of the process that set it."""
        return {**self.__dict__, "_deadline": math.inf}

    # ---- what is known ----------------------------------------------------------------------

    @property
    def fitted(self) -> Fitted:
        """What is known so far."""
        return self._fitted

    def keep(self, fitted: Fitted) -> Fitted:
        """Go on from what somebody else has found out: a fit of another kind, a later score."""
        self._fitted = fitted
        return fitted

    def _learn(self, **found: Any) -> Fitted:
        return self.keep(replace(self._fitted, **found))

    def _spend(self, stage: str, seconds: float) -> None:
        self._learn(seconds={**self._fitted.seconds, stage: seconds})

    @property
    def deadline(self) -> float:
        """Time by :func:`trjmcmc.clock.now` at which the run that asks must be over."""
        return self._deadline

    @contextmanager
    def within(self, deadline: float) -> Iterator[None]:
        """Keep what has no deadline of its own small against the time left until this one.

        Arguments:
            deadline: Time by :func:`trjmcmc.clock.now`.
        """
        before, self._deadline = self._deadline, deadline
        try:
            yield
        finally:
            self._deadline = before

    # ---- a fit ------------------------------------------------------------------------------

    def fit(
        self,
        *,
        steps: int | None = None,
        batch: int | None = None,
        objective: Objective | None = None,
        pilot: Pilot = None,
        audit: bool | int = True,
        particles: int | None = None,
        moves: int | None = None,
        max_evaluations: int | None = None,
        extra: Pool | None = None,
        mend_until: float = math.inf,
        deadline: float = math.inf,
        progress: bool = True,
        **options: Any,
    ) -> Fitted:
        """Train; see :meth:`trjmcmc.TRJSampler.fit` for the arguments not named here.

        Arguments:
            extra: Draws from elsewhere to train on beside the audit's, such as those that chains
                have passed.
            mend_until: Time by :func:`trjmcmc.clock.now` after which no mending begins.
            deadline: The same by which all is to be done; an audit that has to be hurried for it
                gives draws and no verdict.

        Returns:
            All that is known then; also what earlier fits and runs have found.

        Raises:
            ConfigurationError: Settings that contradict each other.
            TargetError: Pilot draws outside a prior's support.
        """
        self._learn(score=None, mended=0, spot=None)
        self._audits = audit is not False and max_evaluations is None
        if not self.target.dim and self._make_weights is None:  # there is nothing to map
            return self._learn(trace=FitTrace())
        if max_evaluations is not None and max_evaluations < 1:
            raise ConfigurationError(f"max_evaluations: expected 1 or more, got {max_evaluations}")
        few = self._fitted.few
        own = objective is None and pilot in (None, True)
        own = own and (few or not self.target.differentiable)
        self._check_pilot(pilot, objective)
        codes = self._models(own)
        until = clock.part_of_the_time_left(self.policy.audit_time, deadline)
        draft, limit = self._planned(codes, particles, moves, max_evaluations, until)
        steps = self.policy.training.steps if steps is None else steps
        batch = self.policy.training.batch if batch is None else batch
        each = self.policy.evaluations_a_training_draw
        budget = each * steps * batch if isinstance(audit, bool) else audit
        auditing = few and audit is not False
        if own or auditing:
            auditing &= self.pilot.grow(
                draft, budget, limit=limit, deadline=until, progress=progress
            )
        auditing = auditing and _unhurried(draft)
        pool = self._pool(draft, pilot, extra, progress, own)
        self._place(codes, pool, steps * batch)
        if objective is None:
            objective = self._objective(pool)
        if objective is None:
            return self._learn(trace=FitTrace())
        shaped = int(self.target.space.active(codes).any(-1).sum())  # models with parameters
        if own and pool is not None and pool.distinct < self.policy.fewest_training_draws * shaped:
            steps = 0  # too few to learn a shape from: location and scale must do
        settings = {"steps": steps, "batch": batch, "progress": progress, **options}
        settings["deadline"] = clock.part_of_the_time_left(self.policy.training_time, deadline)
        trace = self._train(objective, settings)
        self._learn(trace=trace, audit=None)
        self._spend("fit", trace.seconds)
        if few and draft.rounds:
            self._adopt(draft)
            self._spend("pilot", draft.seconds)
        if auditing and self._fitted.audit is not None:
            until = min(mend_until, deadline)
            self._mend(draft, settings, extra, larger=limit is None, until=until)
        return self._fitted

    def _check_pilot(self, pilot: Pilot, objective: Objective | None) -> None:
        if pilot is True and not self._fitted.few:
            raise ConfigurationError(
                f"pilot: a pilot run visits each model and takes {MODELS_ONE_BY_ONE} at most; this "
                f"space has {self.target.space.size}"
            )
        if pilot is False and objective is None and not self.target.differentiable:
            raise ConfigurationError(
                "pilot: a likelihood without gradients needs draws to train on; leave pilot "
                'out, or pass "emcee" or your own draws'
            )
        if isinstance(pilot, str) and pilot != "emcee":
            raise ConfigurationError(f'pilot: expected a bool, "emcee" or draws, got {pilot!r}')

    def _models(self, own: bool) -> Tensor:
        """Models to standardise the map by, and to audit if draws of its own are needed."""
        space = self.target.space
        if self._fitted.few:
            return space.enumerate()
        some = space.sample_prior(self.policy.standardised_models, self.generator)
        models = distinct(some)[0]
        return models[:MODELS_ONE_BY_ONE] if own else models

    def _planned(
        self,
        codes: Tensor,
        particles: int | None,
        moves: int | None,
        max_evaluations: int | None,
        until: float,
    ) -> tuple[Audit, int | None]:
        """The audit as far as it is there, or a new one, and its most evaluations."""
        limit = None
        if max_evaluations is not None:
            limit = int(self.policy.audit_share * max_evaluations)
        audit = self.pilot.planned(
            codes,
            particles=particles,
            moves=moves,
            evaluations=limit,
            deadline=until if self._fitted.few else math.inf,
        )
        return audit, limit

    # ---- draws ------------------------------------------------------------------------------

    def draws(self) -> Pool:
        """Those of the whole audit, fewer where time is short: a mode that one replicate has
        met is a mode."""
        assert self._fitted.audit is not None
        return self.pilot.draws(self._fitted.audit, self._deadline, whole=True)

    def _joined(self, audit: Audit, extra: Pool | None) -> Pool:
        """Draws of an audit and others: nothing is evaluated again."""
        pool = self.pilot.draws(audit, self._deadline)
        return pool if extra is None else pool.joined(extra)

    def _pool(
        self, audit: Audit, pilot: Pilot, extra: Pool | None, progress: bool, own: bool
    ) -> Pool | None:
        """Draws to train on, or None."""
        if pilot == "emcee":
            return emcee_pool(self.target, audit.code, generator=self.generator, progress=progress)
        if isinstance(pilot, Pool):
            return pilot
        if isinstance(pilot, Mapping):
            return user_pool(self.target, pilot)
        return self._joined(audit, extra) if own and audit.rounds else None

    # ---- training ---------------------------------------------------------------------------

    def _place(self, codes: Tensor, pool: Pool | None, draws: int) -> None:
        """Standardise the map's coordinates; later fits go on from the map as it is.

        Arguments:
            codes: Models to do so by.
            pool: Posterior draws, or None.
            draws: Those of the training ahead: locating models costs no more than a share.
        """
        if pool is None and not self._fitted.few:
            each = self.policy.locating.draws_per_model * self.policy.locating.iterations
            most = int(self.policy.locating_share * draws / each)
            codes = codes[: max(self.policy.fewest_located, most)]
        active = self.target.space.active(codes)
        if pool is not None:
            loc, scale = moments(pool, codes, active)
        else:
            loc = torch.zeros(active.shape, dtype=self.target.dtype, device=self.target.device)
            scale = torch.ones_like(loc)
            if self.target.differentiable and self.target.dim:
                with suppress(BudgetError):  # the map then starts from standard units
                    loc, scale = locate(self.target, codes, self.generator, self.policy.locating)
        self._learn(scale=typical_scale(scale, active))
        if self._fitted.trace is None:
            standardise(self.transport, codes, loc, scale, pool)

    def _objective(self, pool: Pool | None) -> Objective | None:
        """By draws where there are any, else by gradients; None, with a warning, without both."""
        if pool is not None:
            return self._covering(pool)
        if self.target.differentiable:
            return self._reverse(learnt=True)
        warn_user(
            "the map was not trained: there are neither pilot draws nor gradients. Sampling "
            'goes on with random walks; fit(pilot="emcee") or your own draws would help',
            ConvergenceWarning,
        )
        return None

    def _reverse(self, learnt: bool) -> ReverseKL:
        """Reverse KL, beside which q(m) is learnt if that was asked for."""
        settings: dict[str, Any] = {}
        if isinstance(self.transport, Laplace):  # near the posterior from the start
            settings["anneal"] = 0.0
        if self._make_weights is not None and learnt:
            weights = self._fitted.weights or self._make_weights()
            self._learn(weights=weights)
            settings["weights"] = weights
        return ReverseKL(self.target, **settings)

    def _covering(self, pool: Pool) -> ForwardKL:
        return ForwardKL(
            pool.code,
            pool.theta,
            log_joint=pool.log_joint,
            generator=self.generator,
            policy=self.policy.covering,
        )

    def _train(
        self,
        objective: Objective,
        settings: dict[str, Any],
        label: str = "fit",
        transport: Transport | None = None,
    ) -> FitTrace:
        return train(
            self.transport if transport is None else transport,
            objective,
            generator=self.generator,
            label=label,
            policy=self.policy.training,
            **settings,
        )

    def _mend(
        self,
        audit: Audit,
        settings: dict[str, Any],
        extra: Pool | None,
        *,
        larger: bool,
        until: float,
    ) -> None:
        """Score the map on draws that were kept back; train it again where it falls short.

        Arguments:
            audit: The audit that scores it.
            settings: Of the training.
            extra: Draws beside those of the audit, or None.
            larger: Whether the audit of what falls short is enlarged first.
            until: Time by :func:`trjmcmc.clock.now` after which no mending begins.
        """
        trace = self._fitted.trace
        assert trace is not None
        score = self.scored(self.transport)
        steps = int(settings["steps"] * self.policy.mending_share)
        while steps and self._fitted.mended < self.policy.most_mends:
            if score is None or trace.stopped == "interrupted" or clock.now() > until:
                break
            short = score.short & audit.matters
            if not bool(short.any()):
                break
            self._learn(mended=self._fitted.mended + 1)
            if larger:
                audit.enlarge(short.nonzero()[:, 0], deadline=until, progress=settings["progress"])
            objective = self._covering(self._joined(audit, extra))
            again = self._train(objective, {**settings, "steps": steps}, "mend")
            self._spend("fit", self._fitted.seconds["fit"] + again.seconds)
            if again.stopped == "interrupted":
                trace = replace(trace, stopped="interrupted")
                self._learn(trace=trace)
            score = self.scored(self.transport)
        self._learn(score=score)

    # ---- pilot runs -------------------------------------------------------------------------

    def survey(self, *, progress: bool = False) -> Fitted:
        """A first, small audit of a small space: starts, rough evidences, draws.

        It is sized by the measured price of the likelihood, and by the time left where that is
        limited; :meth:`fit` lets it grow.
        """
        known = self._fitted
        if not known.few or not self.target.dim or known.audit is not None:
            return known
        codes = self.target.space.enumerate()
        until = clock.part_of_the_time_left(self.policy.survey.time_share, self._deadline)
        begun = clock.now()
        audit = self.pilot.survey(codes, deadline=until, progress=progress)
        if audit is not None:
            self._adopt(audit)
            self._measure(codes)
        self._spend("survey", clock.now() - begun)
        return self._fitted

    def take_up(self, parts: Sequence[Part]) -> Fitted:
        """Count parts of posteriors that the audit has lost among what it has found."""
        audit = self._fitted.audit
        assert audit is not None
        for part in parts:
            audit.take_up(part)
        self._adopt(audit)
        self._measure(audit.code)
        return self._fitted

    def _measure(self, codes: Tensor) -> None:
        """Learn the typical spread of coordinates from the draws so far."""
        active = self.target.space.active(codes)
        _, scale = moments(self.draws(), codes, active)
        self._learn(scale=typical_scale(scale, active))

    def survey_again(
        self, gap: float, *, most_seconds: float = 0.0, progress: bool = False
    ) -> Fitted:
        """Enlarge the survey of models whose halves differ by more than ``gap`` nats.

        Arguments:
            gap: As above.
            most_seconds: Seconds of all surveys within which it is enlarged again until they agree.
            progress: Show a bar.
        """
        audit = self._fitted.audit
        assert audit is not None
        while True:
            begun, size = clock.now(), audit.evaluations
            until = clock.part_of_the_time_left(self.policy.survey.time_share, self._deadline)
            if most_seconds:
                left = most_seconds - self._fitted.seconds.get("survey", 0.0)
                until = min(until, begun + left)
            self.pilot.enlarge(audit, gap, deadline=until, progress=progress)
            self._adopt(audit)
            spent = self._fitted.seconds.get("survey", 0.0) + clock.now() - begun
            self._spend("survey", spent)
            apart = bool((audit.gap[audit.matters] > gap).any())
            if not apart or audit.evaluations == size or 2 * spent > most_seconds:
                return self._fitted

    def salvage(self) -> Fitted:
        """Take up the finished rounds of an audit that was interrupted."""
        known = self.pilot.interrupted()
        if self._fitted.audit is None and self._fitted.few and known is not None:
            self._adopt(known)
        return self._fitted

    def spot_check(self, visited: Tensor, seconds: float, progress: bool) -> Fitted:
        """In a large space, audit the models that chains visit most; nothing is trained.

        Arguments:
            visited: Models of posterior draws, shape (N, L).
            seconds: That it may take, about; none is made where it would have to be too small.
            progress: Show a bar.
        """
        known = self._fitted
        if known.few or not self._audits or known.spot is not None or not self.target.dim:
            return known
        audit = self.pilot.of_visited(visited, seconds=seconds, progress=progress)
        if audit is not None:
            self._learn(spot=audit, score=audit.score(self.transport))
            self._learn(modes=self.pilot.modes(audit, self._deadline))
            self._spend("audit", audit.seconds)
        return self._fitted

    def _adopt(self, audit: Audit) -> None:
        self._learn(audit=audit, modes=self.pilot.modes(audit, self._deadline))

    def scored(self, transport: Transport) -> Score | None:
        """What the audit says of a map; nothing if it had to be hurried, or there is no time."""
        audit = self._fitted.audit
        if audit is None or audit.hurried:
            return None
        if math.isinf(self._deadline):
            return audit.score(transport)
        policy, begun = self.policy, clock.now()
        audit.score(transport, policy.tried_draws)
        each = max(clock.now() - begun, 1e-9) / policy.tried_draws  # seconds of one a model
        affordable = policy.scoring_share * max(0.0, self._deadline - begun) / each
        if affordable < policy.fewest_scored_draws:
            return None
        return audit.score(transport, int(min(audit.policy.scored_draws, affordable)))

    # ---- what more would cost ---------------------------------------------------------------

    def training_step(self, extra: Pool | None) -> float:
        """Seconds of one step of training, found on a copy of the map.

        Arguments:
            extra: Draws beside those of the audit, or None.
        """
        trial = copy.deepcopy(self.transport)
        objective: Objective
        if self._fitted.audit is not None:
            objective = self._covering(self._joined(self._fitted.audit, extra))
        else:
            objective = self._reverse(learnt=False)
        steps = self.policy.priced_steps
        with torch.enable_grad():  # a run may ask in its midst
            self._train(objective, {"steps": 1, "progress": False}, transport=trial)
            begun = clock.now()  # the first optimiser of a process takes a second to load
            self._train(objective, {"steps": steps, "progress": False}, transport=trial)
        return (clock.now() - begun) / steps

    def audit_cost(self, steps: int) -> float:
        """Seconds until the halves of the audit agree, or its budget is spent, by guess.

        Arguments:
            steps: Training steps of the fit that it belongs to.
        """
        audit = self._fitted.audit
        if audit is None:
            return 0.0
        gap = audit.gap[audit.matters]
        worst = float(gap.nan_to_num(1.0, 1.0).max()) if len(gap) else 0.0
        batch = self.policy.training.batch
        budget = self.policy.evaluations_a_training_draw * steps * batch
        most = budget / max(audit.evaluations, 1)
        return audit.seconds * min(most, max(0.0, (worst / LOG_EVIDENCES_AGREE) ** 2 - 1))


def _unhurried(audit: Audit) -> bool:
    """Whether an audit can judge a map; where there was no time for it, a warning says so."""
    if audit.hurried:
        warn_user(
            "there was no time to audit the map: what it has lost would not be seen. Give the "
            "run more max_seconds, or fit() first",
            ConvergenceWarning,
        )
    return not audit.hurried
