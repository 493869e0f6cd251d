"""The facade: from a target to a result."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from .. import clock
from ..checks import spelled
from ..doubts.doubt import warn_of
from ..doubts.of_maps import of_coverage
from ..draws import Pool
from ..errors import ConfigurationError, UnreachableError
from ..fit.objective import Objective
from ..fit.trace import FitTrace
from ..kernel.base import Kernel
from ..pilot.report import AuditReport
from ..result.result import Result
from ..result.variational import Variational
from ..space.base import Space
from ..target.account import Account
from ..target.target import Target
from ..transport.base import Transport
from ..weights.base import ModelWeights
from . import in_rounds
from .asked import (
    MakeWeights,
    Stated,
    as_pool,
    check_fit,
    check_given,
    check_lengths,
    grid_of,
    weights_maker,
)
from .in_rounds import InRounds
from .knowledge import Knowledge, Spending
from .maps import map_of, matching
from .plan import Plan
from .rounds_saved import place_of, saved_in
from .strategy import MakeKernel, Strategy
from .summary import Rule

MakeTransport = Callable[[Space], Transport]


class TRJSampler:
    """Samples a posterior over models and parameters by transport reversible jumps.

    Arguments:
        target: The target.
        transport: A map, or a function that makes one from the bound space, such as
            ``lambda space: CosmicFlow(space, layers=12)``; a :class:`CosmicFlow` by default.
        kernel: A kernel, or a function of (target, transport) that makes one; the map of a function
            is trained in full before the first run, unless ``fit=False``. By default the run
            measures moves of its own, see :meth:`run`.
        models: The q(m) that :meth:`fit` learns by reverse KL, a
            :class:`~trjmcmc.weights.ModelWeights`, or a function that makes one from the space,
            such as ``trj.weights.Made``, the default over more than 64 models; none over fewer.
        seed: Any integer; drawn and recorded if omitted. When draws are the same: :meth:`run`.
        device: Where to compute, e.g. ``"cuda"``; tensors inside your likelihood must be there.
        dtype: ``torch.float32`` or ``torch.float64``. If omitted the target's, or float32 and,
            where that does not resolve a posterior, float64 (``report.precision`` says why).
        plan: The numbers by which runs are planned, for experts.

    Attributes:
        target, transport: As used, in the precision and on the device asked for.
        fit_trace: Trace of the training, once there was one.
        account: Evaluations of its runs and fits alone.
        audit_report: What the audit said of the map, once there was one.
        variational: The answer of the fit alone, once there was one; made when it is asked for.

    Raises:
        ConfigurationError: A kernel that can't move between models, or inside them.

    Source:
        Yin & Jiao, https://arxiv.org/abs/2512.12742, Algorithm 3; Davies et al. (2023)

    Example:
        >>> import trjmcmc as trj
        >>> sampler = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=1)
        >>> result = sampler.run(progress=False)
        >>> bool(abs(result.model_probabilities().loc["2d", "probability"] - 0.75) < 0.05)
        True
    """

    @spelled
    def __init__(
        self,
        target: Target,
        transport: Transport | MakeTransport | None = None,
        kernel: Kernel | MakeKernel | Strategy | None = None,
        *,
        models: ModelWeights | MakeWeights | None = None,
        seed: int | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        plan: Plan | None = None,
    ) -> None:
        check_given(target, dtype, device, seed)
        if plan is not None and not isinstance(plan, Plan):
            raise ConfigurationError(f"plan: expected a trjmcmc.run.plan.Plan, got {plan!r}")
        self._plan = plan
        strategy = kernel if isinstance(kernel, Strategy) else Strategy(kernel)
        self._open_precision = dtype is None and target.is_precision_open
        self._left: InRounds | None = None  # of the last run, to go on from
        self._given_seed = seed is not None
        self.seed = secrets.randbits(31) if seed is None else int(seed)
        self._make = transport, strategy, models
        self._know(target.to(dtype=dtype, device=device))

    def _know(self, target: Target, spending: Spending | None = None) -> None:
        """Begin to learn about a target.

        Arguments:
            target: In the precision and on the device of the runs.
            spending: What was spent on it before, or None.
        """
        transport, strategy, models = self._make
        given_map = transport is not None
        self.target = target
        transport = map_of(target, transport, self.seed)
        self.transport = matching(transport, target)
        self._known = Knowledge(
            target,
            self.transport,
            strategy,
            torch.Generator(target.device).manual_seed(self.seed),
            given_map=given_map,
            make_weights=weights_maker(target, models),
            spending=spending,
        )
        if strategy.given is not None:
            self._known.kernel(self.transport)  # refused here if it can't reach everything

    def __repr__(self) -> str:
        return f"TRJSampler with seed {self.seed} of\n{self.target}"

    @property
    def models(self) -> ModelWeights | None:
        """The distribution over models, once :meth:`fit` has learned one."""
        return self._known.fitted.weights

    @property
    def fit_trace(self) -> FitTrace | None:
        """Trace of the training, once there was one."""
        return self._known.trace

    @property
    def audit_report(self) -> AuditReport | None:
        """What the audit said of the map, once there was one."""
        return self._known.audit_report

    @property
    def variational(self) -> Variational | None:
        """The answer of the fit alone, or None before one; made when it is first asked for."""
        return self._known.variational

    def fit(
        self,
        *,
        by: str | None = None,
        steps: int | None = None,
        batch: int | None = None,
        objective: Objective | None = None,
        pilot: bool | str | Mapping[Any, Mapping[str, Any]] | Pool | Result | None = None,
        audit: bool | int = True,
        particles: int | None = None,
        moves: int | None = None,
        max_evaluations: int | None = None,
        progress: bool = True,
        **options: Any,
    ) -> FitTrace:
        """Train the map, and audit it.

        ``by="pilot"``, the default with few models: an audit first, tempered sequential Monte
        Carlo from the prior, grown until its evidences agree. It finds modes that variational
        inference drops; the map is fitted to its draws by a mass-covering divergence, and again
        where it misses a part of a posterior; if that fails, a warning names the models.

        ``by="vi"``, the default with more than 64 models: reverse KL as in Yin & Jiao, from draws
        of the map and gradients alone. With few models the best of three short trainings goes on,
        and an audit judges the map; with ``pilot=False`` one that falls short is then trained on
        the audit's draws. The sampler's answer is exact either way.

        Where the likelihood fails on the way, calling ``fit`` again goes on. A second fit trains
        on, and the audit is kept (unless its size is changed).

        Arguments:
            by: ``"pilot"`` or ``"vi"``, see above; ``trace.by`` says which it was.
            steps: Most training steps, 2000 if omitted; it stops earlier on a plateau.
            batch: Draws a step, 512 if omitted.
            objective: What to train on instead.
            pilot: Draws to train on: True, those of the audit; a
                :class:`~trjmcmc.Result`; your own, a dict by model label of parameters by name,
                shape (n, ...); False, none. None takes the audit's where models are few.
            audit: False leaves it out; an integer is its most evaluations, 20 per training draw
                by default.
            particles: Particles a model and replicate of the audit's first round; 24 000
                shared among all, but 100 to 1000 each, if omitted.
            moves: Moves of each particle at each temperature, 30 if omitted.
            max_evaluations: Most likelihood calls, those of the importance sampling included.
            progress: Show progress bars.
            options: ``learning_rate``, ``clip``, ``patience``, ``schedule`` of ``trj.fit.train``.

        Returns:
            The trace; ``trace.plot()`` draws it.

        Raises:
            ConfigurationError: Settings that contradict each other.
            NonFiniteError: The likelihood is NaN or +inf somewhere; the point is named.
            BlackBoxError, PoolError: A black box or its pool failed.
        """
        trace = self._known.fit(
            by=by,
            steps=steps,
            batch=batch,
            objective=objective,
            pilot=as_pool(pilot, self.target.device, self.target.dtype),
            audit=audit,
            particles=particles,
            moves=moves,
            max_evaluations=max_evaluations,
            progress=progress,
            **options,
        )
        warn_of(of_coverage(self.audit_report, trace.by))
        return trace

    @spelled
    def run(
        self,
        draws: int | None = None,
        *,
        chains: int | None = None,
        warmup: int | None = None,
        thin: int = 1,
        fit: bool | str = "auto",
        start: Any = None,
        until: Mapping[str, float] | Rule | None = None,
        max_seconds: float | None = None,
        max_evaluations: int | None = None,
        checkpoint: str | Path | None = None,
        shards: int | None = None,
        executor: Any = None,
        progress: bool = True,
    ) -> Result:
        """Sample in rounds, as :doc:`/docs/how-a-run-plans-itself` has it.

        Equal seeds give equal draws, and ``max_seconds`` ends the same run earlier; of runs with
        ``fit="vi"`` or ``fit=True`` that holds as long as no limit cuts the training short.

        Arguments:
            draws: Kept draws of each chain. If omitted as many as ``until`` or ``max_seconds``
                allow, and without any of them until the run is done: errors of 0.01 of
                probabilities at most and five to ten autocorrelation times; or ten minutes.
                Beside ``until`` the most.
            chains: Chains, advanced together; if omitted 512, or fewer where evaluations are
                expensive.
            warmup: Steps by which moves adapt before each record, at least.
            thin: Steps of a kept draw; doubled where memory is short.
            fit: ``"vi"``, train the map by variational inference first; True, as :meth:`fit` does;
                jumps through it are then moves like others. ``"auto"`` and False train none, but
                for a kernel that is a function of the map, for which False alone does not.
            start: A result, of a file too, to go on from: its chains, moves and draws, which
                ``draws`` counts; seconds and evaluations count from here. Or points at which chains
                start: particles of ``trj.graphs.dibs``, a
                :class:`~trjmcmc.fit.Pool`, a merged result, a result for ``shards``;
                ``report.start`` says how far off they were.
            until: ``{"probability": 0.01}``: stop as soon as the standard error of every model's
                probability (of more than 64 models every unit's) is as small and chains have
                mixed; of several, when all are reached. ``{"log_bayes_factor": 0.05}``: nats, of
                every model above one percent to the best (2 to 64 models); ``{"rhat": 1.01}``:
                split R-hat of models, log joint, parameters; ``{"detection": 1e-5}``, of lists:
                the share of local optimisations from prior draws that a mode must attract to be
                found with probability 0.95. Or a function of the kept :class:`~trjmcmc.draws.Draws`
                that says whether to stop, asked after each round.
            max_seconds: Wall time after which to stop, all stages included; kept within the larger
                of a second and a tenth where a step of all chains takes less.
            max_evaluations: Most likelihood calls of this run, its fit included, by which it is
                planned: few go to proposals by importance sampling first.
            checkpoint: A folder that the run is saved in, every 30 seconds while it samples. The
                same line, in a new process, goes on from there, and gives the draws that it would
                have given; a training that was cut off begins anew. ``draws``, ``until``,
                ``max_seconds``, ``max_evaluations`` count what was there and spent before.
                :func:`trjmcmc.load` shows the result so far. Moves are made again first, for
                seconds that no limit ends.
            shards: So many batches of ``chains`` chains, each with random numbers of its own, are
                sampled wherever ``executor`` says once moves are learned. See docs/long-runs.md.
            executor: A Dask client, or anything else with ``submit(function, *args)``; or a
                function that makes one, called again where it breaks. Here if omitted.
            progress: Show a progress bar.

        Returns:
            The result. Ctrl-C gives the draws so far, after a second where there are none yet, and
            a warning; a second Ctrl-C ends the call.

        Raises:
            ConfigurationError: A count below 1, a precision that is not known.
            CheckpointError: Folder or ``start`` are of another target, version, seed or request;
                the folder is damaged, or another run writes there.
            NonFiniteError: A density was NaN or +inf; model and parameters are named.
            BudgetError: ``max_evaluations`` are not enough for a single draw.
            KeyboardInterrupt: Ctrl-C was pressed again, or before there was anything to start from.
            BlackBoxError, PoolError: A black box or its pool failed. Attribute ``result`` of this
                error and that of densities holds the draws so far, if there are any.
        """
        check_lengths(draws, max_seconds, chains, thin, warmup)
        check_fit(fit, self.target.space)
        asked: dict[str, Any] = {"chains": chains, "warmup": warmup, "thin": thin, "fit": fit}
        grid = grid_of(shards, executor)
        saved, begun = saved_in(start) if shards is None else None, clock.now()
        points = None if saved else as_pool(start, self.target.device, self.target.dtype)
        with place_of(checkpoint, asked | {"seed": self.seed, "shards": shards}) as place:
            resumed = None if place is None else place.there
            there = saved if resumed is None else resumed
            if resumed is not None and max_evaluations is not None:
                max_evaluations = max(1, max_evaluations - resumed["account"]["evaluations"])
            if there is not None:
                self._be(there["seed"], there["dtype"])
            if place is not None:
                place = replace(place, settings={**place.settings, "seed": self.seed})
            stated = Stated(chains, warmup or 0, thin, max_evaluations, points, grid=grid)
            rounds = in_rounds.begin(
                self._known,
                self._plan,
                self.seed,
                until,
                stated=stated,
                fit=fit,
                there=there,
                place=place,
            )
            begun -= 0.0 if place is None else place.spent
            try:
                result = rounds.first(until, max_seconds, progress, begun, draws, max_evaluations)
            except UnreachableError as error:
                raise UnreachableError(f"{error}{self.target.too_wide()}") from error
            finally:
                self._left = rounds if rounds.begun else None
            if rounds.target is not self.target:
                self._go_on_in_float64()
            return result

    def _be(self, seed: int, dtype: str) -> None:
        """Take the seed of a saved run, where none was given, and its precision."""
        if not self._given_seed:
            self.seed = seed
        if dtype == str(torch.float64) and self._refines:
            self._go_on_in_float64()

    def more(
        self,
        draws: int | None = None,
        *,
        until: Mapping[str, float] | Rule | None = None,
        max_seconds: float | None = None,
        max_evaluations: int | None = None,
        progress: bool = True,
    ) -> Result:
        """Go on with the last run: its chains, its moves, its draws, without a pilot run.

        Arguments:
            draws: Kept draws per chain beside those that are there, or as many as others allow.
            until, max_seconds, max_evaluations, progress: As of :meth:`run`, from here on.

        Returns:
            The result, earlier draws included; its report counts what was spent since.

        Raises:
            ConfigurationError: There was no run, or the last one was broken off in a step; nothing
                says how long to go on.

        Example:
            >>> import trjmcmc as trj
            >>> sampler = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=1)
            >>> result = sampler.run(draws=400, chains=64, progress=False)
            >>> sampler.more(draws=100, progress=False).raw.n_draws
            500
        """
        if self._left is None:
            raise ConfigurationError("more: no run to go on with; call run first")
        if draws is None and until is None and max_seconds is None and max_evaluations is None:
            raise ConfigurationError("more: say how long: draws, until, max_seconds")
        return self._left.more(draws, until, max_seconds, max_evaluations, progress)

    @property
    def account(self) -> Account:
        """Evaluations of its runs and fits alone, not of others on the same target."""
        return self._known.spending.account

    @property
    def _refines(self) -> bool:
        """Whether float64 may follow: nobody has stated a precision, given a kernel, or trained."""
        known = self._known
        untouched = known.trace is None and known.strategy.given is None
        single = self.target.dtype == torch.float32 and self.target.device.type != "mps"
        return self._open_precision and untouched and single

    def _go_on_in_float64(self) -> None:
        """Begin anew with float64 numbers; what is known of evaluations stays."""
        target = self.target.to(dtype=torch.float64).counted_with(self.target)
        self._know(target, self._known.spending)
