"""Few models: tempered populations of each, normals, and importance sampling beside the chains."""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

from ...draws import Pool
from ...errors import ConvergenceWarning, UnreachableError, warn_user
from ...fit.standardise import moments, typical_scale
from ...kernel.base import Kernel, State, start
from ...kernel.between.jump import Jump
from ...kernel.between.split import SplitMerge
from ...kernel.inside.crank_nicolson import CrankNicolson
from ...kernel.inside.random_walk import RandomWalk
from ...kernel.proposal.fixed import Fixed
from ...pilot.particles import Particles
from ...pilot.screening import draws_within
from ...pilot.smc import TemperedSMC
from ...transport.base import Transport
from ...transport.normals import gaussian_mixture
from ..moves import birth_death
from . import by_importance
from .base import FRESH, Known, Moves, Recipe, Route, masses, route_of
from .lost import A_CLIMB, is_of, lost_parts, with_part

LEAST_PARTICLES = 16  # of a population

DIFFERENCE, MATTERS = 1.0, 0.01  # nats (standard deviation); probability of a model that could

LEAST_MOVES = 4  # of a particle at each power

LEAST_SEARCH = 40_000  # evaluations of a search of one model

SEARCHES = 8  # of one model at most before chains go on

FOUND = 0.01  # nats that a search adds to an evidence, from which it has met something

AFTER_SOME, AFTER_ONE = 2, 4  # climbs in all, over those until some met a mode, or one did

DEAR_SHARE = 0.1  # of the planned evaluations, under which proposals are cheaper

FIRST_PROPOSED = 16  # steps of the first round there: normals take chains anywhere in one or two

FEW_NORMALS = 8  # of each model there

FEW_DRAWS = 200  # of a model, under which those of the populations are kept


class Lists(Recipe):
    """Few models, each with a tempered population of its own in every group."""

    searches = True
    least_chains = 3
    _unreached = False  # whether populations do not reach a model

    @property
    def codes(self) -> Tensor:
        """Models of a prior probability above 0, shape (M, L)."""
        return self.target.space.enumerate()[self._possible]

    @cached_property
    def _possible(self) -> Tensor:
        """Which models have one, shape (all models,)."""
        space = self.target.space
        return space.log_prior(space.enumerate()).isfinite()

    def guess(self, known: Known) -> Tensor:
        found = super().guess(known)
        assert found is not None
        every = found.new_full(self._possible.shape, -math.inf)
        every[self._possible] = found
        return every

    def first(self, known: Known) -> int:
        return min(FIRST_PROPOSED, self.plan.first) if known.proposed else self.plan.first

    def climbs(self, known: Known) -> int:
        if known.proposed:  # proposals begin with climbs of their own
            return 0
        return max(self.stated.climbs, self._usual_climbs)

    @property
    def _usual_climbs(self) -> int:
        most = min(self.plan.climbs, self.plan.most_climbs // max(1, len(self.with_places)))
        if self.share == 1 or not self.with_places:
            return most
        return min(most, draws_within(max(LEAST_SEARCH, self.share * A_CLIMB * most)))

    def begin(self) -> tuple[Known, State]:
        """Tempered populations of every model and group; proposals where evaluations are dear."""
        if self.share >= DEAR_SHARE:
            return self._cooled()
        return self._proposed()

    def _proposed(self) -> tuple[Known, State]:
        """Proposals that importance sampling refines; populations where they will not do."""
        g, stated = self.generator, self.stated.evaluations
        most = math.inf if stated is None else stated
        climbs = max(by_importance.CLIMBS, self.stated.climbs)
        try:
            found = by_importance.begun(
                self.target, self.codes, g, self.limit, climbs=climbs, evaluations=most
            )
        except UnreachableError:  # populations begin at more prior draws
            if stated is not None:
                raise
            return self._cooled()
        if not found.good and not self.late and stated is None:
            try:
                return self._cooled()
            except UnreachableError as error:  # the other models are sampled
                warn_user(f"{error}; its probability is unknown", ConvergenceWarning)
                self._unreached = True
        if not found.good and stated is not None:  # chains would spend what is left for less
            self.limit.spend()
        group = torch.arange(self.chains, device=self.target.device) % self.plan.groups
        repeat = group % len(found.log_mass)
        m = torch.multinomial(found.log_mass.softmax(1)[repeat], 1, generator=g)[:, 0]
        rows = found.rows(repeat, m, g)
        draws = found.draws.at(rows)
        state = State(draws.code, draws.theta, draws.log_joint.to(draws.theta))
        log_mass = found.log_mass[torch.arange(self.plan.groups) % len(found.log_mass)]
        return Known(
            found.draws,
            log_mass,
            log_mass.logsumexp(1),
            climbs=found.climbs,
            needed=(0,) * len(found.climbs),
            proposed=found.log_weights,
            poor=not found.good,
        ), state

    def _cooled(self) -> tuple[Known, State]:
        target, plan, g = self.target, self.plan, self.generator
        codes, groups = self.codes, plan.groups
        models = len(codes)
        most = max(LEAST_PARTICLES, min(plan.most_particles, plan.particles // (groups * models)))
        each = max(LEAST_PARTICLES, int(self.share**0.5 * most))
        run, log_mass = self._populations(each)
        while each < most and differ(log_mass):
            each = min(2 * each, most)
            larger = self._populations(each)
            if self.late:  # it was cut short
                break
            run, log_mass = larger
        rows = [
            torch.multinomial(log_mass[:, m].softmax(0), plan.taught, True, generator=g) * models
            + m
            for m in range(models)
        ]
        code = codes.repeat_interleave(plan.taught, 0)
        theta = run.theta[run.draw(torch.cat(rows), g)]
        pool = Pool(code, theta, target.log_joint(code, theta).double())
        group = torch.arange(self.chains, device=target.device) % groups
        m = torch.multinomial(log_mass.softmax(1)[group], 1, generator=g)[:, 0]
        state = start(target, codes[m], run.theta[run.draw(group * models + m, g)])
        return Known(pool, log_mass, log_mass.logsumexp(1)), state

    def _populations(self, particles: int) -> tuple[Particles, Tensor]:
        """Of every model in every group; log of p(model) times its evidence, shape (K, M)."""
        codes, groups, moves = self.codes, self.plan.groups, self.plan.moves
        run = TemperedSMC(
            self.target,
            codes.repeat(groups, 1),
            particles=particles,
            moves=max(min(LEAST_MOVES, moves), int(self.share**0.5 * moves)),
            ended=lambda: self.late,
            generator=self.generator,
        ).run()
        log_mass = run.log_evidence + self.target.space.log_prior(run.code)
        return run, log_mass.double().view(groups, len(codes))

    def moves(self, known: Known, generator: torch.Generator) -> Moves:
        target, space = self.target, self.target.space
        codes, active = self.codes, self.target.space.active(self.codes)
        through = self._normals(known, known.draws, generator)
        scale = typical_scale(moments(known.draws, codes, active)[1], active)
        inside = [
            RandomWalk(target, scale=scale),
            CrankNicolson(target, through, fresh=FRESH, name="normals inside"),
        ]
        if len(codes) == 1:
            return Moves({}, inside, through)
        guess = self.guess(known)
        jump = Jump(target, through, Fixed(space, guess, other=True), name="normals")
        between: dict[str, Kernel] = {"normals": jump}
        if known.proposed:  # measuring others takes longer than they save
            return Moves(between, inside, through)
        between["births"] = birth_death(target, guess)
        if SplitMerge.fits(target):
            between["splits"] = SplitMerge(target)
        return Moves(between, inside, through)

    def _normals(self, known: Known, draws: Pool, generator: torch.Generator) -> Transport:
        """Normals fitted to draws of each model."""
        plan, space = self.plan, self.target.space
        few = min(plan.normals, FEW_NORMALS) if known.proposed else plan.normals
        few = 1 if self.late else few  # to weigh what there is
        return gaussian_mixture(space, draws, generator, components=few, draws=plan.taught)

    def learn(self, known: Known, seen: Pool, first: bool) -> Known:
        """Draws of the chains; those of the populations too at first, and of rare models."""
        draws = self.few(seen, self.plan.taught * len(self.codes))
        rare = [c for c in self.codes if first or int(is_of(draws, c).sum()) < FEW_DRAWS]
        if rare:
            rows = torch.stack([is_of(known.draws, c) for c in rare]).any(0)
            draws = draws.joined(known.draws.at(rows))
        return known._replace(draws=draws)

    def weigh(self, known: Known, moves: Moves) -> Route | None:
        if known.proposed:
            found = route_of(known.proposed, self._apart(known))
            return found._replace(by_proposals=True) if not found.log_mass.isnan().any() else None
        assert moves.weighing is not None
        return self.route(moves.weighing, self.codes, self.generator)

    def _apart(self, known: Known) -> Tensor:
        """Half of what log evidences of the proposals of each model lie apart, shape (M,), nats."""
        assert known.log_mass is not None
        return (known.log_mass.amax(0) - known.log_mass.amin(0)).cpu() / 2

    def asked(self, code: Tensor) -> Tensor:
        index = self.host.index(code.flatten(0, 1)).view(code.shape[:2])
        possible = self._possible.cpu()
        return torch.nn.functional.one_hot(index, len(possible))[..., possible].double()

    # ---- lost modes -------------------------------------------------------------------------

    def search(
        self, known: Known, moves: Moves, seen: Pool, climbs: int
    ) -> tuple[Known, State | None]:
        """Climb from prior draws; what neither normals nor groups know joins the draws.

        Improbable models are searched too: what was lost may be nearly all of their evidence. After
        a search that met something as many climbs follow as came before, and three times as many
        where one climb alone met the largest part: others like it may have been missed. What this
        leaves is searched once chains have drawn.

        Source:
            Good (1953), https://doi.org/10.1093/biomet/40.3-4.237: what was met once tells how
            much was not met
        """
        if known.poor:
            if seen is known.draws or self._unreached or self.stated.evaluations is not None:
                return known, None
            return self._proposed()  # it was late
        if known.proposed:
            return known, None
        found, before = known, self.evaluations
        models, none = self.with_places, (0,) * len(self.with_places)
        climbed, needed = [*(known.climbs or none)], [*(known.needed or none)]
        for i in known.incomplete or range(len(models)) if climbs else ():
            m, through, times = models[i], moves.through, 0
            while not self.late and (not times or (climbed[i] < needed[i] and times < SEARCHES)):
                times, level = times + 1, float(masses(found)[m])
                assert through is not None
                parts = lost_parts(self, found, m, through, seen, climbs)
                climbed[i] += climbs
                for part in parts:
                    found = with_part(self, found, m, part)
                if parts:
                    mine = is_of(found.draws, self.codes[m])
                    through = self._normals(known, found.draws.at(mine), self.generator)
                if float(masses(found)[m]) > level + FOUND:
                    alone = max(parts, key=lambda part: part.log_mass).met <= 1
                    needed[i] = climbed[i] * (AFTER_ONE if alone else AFTER_SOME)
        if self.late:  # what was found is said, and counts for nothing
            return known._replace(climbs=known.climbs or none, needed=tuple(needed)), None
        met = None if found.draws is known.draws else self._placed(found)
        return found._replace(
            climbs=tuple(climbed),
            needed=tuple(needed),
            searched=known.searched + self.evaluations - before,
        ), met

    def _placed(self, known: Known) -> State:
        """Chains at known draws, models by their masses."""
        g, chains = self.generator, self.chains
        model = torch.multinomial(masses(known).softmax(0), chains, True, generator=g)
        theta = known.draws.theta.new_zeros(chains, self.target.dim)
        for m in model.unique().tolist():
            mine = is_of(known.draws, self.codes[m]).nonzero()[:, 0]
            here = (model == m).nonzero()[:, 0]
            theta[here] = known.draws.theta[
                mine[torch.randint(len(mine), here.shape, generator=g, device=here.device)]
            ]
        return start(self.target, self.codes[model], theta)


def differ(log_mass: Tensor) -> bool:
    """Whether groups differ in a model that could matter: it does in some group.

    Arguments:
        log_mass: Log of p(model) times its evidence by group, shape (K, M), nats.
    """
    matters = (log_mass.softmax(1) > MATTERS).any(0)
    spread = log_mass.std(0, correction=min(1, len(log_mass) - 1))
    return not bool((spread[matters] <= DIFFERENCE).all())  # of -inf it is NaN
