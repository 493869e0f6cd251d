"""Which component is which: like components of many draws, told apart by where they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from ..errors import ConfigurationError, ShapeError

Array = NDArray[np.float64]

Index = NDArray[np.int64]

FITTED_DRAWS = 2000  # that entries are fitted to at most

FITTED_COMPONENTS = 20_000  # in those draws at most

LEAST_SHARE = 0.05  # share of the draws that must hold an entry

EFFECTIVE_DRAWS = 100  # independent draws that Schwarz's price of an entry takes a run to be worth

STARTS = ((0.5, 0.01), (0.1, 0.1))  # spread of first entries over that of all; rate of clutter

OTHER_DRAWS = 3  # whose components are first entries, beside those of the best draw

MOST_ASSIGNMENTS = 20  # rounds of names and entries in turn at most

CHANGED_SHARE = 1e-3  # share of the names below which a change ends those rounds

TIDYING_ROUNDS = 10  # rounds of joining and dropping entries at most

GROWING_ROUNDS = 10  # of looking for more entries in clutter at most

ENTRIES_A_ROUND = 12  # entries that one of those rounds may add

DENSITY_POINTS = 1000  # components at which the density of clutter is measured

FEW_COMPONENTS = 100  # components of clutter below which its spread is not measured

LEAST_RATE = 0.01  # components of clutter a draw, at least

LEAST_VARIANCE = 1e-12  # variance of an entry over that of all components, at least

NEAR_SQUARED = 30.0  # squared distance, in their own spread, within which two entries may be one

PAIRS_AT_ONCE = 4_000_000  # pairs of a component and an entry that are held at once


@dataclass(frozen=True)
class Relabelling:
    """Entries that the components of many draws belong to, the most probable first.

    Attributes:
        entry: Entry of each component, -1 where it belongs to none or is absent, shape
            (..., K).
        probability: Share of the draws that hold each entry, shape (J,).
        mean: Of each entry, in the coordinates that were given, shape (J, P).
        covariance: Likewise, shape (J, P, P).
    """

    entry: Index
    probability: Array
    mean: Array
    covariance: Array


def relabel(
    x: NDArray[np.floating],
    active: NDArray[np.bool_],
    log_joint: NDArray[np.floating] | None = None,
    *,
    least: float = LEAST_SHARE,
) -> Relabelling:
    r"""Give the components of each draw names that mean the same in all draws.

    A draw is described as one component of each entry j, there with probability :math:`p_j` and
    then normal, and a Poisson number of others (clutter), mean :math:`\lambda`, spread as all
    components are. A draw's names are the likeliest ones: one-to-one, with the largest sum of

    .. math:: \log \frac{p_j \, N(x_i; \mu_j, \Sigma_j)}{(1 - p_j) \, \lambda \, c(x_i)}

    over the pairs of components i and entries j; a component may stay without an entry, which
    adds 0. Names and entries are found in turn, from a few thousand draws; then all draws get
    their names. It begins with the components of the most probable draw among those of the
    most common number, with those of a few other draws, and with none; more entries are looked
    for where clutter is dense, those that say no more than clutter are dropped, two that are as
    well described as one are joined, and the likeliest description is kept, where each entry has
    its price by Schwarz's criterion for 100 independent draws.

    Arguments:
        x: Components of each draw, in coordinates in which a normal may do, shape (..., K, P);
            values of absent ones don't matter.
        active: Which components there are, shape (..., K).
        log_joint: Log density of each draw, shape (...), to begin with a good one.
        least: Entries in less than this share of the draws are dropped.

    Returns:
        Entries, and the entry of each component. What the components were called before does not
        matter.

    Raises:
        ShapeError: Shapes do not fit together.
        ConfigurationError: ``least`` is not in (0, 1).

    Error:
        A name is the likeliest one, not the only possible one: where entries overlap, or lie
        among clutter, their tails are cut off at the border.

    Source:
        Stephens (2000), https://doi.org/10.1111/1467-9868.00265, for names and summaries in
        turn; here of a varying number of components, and with clutter.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = np.array([[-1.0], [1.0]]) + 0.1 * rng.standard_normal((500, 2, 1))
        >>> active = np.stack([np.ones(500, dtype=bool), rng.random(500) < 0.3], 1)
        >>> found = relabel(x, active)
        >>> found.mean[:, 0].round(1).tolist(), found.entry.shape
        ([-1.0, 1.0], (500, 2))
        >>> float(found.probability[1] - active[:, 1].mean())
        0.0
    """
    if not 0 < least < 1:
        raise ConfigurationError(f"least: expected a share in (0, 1), got {least}")
    if x.ndim < 2 or x.shape[:-1] != active.shape:
        raise ShapeError(
            f"x, active: expected (..., K, P) and (..., K), got {x.shape} and {active.shape}"
        )
    rows, on = x.reshape(-1, *x.shape[-2:]), active.reshape(-1, active.shape[-1])
    score = np.zeros(len(on)) if log_joint is None else np.asarray(log_joint).reshape(-1)
    if score.shape != (len(on),):
        raise ShapeError(f"log_joint: expected shape {active.shape[:-1]}, got {score.shape}")
    name, p = np.full(on.shape, -1), x.shape[-1]
    if not on.any():
        return Relabelling(
            name.reshape(active.shape), np.zeros(0), np.zeros((0, p)), np.zeros((0, p, p))
        )
    cloud = _Cloud.of(rows, on)
    if int(on.sum(1).max()) == 1:  # nothing to tell apart
        found = np.zeros(len(cloud.x), dtype=np.int64)
    else:
        some = _some(on)
        fitted = _Cloud.of(rows[some], on[some])
        centre, spread = fitted.x.mean(0), fitted.x.std(0)
        spread = np.where(spread > 0, spread, 1.0)
        fitted = replace(fitted, x=(fitted.x - centre) / spread)
        entries = _fitted(fitted, _good_draws(on[some], score[some]), least)
        found = _names(entries, replace(cloud, x=(cloud.x - centre) / spread))
    n = int(found.max(initial=-1)) + 1
    share = np.bincount(found[found >= 0], minlength=n) / len(on)
    kept = np.flatnonzero((share >= least) & (share > 0))
    mine = [cloud.x[found == j] for j in kept]
    mean = np.array([x.mean(0) for x in mine]).reshape(-1, p)
    covariance = np.array([np.cov(x.T, ddof=0) for x in mine]).reshape(-1, p, p)
    order = np.lexsort((mean[:, 0], -share[kept]))
    place = np.full(n + 1, -1)  # the last is that of no entry
    place[kept[order]] = np.arange(len(kept))
    name[on] = place[found]
    return Relabelling(
        name.reshape(active.shape), share[kept][order], mean[order], covariance[order]
    )


# ---- components and entries ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Cloud:
    """Components in a row: coordinates (M, P), their draws (M,), in order; number of draws."""

    x: Array
    draw: Index
    draws: int

    @classmethod
    def of(cls, x: NDArray[np.floating], on: NDArray[np.bool_]) -> _Cloud:
        return cls(x[on].astype(float), on.nonzero()[0], len(on))

    def only(self, which: NDArray[np.bool_]) -> _Cloud:
        return replace(self, x=self.x[which], draw=self.draw[which])


class _Entries(NamedTuple):
    """Probabilities (J,), means (J, P), covariances (J, P, P); the rate of clutter, its spread."""

    share: Array
    mean: Array
    covariance: Array
    rate: float
    clutter: Array

    def only(self, which: NDArray[np.bool_]) -> _Entries:
        return self._replace(
            share=self.share[which], mean=self.mean[which], covariance=self.covariance[which]
        )

    def plus(self, others: _Entries) -> _Entries:
        return self._replace(
            share=np.concatenate([self.share, others.share]),
            mean=np.concatenate([self.mean, others.mean]),
            covariance=np.concatenate([self.covariance, others.covariance]),
        )


class _Found(NamedTuple):
    """Entries, the names that they give, and a log likelihood a draw less the entries' price."""

    entries: _Entries
    name: Index
    score: float


def _some(on: NDArray[np.bool_]) -> Index:
    """Draws spread evenly that are enough to fit entries to."""
    occupied = on.sum(1) > 0
    thin = max(-(-len(on) // FITTED_DRAWS), -(-int(on.sum()) // FITTED_COMPONENTS))
    rows = np.arange(0, len(on), thin)
    return rows if occupied[rows].any() else occupied.nonzero()[0][:FITTED_DRAWS]


def _good_draws(on: NDArray[np.bool_], score: Array) -> list[int]:
    """Draws of the most common number, 0 left out: that of the highest score, and others."""
    number = on.sum(1)
    common = int(np.bincount(number)[1:].argmax()) + 1
    rows = np.flatnonzero(number == common)
    others = rows[:: -(-len(rows) // OTHER_DRAWS)]  # the best one may be an odd one
    return [int(rows[score[rows].argmax()]), *others.tolist()]


def _log_normal(x: Array, mean: Array, covariance: Array) -> Array:
    """Log densities of normals, (M, P), (J, P), (J, P, P) -> (M, J)."""
    j, p = mean.shape
    root = np.linalg.cholesky(covariance)
    white = np.linalg.inv(root)
    z = x @ white.reshape(j * p, p).T - np.einsum("jab,jb->ja", white, mean).reshape(j * p)
    log_det = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(1)
    square = np.square(z).reshape(-1, j, p).sum(2)
    return -0.5 * square - log_det - 0.5 * p * math.log(2 * math.pi)


def _log_clutter(x: Array, clutter: Array) -> Array:
    """Log density of clutter, (M, P) -> (M,)."""
    return _log_normal(x, np.zeros((1, x.shape[1])), clutter[None])[:, 0]


def _names(entries: _Entries, cloud: _Cloud) -> Index:
    """The likeliest entry of each component, -1 where clutter is likelier, shape (M,)."""
    name = np.full(len(cloud.x), -1)
    if not len(entries.share) or not len(cloud.x):
        return name
    start = np.searchsorted(cloud.draw, np.arange(cloud.draws + 1))
    begin = 0
    while begin < cloud.draws:  # blocks of whole draws
        room = max(1, PAIRS_AT_ONCE // len(entries.share))
        end = int(np.searchsorted(start, start[begin] + room, side="right")) - 1
        end = min(max(end, begin + 1), cloud.draws)
        rows = slice(start[begin], start[end])
        name[rows] = _named(entries, cloud.x[rows], cloud.draw[rows], cloud.draws)
        begin = end
    return name


def _named(entries: _Entries, x: Array, draw: Index, draws: int) -> Index:
    n = len(entries.share)
    p = entries.share.clip(0.5 / draws, 1 - 0.5 / draws)  # one draw more or less
    gain = _log_normal(x, entries.mean, entries.covariance) + np.log(p / (1 - p))
    gain -= _log_clutter(x, entries.clutter)[:, None] + math.log(max(entries.rate, LEAST_RATE))
    gain = gain.clip(min=0.0)
    name = gain.argmax(1) if len(x) else np.zeros(0, dtype=np.int64)
    name = np.where(gain[np.arange(len(x)), name] > 0, name, -1)
    key, count = np.unique((draw * n + name)[name >= 0], return_counts=True)
    torn = np.unique(key[count > 1] // n)  # two components want one entry
    bounds = zip(np.searchsorted(draw, torn), np.searchsorted(draw, torn + 1), strict=True)
    for begin, end in bounds:
        value = gain[begin:end]
        i, j = scipy.optimize.linear_sum_assignment(value, maximize=True)
        name[begin:end] = -1
        name[begin + i] = np.where(value[i, j] > 0, j, -1)
    return name


def _updated(entries: _Entries, cloud: _Cloud, name: Index) -> tuple[_Entries, Index]:
    """Entries as their components are, without those that have none, and the names again."""
    p, n = cloud.x.shape[1], len(entries.share)
    kept = np.flatnonzero(np.bincount(name[name >= 0], minlength=n) > 1)
    place = np.full(n + 1, -1)
    place[kept] = np.arange(len(kept))
    name = place[name]
    share, mean, covariance = np.zeros(len(kept)), [], []
    for j in range(len(kept)):
        x = cloud.x[name == j]
        moment = np.cov(x.T, ddof=0).reshape(p, p) + LEAST_VARIANCE * np.eye(p)
        trust = len(x) / (len(x) + p + 1)  # few components can't tell correlations
        share[j] = len(x) / cloud.draws
        mean.append(x.mean(0))
        covariance.append(trust * moment + (1 - trust) * np.diag(np.diag(moment)))
    entries = entries._replace(
        share=share,
        mean=np.array(mean).reshape(-1, p),
        covariance=np.array(covariance).reshape(-1, p, p),
        rate=float((name < 0).sum()) / cloud.draws,
        clutter=_wider(entries.clutter, cloud.x[name < 0]),
    )
    return entries, name


def _wider(clutter: Array, left: Array) -> Array:
    """The covariance of clutter, wider where what is left lies farther out than it says."""
    if len(left) < FEW_COMPONENTS:
        return clutter
    root = np.linalg.cholesky(clutter)
    white = np.linalg.solve(root, left.T)
    values, vectors = np.linalg.eigh(white @ white.T / len(left))
    axes = root @ vectors
    wider: Array = (axes * values.clip(min=1.0)) @ axes.T
    return wider


def _settled(entries: _Entries, cloud: _Cloud) -> _Found:
    """Names and entries in turn until next to nothing changes."""
    name = _names(entries, cloud)
    for _ in range(MOST_ASSIGNMENTS):
        entries, name = _updated(entries, cloud, name)
        again = _names(entries, cloud)
        changed, name = (again != name).mean(), again
        if changed <= CHANGED_SHARE:
            break
    entries, name = _updated(entries, cloud, name)
    return _Found(entries, name, _score(entries, cloud, name))


def _self_information(share: Array, covariance: Array) -> Array:
    """Log likelihood a draw of entries that their components were fitted to, (J,)."""
    p = covariance.shape[-1]
    log_det = np.linalg.slogdet(covariance)[1]
    there = scipy.special.xlogy(share, share) + scipy.special.xlogy(1 - share, 1 - share)
    found: Array = there - 0.5 * share * (log_det + p * (1 + math.log(2 * math.pi)))
    return found


def _poisson(rate: float | Array) -> Array:
    found: Array = scipy.special.xlogy(rate, rate) - rate
    return found


def _score(entries: _Entries, cloud: _Cloud, name: Index) -> float:
    """Log likelihood of entries and names, nats a draw, less what the entries cost."""
    left = _log_clutter(cloud.x[name < 0], entries.clutter).sum() / cloud.draws
    own = _self_information(entries.share, entries.covariance).sum()
    price = len(entries.share) * _price(cloud.x.shape[1])
    return float(own + _poisson(entries.rate) + left - price)


# ---- entries that go, are joined, or come -------------------------------------------------------


def _price(p: int) -> float:
    """Nats a draw by which one entry more must describe the draws better; Schwarz's criterion."""
    numbers = 1 + p + p * (p + 1) // 2
    return 0.5 * numbers * math.log(EFFECTIVE_DRAWS) / EFFECTIVE_DRAWS


def _worth(found: _Found, cloud: _Cloud) -> Array:
    """Nats a draw by which each entry describes its components better than clutter does, (J,)."""
    entries, named = found.entries, found.name >= 0
    clutter = _log_clutter(cloud.x[named], entries.clutter)
    as_clutter = np.bincount(found.name[named], clutter, len(entries.share)) / cloud.draws
    as_clutter += _poisson(entries.rate + entries.share) - _poisson(entries.rate)
    return _self_information(entries.share, entries.covariance) - as_clutter


def _joined(found: _Found, cloud: _Cloud) -> _Entries | None:
    """The entries with pairs made one that need not be two, those that gain the most first."""
    entries, n = found.entries, len(found.entries.share)
    present = np.zeros((cloud.draws, n))
    present[cloud.draw[found.name >= 0], found.name[found.name >= 0]] = 1.0
    both = present.T @ present / cloud.draws
    alone = _self_information(entries.share, entries.covariance)
    pairs = []
    for i, j in combinations(range(n), 2):
        gap = entries.mean[i] - entries.mean[j]
        if gap @ np.linalg.solve(entries.covariance[i] + entries.covariance[j], gap) > NEAR_SQUARED:
            continue
        weight = entries.share[[i, j]] / entries.share[[i, j]].sum()
        mean = weight @ entries.mean[[i, j]]
        covariance = np.einsum("i,ijk->jk", weight, entries.covariance[[i, j]])
        covariance += weight.prod() * np.outer(gap, gap)
        share = entries.share[i] + entries.share[j] - both[i, j]
        gain = _self_information(np.array([share]), covariance[None])[0] - alone[i] - alone[j]
        gain += both[i, j] * _log_clutter(mean[None], entries.clutter)[0]  # one of two is left
        gain += _poisson(entries.rate + both[i, j]) - _poisson(entries.rate)
        if gain > -_price(len(mean)):
            pairs.append((gain, i, j, share, mean, covariance))
    if not pairs:
        return None
    keep = np.ones(n, dtype=bool)
    for _, i, j, share, mean, covariance in sorted(pairs, key=lambda pair: -pair[0]):
        if keep[i] and keep[j]:
            keep[[i, j]] = False
            one = entries._replace(
                share=np.array([share]), mean=mean[None], covariance=covariance[None]
            )
            entries = entries.plus(one)
    return entries.only(np.concatenate([keep, np.ones(len(entries.share) - n, dtype=bool)]))


def _tidied(found: _Found, cloud: _Cloud, least: float) -> _Found:
    """Without entries that are rare or say nothing, and with those joined that are one."""
    p = cloud.x.shape[1]
    for _ in range(TIDYING_ROUNDS):
        keep = (_worth(found, cloud) >= _price(p)) & (found.entries.share >= least)
        entries = found.entries.only(keep) if not keep.all() else _joined(found, cloud)
        if entries is None:
            break
        found = _settled(entries, cloud)
    return found


def _dense(clutter: _Cloud, entries: _Entries, least: float) -> _Entries:
    """New entries where components that belong to none are dense."""
    none = entries.only(np.zeros(len(entries.share), dtype=bool))
    new, p = none, clutter.x.shape[1]
    for _ in range(ENTRIES_A_ROUND):
        few = max(int(0.5 * least * clutter.draws), p + 2)
        if len(clutter.x) < max(least * clutter.draws, few + 1):
            break
        tree = scipy.spatial.KDTree(clutter.x)
        asked = clutter.x[:: -(-len(clutter.x) // DENSITY_POINTS)]
        radius, near = tree.query(asked, k=few)
        x = clutter.x[near[radius[:, -1].argmin()]]
        covariance = np.cov(x.T, ddof=0).reshape(1, p, p) + LEAST_VARIANCE * np.eye(p)
        rate = len(clutter.x) / clutter.draws
        seed = none._replace(
            share=np.array([least]), mean=x.mean(0)[None], covariance=4 * covariance, rate=rate
        )
        found = _settled(seed, clutter)
        if not len(found.entries.share):
            break
        new = new.plus(found.entries)
        clutter = clutter.only(found.name < 0)
    return new


def _fitted(cloud: _Cloud, good: Sequence[int], least: float) -> _Entries:
    """Entries by the likeliest description among those that several starts lead to."""
    p = cloud.x.shape[1]
    clutter = np.cov(cloud.x.T, ddof=0).reshape(p, p) + 1e-6 * np.eye(p)
    asked = [(good[0], *start) for start in STARTS] + [(draw, *STARTS[0]) for draw in good[1:]]
    starts = []
    for draw, spread, rate in asked:
        first = cloud.x[cloud.draw == draw]
        wide = np.repeat(spread**2 * clutter[None], len(first), 0)
        starts.append(_Entries(np.full(len(first), 0.5), first, wide, rate, clutter))
    every = len(cloud.x) / cloud.draws
    starts.append(starts[0].only(np.zeros(len(first), dtype=bool))._replace(rate=every))
    return max((_grown(s, cloud, least) for s in starts), key=lambda f: f.score).entries


def _grown(start: _Entries, cloud: _Cloud, least: float) -> _Found:
    """What a start leads to, with more entries as long as they make the draws likelier."""
    found = _tidied(_settled(start, cloud), cloud, least)
    for _ in range(GROWING_ROUNDS):
        new = _dense(cloud.only(found.name < 0), found.entries, least)
        if not len(new.share):
            break
        more = _tidied(_settled(found.entries.plus(new), cloud), cloud, least)
        if more.score <= found.score + 1e-6:
            break
        found = more
    return found
