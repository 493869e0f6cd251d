"""Gaussian mixtures fitted to draws of each model by expectation-maximisation."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..draws import Pool
from ..rng import weighted
from ..space.base import Space, check_enumerable
from ..target.resolution import resolved
from .mixture import MixtureOfMaps
from .parts import Gaussians

SOME = 4  # normals that are tried between one and as many as are allowed

ROUNDS = 25

ENOUGH = 1e-3  # nats a draw: rounds of expectation-maximisation that gain less are the last

CLOSER = 3e-4  # the same where draws are many and weighted

MOST_DRAWS = 2000  # draws of a model that a mixture is fitted to, unless more are asked for

DRAWS_A_COMPONENT = 25  # draws for each component and each dimension plus one, at least

REFITTED = 1e-3  # the floor below where draws are many

FLOORS = (0.1, 0.01, 1e-3, 1e-4, 1e-5)  # of the prior that keeps covariances from being singular

LOG_2PI = math.log(2 * math.pi)

HELD_OUT = 0.2  # share of the draws that judge them

JUDGED_A_COMPONENT = 50  # draws by which they are judged, for each component

CLEAR = 2.0  # standard errors by which a smaller one has to be better

WORTH = 0.05  # nats a draw by which it has to be: wide tails are worth something too

START_ROUNDS = 5  # rounds of k-means that the fit starts from


class NormalMixture:
    """A mixture of normals in few dimensions, for many points at once.

    Arguments:
        weight: Shape (k,).
        mean: Shape (k, d).
        factor: Lower triangular factors of the covariances, shape (k, d, d).

    Example:
        >>> normal = NormalMixture(torch.ones(1), torch.zeros(1, 2), torch.eye(2)[None])
        >>> x = normal.sample(3, torch.Generator().manual_seed(0))
        >>> x.shape, round(float(normal.log_prob(torch.zeros(1, 2))), 4)
        (torch.Size([3, 2]), -1.8379)
    """

    def __init__(self, weight: Tensor, mean: Tensor, factor: Tensor) -> None:
        k, d = mean.shape
        self.weight, self.mean, self.factor = weight, mean, factor
        inverse = torch.linalg.solve_triangular(factor, torch.eye(d).to(factor), upper=False)
        self._whiten = inverse.permute(2, 0, 1).reshape(d, k * d)  # all normals by one product
        self._centre = torch.einsum("kij,kj->ki", inverse, mean)
        log_det = factor.diagonal(dim1=1, dim2=2).log().sum(-1)
        self._constant = weight.log() - log_det - 0.5 * d * math.log(2 * math.pi)

    @classmethod
    def fitted(
        cls, x: Tensor, components: int, generator: torch.Generator, *, draws: int = MOST_DRAWS
    ) -> NormalMixture:
        """Fitted to draws, shape (n, d), by expectation-maximisation; fewer normals of few.

        Arguments:
            x: Draws.
            components: Normals at most.
            generator: Source of randomness.
            draws: Those that they are fitted to at most.
        """
        order = torch.randperm(len(x), generator=generator, device=x.device)
        k = max(1, min(components, len(x) // (DRAWS_A_COMPONENT * (x.shape[1] + 1))))
        weight, mean, factor = _fit(x[order[:draws]].double(), k, generator)
        factor = resolved(mean, factor, x.dtype)
        return cls(*(part.to(x.dtype) for part in (weight, mean, factor)))

    def refitted(self, x: Tensor, weight: Tensor) -> NormalMixture:
        """Fitted to weighted draws from here on, by expectation-maximisation, in float64.

        Arguments:
            x: Draws, shape (n, d); many for each normal.
            weight: Their weights, of any sum, shape (n,).
        """
        weight = weight / weight.sum()
        centre = weight @ x
        spread = (weight @ (x - centre).square()).sqrt().clamp(min=1e-12)
        k, d = self.mean.shape
        floor = REFITTED * k ** (-2 / d) * torch.eye(d, dtype=x.dtype, device=x.device)
        shares = self.shares(x)
        found, _ = _maximised((x - centre) / spread, shares, floor, weight * len(x))
        mean, factor = found.mean * spread + centre, spread[:, None] * found.factor
        return NormalMixture(found.weight, mean, factor)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Shape (n, d)."""
        like = self.mean
        which = weighted(self.weight, n, generator)
        noise = torch.randn(
            n, like.shape[1], generator=generator, device=like.device, dtype=like.dtype
        )
        return self.mean[which] + torch.einsum("nij,nj->ni", self.factor[which], noise)

    def log_prob(self, x: Tensor) -> Tensor:
        """Shape (n, d) -> (n,), nats."""
        return self._terms(x).logsumexp(1)

    def shares(self, x: Tensor) -> Tensor:
        """How probably points (n, d) are of each normal, shape (n, k)."""
        return self._terms(x).softmax(1)

    def _terms(self, x: Tensor) -> Tensor:
        z = (x @ self._whiten).view(len(x), *self._centre.shape) - self._centre
        return self._constant - 0.5 * z.square().sum(-1)


def gaussian_mixture(
    space: Space,
    pool: Pool,
    generator: torch.Generator,
    *,
    components: int = 8,
    draws: int = MOST_DRAWS,
) -> MixtureOfMaps:
    """For each model a mixture of normals, as a map: jumps through it need no training.

    Arguments:
        space: A bound space of few models.
        pool: Posterior draws. Models with none keep a standard normal.
        generator: Source of randomness.
        components: Most normals a model; fewer where draws are few: 25 times the dimension plus
            one for each.
        draws: Most draws of a model that they are fitted to.

    Source:
        As proposals of reversible jumps: Hastie (2005), AutoMix

    Example:
        >>> from trjmcmc import problems
        >>> space = problems.sinh_arcsinh().space
        >>> g = torch.Generator().manual_seed(0)
        >>> pool = Pool(torch.ones(500, 1).long(), torch.randn(500, 2, generator=g),
        ...             torch.zeros(500))
        >>> flow = gaussian_mixture(space, pool, g, components=2)
        >>> flow.push(torch.zeros(3, 3), torch.ones(3, 1).long())[0].shape
        torch.Size([3, 2])
    """
    check_enumerable(space)
    codes = space.enumerate()
    m, d = len(codes), space.n_slots
    like = pool.theta
    loc = like.new_zeros(m, components, d)
    tril = torch.eye(d, dtype=like.dtype, device=like.device).repeat(m, components, 1, 1)
    log_weights = like.new_full((m, components), -math.inf)
    log_weights[:, 0] = 0.0
    which = space.index(pool.code)
    for i, active in enumerate(space.active(codes)):
        used = active.nonzero()[:, 0]
        mine = (which == i).nonzero()[:, 0]
        if not len(used) or len(mine) < 2:
            continue
        order = torch.randperm(len(mine), generator=generator, device=mine.device)
        x = pool.theta[mine[order[:draws]]][:, used].double()
        k = max(1, min(components, len(x) // (DRAWS_A_COMPONENT * (len(used) + 1))))
        weight, mean, factor = _fit(x, k, generator)
        factor, k = resolved(mean, factor, like.dtype), len(weight)
        log_weights[i, :k] = weight.log().to(like.dtype)
        loc[i, :k, used] = mean.to(like.dtype)
        tril[i, :k, used[:, None], used] = factor.to(like.dtype)
    most = int((log_weights > -math.inf).sum(1).max())
    parts = Gaussians(space, loc[:, :most], tril[:, :most])
    return MixtureOfMaps(parts, log_weights=log_weights[:, :most]).requires_grad_(False)


def _fit(x: Tensor, k: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, means and covariance factors of a mixture of at most k normals.

    As many are taken as predict draws that were held out: one, four, or k. The covariances have an
    inverse-Wishart prior, so that a component of few draws stays wide. Its size is the one that
    predicts those draws best: from a share of the draws' own spread down, for thin curved ridges.

    Source:
        Fraley & Raftery (2007), https://doi.org/10.1007/s00357-007-0004-5
    """
    centre, spread = x.mean(0), x.std(0, correction=0).clamp(min=1e-12)
    x = (x - centre) / spread
    some = x[: max(MOST_DRAWS, JUDGED_A_COMPONENT * k)]
    distinct, which = some.unique(dim=0, return_inverse=True)
    held = torch.rand(len(distinct), generator=generator, device=x.device, dtype=x.dtype)
    held_out = (held < HELD_OUT)[which]
    if not 1 < int(held_out.sum()) < len(some) - k:
        held_out = torch.zeros_like(held_out)
    fitted, others = some[~held_out], some[held_out]
    eye = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)

    def by_means(k: int) -> tuple[NormalMixture, Tensor]:
        share = torch.nn.functional.one_hot(_k_means(fitted, k, generator), k).to(x.dtype)
        return _maximised(fitted, share, FLOORS[0] * k ** (-2 / x.shape[1]) * eye)

    if not len(others):
        best, _ = by_means(k)
        return best.weight, best.mean * spread + centre, spread[:, None] * best.factor
    best, share = by_means(1)
    score = best.log_prob(others)
    for number in sorted({min(SOME, k), k} - {1}):
        normals, shares = by_means(number)
        gain = normals.log_prob(others) - score
        if gain.mean() < WORTH:  # however few draws it is that more normals are needed for
            break
        best, share, score = normals, shares, score + gain
    size, floor = len(best.weight) ** (-2 / x.shape[1]) * eye, FLOORS[0]
    for smaller in FLOORS[1:]:
        normals, share = _maximised(fitted, share, smaller * size)
        gain = normals.log_prob(others) - score
        if gain.mean() < max(WORTH, CLEAR * gain.std() / len(gain) ** 0.5):
            break
        best, floor, score = normals, smaller, score + gain
    best, _ = _maximised(x, best.shares(x), floor * size)
    return best.weight, best.mean * spread + centre, spread[:, None] * best.factor


def _maximised(
    x: Tensor, share: Tensor, floor: Tensor, counted: Tensor | None = None
) -> tuple[NormalMixture, Tensor]:
    """A mixture of normals by expectation-maximisation.

    Arguments:
        x: Draws, shape (n, d), of spread about one.
        share: How much each belongs to each component at first, shape (n, k).
        floor: Prior of the covariances, shape (d, d).
        counted: How many times each draw counts, of mean one, shape (n,).

    Returns:
        The mixture, and how much each draw belongs to each component now.
    """
    (n, d), k, before = x.shape, share.shape[1], -math.inf
    eye = torch.eye(d, dtype=x.dtype, device=x.device)
    products = _Products(x, k)
    strength = d + 2.0
    for _ in range(ROUNDS):
        share = share if counted is None else share * counted[:, None]
        count = share.sum(0)
        weight = (count + 1) / (n + k)
        mean = (share.T @ x) / count.clamp(min=1e-9)[:, None]
        mean = torch.where((count > 1e-6)[:, None], mean, 0.0)
        scatter = products.sums(share) - count[:, None, None] * mean[:, :, None] * mean[:, None]
        covariance = (scatter + strength * floor) / (count + strength)[:, None, None]
        factor = torch.linalg.cholesky(covariance + 1e-9 * eye)
        precision = torch.cholesky_inverse(factor)
        along = (precision @ mean[..., None])[..., 0]
        log_det = factor.diagonal(dim1=1, dim2=2).log().sum(-1)
        constant = weight.log() - log_det - 0.5 * (mean * along).sum(1) - 0.5 * d * LOG_2PI
        terms = constant + x @ along.T - 0.5 * products.forms(precision)
        total = terms.logsumexp(1)
        share = (terms - total[:, None]).exp()
        now = float(total.mean() if counted is None else (total * counted).mean())
        if now - before < (ENOUGH if counted is None else CLOSER):
            break
        before = now
    return NormalMixture(weight, mean, factor), share


class _Products:
    """Quadratic forms of draws, and sums of their products, for k components at once.

    Where components are many all products of two coordinates are kept, each once, so that either
    is one matrix product; else those of draws and components.

    Arguments:
        x: Draws, shape (n, d).
        k: Components.
    """

    def __init__(self, x: Tensor, k: int) -> None:
        self.x = x
        d = x.shape[1]
        self.row, self.column = torch.triu_indices(d, d, device=x.device)
        self.pairs = x[:, self.row] * x[:, self.column] if d <= k else None

    def sums(self, share: Tensor) -> Tensor:
        """Sum over draws of share x x', (n, k) -> (k, d, d)."""
        if self.pairs is None:
            return (share.T[..., None] * self.x).mT @ self.x
        k, d = share.shape[1], self.x.shape[1]
        found = self.x.new_empty(k, d, d)
        found[:, self.row, self.column] = found[:, self.column, self.row] = share.T @ self.pairs
        return found

    def forms(self, matrix: Tensor) -> Tensor:
        """x' M x of each draw for each symmetric matrix, (k, d, d) -> (n, k)."""
        if self.pairs is None:
            return ((self.x @ matrix) * self.x).sum(-1).T
        twice = 2.0 - (self.row == self.column).to(matrix)
        return self.pairs @ (twice * matrix[:, self.row, self.column]).T


def _k_means(x: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """The nearest of k centres for each row, (n,), from spread-out starts.

    Source:
        Arthur & Vassilvitskii (2007), k-means++
    """
    pick = torch.randint(len(x), (1,), generator=generator, device=x.device)
    centres = x[pick]
    for _ in range(k - 1):
        gap = torch.cdist(x, centres).amin(1).square() + 1e-12
        centres = torch.cat([centres, x[torch.multinomial(gap, 1, generator=generator)]])
    for _ in range(START_ROUNDS):
        nearest = torch.cdist(x, centres).argmin(1)
        count = torch.bincount(nearest, minlength=k)[:, None]
        total = torch.zeros_like(centres).index_add(0, nearest, x)
        centres = torch.where(count > 0, total / count.clamp(min=1), centres)
    return torch.cdist(x, centres).argmin(1)
