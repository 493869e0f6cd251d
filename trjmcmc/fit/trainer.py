"""How a map is trained unless told otherwise: audit, draws, objective, score, mend."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from ..draws import Pool
from ..errors import (
    BudgetError,
    ConfigurationError,
    ConvergenceError,
    ConvergenceWarning,
    UnreachableError,
    warn_user,
)
from ..grouping import same_rows
from ..pilot.audit import REPLICATES, SCORED, Audit
from ..pilot.given import user_pool
from ..pilot.modes import Modes, find_modes
from ..pilot.report import AGREEMENT, Score
from ..pilot.through_emcee import emcee_pool
from ..space.codes import distinct
from ..target.resolution import WIDE, spacing
from ..target.target import Target
from ..transport.base import Transport
from ..transport.laplace import Laplace
from ..weights.base import ModelWeights
from .locate import locate
from .objective import ForwardKL, Objective
from .reverse import ReverseKL
from .trace import FitTrace
from .train import train
from .units import calibrate, unwrap

FEW_MODELS = 64  # most models that are audited one by one

POOLED = 256  # models looked at to standardise the coordinates of a large space

TRAINING_COST = 20  # evaluations of a cheap likelihood in the time of one training draw, or more

AUDIT_SHARE = 0.45  # of a limit on evaluations; the rest of a fit's goes to importance sampling

FRUGAL_TEMPERATURES = 9  # that an audit within a limit is planned for, the prior included

FEW_DRAWS = 200  # distinct draws a model below which a map is not trained on them

ENOUGH_FOR_A_SCALE = 20  # distinct draws of a model

SPOTS = 8  # most models of a large space that are audited

WORTH_A_SPOT = 0.02  # share of the visits from which they are

MENDS = 2  # times that a map is trained again because the audit finds it short

MODE_DRAWS = 2000  # draws among which modes are looked for

SURVEY, SURVEYED = 2400, (25, 300)  # particles of a survey: in all, and by model and replicate

SURVEY_MOVES = 20

SURVEY_SECONDS = 60.0  # most that it takes where likelihoods are dear, about

SURVEY_SHARE = 0.2  # of the time of a run that is limited, for its survey

AUDIT_TIME = 0.4  # of the time of a fit that is limited, for its audit

SMC_COST = 4.0  # times the price of a tempered run's likelihoods, gradients included, that it takes

TRAINING_TIME = 0.8  # of what is left of it then, for training; the rest to look at the map

DRAWS_A_SECOND = 10_000  # of the time left, that are drawn from an audit at a time

LEAST_DRAWS = 100  # a model, however short the time

TRIED_DRAWS = 8  # a model, whose price under a map is taken

FEWEST_SCORED = 200  # a model, from where they say what share of a posterior a map covers

SCORE_SHARE = 0.1  # of the time left, for that

MODES_SHARE = 0.03  # of the time left, for modes among MODE_DRAWS draws of each model

FEW_MODE_DRAWS = 200  # where that is spent

PRICED = 256  # evaluations whose price is taken

TRIAL = 3  # training steps whose price is taken

Pilot = bool | str | Mapping[Any, Mapping[str, Any]] | Pool | None


class Recipe:
    """Trains a map, and keeps what was found out on the way.

    Arguments:
        target: The target.
        transport: The map, changed in place.
        generator: Source of randomness.
        weights: Function that gives the distribution over models to learn beside the map, or
            None. It is asked where the map is trained by reverse KL.

    Attributes:
        weights: That distribution, once it has been learnt; else None.
        trace: Of the last training, or None.
        audit: Of the models of a small space, or None.
        score: What shares of the audited posteriors the map covers, or None.
        mended: How often the last fit was repeated because of the audit.
        modes: Modes of each audited model.
        scale: Typical width of each slot, shape (D,).
        spot: Audit of the models that a run in a large space visits most, or None.
        extra: Posterior draws from elsewhere to train on beside the audit's, or None.
        seconds: Wall time by stage.
        deadline: Time by ``time.monotonic`` at which the run that asks must be over. What has no
            deadline of its own is kept small against the time left.
    """

    def __init__(
        self,
        target: Target,
        transport: Transport,
        generator: torch.Generator,
        weights: Callable[[], ModelWeights] | None = None,
    ) -> None:
        self._weights = weights
        self.weights: ModelWeights | None = None
        self.target, self.transport, self.generator = target, transport, generator
        space = target.space
        self.few = space.size is not None and space.size <= FEW_MODELS
        self.trace: FitTrace | None = None
        self.audit: Audit | None = None
        self.score: Score | None = None
        self.mended = 0
        self.modes: list[Modes] = []
        self.scale: Tensor | float = 1.0
        self.spot: Audit | None = None
        self.extra: Pool | None = None
        self.seconds: dict[str, float] = {}
        self.deadline = math.inf
        self._audited = False  # whether the last fit was to be
        self._draft: Audit | None = None  # may be unfinished: a likelihood failed on the way

    def fit(
        self,
        *,
        steps: int = 2000,
        batch: int = 512,
        objective: Objective | None = None,
        pilot: Pilot = None,
        audit: bool | int = True,
        particles: int | None = None,
        moves: int | None = None,
        max_evaluations: int | None = None,
        mend_until: float = math.inf,
        deadline: float = math.inf,
        progress: bool = True,
        **options: Any,
    ) -> FitTrace:
        """Train; see :meth:`trjmcmc.TRJSampler.fit`.

        No mending begins after ``mend_until``, and all is to be done by ``deadline``, both by
        ``time.monotonic``; an audit that has to be hurried for it gives draws and no verdict.
        """
        self.score, self.mended, self.spot = None, 0, None
        self._audited = audit is not False and max_evaluations is None
        if not self.target.dim:  # models without parameters: there is nothing to map
            self.trace = FitTrace()
            return self.trace
        if max_evaluations is not None and max_evaluations < 1:
            raise ConfigurationError(f"max_evaluations: expected 1 or more, got {max_evaluations}")
        own = objective is None and pilot in (None, True)
        own = own and (self.few or not self.target.differentiable)
        self._check_pilot(pilot, objective)
        codes = self._models(own)
        until = _part(AUDIT_TIME, deadline)
        draft = self._audit_of(codes, particles, moves, max_evaluations, until)
        limit = None if max_evaluations is None else int(AUDIT_SHARE * max_evaluations)
        budget = TRAINING_COST * steps * batch if isinstance(audit, bool) else audit
        auditing = self.few and audit is not False
        if own or auditing:
            auditing &= self._grow(draft, budget, limit, until, progress)
        if auditing and draft.hurried:
            warn_user(
                "there was no time to audit the map: what it has lost would not be seen. Give the "
                "run more max_seconds, or fit() first",
                ConvergenceWarning,
            )
            auditing = False
        pool = self._pool(draft, pilot, progress, own)
        self._place(codes, pool, first=self.trace is None)
        if objective is None and pool is None and not self.target.differentiable:
            warn_user(
                "the map was not trained: there are neither pilot draws nor gradients. Sampling "
                'goes on with random walks; fit(pilot="emcee") or your own draws would help',
                ConvergenceWarning,
            )
            self.trace = FitTrace()
            return self.trace
        if objective is None:
            objective = self._reverse(learnt=True) if pool is None else self._covering(pool)
        shaped = int(self.target.space.active(codes).any(-1).sum())  # models with parameters
        if own and pool is not None and pool.distinct < FEW_DRAWS * shaped:
            steps = 0  # too few to learn a shape from: location and scale must do
        settings = {"steps": steps, "batch": batch, "progress": progress, **options}
        settings["deadline"] = _part(TRAINING_TIME, deadline)
        self.trace = self._train(objective, settings)
        self.seconds["fit"] = self.trace.seconds
        self.audit = None
        if self.few and draft.rounds:
            self._adopt(draft)
            self.seconds["pilot"] = draft.seconds
        if auditing and self.audit is not None:
            self._mend(draft, settings, larger=limit is None, until=min(mend_until, deadline))
        return self.trace

    # ---- before any training ----------------------------------------------------------------

    def survey(self, *, progress: bool = False) -> None:
        """A first, small audit of a small space: starts, rough evidences, draws.

        It is sized by the measured price of the likelihood, and by the time left where that is
        limited; :meth:`fit` lets it grow.
        """
        if not self.few or not self.target.dim or self.audit is not None:
            return
        codes, until = self.target.space.enumerate(), _part(SURVEY_SHARE, self.deadline)
        each = min(SURVEYED[1], max(SURVEYED[0], SURVEY // (REPLICATES * len(codes))))
        price = self.price(codes)
        affordable = min(SURVEY_SECONDS, (until - time.monotonic()) / SMC_COST) / price
        most, moves = _sizes_within(affordable, len(codes), SURVEY_MOVES)
        draft = Audit(
            self.target, codes, particles=min(each, most), moves=moves, generator=self.generator
        )
        begun = time.perf_counter()
        if self._grow(draft, 0, None, until, progress):
            self._adopt(draft)
            active = self.target.space.active(codes)
            self.scale = _typical_scale(active, self._moments(codes, self.draws())[1])
        self.seconds["survey"] = time.perf_counter() - begun

    def salvage(self) -> None:
        """Take up the finished rounds of an audit that was interrupted."""
        if self.audit is None and self.few and self._draft is not None and self._draft.rounds:
            self._adopt(self._draft)

    def survey_again(self, gap: float, *, progress: bool = False) -> None:
        """Enlarge the survey of models whose halves differ by more than ``gap`` nats."""
        audit = self.audit
        assert audit is not None
        begun = time.perf_counter()
        with suppress(UnreachableError, ConvergenceError, BudgetError):
            doubtful = ((audit.gap > gap) & audit.matters).nonzero()[:, 0]
            audit.enlarge(doubtful, deadline=_part(SURVEY_SHARE, self.deadline), progress=progress)
        self._adopt(audit)
        spent = time.perf_counter() - begun
        self.seconds["survey"] = self.seconds.get("survey", 0.0) + spent

    def price(self, codes: Tensor) -> float:
        """Seconds of one evaluation, in batches as large as chains make them."""
        code = codes[torch.arange(PRICED, device=codes.device) % len(codes)]
        theta = self.target.sample_prior(code, self.generator)
        theta = torch.where(theta.isfinite(), theta, 0.0)
        begun = time.perf_counter()
        with torch.no_grad():
            self.target.log_joint(code, theta)
        return (time.perf_counter() - begun) / PRICED

    def _adopt(self, audit: Audit) -> None:
        self.audit = audit
        self._find_modes(audit)

    def draws(self) -> Pool:
        """Those of the audit, fewer where time is short."""
        assert self.audit is not None
        return self.audit.pool(self._most_draws(self.audit))

    def _most_draws(self, audit: Audit) -> float:
        if math.isinf(self.deadline):
            return math.inf
        left = max(0.0, self.deadline - time.monotonic())
        return max(LEAST_DRAWS * len(audit.code), DRAWS_A_SECOND * left)

    def scored(self, transport: Transport) -> Score | None:
        """What the audit says of a map; nothing if it had to be hurried, or there is no time."""
        audit = self.audit
        if audit is None or audit.hurried:
            return None
        if math.isinf(self.deadline):
            return audit.score(transport)
        begun = time.monotonic()
        audit.score(transport, TRIED_DRAWS)
        each = (time.monotonic() - begun) / TRIED_DRAWS  # seconds of one a model
        affordable = SCORE_SHARE * max(0.0, self.deadline - begun) / each
        if affordable < FEWEST_SCORED:
            return None
        return audit.score(transport, int(min(SCORED, affordable)))

    def training_step(self, extra: Pool | None) -> float:
        """Seconds of one step of training, found on a copy of the map."""
        trial = copy.deepcopy(self.transport)
        objective: Objective
        if self.audit is not None:
            pool = self.draws()
            objective = self._covering(pool if extra is None else pool.joined(extra))
        else:
            objective = self._reverse(learnt=False)
        with torch.enable_grad():  # a run may ask in its midst
            train(trial, objective, steps=1, generator=self.generator, progress=False)
            begun = time.perf_counter()  # the first optimiser of a process takes a second to load
            train(trial, objective, steps=TRIAL, generator=self.generator, progress=False)
        return (time.perf_counter() - begun) / TRIAL

    def audit_cost(self, steps: int, batch: int = 512) -> float:
        """Seconds until the halves of the audit agree, or its budget is spent, by guess."""
        audit = self.audit
        if audit is None:
            return 0.0
        gap = audit.gap[audit.matters]
        worst = float(gap.nan_to_num(1.0, 1.0).max()) if len(gap) else 0.0
        most = TRAINING_COST * steps * batch / max(audit.evaluations, 1)
        return audit.seconds * min(most, max(0.0, (worst / AGREEMENT) ** 2 - 1))

    # ---- where draws come from --------------------------------------------------------------

    def _check_pilot(self, pilot: Pilot, objective: Objective | None) -> None:
        if pilot is True and not self.few:
            raise ConfigurationError(
                f"pilot: a pilot run visits each model and takes {FEW_MODELS} at most; this space "
                f"has {self.target.space.size}"
            )
        if pilot is False and objective is None and not self.target.differentiable:
            raise ConfigurationError(
                "pilot: a likelihood without gradients needs draws to train on; leave pilot "
                'out, or pass "emcee" or your own draws'
            )
        if isinstance(pilot, str) and pilot != "emcee":
            raise ConfigurationError(f'pilot: expected a bool, "emcee" or draws, got {pilot!r}')

    def _models(self, own: bool) -> Tensor:
        space = self.target.space
        if self.few:
            return space.enumerate()
        pooled = distinct(space.sample_prior(POOLED, self.generator))[0]
        return pooled[:FEW_MODELS] if own else pooled

    def _audit_of(
        self,
        codes: Tensor,
        particles: int | None,
        moves: int | None,
        limit: int | None,
        until: float,
    ) -> Audit:
        """The audit as far as it is there, or a new one."""
        settings = {"particles": particles, "moves": moves or 30}
        if limit is not None:
            sizes = _sizes_within(int(AUDIT_SHARE * limit), len(codes), moves or 30)
            settings = dict(zip(settings, sizes, strict=True))
        known = self._draft
        if known is not None and torch.equal(known.code, codes):
            asked = particles is not None or moves is not None or limit is not None
            if not asked or (known.particles, known.moves) == tuple(settings.values()):
                return known
        if particles is None and limit is None and not math.isinf(until) and self.few:
            affordable = (until - time.monotonic()) / (SMC_COST * self.price(codes))
            most, fewer = _sizes_within(affordable, len(codes), moves or 30)
            usual = Audit(self.target, codes, generator=self.generator).particles
            if most < usual:
                settings = {"particles": most, "moves": fewer}
        return Audit(self.target, codes, generator=self.generator, **settings)  # type: ignore[arg-type]

    def _grow(
        self,
        audit: Audit,
        budget: int | None,
        limit: int | None,
        until: float,
        progress: bool,
    ) -> bool:
        """Run the audit; False, with a warning, where a posterior can't be reached."""
        self._draft = audit
        try:
            audit.grow(budget, limit=limit, deadline=until, progress=progress)
        except (UnreachableError, ConvergenceError, BudgetError) as error:
            self._draft = None
            warn_user(
                f"no pilot run and no audit: {error}",
                ConvergenceWarning,
            )
            return False
        return True

    def _pool(self, audit: Audit, pilot: Pilot, progress: bool, own: bool) -> Pool | None:
        if pilot == "emcee":
            return emcee_pool(self.target, audit.code, generator=self.generator, progress=progress)
        if isinstance(pilot, Pool):
            return pilot
        if isinstance(pilot, Mapping):
            return user_pool(self.target, pilot)
        return self._draws(audit) if own and audit.rounds else None

    def _draws(self, audit: Audit) -> Pool:
        """Those of the audit, and of an earlier run's warm-up: nothing is evaluated again."""
        pool = audit.pool(self._most_draws(audit))
        return pool if self.extra is None else pool.joined(self.extra)

    # ---- training ---------------------------------------------------------------------------

    def _place(self, codes: Tensor, pool: Pool | None, first: bool) -> None:
        """Standardise the map's coordinates; later fits go on from the map as it is."""
        active = self.target.space.active(codes)
        if pool is not None:
            loc, scale = self._moments(codes, pool)
        else:
            loc = torch.zeros(active.shape, dtype=self.target.dtype, device=self.target.device)
            scale = torch.ones_like(loc)
            if self.target.differentiable:
                with suppress(BudgetError):  # the map then starts from standard units
                    loc, scale = locate(self.target, codes, self.generator)
        loc, scale = torch.where(active, loc, 0.0), torch.where(active, scale, 1.0)
        self.scale = _typical_scale(active, scale)
        if not first:
            return
        transport = self.transport
        if pool is not None:
            transport, theta = unwrap(transport, pool.code, pool.theta)
            if transport is not self.transport:
                loc, scale = self._moments(codes, Pool(pool.code, theta, pool.log_joint))
                loc, scale = torch.where(active, loc, 0.0), torch.where(active, scale, 1.0)
        calibrate(transport, codes, loc, scale)

    def _moments(self, codes: Tensor, pool: Pool) -> tuple[Tensor, Tensor]:
        """Means and standard deviations of the draws of each model, shape (M, D)."""
        loc = pool.theta.new_zeros(len(codes), self.target.dim)
        scale = torch.ones_like(loc)
        for m, code in enumerate(codes):
            mine = pool.theta[(pool.code == code).all(-1)]
            if len(mine):
                loc[m] = mine.mean(0)
            if len(same_rows(mine).unique()) >= ENOUGH_FOR_A_SCALE:
                scale[m] = torch.maximum(mine.std(0), WIDE * spacing(loc[m])).clamp(min=1e-6)
        return loc, scale

    def _reverse(self, learnt: bool) -> ReverseKL:
        """Reverse KL, beside which q(m) is learnt if that was asked for."""
        settings: dict[str, Any] = {}
        if isinstance(self.transport, Laplace):  # near the posterior from the start
            settings["anneal"] = 0.0
        if self._weights is not None and learnt:
            self.weights = self.weights or self._weights()
            settings["weights"] = self.weights
        return ReverseKL(self.target, **settings)

    def _covering(self, pool: Pool) -> ForwardKL:
        return ForwardKL(pool.code, pool.theta, log_joint=pool.log_joint, generator=self.generator)

    def _train(
        self, objective: Objective, settings: dict[str, Any], label: str = "fit"
    ) -> FitTrace:
        return train(self.transport, objective, generator=self.generator, label=label, **settings)

    def _mend(self, audit: Audit, settings: dict[str, Any], larger: bool, until: float) -> None:
        """Score the map on draws that were kept back; train it again where it falls short."""
        assert self.trace is not None
        score = self.scored(self.transport)
        half = {**settings, "steps": settings["steps"] // 2}
        while half["steps"] and self.mended < MENDS and self.trace.stopped != "interrupted":
            if score is None or time.monotonic() > until:
                break
            short = score.short & audit.matters
            if not bool(short.any()):
                break
            self.mended += 1
            if larger:
                audit.enlarge(short.nonzero()[:, 0], deadline=until, progress=settings["progress"])
            again = self._train(self._covering(self._draws(audit)), half, "mend")
            self.seconds["fit"] += again.seconds
            if again.stopped == "interrupted":
                self.trace.stopped = "interrupted"
            score = self.scored(self.transport)
        self.score = score

    def spot_check(self, visited: Tensor, seconds: float, progress: bool) -> None:
        """In a large space, audit the models that chains visit most; nothing is trained.

        Arguments:
            visited: Models of posterior draws, shape (N, L).
            seconds: That it may take, about; none is made where it would have to be too small.
            progress: Show a bar.
        """
        if self.few or not self._audited or self.spot is not None or not self.target.dim:
            return
        models, _, counts = distinct(visited)
        order = counts.argsort(descending=True)[:SPOTS]
        codes = models[order[counts[order] >= WORTH_A_SPOT * len(visited)]]
        if not len(codes):
            return
        sizes: dict[str, Any] = {}
        if seconds < math.inf:
            limit = int(max(0.0, seconds) / (SMC_COST * self.price(codes)))
            particles, sizes["moves"] = _sizes_within(limit, len(codes), SURVEY_MOVES)
            if particles < SURVEYED[0]:
                return
            sizes["particles"] = min(particles, SURVEYED[1])
        audit = Audit(self.target, codes, generator=self.generator, **sizes)
        try:
            audit.grow(0, deadline=time.monotonic() + seconds, progress=progress)
        except (UnreachableError, ConvergenceError):
            return
        if audit.hurried:
            return
        self.spot, self.score = audit, audit.score(self.transport)
        self._find_modes(audit)
        self.seconds["audit"] = audit.seconds

    def _find_modes(self, audit: Audit) -> None:
        """Those of each model, among fewer draws once time gets short."""
        self.modes = []
        until = _part(MODES_SHARE, self.deadline)
        for m, active in enumerate(self.target.space.active(audit.code)):
            draws = MODE_DRAWS if time.monotonic() < until else FEW_MODE_DRAWS
            theta, *_ = audit.draw(torch.full((draws,), m, device=self.target.device))
            self.modes.append(find_modes(theta, active))


def _part(share: float, deadline: float) -> float:
    """When a share of the time left has passed, by ``time.monotonic``."""
    now = time.monotonic()
    return now + share * max(0.0, deadline - now)


def _typical_scale(active: Tensor, scale: Tensor) -> Tensor:
    """Geometric mean, over the models that use a slot, of its standard deviations, shape (D,)."""
    count = active.sum(0).clamp(min=1)
    return (torch.where(active, scale.log(), 0.0).sum(0) / count).exp()


def _sizes_within(limit: float, models: int, moves: int) -> tuple[int, int]:
    """Particles and moves of an audit that takes about ``limit`` evaluations."""
    each = max(0.0, limit) / (models * REPLICATES * FRUGAL_TEMPERATURES)
    moves = min(moves, max(3, round(each**0.5)))
    return max(4, int(each / (1 + moves))), moves
