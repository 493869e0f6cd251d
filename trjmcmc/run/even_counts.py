"""Evidences of all numbers of components, however improbable, by chains that visit each alike."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .. import clock
from ..draws import Pool
from ..errors import ConfigurationError, ConvergenceWarning, DisagreementWarning, warn_user
from ..estimate.acceptance_ratio import acceptance_ratio, influence
from ..estimate.estimate import Estimate
from ..estimate.importance import enough_weights, log_mean_weight, rounded
from ..kernel.base import Info, Kernel, State, start
from ..kernel.compose import Cycle
from ..pilot.generation import systematic
from ..progress import progress_bar
from ..target.exchangeable import Components, components_of
from ..target.target import Target
from ..target.tempered import Tempered
from ..transport.normals import gaussian_mixture
from .count import Tally
from .moves import component_births, component_exchanges, component_walks
from .start import prior_draws

if TYPE_CHECKING:
    import pandas as pd

CHAINS = 256

WARM_UP = 0.45  # share of the time: tempering, then rounds that learn how to visit all alike

CARRIED = 0.7  # share of that, of tempering

KEPT = 0.9  # share of the chains of each number that stay effective when the power rises

MOST_POWERS = 200  # that are waited for

STEPS = 2  # at each of them

ROUNDS = 5  # that learn at the power 1

PAIRS = {(0, 1): 3, (1, 1): 2, (1, 2): 1}  # exchanges: births and deaths are what tells

CHANGE = 12.0  # nats by which a round may change what a count is given

CLASH = 4.0  # standard errors between the two routes that are too many

DRAWS = 20_000  # of importance sampling of the smallest number, and points that it is fitted to

FEW_CROSSINGS = 1 / 8  # of a chain from one number to the next, or back: else starts may count

Array = NDArray[np.float64]


class Evened(Tempered):
    """A target whose numbers of components have another prior, so that all are visited alike.

    Arguments:
        target: The target; its components are of one kind.

    Attributes:
        bonus: What is added to the log prior of each number, nats, shape (K + 1,).
    """

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        (kind,) = target.space.kinds
        self.bonus = torch.zeros(kind.max + 1, dtype=target.dtype, device=target.device)

    def give(self, bonus: Tensor) -> None:
        """Other bonuses, (K + 1,)."""
        self.bonus = bonus.to(self.bonus)

    def raise_bonus(self, number: int, by: float) -> None:
        """Add to the bonus of one number."""
        here = torch.arange(len(self.bonus), device=self.bonus.device) == number
        self.bonus = torch.where(here, self.bonus + by, self.bonus)

    def log_prior_and_likelihood(
        self, code: Tensor, theta: Tensor, **settings: Any
    ) -> tuple[Tensor, Tensor]:
        """As of any target, with the bonus in the prior, (C,) each, nats."""
        log_prior, log_likelihood = super().log_prior_and_likelihood(code, theta, **settings)
        return log_prior + self.bonus[code[:, 0]], log_likelihood


@dataclass
class Moves:
    """Moves that were proposed between neighbouring numbers of components.

    Attributes:
        low: The smaller number of each, (n,).
        up: Whether it was to the larger one.
        chain: Which chain proposed it.
        log_ratio: Of acceptance, without the bonus.
        taken: Whether it was accepted.
    """

    low: list[Tensor] = field(default_factory=list)
    up: list[Tensor] = field(default_factory=list)
    chain: list[Tensor] = field(default_factory=list)
    log_ratio: list[Tensor] = field(default_factory=list)
    taken: list[Tensor] = field(default_factory=list)

    def add(self, infos: list[Info], bonus: Tensor) -> None:
        for info in infos:
            here, there = info.before.code[:, 0], info.proposed.code[:, 0]
            rows = ((there - here).abs() == 1).nonzero()[:, 0]
            here, there = here[rows], there[rows]
            self.low.append(torch.minimum(here, there))
            self.up.append(there > here)
            self.chain.append(rows)
            self.taken.append(info.accepted[rows])
            ratio = info.log_ratio[rows].double() - (bonus[there] - bonus[here]).double()
            possible = info.proposed.log_joint[rows].abs() < math.inf
            possible &= ~ratio.isnan()
            self.log_ratio.append(torch.where(possible, ratio, -math.inf))

    def and_those_of(self, other: Moves) -> Moves:
        """Both."""
        mine, theirs = vars(self), vars(other)
        return Moves(**{name: mine[name] + theirs[name] for name in mine})

    def crossings(self, low: int) -> int:
        """Times that chains went from a number to the next, or back if that was rarer."""
        if not self.low:
            return 0
        at, up, taken = (torch.cat(x) for x in (self.low, self.up, self.taken))
        there = taken & (at == low)
        return min(int((there & up).sum()), int((there & ~up).sum()))

    def between(self, low: int) -> tuple[Array, Array, NDArray[np.intp]]:
        """log r of moves up and down from a number, and their chains, in this order."""
        if not self.low:
            return np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.intp)
        at, up, chain, ratio = (
            torch.cat(x).cpu().numpy() for x in (self.low, self.up, self.chain, self.log_ratio)
        )
        here = at == low
        first, second = here & up, here & ~up
        return ratio[first], ratio[second], np.concatenate([chain[first], chain[second]])


def evidences_of_counts(
    target: Target,
    *,
    max_seconds: float = 120.0,
    chains: int = CHAINS,
    seed: int = 0,
    progress: bool = True,
) -> pd.DataFrame:
    """Log evidences of all numbers of components, with errors, also where p(k) is 1e-10.

    Chains are carried from the prior to the posterior and then learn a prior of the counts under
    which they visit each alike. Two routes tell the ratios of neighbours: all births and deaths
    that were proposed, accepted or not, and how often each was visited. The evidence of the
    smallest number, from which they start, is by importance sampling through normals.

    Arguments:
        target: A target over :class:`~trjmcmc.Counts` of one kind, whose components are
            exchangeable.
        max_seconds: How long it may take.
        chains: Chains; they tell the errors.
        seed: Of the random numbers.
        progress: Whether to show a bar.

    Returns:
        One row a number of components: ``log_evidence`` and its ``se`` (nats; by moves), the same
        by ``visits``, ``probability`` and its ``probability_se`` under the target's own prior.
        ``attrs`` holds ``tours`` (of chains from the smallest number to the largest and back) and
        ``steps``.

    Raises:
        ConfigurationError: Another space, several kinds, one number only, chains or seconds out of
            range.

    Warns:
        ConvergenceWarning: Chains hardly go from one number to the next: what lies beyond has no
            error.
        DisagreementWarning: The two routes differ by more than four standard errors.

    Source:
        Bennett (1976), https://doi.org/10.1016/0021-9991(76)90078-4; Atchade & Liu (2004), the
        Wang-Landau algorithm in general state spaces; Geyer & Thompson (1995),
        https://doi.org/10.1080/01621459.1995.10476590, on tours

    Example:
        >>> import trjmcmc as trj
        >>> target = trj.problems.pulses(points=60, true=1, most=2, seed=1)
        >>> table = trj.evidences_of_counts(target, max_seconds=3, chains=64, progress=False)
        >>> table.index.tolist(), bool((table["se"] < 1).all())
        ([0, 1, 2], True)
    """
    parts = _checked(target, max_seconds, chains)
    begun, generator = clock.now(), torch.Generator(target.device).manual_seed(seed)
    even, end = Evened(target), begun + max_seconds
    state = prior_draws(even, chains, generator)
    warm = clock.part_of_the_time_left(WARM_UP, end)
    with torch.no_grad(), progress_bar(progress, desc="evidences", unit="step") as bar:
        carried = clock.part_of_the_time_left(CARRIED, warm)
        kernel, state = _carried(_kernel(even), state, even, generator, carried, bar)
        for i in range(ROUNDS):
            until = clock.part_of_the_time_left(1 / (ROUNDS - i), warm)
            kernel, state, moves = _round(kernel, state, even, generator, until, bar)
            _learn(even, moves)
            state = start(even, state.code, state.theta)
        seen = _sampled(kernel.frozen(), state, even, generator, end, bar)
    return _table(target, even, seen, _anchor(target, parts.kind.min, seen.pool, generator))


def _checked(target: Target, seconds: float, chains: int) -> Components:
    if not (seconds > 0 and math.isfinite(seconds)) or chains < 2:
        raise ConfigurationError(
            f"max_seconds, chains: expected a positive number and 2 or more, got {seconds} and "
            f"{chains}"
        )
    found = components_of(target)
    if len(found) != 1 or len(target.space.kinds) > 1:
        raise ConfigurationError(
            "expected a target over trj.Counts of one kind of exchangeable components"
        )
    (parts,) = found
    if any(not bool(table.isfinite().all()) for table in target.space.log_priors):
        raise ConfigurationError("the prior leaves out numbers of components: change min or max")
    if parts.kind.min == parts.kind.max:
        raise ConfigurationError("there is one number of components only; use trj.evidence")
    return parts


def _kernel(target: Target) -> Kernel:
    parts = components_of(target)
    births, walks = component_births(target, parts), component_walks(target, parts)
    return Cycle([births, *component_exchanges(target, parts, PAIRS), *walks])


def _carried(
    kernel: Kernel, state: State, even: Evened, generator: torch.Generator, until: float, bar: Any
) -> tuple[Kernel, State]:
    """Chains of all numbers from the prior to the posterior, as many of each, by tempering.

    Source:
        Del Moral, Doucet & Jasra (2006), https://doi.org/10.1111/j.1467-9868.2006.00553.x
    """
    power, seconds = 0.0, 0.0
    try:
        even.temper(0.0)
        state = start(even, state.code, state.theta)
        while power < 1:
            begun = clock.now()
            _, value = even.target.log_prior_and_likelihood(state.code, state.theta)
            step = _step(value.double(), state.code[:, 0], 1 - power)
            left = (until - begun) / seconds if seconds else math.inf
            if power and left < MOST_POWERS:
                step = max(step, power ** (1 - 1 / max(left, 1.0)) - power)
            step = min(step, 1 - power)
            pick = _resampled(even, step * value.double(), state.code[:, 0], generator)
            power = 1.0 if power + step > 1 - 1e-9 else power + step
            even.temper(power)
            state = start(even, state.code[pick], state.theta[pick])
            kernel, state, moves = _round(kernel, state, even, generator, begun, bar, STEPS)
            _learn(even, moves)
            state = start(even, state.code, state.theta)
            seconds = clock.now() - begun
    finally:
        even.temper(1.0)
    return kernel, state


def _step(value: Tensor, k: Tensor, most: float) -> float:
    """By how much the power may rise so that the chains of each number stay effective."""
    number = torch.nn.functional.one_hot(k).double()

    def effective(step: float) -> float:
        top = torch.where(number > 0, value[:, None], -math.inf).amax(0).clamp(min=-1e300)
        weight = (step * (value - top[k])).nan_to_num(0.0, 0.0, -math.inf).exp()
        one, two = weight @ number, weight.square() @ number
        there = number.sum(0)
        share = torch.where(there > 0, one.square() / two.clamp(min=1e-300), 0.0)
        return float(share.sum() / there.sum())

    low, high = math.log(1e-12), math.log(most)
    if effective(most) >= KEPT:
        return most
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective(math.exp(middle)) >= KEPT else (low, middle)
    return math.exp(low)


def _resampled(even: Evened, log_weight: Tensor, k: Tensor, generator: torch.Generator) -> Tensor:
    """Chains that go on, (C,): as many of each number that there is; bonuses follow evidences."""
    there = k.unique().tolist()
    sizes = [len(k) // len(there) + (i < len(k) % len(there)) for i in range(len(there))]
    picks = []
    for number, size in zip(there, sizes, strict=True):
        rows = (k == number).nonzero()[:, 0]
        mine = torch.where(log_weight[rows].isnan(), -math.inf, log_weight[rows])
        gain = float(mine.logsumexp(0)) - math.log(len(rows))
        even.raise_bonus(number, -gain if math.isfinite(gain) else 0.0)
        weight = mine.softmax(0) if math.isfinite(gain) else torch.ones_like(mine)
        picks.append(rows[systematic(weight[None] / weight.sum(), size, generator)[0]])
    return torch.cat(picks)


def _round(
    kernel: Kernel,
    state: State,
    even: Evened,
    generator: torch.Generator,
    until: float,
    bar: Any,
    least: int = 1,
) -> tuple[Kernel, State, Moves]:
    """Steps by a kernel that learns, until some time and at least so many."""
    moves, tally, steps = Moves(), Tally(even), 0
    while steps < least or clock.now() < until:
        kernel, state, infos = kernel.adapt(state, generator)
        tally.add(infos)
        moves.add(infos, even.bonus)
        bar.update()
        steps += 1
    tally.check()
    return kernel, state, moves


def _learn(even: Evened, moves: Moves) -> None:
    """Give each number the bonus with which all are as probable, as far as a round tells."""
    (kind,) = even.space.kinds
    before, total = even.bonus.double().cpu().numpy(), 0.0
    bonus = before.copy()
    for k in range(kind.min, kind.max):
        up, down, _ = moves.between(k)
        old = before[k] - before[k + 1]
        new = _ratio(up, down, float(old))
        if math.isnan(new) and len(up):
            new = float(np.logaddexp.reduce(up)) - math.log(len(up))
        elif math.isnan(new) and len(down):
            new = math.log(len(down)) - float(np.logaddexp.reduce(down))
        new = old if math.isnan(new) else min(max(new, old - CHANGE), old + CHANGE)
        total -= new
        bonus[k + 1] = bonus[kind.min] + total
    even.give(torch.as_tensor(bonus))


@dataclass
class Seen:
    """What chains have shown that visit all numbers alike.

    Attributes:
        halves: Moves of the first and of the second half of the time.
        visits: Of each chain in either half, shape (2, C, K + 1).
        tours: From the smallest number to the largest and back, of all chains.
        steps: Of each chain.
        pool: Some points of the smallest number.
    """

    halves: tuple[Moves, Moves]
    visits: Tensor
    tours: int
    steps: int
    pool: Pool


def _sampled(
    kernel: Kernel, state: State, even: Evened, generator: torch.Generator, end: float, bar: Any
) -> Seen:
    low, high = even.space.kinds[0].min, even.space.kinds[0].max
    halves, tally = (Moves(), Moves()), Tally(even)
    n, middle = len(state.code), clock.part_of_the_time_left(0.5, end)
    visits = torch.zeros(2, n, high + 1, device=even.device)
    back = torch.zeros(n, dtype=torch.bool, device=even.device)
    begun, tours = torch.zeros_like(back), torch.zeros((), dtype=torch.long, device=even.device)
    steps, kept = 0, list[Tensor]()
    while clock.now() < end or not steps:
        state, infos = kernel.step(state, generator)
        tally.add(infos)
        half, k = int(clock.now() > middle), state.code[:, 0]
        halves[half].add(infos, even.bonus)
        visits[half].scatter_add_(1, k[:, None], torch.ones_like(visits[half, :, :1]))
        tours = tours + (back & (k == low)).sum()
        begun = begun | (k == low)
        back = (back & (k != low)) | (begun & (k == high))
        kept.append(state.theta[k == low])
        steps += 1
        bar.update()
    tally.check()
    theta = torch.cat(kept)
    theta = theta[:: max(1, len(theta) // DRAWS)]
    code = torch.full_like(theta[:, :1], low, dtype=torch.long)
    pool = Pool(code, theta, torch.zeros_like(theta[:, 0]).double())
    return Seen(halves, visits.double(), int(tours), steps, pool)


def _anchor(target: Target, low: int, pool: Pool, generator: torch.Generator) -> Estimate:
    """Log evidence of the smallest number, by importance sampling."""
    flow = gaussian_mixture(target.space, pool, generator)
    code = torch.tensor([low], device=target.device)
    with torch.no_grad():
        log_w = enough_weights(target, flow, code, generator, most=DRAWS)
        prior = float(target.space.log_prior(code[None]))
    return rounded(log_mean_weight(log_w), target.dtype).shifted(-prior)


def _table(target: Target, even: Evened, seen: Seen, anchor: Estimate) -> pd.DataFrame:
    import pandas as pd

    low, high = even.space.kinds[0].min, even.space.kinds[0].max
    counts = np.arange(low, high + 1)
    odds, parts, halves = _by_moves(even, seen, low, high)
    visits = seen.visits[..., low:].cpu().numpy()
    by_visits, visited = _by_visits(even, visits.sum(0), low)
    first, second = (_by_visits(even, half, low)[0] for half in visits)
    with np.errstate(invalid="ignore"):  # of what was never visited
        se = np.maximum(_error(parts), np.abs(halves[1] - halves[0]) / 2)
        visits_se = np.maximum(_error(visited), np.abs(second - first) / 2)
        apart = np.abs(by_visits - odds)[1:] / np.hypot(se, visits_se)[1:]
    code = torch.as_tensor(counts, device=target.device)[:, None]
    prior = target.space.log_prior(code).double().cpu().numpy()
    shift = anchor.value - (prior - prior[0])
    p = np.exp(odds - np.logaddexp.reduce(odds)) if np.isfinite(odds).all() else odds * math.nan
    share_parts = p * (parts - (parts @ p)[:, None])
    share_drift = p * np.abs(halves[1] - halves[0] - p @ (halves[1] - halves[0])) / 2
    table = pd.DataFrame(
        {
            "log_evidence": odds + shift,
            "se": np.hypot(se, anchor.std_error),
            "visits": by_visits + shift,
            "visits_se": np.hypot(visits_se, anchor.std_error),
            "probability": p,
            "probability_se": np.maximum(_error(share_parts), share_drift),
        },
        index=pd.Index(counts, name="k"),
    )
    table.attrs = {"tours": seen.tours, "steps": seen.steps}
    if anchor.warning:
        table[["se", "visits_se"]] = math.nan
        warn_user(f"evidence of {low} components: {anchor.warning}", ConvergenceWarning)
    every = seen.halves[0].and_those_of(seen.halves[1])
    rare = [
        k for k in range(low, high) if every.crossings(k) < FEW_CROSSINGS * seen.visits.shape[1]
    ]
    if rare:
        # beyond a gap that chains do not cross nothing says that they have forgotten their start
        table.loc[rare[0] + 1 :, ["se", "visits_se"]] = math.nan
        table["probability_se"] = math.nan
        warn_user(
            f"chains hardly went from {rare[0]} to {rare[0] + 1} components and back: evidences "
            f"of {rare[0] + 1} and more have no errors; give it more max_seconds",
            ConvergenceWarning,
        )
    if bool((apart > CLASH).any()):
        worst = int(np.nanargmax(apart))
        warn_user(
            f"evidence of {counts[1 + worst]} components: by moves and by visits it differs by "
            f"{apart[worst]:.1f} standard errors; give it more max_seconds",
            DisagreementWarning,
        )
    return table


def _by_moves(even: Evened, seen: Seen, low: int, high: int) -> tuple[Array, Array, list[Array]]:
    """Log odds to the smallest number (n,), what each chain adds (C, n), and those of halves."""
    chains = seen.visits.shape[1]
    bonus = even.bonus.double().cpu().numpy()
    columns, parts = [], [np.zeros(chains)]
    every = seen.halves[0].and_those_of(seen.halves[1])
    for k in range(low, high):
        guess = float(bonus[k] - bonus[k + 1])
        ratios = [_ratio(*moves.between(k)[:2], guess) for moves in seen.halves]
        up, down, chain = every.between(k)
        c = _ratio(up, down, guess)
        columns.append([c, *ratios])
        each = np.full(chains, math.nan)
        if not math.isnan(c):
            each = np.bincount(chain, influence(up, down, c), chains)
        parts.append(each)
    odds, *halves = np.cumsum([[0.0, 0.0, 0.0], *columns], 0).T
    return odds, np.cumsum(parts, 0).T, halves


def _ratio(up: Array, down: Array, guess: float) -> float:
    return acceptance_ratio(up, down, guess) if len(up) and len(down) else math.nan


def _by_visits(even: Evened, visits: Array, low: int) -> tuple[Array, Array]:
    """Log odds to the smallest number by visits (C, n), and what each chain adds (C, n)."""
    total, bonus = visits.sum(0), even.bonus[low:].double().cpu().numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = np.log(total) - bonus - (np.log(total[0]) - bonus[0])
        parts = visits / total - visits[:, :1] / total[0]
    return odds, parts


def _error(parts: Array) -> Array:
    """Standard errors of sums of what chains add, (C, n) -> (n,)."""
    n = len(parts)
    return np.asarray(np.sqrt(n / (n - 1) * ((parts - parts.mean(0)) ** 2).sum(0)))
