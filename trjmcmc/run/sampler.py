"""The facade: from a target to a result."""

from __future__ import annotations

import copy
import math
import secrets
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..draws import FEWEST as KEPT
from ..draws import STORED, Draws, Pool, Recorder
from ..errors import (
    ConfigurationError,
    ConvergenceError,
    InterruptedWarning,
    TargetError,
    TRJError,
    warn_user,
)
from ..estimate.estimate import Estimate
from ..estimate.importance import (
    FIRST_DRAWS,
    MOST_DRAWS,
    enough_weights,
    log_mean_weight,
    pareto_k,
    rounded,
    weighted_points,
)
from ..estimate.mean import MANY_CHAINS
from ..estimate.routes import MIRRORED, through_the_map
from ..fit.objective import Objective
from ..fit.trace import FitTrace
from ..fit.trainer import FEW_MODELS, Recipe
from ..kernel.base import Kernel, State, start
from ..pilot.report import AuditReport, by_audit
from ..pilot.screening import Screening, screen
from ..pilot.smc import TemperedSMC
from ..progress import progress_bar
from ..result.alarms import warn_of_coverage
from ..result.report import Plan, RunReport
from ..result.result import SHOWN, Result
from ..result.variational import Variational, variational
from ..space.base import Space, several
from ..space.codes import distinct
from ..target.exchangeable import components_of
from ..target.target import Target
from ..transport.base import Transport
from ..transport.laplace import Laplace
from ..transport.normals import gaussian_mixture
from ..weights.base import ModelWeights
from .choose import Auto
from .choose_components import AutoComponents
from .count import Crossings, Tally, Visits
from .loop import Chains, joined, run_chains, warm_up
from .maps import default_map, default_weights, matching
from .moves import STEP_EVALUATIONS, log_guess, plain_kernel, trained_kernel
from .start import CANDIDATES, starting_state
from .stop import Enough
from .threads import fastest_threads

FIT_SHARE = 0.75  # of a limit on the evaluations, or the time, of a run

FRUGAL_STEPS = 100  # at least that chains make where evaluations are limited

STARTS = 64  # particles a model that starts are picked from where no pilot run was made

TAUGHT = 20_000  # draws of a run that a map may be trained on

START_SHARE = 0.2  # of the time left, for the chains' starts

SPOT_SHARE = 0.2  # of the time left, for an audit of the models that are visited most

DEAR = 1e9  # models times coordinates cubed: beyond it covariances cost more than they help

PROBES = 64  # points at which a map is checked

ROUND_TRIP = 0.05  # largest error of a map there and back

FEWEST = 64  # chains that warm up where components are counted

LEAST_STARTS = 0.1  # possible prior draws a chain

CELLS = 2**18  # numbers that the sums of all chains may take there

CHAINS, MANY = 256, 512  # of a run of so many draws; of one until it is precise: measured best

WARP_SHARE = 0.1  # of the evaluations of a run, for the symmetrised bridge

WARM_SHARE = 0.1  # of the time of a run that is limited by it

SAMPLE_SHARE = 0.35  # of that time, which pilot, choice and warm-up leave for sampling

SETTLE_SHARE = 0.5  # of the time left for warm-up, that its steps may take; then models are weighed

REHEARSED = (0.15, 0.3)  # of the time left, when summing up is rehearsed for the first, second time

REHEARSAL_SHARE = 0.1  # of the time left, that a first rehearsal may take for a second to follow

SUM_SHARE = 0.08  # of the time left, that summing up may grow to: beyond, draws are thinned

TRIED = 64  # draws of a map whose price is taken where time is limited

LAST_SECOND = 1.0  # of sampling, where the user has interrupted what comes before it

SCREEN_SHARE, SCREEN_AHEAD = 0.2, 0.1  # of the time so far, or if that is more of the time left,

SCREEN_SECONDS = (0.5, 2.0)  # but not less nor more than this, for climbs of prior draws

SCREEN_EVALUATIONS = 4  # of a draw, at the price of small batches

FEWEST_SCREENED, MOST_SCREENED = 1000, 1_000_000  # prior draws a model

MOST_BLIND = 2048  # of them where they can't climb

PRECISION = 0.01  # standard error of a probability that a fit is worth its time for

MakeTransport = Callable[[Space], Transport]

MakeWeights = Callable[[Space], ModelWeights]

MakeKernel = Callable[[Target, Transport], Kernel]


@dataclass
class _Way:
    """How far a run has come: what is there where the user interrupts it."""

    stage: str = "the start"
    chooser: Auto | None = None
    kernel: Kernel | None = None
    state: State | None = None
    ancestor: Tensor | None = None  # the independent draw that each chain descends from
    chain: Chains | None = None
    tally: Tally | None = None
    plan: Plan = field(default_factory=Plan)
    screening: tuple[Screening, ...] = ()
    missed: str = ""
    rescued: bool = False  # whether it has been interrupted


class TRJSampler:
    """Samples a posterior over models and parameters by transport reversible jumps.

    Arguments:
        target: The target.
        transport: A map, or a function that makes one from the bound space, such as
            ``lambda space: CosmicFlow(space, layers=12)``; a :class:`CosmicFlow` by default.
        kernel: A kernel, or a function of (target, transport) that makes one; the map is then
            trained in full before the first run, unless ``fit=False``. By default the run
            chooses, see :meth:`run`; after a full fit a transport jump to another model, a
            Crank-Nicolson move in reference space and random walks in plain coordinates.
        models: The distribution over models that :meth:`fit` learns where it trains by reverse
            KL: a :class:`~trjmcmc.fit.ModelWeights` over ``target.space``, or a function that
            makes one from the space, such as ``trj.Made``. By default an autoregressive network
            in spaces of more than 64 models, none in smaller ones.
        seed: Any integer; drawn and recorded if omitted. With ``run(fit=True)`` or
            ``fit=False`` the same seed, device and versions give identical draws (unless an
            audit had to end after its two minutes); ``fit="auto"`` chooses by measured times.
        device: Where to compute, e.g. ``"cuda"``; tensors inside your likelihood must be there.
        dtype: ``torch.float32`` (default, as torch's) or ``torch.float64``.

    Attributes:
        target, transport: As used, in the precision and on the device asked for.
        fit_trace: Trace of the training, once there was one.
        audit_report: What the audit said of the map, once there was one.
        variational: The answer of the fit alone, where it learnt a distribution over models.

    Raises:
        ConfigurationError: A kernel that can't move between models, or inside them.

    Source:
        Yin & Jiao, Algorithm 3; Davies et al. (2023), https://arxiv.org/abs/2210.12572

    Example:
        >>> import trjmcmc as trj
        >>> sampler = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=1)
        >>> trace = sampler.fit(steps=200, progress=False)
        >>> result = sampler.run(draws=200, chains=64, warmup=50, progress=False)
        >>> bool(abs(result.model_probabilities().loc["2d", "visits"] - 0.75) < 0.05)
        True
    """

    fit_share = FIT_SHARE  # of the time of a run

    def __init__(
        self,
        target: Target,
        transport: Transport | MakeTransport | None = None,
        kernel: Kernel | MakeKernel | None = None,
        *,
        models: ModelWeights | MakeWeights | None = None,
        seed: int | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if not isinstance(target, Target):
            raise TargetError(f"target: expected a trj.Target, got {type(target).__name__}")
        if dtype not in {None, torch.float32, torch.float64}:
            raise ConfigurationError(f"dtype: expected torch.float32 or float64, got {dtype}")
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise ConfigurationError(f"device: {device!r} is not there ({error})") from None
        self.target = target.to(dtype=dtype, device=device)
        self.seed = secrets.randbits(31) if seed is None else int(seed)
        self._generator = torch.Generator(self.target.device).manual_seed(self.seed)
        space = self.target.space
        self._given_map = transport is not None
        if transport is None:
            transport = default_map(self.target, self.seed)
        elif not isinstance(transport, Transport):
            transport = transport(space)
        self.transport = matching(transport, self.target)
        self._make_kernel: MakeKernel = self._default_kernel
        self._own_kernel = kernel is not None
        self._simple: Transport | None = None  # a map of fitted normals, where that was enough
        if isinstance(kernel, Kernel):
            self._make_kernel = lambda target, transport: kernel
        elif callable(kernel):
            self._make_kernel = kernel
        elif kernel is not None:
            raise ConfigurationError(
                "kernel: expected a trj.kernel.Kernel, or a function of (target, transport) that "
                f"makes one, got {kernel!r}; several kernels in turn are a trj.kernel.Cycle"
            )
        self._log_mass: dict[str, Estimate] = {}
        self._mirrors = 0.0  # seconds that are kept for the symmetrised bridge
        self._late = False  # whether the last run was ended by its time
        self._way = _Way()
        self._weights: dict[str, Tensor] = {}  # log weights of the map's draws, by model
        self._stamp: tuple[Any, ...] = ()  # of the map that they belong to
        self._seconds: dict[str, float] = {}
        self.audit_report: AuditReport | None = None
        self._before = self.target.evaluations, self.target.gradients
        self._reported = False  # whether what was spent so far is in a run's report
        self._told: FitTrace | None = None  # the training that it speaks of
        weights = self._weights_maker(models)
        self._recipe = Recipe(self.target, self.transport, self._generator, weights)
        self.variational: Variational | None = None
        self._check_kernel(self._make_kernel(self.target, self.transport))

    def _weights_maker(
        self, models: ModelWeights | MakeWeights | None
    ) -> Callable[[], ModelWeights] | None:
        space = self.target.space
        if models is None:
            few = space.size is not None and space.size <= FEW_MODELS
            return None if few else lambda: default_weights(space)
        if not isinstance(models, ModelWeights) and callable(models):
            models = models(space)
        fits = isinstance(models, ModelWeights) and models.space.code_width == space.code_width
        if not fits:
            raise ConfigurationError(
                "models: expected a trj.fit.ModelWeights over the target's space, or a function "
                f"of the space that makes one, such as trj.Made; got {models!r}"
            )
        return lambda: models.to(self.target.device)

    def _check_kernel(self, kernel: Kernel) -> Kernel:
        if not isinstance(kernel, Kernel):
            raise ConfigurationError(f"kernel: expected a trj.kernel.Kernel, got {kernel!r}")
        if several(self.target.space) and not kernel.between:
            raise ConfigurationError(
                "kernel: nothing in it moves between models; add trj.kernel.Jump with a proposal"
            )
        if self.target.dim and not kernel.within:
            raise ConfigurationError(
                "kernel: nothing in it moves inside a model, so that the chain can't reach "
                "everything; add trj.kernel.CrankNicolson or RandomWalk, or a Jump with rho < 1"
            )
        return kernel

    # ---- training ---------------------------------------------------------------------------

    def fit(
        self,
        *,
        steps: int = 2000,
        batch: int = 512,
        objective: Objective | None = None,
        pilot: bool | str | Mapping[Any, Mapping[str, Any]] | Pool | Result | None = None,
        audit: bool | int = True,
        particles: int | None = None,
        moves: int | None = None,
        max_evaluations: int | None = None,
        progress: bool = True,
        **options: Any,
    ) -> FitTrace:
        """Train the map, and audit what it has learnt.

        With few models an audit comes first: independent runs of tempered sequential Monte
        Carlo from the prior, grown until their evidences agree. It finds modes that a map
        trained by reverse KL drops; the map is fitted to its draws by a mass-covering
        divergence, and scored on draws that were kept back. Where the map misses a part of a
        posterior it is trained again; if that fails, a warning names the models. Without a
        pilot (``pilot=False``, or more than 64 models) the map is trained by reverse KL, from
        the log joint's gradients alone, and with few models audited afterwards. Either way the
        sampler's answer is exact; training buys speed.

        If the likelihood fails on the way, calling ``fit`` again goes on where the audit stopped.
        A second fit trains on: the audit is kept (unless its size is changed), and draws of the
        last run's warm-up join in.

        Arguments:
            steps: Most training steps; it stops earlier on a plateau.
            batch: Draws a step.
            objective: Train on this objective instead.
            pilot: Draws to train on: True, those of the audit; ``"emcee"``; a
                :class:`~trjmcmc.Result`; your own, a dict by model label of parameters by name,
                shape (n, ...); False, none. None takes the audit's where the models are few or
                there are no gradients.
            audit: False leaves the audit out; an integer is the number of evaluations up to
                which it may grow. By default 20 a training draw, which takes the time of the
                training where the likelihood is cheap.
            particles: Particles a model and replicate of the audit's first round; 24 000
                shared among all, but 100 to 1000 each, if omitted.
            moves: Moves of each particle at each temperature, 30 if omitted.
            max_evaluations: Most likelihood calls, those of the importance sampling included.
            progress: Show progress bars.
            options: Further arguments of :func:`trjmcmc.fit.train`: ``learning_rate``,
                ``clip``, ``patience``.

        Returns:
            The trace; ``trace.plot()`` draws it.

        Raises:
            ConfigurationError: Settings that contradict each other.
            NonFiniteError: The likelihood is NaN or +inf somewhere; the point is named.
            BlackBoxError, PoolError: A black box or its pool failed.
        """
        trace = self._train_and_weigh(
            steps=steps,
            batch=batch,
            objective=objective,
            pilot=_as_pool(pilot, self.target.device, self.target.dtype),
            audit=audit,
            particles=particles,
            moves=moves,
            max_evaluations=max_evaluations,
            progress=progress,
            **options,
        )
        if self.audit_report is not None:
            warn_of_coverage(self.audit_report)
        return trace

    @property
    def models(self) -> ModelWeights | None:
        """The distribution over models, once :meth:`fit` has learnt one."""
        return self._recipe.weights

    @property
    def fit_trace(self) -> FitTrace | None:
        return self._recipe.trace

    def _train_and_weigh(self, *, max_evaluations: int | None = None, **settings: Any) -> FitTrace:
        self.audit_report, self._stamp = None, ()
        self._begin()
        with self._limited(max_evaluations) as left:
            trace = self._recipe.fit(max_evaluations=max_evaluations, **settings)
            self._simple = None
            if self._recipe.weights is not None:
                self.variational = self._variational(None)
            if self._recipe.score is not None:
                self._weigh(left(), _from_now(WARM_SHARE, self._recipe.deadline))
        return trace

    def _variational(self, draws: Draws | None) -> Variational | None:
        weights = self._recipe.weights
        if weights is None:
            return None
        with suppress(TRJError):  # no evaluations are left, or the likelihood fails out there
            return variational(self.target, weights, self.transport, self._generator, draws)
        return self.variational

    @contextmanager
    def _limited(self, evaluations: int | None) -> Iterator[Callable[[], int | None]]:
        """Hold the target to a number of evaluations; gives a function of what is left."""
        target, before = self.target, self.target.limit
        if evaluations is not None:
            if evaluations < 1:
                raise ConfigurationError(f"max_evaluations: expected 1 or more, got {evaluations}")
            target.limit = min(before, target.evaluations + evaluations)
        try:
            yield (
                lambda: None if math.isinf(target.limit) else int(target.limit - target.evaluations)
            )
        finally:
            target.limit = before

    def _weigh(self, evaluations: int | None = None, until: float = math.inf) -> None:
        """Importance-sampled evidence of every model of a small space.

        By ``until``, a time by ``time.monotonic``, it is done, with fewer draws; with none where
        there is no time for a few.
        """
        space = self.target.space
        self._outdated()
        if not self._recipe.few:
            return
        begun = time.perf_counter()
        codes = space.enumerate()
        if all(label in self._log_mass for label in space.label(codes)):
            return
        each = None if evaluations is None else evaluations // len(codes)
        if math.isfinite(until):
            if evaluations is not None and evaluations < 4 * TRIED:
                return
            pace = self._weighing_pace(codes) * len(codes)
            if evaluations is not None:  # the price was not for nothing
                each = (evaluations - 2 * TRIED) // len(codes)
            affordable = int(max(0.0, until - time.monotonic()) / pace)
            each = min(
                affordable if affordable > TRIED else 0, MOST_DRAWS if each is None else each
            )
        if each is not None and each < 2:
            return
        for code, label in zip(codes, space.label(codes), strict=True):
            if label not in self._log_mass:
                self._weigh_one(code, label, each)
        self._seconds["importance"] = time.perf_counter() - begun
        if self._recipe.score is not None:
            self.audit_report = self._report()

    def _weighing_pace(self, codes: Tensor) -> float:
        """Seconds of a weighed draw of the map, by the dearer of the first and last models."""
        seconds = []
        for code in codes[[0, -1]]:
            begun = time.perf_counter()
            weighted_points(self.target, self._map, code, TRIED, self._generator)
            seconds.append((time.perf_counter() - begun) / TRIED)
        return max(seconds)

    def _report(self) -> AuditReport:
        """The audit beside what the map says."""
        recipe = self._recipe
        audit, score = recipe.audit or recipe.spot, recipe.score
        assert audit is not None and score is not None
        self._outdated()
        labels = self.target.space.label(audit.code)
        for code, label in zip(audit.code, labels, strict=True):
            if label not in self._log_mass:
                self._weigh_one(code, label)
        log_prior = self.target.space.log_prior(audit.code).tolist()
        found = [self._log_mass[label] for label in labels]
        return audit.report(
            score,
            [len(m) for m in recipe.modes],
            [e.value - prior for e, prior in zip(found, log_prior, strict=True)],
            [e.std_error for e in found],
            recipe.mended,
            self._simple is not None,
        )

    def _outdated(self) -> bool:
        """Whether the weights known are none of the present map; if so they are forgotten."""
        tensors = [*self._map.parameters(), *self._map.buffers()]
        with torch.no_grad():
            sums = [float(t.double().sum()) for t in tensors if t.is_floating_point()]
        stamp = (self._map, *sums, *(t._version for t in tensors))  # changes in place count
        if stamp == self._stamp:
            return False
        self._stamp, self._log_mass, self._weights = stamp, {}, {}
        return True

    def _weigh_one(self, code: Tensor, label: str, evaluations: int | None = None) -> None:
        """Importance-sampled evidence of one model."""
        most = MOST_DRAWS if evaluations is None else evaluations
        if self._simple is not None:  # not worth more: it was made to jump through
            most = min(most, FIRST_DRAWS)
        elif not self._recipe.few:  # one of many
            most = min(most, 2 * FIRST_DRAWS)
        log_w = enough_weights(self.target, self._map, code, self._generator, most=most)
        self._weights[label] = log_w.cpu()
        self._log_mass[label] = rounded(log_mean_weight(log_w), self.target.dtype)

    def _default_kernel(self, target: Target, transport: Transport) -> Kernel:
        return trained_kernel(target, transport, self._recipe, self._guess())

    def _guess(self) -> Tensor | None:
        return log_guess(self._recipe, self._log_mass)

    def _starting_models(self, chains: int) -> Tensor:
        """From the guess where there is one, else from the model prior."""
        guess = self._guess()
        if guess is None:
            return self.target.space.sample_prior(chains, self._generator)
        pick = torch.multinomial(guess.exp(), chains, True, generator=self._generator)
        return self.target.space.enumerate()[pick]

    def _prior_draws(self, n: int) -> tuple[State, Tensor]:
        """Chains at draws from the prior where these are finite, and which draw each is at."""
        target, generator = self.target, self._generator
        found: list[State] = []
        for _ in range(CANDIDATES):
            code = target.space.sample_prior(n, generator)
            theta = target.sample_prior(code, generator)
            usable = theta.isfinite().all(-1)
            theta = torch.where(usable[:, None], theta, 0.0)
            log_joint = torch.where(usable, target.log_joint(code, theta), -math.inf)
            target.check_finite(code, theta, log_joint)
            fine = log_joint > -math.inf
            found.append(State(code[fine], theta[fine], log_joint[fine]))
            if sum(len(x.code) for x in found) > LEAST_STARTS * n:
                break
        code, theta, log_joint = (torch.cat(x) for x in list(zip(*found, strict=True))[:3])
        if not len(code):
            raise TargetError(
                f"no starting point with a finite density among {n * CANDIDATES} prior draws: "
                "is the likelihood -inf nearly everywhere?"
            )
        pick = torch.randint(len(code), (n,), generator=generator, device=code.device)
        each = torch.arange(n, device=code.device)
        pick = torch.where(each < len(code), each, pick)
        return State(code[pick], theta[pick], log_joint[pick]), pick

    def _prior_starts(
        self, code: Tensor, deadline: float = math.inf
    ) -> tuple[Tensor, Tensor] | None:
        """For each chain a prior draw carried to its model's posterior, and which one it was.

        Of very many models a few are carried; the chains in others start from Laplace's normals,
        or from the prior.
        """
        space = self.target.space
        if self._recipe.audit is not None:
            drawn, _, ancestor = self._recipe.audit.draw(space.index(code))
            return drawn, ancestor
        if not math.isinf(self.target.limit):
            return None
        codes, index, _ = distinct(code)
        theta: Tensor | None = None
        own = -1 - torch.arange(len(code), device=code.device)
        if len(codes) > FEW_MODELS:
            with torch.no_grad():
                theta = self.target.sample_prior(code, self._generator)
                if isinstance(self.transport, Laplace):
                    flow = self.transport.bare()
                    z = flow.reference.sample(
                        (len(code), self.target.dim), self._generator, self.target.dtype
                    )
                    theta, _ = flow.push(z, code)
            codes = codes[:: -(-len(codes) // FEW_MODELS)]
        alone = None if theta is None else (theta, own)
        if len(codes) * self.target.dim**3 > DEAR:
            return alone
        try:
            run = TemperedSMC(
                self.target,
                codes,
                particles=STARTS,
                moves=5,
                deadline=deadline,
                generator=self._generator,
            ).run()
        except (TargetError, ConvergenceError):
            return alone
        if theta is None:
            pick = run.draw(index, self._generator)
            return run.theta[pick], run.origin[pick]
        same = (code[:, None] == codes).all(-1)  # chain, carried model
        carried, which = same.any(1), same.int().argmax(1)
        pick = run.draw(which, self._generator)
        return (
            torch.where(carried[:, None], run.theta[pick], theta),
            torch.where(carried, run.origin[pick], own),
        )

    # ---- sampling ---------------------------------------------------------------------------

    def run(
        self,
        draws: int | None = None,
        *,
        chains: int | None = None,
        warmup: int | None = None,
        thin: int = 1,
        fit: bool | str = "auto",
        until: Mapping[str, float] | None = None,
        max_seconds: float | None = None,
        max_evaluations: int | None = None,
        progress: bool = True,
    ) -> Result:
        """Sample, with as much training as pays.

        By default chains start at once with classical moves and with jumps through normals
        fitted to a small pilot run. Warm-up measures how fast the model indicator forgets under
        each kind of move, per second; trains the map in rounds while another round costs less
        time than it saves for the precision asked for; then mixes the moves by what it measured
        and freezes everything. ``result.report.plan`` says what came of it. The choice rests on
        times, so two such runs differ; ``fit=True`` and ``fit=False`` give identical draws for
        identical seeds.

        Arguments:
            draws: Kept draws a chain; 1000, or if there is ``until`` or ``max_seconds`` as many
                as these allow. Beside ``until`` the most that are made.
            chains: Chains, advanced together. If omitted 256, or 512 if the number of draws is
                open, and then more where ``fit="auto"`` finds that a step of many costs little
                more than one of few.
            warmup: Steps left out at the start; half as many as are kept, and at least
                200, if omitted. With ``fit="auto"`` those that the choice takes and 60 more.
                Chains start from the map and from the prior.
            thin: Steps a kept draw; where the number of draws is open and memory is short it
                doubles.
            fit: ``"auto"``; True, train the map in full first if it was not trained here, and
                use the standard kernel; False, take the map as it is.
            until: ``{"probability": 0.01}``: stop as soon as the standard error of every model's
                probability (in a space of more than 64 models every unit's) is as small;
                ``{"log_bayes_factor": 0.05}``: that of the log Bayes factor, in nats, of every
                model of more than one percent to the most probable one (by the visits; 2 to 64
                models). Of both, when both are reached.
            max_seconds: Wall time after which to stop, all stages included, pilot run, audit and
                summing up too; kept within the larger of a second and a tenth where a step of
                all chains takes less. A third at least is left for sampling, a quarter where
                ``fit=True``.
            max_evaluations: Most likelihood calls of this run, its fit included. Three
                quarters go to a fit, the rest to as many chains and steps as they pay for;
                ``fit="auto"`` is then True.
            progress: Show a progress bar.

        Returns:
            The result. Ctrl-C returns the draws so far; in pilot run, training or warm-up it
            leaves them as they are, and a second of sampling follows. A warning says what the
            result rests on, and ``report.interrupted`` is True. A second Ctrl-C ends the call.

        Raises:
            ConfigurationError: A count below 1, a precision that is not known.
            NonFiniteError: A density was NaN or +inf; model and parameters are named.
            BudgetError: ``max_evaluations`` are not enough for a single draw.
            KeyboardInterrupt: Ctrl-C was pressed again, or before there was anything to start from.
            BlackBoxError, PoolError: A black box or its pool failed. Of this error and the
                one of densities the attribute ``result`` holds the draws so far, if there are any.
        """
        if max_seconds is not None and not max_seconds > 0:
            raise ConfigurationError(f"max_seconds: expected a positive number, got {max_seconds}")
        begun = time.monotonic()
        deadline = math.inf if max_seconds is None else begun + max_seconds
        enough = Enough(copy.deepcopy(self.target.space).cpu(), until, deadline)
        as_many_as_come = draws is None and (until is not None or max_seconds is not None)
        if draws is None and not as_many_as_come:
            draws = 1000
        if chains is None:
            chains = self._chains(MANY if as_many_as_come else CHAINS)
            most = self._most_chains() if as_many_as_come else chains
        else:
            most = chains
        _check_counts(draws, chains, thin, warmup)
        if fit not in {"auto", True, False}:
            raise ConfigurationError(f'fit: expected "auto", True or False, got {fit!r}')
        auto = fit == "auto" and not self._own_kernel and max_evaluations is None
        latest = deadline if max_seconds is None else begun + (1 - SAMPLE_SHARE) * max_seconds
        way = self._way = _Way()
        self._begin()
        with self._limited(max_evaluations) as left, self._until(deadline):
            try:
                with self._threads(auto, deadline):
                    if fit and not auto and self.fit_trace is None:
                        way.stage = "the fit"
                        share = (
                            None if max_evaluations is None else int(FIT_SHARE * max_evaluations)
                        )
                        late = begun + self.fit_share * (max_seconds or math.inf)
                        trace = self._train_and_weigh(
                            max_evaluations=share, deadline=late, mend_until=late, progress=progress
                        )
                        if trace.stopped == "interrupted":
                            raise KeyboardInterrupt
                    self._check_round_trip()
                    if auto:
                        error = enough.error or PRECISION
                        ahead = math.inf if draws is None else draws * thin
                        fill = as_many_as_come and until is None
                        self._choose(
                            chains, most, ahead, warmup, error, deadline, latest, fill, progress
                        )
                    else:
                        steps = max(200, (draws or 0) * thin // 2) if warmup is None else warmup
                        self._warm_up(chains, steps, warmup is None, left, deadline, progress)
                    chooser, way.stage = way.chooser, "the screening"
                    spent, left_over = time.monotonic() - begun, deadline - time.monotonic()
                    seconds = _screening_seconds(spent, left_over)
                    way.screening = self._screened(seconds, self._recipe.extra)
                    if chooser is not None and not chooser.ready and chooser.movable:
                        enough.look_back(chooser.hoped, chooser.price, error)
                    self._record(draws, thin, enough, progress)
                    if chooser is not None and enough.disappointed:
                        assert way.chain is not None
                        way.stage = "training"
                        way.state = way.chain.state
                        way.kernel = chooser.after_all(
                            way.state, _second_half(way.chain.draws, self.target)
                        )
                        self._settle(chooser, None, progress)
                        enough.again()
                        self._record(draws, thin, enough, progress)
                    way.stage = "the summing up"
                    assert way.chain is not None
                    record = way.chain.draws
                    way.missed = enough.missed(record.code.transpose(0, 1), record.log_joint.T)
                return self._finish()
            except KeyboardInterrupt:
                if way.rescued or (way.chain is not None and way.chain.stopped == "interrupted"):
                    raise
                self._rescue(chains, draws, enough, progress)
            return self._finish()

    def _begin(self) -> None:
        """Count from here if what was spent so far is in the report of an earlier run."""
        if self._reported:
            self._before = self.target.evaluations, self.target.gradients
            self._seconds, self._recipe.seconds = {}, {}
            self._reported = False

    def _chains(self, most: int) -> int:
        """Fewer of them where each holds a sum over components as large as the data."""
        if not components_of(self.target) or self.target.additive is None:
            return most
        code = self.target.space.sample_prior(1, self._generator)
        sums = self.target.total(code, self.target.sample_prior(code, self._generator))
        return min(most, max(FEWEST, CELLS // sums.numel()))

    def _most_chains(self) -> int:
        """As many as leave room for draws of each."""
        return STORED // (KEPT * (self.target.space.code_width + self.target.dim + 1))

    @contextmanager
    def _until(self, deadline: float) -> Iterator[None]:
        """Let the pilot run and the fit know when a run must be over."""
        self._recipe.deadline = deadline
        try:
            yield
        finally:
            self._recipe.deadline = math.inf

    @contextmanager
    def _threads(self, auto: bool, deadline: float) -> Iterator[None]:
        """As many threads as are fastest where choices rest on times anyway."""
        cheap = self.target.differentiable and self.target.device.type == "cpu"
        if not auto or not cheap or torch.get_num_threads() == 1:
            yield
            return
        code = self._starting_models(CHAINS)
        theta = self.target.sample_prior(code, self._generator)

        @torch.no_grad()
        def work() -> None:
            self.target.log_joint(code, torch.where(theta.isfinite(), theta, 0.0))

        with fastest_threads(work, deadline - time.monotonic()):
            yield

    def _choose(
        self,
        chains: int,
        most: int,
        ahead: float,
        warmup: int | None,
        error: float,
        deadline: float,
        latest: float,
        fill: bool,
        progress: bool,
    ) -> None:
        """Find the kernel by measurement, training while that pays; warm chains up by it."""
        recipe, generator, way = self._recipe, self._generator, self._way
        ready = self.fit_trace is not None or self._given_map
        counts = bool(components_of(self.target)) and several(self.target.space)
        chooser = AutoComponents if counts else Auto
        if not counts:
            way.stage = "the pilot run"
            recipe.survey(progress=progress)
        way.stage = "the search for starts"
        begun = time.perf_counter()
        if counts:
            state, ancestor = self._prior_draws(max(chains, FEWEST))
        else:
            code = self._starting_models(max(chains, CHAINS))
            through = self.transport if ready else None
            carried = self._prior_starts(code, deadline)
            state, ancestor = starting_state(self.target, through, code, generator, carried)
        auto = way.chooser = chooser(
            recipe,
            self.transport,
            state,
            ancestor,
            self._guess,
            chains=chains,
            most=chains if counts else most,
            ahead=ahead,
            error=error,
            generator=generator,
            deadline=deadline,
            latest=latest,
            fill=fill,
            ready=ready,
            progress=progress,
        )
        way.plan, way.stage = auto.plan, "the choice of the moves"
        way.kernel = auto.run()
        way.state = start(self.target, auto.state.code[:chains], auto.state.theta[:chains])
        way.ancestor = auto.ancestor[:chains]
        self._settle(auto, warmup, progress)
        trained = recipe.seconds.get("fit", 0.0) if auto.plan.rounds else 0.0
        self._seconds["warmup"] = time.perf_counter() - begun - trained

    def _settle(self, auto: Auto, warmup: int | None, progress: bool) -> None:
        """Warm up with the kernel that was chosen, and weigh models through its map."""
        recipe, kernel, state = self._recipe, self._way.kernel, self._way.state
        assert kernel is not None and state is not None
        here = bool(auto.plan.rounds)  # else the trace is of an earlier fit
        if here and recipe.trace is not None and recipe.trace.stopped == "interrupted":
            raise KeyboardInterrupt
        self._way.stage = "the warm-up"
        self._check_kernel(kernel)
        crowd = self._crowd(auto, kernel, state)
        made = auto.steps if len(crowd.code) == len(state.code) else 0  # of new chains none
        steps = max(auto.burn_in, auto.steps - made, 0 if warmup is None else warmup - made)
        until = _from_now(SETTLE_SHARE, auto.by)
        self._way.kernel, self._way.state, recipe.extra = self._advance(
            kernel, crowd, steps, progress, until
        )
        recipe.extra = recipe.extra or auto.seen()
        trained = self.fit_trace is not None or self._given_map
        self._simple = None if trained else auto.simple
        weigh = self._mapped or not isinstance(auto, AutoComponents)
        if recipe.few and weigh and self._outdated():
            recipe.score = recipe.scored(self._map)
            self._weigh(until=auto.by)
        if recipe.extra is not None and self.fit_trace is not None:
            self._spot_check(SPOT_SHARE * (auto.deadline - time.monotonic()), progress)

    def _crowd(self, auto: Auto, kernel: Kernel, state: State) -> State:
        """More chains where that pays, which start like the others did."""
        if self._recipe.audit is None or auto.most <= len(state.code):
            return state
        more = auto.crowd(kernel, state) - len(state.code)
        if not more:
            return state
        code = self._starting_models(more)
        starts = self._prior_starts(code, auto.deadline)
        fresh, ancestor = starting_state(self.target, None, code, self._generator, starts)
        assert self._way.ancestor is not None
        self._way.ancestor = torch.cat([self._way.ancestor, ancestor])
        return joined(state, fresh)

    @property
    def _mapped(self) -> bool:
        """Whether there is a map that has learnt something."""
        trained = self.fit_trace is not None and bool(self.fit_trace.step)
        return trained or self._given_map or self._simple is not None

    @property
    def _map(self) -> Transport:
        """The map that evidences go through."""
        return self.transport if self._simple is None else self._simple

    def _warm_up(
        self,
        chains: int,
        warmup: int,
        free: bool,
        left: Callable[[], int | None],
        deadline: float,
        progress: bool,
    ) -> None:
        """Warm up chains by the standard or the user's kernel.

        Where there is a deadline, and the user leaves the length open (``free``), it takes a
        tenth of the time left.
        """
        way = self._way
        if self._own_kernel or self.fit_trace is not None or self._given_map:
            self._simple = None  # else the normals that an earlier run has fitted
        way.stage = "the warm-up"
        remaining = left()
        self._weigh(None if remaining is None else remaining // 2, _from_now(WARM_SHARE, deadline))
        way.kernel = self._check_kernel(self._make_kernel(self.target, self._map))
        remaining = left()
        if remaining is not None:
            chains, warmup = _affordable(remaining, chains, warmup)
        code = self._starting_models(chains)
        starts = self._prior_starts(code, deadline)
        state, way.ancestor = starting_state(self.target, self._map, code, self._generator, starts)
        way.state = state
        begun = time.perf_counter()
        timed = free and math.isfinite(deadline)
        until = _from_now(WARM_SHARE, deadline) if timed else deadline
        least = until - time.monotonic() if timed else 0.0
        way.kernel, way.state, self._recipe.extra = self._advance(
            way.kernel, state, warmup, progress, until
        )
        pace = (time.perf_counter() - begun) / max(warmup, 1)
        if more := int(max(0.0, least / pace - warmup)) if warmup else 0:
            way.kernel, way.state, self._recipe.extra = self._advance(
                way.kernel, way.state, more, progress, until
            )
        self._seconds["warmup"] = time.perf_counter() - begun
        if self._recipe.extra is not None and remaining is None:
            self._spot_check(SPOT_SHARE * (deadline - time.monotonic()), progress)

    def _advance(
        self, kernel: Kernel, state: State, steps: int, progress: bool, until: float
    ) -> tuple[Kernel, State, Pool | None]:
        with progress_bar(progress, total=steps, desc="warm-up", unit="step") as bar:
            return warm_up(kernel, state, steps, self.target, self._generator, bar.update, until)

    def _spot_check(self, seconds: float, progress: bool) -> None:
        assert self._recipe.extra is not None
        self._recipe.spot_check(self._recipe.extra.code, seconds, progress)
        if self._recipe.spot is not None and self.audit_report is None:
            self.audit_report = self._report()

    def _record(self, draws: int | None, thin: int, enough: Enough, progress: bool) -> None:
        way = self._way
        kernel, state, way.stage = way.kernel, way.state, "the sampling"
        assert kernel is not None and state is not None
        self._mirrors = self._warp_seconds(enough.deadline)
        begun, self._forgiven = time.perf_counter(), int(self.target.overflows)
        tally, crossings, visits = Tally(self.target), None, None
        if self._recipe.few and several(self.target.space):
            names = {k.name for k in kernel.parts() if k.between}
            crossings = Crossings(self.target, len(state.code), names)
            many = len(state.code) >= MANY_CHAINS  # of few, errors rest on autocorrelations
            if many and (thin > 1 or draws is None):  # else every step is kept
                visits = Visits(self.target, len(state.code))
        with progress_bar(progress, total=draws, desc="sample", unit="draw") as bar:

            def on_draw() -> None:
                if enough.progress:
                    bar.set_postfix_str(enough.progress, refresh=False)
                bar.update()

            def sum_up(recorder: Recorder) -> None:
                way.stage, seen = "a rehearsal", None if crossings is None else crossings.result()
                found = Chains(recorder.draws(), state, "enough", crossings=seen)
                self._rehearse(found)
                way.stage = "the sampling"

            deadline = enough.deadline
            summary = _SummingUp(
                sum_up, enough, deadline - (self._mirrors if math.isfinite(self._mirrors) else 0.0)
            )

            def stop(recorder: Recorder) -> bool:
                summary(recorder)
                ahead = enough.looks_back
                found = enough(recorder)
                if ahead and not enough.looks_back:
                    bar.unpause()  # training was priced meanwhile
                if enough.disappointed:
                    bar.set_description("sample, set aside to train first")
                return found

            chain = run_chains(
                kernel,
                state,
                tally,
                draws=draws,
                thin=thin,
                generator=self._generator,
                enough=stop,
                crossings=crossings,
                visits=visits,
                on_draw=on_draw,
            )
        self._seconds["sample"] = time.perf_counter() - begun
        way.chain, way.tally = chain, tally
        self._late, enough.deadline = time.monotonic() >= enough.deadline, deadline

    def _warp_seconds(self, deadline: float) -> float:
        """Seconds kept for the symmetrised bridge; infinite where it would take too many."""
        if math.isinf(deadline) or not self._weights:
            return 0.0
        codes = torch.stack([self.target.space.code_of(m) for m in self._weights])
        pace = self._weighing_pace(codes.to(self.target.device))
        seconds = 3 * MIRRORED * len(codes) * pace
        return seconds if seconds < WARP_SHARE * (deadline - time.monotonic()) else math.inf

    def _rescue(self, chains: int, draws: int | None, enough: Enough, progress: bool) -> None:
        """Go on from where the user has interrupted to a result, with a second of sampling.

        Where draws are there these are taken, and evidences through the map left out.
        """
        way, stage = self._way, self._way.stage
        way.rescued = True
        if way.chain is not None:
            warn_user(
                f"interrupted in {stage}: the result holds {way.chain.draws.n_draws} draws a "
                "chain, and no evidences through the map",
                InterruptedWarning,
            )
            return
        enough = Enough(enough.space, None, time.monotonic() + LAST_SECOND)
        self._recipe.deadline = enough.deadline
        self._recipe.salvage()
        if way.kernel is None:
            way.kernel = None if way.chooser is None else way.chooser.so_far()
        if way.kernel is None:
            plain = not self._own_kernel and self.fit_trace is None
            make = plain_kernel(self.target, self._guess()) if plain else None
            way.kernel = make or self._make_kernel(self.target, self.transport)
        if way.state is None:
            way.state = self._first_state(chains)
        self._record(draws, 1, enough, progress)
        assert way.chain is not None
        warn_user(
            f"interrupted in {stage}: the result rests on {way.chain.draws.n_draws} draws a chain "
            "of the second after that, and its errors are those of a run that has hardly begun",
            InterruptedWarning,
        )

    def _first_state(self, chains: int) -> State:
        """Where chains start if the user has no patience: from a pilot run, or the prior."""
        chooser, audit = self._way.chooser, self._recipe.audit
        if chooser is not None:
            code, theta = chooser.state.code[:chains], chooser.state.theta[:chains]
            self._way.ancestor = chooser.ancestor[:chains]
        elif audit is not None:
            code = self._starting_models(chains)
            theta, _, self._way.ancestor = audit.draw(self.target.space.index(code))
        else:
            state, self._way.ancestor = self._prior_draws(chains)
            return state
        return start(self.target, code, theta)

    def _rehearse(self, chain: Chains) -> None:
        """Sum up what is there so far, and throw it away."""
        with warnings.catch_warnings(), suppress(TRJError):
            warnings.simplefilter("ignore")
            self._result(chain.draws, RunReport(), chain).warn()

    def _finish(self) -> Result:
        """Report, and warn of what is doubtful."""
        way, plan = self._way, self._way.plan
        assert way.chain is not None and way.tally is not None and way.kernel is not None
        chain, tally = way.chain, way.tally
        ancestor = None if way.ancestor is None else way.ancestor.cpu()
        record = replace(chain.draws, ancestor=ancestor)
        plan.settings = {k.name: found for k in way.kernel.parts() if (found := k.adapted())}
        report = RunReport(
            acceptance=tally.rates(),
            fit=None if self.fit_trace is self._told else self.fit_trace,
            seconds={**self._recipe.seconds, **self._seconds},
            steps=record.n_draws * record.thin,
            seed=self.seed,
            interrupted=way.rescued or chain.stopped == "interrupted",
            budget_spent=chain.stopped == "budget",
            overflows=int(self.target.overflows) - self._forgiven,
            evaluations=self.target.evaluations - self._before[0],
            gradients=self.target.gradients - self._before[1],
            audit=self.audit_report,
            plan=plan,
            out_of_time=chain.stopped == "enough" and self._late,
            missed=way.missed,
            screening=way.screening,
        )
        if chain.error is None and not way.rescued and self._recipe.weights is not None:
            report.variational = self._variational(record)
        result = self._result(record, report, chain)
        report.evaluations = self.target.evaluations - self._before[0]  # weighing included
        self._reported, self._told = True, self.fit_trace
        if chain.error is not None:
            chain.error.result = result
            raise chain.error
        result.warn()
        return result

    def _result(self, record: Draws, report: RunReport, chain: Chains) -> Result:
        space = self.target.space
        code, theta = record.flat()
        healthy = chain.error is None and chain.stopped != "interrupted"
        healthy &= not self._way.rescued
        if healthy and not self._recipe.few and self._mapped:
            codes, _, counts = distinct(code)
            top = codes[counts.argsort(descending=True)[:SHOWN]].to(self.target.device)
            self._outdated()
            with suppress(TRJError):  # the draws are worth more than their weights
                for c, label in zip(top, space.label(top), strict=True):
                    if label not in self._log_mass:
                        self._weigh_one(c, label)
        spare = 0.0
        if healthy and math.isinf(self.target.limit) and math.isfinite(self._mirrors):
            spare = WARP_SHARE * report.evaluations
        weights = {} if self._way.rescued else self._weights
        settings = self.target, self._map, record, weights, self._generator
        try:
            routes = through_the_map(*settings, evaluations=spare)
        except TRJError:  # a mirror image lay where the likelihood fails
            routes = through_the_map(*settings)
        if self.audit_report is not None:
            routes["audit"] = by_audit(space, self.audit_report)
        host = self.target.to(device="cpu", probe=False)
        shape = (record.n_chains, record.n_draws)

        def values() -> dict[str, Tensor]:
            padded = host.padded_values(code, theta).items()
            return {name: value.reshape(*shape, *value.shape[1:]) for name, value in padded}

        truth = self.target.truth
        return Result(
            copy.deepcopy(space).cpu(),
            record,
            values,
            routes,
            report,
            truth,
            crossings=chain.crossings,
            pareto_k={label: pareto_k(w) for label, w in weights.items()},
            target=host,
            slot_names=host.slot_names,
        )

    def _screened(self, seconds: float, seen: Pool | None) -> tuple[Screening, ...]:
        """What prior draws say of each model that was weighed; the draws of the run stay.

        Arguments:
            seconds: That it may take, about.
            seen: Points that chains have passed: what they know is not lost.
        """
        space, target = self.target.space, self.target
        if not self._recipe.few or not math.isinf(target.limit) or not seconds > 0:
            return ()
        codes = space.enumerate()
        codes = codes[space.active(codes).any(-1) & (space.log_prior(codes) > -math.inf)]
        labels = space.label(codes)
        known = [(c, m) for c, m in zip(codes, labels, strict=True) if m in self._log_mass]
        if not known:
            return ()
        begun, end = time.perf_counter(), time.monotonic() + seconds
        price = self._recipe.price(codes)
        most = MOST_SCREENED if target.differentiable else MOST_BLIND
        generator = torch.Generator(target.device).manual_seed(self.seed)
        maps: list[Callable[[], Transport]] = [lambda: self._map]
        if seen is not None:
            maps.append(cache(lambda: gaussian_mixture(space, seen, generator)))
        none = torch.zeros(0, target.dim, dtype=target.dtype, device=target.device)
        audit, audited = self._recipe.audit, {}
        if audit is not None:  # a poor map may have next to nothing of an evidence
            audited = dict(zip(space.label(audit.code), audit.log_mass.tolist(), strict=True))
        found = []
        for place, (code, label) in enumerate(known):
            now = time.monotonic()
            share = (end - now) / (len(known) - place)
            n = int(min(most, share / (SCREEN_EVALUATIONS * price)))
            if n < FEWEST_SCREENED:
                break
            height = max(self._log_mass[label].value, audited.get(label, -math.inf))
            level = height - float(space.log_prior(code[None])[0])
            with suppress(TRJError):  # the likelihood fails out there
                until = now + share
                mine = none if seen is None else seen.theta[(seen.code == code).all(-1)]
                found.append(screen(target, code, level, maps, mine, most, generator, until))
        self._seconds["screening"] = time.perf_counter() - begun
        return tuple(found)

    def _check_round_trip(self) -> None:
        """Refuse a map whose two directions are not each other's inverse."""
        code = self.target.space.sample_prior(PROBES, self._generator)
        with torch.no_grad():
            z = self.transport.reference.sample(
                (PROBES, self.target.dim), self._generator, self.target.dtype
            )
            theta, log_q = self.transport.push(z, code)
            z, back_log_q = self.transport.pull(theta, code, self._generator)
            again, _ = self.transport.push(z, code)
        known = log_q != math.inf  # no move leads to what push disowns
        apart = ((again - theta).abs() / (1 + theta.abs()))[known]
        gap = float(apart.max()) if apart.numel() else 0.0
        density_gap = float((log_q - back_log_q)[known].abs().max()) if known.any() else math.inf
        if not max(gap, density_gap) < ROUND_TRIP:
            raise ConfigurationError(
                f"transport: {type(self.transport).__name__} does not lead back to where it came "
                f"from (error {gap:.3g} in theta, {density_gap:.3g} in the log density); the "
                "sampler would not be exact. Try dtype=torch.float64."
            )


class _SummingUp:
    """Ends a run that is limited early enough to sum it up, which is rehearsed on early draws.

    Arguments:
        sum_up: Sums up the draws of a recorder.
        enough: Whose deadline is moved.
        end: When the run has to be over.
    """

    def __init__(self, sum_up: Callable[[Recorder], None], enough: Enough, end: float) -> None:
        self._sum_up, self._enough, self._end = sum_up, enough, end
        self._known: list[tuple[int, float]] = []  # draws a chain, and seconds
        begun = time.monotonic()
        self._tries = [begun + share * (self._end - begun) for share in REHEARSED]

    def __call__(self, recorder: Recorder) -> None:
        now = time.monotonic()
        if math.isinf(self._end) or now >= self._end:
            return
        if self._tries and now >= self._tries[0]:
            del self._tries[0]
            self._sum_up(recorder)
            spent = time.monotonic() - now
            self._known.append((recorder.kept, spent))
            if spent > REHEARSAL_SHARE * (self._end - now):
                self._tries = []
            if not self._tries:
                growth = self._growth()
                recorder.bound(int(SUM_SHARE * (self._end - now) / max(growth, 1e-12)))
        if self._known:
            n, seconds = self._known[-1]
            ahead = seconds + self._growth() * max(0, recorder.kept - n)
            self._enough.deadline = self._end - ahead

    def _growth(self) -> float:
        """Seconds that a further draw of each chain adds."""
        (n, seconds), before = self._known[-1], self._known[0]
        if n == before[0]:
            return seconds / n
        return max(0.0, seconds - before[1]) / max(n - before[0], 1)


def _from_now(share: float, deadline: float) -> float:
    """When a share of the time left has passed, by ``time.monotonic``."""
    now = time.monotonic()
    return now + share * max(0.0, deadline - now)


def _check_counts(draws: int | None, chains: int, thin: int, warmup: int | None) -> None:
    counts = (1 if draws is None else draws, chains, thin, 0 if warmup is None else warmup)
    if not all(isinstance(n, int) for n in counts):
        raise ConfigurationError(f"run: draws, chains, thin, warmup are integers, got {counts}")
    if min(counts[:3]) < 1 or counts[3] < 0:
        raise ConfigurationError(
            "run: expected draws, chains, thin >= 1 and warmup >= 0, got "
            f"draws={draws}, chains={chains}, thin={thin}, warmup={warmup}"
        )


def _screening_seconds(spent: float, left: float) -> float:
    """What climbs of prior draws may take: little of a run, and the less the shorter it is."""
    ahead = SCREEN_AHEAD * left if math.isfinite(left) else 0.0
    least, most = SCREEN_SECONDS
    return min(max(SCREEN_SHARE * spent, ahead, least), most, SCREEN_SHARE * left)


def _second_half(draws: Draws, target: Target) -> Pool:
    """Later draws of a run, some 20 000 of them, to train on."""
    half, some = draws.n_draws // 2, -(-draws.n_chains // TAUGHT)
    every = max(1, (draws.n_draws - half) * draws.n_chains // TAUGHT)
    code, theta, log_joint = (
        x[::some, half::every].flatten(0, 1) for x in (draws.code, draws.theta, draws.log_joint)
    )
    place = target.device
    return Pool(code.to(place), theta.to(place), log_joint.double().to(place))


def _affordable(left: int, chains: int, warmup: int) -> tuple[int, int]:
    """Chains and warm-up steps that a number of evaluations pays for."""
    chains = min(chains, max(2, left // (STEP_EVALUATIONS * FRUGAL_STEPS)))
    return chains, min(warmup, left // (5 * STEP_EVALUATIONS * chains))


def _as_pool(pilot: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """A result's draws to train on; anything else as it is."""
    if not isinstance(pilot, Result):
        return pilot
    code, theta = pilot.raw.flat()
    log_joint = pilot.raw.log_joint.flatten().double()
    return Pool(code.to(device), theta.to(device, dtype), log_joint.to(device))
