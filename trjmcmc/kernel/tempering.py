"""Replicas of each chain at powers of the likelihood from one to zero, which trade places."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import ConfigurationError
from ..grouping import on_host
from ..target.exchangeable import components_of
from ..target.target import Target
from ..target.tempered import Tempered
from .base import Info, Kernel, Memo, State
from .components.redraw import SharedRedraw

ROW_BITS = 24  # of a start's number, which tell the replica; the others tell the step

LEAST_RENEWED = 20  # chains that have to have started afresh for an error of the evidence

OFFERED = 8  # replicas on a device of which one a step is offered what all share anew

FIRST_SPACING = 20  # warm-up step after which powers are spaced first

NEXT_SPACING = 1.4  # factor from there to the next, and so on

LEAST_REJECTED = 1e-3  # rejection rate of neighbours that hardly differ: powers stay apart


class Travel(NamedTuple):
    """Where the replicas of C chains on T rungs come from, and what neighbours have shown.

    Attributes:
        renewed: Whether each has started afresh since it was last at power 1, (C, T) bool.
        start: Number of the start that each comes from, (C, T): above 0 of fresh ones, below of
            those that were given; 0 where that is not known.
        trips: Times that a replica came to each chain that had started afresh since its powers are
            settled, (C,).
        steps: Made so far, (C,).
        above, below: Log sums, over the steps that count, of the likelihood to half of the power
            between neighbours, at the lower power, and of its inverse at the higher, (C, T - 1).
    """

    renewed: Tensor
    start: Tensor
    trips: Tensor
    steps: Tensor
    above: Tensor
    below: Tensor


class ParallelTempering(Kernel):
    r"""Each chain is the first of a ladder of replicas at falling powers of the likelihood.

    A step moves all replicas by the kernel, each at its own power, then offers neighbours to trade
    places: pairs that begin at an even rung in one step, at an odd one in the next, so that
    replicas travel instead of diffusing. The two of a pair trade places with probability

    .. math:: \min\left(1, \exp[(\beta_t - \beta_{t+1}) (\ell_{t+1} - \ell_t)]\right).

    Replicas start afresh where they forget where they came from. At the last rung, if its power
    is 0, they are drawn from the prior at each step. Where components are counted, those that have
    lost all of them are offered independent draws of what all share
    (:class:`~trjmcmc.kernel.components.redraw.SharedRedraw`); one that has nothing left, or has
    taken such a draw, has started afresh. In warm-up the powers are spaced so that neighbours
    reject alike.

    The replicas are in the state's memo. A state without them begins with copies of itself, and
    has to warm up; so other kernels belong inside of it, not beside it.

    Arguments:
        target: The target. A tempered one is used as it is; its power is set at each step, and 1
            after it.
        moves: Makes, of the tempered target, the kernel that moves each replica.
        powers: Of the rungs, falling from 1, shape (T,).
        name: Shown in tables.

    Raises:
        ConfigurationError: Powers that do not fall from 1, or fewer than two.

    Source:
        Okabe, Kawata, Okamoto & Mikami (2001), https://doi.org/10.1016/S0009-2614(01)00055-0;
        Syed, Bouchard-Cote, Deligiannidis & Doucet (2021), https://doi.org/10.1111/rssb.12464

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.kernel import ComponentBirthDeath, start
        >>> target = problems.pulses(points=50)
        >>> kernel = ParallelTempering(target, ComponentBirthDeath, torch.tensor([1.0, 0.3, 0.0]))
        >>> state = start(target, torch.tensor([[0], [3]]), torch.zeros(2, target.dim))
        >>> state, infos = kernel.step(state, torch.Generator().manual_seed(0))
        >>> state.code.shape, kernel.replicas(state).code.shape
        (torch.Size([2, 1]), torch.Size([6, 1]))
    """

    alone = True

    def __init__(
        self,
        target: Target,
        moves: Callable[[Target], Kernel],
        powers: Tensor,
        *,
        name: str = "tempering",
    ) -> None:
        powers = powers.to(target.device, torch.float64)
        fall = bool((powers[1:] < powers[:-1]).all()) and len(powers) > 1
        if not fall or float(powers[0]) != 1 or float(powers[-1]) < 0:
            raise ConfigurationError(
                f"powers: expected two or more that fall from 1 to 0 at most, got {powers.tolist()}"
            )
        self.target = target if isinstance(target, Tempered) else Tempered(target)
        self.kernel, self.powers, self.name = moves(self.target), powers, name
        self._from_prior = float(powers[-1]) == 0  # whether the last rung is drawn from it
        self.between, self.within = self.kernel.between, self.kernel.within
        space = self.target.space
        self._slots = (space.slot_item < space.n_items).nonzero()[:, 0]  # of components
        self._redraw = SharedRedraw(self.target.target)
        self._owner = object()  # of the memo: the same for all that has learned from this one
        self._steps, self._offered = 0, 0
        self._rejected = torch.zeros(len(powers) - 1, dtype=torch.float64, device=powers.device)
        self._spacing = FIRST_SPACING

    @property
    def rungs(self) -> int:
        """T."""
        return len(self.powers)

    def parts(self) -> list[Kernel]:
        return [self, *self.kernel.parts()]

    def frozen(self) -> ParallelTempering:
        found = copy.copy(self)
        found.kernel = self.kernel.frozen()
        return found

    def adapted(self) -> dict[str, Any]:
        if not self._offered:
            return {}
        rejected = self._rejected / self._offered
        return {
            "rungs": self.rungs,
            "smallest power": float(self.powers[self.powers > 0].min()),
            "neighbours reject": float(rejected.mean()),
            "barrier": float(rejected.sum()),
        }

    def seen(self, state: State) -> dict[str, Any]:
        """Round trips, and the log evidence of all models by stepping stones, where it is known."""
        if state.recall(self._owner) is None:
            return {}
        found: dict[str, Any] = {"round trips": int(self.round_trips(state).sum())}
        found["powers"] = " ".join(f"{power:.3g}" for power in self.powers.tolist())
        value, error = self.log_evidence(state)
        if math.isfinite(error):
            found["log evidence"] = f"{value:.5g} ± {error:.2g}"
        return found

    # ---- steps --------------------------------------------------------------------------------

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        with self._tempered(len(state.code)):
            whole, travel = self._whole(state)
            whole, infos = self.kernel.step(whole, generator)
            whole, travel = self._fresh(whole, travel, generator)
            whole, travel, _ = self._traded(whole, travel, generator)
            return self._state(whole, travel), self._cold(infos)

    def adapt(
        self, state: State, generator: torch.Generator
    ) -> tuple[ParallelTempering, State, list[Info]]:
        found = copy.copy(self)
        with self._tempered(len(state.code)):
            whole, travel = self._whole(state)
            found.kernel, whole, infos = self.kernel.adapt(whole, generator)
            if self._redraw:
                empty = self._empty(whole)
                start = travel.start.flatten()[empty]
                found._redraw = self._redraw.learned(whole.theta[empty], start, generator)
            whole, travel = self._fresh(whole, travel, generator)
            whole, travel, chance = self._traded(whole, travel, generator)
            found._learn(chance)
            if found.powers is not self.powers:
                found._set_powers(len(state.code))
                whole = found._evaluated_anew(whole)
            nothing = torch.full_like(travel.above, -math.inf)  # powers may still change
            trips = torch.zeros_like(travel.trips)
            travel = travel._replace(above=nothing, below=nothing, trips=trips)
            return found, found._state(whole, travel), self._cold(infos)

    @contextmanager
    def _tempered(self, chains: int) -> Iterator[None]:
        """Each replica at its own power, and the target at power 1 again whatever happens."""
        self._set_powers(chains)
        try:
            yield
        finally:
            self.target.temper(1.0)

    # ---- fresh starts -------------------------------------------------------------------------

    def _fresh(
        self, whole: State, travel: Travel, generator: torch.Generator
    ) -> tuple[State, Travel]:
        """Replicas of which some have started afresh."""
        fresh = torch.zeros_like(whole.log_joint, dtype=torch.bool)
        if self._from_prior:
            whole, rows, drawn = self._drawn(whole, generator)
            fresh = fresh.index_copy(0, rows, drawn)
        if components_of(self.target):
            empty = self._empty(whole)
            if self._redraw:
                whole, empty = self._redrawn(whole, empty, generator)
            fresh = fresh | empty
        fresh = fresh.view(travel.start.shape)
        number = torch.arange(fresh.numel(), device=fresh.device).view(fresh.shape)
        number = 1 + (travel.steps[:, None] << ROW_BITS) + number
        start = torch.where(fresh, number, travel.start)
        return whole, travel._replace(renewed=travel.renewed | fresh, start=start)

    def _drawn(self, whole: State, generator: torch.Generator) -> tuple[State, Tensor, Tensor]:
        """Replicas of which those at power 0 are new draws of the prior, where these are sound.

        Returns:
            The replicas, rows of those at power 0, and which of them are new, (C,) each.
        """
        target = self.target.target
        rows = torch.arange(self.rungs - 1, len(whole.code), self.rungs, device=target.device)
        code = target.space.sample_prior(len(rows), generator)
        theta = target.sample_prior(code, generator)
        theta = torch.where(target.space.active(code), theta, 0.0)
        with torch.no_grad():
            log_prior, log_likelihood = target.log_prior_and_likelihood(code, theta)
        sound = theta.isfinite().all(1) & log_prior.isfinite()  # far tails may overflow
        sound &= log_likelihood < math.inf  # nor is it NaN

        def put(old: Tensor, new: Tensor) -> Tensor:
            fine = sound.view(-1, *[1] * (new.dim() - 1))
            return old.index_copy(0, rows, torch.where(fine, new.to(old), old[rows]))

        sums, memo = whole.recall(self.target), None
        if sums is not None:
            total = next(p for p in components_of(self.target) if p.additive).total(code, theta)
            assert total is not None
            memo = Memo(self.target, (put(sums[0], total),))
        whole = State(
            put(whole.code, code), put(whole.theta, theta), put(whole.log_joint, log_prior), memo
        )
        return whole, rows, sound

    def _empty(self, whole: State) -> Tensor:
        """Which replicas without components, (C T,), may start afresh: those below power 1."""
        empty = ~self.target.space.active(whole.code)[:, self._slots].any(1)
        return empty & (torch.arange(len(empty), device=empty.device) % self.rungs > 0)

    def _redrawn(
        self, whole: State, empty: Tensor, generator: torch.Generator
    ) -> tuple[State, Tensor]:
        """Replicas of which those without components, (C T,), may take what all share anew.

        Returns:
            The replicas, and which have taken it.
        """
        if on_host(empty):
            rows = empty.nonzero()[:, 0]
            if not len(rows):
                return whole, empty
        else:  # which is not asked how many: a fixed number, of those that are empty first
            noise = torch.rand(len(empty), generator=generator, device=empty.device)
            rows = (empty + noise).topk(-(-len(empty) // OFFERED)).indices
        power = self._power(len(whole.code) // self.rungs)[rows]
        found = self._redraw(whole.code[rows], whole.theta[rows], power, generator)
        height = found.log_prior + torch.where(power > 0, power * found.log_likelihood, 0.0)
        taken = found.taken & empty[rows]
        theta = torch.where(taken[:, None], found.theta, whole.theta[rows])
        log_joint = torch.where(taken, height.to(whole.log_joint), whole.log_joint[rows])
        whole = whole._replace(
            theta=whole.theta.index_copy(0, rows, theta),
            log_joint=whole.log_joint.index_copy(0, rows, log_joint),
        )
        return whole, torch.zeros_like(empty).index_copy(0, rows, taken)

    def _learn(self, chance: Tensor) -> None:
        """Take note of how neighbours trade, (C, T - 1); space the powers anew now and then."""
        self._steps += 1
        self._offered += 1
        self._rejected = self._rejected + (1 - chance).mean(0)
        if self._steps >= self._spacing:
            self._spacing = math.ceil(NEXT_SPACING * self._spacing)
            self.powers = spaced(self.powers, self._rejected / self._offered, self.rungs)
            self._rejected, self._offered = torch.zeros_like(self._rejected), 0

    # ---- replicas -----------------------------------------------------------------------------

    def replicas(self, state: State) -> State:
        """All replicas of a state, (C T) rows, those of a chain side by side."""
        with self._tempered(len(state.code)):
            return self._whole(state)[0]

    def with_replicas(self, whole: State, ancestor: Tensor | None = None) -> State:
        """The state whose replicas these are, (C T) rows, those of a chain side by side.

        Arguments:
            whole: The replicas.
            ancestor: The independent draw that each descends from, as a number, (C T,); a state's
                :meth:`ancestors` are positions among the different ones.
        """
        chains = len(whole.code) // self.rungs
        travel = self._no_travel(chains)
        if ancestor is not None:
            _, place = ancestor.unique(return_inverse=True)
            travel = travel._replace(start=-1 - place.view(chains, self.rungs))
        with self._tempered(chains):
            return self._state(self._evaluated_anew(whole), travel)

    def round_trips(self, state: State) -> Tensor:
        """Times since warm-up that a replica came to each chain that had started afresh, (C,)."""
        known = state.recall(self._owner)
        return torch.zeros_like(state.code[:, 0]) if known is None else Travel(*known[:6]).trips

    def ancestors(self, state: State, known: Tensor) -> Tensor:
        """The start of each chain, (C,): below 0 of fresh ones, else which of those given."""
        memo = state.recall(self._owner)
        if memo is None:
            return known
        start = Travel(*memo[:6]).start[:, 0]
        return torch.where(start > 0, -start, torch.where(start < 0, -1 - start, known))

    def log_evidence(self, state: State) -> tuple[float, float]:
        r"""Log evidence of all models together by stepping stones between the rungs, nats.

        With :math:`\ell` the log likelihood, the ratio of neighbours, whose powers are
        :math:`\delta` apart, is the mean of :math:`e^{\delta \ell / 2}` at the lower one over
        that of :math:`e^{-\delta \ell / 2}` at the higher one. All steps after warm-up count; the
        error, which comes second, is by the spread of the chains. NaN unless the last power is 0,
        and most chains and twenty have started afresh since.

        Source:
            Xie et al. (2011), https://doi.org/10.1093/sysbio/syq085; with half of the step from
            either side: Meng & Wong (1996), the geometric bridge
        """
        known = state.recall(self._owner)
        nothing = math.nan, math.nan
        if known is None or self.powers[-1] > 0 or len(state.code) < 2:
            return nothing
        travel = Travel(*known[:6])
        renewed = int((travel.trips > 0).sum())
        if 2 * renewed < len(travel.trips) or renewed < LEAST_RENEWED:
            return nothing
        value, parts = 0.0, torch.zeros(len(state.code), dtype=torch.float64)
        for sums, sign in ((travel.above, 1), (travel.below, -1)):
            top = sums.amax(0)
            share = (sums - top).exp().cpu()
            value += sign * float((top.cpu() + share.mean(0).log()).sum())
            parts += sign * (share / share.mean(0)).sum(1)
        return value, float(parts.std()) / len(parts) ** 0.5

    def _no_travel(self, chains: int) -> Travel:
        none = torch.zeros(chains, dtype=torch.long, device=self.powers.device)
        every = none[:, None].expand(-1, self.rungs)
        sums = self.powers.new_full((chains, self.rungs - 1), -math.inf)
        return Travel(every > 0, every, none, none, sums, sums)

    def _whole(self, state: State) -> tuple[State, Travel]:
        known = state.recall(self._owner)
        if known is None:
            code, theta = (x.repeat_interleave(self.rungs, 0) for x in state[:2])
            whole = self._evaluated_anew(State(code, theta, state.log_joint))
            return whole, self._no_travel(len(state.code))
        code, theta, log_joint, *sums = (x.flatten(0, 1) for x in known[6:])
        memo = Memo(self.target, tuple(sums)) if sums else None
        return State(code, theta, log_joint, memo), Travel(*known[:6])

    def _state(self, whole: State, travel: Travel) -> State:
        sums = whole.recall(self.target) or ()
        rows = tuple(x.unflatten(0, (-1, self.rungs)) for x in (*whole[:3], *sums))
        code, theta, log_joint = (x[:, 0] for x in rows[:3])
        return State(code, theta, log_joint, Memo(self._owner, (*travel, *rows)))

    def _cold(self, infos: list[Info]) -> list[Info]:
        """What happened at power 1."""

        def first(x: Tensor) -> Tensor:
            return x.unflatten(0, (-1, self.rungs))[:, 0]

        def cold(state: State) -> State:
            return State(first(state.code), first(state.theta), first(state.log_joint))

        return [
            Info(
                info.kernel,
                cold(info.before),
                cold(info.proposed),
                first(info.accepted),
                first(info.log_ratio),
            )
            for info in infos
        ]

    # ---- trading places -----------------------------------------------------------------------

    def _traded(
        self, whole: State, travel: Travel, generator: torch.Generator
    ) -> tuple[State, Travel, Tensor]:
        """Replicas after neighbours were offered to trade places, and each pair's probability."""
        log_prior, log_likelihood = self._evaluated(whole)
        value = log_likelihood.double().unflatten(0, (-1, self.rungs))
        gap = self.powers[:-1] - self.powers[1:]
        chance = (gap * (value[:, 1:] - value[:, :-1])).nan_to_num(-math.inf).clamp(max=0).exp()
        above = travel.above.logaddexp(0.5 * gap * value[:, 1:])
        below = travel.below.logaddexp(-0.5 * gap * value[:, :-1])
        u = torch.rand(chance.shape, generator=generator, device=chance.device, dtype=chance.dtype)
        rung = torch.arange(self.rungs, device=chance.device)
        trade = ((u < chance) & ((rung[:-1] + travel.steps[:, None]) % 2 == 0)).long()
        ends = torch.nn.functional.pad
        source = rung + ends(trade, (0, 1)) - ends(trade, (1, 0))
        rows = source + self.rungs * torch.arange(len(source), device=rung.device)[:, None]
        renewed = travel.renewed.gather(1, source)
        travel = Travel(
            renewed & (rung > 0),
            travel.start.gather(1, source),
            travel.trips + renewed[:, 0],
            travel.steps + 1,
            above,
            below,
        )
        rows, sums = rows.flatten(), whole.recall(self.target)
        whole = State(
            whole.code[rows],
            whole.theta[rows],
            self._log_joint(log_prior[rows], log_likelihood[rows]),
            None if sums is None else Memo(self.target, tuple(x[rows] for x in sums)),
        )
        return whole, travel, chance

    def _evaluated(self, whole: State) -> tuple[Tensor, Tensor]:
        """Log prior and log likelihood, to the power 1, of all replicas, (C T,) each."""
        known, total = whole.recall(self.target), None
        if known is not None:
            total = components_of(self.target)[0].sum_in(known[0])
        with torch.no_grad():
            return self.target.target.log_prior_and_likelihood(whole.code, whole.theta, total=total)

    def _evaluated_anew(self, whole: State) -> State:
        log_joint = self._log_joint(*self._evaluated(whole))
        return whole._replace(log_joint=log_joint)

    def _log_joint(self, log_prior: Tensor, log_likelihood: Tensor) -> Tensor:
        log_joint = log_prior + self.target.powered(log_likelihood)
        return torch.where(log_prior == -math.inf, log_prior, log_joint)

    def _set_powers(self, chains: int) -> None:
        self.target.temper(self._power(chains))

    def _power(self, chains: int) -> Tensor:
        """Of each replica, (C T,)."""
        return self.powers.to(self.target.dtype).repeat(chains)


def spaced(powers: Tensor, rejected: Tensor, rungs: int) -> Tensor:
    """Powers at which neighbours reject each other alike, shape (rungs,).

    Arguments:
        powers: Falling, shape (T,).
        rejected: Rejection rates of neighbours among them, shape (T - 1,).
        rungs: How many are wanted.

    Source:
        Syed et al. (2021), section 5.2

    Example:
        >>> spaced(torch.tensor([1.0, 0.5, 0.0]), torch.tensor([0.6, 0.2]), 3)
        tensor([1.0000, 0.6664, 0.0000], dtype=torch.float64)
    """
    barrier = (rejected.double() + LEAST_REJECTED).cumsum(0)
    barrier = torch.nn.functional.pad(barrier, (1, 0))
    wanted = torch.linspace(0, 1, rungs, dtype=torch.float64, device=barrier.device) * barrier[-1]
    place = torch.searchsorted(barrier, wanted[1:-1].contiguous()).clamp(1, len(barrier) - 1)
    share = (wanted[1:-1] - barrier[place - 1]) / (barrier[place] - barrier[place - 1])
    powers = powers.double()
    between = powers[place - 1] + share * (powers[place] - powers[place - 1])
    return torch.cat([powers[:1], between, powers[-1:]])
