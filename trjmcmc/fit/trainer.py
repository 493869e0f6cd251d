"""How a map is trained unless told otherwise: audit, draws, objective, score, mend."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .. import clock
from ..draws import Pool
from ..errors import ConfigurationError, ConvergenceWarning, warn_user
from ..pilot.audit import Audit
from ..pilot.report import Score
from ..pilot.survey import PilotRuns
from ..promises import MODELS_ONE_BY_ONE
from ..space.codes import distinct
from ..target.target import Target
from ..transport.base import Standardisable, Transport
from ..transport.laplace import LaplaceMap
from ..weights.base import ModelWeights
from .fitted import Fitted
from .locate import DRAWS, ITERATIONS, located
from .objective import Objective, covering
from .reverse import ReverseKL, goes_back_cheaply
from .source import Pilot, given_draws, source
from .standardise import moments, standardise
from .starts import BUDGET_SHARE, Limits, start_better
from .trace import FitTrace
from .train import BATCH, STEPS, train

AUDIT_TIME = 0.4  # share of the time of a limited fit for its audit

AUDIT_SHARE = 0.45  # of a limit on evaluations for it; the rest goes to importance sampling

TRAINING_TIME = 0.8  # share of what is left after it for training; the rest scores the map

STANDARDISED = 256  # models of a large space whose coordinates are located before training

LOCATING_SHARE = 0.5  # evaluations for that, over those of the training

FEWEST_LOCATED = 4  # models at least

FEWEST_DRAWS = 200  # distinct ones a model below which location and scale are all that is learnt
# from them: a flow would fit each draw

EVALUATIONS_A_DRAW = 20  # of an audit, for each training draw: as long as the training

MOST_MENDS = 2  # times that a map is trained again because the audit finds it short

MENDING = 0.5  # steps of a training because of the audit, over those of the fit


class Trainer:
    """Trains a map, and knows what was found out on the way.

    Arguments:
        target: The target.
        transport: The map, changed in place.
        generator: Source of randomness.
        weights: Function that gives the distribution over models to learn beside the map, or
            None. It is asked where the map is trained by reverse KL.

    Attributes:
        pilot: The pilot runs, which owe nothing to the map.

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.transport import CosmicFlow
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
    ) -> None:
        self.target, self.transport, self.generator = target, transport, generator
        self._make_weights = weights
        self.pilot = PilotRuns(target, generator)
        self._fitted = Fitted(transport, few=target.space.few)

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
        deadline: float = math.inf,
        progress: bool = True,
        **options: Any,
    ) -> Fitted:
        """Train, audit what was learnt, and train again where it falls short.

        See :meth:`trjmcmc.TRJSampler.fit` for the arguments not named here.

        Arguments:
            deadline: Time by :func:`trjmcmc.clock.now` by which all is to be done; an audit that
                has to be hurried for it gives draws and no verdict.

        Returns:
            All that is known then; also what earlier fits and runs have found.

        Raises:
            ConfigurationError: Settings that contradict each other.
            TargetError: Pilot draws outside a prior's support.
        """
        self._learn(score=None, mended=0)
        if not self.target.dim and self._make_weights is None:  # there is nothing to map
            return self._learn(trace=FitTrace())
        if max_evaluations is not None and max_evaluations < 1:
            raise ConfigurationError(f"max_evaluations: expected 1 or more, got {max_evaluations}")
        few = self._fitted.few
        pilot = source(self.target, by, pilot, otherwise=objective is not None)
        own = objective is None and pilot in (None, True)
        own = own and (few or by == "pilot" or not self.target.differentiable)
        codes = self._models(own)
        until = clock.part_of_the_time_left(AUDIT_TIME, deadline)
        limit = None if max_evaluations is None else int(AUDIT_SHARE * max_evaluations)
        end = until if few else math.inf
        draft = self.pilot.planned(
            codes, particles=particles, moves=moves, evaluations=limit, deadline=end
        )
        steps = STEPS if steps is None else steps
        batch = BATCH if batch is None else batch
        budget = EVALUATIONS_A_DRAW * steps * batch if isinstance(audit, bool) else audit
        auditing = few and audit is not False
        if own or auditing:
            auditing &= self.pilot.grow(
                draft, budget, limit=limit, deadline=until, progress=progress
            )
        auditing = auditing and unhurried(draft)
        pool = given_draws(self.target, pilot)
        if pool is None and own and draft.rounds:
            pool = draft.pool()
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
        if own and pool is not None and pool.distinct < FEWEST_DRAWS * shaped:
            settings["steps"] = 0  # too few to learn a shape from: location and scale must do
        before = clock.now() - limits.begun if tried.step else 0.0
        settings["deadline"] = clock.part_of_the_time_left(TRAINING_TIME, deadline)
        settings["progress"] = progress
        trace = self._train(objective, settings)
        self._learn(trace=replace(trace, by=name), audit=None)
        self._spend("fit", before + trace.seconds)
        if few and draft.rounds:
            self._adopt(draft)
            self._spend("pilot", draft.seconds)
        if auditing and self._fitted.audit is not None:
            settings["steps"] = int(settings["steps"] * MENDING) if by != "vi" else 0
            self._mend(draft, settings, limit is None, deadline)
        return self._fitted

    def _models(self, own: bool) -> Tensor:
        """Models to standardise the map by, and to audit if draws of its own are needed."""
        space = self.target.space
        if self._fitted.few:
            return space.enumerate()
        some = space.sample_prior(STANDARDISED, self.generator)
        models = distinct(some)[0]
        return models[:MODELS_ONE_BY_ONE] if own else models

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
        if pool is None and not self._fitted.few:
            most = LOCATING_SHARE * settings["steps"] * settings["batch"] / (DRAWS * ITERATIONS)
            codes = codes[: max(FEWEST_LOCATED, int(most))]
        active = self.target.space.active(codes)
        if pool is not None:
            loc, scale = moments(pool, codes, active)
        else:
            until = clock.part_of_the_time_left(BUDGET_SHARE, limits.deadline)
            share = BUDGET_SHARE * limits.evaluations
            loc, scale = located(self.target, codes, self.generator, until, share)
        if self._fitted.trace is not None:
            return FitTrace()
        if not (by == "vi" and self._fitted.few and isinstance(self.transport, Standardisable)):
            standardise(self.transport, codes, loc, scale, pool)
            return FitTrace()
        shortly = partial(self._train, self._reverse(learnt=False, by=by))
        given = (self.transport, self.target, codes, (loc, scale), shortly, settings)
        return start_better(*given, self.generator, limits)

    def _objective(self, pool: Pool | None, by: str | None = None) -> Objective | None:
        """By draws where there are any, else by gradients; None, with a warning, without both."""
        if pool is not None:
            return covering(pool, self.generator)
        if self.target.differentiable:
            return self._reverse(learnt=True, by=by)
        warn_user(
            "the map was not trained: there are neither pilot draws nor gradients. Sampling "
            "goes on with random walks; draws of your own would help",
            ConvergenceWarning,
        )
        return None

    def _reverse(self, learnt: bool, by: str | None = None) -> ReverseKL:
        """Reverse KL, beside which q(m) is learnt if that was asked for."""
        near, cheap = isinstance(self.transport, LaplaceMap), goes_back_cheaply(self.transport)
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
        settings: Mapping[str, Any],
        label: str = "fit",
        transport: Transport | None = None,
    ) -> FitTrace:
        return train(
            self.transport if transport is None else transport,
            objective,
            generator=self.generator,
            label=label,
            **settings,
        )

    def _mend(
        self, audit: Audit, settings: Mapping[str, Any], enlarges: bool, until: float
    ) -> None:
        """Score the map on draws that were kept back; train it again where it falls short.

        Arguments:
            audit: Of the fit.
            settings: Of another training; without steps there is none.
            enlarges: Whether the audit grows before it.
            until: Time by :func:`trjmcmc.clock.now` after which none begins.
        """
        score = self._scored()
        while settings["steps"] and score is not None and clock.now() <= until:
            known, short = self._fitted, score.short & audit.matters
            assert known.trace is not None
            if known.trace.stopped == "interrupted" or not bool(short.any()):
                break
            if known.mended >= MOST_MENDS:
                break
            self._learn(mended=known.mended + 1)
            if enlarges:
                rows, progress = short.nonzero()[:, 0], settings["progress"]
                audit.enlarge(rows, deadline=until, progress=progress)
            objective = covering(audit.pool(), self.generator)
            again = self._train(objective, settings, "mend")
            self._spend("fit", known.seconds["fit"] + again.seconds)
            if again.stopped == "interrupted":
                self._learn(trace=replace(known.trace, stopped="interrupted"))
            score = self._scored()
        self._learn(score=score)

    # ---- pilot runs -------------------------------------------------------------------------

    def _adopt(self, audit: Audit) -> None:
        self._learn(audit=audit, modes=self.pilot.modes(audit))

    def _scored(self) -> Score | None:
        """What the audit says of the map; nothing if it had to be hurried."""
        audit = self._fitted.audit
        return None if audit is None or audit.hurried else audit.score(self.transport)


def unhurried(audit: Audit) -> bool:
    """Whether an audit can judge a map; where there was no time for it, a warning says so."""
    if audit.hurried:
        warn_user(
            "there was no time to audit the map: a mode that it has lost would not show. Give the "
            "run more max_seconds, or fit() first",
            ConvergenceWarning,
        )
    return not audit.hurried
