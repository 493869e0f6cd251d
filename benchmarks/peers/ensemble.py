"""Probabilities of models by Eryn: births and deaths from the prior."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.stats
from numpy.typing import NDArray
from scipy.special import gammaln

import trjmcmc as trj
from trjmcmc.problems.coal_mining import DAYS, GAMMA_RATE, LENGTH
from trjmcmc.problems.factor_analysis import SCALE, SHAPE

from .problems import LOG_2PI, Array, Data, FactorLikelihood

Row = dict[str, Any]

WANTED = 0.01  # standard error of every p(model)
MOST_DRIFT = 3.0  # standard errors between two halves of a run that has settled
FORGOTTEN = 20  # autocorrelation times that a run must be long, as ours
LOOK = 100  # steps between two looks at the error
LEAST_STEPS = 500
COUNTED = 0.01  # probability from which an indicator's effective draws count
WALKERS = 128


class LogExponential:
    """Logarithm of an exponential variate, as a distribution of Eryn."""

    def __init__(self, rate: float, seed: int) -> None:
        self.rate, self.rng = rate, np.random.default_rng(seed)

    def rvs(self, size: Any = 1) -> Array:
        return np.log(self.rng.exponential(1 / self.rate, size))

    def logpdf(self, y: Array) -> Array:
        with np.errstate(over="ignore"):  # a rate beyond all bounds has density zero
            return math.log(self.rate) + y - self.rate * np.exp(y)


class Scipy:
    """A frozen distribution of SciPy with a generator of its own."""

    def __init__(self, frozen: Any, seed: int) -> None:
        self.frozen, self.rng = frozen, np.random.default_rng(seed)
        self.logpdf = frozen.logpdf

    def rvs(self, size: Any = 1) -> Array:
        return self.frozen.rvs(size, random_state=self.rng)


class CoalPrior:
    """All change points and heights of a walker together.

    Leaves are labelled, so that the density is that of the sorted change points over k!.
    """

    key_order = ("all",)

    def __init__(self, model_prior: Array, change: Any, base: Any) -> None:
        self.change, self.base = change, base
        k = np.arange(1, len(model_prior) + 1)
        self.of_count = np.r_[-np.inf, np.log(model_prior) + gammaln(2 * k + 2) - gammaln(k + 1)]

    def logpdf(self, coords: Any, inds: Any, **_: Any) -> Array:
        on = inds["change"]
        x, y = coords["change"][..., 0], coords["change"][..., 1]
        within = (~on | ((x > 0) & (x < 1))).all(-1)
        heights = np.where(on, self.change.logpdf(np.where(on, y, 0.0)), 0.0).sum(-1)
        heights += self.base.logpdf(coords["base"][..., 0, 0])
        spacing = spacings(np.where(on, np.clip(x, 0, 1), 1.0))
        used = np.arange(spacing.shape[-1]) <= on.sum(-1)[..., None]
        with np.errstate(divide="ignore"):
            gaps = np.log(np.where(used, spacing, 1.0)).sum(-1)
        return np.where(within, self.of_count[on.sum(-1)] + gaps + heights, -np.inf)


def spacings(x: Array) -> Array:
    """Of points in the unit interval, sorted along the last axis; unused ones lie at 1."""
    ends = np.zeros((*x.shape[:-1], 1)), np.ones((*x.shape[:-1], 1))
    return np.diff(np.concatenate([ends[0], np.sort(x, -1), ends[1]], -1))


class CoalLikelihood:
    """Of leaves (change point, log height) with a base height; one value a group."""

    def __init__(self, most: int) -> None:
        self.days, self.most, self.calls = np.array(DAYS, dtype=float), most, 0

    def __call__(self, leaves: list[Array], groups: list[NDArray[np.int64]]) -> Array:
        (change, base), (owner, base_owner) = leaves, groups
        n = len(base_owner)
        self.calls += n
        order = np.lexsort((change[:, 0], owner))
        change, owner = change[order], owner[order]
        first = np.searchsorted(owner, np.arange(n))
        rank = np.arange(len(owner)) - first[owner]
        edge = np.ones((n, self.most + 2))
        edge[:, 0] = 0.0
        log_height = np.zeros((n, self.most + 1))
        edge[owner, rank + 1] = change[:, 0]
        log_height[owner, rank + 1] = change[:, 1]
        log_height[base_owner, 0] = base[:, 0]
        count = np.searchsorted(self.days, LENGTH * edge, side="right")
        length = LENGTH * np.diff(edge)
        return (np.diff(count) * log_height - np.exp(log_height) * length).sum(-1)


class FactorLeaves:
    """Factor analysis with 2 factors (branch "shared"), or a third column (branch "column")."""

    def __init__(self, y: Array) -> None:
        self.two, self.three = FactorLikelihood(y, 2), FactorLikelihood(y, 3)
        self.below, self.calls = 2 * y.shape[1] - 3, 0

    def __call__(self, leaves: list[Array], groups: list[NDArray[np.int64]]) -> Array:
        (shared, column), (owner, with_third) = leaves, groups
        self.calls += len(owner)
        point = np.empty_like(shared)
        point[owner] = shared
        value = np.empty(len(owner))
        third = np.zeros(len(owner), dtype=bool)
        third[with_third] = True
        value[~third] = self.two(point[~third])
        more, old = np.empty((len(with_third), column.shape[1])), point[third]
        more[np.argsort(np.argsort(with_third))] = column
        cut = np.split(old, [2, 2 + self.below], axis=1)
        value[third] = self.three(
            np.concatenate([cut[0], more[:, :1], cut[1], more[:, 1:], cut[2]], 1)
        )
        return value


class FactorPrior:
    """The priors of the branches that are on; 2 and 3 factors are equally likely."""

    key_order = ("all",)

    def __init__(self, p: int) -> None:
        self.below = 2 * p - 3

    def logpdf(self, coords: Any, inds: Any, **_: Any) -> Array:
        shared, column = coords["shared"][..., 0, :], coords["column"][..., 0, :]
        loadings = shared[..., : 2 + self.below]
        unique = shared[..., 2 + self.below :]
        within = (shared[..., :2] > 0).all(-1) & (unique > 0).all(-1)
        safe = np.where(unique > 0, unique, 1.0)
        constant = SHAPE * math.log(SCALE) - gammaln(SHAPE)
        value = normal(loadings) + 2 * math.log(2)
        value += (constant - (SHAPE + 1) * np.log(safe) - SCALE / safe).sum(-1)
        on = inds["column"][..., 0]
        within &= ~on | (column[..., 0] > 0)
        return np.where(within, value + np.where(on, normal(column) + math.log(2), 0.0), -np.inf)


def normal(x: Array) -> Array:
    return -0.5 * (x**2 + LOG_2PI).sum(-1)


@dataclass
class Ensemble:
    """A sampler of Eryn, where it starts, and what tells the model of a walker."""

    sampler: Any
    state: Any
    likelihood: Any
    model: Callable[[Any], NDArray[np.int64]]
    names: list[str]


def eryn_coal(target: trj.Target, data: Data, seed: int, walkers: int) -> Ensemble:
    from eryn.ensemble import EnsembleSampler
    from eryn.moves import DistributionGenerateRJ, GaussianMove
    from eryn.prior import ProbDistContainer, uniform_dist
    from eryn.state import State

    prior = target.space.log_prior(target.space.enumerate()).double().exp().numpy()
    most = len(prior)
    change, base = LogExponential(GAMMA_RATE, seed), LogExponential(GAMMA_RATE, seed + 1)
    born = {
        "change": ProbDistContainer({0: uniform_dist(0.0, 1.0), 1: change}),
        "base": ProbDistContainer({0: base}),
    }
    least_all, most_all = {"change": 1, "base": 1}, {"change": most, "base": 1}
    leaf = np.eye(most, dtype=bool)[:, :, None].repeat(2, -1)
    one_at_a_time = [*(("change", only) for only in leaf), "base"]
    likelihood = CoalLikelihood(most)
    sampler = EnsembleSampler(
        walkers,
        {"change": 2, "base": 1},
        likelihood,
        {"all_models_together": CoalPrior(prior, change, base)},
        provide_groups=True,
        branch_names=["change", "base"],
        nleaves_max=most_all,
        nleaves_min=least_all,
        moves=[
            GaussianMove(
                {"change": np.diag([place, height]) ** 2, "base": np.diag([height]) ** 2},
                gibbs_sampling_setup=one_at_a_time,
            )
            for place, height in ((0.01, 0.15), (0.06, 0.5))
        ],
        rj_moves=DistributionGenerateRJ(born, nleaves_max=most_all, nleaves_min=least_all),
        vectorize=True,
    )
    rng = np.random.default_rng(seed + 2)
    count = rng.choice(np.arange(1, most + 1), walkers, p=prior)
    coords = {
        "change": born["change"].rvs(size=(1, walkers, most)),
        "base": born["base"].rvs(size=(1, walkers, 1)),
    }
    on = {
        "change": (np.arange(most) < count[:, None])[None],
        "base": np.ones((1, walkers, 1), dtype=bool),
    }
    names = [f"k={k}" for k in range(1, most + 1)]
    return Ensemble(
        sampler,
        State(coords, inds=on),
        likelihood,
        lambda s: s.branches["change"].nleaves[0] - 1,
        names,
    )


def eryn_factors(target: trj.Target, data: Data, seed: int, walkers: int) -> Ensemble:
    from eryn.ensemble import EnsembleSampler
    from eryn.moves import DistributionGenerateRJ, GaussianMove, StretchMove
    from eryn.prior import ProbDistContainer
    from eryn.state import State

    y = target.y.numpy()
    p = y.shape[1]
    below, extra = 2 * p - 3, p - 2
    half, loading, unique = (
        Scipy(frozen, seed + i)
        for i, frozen in enumerate(
            [scipy.stats.halfnorm(), scipy.stats.norm(), scipy.stats.invgamma(SHAPE, scale=SCALE)]
        )
    )
    kinds = [half] * 2 + [loading] * below + [unique] * p
    born = {
        "shared": ProbDistContainer(dict(enumerate(kinds))),
        "column": ProbDistContainer(dict(enumerate([half] + [loading] * (extra - 1)))),
    }
    least_all, most_all = {"shared": 1, "column": 0}, {"shared": 1, "column": 1}
    likelihood = FactorLeaves(y)
    sampler = EnsembleSampler(
        walkers,
        {"shared": 2 + below + p, "column": extra},
        likelihood,
        {"all_models_together": FactorPrior(p)},
        provide_groups=True,
        branch_names=["shared", "column"],
        nleaves_max=most_all,
        nleaves_min=least_all,
        moves=[
            (StretchMove(gibbs_sampling_setup="shared", live_dangerously=True), 0.7),
            (GaussianMove({"column": np.eye(extra) * 0.1**2}, gibbs_sampling_setup="column"), 0.3),
        ],
        rj_moves=DistributionGenerateRJ(born, nleaves_max=most_all, nleaves_min=least_all),
        vectorize=True,
    )
    coords = {name: born[name].rvs(size=(1, walkers, 1)) for name in born}
    on = {
        "shared": np.ones((1, walkers, 1), dtype=bool),
        "column": (np.arange(walkers) % 2 == 1)[None, :, None],
    }
    names = ["2 factors", "3 factors"]
    return Ensemble(
        sampler,
        State(coords, inds=on),
        likelihood,
        lambda s: s.branches["column"].nleaves[0],
        names,
    )


@dataclass
class Shares:
    """Shares of the models in model indices (step, walker), the first half of them left out.

    Attributes:
        value, error: Of each model, with the standard error by the walkers' means.
        drift: The largest change between the two halves of what is kept, in standard errors.
        memory: The longest autocorrelation time over the length of what is kept.
    """

    value: Array
    error: Array
    drift: float
    memory: float

    @classmethod
    def of(cls, visited: NDArray[np.int8], models: int) -> "Shares":
        kept = visited[len(visited) // 2 :]
        middle = len(kept) // 2
        early, late = (
            np.stack([(part == m).mean(0) for m in range(models)])
            for part in (kept[:middle], kept[middle:])
        )
        means = (early + late) / 2
        error, moved = mean_error(means), mean_error(late - early)
        if not error.any():
            error[:] = np.inf
        gap = np.abs((late - early).mean(1))
        drift = np.divide(gap, moved, out=np.zeros(models), where=moved > 0)
        value = means.mean(1)
        spread, varies = means.var(1, ddof=1), value * (1 - value)
        memory = np.divide(spread, varies, out=np.zeros(models), where=varies > 0)
        return cls(value, error, float(drift.max()), float(memory.max()))

    @property
    def settled(self) -> bool:
        known = self.error.max() <= WANTED and self.drift < MOST_DRIFT
        return bool(known and self.memory * FORGOTTEN <= 1)


def mean_error(values: Array) -> Array:
    return values.std(1, ddof=1) / math.sqrt(values.shape[1])


def run_eryn(ensemble: Ensemble, budget: float, begun: float, whole: bool = False) -> Row:
    """Until the errors are small and nothing drifts, or the budget is spent; or to its end."""
    sampler, models = ensemble.sampler, len(ensemble.names)
    seen: list[NDArray[np.int8]] = []
    for state in sampler.sample(ensemble.state, iterations=None, store=False):
        seen.append(ensemble.model(state).astype(np.int8))
        late = time.perf_counter() - begun > budget
        if late or (
            not whole
            and len(seen) >= LEAST_STEPS
            and len(seen) % LOOK == 0
            and Shares.of(np.stack(seen), models).settled
        ):
            break
    accepted = sampler.rj_moves[0].acceptance_fraction[0].mean()
    note = f"{sampler.nwalkers} walkers, {len(seen)} steps, births and deaths accepted "
    row = of_visits(seen, ensemble.names, f"{note}{accepted:.2%}")
    return row | {"calls": ensemble.likelihood.calls}


def of_visits(seen: list[NDArray[np.int8]], names: list[str], note: str) -> Row:
    """What a row says of the model indices of all walkers, step by step."""
    found = Shares.of(np.stack(seen), len(names))
    kept = (len(seen) + 1) // 2 * len(seen[0])
    row = of_shares(dict(zip(names, found.value.tolist(), strict=True)), found.error, kept)
    drift = f", drifts by {found.drift:.1f} errors" if found.drift >= MOST_DRIFT else ""
    return row | {"note": note + drift}


def of_shares(share: dict[str, float], error: Array, draws: int) -> Row:
    """What a row says of probabilities and their standard errors."""
    p = np.array([*share.values()])
    counts = (p > COUNTED) & (p < 1 - COUNTED) & (error > 0) & np.isfinite(error)
    ess = (p[counts] * (1 - p[counts]) / error[counts] ** 2).min(initial=np.inf)
    ess = ess if np.isfinite(ess) else math.nan
    worst = float(np.max(error))
    return {
        "value": float(p.max()),
        "claimed_error": worst if np.isfinite(worst) else math.nan,
        "ess": float(ess),
        "steps": draws / ess,
        "shares": share,
    }
