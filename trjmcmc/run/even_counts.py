"""Evidences of all numbers of components, however improbable, by chains that visit each alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

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
from ..pilot.smc import next_step
from ..progress import progress_bar
from ..target.exchangeable import components_of
from ..target.target import Target
from ..target.tempered import Tempered
from ..transport.normals import gaussian_mixture
from .moves import component_births, component_exchanges, component_walks
from .recorded import Tally
from .start import prior_draws

if TYPE_CHECKING:
    import pandas as pd

CHAINS = 256

WARM_UP = 0.45  # share of the time: tempering, then rounds that learn how to visit all alike

CARRIED = 0.7  # share of that, of tempering

KEPT = 0.9  # share of the chains of the median number that stay effective when the power rises

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
        bonus: What is added to the log prior of each number, nats, shape (K + 1,), float64.
    """

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        (kind,) = target.space.kinds
        self.bonus = torch.zeros(kind.max + 1, dtype=torch.float64, device=target.device)

    def log_prior_and_likelihood(
        self, code: Tensor, theta: Tensor, **settings: Any
    ) -> tuple[Tensor, Tensor]:
        """As of any target, with the bonus in the prior, (C,) each, nats."""
        log_prior, log_likelihood = super().log_prior_and_likelihood(code, theta, **settings)
        return log_prior + self.bonus.to(log_prior.dtype)[code[:, 0]], log_likelihood


class Stretch(NamedTuple):
    """Steps of chains under the same bonuses.

    Attributes:
        kernel, state: What has moved them, and where they have come to.
        moves: Proposed between neighbouring numbers: the smaller of these, whether to the larger
            one, which chain, the log ratio of acceptance without bonuses, and whether it was
            accepted, shape (5, n).
        k: Numbers of components after each step, shape (steps, C).
        points: Of chains with the smallest number, shape (n, D).
    """

    kernel: Kernel
    state: State
    moves: Array
    k: NDArray[np.int64]
    points: Tensor


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
    which they visit each alike. Two routes give the ratios of neighbours: all births and deaths
    that were proposed, accepted or not, and how often each was visited. The evidence of the
    smallest number, from which they start, is by importance sampling through normals.

    Arguments:
        target: A target over :class:`~trjmcmc.Counts` of one kind, whose components are
            exchangeable.
        max_seconds: How long it may take.
        chains: Chains, whose spread gives the errors.
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
        https://doi.org/10.1080/01621459.1995.10476590 (regeneration)

    Example:
        >>> import trjmcmc as trj
        >>> target = trj.problems.pulses(points=60, true=1, most=2, seed=1)
        >>> table = trj.evidences_of_counts(target, max_seconds=3, chains=64, progress=False)
        >>> table.index.tolist(), bool((table["se"] < 1).all())
        ([0, 1, 2], True)
    """
    _check(target, max_seconds, chains)
    begun, generator = clock.now(), torch.Generator(target.device).manual_seed(seed)
    even, end = Evened(target), begun + max_seconds
    state = prior_draws(even, chains, generator)
    warm = clock.part_of_the_time_left(WARM_UP, end)
    with torch.no_grad(), progress_bar(progress, desc="evidences", unit="step") as bar:
        advance = partial(_stretch, even, generator, bar)
        carried = clock.part_of_the_time_left(CARRIED, warm)
        kernel, state = _carried(_kernel(even), state, even, generator, carried, advance)
        for i in range(ROUNDS):
            until = clock.part_of_the_time_left(1 / (ROUNDS - i), warm)
            kernel, state = _learned(even, advance(kernel, state, until))
        kernel, middle = kernel.frozen(), clock.part_of_the_time_left(0.5, end)
        first = advance(kernel, state, middle, learns=False)
        second = advance(kernel, first.state, end, learns=False, least=0)
    points = torch.cat([first.points, second.points])
    return _table(even, first, second, _anchor(target, points, generator))


def _check(target: Target, seconds: float, chains: int) -> None:
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
        raise ConfigurationError("there is one number of components; use trj.evidence_of_draws")


def _kernel(target: Target) -> Kernel:
    parts = components_of(target)
    births, walks = component_births(target, parts), component_walks(target, parts)
    return Cycle([births, *component_exchanges(target, parts, PAIRS), *walks])


def _carried(
    kernel: Kernel,
    state: State,
    even: Evened,
    generator: torch.Generator,
    until: float,
    advance: Callable[..., Stretch],
) -> tuple[Kernel, State]:
    """Chains of all numbers from the prior to the posterior, as many of each, by tempering.

    Source:
        Del Moral, Doucet & Jasra (2006), https://doi.org/10.1111/j.1467-9868.2006.00553.x
    """
    power, seconds = 0.0, 0.0
    try:
        while power < 1:
            begun, (code, theta) = clock.now(), state[:2]
            value = even.target.log_prior_and_likelihood(code, theta)[1].double()
            value = value.nan_to_num(-math.inf, -math.inf, -math.inf)
            numbers = code[:, 0].unique()
            mine = (code[:, 0] == numbers[:, None]) & (value > -math.inf)
            at = torch.full((len(numbers), 1), power, dtype=value.dtype, device=value.device)
            step = float(next_step(value.expand_as(mine), mine.double(), at, KEPT).median())
            left = (until - begun) / seconds if seconds else math.inf
            if power and left < MOST_POWERS:
                step = max(step, power ** (1 - 1 / max(left, 1.0)) - power)
            step = min(step, 1 - power)
            log_weight = torch.where(mine, step * value, -math.inf)
            gain = log_weight.logsumexp(1) - mine.sum(1).log()
            even.bonus[numbers] -= gain.nan_to_num(0.0, 0.0, 0.0)  # they follow evidences
            weight = torch.where(gain.isfinite()[:, None], log_weight.softmax(1), 1 / len(code))
            each = -(-len(code) // len(numbers))  # as many chains of each
            pick = systematic(weight, each, generator).T.flatten()[: len(code)]
            power = 1.0 if power + step > 1 - 1e-9 else power + step
            even.temper(power)
            state = start(even, code[pick], theta[pick])
            kernel, state = _learned(even, advance(kernel, state, begun, least=STEPS))
            seconds = clock.now() - begun
    finally:
        even.temper(1.0)
    return kernel, state


def _stretch(
    even: Evened,
    generator: torch.Generator,
    bar: Any,
    kernel: Kernel,
    state: State,
    until: float,
    *,
    learns: bool = True,
    least: int = 1,
) -> Stretch:
    """Steps until some time and at least so many, by a kernel that learns or is frozen."""
    tally, moves = Tally(even), [torch.zeros(5, 0, dtype=torch.float64, device=even.device)]
    k, points, steps = [state.code[:, :0].T], [state.theta[:0]], 0
    while steps < least or clock.now() < until:
        if learns:
            kernel, state, infos = kernel.adapt(state, generator)
        else:
            state, infos = kernel.step(state, generator)
        tally.add(infos)
        moves += [_between_neighbours(info, even.bonus) for info in infos]
        k.append(state.code.T)
        points.append(state.theta[state.code[:, 0] == even.space.kinds[0].min])
        steps += 1
        bar.update()
    tally.check()
    every, path = (torch.cat(x, dim).cpu().numpy() for x, dim in ((moves, 1), (k, 0)))
    return Stretch(kernel, state, every, path, torch.cat(points))


def _between_neighbours(info: Info, bonus: Tensor) -> Tensor:
    """What a step has proposed between neighbouring numbers, as of :class:`Stretch`, (5, n)."""
    here, there = info.before.code[:, 0], info.proposed.code[:, 0]
    rows = ((there - here).abs() == 1).nonzero()[:, 0]
    here, there = here[rows], there[rows]
    ratio = info.log_ratio[rows].double() - (bonus[there] - bonus[here])
    possible = (info.proposed.log_joint[rows].abs() < math.inf) & ~ratio.isnan()
    ratio = torch.where(possible, ratio, -math.inf)
    columns = torch.minimum(here, there), there > here, rows, ratio, info.accepted[rows]
    return torch.stack([x.double() for x in columns])


def _from(moves: Array, low: int) -> tuple[Array, Array, NDArray[np.intp]]:
    """log r of moves up and down from a number, and their chains, in this order."""
    _, up, chain, ratio, _ = moves[:, moves[0] == low]
    first, second = up > 0, up == 0
    return ratio[first], ratio[second], np.concatenate([chain[first], chain[second]]).astype(int)


def _crossings(moves: Array, low: int) -> int:
    """Times that chains went from a number to the next, or back if that was rarer."""
    up = moves[1, (moves[0] == low) & (moves[4] > 0)]
    return int(min(up.sum(), (1 - up).sum()))


def _learned(even: Evened, seen: Stretch) -> tuple[Kernel, State]:
    """Give each number the bonus with which all are as probable, as far as moves tell."""
    (kind,) = even.space.kinds
    before, total = even.bonus.tolist(), 0.0
    for k in range(kind.min, kind.max):
        up, down, _ = _from(seen.moves, k)
        old = before[k] - before[k + 1]
        new = _ratio(up, down, old)
        if math.isnan(new) and len(up):
            new = float(np.logaddexp.reduce(up)) - math.log(len(up))
        elif math.isnan(new) and len(down):
            new = math.log(len(down)) - float(np.logaddexp.reduce(down))
        new = old if math.isnan(new) else min(max(new, old - CHANGE), old + CHANGE)
        total -= new
        even.bonus[k + 1] = before[kind.min] + total
    return seen.kernel, start(even, seen.state.code, seen.state.theta)


def _anchor(target: Target, theta: Tensor, generator: torch.Generator) -> Estimate:
    """Log evidence of the smallest number, by importance sampling through normals of its points."""
    code = torch.tensor([target.space.kinds[0].min], device=target.device)
    theta = theta[:: max(1, len(theta) // DRAWS)]
    pool = Pool(code.expand(len(theta), 1), theta, torch.zeros_like(theta[:, 0]).double())
    flow = gaussian_mixture(target.space, pool, generator)
    with torch.no_grad():
        log_w = enough_weights(target, flow, code, generator, most=DRAWS)
        prior = float(target.space.log_prior(code[None]))
    return rounded(log_mean_weight(log_w), target.dtype) - prior


def _table(even: Evened, first: Stretch, second: Stretch, anchor: Estimate) -> pd.DataFrame:
    import pandas as pd

    low, high = even.space.kinds[0].min, even.space.kinds[0].max
    counts, halves = np.arange(low, high + 1), (first, second)
    bonus, chains = even.bonus.cpu().numpy()[low:], first.k.shape[1]
    every = np.concatenate([half.moves for half in halves], 1)
    odds, parts = _by_moves(every, bonus, low, chains)
    drift = np.subtract(*(_by_moves(half.moves, bonus, low, chains)[0] for half in halves))
    visits = np.array([[(half.k == k).sum(0) for k in counts] for half in halves]).swapaxes(1, 2)
    by_visits, visited = _by_visits(bonus, visits.sum(0))
    with np.errstate(invalid="ignore"):  # of what was never visited
        apart = np.subtract(*(_by_visits(bonus, half)[0] for half in visits))
        se = np.maximum(_error(parts), np.abs(drift) / 2)
        visits_se = np.maximum(_error(visited), np.abs(apart) / 2)
        clash = np.abs(by_visits - odds)[1:] / np.hypot(se, visits_se)[1:]
    code = torch.as_tensor(counts, device=even.device)[:, None]
    prior = even.space.log_prior(code).double().cpu().numpy()
    shift = anchor.value - (prior - prior[0])
    p = np.exp(odds - np.logaddexp.reduce(odds)) if np.isfinite(odds).all() else odds * math.nan
    share_parts = p * (parts - (parts @ p)[:, None])
    share_drift = p * np.abs(drift - p @ drift) / 2
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
    path = np.concatenate([half.k for half in halves])
    table.attrs = {"tours": _tours(path, low, high), "steps": len(path)}
    if anchor.warning:
        table[["se", "visits_se"]] = math.nan
        warn_user(f"evidence of {low} components: {anchor.warning}", ConvergenceWarning)
    rare = [k for k in range(low, high) if _crossings(every, k) < FEW_CROSSINGS * chains]
    if rare:
        # beyond a gap that chains do not cross nothing says that they have forgotten their start
        table.loc[rare[0] + 1 :, ["se", "visits_se"]] = math.nan
        table["probability_se"] = math.nan
        warn_user(
            f"chains hardly went from {rare[0]} to {rare[0] + 1} components and back: evidences "
            f"of {rare[0] + 1} and more have no errors; give it more max_seconds",
            ConvergenceWarning,
        )
    if bool((clash > CLASH).any()):
        worst = int(np.nanargmax(clash))
        warn_user(
            f"evidence of {counts[1 + worst]} components: by moves and by visits it differs by "
            f"{clash[worst]:.1f} standard errors; give it more max_seconds",
            DisagreementWarning,
        )
    return table


def _by_moves(moves: Array, bonus: Array, low: int, chains: int) -> tuple[Array, Array]:
    """Log odds to the smallest number (n,), and what each chain adds (C, n)."""
    odds, parts = [0.0], [np.zeros(chains)]
    for k, guess in enumerate(bonus[:-1] - bonus[1:], low):
        up, down, chain = _from(moves, k)
        c, each = _ratio(up, down, float(guess)), np.full(chains, math.nan)
        if not math.isnan(c):
            each = np.bincount(chain, influence(up, down, c), chains)
        odds, parts = [*odds, c], [*parts, each]
    return np.cumsum(odds), np.cumsum(parts, 0).T


def _ratio(up: Array, down: Array, guess: float) -> float:
    return acceptance_ratio(up, down, guess) if len(up) and len(down) else math.nan


def _by_visits(bonus: Array, visits: Array) -> tuple[Array, Array]:
    """Log odds to the smallest number by visits (C, n), and what each chain adds (C, n)."""
    total = visits.sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = np.log(total) - bonus - (np.log(total[0]) - bonus[0])
        parts = visits / total - visits[:, :1] / total[0]
    return odds, parts


def _tours(k: NDArray[np.int64], low: int, high: int) -> int:
    """Times that chains went from the smallest number to the largest and back, (steps, C)."""
    ends = (row[(row == low) | (row == high)] for row in k.T)  # a tour begins at the smallest
    return sum(max(0, int((np.diff(x) < 0).sum() - (x[:1] == high).sum())) for x in ends)


def _error(parts: Array) -> Array:
    """Standard errors of sums of what chains add, (C, n) -> (n,)."""
    n = len(parts)
    return np.asarray(np.sqrt(n / (n - 1) * ((parts - parts.mean(0)) ** 2).sum(0)))
