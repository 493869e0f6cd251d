"""How a map is trained unless told otherwise: audit, draws, objective, score, mend."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .. import clock
from ..draws import Pool
from ..errors import ConfigurationError, ConvergenceWarning, warn_user
from ..pilot.audit import Audit
from ..pilot.parts import Part
from ..pilot.report import Score
from ..pilot.survey import PilotRuns
from ..promises import MODELS_ONE_BY_ONE
from ..space.codes import distinct
from ..target.target import Target
from ..transport.base import Standardisable, Transport
from ..transport.laplace import Laplace
from ..weights.base import ModelWeights
from .fitted import Fitted
from .locate import located
from .objective import Objective, covering
from .policy import TrainerPolicy
from .reverse import ReverseKL, goes_back_cheaply
from .source import Pilot, given_draws, source
from .standardise import moments, standardise, typical_scale
from .starts import Limits, start_better
from .trace import FitTrace
from .train import Training, train
from .under_way import UnderWay, unhurried


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
        self._under_way: UnderWay | None = None  # a fit, from its training on
        self._between: Callable[[], object] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """A deadline, and who is called, are of this process."""
        return {**self.__dict__, "_deadline": math.inf, "_between": None}

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

    @contextmanager
    def telling(
        self, on_grown: Callable[[], object] | None, between: Callable[[], object] | None
    ) -> Iterator[None]:
        """Call these whenever an audit of few models has grown, and between two training steps.

        What is known then is enough for another process to go on with the fit.
        """
        self._between = between
        try:
            with self.pilot.telling(on_grown):
                yield
        finally:
            self._between = None

    @property
    def step(self) -> int | None:
        """Steps of the training that is under way, or None."""
        going = self._under_way
        return None if going is None or going.training is None else going.training.step

    # ---- a fit ------------------------------------------------------------------------------

    def fit(
        self,
        *,
        by: str | None = None,
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
        """Train, or go on where another process was broken off in its training.

        See :meth:`trjmcmc.TRJSampler.fit` for the arguments not named here.

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
        if self._under_way is not None:
            return self._go_on(self._under_way, mend_until, deadline, progress)
        self._learn(score=None, mended=0)
        self._audits = audit is not False and max_evaluations is None
        if not self.target.dim and self._make_weights is None:  # there is nothing to map
            return self._learn(trace=FitTrace())
        if max_evaluations is not None and max_evaluations < 1:
            raise ConfigurationError(f"max_evaluations: expected 1 or more, got {max_evaluations}")
        few = self._fitted.few
        pilot = source(self.target, by, pilot, otherwise=objective is not None)
        own = objective is None and pilot in (None, True)
        own = own and (few or by == "pilot" or not self.target.differentiable)
        codes = self._models(own)
        until = clock.part_of_the_time_left(self.policy.audit_time, deadline)
        limit = None if max_evaluations is None else int(self.policy.audit_share * max_evaluations)
        end = until if few else math.inf
        draft = self.pilot.planned(
            codes, particles=particles, moves=moves, evaluations=limit, deadline=end
        )
        usual, each = self.policy.training, self.policy.evaluations_a_training_draw
        steps = usual.steps if steps is None else steps
        batch = usual.batch if batch is None else batch
        budget = each * steps * batch if isinstance(audit, bool) else audit
        auditing = few and audit is not False
        if own or auditing:
            auditing &= self.pilot.grow(
                draft, budget, limit=limit, deadline=until, progress=progress
            )
        auditing = auditing and unhurried(draft)
        pool = given_draws(self.target, pilot, codes, self.generator, progress)
        if pool is None and own and draft.rounds:
            pool = self._joined(draft, extra)
        settings = {"steps": steps, "batch": batch, **options}
        limits = Limits(clock.now(), deadline, max_evaluations or math.inf)
        tried = self._place(codes, pool, settings, by, limits)
        if tried.stopped == "interrupted":
            return self._learn(trace=replace(tried, by="vi"), audit=None)
        name = "objective"
        if objective is None:
            name = "vi" if pool is None else "pilot" if own else "draws"
            objective = self._objective(pool, by)
        if objective is None:
            return self._learn(trace=FitTrace())
        shaped = int(self.target.space.active(codes).any(-1).sum())  # models with parameters
        if own and pool is not None and pool.distinct < self.policy.fewest_training_draws * shaped:
            settings["steps"] = 0  # too few to learn a shape from: location and scale must do
        before = clock.now() - limits.begun if tried.step else 0.0
        self._under_way = UnderWay(
            draft, auditing, limit is None, extra, objective, settings, name, by != "vi", before
        )
        return self._go_on(self._under_way, mend_until, deadline, progress)

    def _go_on(self, going: UnderWay, mend_until: float, deadline: float, progress: bool) -> Fitted:
        """The training, and what follows; arguments as of :meth:`fit`."""
        late = clock.part_of_the_time_left(self.policy.training_time, deadline)
        settings = going.within(late, progress)
        try:
            if not going.mends:
                trace = self._train(going.objective, settings, going=going)
                self._learn(trace=replace(trace, by=going.by), audit=None)
                self._spend("fit", going.before + trace.seconds)
                if self._fitted.few and going.audit.rounds:
                    self._adopt(going.audit)
                    self._spend("pilot", going.audit.seconds)
                going.trained()
            if going.judges and self._fitted.audit is not None:
                self._mend(going, min(mend_until, deadline))
        finally:
            self._under_way = None
        return self._fitted

    def _models(self, own: bool) -> Tensor:
        """Models to standardise the map by, and to audit if draws of its own are needed."""
        space = self.target.space
        if self._fitted.few:
            return space.enumerate()
        some = space.sample_prior(self.policy.standardised_models, self.generator)
        models = distinct(some)[0]
        return models[:MODELS_ONE_BY_ONE] if own else models

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

    # ---- training ---------------------------------------------------------------------------

    def _place(
        self,
        codes: Tensor,
        pool: Pool | None,
        settings: Mapping[str, Any],
        by: str | None,
        limits: Limits,
    ) -> FitTrace:
        """Standardise the map's coordinates; later fits go on from the map as it is.

        Arguments:
            codes: Models to do so by.
            pool: Posterior draws, or None.
            settings: Of the training ahead: locating models costs no more than a share of it.
            by: What the map is trained by, as of :meth:`fit`.
            limits: Of the fit.

        Returns:
            The trace of the last of the trainings that a start was chosen by.
        """
        locating = self.policy.locating
        if pool is None and not self._fitted.few:
            each = locating.draws_per_model * locating.iterations
            most = int(self.policy.locating_share * settings["steps"] * settings["batch"] / each)
            codes = codes[: max(self.policy.fewest_located, most)]
        active = self.target.space.active(codes)
        if pool is not None:
            loc, scale = moments(pool, codes, active)
        else:
            until = clock.part_of_the_time_left(self.policy.tried_budget, limits.deadline)
            share = self.policy.tried_budget * limits.evaluations
            loc, scale = located(self.target, codes, self.generator, locating, until, share)
        self._learn(scale=typical_scale(scale, active))
        if self._fitted.trace is not None:
            return FitTrace()
        if not (by == "vi" and self._fitted.few and isinstance(self.transport, Standardisable)):
            standardise(self.transport, codes, loc, scale, pool)
            return FitTrace()
        shortly = partial(self._train, self._reverse(learnt=False, by=by))
        given = (self.transport, self.target, codes, (loc, scale), shortly, settings)
        return start_better(*given, self.generator, self.policy, limits)

    def _objective(self, pool: Pool | None, by: str | None = None) -> Objective | None:
        """By draws where there are any, else by gradients; None, with a warning, without both."""
        if pool is not None:
            return covering(pool, self.generator, self.policy.covering)
        if self.target.differentiable:
            return self._reverse(learnt=True, by=by)
        warn_user(
            "the map was not trained: there are neither pilot draws nor gradients. Sampling "
            'goes on with random walks; fit(pilot="emcee") or your own draws would help',
            ConvergenceWarning,
        )
        return None

    def _reverse(self, learnt: bool, by: str | None = None) -> ReverseKL:
        """Reverse KL, beside which q(m) is learnt if that was asked for."""
        near, cheap = isinstance(self.transport, Laplace), goes_back_cheaply(self.transport)
        settings: dict[str, Any] = {"anneal": 0.0} if near or by == "vi" else {}
        settings |= {"gradient": "path"} if by == "vi" and cheap else {}
        if self._make_weights is not None and learnt:
            weights = self._fitted.weights or self._make_weights()
            self._learn(weights=weights)
            settings["weights"] = weights
        return ReverseKL(self.target, **settings)

    def _train(
        self,
        objective: Objective,
        settings: dict[str, Any],
        label: str = "fit",
        transport: Transport | None = None,
        going: UnderWay | None = None,
    ) -> FitTrace:
        def between(training: Training) -> None:
            if going is not None and self._between is not None:
                going.at(training)
                self._between()

        found = train(
            self.transport if transport is None else transport,
            objective,
            generator=self.generator,
            label=label,
            policy=self.policy.training,
            before=None if going is None else going.training,
            between=between,
            **settings,
        )
        if going is not None:
            going.at(None)
        return found

    def _mend(self, going: UnderWay, until: float) -> None:
        """Score the map on draws that were kept back; train it again where it falls short.

        Arguments:
            going: The fit.
            until: Time by :func:`trjmcmc.clock.now` after which no mending begins.
        """
        steps = int(going.settings["steps"] * self.policy.mending_share) if going.repairs else 0
        score = self.scored(self.transport) if going.training is None else None
        while steps and (going.training is not None or self._may_mend(going, score, until)):
            again = self._train(
                going.objective, {**going.settings, "steps": steps}, "mend", going=going
            )
            self._spend("fit", self._fitted.seconds["fit"] + again.seconds)
            if again.stopped == "interrupted":
                assert self._fitted.trace is not None
                self._learn(trace=replace(self._fitted.trace, stopped="interrupted"))
            score = self.scored(self.transport)
        self._learn(score=score)

    def _may_mend(self, going: UnderWay, score: Score | None, until: float) -> bool:
        """Whether the map falls short, and there is time for another training, which is set up."""
        trace = self._fitted.trace
        assert trace is not None
        if score is None or trace.stopped == "interrupted" or clock.now() > until:
            return False
        short = score.short & going.audit.matters
        if self._fitted.mended >= self.policy.most_mends or not bool(short.any()):
            return False
        self._learn(mended=self._fitted.mended + 1)
        if going.enlarges:
            rows, progress = short.nonzero()[:, 0], going.settings["progress"]
            going.audit.enlarge(rows, deadline=until, progress=progress)
        pool = self._joined(going.audit, going.extra)
        going.again(covering(pool, self.generator, self.policy.covering))
        return True

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
