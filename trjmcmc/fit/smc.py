"""Tempered sequential Monte Carlo from the prior, many models at once; nothing is thrown away."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm.auto import tqdm

from ..errors import ConfigurationError, ConvergenceError, UnreachableError
from ..grouping import group_logsumexp
from ..target import Target

BAR = "{l_bar}{bar}| temperature {n:.3f}, {elapsed}"
BISECTIONS = 40
LOG_SMALLEST_STEP = -200.0
MAX_TEMPERATURES = 500
CHUNK = 16_384  # points evaluated at once: fits the caches
STORED = 4_000_000  # points kept over all models and temperatures, about
USUAL_TEMPERATURES = 20
POLISH = 3

# moves
STEP_SPREAD = 1.0  # standard deviation of the log length of a walk
DIFFERENCES = 0.5  # share of the walks along the difference of two particles
WHOLE = 0.3  # share of those that are as long as the difference: they lead between modes
JITTER = 0.02  # noise beside a difference, in units of a walk
NEGLIGIBLE = 30.0  # nats below the best prior draw
LEAPS = 8  # most leapfrog steps of a trajectory
HMC_SHARE = 5  # walks that are given up for a trajectory
WORTH = 2.0  # walks that a trajectory must outdo in the worst coordinate: measured 4 to 60 on
# factor analysis (errors ten times smaller), below 1 on coal mining (nothing gained)
TARGET_ACCEPTANCE = 0.75  # of trajectories


@dataclass(frozen=True)
class Particles:
    """Weighted draws from the posteriors of several models, every evaluated point among them.

    Points of all temperatures are weighted to the posterior by the mixture of all tempered
    densities; a rejected proposal counts by the probability that it had.

    Attributes:
        code: Models, shape (M, L). The same model may stand in several rows.
        row: Row of ``code`` that each point belongs to, ascending, shape (S,).
        theta: Padded coordinates, shape (S, D).
        log_joint: Log joint density, shape (S,), nats.
        log_weight: Log weight, normalised within each row, shape (S,).
        log_evidence: Log evidence of each row (p(model) not included), shape (M,), nats. A
            single run's own error bar is too small, so none is given; repeat rows instead.
        temperatures: Number of tempering steps.
        evaluations: Evaluations of the likelihood, gradients included.
    """

    code: Tensor
    row: Tensor
    theta: Tensor
    log_joint: Tensor
    log_weight: Tensor
    log_evidence: Tensor
    temperatures: int
    evaluations: int

    def draw(self, row: Tensor, generator: torch.Generator) -> Tensor:
        """Indices of points drawn by weight from the given rows, (n,) -> (n,)."""
        edges = self.log_weight.exp().cumsum(0)
        ends = self._ends()
        starts = torch.cat([edges.new_zeros(1), edges[ends[:-1] - 1]])
        u = torch.rand(len(row), generator=generator, dtype=edges.dtype, device=edges.device)
        place = starts[row] + u * (edges[ends - 1] - starts)[row]
        found = torch.searchsorted(edges, place)
        first = torch.cat([ends.new_zeros(1), ends[:-1]])
        return torch.minimum(torch.maximum(found, first[row]), ends[row] - 1)

    def _ends(self) -> Tensor:
        return torch.bincount(self.row, minlength=len(self.code)).cumsum(0)

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each row, shape (M, D)."""
        weight = self.log_weight.exp()[:, None]
        theta = self.theta.to(weight.dtype)
        shape = (len(self.code), theta.shape[1])
        mean = weight.new_zeros(shape).index_add(0, self.row, weight * theta)
        gap = (theta - mean[self.row]).square()
        variance = weight.new_zeros(shape).index_add(0, self.row, weight * gap)
        return mean.to(self.theta.dtype), variance.sqrt().to(self.theta.dtype)


def tempered_smc(
    target: Target,
    code: Tensor,
    *,
    particles: int = 1000,
    moves: int = 30,
    ess: float = 0.5,
    gradients: bool | None = None,
    polish: int = POLISH,
    budget: int | None = None,
    generator: torch.Generator,
    progress: bool = False,
) -> Particles:
    """Carry prior draws to the posteriors through powers of the likelihood.

    See :class:`TemperedSMC`, which does the work and can be resumed.

    Raises:
        ConfigurationError: A setting out of range.
        UnreachableError: A model has no prior draw of finite likelihood.
        ConvergenceError: The temperature did not reach 1 in 500 steps.
        NonFiniteError: A density is NaN or +inf.

    Example:
        >>> from trjmcmc import problems
        >>> target = problems.sinh_arcsinh()
        >>> run = tempered_smc(target, target.space.enumerate(), particles=200,
        ...                    generator=torch.Generator().manual_seed(0))
        >>> index = run.draw(torch.tensor([0, 1, 1]), torch.Generator().manual_seed(1))
        >>> run.theta[index].shape, bool((run.log_evidence.abs() < 0.5).all())
        (torch.Size([3, 2]), True)
    """
    smc = TemperedSMC(
        target,
        code,
        particles=particles,
        moves=moves,
        ess=ess,
        gradients=gradients,
        polish=polish,
        budget=budget,
        generator=generator,
    )
    return smc.run(progress=progress)


class TemperedSMC:
    """Tempered sequential Monte Carlo that keeps every state of every chain.

    Each row has its own temperatures, each next one where the conditional effective sample size
    falls to ``ess``. At each, ``particles`` points are resampled systematically among all
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
        ess: Share of the points to keep effective at each temperature, in (0, 1).
        gradients: Whether to use them; None asks the target.
        polish: Rounds of moves at the posterior itself, once all rows have reached it, that
            part draws of common descent.
        budget: Most evaluations, about; temperatures are fewer where it runs out, and there is
            one round of polish at most.
        generator: Source of randomness.

    Source:
        Del Moral, Doucet & Jasra (2006), https://doi.org/10.1111/j.1467-9868.2006.00553.x;
        keeping all states: Dau & Chopin (2022), https://doi.org/10.1111/rssb.12475; weighing
        all temperatures: Karamanis & Seljak (2024), https://arxiv.org/abs/2407.20722

    Example:
        >>> from trjmcmc import problems
        >>> target = problems.sinh_arcsinh()
        >>> smc = TemperedSMC(target, target.space.enumerate(), particles=50, moves=5,
        ...                   generator=torch.Generator().manual_seed(0))
        >>> smc.run().log_evidence.shape
        torch.Size([2])
    """

    def __init__(
        self,
        target: Target,
        code: Tensor,
        *,
        particles: int = 1000,
        moves: int = 30,
        ess: float = 0.5,
        gradients: bool | None = None,
        polish: int = POLISH,
        budget: int | None = None,
        generator: torch.Generator,
    ) -> None:
        if particles < 2 or moves < 1 or not 0 < ess < 1:
            raise ConfigurationError(
                "smc: expected particles >= 2, moves >= 1, 0 < ess < 1, got "
                f"{particles}, {moves}, {ess}"
            )
        self.target, self.code, self.generator = target, code, generator
        self.particles, self.moves, self.ess, self.budget = particles, moves, ess, budget
        self.polish = polish if budget is None else min(polish, 1)
        self.gradients = target.differentiable if gradients is None else gradients
        self.keep = max(particles, STORED // (max(len(code), 1) * USUAL_TEMPERATURES))
        self.evaluations = 0
        m, device = len(code), target.device
        self.log_evidence = torch.zeros(m, dtype=torch.float64, device=device)
        self._step_size = torch.full((m, 1, 1), 0.4, dtype=target.dtype, device=device)
        self._trajectories_pay: bool | None = None
        self._store: list[_Stored] = []
        self._generation: _Generation | None = None
        self._polished = 0
        self._finished: list[tuple[Tensor, Tensor]] = []  # chunks of an evaluation under way
        self.temperatures = 0

    # ---- the loop ---------------------------------------------------------------------------

    def run(self, *, progress: bool = False) -> Particles:
        """Go on to the posterior."""
        with (
            torch.no_grad(),
            tqdm(total=1.0, desc="pilot", disable=not progress, bar_format=BAR) as bar,
        ):
            if self._generation is None:
                self._generation = self._prior_generation()
            while True:
                generation = self._generation
                while not generation.complete:
                    self._advance(generation)
                    generation.proposed = None
                bar.update(float(generation.temper.min()) - bar.n)
                self._keep(generation)
                cold = bool((generation.temper >= 1).all())
                if cold and self._polished == self.polish:
                    break
                self._polished += cold
                if self.temperatures == MAX_TEMPERATURES:
                    raise ConvergenceError(
                        f"tempering reached only {float(generation.temper.min()):.3g} in "
                        f"{MAX_TEMPERATURES} steps"
                    )
                self._generation = self._next_generation(generation)
        return self._collect()

    def _prior_generation(self) -> _Generation:
        m, n = len(self.code), self.particles
        size = n * (1 + self.moves)
        theta = self.target.sample_prior(self.code.repeat_interleave(size, 0), self.generator)
        temper = torch.zeros(m, 1, dtype=torch.float64, device=self.target.device)
        first = _Generation(temper, self.target.space.active(self.code)[:, None], ["prior"])
        first.proposed = (theta.view(m, size, -1), None, 0.0)
        return first

    def _next_generation(self, last: _Generation) -> _Generation:
        log_likelihood, weight = last.log_likelihood, last.weight
        if last.schedule == ["prior"] and not bool((weight > 0).any(1).all()):
            bad = int((weight > 0).any(1).logical_not().nonzero()[0, 0])
            label = self.target.space.label(self.code[bad : bad + 1])[0]
            raise UnreachableError(
                f"model {label!r}: none of {weight.shape[1]} prior draws has a finite likelihood"
            )
        step = _next_step(log_likelihood, weight, last.temper, self.ess)
        schedule = self._schedule()
        if self.budget is not None:
            step = torch.maximum(step, self._forced(last, schedule))
        log_weight = weight.log() + torch.where(weight > 0, step * log_likelihood, 0.0)
        self.log_evidence += log_weight.logsumexp(1)
        self.temperatures += 1
        p = log_weight.softmax(1)
        new = _Generation((last.temper + step).clamp(max=1), last.active, schedule)
        new.begin(last, p, self.particles, self.generator)
        return new

    def _schedule(self) -> list[str]:
        if not self.gradients:
            return ["walk"] * self.moves
        few = max(1, self.moves // HMC_SHARE)
        if self._trajectories_pay is None:
            return ["trajectory", *["walk"] * HMC_SHARE] * max(1, few // 2)
        if self._trajectories_pay:
            return ["trajectory", "walk"] * few
        return ["walk"] * self.moves + ["trajectory"]

    def _forced(self, last: _Generation, schedule: list[str]) -> Tensor:
        """The step of the temperature that the budget forces."""
        assert self.budget is not None
        each = sum(LEAPS + 2 if kind == "trajectory" else 1 for kind in schedule)
        left = (self.budget - self.evaluations) // (len(self.code) * self.particles * each)
        left -= self.polish
        if left <= 1:
            return 1 - last.temper
        ahead = last.temper ** (1 - 1 / left)
        return torch.where(last.temper > 0, ahead - last.temper, 0.0)

    # ---- moves ------------------------------------------------------------------------------

    def _advance(self, now: _Generation) -> None:
        kind = now.schedule[now.done]
        if now.proposed is None:  # else a likelihood failed here before
            if kind == "trajectory":
                now.proposed = self._trajectory(now)
            else:
                now.proposed = (now.walk(self.generator), None, 0.0)
        theta, gradient, log_ratio = now.proposed
        if kind == "prior":
            usable = theta.isfinite().all(-1)
            theta = torch.where(usable[..., None], theta, 0.0)
            log_prior, log_likelihood = self._evaluate(now, theta)
            usable &= ~_piled(theta, log_likelihood)
            now.fill(theta, log_prior, torch.where(usable, log_likelihood, -math.inf))
            return
        log_prior, log_likelihood = self._evaluate(now, theta)
        chance = now.move(theta, log_prior, log_likelihood, log_ratio, gradient, self.generator)
        if kind == "trajectory":
            rate = chance.mean(1).to(self._step_size.dtype) - TARGET_ACCEPTANCE
            self._step_size *= torch.exp(0.5 * rate)[:, None, None]
        elif "trajectory" in now.schedule:
            now.gradient = None

    def _trajectory(self, now: _Generation) -> tuple[Tensor, Tensor, Tensor]:
        """A Hamiltonian trajectory of random length, in the coordinates of the particles."""
        like, generator = now.theta_now, self.generator
        if now.gradient is None:
            now.gradient = self._gradient(now, like)
        factor = now.factor * now.size.sqrt() / 2.38
        spread = torch.randn(*like.shape[:2], 1, generator=generator, device=like.device)
        size = self._step_size * torch.exp(0.3 * spread.to(like.dtype))
        momentum = torch.randn(
            like.shape, generator=generator, dtype=like.dtype, device=like.device
        )
        begun = momentum.square().sum(-1)
        theta, gradient = like, now.gradient
        leaps = int(
            torch.randint(LEAPS // 2, LEAPS + 1, (), generator=generator, device=like.device)
        )
        for _ in range(leaps):
            momentum = momentum + 0.5 * size * (gradient @ factor)
            theta = theta + size * (momentum @ factor.mT)
            gradient = self._gradient(now, theta)
            momentum = momentum + 0.5 * size * (gradient @ factor)
        lost = ~(theta.isfinite().all(-1) & momentum.isfinite().all(-1))
        energy = 0.5 * (begun - momentum.square().sum(-1))
        theta = torch.where(lost[..., None] | ~now.active, like, theta)
        return theta, gradient, torch.where(lost, -math.inf, energy)

    def _gradient(self, now: _Generation, theta: Tensor) -> Tensor:
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

    def _evaluate(self, now: _Generation, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Log prior (p(model) not included) and log likelihood, -inf where impossible."""
        m, n, d = theta.shape
        code = self.code.repeat_interleave(n, 0)
        chunks = list(zip(code.split(CHUNK), theta.reshape(m * n, d).split(CHUNK), strict=True))
        for rows in chunks[len(self._finished) :]:
            log_prior, log_likelihood = self.target.log_prior_and_likelihood(*rows)
            total = torch.where(log_prior == -math.inf, log_prior, log_prior + log_likelihood)
            self.target.check_finite(*rows, total)
            self._finished.append((log_prior, log_likelihood))
            self.evaluations += len(log_prior)
        log_prior, log_likelihood = (
            torch.cat(x).view(m, n).double() for x in zip(*self._finished, strict=True)
        )
        self._finished = []
        log_prior = log_prior - self.target.space.log_prior(self.code)[:, None]
        return log_prior, torch.where(log_prior == -math.inf, -math.inf, log_likelihood)

    # ---- what remains -----------------------------------------------------------------------

    def _keep(self, now: _Generation) -> None:
        """Put the points of a temperature aside, thinned where there are very many."""
        if "trajectory" in now.schedule and self.target.dim:
            self._trajectories_pay = now.trajectories_pay
        weight, n = now.weight, now.weight.shape[1]
        index = torch.arange(n, device=weight.device).expand(len(weight), -1)
        share = weight
        if n > self.keep:
            index = _systematic(weight, self.keep, self.generator)
            share = torch.full_like(index, 1 / self.keep, dtype=weight.dtype)
        rows = torch.arange(len(weight), device=weight.device)[:, None].expand_as(index)
        used = (share > 0) & (now.log_likelihood.gather(1, index) > -math.inf)
        flat = now.theta.flatten(0, 1)
        where = (index + n * torch.arange(len(weight), device=index.device)[:, None])[used]
        self._store.append(
            _Stored(
                rows[used],
                flat[where],
                now.log_prior.flatten()[where],
                now.log_likelihood.flatten()[where],
                share[used].log() + math.log(n),
                now.temper[:, 0],
                self.log_evidence.clone(),
                n,
            )
        )

    def _collect(self) -> Particles:
        """Weigh the points of all temperatures to the posterior, row by row."""
        m = len(self.code)
        row, theta, log_prior, log_likelihood, log_count = (
            torch.cat([getattr(s, name) for s in self._store])
            for name in ("row", "theta", "log_prior", "log_likelihood", "log_count")
        )
        mixture = torch.full_like(log_likelihood, -math.inf)
        for s in self._store:  # log sum over temperatures of n L^beta / Z_beta
            offset = math.log(s.size) - s.log_evidence
            mixture = torch.logaddexp(mixture, s.temper[row] * log_likelihood + offset[row])
        log_weight = log_count + log_likelihood - mixture
        order = torch.argsort(row, stable=True)
        row, log_weight = row[order], log_weight[order]
        log_weight = log_weight - group_logsumexp(log_weight, row, m)[row]
        log_model = self.target.space.log_prior(self.code).double()
        return Particles(
            self.code,
            row,
            theta[order],
            (log_prior + log_likelihood)[order] + log_model[row],
            log_weight,
            self.log_evidence.clone(),
            self.temperatures,
            self.evaluations,
        )


@dataclass(frozen=True)
class _Stored:
    """Points of one temperature: flat, with the number of draws that each stands for."""

    row: Tensor
    theta: Tensor
    log_prior: Tensor
    log_likelihood: Tensor
    log_count: Tensor
    temper: Tensor
    log_evidence: Tensor
    size: int


class _Generation:
    """The chains of one temperature: what they have visited and where they are."""

    theta: Tensor
    log_prior: Tensor
    log_likelihood: Tensor
    weight: Tensor

    def __init__(self, temper: Tensor, active: Tensor, schedule: list[str]) -> None:
        self.temper, self.active, self.schedule = temper, active, schedule
        self.size = active.sum(-1, keepdim=True).clamp(min=1)
        self.done = 0
        self.proposed: tuple[Tensor, Tensor | None, Tensor | float] | None = None
        self.gradient: Tensor | None = None
        self._gains: dict[str, list[Tensor]] = {"walk": [], "trajectory": []}

    @property
    def complete(self) -> bool:
        return self.done == len(self.schedule)

    def fill(self, theta: Tensor, log_prior: Tensor, log_likelihood: Tensor) -> None:
        """Take independent draws as they are."""
        self.theta, self.log_prior, self.log_likelihood = theta, log_prior, log_likelihood
        self.weight = torch.full_like(log_likelihood, 1 / log_likelihood.shape[1])
        self.weight = torch.where(log_likelihood > -math.inf, self.weight, 0.0)
        self.done += 1

    def begin(self, last: _Generation, p: Tensor, chains: int, generator: torch.Generator) -> None:
        """Choose the chains' first points, and the pairs of points that walks go along."""
        m, _, d = last.theta.shape
        self.factor, self.scale = _covariance_factor(last.theta, p, self.active)
        index = _systematic(p, chains, generator)
        pool = _systematic(p, max(chains, 1000), generator)
        shuffled = torch.randperm(pool.shape[1], generator=generator, device=pool.device)
        self.pool = _rows(last.theta, pool[:, shuffled])
        total = chains * (1 + len(self.schedule))
        like = last.log_prior
        self.theta = last.theta.new_zeros(m, total, d)
        self.log_prior, self.log_likelihood = like.new_zeros(m, total), like.new_zeros(m, total)
        self.weight = like.new_zeros(m, total)
        self.chains = chains
        self.here = torch.arange(chains, device=like.device).expand(m, -1)
        self.theta[:, :chains] = _rows(last.theta, index)
        self.log_prior[:, :chains] = last.log_prior.gather(1, index)
        self.log_likelihood[:, :chains] = last.log_likelihood.gather(1, index)

    @property
    def theta_now(self) -> Tensor:
        return _rows(self.theta, self.here)

    def walk(self, generator: torch.Generator) -> Tensor:
        """Symmetric proposals: along the covariance, or the difference of two particles."""
        theta = self.theta_now
        m, n, _ = theta.shape

        def uniform() -> Tensor:
            return torch.rand(m, n, 1, generator=generator, device=theta.device)

        noise = torch.randn(
            theta.shape, generator=generator, dtype=theta.dtype, device=theta.device
        )
        spread = torch.randn(m, n, 1, generator=generator, dtype=theta.dtype, device=theta.device)
        length = torch.exp(STEP_SPREAD * spread - 0.5 * STEP_SPREAD)
        along = noise @ self.factor.mT
        size = self.pool.shape[1]
        a = torch.randint(size, (m, n), generator=generator, device=theta.device)
        other = torch.randint(1, size, (m, n), generator=generator, device=theta.device)
        difference = _rows(self.pool, a) - _rows(self.pool, (a + other) % size)
        part = length * 2.38 / (2 * self.size).to(theta.dtype).sqrt()
        times = torch.where(uniform() < WHOLE, 1.0, part)
        move = torch.where(
            uniform() < DIFFERENCES, times * difference + JITTER * along, length * along
        )
        return torch.where(self.active, theta + move, 0.0)

    def move(
        self,
        theta: Tensor,
        log_prior: Tensor,
        log_likelihood: Tensor,
        log_ratio: Tensor | float,
        gradient: Tensor | None,
        generator: torch.Generator,
    ) -> Tensor:
        """Accept or reject; both points keep their share of a draw. Returns the chances."""
        n, here = self.chains, self.here
        old_prior, old = self.log_prior.gather(1, here), self.log_likelihood.gather(1, here)
        ratio = log_prior - old_prior + self.temper * (log_likelihood - old) + log_ratio
        chance = ratio.clamp(max=0).exp().nan_to_num(0.0)
        chance = torch.where(log_likelihood > -math.inf, chance, 0.0)
        u = torch.rand(chance.shape, generator=generator, dtype=chance.dtype, device=chance.device)
        kind = self.schedule[self.done]
        gap = (theta - self.theta_now) / self.scale
        gain = (chance[..., None] * gap.double().square()).nan_to_num(0.0, 0.0).mean(1)
        if gain.shape[1]:
            self._gains[kind].append(torch.where(self.active[:, 0], gain, math.inf).amin(-1))
        self.done += 1
        places = slice(self.done * n, (self.done + 1) * n)
        self.theta[:, places] = theta
        self.log_prior[:, places], self.log_likelihood[:, places] = log_prior, log_likelihood
        there = torch.arange(places.start, places.stop, device=here.device).expand_as(here)
        total = self.weight.shape[1] - n  # each move makes n draws
        self.weight.scatter_add_(1, here, (1 - chance) / total)
        self.weight.scatter_add_(1, there, chance / total)
        taken = u < chance
        self.here = torch.where(taken, there, here)
        if gradient is not None and self.gradient is not None:
            self.gradient = torch.where(taken[..., None], gradient, self.gradient)
        return chance

    @property
    def trajectories_pay(self) -> bool:
        """Whether trajectories move the worst coordinate much further than walks."""
        walk, trajectory = (torch.stack(self._gains[k]).mean(0) for k in ("walk", "trajectory"))
        return bool((trajectory > WORTH * walk).double().mean() > 0.5)


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


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """Points (M, N, D) at indices (M, n)."""
    return x.gather(1, index[..., None].expand(-1, -1, x.shape[-1]))


def _next_step(log_likelihood: Tensor, weight: Tensor, temper: Tensor, ess: float) -> Tensor:
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

    return _bisect(keeps, 1 - temper)


def _bisect(keeps: Callable[[Tensor], Tensor], whole: Tensor) -> Tensor:
    high = whole.log()
    low = torch.full_like(high, LOG_SMALLEST_STEP)
    fine = keeps(whole)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        ok = keeps(middle.exp())
        low, high = torch.where(ok, middle, low), torch.where(ok, high, middle)
    return torch.where(fine, whole, low.exp())


def _systematic(p: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Systematic resampling of each row, weights (M, N) -> indices (M, n)."""
    edges = p.double().cumsum(1)
    u = torch.rand(len(p), 1, generator=generator, dtype=torch.float64, device=p.device)
    grid = (torch.arange(n, device=p.device, dtype=torch.float64) + u) / n
    return torch.searchsorted(edges, grid * edges[:, -1:]).clamp(max=p.shape[1] - 1)


def _covariance_factor(theta: Tensor, p: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
    """Factors of the rows' covariances, scaled for random walks, (M, D, D), and sds (M, 1, D)."""
    weight = p.to(theta.dtype)[..., None]
    centred = theta - (weight * theta).sum(1, keepdim=True)
    covariance = ((weight * centred).mT @ centred).double()
    scale = (covariance.diagonal(dim1=1, dim2=2) + 1e-12).sqrt()
    correlation = covariance / scale[:, :, None] / scale[:, None, :]
    eye = torch.eye(theta.shape[2], dtype=torch.float64, device=theta.device)
    values, vectors = torch.linalg.eigh(correlation + 1e-5 * eye)
    size = active.sum(-1, keepdim=True).clamp(min=1)
    factor = vectors * values.clamp(min=0).sqrt()[:, None, :] * (2.38 / size.sqrt())
    return (factor * scale[:, :, None]).to(theta.dtype), scale[:, None].to(theta.dtype)
