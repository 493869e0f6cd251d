"""Climbs of prior draws before sampling: have the map and the warmed-up chains lost a mode?"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache

import torch

from .. import clock
from ..draws import Pool
from ..errors import TRJError
from ..pilot.lost import BY_CHAINS, BY_PRIOR, LEAST_EXPECTED, Screening, expected_share, is_fair
from ..pilot.parts import Part, share_inside
from ..pilot.screening import CHUNK, LARGEST, missed, screen, theta_of_none, unknown_to
from ..pilot.survey import PilotRuns
from ..transport.base import Transport
from ..transport.normals import gaussian_mixture
from .items import Find, screen_items
from .knowledge import Knowledge
from .policy_of_screening import ScreeningBudget
from .request import Request
from .visited import screen_visited

Found = tuple[tuple[Screening, list[Part]], ...]  # by models: what is said of it, and lost parts


class Discovery:
    """What a run looks for that its map may have lost.

    Arguments:
        known: What is known of the target.
        request: What the user asks of the run.
        seed: Of a source of randomness of its own: the chains' random numbers stay.

    Attributes:
        said: What was found for each model, or not.
        finds: What the last look has met of items alone, and chains have lost.
    """

    def __init__(self, known: Knowledge, request: Request, seed: int) -> None:
        self.known, self.request, self._seed = known, request, seed
        self.said: tuple[Screening, ...] = ()
        self.finds: list[Find] = []
        self._met: dict[tuple[str, str], list[Part]] = {}  # of models, and by what
        self._due = math.inf

    def taken_up(self) -> None:
        """Take note that the parts that were lost are known from now on."""
        self.said, self.finds = tuple(s.settled() for s in self.said if s.by != BY_CHAINS), []

    def sound_of(self, parts: list[Part], rounding: list[str]) -> list[Part]:
        """Parts but for those that rounding has made; models of which it made all lost nothing.

        Arguments:
            parts: What was met.
            rounding: What rounding does to each, in words; empty of sound ones.
        """
        pairs, space = list(zip(parts, rounding, strict=True)), self.known.target.space
        sound = [part for part, found in pairs if not found]
        made = {space.label(part.code[None])[0] for part, found in pairs if found}
        made -= {space.label(part.code[None])[0] for part in sound}
        self.said = tuple(s.settled() if s.model in made else s for s in self.said)
        return sound

    def share_of_all(self, parts: list[Part]) -> float:
        """Mass of parts over that of all models as they were weighed."""
        masses = [m.value for m in self.known.weighing().log_mass.values()]
        total = float(torch.tensor(masses, dtype=torch.float64).logsumexp(0))
        return sum(math.exp(min(part.log_mass - total, LARGEST)) for part in parts)

    def note(self, said: tuple[Screening, ...]) -> None:
        """Keep what something else has to say of modes that may be lost."""
        self.said = said

    def before_sampling(self) -> list[Part]:
        """Look for what map and chains have lost; the parts that matter."""
        known, request = self.known, self.request
        if not self._weighed:  # what is known of their models chains are yet to find out
            return []
        parts = self._look(min(self._first_spell, request.left()), known.passed)
        if parts or known.passed is None or known.fitted.audit is None:
            return parts
        return self.among(known.passed)

    def sampling_begins(self) -> None:
        """From now on a share of the time is for looking further."""
        wait = self._pause(self._spell)
        if not self._weighed and not self.said:
            wait = min(wait, self.known.policy.screening.first_look * self.request.left())
        self._due = clock.now() + wait

    @property
    def is_due(self) -> bool:
        """Whether that share has come together."""
        return clock.now() > self._due

    def meanwhile(self, passed: Pool, left: float) -> list[Part]:
        """Look further while chains run; the parts that matter.

        Arguments:
            passed: Points that the chains have passed.
            left: Seconds of sampling that are left: no look begins where these are few.
        """
        begun, spell = clock.now(), self._spell
        parts = self._look(spell, passed) if left > 2 * spell else []
        parts = parts or self.among(passed)
        self._due = clock.now() + self._pause(max(clock.now() - begun, spell))
        return parts

    def _pause(self, spent: float) -> float:
        """Seconds until the next look; fewer while there was no time yet to look everywhere."""
        policy, behind = self.known.policy.screening, any(not s.draws for s in self.said)
        return spent / (policy.catching_up_share if behind else policy.background_share)

    def among(self, passed: Pool) -> list[Part]:
        """What chains have met and the map does not know; the parts that matter.

        What was met before, and chains have visited meanwhile as often as they should, is known;
        what there is no time to weigh again stays as it was. Where no models were weighed, those
        that chains visit most are looked at once at least.
        """
        if not self._weighed and not self.said:
            self._look(min(self._first_spell, self.request.left()), passed)
        found = late_finds(self.known, passed, self._next_seed(), self.request.deadline)
        anew = {(said.model, said.by) for said, _ in found}
        known_before = tuple(
            s.settled() if self._visited_duly(s, passed) else self._with_visits(s, passed)
            for s in self.said
            if (s.model, s.by) not in anew
        )
        self._note_met(found)
        self.said = known_before + tuple(said for said, _ in found if said.lost)
        return [part for said, parts in found if said.lost for part in parts]

    def _visited_duly(self, said: Screening, passed: Pool) -> bool:
        """Whether chains were where something had been met, in proportion to its mass.

        That is as well known as it was weighed.
        """
        parts = self._met.get((said.model, said.by), []) if said.lost else []
        if not parts:
            return False
        masses = torch.tensor([p.log_mass for p in parts]).softmax(0)
        error = float((masses * torch.tensor([p.error for p in parts])).norm())
        factor = self.known.policy.screening.climbs.fair_factor
        visits = self._visits(said, passed)
        if said.by == BY_PRIOR:  # chains that are there more often have not lost it
            visits = min(visits, expected_share(said.share))
        return is_fair(visits, said.share, error, factor)

    def _with_visits(self, said: Screening, passed: Pool) -> Screening:
        """The same, with how often chains are there, where prior draws had met it."""
        return replace(said, visits=self._visits(said, passed)) if said.by == BY_PRIOR else said

    def _visits(self, said: Screening, passed: Pool) -> float:
        """Share of a model's points of chains that lie where something had been met.

        Points nearby that the map knows are no visits. Mass that lies outside the places where
        chains are looked for is taken to be visited like that inside.
        """
        parts = self._met.get((said.model, said.by), []) if said.lost else []
        if not parts:
            return 0.0
        known, code = self.known, parts[0].code
        there = (passed.code == code.to(passed.code.device)).all(-1)
        codes, theta = passed.code[there].to(code.device), passed.theta[there].to(code.device)
        if not len(theta):
            return 0.0
        inside = torch.stack([part.place.holds(theta) for part in parts]).any(0)
        if (mass := known.weighing().log_mass.get(said.model)) is not None:
            height = passed.log_joint[there].to(code.device).double() - mass.value
            inside &= unknown_to([lambda: known.map], theta, codes, height)
        return float(inside.double().mean()) / max(share_inside(parts), LEAST_EXPECTED)

    @property
    def _weighed(self) -> bool:
        """Whether models were weighed; else what is known of them is what chains visit."""
        return self.known.fitted.few and bool(self.known.weighing().log_mass)

    @property
    def _first_spell(self) -> float:
        """Seconds of the first look."""
        request, known = self.request, self.known
        left = request.left() if request.uses_all_time else math.inf
        spent = clock.now() - request.begun
        return screening_seconds(spent, left, known.target.dim, known.policy.screening)

    @property
    def _spell(self) -> float:
        """Seconds of a further look."""
        return screening_seconds(0.0, math.inf, self.known.target.dim, self.known.policy.screening)

    def _look(self, seconds: float, seen: Pool | None) -> list[Part]:
        known, draws = self.known, {s.model: s.draws for s in self.said}
        share = known.policy.screening.alone_share if known.target.space.units else 0.0
        search = screen_models if self._weighed else screen_visited
        found = search(known, (1 - share) * seconds, seen, self._next_seed())
        left = known.policy.screening.left_share * self.request.left()
        enough = min(known.policy.screening.seconds_alone * known.target.space.units, left)
        spell = max(share * seconds, enough)
        alone = screen_items(known, spell, seen, self._next_seed(), draws, left)
        self.finds = [find for _, finds in alone for find in finds]
        found += tuple((said, list[Part]()) for said, _ in alone)
        before = {s.model: s for s in self.said if s.by != BY_CHAINS}
        now = {said.model: said for said, _ in found}
        self._note_met(found)
        merged = {m: s.after(before[m]) if m in before else s for m, s in now.items()}
        by_chains = tuple(s for s in self.said if s.by == BY_CHAINS)
        self.said = (*(before | merged).values(), *by_chains)
        return [part for said, parts in found if said.lost for part in parts]

    def _note_met(self, found: Found) -> None:
        self._met |= {(said.model, said.by): parts for said, parts in found if said.lost}

    def fresh_generator(self) -> torch.Generator:
        """Random numbers that no chain has: looks come by the clock, and draws must not."""
        return torch.Generator(self.known.target.device).manual_seed(self._next_seed())

    def _next_seed(self) -> int:
        self._seed += 1
        return self._seed


def screen_models(known: Knowledge, seconds: float, seen: Pool | None, seed: int) -> Found:
    """What prior draws say of each model that was weighed, and the parts that were lost.

    Arguments:
        known: What is known of the target.
        seconds: That it may take, about.
        seen: Points that chains have passed: what they know is not lost.
        seed: Of a source of randomness of its own.
    """
    target, fitted, policy = known.target, known.fitted, known.policy.screening
    space = target.space
    if not fitted.few or not math.isinf(known.spending.account.limit) or not seconds > 0:
        return ()
    codes = space.enumerate()
    codes = codes[space.active(codes).any(-1) & (space.log_prior(codes) > -math.inf)]
    log_mass = known.weighing().log_mass
    labels = space.label(codes)
    weighed = [(c, m) for c, m in zip(codes, labels, strict=True) if m in log_mass]
    if not weighed:
        return ()
    begun = clock.now()
    end = begun + seconds
    generator = torch.Generator(target.device).manual_seed(seed)
    price = PilotRuns(target, generator).price(codes)
    most = policy.most_draws if target.differentiable else policy.most_without_gradients
    maps: list[Callable[[], Transport]] = [lambda: known.map]
    if seen is not None:
        maps.append(cache(lambda: gaussian_mixture(space, seen, generator)))
    none = theta_of_none(target)
    audit, audited = fitted.audit, {}
    if audit is not None:  # a poor map may have next to nothing of an evidence
        audited = dict(zip(space.label(audit.code), audit.log_mass.tolist(), strict=True))
    found: list[tuple[Screening, list[Part]]] = []
    for place, (code, label) in enumerate(weighed):
        now = clock.now()
        share = (end - now) / (len(weighed) - place)
        affordable = int(min(most, share / (policy.evaluations_a_draw * max(price, 1e-12))))
        if affordable < policy.least_draws:
            break
        n = most if affordable > CHUNK else affordable  # of many batches the deadline ends them
        height = max(log_mass[label].value, audited.get(label, -math.inf))
        log_evidence = height - float(space.log_prior(code[None])[0])
        with suppress(TRJError):  # the likelihood fails out there
            mine = none if seen is None else seen.theta[(seen.code == code).all(-1)]
            found.append(
                screen(
                    target,
                    code,
                    log_evidence,
                    maps,
                    mine,
                    n,
                    generator,
                    now + (1 - policy.crowd_share) * share,
                    policy.crowd_share * share,
                    policy.climbs,
                )
            )
    known.spending.spend("screening", clock.now() - begun)
    return tuple(found)


def late_finds(known: Knowledge, passed: Pool, seed: int, deadline: float) -> Found:
    """What chains have met, and what that says of the map of each model that was weighed.

    Nothing of models whose parts there was no time to weigh.

    Arguments:
        known: What is known of the target.
        passed: Points that the chains have passed.
        seed: Of a source of randomness of its own.
        deadline: Time by :func:`trjmcmc.clock.now` until which finds are weighed.
    """
    target, policy = known.target, known.policy.screening
    if not known.fitted.few or not math.isinf(known.spending.account.limit):
        return ()
    generator = torch.Generator(target.device).manual_seed(seed)
    code, theta = passed.code, passed.theta
    found: list[tuple[Screening, list[Part]]] = []
    for label, mass in known.weighing().log_mass.items():
        model = target.space.code_of(label).to(code.device)
        mine = theta[(code == model).all(-1)]
        if not len(mine) or not bool(target.space.active(model[None]).any()):
            continue
        probability = len(mine) / len(theta)
        mine = mine[:: -(-len(mine) // policy.climbs.crowd.looked_at)].to(target.device)
        log_evidence = mass.value - float(target.space.log_prior(model[None])[0])
        with suppress(TRJError):
            weighed = missed(
                target,
                model.to(target.device),
                log_evidence,
                known.map,
                mine,
                generator,
                policy.climbs,
                deadline,
            )
            if weighed is not None:
                said, part = weighed
                matters = said.share * probability >= policy.late_share
                found.append((said, [part]) if part and matters else (said.settled(), []))
    return tuple(found)


def screening_seconds(spent: float, left: float, dim: int, policy: ScreeningBudget) -> float:
    """Seconds that climbs of prior draws may take: little of a run, less the shorter it is.

    Arguments:
        spent: Seconds of the run so far.
        left: Seconds that it has left, or infinity.
        dim: Coordinates of the largest model.
        policy: The policy.
    """
    ahead = policy.left_share * left if math.isfinite(left) else 0.0
    harder = policy.seconds_a_dimension * dim
    wanted = max(policy.spent_share * spent, ahead, harder, policy.least_seconds)
    return min(wanted, policy.most_seconds, policy.spent_share * left)
