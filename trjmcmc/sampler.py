"""The facade: from a target to a result."""

from __future__ import annotations

import copy
import math
import secrets
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from .draws import Draws
from .errors import ConfigurationError, ConvergenceError, ConvergenceWarning, TargetError
from .estimate import Estimate, log_mean_weight, log_weights
from .fit import (
    FitTrace,
    ForwardKL,
    Objective,
    Particles,
    ReverseKL,
    locate,
    tempered_smc,
    train,
)
from .kernel import CrankNicolson, Cycle, Fixed, IndexProposal, Jump, Kernel, Neighbours, RandomWalk
from .result import SHOWN, Result, RunReport
from .sample import Tally, run_chains, starting_state, warm_up
from .space import ModelList, Space, distinct
from .target import Target
from .transport import CosmicFlow, Transport

PILOT_PARTICLES = 24_000  # over all models
PILOT_MODELS = 64  # most models that a pilot run visits one by one
IMPORTANCE_DRAWS = 4096  # a model
WALKS = 4  # random walks a step: cheap, and measured to halve the autocorrelation time
UNIFORM_SHARE = 0.2  # of the default proposal between models, so that none is starved
JUMP_RHO = 0.95  # of the default jump: measured best of 0.8, 0.95 and 1 on coal mining
FRESH = 0.1  # share of independent jumps: an untrained map mixes through nothing else
STARTS = 64  # particles a model that starts are picked from where no pilot run was made
PROBES = 64  # points at which a map is checked
ROUND_TRIP = 0.05  # largest error of a map there and back
POOLED = 256  # models looked at to standardise the coordinates of a large space

MakeTransport = Callable[[Space], Transport]
MakeKernel = Callable[[Target, Transport], Kernel]


class TRJSampler:
    """Samples a posterior over models and parameters by transport reversible jumps.

    Arguments:
        target: The target.
        transport: A map, or a function that makes one from the bound space, such as
            ``lambda space: CosmicFlow(space, layers=12)``; a :class:`CosmicFlow` by default.
        kernel: A kernel, or a function of (target, transport) that makes one. By default a
            transport jump to another model, a Crank-Nicolson move in reference space and
            random walks in plain coordinates at each step.
        seed: Any integer; drawn and recorded if omitted. The same seed, device and versions
            give identical draws.
        device: Where to compute, e.g. ``"cuda"``; tensors inside your likelihood must be there.
        dtype: ``torch.float32`` (default, as torch's) or ``torch.float64``.

    Attributes:
        target, transport: As used, in the precision and on the device asked for.
        fit_trace: Trace of the training, once there was one.

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

    def __init__(
        self,
        target: Target,
        transport: Transport | MakeTransport | None = None,
        kernel: Kernel | MakeKernel | None = None,
        *,
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
        if transport is None:
            transport = CosmicFlow(space, seed=self.seed)
        elif not isinstance(transport, Transport):
            transport = transport(space)
        self.transport = _matching(transport, self.target)
        self._make_kernel: MakeKernel = self._default_kernel
        if isinstance(kernel, Kernel):
            self._make_kernel = lambda target, transport: kernel
        elif kernel is not None:
            self._make_kernel = kernel
        self._log_mass: dict[str, Estimate] = {}
        self._scale: Tensor | float = 1.0
        self._seconds: dict[str, float] = {}
        self.particles: Particles | None = None
        self.fit_trace: FitTrace | None = None
        self._weighed = False
        self._check_kernel(self._make_kernel(self.target, self.transport))

    def _check_kernel(self, kernel: Kernel) -> Kernel:
        space = self.target.space
        many = space.size is None or space.size > 1
        if many and not kernel.between:
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
        pilot: bool | None = None,
        particles: int | None = None,
        moves: int = 20,
        progress: bool = True,
        **options: Any,
    ) -> FitTrace:
        """Train the map.

        With few models a pilot run comes first: tempered sequential Monte Carlo from the prior,
        which needs no gradients and finds modes that a map trained by reverse KL drops; the map
        is then fitted to its draws by forward KL. Otherwise (``pilot=False``, or more than 64
        models) it is trained by reverse KL, from the log joint's gradients alone. Either way
        the sampler's answer is exact; training buys speed.

        Arguments:
            steps: Most training steps; it stops earlier on a plateau.
            batch: Draws a step.
            objective: Train on this objective instead.
            pilot: Whether to make a pilot run; None decides by the number of models.
            particles: Particles a model of the pilot run; 24 000 shared among the models, but
                500 to 4000 each, if omitted.
            moves: Random-walk moves a temperature of the pilot run.
            progress: Show progress bars.
            options: Further arguments of :func:`trjmcmc.fit.train`: ``learning_rate``,
                ``clip``, ``patience``.

        Returns:
            The trace; ``trace.plot()`` draws it.

        Raises:
            NonFiniteError: The pilot run met a likelihood that is NaN or +inf.
        """
        target, space, generator = self.target, self.target.space, self._generator
        first = self.fit_trace is None
        self.particles, self._weighed = None, False
        if not target.dim:  # models without parameters: there is nothing to map
            self.fit_trace = FitTrace()
            return self.fit_trace
        few = space.size is not None and space.size <= PILOT_MODELS
        if pilot and not few:
            raise ConfigurationError(
                f"pilot: a pilot run visits each model and takes {PILOT_MODELS} at most; this "
                f"space has {space.size}"
            )
        codes = space.enumerate() if few else distinct(space.sample_prior(POOLED, generator))[0]
        if objective is None and few and pilot is not False:
            begun = time.perf_counter()
            each = particles or min(4000, max(500, PILOT_PARTICLES // len(codes)))
            self.particles = self._pilot(codes, each, moves, progress)
            self._seconds["pilot"] = time.perf_counter() - begun
        if self.particles is not None:
            theta, active = self.particles.theta, space.active(codes)
            loc = torch.where(active, theta.mean(1), 0.0)
            scale = torch.where(active, theta.std(1).clamp(min=1e-6), 1.0)
            if objective is None:
                many = codes.repeat_interleave(theta.shape[1], 0)
                objective = ForwardKL(many, theta.flatten(0, 1), generator=generator)
        else:
            loc, scale = locate(target, codes, generator)
        self._scale = _pooled(scale, space.active(codes))
        if first:  # later fits go on from the map as it is
            self.transport.calibrate(codes, loc, scale)
        trace = train(
            self.transport,
            objective or ReverseKL(target),
            steps=steps,
            batch=batch,
            generator=generator,
            progress=progress,
            **options,
        )
        self._seconds["fit"] = trace.seconds
        self.fit_trace = trace
        return trace

    def _pilot(self, codes: Tensor, particles: int, moves: int, progress: bool) -> Particles | None:
        try:
            return tempered_smc(
                self.target,
                codes,
                particles=particles,
                moves=moves,
                generator=self._generator,
                progress=progress,
            )
        except (TargetError, ConvergenceError) as error:
            warnings.warn(
                f"no pilot run ({error}); training by reverse KL instead",
                ConvergenceWarning,
                stacklevel=3,
            )
            return None

    def _weigh(self) -> None:
        """Importance-sampled evidence of every model of a small space."""
        space = self.target.space
        if space.size is None or space.size > PILOT_MODELS:
            return
        begun = time.perf_counter()
        for code, label in zip(space.enumerate(), space.label(space.enumerate()), strict=True):
            self._log_mass[label] = self._log_mass_of(code)
        self._seconds["importance"] = time.perf_counter() - begun
        self._weighed = True

    def _log_mass_of(self, code: Tensor) -> Estimate:
        e = log_mean_weight(
            log_weights(self.target, self.transport, code, IMPORTANCE_DRAWS, self._generator)
        )
        if math.isinf(e.value):
            return e
        rounding = torch.finfo(self.target.dtype).eps * abs(e.value)
        return replace(e, std_error=math.hypot(e.std_error, rounding))

    def _default_kernel(self, target: Target, transport: Transport) -> Kernel:
        space = target.space
        kernels: list[Kernel | tuple[Kernel, int]] = []
        if space.size is None or space.size > 1:
            proposal = self._default_proposal(space)
            kernels.append(Jump(target, transport, proposal, rho=JUMP_RHO, fresh=FRESH))
        kernels.append(CrankNicolson(target, transport))
        return Cycle([*kernels, (RandomWalk(target, scale=self._scale), WALKS)])

    def _default_proposal(self, space: Space) -> IndexProposal:
        large = space.size is None or space.size > PILOT_MODELS
        if large and not isinstance(space, ModelList):
            return Neighbours(space)
        return Fixed(space, self._guess(), other=True)

    def _guess(self) -> Tensor | None:
        """Log-probabilities of the models of a small space as far as they are known yet."""
        if self.particles is not None:
            prior = self.target.space.log_prior(self.particles.code)
            log_mass = self.particles.log_evidence + prior
        elif self._log_mass:
            log_mass = torch.tensor([e.value for e in self._log_mass.values()])
        else:
            return None
        if not bool((log_mass > -math.inf).any()):
            return None
        p = log_mass.double().softmax(0)
        return ((1 - UNIFORM_SHARE) * p + UNIFORM_SHARE / len(p)).log()

    def _starting_models(self, chains: int) -> Tensor:
        """From the guess where there is one, else from the model prior."""
        guess = self._guess()
        if guess is None:
            return self.target.space.sample_prior(chains, self._generator)
        pick = torch.multinomial(guess.exp(), chains, True, generator=self._generator)
        return self.target.space.enumerate()[pick]

    def _prior_starts(self, code: Tensor) -> Tensor | None:
        """For each chain a prior draw carried to its model's posterior by tempering."""
        run = self.particles
        if run is not None:
            index = self.target.space.index(code)
        else:
            codes, index, _ = distinct(code)
            try:
                run = tempered_smc(
                    self.target, codes, particles=STARTS, moves=5, generator=self._generator
                )
            except (TargetError, ConvergenceError):
                return None
        n = run.theta.shape[1]
        pick = torch.randint(n, (len(code),), generator=self._generator, device=code.device)
        return run.theta[index, pick]

    # ---- sampling ---------------------------------------------------------------------------

    def run(
        self,
        draws: int = 1000,
        *,
        chains: int = 256,
        warmup: int | None = None,
        thin: int = 1,
        fit: bool = True,
        progress: bool = True,
    ) -> Result:
        """Sample; trains the map first if nobody has.

        Arguments:
            draws: Kept draws a chain.
            chains: Chains, advanced together.
            warmup: Steps left out at the start; half as many as are kept, and at least
                200, if omitted. Chains start from the map and from the prior.
            thin: Steps a kept draw.
            fit: Train the map first if it was not trained here; False takes it as it is.
            progress: Show a progress bar.

        Returns:
            The result. Ctrl-C returns the draws so far, with a warning; before the first draw
            is kept it ends the call.

        Raises:
            ConfigurationError: A count below 1.
            NonFiniteError: A density was NaN or +inf; model and parameters are named.
        """
        counts = (draws, chains, thin, 0 if warmup is None else warmup)
        if not all(isinstance(n, int) for n in counts):
            raise ConfigurationError(f"run: draws, chains, thin, warmup are integers, got {counts}")
        warmup = max(200, draws * thin // 2) if warmup is None else warmup
        if draws < 1 or chains < 1 or thin < 1 or warmup < 0:
            raise ConfigurationError(
                "run: expected draws, chains, thin >= 1 and warmup >= 0, got "
                f"draws={draws}, chains={chains}, thin={thin}, warmup={warmup}"
            )
        if fit and self.fit_trace is None and self.fit(progress=progress).stopped == "interrupted":
            raise KeyboardInterrupt("fit interrupted; run(fit=False) samples with the map so far")
        self._check_round_trip()
        if not self._weighed:
            self._weigh()
        kernel = self._check_kernel(self._make_kernel(self.target, self.transport))
        generator = self._generator
        code = self._starting_models(chains)
        drawn = self._prior_starts(code)
        state = starting_state(self.target, self.transport, code, generator, drawn)
        begun = time.perf_counter()
        with tqdm(total=warmup, desc="warm-up", disable=not progress, unit="step") as bar:
            state = warm_up(kernel, state, warmup, self.target, generator, bar.update)
        middle, forgiven = time.perf_counter(), int(self.target.overflows)
        tally = Tally(self.target)
        with tqdm(total=draws, desc="sample", disable=not progress, unit="draw") as bar:
            record = run_chains(
                kernel,
                state,
                tally,
                draws=draws,
                thin=thin,
                generator=generator,
                on_draw=bar.update,
            )
        self._seconds["warmup"] = middle - begun
        self._seconds["sample"] = time.perf_counter() - middle
        report = RunReport(
            acceptance=tally.rates(),
            fit=self.fit_trace,
            seconds=dict(self._seconds),
            steps=record.n_draws * thin,
            seed=self.seed,
            interrupted=record.n_draws < draws,
            overflows=int(self.target.overflows) - forgiven,
            evaluations=self.target.evaluations,
        )
        return self._result(record, report)

    def _result(self, record: Draws, report: RunReport) -> Result:
        space = self.target.space
        code, theta = record.flat()
        log_mass = self._log_mass
        if not log_mass:
            codes, _, counts = distinct(code)
            top = codes[counts.argsort(descending=True)[:SHOWN]].to(self.target.device)
            log_mass = {
                label: self._log_mass_of(c) for c, label in zip(top, space.label(top), strict=True)
            }
        host = self.target.to(device="cpu", probe=False)
        shape = (record.n_chains, record.n_draws)
        values = {
            name: value.reshape(*shape, *value.shape[1:])
            for name, value in host.padded_values(code, theta).items()
        }
        truth = self.target.truth
        result = Result(copy.deepcopy(space).cpu(), record, values, dict(log_mass), report, truth)
        result.warn()
        return result

    def _check_round_trip(self) -> None:
        """Refuse a map whose two directions are not each other's inverse."""
        space = self.target.space
        code = space.sample_prior(PROBES, self._generator)
        with torch.no_grad():
            shape = (PROBES, self.target.dim)
            z = self.transport.reference.sample(shape, self._generator, self.target.dtype)
            theta, ladj = self.transport.from_reference(z, code)
            back, back_ladj = self.transport.to_reference(theta, code)
        gap = (back - z).abs().max() if z.numel() else (ladj + back_ladj).abs().max()
        if not float(torch.maximum(gap, (ladj + back_ladj).abs().max())) < ROUND_TRIP:
            raise ConfigurationError(
                f"transport: {type(self.transport).__name__} does not lead back to where it came "
                f"from (error {float(gap):.3g} in z, {float((ladj + back_ladj).abs().max()):.3g} "
                "in the log-determinants); the sampler would not be exact. Try dtype=torch.float64."
            )


def _matching(transport: Transport, target: Target) -> Transport:
    """The map in the target's precision and place; the caller's own where it fits already."""
    tensors = [*transport.parameters(), *transport.buffers()]
    floating = [t for t in tensors if t.is_floating_point()]
    if all((t.dtype, t.device) == (target.dtype, target.device) for t in floating):
        return transport
    return copy.deepcopy(transport).to(target.device, target.dtype)


def _pooled(scale: Tensor, active: Tensor) -> Tensor:
    """Geometric mean of the scales of each slot over the models that use it, shape (D,)."""
    count = active.sum(0).clamp(min=1)
    return (torch.where(active, scale.log(), 0.0).sum(0) / count).exp()
