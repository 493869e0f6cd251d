"""Audits: evidences and draws of each model that owe nothing to a map."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .. import clock
from ..draws import Pool
from ..errors import ConfigurationError
from ..promises import LOG_EVIDENCES_AGREE
from ..target.target import Target
from ..transport.base import Transport
from .particles import ROW, Particles
from .parts import Part
from .report import COVERED_NATS, LOST_NATS, AuditReport, ModelAudit, Score
from .smc import TemperedSMC

REPLICATES = 4  # independent runs of each model, in two halves; maps never learn from the last

PARTICLES = 24_000  # of the first round, shared by all models and replicates. Four replicates of
# 1000 give the log evidences of factor analysis to .1 in 18 s

FEWEST_PARTICLES, MOST_PARTICLES = 100, 1000  # of them a model and replicate

MOVES = 30  # of each chain at each temperature

RELEVANT = 0.01  # probability of a model from which its halves must agree

LONGEST_SECONDS = 120.0  # after which an audit does not grow again

SCORED_DRAWS = 4000  # held-out ones a model that score a map: what it covers is known to .4 percent

DRAWS_PER_MODEL, DRAWS_IN_ALL = 50_000, 1_000_000  # for training

IN_PARTS = 10_000  # draws of the runs by which it is known how many lie in parts

AT_ONCE = 65_536  # points that go through a map at once: memory


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
        moves: Moves of each chain at each temperature, 30 if omitted.
        generator: Source of randomness.

    Attributes:
        rounds: The models of each round as positions in ``code``, its particles a model and
            replicate, and what it found.
        outside: Share of what the runs have found of each model that lies outside all its parts,
            shape (M,).
        parts: Parts of posteriors that the runs have lost and that others have found, by position
            in ``code``. A round that begins drops them: it may meet them itself.
        seconds: Wall time so far.
        evaluations: Evaluations of the likelihood so far.
        hurried: Whether a round came to temperature 1 too soon, for lack of time.

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
        moves: int | None = None,
        generator: torch.Generator,
    ) -> None:
        self.target, self.code, self.generator = target, code, generator
        self.particles = usual_particles(len(code)) if particles is None else particles
        self.moves = MOVES if moves is None else moves
        self.rounds: list[tuple[Tensor, int, Particles]] = []
        self.parts: list[tuple[int, Part]] = []
        self.outside = torch.ones(len(code), dtype=torch.float64)
        self.seconds, self.evaluations, self.hurried = 0.0, 0, False
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
            deadline: Time by :func:`trjmcmc.clock.now` by which the first round is over, about, and
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
            deadline: Time by :func:`trjmcmc.clock.now` by which it must be expected to be done.
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
            budget=limit,
            generator=self.generator,
        )
        self._running, self.parts = (todo, size, smc), []
        self.outside.fill_(1.0)
        return True

    def add_part(self, part: Part) -> None:
        """Count a part that the runs have lost among what they have found."""
        (m,) = (self.code == part.code).all(-1).nonzero()[:, 0].tolist()
        theta, *_ = self._draw_runs(torch.full((IN_PARTS,), m, device=self.target.device))
        known = [p for i, p in self.parts if i == m] + [part]
        outside = ~torch.stack([p.place.holds(theta) for p in known]).any(0)
        self.outside[m] = max(float(outside.double().mean()), 1 / IN_PARTS)
        self.parts.append((m, part))

    def _finish_round(self, deadline: float, progress: bool) -> None:
        assert self._running is not None
        begun = clock.now()
        todo, size, smc = self._running
        try:
            run = smc.run(deadline=deadline, progress=progress)
            self.rounds.append((todo, size, run))
        finally:
            self.seconds += clock.now() - begun
        self.evaluations += smc.evaluations
        self.hurried |= smc.hurried
        self._running = None

    def _affordable(self, budget: int | None, todo: Tensor, size: int, deadline: float) -> bool:
        _, last_size, last = self.rounds[-1]
        cost = last.evaluations * size / last_size * len(todo) / len(self.rounds[-1][0])
        spent = self.evaluations + cost
        soon = clock.now() + cost * self.seconds / max(self.evaluations, 1) < deadline
        patient = self.seconds < LONGEST_SECONDS
        return (budget is None or spent <= budget) and patient and soon

    def _disagreeing(self) -> Tensor:
        rough = ~(self.gap.abs() <= LOG_EVIDENCES_AGREE) & self.matters
        return rough.nonzero()[:, 0].cpu()

    # ---- evidences --------------------------------------------------------------------------

    def _by_replicate(self) -> Tensor:
        """Log evidences over all rounds, shape (replicates, M)."""
        terms = []
        for todo, size, run in self.rounds:
            log_z = torch.full((REPLICATES, len(self.code)), -math.inf, dtype=torch.float64)
            log_z[:, todo] = run.log_evidence.view(REPLICATES, -1).cpu() + math.log(size)
            terms.append(log_z)
        runs = torch.stack(terms).logsumexp(0) - self._particles().log()
        return torch.logaddexp(runs + self.outside.log(), self._beside_runs().logsumexp(0))

    def _beside_runs(self) -> Tensor:
        """Log of the evidence that each part adds, shape (parts + 1, M), nats; the last is none."""
        found = torch.full((len(self.parts) + 1, len(self.code)), -math.inf, dtype=torch.float64)
        log_prior = self.target.space.log_prior(self.code).double().cpu()
        for i, (m, part) in enumerate(self.parts):
            found[i, m] = part.log_mass - log_prior[m]
        return found

    def _particles(self) -> Tensor:
        """Particles of each model in a replicate over all rounds, shape (M,), float64."""
        found = torch.zeros(len(self.code), dtype=torch.float64)
        for todo, size, _ in self.rounds:
            found[todo] += size
        return found

    @property
    def log_evidence(self) -> Tensor:
        """Log evidences, shape (M,), float64, nats."""
        return self._by_replicate().logsumexp(0) - math.log(REPLICATES)

    @property
    def std_error(self) -> Tensor:
        """Standard errors of :attr:`log_evidence` from the replicates, shape (M,)."""
        z = (self._by_replicate() - self.log_evidence).exp()
        own = z.std(0) / math.sqrt(REPLICATES)
        shares = (self._beside_runs() - self.log_evidence).exp()
        for share, (_, part) in zip(shares, self.parts, strict=False):
            own = torch.hypot(own, share * part.error)
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
        return self.log_mass.softmax(0) > RELEVANT

    @property
    def ancestors(self) -> Tensor:
        """Prior draws that each model's draws descend from, in effect, shape (M,)."""
        squares = torch.zeros(len(self.code), dtype=torch.float64)
        by_round = [run.log_evidence.view(REPLICATES, -1).cpu() for _, _, run in self.rounds]
        whole = self._by_replicate().logsumexp(0) + self._particles().log()  # parts included
        for (todo, size, run), log_z in zip(self.rounds, by_round, strict=True):
            model = todo.repeat(REPLICATES)  # of each row
            share = (log_z.flatten() + math.log(size) - whole[model]).exp() * self.outside[model]
            origin, place = run.origin.unique(return_inverse=True)
            each = torch.zeros(len(origin), dtype=torch.float64, device=place.device)
            each = each.index_add(0, place, run.log_weight.exp()).cpu()
            row = (origin // ROW).cpu()
            squares.index_add_(0, model[row], (each * share[row]).square())
        shares = (self._beside_runs() - self.log_evidence).exp()
        for share, (m, part) in zip(shares, self.parts, strict=False):
            squares[m] += share[m].square() / part.ess
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
        theta, log_joint, ancestor = self._draw_runs(model, replicates)
        if self.parts:
            self._draw_parts(model, theta, log_joint, ancestor)
        return theta, log_joint, ancestor

    def _draw_runs(
        self, model: Tensor, replicates: Sequence[int] | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Draws of the runs alone."""
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

    def _draw_parts(
        self, model: Tensor, theta: Tensor, log_joint: Tensor, ancestor: Tensor
    ) -> None:
        """Replace draws of the runs by as many of the parts as these have of each posterior.

        Those that lie inside a part are drawn again first, among those outside.
        """
        for m in {m for m, _ in self.parts}:
            mine = (model == m).nonzero()[:, 0]
            inside = [p.place.holds(theta[mine]) for i, p in self.parts if i == m]
            within = torch.stack(inside).any(0)
            outer, inner = mine[~within], mine[within]
            if len(outer) and len(inner):
                again = torch.randint(
                    len(outer), (len(inner),), generator=self.generator, device=mine.device
                )
                theta[inner], log_joint[inner] = theta[outer[again]], log_joint[outer[again]]
                ancestor[inner] = ancestor[outer[again]]
        beside = self._beside_runs()
        shares = (beside - self.log_evidence).exp()  # of each part, of all of a model
        shares[-1] = 1 - shares[:-1].sum(0)
        pick = torch.multinomial(
            shares.T.clamp(min=0).to(model.device)[model], 1, generator=self.generator
        )[:, 0]
        for i, (_, part) in enumerate(self.parts):
            mine = (pick == i).nonzero()[:, 0]
            index = part.draw(len(mine), self.generator) if len(mine) else mine
            theta[mine], log_joint[mine] = part.theta[index], part.log_joint[index]
            ancestor[mine] = -1 - i * ROW - index  # each point on its own

    def pool(self, most: float = math.inf, *, whole: bool = False) -> Pool:
        """Draws of every model.

        Arguments:
            most: Draws over all models, about; a million or fewer in any case.
            whole: From all replicates; if not, from all but the last, for training.
        """
        most = min(most, DRAWS_IN_ALL)
        each = min(DRAWS_PER_MODEL, max(1, int(most) // len(self.code)))
        model = torch.arange(len(self.code), device=self.target.device).repeat_interleave(each)
        theta, log_joint, _ = self.draw(model, range(REPLICATES - (not whole)))
        return Pool(self.code[model], theta, log_joint)

    # ---- the map ----------------------------------------------------------------------------

    def shortfall(self, transport: Transport, each: int | None = None) -> Tensor:
        """log pi - log q at held-out posterior draws, shape (M, draws), nats.

        It scatters about zero where the map fits; a mode that the map lacks shows as a heavy
        tail on the right.

        Arguments:
            transport: The map whose density is q.
            each: Draws a model, 4000 if omitted.
        """
        m, each = len(self.code), SCORED_DRAWS if each is None else each
        model = torch.arange(m, device=self.target.device).repeat_interleave(each)
        theta, log_joint, _ = self.draw(model, [REPLICATES - 1])
        with torch.no_grad():
            rows = zip(theta.split(AT_ONCE), self.code[model].split(AT_ONCE), strict=True)
            filled = ((transport.with_spares(x, c), c) for x, c in rows)
            log_q = torch.cat([transport.log_prob(*some).double() for some in filled])
        log_pi = log_joint - self.log_mass.to(log_joint.device)[model]
        return (log_pi - log_q).nan_to_num(math.inf).view(m, each)

    def report(
        self,
        score: Score,
        modes: Sequence[int],
        map_log_evidence: Sequence[float],
        map_std_error: Sequence[float],
        mended: int,
    ) -> AuditReport:
        """What the audit found beside what a map says.

        Arguments:
            score: Of the map.
            modes: Modes of each model, in the order of ``code``.
            map_log_evidence: Log evidences through the map, p(model) not included, nats.
            map_std_error: Their standard errors.
            mended: How often the map was trained again because of the audit.
        """
        columns = (
            self.target.space.label(self.code),
            *(x.tolist() for x in (self.log_evidence, self.std_error, self.gap)),
            map_log_evidence,
            map_std_error,
            *(x.tolist() for x in score),
            modes,
            self.matters.tolist(),
            self.ancestors.tolist(),
            [self.target.start_of(code) for code in self.code],
        )
        return AuditReport(
            tuple(ModelAudit(*row) for row in zip(*columns, strict=True)),
            evaluations=self.evaluations,
            seconds=self.seconds,
            rounds=len(self.rounds),
            mended=mended,
        )

    def score(self, transport: Transport, each: int | None = None) -> Score:
        """What share of each posterior a map covers, and what share it has lost.

        Arguments:
            transport: The map.
            each: Held-out draws a model, 4000 if omitted.
        """
        shortfall = self.shortfall(transport, each)
        return Score(
            (shortfall < COVERED_NATS).double().mean(1).cpu(),
            (shortfall > LOST_NATS).double().mean(1).cpu(),
        )


def usual_particles(models: int) -> int:
    """Chains of each of so many models and replicates in the first round."""
    return min(MOST_PARTICLES, max(FEWEST_PARTICLES, PARTICLES // max(REPLICATES * models, 1)))


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
