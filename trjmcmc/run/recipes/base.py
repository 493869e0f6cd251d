"""What a recipe answers, and what a run has learned."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...doubts.convergence import IN, INCLUDES, Convergence
from ...draws import Draws, Pool
from ...errors import TargetError
from ...estimate.importance import log_weights, smoothed
from ...estimate.indicator import ModelIndicator
from ...estimate.mixing import in_ranks
from ...kernel.base import Kernel, State
from ...kernel.between.jump import Jump
from ...kernel.compose import Cycle
from ...kernel.inside.crank_nicolson import CrankNicolson
from ...target.target import Target
from ...transport.base import Transport
from ..asked import Limit, Stated
from ..maps import matching
from ..moves import proposal
from ..numbers import price
from ..plan import Plan
from ..start import rows_of

FRESH = 0.1  # share of moves through a map that draw from it

BEYOND, MOST_TOLD = 1e30, 50.0  # nats: a density of 0; what one draw says of two maps at most

LEAST_CHAINS = 16  # of a look: fewer count as pieces of themselves

LATE_WEIGHED = 50  # draws of a model at least, of dear likelihoods where a run is late

A_STEP = 4  # evaluations of a step of one chain, about

IMPROBABLE = 1e-6  # probability of models whose evidence need not be known

CHEAP = 5000  # numbers of an evaluation from which populations, chains and searches are fewer

UNKNOWN = 0.005  # share of what is planned where nobody knows what an evaluation takes

USUAL = 1e6  # evaluations of a run as it is planned


class Known(NamedTuple):
    """What a run has learned between rounds: plain data, of which kernels are made anew.

    Attributes:
        draws: Posterior draws, equally weighted within each model.
        log_mass: Of few models, log of p(model) times its evidence by group, shape (K, M), nats;
            None of many.
        log_evidence: Of all models together by group, shape (K,), nats.
        climbs: Prior draws that have climbed in search of lost modes, by model with parameters;
            nothing where none was searched.
        needed: How many have to, by what they met.
        searched: Evaluations that they took.
        proposed: By model, log weights of draws of the proposals by importance sampling that it
            began with, nats; nothing of others.
        poor: Whether these will not do.
        families: Of graphs with equations: what their families' mixtures are made of.
    """

    draws: Pool
    log_mass: Tensor | None
    log_evidence: Tensor
    climbs: tuple[int, ...] = ()
    needed: tuple[int, ...] = ()
    searched: int = 0
    proposed: tuple[Tensor, ...] = ()
    poor: bool = False
    families: tuple[Tensor, ...] = ()

    @property
    def incomplete(self) -> list[int]:
        """Places of models, among those with parameters, whose last searches met lost modes."""
        both = zip(self.climbs, self.needed, strict=True)
        return [i for i, (made, needed) in enumerate(both) if made < needed]


class Moves(NamedTuple):
    """Kernels that were made of what is known.

    Attributes:
        between: Between models, by name.
        inside: Inside models; all of them follow each step between.
        through: The normals that the jumps go through, or None.
        weighing: What models are weighed through: the normals, or a trained map that is closer.
    """

    between: Mapping[str, Kernel]
    inside: list[Kernel]
    through: Transport | None = None
    weighing: Transport | None = None


class Route(NamedTuple):
    """Probabilities that rest on no chain.

    Attributes:
        p: Of what was asked for, shape (Q,).
        error: Standard errors, shape (Q,).
        log_mass: Of few models, log of p(model) times its evidence, shape (M,), nats.
        log_mass_error: Standard errors, shape (M,), nats.
        log_weights: Of draws from the normals, by model, nats.
        by_proposals: Whether they are of the proposals that a run began with.
    """

    p: Tensor
    error: Tensor
    log_mass: Tensor
    log_mass_error: Tensor
    log_weights: Sequence[Tensor] = ()
    by_proposals: bool = False


class Recipe(ABC):
    """A kind of space: where its runs begin, what moves them, and what they are asked for.

    Arguments:
        target: The target.
        plan: The numbers of the run; of so few chains that some groups had one, with fewer groups.
        generator: The only source of randomness.
        limit: Until when the run may go on.
        before: Likelihood evaluations of the target before this run; those so far if omitted.
        why: Why the target is in float64 though nobody asked for it, in words, or nothing.
        stated: What the user states of its chains.

    Attributes:
        why, stated: As above.
        trained: A map that jumps and moves inside models go through as well, or None.
        host: The space on the CPU, where chains are judged.
    """

    searches = False  # whether prior draws climb in search of lost modes
    exact = False  # whether each step draws anew from the posterior
    least_chains = 8  # of a group, however dear they are
    trained: Transport | None = None

    def __init__(
        self,
        target: Target,
        plan: Plan,
        generator: torch.Generator,
        *,
        limit: Limit | None = None,
        before: int | None = None,
        why: str = "",
        stated: Stated = Stated(),  # noqa: B008
    ) -> None:
        if stated.chains is not None:
            even = stated.grid is not None
            plan = replace(plan, groups=groups_of(stated.chains, plan.groups, even))
        self.target, self.plan, self.generator = target, plan, generator
        self.limit, self.why, self.stated = limit or Limit(), why, stated
        self._before = target.account.evaluations if before is None else before
        self._made: tuple[Known, Moves] | None = None  # the last moves, and of what
        self.host = target.to(device="cpu", probe=False).space

    @cached_property
    def numbers(self) -> float:
        """Numbers that an evaluation takes; infinite where it is not torch alone."""
        return price(self.target)

    @cached_property
    def share(self) -> float:
        """Share of the planned evaluations that a run takes where each is dear, or they are few."""
        share = min(1.0, CHEAP / self.numbers) if math.isfinite(self.numbers) else UNKNOWN
        return min(share, (self.stated.evaluations or math.inf) / USUAL)

    @property
    def chains(self) -> int:
        """Chains that begin, as many in each group; those that go on are the stated number."""
        groups, planned = self.plan.groups, self.plan.chains
        least = min(self.least_chains, planned // groups)
        least = max(least, math.ceil((self.stated.chains or 0) / groups))
        return groups * max(least, int(min(planned, self.affordable) / groups))

    @property
    def affordable(self) -> float:
        """Chains at the price of an evaluation."""
        return self.share**0.5 * self.plan.chains

    @property
    def codes(self) -> Tensor:
        """Models that are weighed, of few, shape (M, L)."""
        return self.target.space.enumerate()

    @cached_property
    def with_places(self) -> list[int]:
        """Of these, places of those that have parameters."""
        used: list[int] = self.target.space.active(self.codes).any(1).nonzero()[:, 0].tolist()
        return used

    @property
    def kept(self) -> float:
        """Evaluations of a step and of the last weighing of models, about."""
        models = 0 if self.target.space.has_items else self.target.space.size or 0
        return A_STEP * self.chains + LATE_WEIGHED * models

    def first(self, known: Known) -> int:
        """Steps of the first round."""
        return self.plan.first

    def climbs(self, known: Known) -> int:
        """Prior draws of each model that climb before the first round."""
        return self.plan.climbs

    @property
    def starts(self) -> Tensor:
        """Which kind of start each chain had, on the CPU, shape (C,): by the points of the user."""
        if self.stated.points is None:
            return self.kinds
        return rows_of(self.stated.points, self.stated.chains or self.chains)[1]

    @property
    def kinds(self) -> Tensor:
        """Kinds of starts of the recipe itself, on the CPU, shape (C,)."""
        return torch.zeros(self.chains, dtype=torch.long)

    @property
    def late(self) -> bool:
        """Whether the run has to end."""
        return self.limit.passed

    @contextmanager
    def unlimited(self) -> Iterator[None]:
        """No limit in this block."""
        limit, self.limit = self.limit, Limit()
        try:
            with limit.account.free():
                yield
        finally:
            self.limit = limit

    @property
    def evaluations(self) -> int:
        """Likelihood evaluations of this run so far."""
        return self.target.account.evaluations - self._before

    def count_from(self, evaluations: int, why: str) -> None:
        """Count from what a saved run had taken.

        Arguments:
            evaluations: Of the run until now.
            why: Why its target is in float64, in words, or nothing.
        """
        self._before, self.why = self.target.account.evaluations - evaluations, why

    def take_map(self, trained: Transport) -> None:
        """Have jumps and moves inside models through a map as well."""
        self.trained = matching(trained, self.target)

    def finer(self, why: str) -> Recipe | None:
        """The same in float64, where nobody has stated a precision and the likelihood takes it.

        Arguments:
            why: In words.
        """
        if self.target.dtype == torch.float64 or not self.target.is_precision_open:
            return None
        if self.trained is not None:  # it would no longer be that of the sampler
            return None
        try:
            target = self.target.to(dtype=torch.float64).counted_with(self.target)
        except TargetError:  # its data have the other one
            return None
        return type(self)(
            target,
            self.plan,
            self.generator,
            limit=self.limit,
            before=self._before,
            why=why,
            stated=self.stated,
        )

    @abstractmethod
    def begin(self) -> tuple[Known, State]:
        """Groups that share nothing, from the prior to the posterior."""

    def search(
        self, known: Known, moves: Moves, seen: Pool, climbs: int
    ) -> tuple[Known, State | None]:
        """Look for modes that the groups have lost; chains to go on with if one was met.

        Arguments:
            known: What is known.
            moves: Made of it.
            seen: Draws: where these are nothing is lost.
            climbs: From so many prior draws of each model.
        """
        return known, None

    def learn(self, known: Known, seen: Pool, first: bool) -> Known:
        """What is known after chains have drawn.

        Arguments:
            known: What was known.
            seen: Draws of the chains.
            first: Whether nothing was learned from chains before.
        """
        return known._replace(draws=self.few(seen, self.plan.remembered))

    def few(self, draws: Pool, most: int) -> Pool:
        """Random draws of a pool, without replacement, so many at most."""
        n, device = len(draws.code), draws.code.device
        rows = torch.randperm(n, generator=self.generator, device=device)[:most]
        return draws.at(rows)

    @abstractmethod
    def moves(self, known: Known, generator: torch.Generator) -> Moves:
        """Kernels for what is known, a function of these alone."""

    def all_moves(self, known: Known) -> Moves:
        """And those through a trained map; of what is known, and of the run's seed."""
        if self._made is not None:
            before, moves = self._made
            if before.draws is known.draws and before.log_mass is known.log_mass:
                return moves
        seeded = torch.Generator(self.target.device).manual_seed(self.generator.initial_seed())
        moves, space = self.moves(known, seeded), self.target.space
        moves = moves._replace(weighing=moves.through)
        if self.trained is not None and self.stated.kernel is None:
            inside = CrankNicolson(self.target, self.trained, fresh=FRESH, name="map inside")
            if space.several:
                to = proposal(space, self.guess(known))
                jump = Jump(self.target, self.trained, to, fresh=FRESH, name="map")
                moves = moves._replace(between={**moves.between, "map": Cycle([jump, inside])})
            else:
                moves = moves._replace(inside=[*moves.inside, inside])
        if not self.late:  # late ones have fewer normals
            self._made = known, moves
        return moves

    def weighed_by(self, moves: Moves, draws: Pool) -> Moves:
        """The same, models weighed through the trained map if draws are more probable under it."""
        closer = gain(self.trained, moves.through, draws) > 0
        return moves._replace(weighing=self.trained if closer else moves.through)

    def guess(self, known: Known) -> Tensor | None:
        """Log-probabilities of few models as jumps propose them, shape (M,); None of many."""
        space = self.target.space
        if known.log_mass is not None:
            p = masses(known).softmax(0)
        elif space.few:
            visits = torch.bincount(space.index(known.draws.code), minlength=space.size or 0)
            p = visits.double() / visits.sum()
        else:
            return None
        return ((1 - self.plan.uniform) * p + self.plan.uniform / len(p)).log()

    def weigh(self, known: Known, moves: Moves) -> Route | None:
        """A second route to what was asked for, or None."""
        return None

    def normals(self, known: Known, moves: Moves, generator: torch.Generator) -> Transport | None:
        """What models can be weighed through once a run has ended, or None."""
        return moves.weighing

    def route(self, through: Transport, codes: Tensor, generator: torch.Generator) -> Route:
        """Probabilities of some models by importance sampling through normals."""
        n = max(LATE_WEIGHED, int(self.share**0.5 * self.plan.weighed))
        n = LATE_WEIGHED if self.late and self.share < 1 else n // (4 if self.late else 1)
        return route_of([log_weights(self.target, through, c, n, generator).cpu() for c in codes])

    def asked(self, code: Tensor) -> Tensor:
        """Indicators of what the run is asked for, of codes (chain, draw, L): (chain, draw, Q).

        Each number of components of each kind; else whether each item is in, and each of few
        models that are no graphs.
        """
        host, flat, one_hot = self.host, code.flatten(0, 1), torch.nn.functional.one_hot
        if host.counts:
            found = [one_hot(flat[:, i], kind.max + 1) for i, kind in enumerate(host.kinds)]
        else:
            found = [host.items(flat)] if host.has_items and host.n_items else []
            if (host.few and not host.graphs) or not found:
                found.append(one_hot(host.index(flat), host.size or 0))
        return torch.cat([x.double() for x in found], 1).view(*code.shape[:2], -1)

    def judged(self, draws: Draws) -> list[NDArray[np.float64]]:
        """All else that chains pass, in ranks, each (chain, draw, Q).

        Log joint, and coordinates of each model that is not rare; of components, the smallest, the
        mean and the largest.
        """
        indicator = ModelIndicator(self.host, draws)
        parts = Convergence(indicator, [""] * draws.theta.shape[2]).parts(slice(None), 1)
        found = []
        for part in parts:
            x = part.x[..., np.ptp(part.x[part.inside], axis=0) > 0]
            if x.shape[-1] and not part.names[0].startswith((IN, INCLUDES)):  # asked for
                found.append(in_ranks(x, part.inside))
        return found


def groups_of(chains: int, most: int, even: bool = False) -> int:
    """Groups of so many chains: of two or more each; of few, or if even, as many each."""
    each = range(min(most, chains // 2), 1, -1)
    uneven = chains >= LEAST_CHAINS and not even
    return next((g for g in each if uneven or chains % g == 0), 1)


def masses(known: Known) -> Tensor:
    """Log of p(model) times its evidence, mean of the groups, shape (M,), nats; of few models."""
    assert known.log_mass is not None
    return known.log_mass.logsumexp(0) - math.log(len(known.log_mass))


@torch.no_grad()
def gain(new: Transport | None, old: Transport | None, draws: Pool) -> float:
    """Nats by which draws are more probable under a new map; 0 where one of them is missing.

    No draw counts for more than fifty of them, so that one far out does not decide.
    """
    if new is None or old is None or new is old:
        return 0.0

    def density(through: Transport) -> Tensor:
        theta = through.with_spares(draws.theta, draws.code)
        return through.log_prob(theta, draws.code).double().nan_to_num(-BEYOND, BEYOND, -BEYOND)

    return float((density(new) - density(old)).clamp(-MOST_TOLD, MOST_TOLD).mean())


def route_of(weights: Sequence[Tensor], least: Tensor | None = None) -> Route:
    """Probabilities of models by log weights of draws from normals of each.

    Arguments:
        weights: Of each of M models, nats.
        least: Standard errors of the log evidences at least, nats, shape (M,).
    """
    found = [(e.value, e.std_error) for e in map(smoothed, weights)]
    log_mass, error = torch.tensor(found, dtype=torch.float64).T.contiguous()
    error = error.nan_to_num(math.inf)
    error = error if least is None else torch.maximum(error, least)
    p = log_mass.softmax(0)
    known = p > IMPROBABLE
    slope = (torch.diag(p) - p[:, None] * p)[:, known]
    up = (log_mass + torch.diag(error)[known]).softmax(1).mT - p[:, None]  # where errors are large
    each = torch.maximum(slope.abs() * error[known], up.abs().nan_to_num(0.0))
    p_error = each.square().sum(1).sqrt()
    return Route(p, p_error, log_mass, error, weights)
