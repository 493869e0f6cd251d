"""Tempered sequential Monte Carlo from the prior, many models at once."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .. import clock
from ..errors import ConfigurationError, ConvergenceError, UnreachableError
from ..progress import progress_bar
from ..target.target import Target
from .generation import OPTIMAL_WALK, Generation, Population, Proposal
from .particles import Particles, Store

BAR = "{l_bar}{bar}| temperature {n:.3f}, {elapsed}"

KEPT = 0.5  # share of the points that stay effective when the temperature changes

BISECTIONS = 40  # of the log of a step of the temperature

LOG_SMALLEST_STEP = -200.0  # where that bisection begins

MAX_TEMPERATURES = 500  # after which a run that has not reached the posterior is given up

CHUNK = 16_384  # points evaluated at once: fits the caches

NEGLIGIBLE = 30.0  # nats below the likelihood of the best prior draw

STORED_POINTS, STORED_NUMBERS = 4_000_000, 128_000_000  # points kept over all temperatures, about;
# numbers of these beyond which every other point is dropped (float32: half a gigabyte)

TEMPERATURES = 20  # that a run takes, about

POLISH, POLISH_WITHIN_BUDGET = 3, 1  # rounds of moves at temperature 1 after the first

MOST_LEAPS = 8  # of a trajectory, whose length is uniform from half of it

WALKS_A_TRAJECTORY = 5  # that are given up for one: about its price

TRAJECTORY_ACCEPTANCE = 0.75  # to which its step is tuned

STEP_RANGE = 0.3  # standard deviation of the log of a trajectory's step size

FIRST_STEP = 0.4  # size of it, until acceptance rates have tuned it


class TemperedSMC:
    """Tempered sequential Monte Carlo that keeps every state of every chain.

    Each row has its own temperatures, each next one where the conditional effective sample size
    falls to a half. At each, ``particles`` points are resampled systematically among all
    points of the last temperature and moved ``moves`` times, and all points on the way are
    particles of the next. Walks go along the particles' covariance or the difference of two
    particles, with log-normal step sizes. Where there are gradients, some walks give way to
    Hamiltonian trajectories: few or many, by how far either moved the worst coordinate.
    (Surrogates may guide trajectories; the likelihood decides.)

    If an evaluation fails, ``run`` may be called again and goes on where it stopped.

    Arguments:
        target: The target.
        code: Models, shape (M, L); repeat a row for an independent replicate.
        particles: Chains a row.
        moves: Moves of each chain at each temperature.
        gradients: Whether to use them; None asks the target.
        budget: Most evaluations, about; temperatures are fewer where it runs out, and there is
            one round of polish at most.
        ended: Whether to be done at once; asked at every move. What comes after is the shortest
            way to the posterior: the last temperature, without a move.
        generator: Source of randomness.

    Attributes:
        hurried: Whether the last temperature came sooner than that: it was late.
        temperatures: Steps of the temperature so far.
        evaluations: Evaluations of the likelihood so far, gradients included.

    Source:
        Del Moral, Doucet & Jasra (2006), https://doi.org/10.1111/j.1467-9868.2006.00553.x;
        keeping all states: Dau & Chopin (2022), https://doi.org/10.1111/rssb.12475; weighing
        all temperatures: Karamanis & Seljak (2024), https://arxiv.org/abs/2407.20722

    Raises:
        ConfigurationError: A setting out of range.
        UnreachableError: A model has no prior draw of finite likelihood.
        ConvergenceError: The temperature did not reach 1 in 500 steps.
        NonFiniteError: A density is NaN or +inf.

    Example:
        >>> from trjmcmc import problems
        >>> target = problems.sinh_arcsinh()
        >>> smc = TemperedSMC(target, target.space.enumerate(), particles=200,
        ...                   generator=torch.Generator().manual_seed(0))
        >>> run = smc.run()
        >>> index = run.draw(torch.tensor([0, 1, 1]), torch.Generator().manual_seed(1))
        >>> run.theta[index].shape, bool((run.log_evidence.abs() < 0.5).all())
        (torch.Size([3, 2]), True)
    """

    def __init__(
        self,
        target: Target,
        code: Tensor,
        *,
        particles: int = 1000,
        moves: int = 30,
        gradients: bool | None = None,
        budget: int | None = None,
        ended: Callable[[], bool] | None = None,
        generator: torch.Generator,
    ) -> None:
        if particles < 2 or moves < 1:
            raise ConfigurationError(
                f"smc: expected particles >= 2, moves >= 1, got {particles}, {moves}"
            )
        self.target, self.code, self.generator = target, code, generator
        self.particles, self.moves, self.budget = particles, moves, budget
        self.deadline = math.inf
        self._ended = ended or (lambda: False)
        frugal = budget is not None
        self.polish = POLISH_WITHIN_BUDGET if frugal else POLISH
        self.gradients = target.differentiable if gradients is None else gradients
        each = STORED_POINTS // (max(len(code), 1) * TEMPERATURES)
        self._store = Store(max(particles, each), STORED_NUMBERS)
        self.evaluations = 0
        self.temperatures = 0
        self.hurried = False
        m, device = len(code), target.device
        self.log_evidence = torch.zeros(m, dtype=torch.float64, device=device)
        self._active = target.space.active(code)[:, None]
        self._step_size = torch.full((m, 1, 1), FIRST_STEP, dtype=target.dtype, device=device)
        self._trajectories_pay: bool | None = None
        self._last: Population | None = None  # of the last temperature, until chains leave it
        self._now: Generation | None = None  # of the present one
        self._polished = 0
        self._proposal: Proposal | None = None  # whose evaluation is under way
        self._evaluated: list[tuple[Tensor, Tensor]] = []  # chunks of it that are done

    # ---- the loop ---------------------------------------------------------------------------

    def run(self, *, deadline: float = math.inf, progress: bool = False) -> Particles:
        """Go on to the posterior.

        Arguments:
            deadline: Time by :func:`trjmcmc.clock.now` from which it takes the shortest way.
            progress: Show a bar.
        """
        self.deadline = deadline
        with (
            torch.no_grad(),
            progress_bar(progress, total=1.0, desc="pilot", bar_format=BAR) as bar,
        ):
            if self._last is None and self._now is None:
                self._last = self._prior_population()
                self._store.put(self._last, self.log_evidence, self.generator)
            while True:
                if self._last is not None:
                    if self._arrived(self._last):
                        break
                    self._now, self._last = self._next_generation(self._last), None
                assert self._now is not None
                self._make_moves(self._now)
                self._store.put(self._now, self.log_evidence, self.generator)
                bar.update(float(self._now.temper.min()) - bar.n)
                self._now, self._last = None, self._now
        log_model = self.target.space.log_prior(self.code).double()
        return self._store.weighed(self.code, log_model, self.log_evidence, self.evaluations)

    def _arrived(self, last: Population) -> bool:
        """Whether the posterior is reached, and polished unless there was no time."""
        coldest = float(last.temper.min())
        if coldest >= 1 and (self._late or self._polished == self.polish):
            return True
        self._polished += coldest >= 1
        if self.temperatures == MAX_TEMPERATURES:
            raise ConvergenceError(
                f"tempering reached only {coldest:.3g} in {MAX_TEMPERATURES} steps"
            )
        return False

    @property
    def _late(self) -> bool:
        return clock.now() > self.deadline or self._ended()

    def _prior_population(self) -> Population:
        """Prior draws: as many as chains visit points at a later temperature."""
        m, n = len(self.code), self.particles * (1 + self.moves)
        if self._proposal is None:  # else a likelihood failed here before
            theta = self.target.sample_prior(self.code.repeat_interleave(n, 0), self.generator)
            self._proposal = Proposal(theta.view(m, n, -1))
        theta = self._proposal.theta
        usable = theta.isfinite().all(-1)
        theta = torch.where(usable[..., None], theta, 0.0)
        log_prior, log_likelihood = self._evaluate(theta)
        usable &= ~_piled(theta, log_likelihood)
        log_likelihood = torch.where(usable, log_likelihood, -math.inf)
        found = Population.of_draws(theta, log_prior, log_likelihood)
        self._proposal = None
        return found

    def _next_generation(self, last: Population) -> Generation:
        log_likelihood, weight = last.log_likelihood, last.weight
        if not self.temperatures and not bool((weight > 0).any(1).all()):
            bad = int((weight > 0).any(1).logical_not().nonzero()[0, 0])
            label = self.target.space.label(self.code[bad : bad + 1])[0]
            start = self.target.start_of(self.code[bad])
            raise UnreachableError(
                f"model {label!r}: none of {weight.shape[1]} {start} draws has a finite likelihood"
                f"{self.target.nearly_possible(self.code[bad], last.theta[bad])}"
            )
        step = next_step(log_likelihood, weight, last.temper, KEPT)
        schedule = self._schedule()
        if self._late:
            self.hurried |= bool((1 - last.temper > step).any())
            step = 1 - last.temper
        elif self.budget is not None:
            step = torch.maximum(step, _forced(last.temper, self._temperatures_left(schedule)))
        log_weight = weight.log() + torch.where(weight > 0, step * log_likelihood, 0.0)
        self.log_evidence += log_weight.logsumexp(1)
        self.temperatures += 1
        return Generation(
            last,
            (last.temper + step).clamp(max=1),
            log_weight.softmax(1),
            self.particles,
            schedule=schedule,
            active=self._active,
            generator=self.generator,
        )

    def _schedule(self) -> list[str]:
        if not self.gradients:
            return ["walk"] * self.moves
        each = WALKS_A_TRAJECTORY
        few = max(1, self.moves // each)
        if self._trajectories_pay is None:
            return ["trajectory", *["walk"] * each] * max(1, few // 2)
        if self._trajectories_pay:
            return ["trajectory", "walk"] * few
        return ["walk"] * self.moves + ["trajectory"]

    def _temperatures_left(self, schedule: list[str]) -> float:
        """How many temperatures the budget leaves room for, those at 1 not counted."""
        assert self.budget is not None
        leaps = MOST_LEAPS + 2
        each = sum(leaps if kind == "trajectory" else 1 for kind in schedule)
        spent = len(self.code) * self.particles * each
        return (self.budget - self.evaluations) // spent - self.polish

    # ---- moves ------------------------------------------------------------------------------

    def _make_moves(self, now: Generation) -> None:
        """The moves of a temperature, or as many as there is time for."""
        while not now.complete:
            self._move(now, now.schedule[now.done])
            if self._late:
                now.cut()
        pay = now.trajectories_pay
        self._trajectories_pay = self._trajectories_pay if pay is None else pay

    def _move(self, now: Generation, kind: str) -> None:
        """One move of every chain; goes on with the same proposal if a likelihood failed."""
        if self._proposal is None:
            walks = kind == "walk"
            self._proposal = now.walk(self.generator) if walks else self._trajectory(now)
        log_prior, log_likelihood = self._evaluate(self._proposal.theta)
        chance = now.move(self._proposal, log_prior, log_likelihood, self.generator)
        self._proposal = None
        if kind == "trajectory":
            rate = chance.mean(1).to(self._step_size.dtype) - TRAJECTORY_ACCEPTANCE
            self._step_size *= torch.exp(0.5 * rate)[:, None, None]

    def _trajectory(self, now: Generation) -> Proposal:
        """A Hamiltonian trajectory of random length, in the coordinates of the particles."""
        like, generator = now.theta_now, self.generator
        start = self._gradient(now, like) if now.gradient is None else now.gradient
        factor = now.factor * now.size.sqrt() / OPTIMAL_WALK
        spread = torch.randn(*like.shape[:2], 1, generator=generator, device=like.device)
        size = self._step_size * torch.exp(STEP_RANGE * spread.to(like.dtype))
        momentum = torch.randn(
            like.shape, generator=generator, dtype=like.dtype, device=like.device
        )
        begun = momentum.square().sum(-1)
        theta, gradient = like, start
        most = MOST_LEAPS
        leaps = torch.randint(most // 2, most + 1, (), generator=generator, device=like.device)
        for _ in range(int(leaps)):
            momentum = momentum + 0.5 * size * (gradient @ factor)
            theta = theta + size * (momentum @ factor.mT)
            gradient = self._gradient(now, theta)
            momentum = momentum + 0.5 * size * (gradient @ factor)
        lost = ~(theta.isfinite().all(-1) & momentum.isfinite().all(-1))
        energy = 0.5 * (begun - momentum.square().sum(-1))
        theta = torch.where(lost[..., None] | ~now.active, like, theta)
        return Proposal(theta, torch.where(lost, -math.inf, energy), (start, gradient))

    def _gradient(self, now: Generation, theta: Tensor) -> Tensor:
        m, n, d = theta.shape
        code = self.code.repeat_interleave(n, 0)
        flat = theta.reshape(m * n, d)
        temper = now.temper.to(theta.dtype).expand(m, n).reshape(-1)
        parts = [
            self.target.log_joint_and_grad(*rows, temper=beta, surrogate=True)[1]
            for *rows, beta in zip(
                code.split(CHUNK), flat.split(CHUNK), temper.split(CHUNK), strict=True
            )
        ]
        self.evaluations += len(flat)
        return torch.cat(parts).nan_to_num(0.0, 0.0, 0.0).view(m, n, d)

    def _evaluate(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Log prior (p(model) not included) and log likelihood, -inf where impossible."""
        m, n, d = theta.shape
        code = self.code.repeat_interleave(n, 0)
        chunks = list(zip(code.split(CHUNK), theta.reshape(m * n, d).split(CHUNK), strict=True))
        for rows in chunks[len(self._evaluated) :]:
            log_prior, log_likelihood = self.target.log_prior_and_likelihood(*rows)
            total = torch.where(log_prior == -math.inf, log_prior, log_prior + log_likelihood)
            self.target.check_finite(*rows, total)
            self._evaluated.append((log_prior, log_likelihood))
            self.evaluations += len(log_prior)
        log_prior, log_likelihood = (
            torch.cat(x).view(m, n).double() for x in zip(*self._evaluated, strict=True)
        )
        self._evaluated = []
        log_prior = log_prior - self.target.space.log_prior(self.code)[:, None]
        return log_prior, torch.where(log_prior == -math.inf, -math.inf, log_likelihood)


def _forced(temper: Tensor, left: float) -> Tensor:
    """The step of the temperature after which so many more reach 1."""
    if left <= 1:
        return 1 - temper
    ahead = temper ** (1 - 1 / left)
    return torch.where(temper > 0, ahead - temper, 0.0)


def _piled(theta: Tensor, log_likelihood: Tensor) -> Tensor:
    """Prior draws that must not stand for themselves, shape (M, N).

    torch's gamma generator ends near the smallest number there is: under ``Gamma(1e-4, 1e-4)``
    nearly all draws pile up there and stand for values far below. Where the likelihood is next
    to nothing on the pile, it would be less beyond, at any temperature.
    """
    piled = torch.zeros_like(log_likelihood, dtype=torch.bool)
    for end in (theta.amin(1, keepdim=True), theta.amax(1, keepdim=True)):
        here = (theta == end) & (end != 0)
        piled |= (here & (here.sum(1, keepdim=True) > 1)).any(-1)
    best = log_likelihood.nan_to_num(-math.inf).amax(1, keepdim=True)
    return piled & (log_likelihood < best - NEGLIGIBLE)


def next_step(log_likelihood: Tensor, weight: Tensor, temper: Tensor, ess: float) -> Tensor:
    """Largest step of each row's temperature that keeps the conditional effective sample size.

    Found by bisection on the logarithm of the step, since under a wide prior the first step can
    be as small as one over the spread of the log-likelihoods. Impossible points, which weigh
    nothing from the first step on, do not count.

    Source:
        Zhou, Johansen & Aston (2016), https://doi.org/10.1080/10618600.2015.1060885, eq. 9
    """
    log_weight = weight.log() - weight.sum(1, keepdim=True).log()

    def keeps(step: Tensor) -> Tensor:
        power = torch.where(weight > 0, step * log_likelihood, 0.0)
        first = (log_weight + power).logsumexp(1, True)
        return (2 * first - (log_weight + 2 * power).logsumexp(1, True)).exp() >= ess

    whole = 1 - temper
    fine, high = keeps(whole), whole.log()
    low = torch.full_like(high, LOG_SMALLEST_STEP)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        ok = keeps(middle.exp())
        low, high = torch.where(ok, middle, low), torch.where(ok, high, middle)
    return torch.where(fine, whole, low.exp())
