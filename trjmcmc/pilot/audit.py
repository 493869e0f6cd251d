"""What a map does not know: evidences, draws and modes that owe nothing to it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from ..draws import Pool
from ..errors import ConfigurationError
from ..target.target import Target
from ..transport.base import Transport
from .report import AGREEMENT, AuditReport, ModelAudit, Score
from .smc import ROW, Particles, TemperedSMC

REPLICATES = 4  # independent runs of each model; the last one is never trained on

PARTICLES = 24_000  # chains of the first round, over all models and replicates

MATTERS = 0.01  # posterior probability from which a model must agree

LONGEST = 120.0  # seconds of audit after which it does not grow again

AT_ONCE = 65_536  # that are carried through a map at once

SCORED = 4000  # held-out draws a model that are scored under a map

SHORTFALL = 5.0  # nats that log pi - log q may reach where the map counts as covering

HOPELESS = 10.0  # nats from which no importance draw would ever land there

POOL = 50_000  # draws a model for training,

POOL_IN_ALL = 1_000_000  # but no more than these over all models


class Audit:
    """Independent tempered sequential Monte Carlo runs of each model, grown until they agree.

    Four replicates a model, in two halves. Models whose halves differ by more than 0.1 nats,
    and have a share of the posterior, are run again with twice as many particles, until they
    agree or the budget is spent; all rounds count. The standard error comes from the
    replicates, pooled over models where that is larger. Maps may be trained on the draws of
    all replicates but the last; that one is kept to score them.

    Arguments:
        target: The target.
        code: Models, shape (M, L).
        particles: Chains a model and replicate in the first round; 24 000 shared among all,
            but 100 to 1000 each, if omitted.
        moves: Moves of each chain at each temperature.
        gradients: Whether to use them; None asks the target.
        generator: Source of randomness.

    Raises:
        ConfigurationError: A setting out of range.

    Example:
        >>> from trjmcmc import problems
        >>> target = problems.sinh_arcsinh()
        >>> audit = Audit(target, target.space.enumerate(), particles=100,
        ...               generator=torch.Generator().manual_seed(0))
        >>> audit.grow(budget=10**6)
        >>> bool((audit.log_evidence.abs() < 0.2).all())
        True
    """

    def __init__(
        self,
        target: Target,
        code: Tensor,
        *,
        particles: int | None = None,
        moves: int = 30,
        gradients: bool | None = None,
        generator: torch.Generator,
    ) -> None:
        m = len(code)
        each = min(1000, max(100, PARTICLES // max(REPLICATES * m, 1)))
        self.target, self.code, self.generator = target, code, generator
        self.particles = each if particles is None else particles
        self.moves, self.gradients = moves, gradients
        self.rounds: list[tuple[Tensor, int, Particles]] = []  # models, particles, draws
        self.seconds, self.evaluations = 0.0, 0
        self.hurried = False  # whether a round came to temperature 1 too soon for lack of time
        self._running: tuple[Tensor, int, TemperedSMC] | None = None
        if particles is not None and particles < 2:
            raise ConfigurationError(f"particles: expected 2 or more, got {particles}")

    # ---- growth -----------------------------------------------------------------------------

    def grow(
        self,
        budget: int | None = None,
        *,
        limit: int | None = None,
        deadline: float = math.inf,
        progress: bool = False,
    ) -> None:
        """Run until the halves agree.

        Arguments:
            budget: Evaluations after which it does not grow again.
            limit: Evaluations that even the first round must not exceed, about.
            deadline: Time by ``time.monotonic`` by which the first round is over, about, and
                later ones are expected to be.
            progress: Show a bar.

        If an evaluation fails, calling it again goes on where it stopped.
        """
        while True:
            if self._running is None:
                todo = self._disagreeing() if self.rounds else torch.arange(len(self.code))
                if not len(todo) or not self._begin(todo, budget, limit, deadline):
                    return
            self._finish_round(deadline, progress)
            if limit is not None:
                return

    def enlarge(
        self, models: Tensor, *, deadline: float = math.inf, progress: bool = False
    ) -> None:
        """Run given models again with twice the particles of the last round.

        Arguments:
            models: Positions in ``code``, shape (n,).
            deadline: Time by ``time.monotonic`` by which it must be expected to be done.
            progress: Show a bar.
        """
        if self._begin(models.cpu(), None, None, deadline):
            self._finish_round(deadline, progress)

    def _begin(self, todo: Tensor, budget: int | None, limit: int | None, deadline: float) -> bool:
        size = self.particles * 2 ** len(self.rounds)
        if self.rounds and not self._affordable(budget, todo, size, deadline):
            return False
        smc = TemperedSMC(
            self.target,
            self.code[todo.to(self.code.device)].repeat(REPLICATES, 1),
            particles=size,
            moves=self.moves,
            gradients=self.gradients,
            budget=limit,
            generator=self.generator,
        )
        self._running = (todo, size, smc)
        return True

    def _finish_round(self, deadline: float, progress: bool) -> None:
        assert self._running is not None
        begun = time.perf_counter()
        todo, size, smc = self._running
        try:
            run = smc.run(deadline=deadline, progress=progress)
            self.rounds.append((todo, size, run))
        finally:
            self.seconds += time.perf_counter() - begun
        self.evaluations += smc.evaluations
        self.hurried |= smc.hurried
        self._running = None

    def _affordable(self, budget: int | None, todo: Tensor, size: int, deadline: float) -> bool:
        _, last_size, last = self.rounds[-1]
        cost = last.evaluations * size / last_size * len(todo) / len(self.rounds[-1][0])
        spent = self.evaluations + cost
        soon = time.monotonic() + cost * self.seconds / max(self.evaluations, 1) < deadline
        return (budget is None or spent <= budget) and self.seconds < LONGEST and soon

    def _disagreeing(self) -> Tensor:
        rough = ~(self.gap.abs() <= AGREEMENT) & self.matters
        return rough.nonzero()[:, 0].cpu()

    # ---- evidences --------------------------------------------------------------------------

    def _by_replicate(self) -> Tensor:
        """Log evidences over all rounds, shape (replicates, M)."""
        m = len(self.code)
        terms, sizes = [], []
        for todo, size, run in self.rounds:
            log_z = torch.full((REPLICATES, m), -math.inf, dtype=torch.float64)
            log_z[:, todo] = run.log_evidence.view(REPLICATES, -1).cpu() + math.log(size)
            weight = torch.zeros(m, dtype=torch.float64)
            weight[todo] = size
            terms.append(log_z)
            sizes.append(weight)
        return torch.stack(terms).logsumexp(0) - torch.stack(sizes).sum(0).log()

    @property
    def log_evidence(self) -> Tensor:
        """Log evidences, shape (M,), float64, nats."""
        return self._by_replicate().logsumexp(0) - math.log(REPLICATES)

    @property
    def std_error(self) -> Tensor:
        """Standard errors of :attr:`log_evidence` from the replicates, shape (M,)."""
        z = (self._by_replicate() - self.log_evidence).exp()
        own = z.std(0) / math.sqrt(REPLICATES)
        counted = self.matters & own.isfinite()
        pooled = own[counted].square().mean().sqrt() if bool(counted.any()) else own.new_zeros(())
        return torch.maximum(own, pooled)

    @property
    def gap(self) -> Tensor:
        """Difference between the log evidences of the two halves, shape (M,)."""
        first, second = self._by_replicate().chunk(2)
        return first.logsumexp(0) - second.logsumexp(0)

    @property
    def log_mass(self) -> Tensor:
        """Log of p(model) times the evidence, shape (M,)."""
        return self.log_evidence + self.target.space.log_prior(self.code).double().cpu()

    @property
    def matters(self) -> Tensor:
        """Models with a share of the posterior, shape (M,), bool."""
        return self.log_mass.softmax(0) > MATTERS

    @property
    def ancestors(self) -> Tensor:
        """Prior draws that each model's draws descend from, in effect, shape (M,)."""
        squares = torch.zeros(len(self.code), dtype=torch.float64)
        by_round = [run.log_evidence.view(REPLICATES, -1).cpu() for _, _, run in self.rounds]
        whole = (
            self._by_replicate().logsumexp(0)
            + torch.stack(
                [
                    torch.zeros(len(self.code), dtype=torch.float64).index_fill(
                        0, todo, float(size)
                    )
                    for todo, size, _ in self.rounds
                ]
            )
            .sum(0)
            .log()
        )
        for (todo, size, run), log_z in zip(self.rounds, by_round, strict=True):
            model = todo.repeat(REPLICATES)  # of each row
            share = (log_z.flatten() + math.log(size) - whole[model]).exp()
            origin, place = run.origin.unique(return_inverse=True)
            each = torch.zeros(len(origin), dtype=torch.float64, device=place.device)
            each = each.index_add(0, place, run.log_weight.exp()).cpu()
            row = (origin // ROW).cpu()
            squares.index_add_(0, model[row], (each * share[row]).square())
        return 1 / squares

    # ---- draws ------------------------------------------------------------------------------

    def draw(
        self, model: Tensor, replicates: Sequence[int] | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Posterior draws of given models.

        Runs are weighed by their evidences, so that a run in which a mode came out too heavy
        by chance has its proper say.

        Arguments:
            model: Positions in ``code``, shape (n,).
            replicates: Replicates to draw from; all if omitted.

        Returns:
            Coordinates, shape (n, D), log joint densities, shape (n,), and the prior draws that
            they descend from as numbers, shape (n,): draws of one ancestor are not independent.
        """
        used = list(range(REPLICATES) if replicates is None else replicates)
        device, m = self.target.device, len(self.code)
        log_share, offsets, parts, rows = [], [], [], 0
        for todo, size, run in self.rounds:
            share = torch.full((len(used), m), -math.inf, dtype=torch.float64)
            place = torch.full((len(used), m), -1)
            log_z = run.log_evidence.view(REPLICATES, -1).cpu()
            for i, r in enumerate(used):
                share[i, todo] = log_z[r] + math.log(size)
                place[i, todo] = torch.arange(len(todo)) + r * len(todo) + rows
            log_share.append(share)
            offsets.append(place)
            parts.append(run)
            rows += len(run.code)
        share, place = torch.cat(log_share).to(device), torch.cat(offsets).to(device)
        p = share.softmax(0)[:, model].T
        run_of = torch.multinomial(p, 1, generator=self.generator)[:, 0]
        row = place[run_of, model]
        theta = torch.empty(len(model), self.target.dim, dtype=self.target.dtype, device=device)
        log_joint = torch.empty(len(model), dtype=torch.float64, device=device)
        ancestor = torch.empty(len(model), dtype=torch.long, device=device)
        start = 0
        for run in parts:
            mine = (row >= start) & (row < start + len(run.code))
            index = run.draw(row[mine] - start, self.generator)
            theta[mine], log_joint[mine] = run.theta[index], run.log_joint[index]
            ancestor[mine] = start * ROW + run.origin[index]
            start += len(run.code)
        return theta, log_joint, ancestor

    def pool(self, most: float = POOL_IN_ALL) -> Pool:
        """Draws of every model for training, from all replicates but the last.

        Arguments:
            most: Draws over all models, about.
        """
        each = min(POOL, max(1, int(min(most, POOL_IN_ALL)) // len(self.code)))
        model = torch.arange(len(self.code), device=self.target.device).repeat_interleave(each)
        theta, log_joint, _ = self.draw(model, range(REPLICATES - 1))
        return Pool(self.code[model], theta, log_joint)

    # ---- the map ----------------------------------------------------------------------------

    def shortfall(self, transport: Transport, each: int = SCORED) -> Tensor:
        """log pi - log q at ``each`` held-out posterior draws, shape (M, draws), nats.

        It scatters about zero where the map fits; a mode that the map lacks shows as a heavy
        tail on the right.
        """
        m = len(self.code)
        model = torch.arange(m, device=self.target.device).repeat_interleave(each)
        theta, log_joint, _ = self.draw(model, [REPLICATES - 1])
        with torch.no_grad():
            rows = zip(theta.split(AT_ONCE), self.code[model].split(AT_ONCE), strict=True)
            log_q = torch.cat([transport.log_prob(*some).double() for some in rows])
        log_pi = log_joint - self.log_mass.to(log_joint.device)[model]
        return (log_pi - log_q).nan_to_num(math.inf).view(m, each)

    def report(
        self,
        score: Score,
        modes: Sequence[int],
        map_log_evidence: Sequence[float],
        map_std_error: Sequence[float],
        mended: int,
        normals: bool = False,
    ) -> AuditReport:
        """What the audit found beside what the map says, in the order of ``code``."""
        columns = (
            self.target.space.label(self.code),
            *(x.tolist() for x in (self.log_evidence, self.std_error, self.gap)),
            map_log_evidence,
            map_std_error,
            *(x.tolist() for x in score),
            modes,
            self.matters.tolist(),
            self.ancestors.tolist(),
        )
        return AuditReport(
            tuple(ModelAudit(*row) for row in zip(*columns, strict=True)),
            evaluations=self.evaluations,
            seconds=self.seconds,
            rounds=len(self.rounds),
            mended=mended,
            normals=normals,
        )

    def score(self, transport: Transport, each: int = SCORED) -> Score:
        """What share of each posterior the map covers, and what share it has lost."""
        shortfall = self.shortfall(transport, each)
        return Score(
            (shortfall < SHORTFALL).double().mean(1).cpu(),
            (shortfall > HOPELESS).double().mean(1).cpu(),
        )


def tempered_draws(target: Target, particles: int, generator: torch.Generator) -> Pool:
    """Equally weighted posterior draws of every model, by tempered sequential Monte Carlo.

    Arguments:
        target: A target of few models.
        particles: Of each run and model; draws of three of four runs are pooled.
        generator: Source of randomness.
    """
    audit = Audit(target, target.space.enumerate(), particles=particles, generator=generator)
    audit.grow(0)
    return audit.pool()
